//! The installation's one sandbox selection.

use oac_testkit::core::{CoreOptions, TestCore, docker_selection};
use reqwest::Method;
use serde_json::{Value, json};

use crate::secrets::audit;

const PATH: &str = "/core/v1/sandbox/deployment";

fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[name] = value;
    body
}

#[tokio::test]
async fn a_fresh_installation_has_no_selection() {
    let core = TestCore::with(CoreOptions {
        public_url: Some(None),
        ..CoreOptions::default()
    })
    .await;
    let now = core.operator(Method::GET, PATH, None).await.expect(200);
    assert!(now["installation_id"].is_string());
    for member in ["provider", "core_url", "mode", "reset", "suspension"] {
        assert!(
            now[member].is_null() && now.get(member).is_some(),
            "{member}: {now}"
        );
    }
    assert_eq!(now["generation"], 0);
    assert_eq!(now["owner_epoch"], 1);
    assert_eq!(now["credential_configured"], false);
    assert_eq!(now["resources"], json!({ "allocations": 0, "pending": 0 }));
    assert_eq!(
        now["rollout"],
        json!({ "state": "settled", "previous_generation_sandboxes": 0, "nodes": null })
    );
    for member in [
        "specification",
        "specification_digest",
        "configuration",
        "metadata",
    ] {
        assert!(now.get(member).is_none(), "{member}");
    }
}

// inv: INV-C4, INV-C15
#[tokio::test]
async fn a_selection_is_saved_once_and_each_change_is_a_new_generation_with_one_audit_entry() {
    let core = TestCore::start().await;
    let before = audit(&core).await.len();
    let first = core
        .operator(Method::POST, PATH, Some(&docker_selection(0, 2, 2048)))
        .await
        .expect(200);
    assert_eq!(
        (&first["provider"], &first["mode"]),
        (&json!("docker"), &json!("nodes"))
    );
    assert_eq!(first["generation"], 1);
    assert_eq!(
        first["specification"]["resources"],
        json!({ "cpus": 2, "memory_mib": 2048 })
    );
    let specification = first["specification"].clone();
    let typed: oac_model::Specification = serde_json::from_value(specification).unwrap();
    assert_eq!(first["specification_digest"], typed.digest().to_string());
    assert_eq!(
        (&first["configuration"], &first["metadata"]),
        (&json!({}), &json!({}))
    );
    assert_eq!(first["rollout"]["nodes"]["ready"], 0);

    // The same again changes nothing; zero disks are absent ones.
    let same = with(docker_selection(1, 2, 2048), "/resources/root_disk_mib", json!(0));
    assert_eq!(
        core.operator(Method::POST, PATH, Some(&same)).await.expect(200)["generation"],
        1
    );
    assert_eq!(
        core.operator(Method::PUT, PATH, Some(&same)).await.expect(200)["generation"],
        1
    );

    let second = core
        .operator(Method::PUT, PATH, Some(&docker_selection(1, 4, 4096)))
        .await
        .expect(200);
    assert_eq!(second["generation"], 2);
    assert_ne!(second["specification_digest"], first["specification_digest"]);
    // Back to the first content is a new generation all the same.
    let third = core
        .operator(Method::PUT, PATH, Some(&docker_selection(2, 2, 2048)))
        .await
        .expect(200);
    assert_eq!(third["generation"], 3);
    assert_eq!(third["specification_digest"], first["specification_digest"]);

    let entries: Vec<_> = audit(&core).await[before..]
        .iter()
        .map(|e| {
            (
                e.resource_type.clone(),
                e.action.clone(),
                e.details["generation"].as_i64().unwrap(),
            )
        })
        .collect();
    let entry = |generation| ("sandbox_deployment".to_owned(), "change".to_owned(), generation);
    assert_eq!(entries, [entry(1), entry(2), entry(3)]);
    for generation in 1..=3 {
        let generation = oac_model::Generation::try_from(generation).unwrap();
        assert!(
            core.core()
                .store
                .single()
                .generation(generation)
                .await
                .unwrap()
                .is_some()
        );
    }
}

// inv: INV-C5
#[tokio::test]
async fn a_stale_generation_is_answered_stale_whatever_else_is_wrong() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let good = docker_selection(0, 2, 2048);
    let bodies = [
        good.clone(),
        with(good.clone(), "/expected_generation", json!(2)),
        with(good.clone(), "/expected_generation", json!(u64::MAX)),
        with(good.clone(), "/provider", json!("microsandbox")),
        with(good.clone(), "/provider", json!("e2b")),
        with(good.clone(), "/resources/cpus", json!(0)),
        with(good.clone(), "/credential", json!("secret")),
        with(good.clone(), "/configuration", json!({})),
        with(good.clone(), "/runtime/artifacts", json!({})),
        json!({ "expected_generation": 0, "provider": "docker" }),
    ];
    for body in bodies {
        for method in [Method::POST, Method::PUT] {
            let answer = core.operator(method, PATH, Some(&body)).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (409, "sandbox_generation_stale"),
                "{body}"
            );
            assert_eq!(answer.body["error"]["type"], "conflict_error");
            assert_eq!(
                answer.body["error"]["details"],
                json!({ "current_generation": 1 })
            );
        }
    }
}

// req: G-013
#[tokio::test]
async fn another_backend_needs_a_reset_first() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    for provider in ["microsandbox", "e2b"] {
        let body = with(docker_selection(1, 2, 2048), "/provider", json!(provider));
        for method in [Method::POST, Method::PUT] {
            let answer = core.operator(method, PATH, Some(&body)).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (409, "sandbox_reset_required")
            );
            let details = json!({ "current_provider": "docker", "requested_provider": provider });
            assert_eq!(answer.body["error"]["details"], details);
        }
    }
    let now = core.operator(Method::GET, PATH, None).await.expect(200);
    assert_eq!(
        (&now["provider"], &now["generation"]),
        (&json!("docker"), &json!(1))
    );
}

#[tokio::test]
async fn post_sets_up_and_put_changes() {
    let core = TestCore::start().await;
    let answer = core
        .operator(Method::PUT, PATH, Some(&docker_selection(0, 2, 2048)))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_not_configured")
    );
    core.deploy(2, 2048).await;
    let answer = core
        .operator(Method::POST, PATH, Some(&docker_selection(1, 4, 2048)))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_deployment_conflict")
    );
}

#[tokio::test]
async fn a_backend_that_is_not_built_is_refused_and_nothing_is_stored() {
    let core = TestCore::start().await;
    for provider in ["microsandbox", "e2b"] {
        let body = with(docker_selection(0, 2, 2048), "/provider", json!(provider));
        let answer = core.operator(Method::POST, PATH, Some(&body)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, "invalid_request_error")
        );
        assert_eq!(answer.body["error"]["param"], "provider");
        assert!(
            answer.body["error"]["message"]
                .as_str()
                .unwrap()
                .contains("not built")
        );
    }
    assert_eq!(
        core.operator(Method::GET, PATH, None).await.expect(200)["generation"],
        0
    );
}

#[tokio::test]
async fn the_first_bad_member_of_a_configuration_is_named_with_its_bounds() {
    let core = TestCore::start().await;
    let good = docker_selection(0, 2, 2048);
    let cases = [
        (
            "/resources/cpus",
            json!(0),
            "resources.cpus",
            json!({ "min": 1, "max": 255 }),
        ),
        (
            "/resources/cpus",
            json!(256),
            "resources.cpus",
            json!({ "min": 1, "max": 255 }),
        ),
        (
            "/resources/memory_mib",
            json!(511),
            "resources.memory_mib",
            json!({ "min": 512, "max": 1_048_576 }),
        ),
        (
            "/resources/root_disk_mib",
            json!(1024),
            "resources.root_disk_mib",
            Value::Null,
        ),
        ("/runtime/artifacts", json!({}), "runtime", Value::Null),
        (
            "/workspace",
            json!({ "store_id": crate::golden::NOBODY, "mount": "/workspace", "kind": "nfs" }),
            "workspace",
            Value::Null,
        ),
    ];
    for (pointer, value, param, details) in cases {
        let body = with(good.clone(), pointer, value);
        let answer = core.operator(Method::POST, PATH, Some(&body)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, "invalid_sandbox_configuration"),
            "{body}"
        );
        assert_eq!(answer.body["error"]["param"], param);
        assert_eq!(
            answer.body["error"].get("details").unwrap_or(&Value::Null),
            &details
        );
    }
    for (member, value) in [("credential", json!("secret")), ("configuration", json!({}))] {
        let body = with(good.clone(), &format!("/{member}"), value);
        let answer = core.operator(Method::POST, PATH, Some(&body)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["error"]["param"]),
            (400, &json!(member))
        );
    }
    let answer = core
        .operator(
            Method::POST,
            PATH,
            Some(&with(good, "/core_url", json!("http://x"))),
        )
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["error"]["param"]),
        (400, &json!("core_url"))
    );
    assert_eq!(
        core.operator(Method::GET, PATH, None).await.expect(200)["generation"],
        0
    );
}
