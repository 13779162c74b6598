//! Giving a deployment back, against a real Core, and what a reset is waited for, against a scripted one.

use axum::response::Response;
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    program::Oac,
    script::{Asked, Script, answer, refuse},
};

const RESET: &str = "/core/v1/sandbox/deployment/reset";

#[tokio::test]
async fn a_reset_is_asked_for_once_waited_for_and_leaves_nothing_selected() {
    let core = TestCore::start().await;
    let oac = Oac::with(&format!(
        "url = \"{}\"\ncore_key = \"{}\"\n",
        core.url,
        core.core_key.expose()
    ));
    let said = oac.run(&["deployment", "reset", "--yes"]).await.expect(1);
    assert!(said.err.contains("sandbox_not_configured"), "{said:?}");
    core.deploy(1, 512).await;
    core.enroll(&json!({})).await;
    let said = oac.run(&["deployment", "reset"]).await.expect(2);
    assert!(said.err.contains("--yes"), "{said:?}");
    for wrong in [
        &["--deadline", "299"][..],
        &["--deadline", "86401"],
        &["--force", "--deadline", "300"],
    ] {
        let arguments = [&["deployment", "reset", "--yes"], wrong].concat();
        oac.run(&arguments).await.expect(2);
    }
    let said = oac.run(&["deployment", "cancel-reset"]).await.expect(0);
    assert!(said.out.contains("docker"), "nothing to cancel: {said:?}");
    let policy = ["deployment", "suspension", "--idle", "60", "--retention", "3600"];
    let said = oac.run(&policy).await.expect(1);
    assert!(said.err.contains("sandbox_deployment_conflict"), "{said:?}");
    oac.run(&["deployment", "suspension", "--idle", "59", "--retention", "3600"])
        .await
        .expect(2);

    let reset = ["--json", "deployment", "reset", "--yes", "--wait"];
    let done = oac.run(&reset).await.expect(0).json();
    assert_eq!(
        (&done["provider"], &done["reset"], &done["generation"]),
        (&Value::Null, &Value::Null, &json!(2))
    );
    assert!(oac.run(&["node", "list"]).await.expect(0).out.lines().count() == 1);
    let log = oac.run(&["audit"]).await.expect(0).out;
    assert!(
        log.contains("reset_start") && log.contains("reset_complete"),
        "{log}"
    );
}

fn deployment(generation: u64, reset: Value) -> Value {
    json!({ "generation": generation, "provider": "docker", "reset": reset })
}

fn standing(busy: u64, offline: Value) -> Value {
    let away: u64 = offline
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["resources"].as_u64().unwrap())
        .sum();
    json!({
        "clear": "auto",
        "requested_at": "2026-01-01T00:00:00Z",
        "deadline_at": "2026-01-01T01:00:00Z",
        "forced_at": null,
        "remaining": {
            "busy": busy,
            "idle": 0,
            "cleanup": 4,
            "discardable": [{ "allocation_id": "11111111-1111-4111-8111-111111111111", "session_id": "22222222-2222-4222-8222-222222222222" }],
            "on_offline_nodes": away,
            "offline_nodes": offline,
        },
    })
}

/// A Core whose reset is seen twice, once badly, and then is `ended`.
fn told(asked: &Asked, before: usize, ended: Value) -> Response {
    let away = json!([{ "node_id": "33333333-3333-4333-8333-333333333333", "name": "rack\u{1b} 7", "resources": 2 }]);
    let stands = deployment(4, standing(3, away));
    match (&asked.method, before) {
        (&Method::POST, _) => answer(200, stands),
        (_, 0) => answer(200, deployment(4, Value::Null)),
        (_, 1 | 3) => answer(200, stands),
        (_, 2) => refuse(503, "core_standby"),
        _ => answer(200, ended),
    }
}

#[tokio::test]
async fn waiting_names_the_offline_nodes_once_outlives_a_restart_and_ends_with_the_next_generation() {
    let script = Script::start(|asked, before| async move {
        told(
            &asked,
            before,
            json!({ "generation": 5, "provider": null, "reset": null }),
        )
    })
    .await;
    let oac = Oac::of(&script.url);
    let arguments = ["deployment", "reset", "--yes", "--wait", "--deadline", "600"];
    let said = oac.run(&arguments).await.expect(0);
    assert_eq!(
        said.err,
        "waiting for nodes that are offline: rack\\u{1b} 7 (2)\n"
    );
    assert!(said.out.contains("Generation     5"), "{said:?}");
    let posted = script
        .asked()
        .into_iter()
        .find(|a| a.is(Method::POST, RESET))
        .unwrap();
    assert_eq!(
        posted.json(),
        json!({ "expected_generation": 4, "clear": "auto", "deadline_seconds": 600 })
    );
}

#[tokio::test]
async fn a_reset_that_somebody_canceled_while_it_was_waited_for_is_a_failure() {
    let script =
        Script::start(|asked, before| async move { told(&asked, before, deployment(4, Value::Null)) }).await;
    let oac = Oac::of(&script.url);
    let arguments = ["--json", "deployment", "reset", "--yes", "--wait", "--force"];
    let said = oac.run(&arguments).await.expect(1);
    let error: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(error["error"]["code"], "unfinished");
    let posted = script
        .asked()
        .into_iter()
        .find(|a| a.is(Method::POST, RESET))
        .unwrap();
    assert_eq!(
        posted.json(),
        json!({ "expected_generation": 4, "clear": "force" })
    );
}

#[tokio::test]
async fn the_deployment_shows_how_far_its_reset_is_and_what_may_be_discarded() {
    let script = Script::start(|_, _| async move {
        let away =
            json!([{ "node_id": "33333333-3333-4333-8333-333333333333", "name": "rack 7", "resources": 2 }]);
        answer(200, deployment(4, standing(1, away)))
    })
    .await;
    let shown = Oac::of(&script.url)
        .run(&["deployment", "show"])
        .await
        .expect(0)
        .out;
    for text in [
        "auto, forced at 2026-01-01T01:00:00Z",
        "1 busy, 0 idle, 4 being removed; offline nodes: rack 7 (2)",
        "11111111-1111-4111-8111-111111111111",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}
