//! What operators, machines and applications are answered about a reset and while one stands.

use std::collections::BTreeSet;

use oac_core::http::{auth::Credential, router};
use oac_testkit::core::{Answer, TestCore, docker_selection};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    node::Node,
    reset::{RESET, cancel, reset, view},
    world::{self, On},
};

const SUSPENSION: &str = "/core/v1/sandbox/deployment/suspension";

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (status, code),
        "{what}: {}",
        answer.body
    );
}

async fn ask(core: &TestCore, body: Value) -> Answer {
    core.operator(Method::POST, RESET, Some(&body)).await
}

async fn entries(core: &TestCore) -> usize {
    core.core()
        .store
        .single()
        .audit_log(None, 1000)
        .await
        .unwrap()
        .len()
}

// inv: INV-C5
#[tokio::test]
async fn a_reset_is_checked_for_shape_then_generation_then_a_selection() {
    let core = TestCore::start().await;
    let stale = "sandbox_generation_stale";
    refused(
        &ask(&core, json!({ "expected_generation": 0, "clear": "auto" })).await,
        409,
        "sandbox_not_configured",
        "nothing to reset",
    );
    for body in [
        json!({ "expected_generation": 1, "clear": "auto" }),
        json!({ "expected_generation": u64::MAX, "clear": "force" }),
    ] {
        refused(&ask(&core, body).await, 409, stale, "before the selection");
    }
    core.deploy(1, 512).await;
    for (member, body) in [
        ("clear", json!({ "expected_generation": 9, "clear": "soon" })),
        ("clear", json!({ "expected_generation": 9 })),
        ("expected_generation", json!({ "clear": "auto" })),
        (
            "expected_generation",
            json!({ "expected_generation": -1, "clear": "auto" }),
        ),
        (
            "deadline_seconds",
            json!({ "expected_generation": 9, "clear": "auto", "deadline_seconds": 299 }),
        ),
        (
            "deadline_seconds",
            json!({ "expected_generation": 9, "clear": "auto", "deadline_seconds": 86_401 }),
        ),
        (
            "deadline_seconds",
            json!({ "expected_generation": 9, "clear": "auto", "deadline_seconds": i64::MIN }),
        ),
        (
            "deadline_seconds",
            json!({ "expected_generation": 9, "clear": "auto", "deadline_seconds": null }),
        ),
        (
            "deadline_seconds",
            json!({ "expected_generation": 9, "clear": "force", "deadline_seconds": 300 }),
        ),
    ] {
        let answer = ask(&core, body.clone()).await;
        refused(&answer, 400, "invalid_request_error", &body.to_string());
        assert_eq!(answer.body["error"]["param"], member, "{body}");
    }
    let before = entries(&core).await;
    for query in ["expected_generation=0", "expected_generation=2"] {
        let answer = core
            .operator(Method::DELETE, &format!("{RESET}?{query}"), None)
            .await;
        refused(&answer, 409, stale, query);
    }
    for query in ["", "?expected_generation=x", "?expected_generation=1&more=1"] {
        let answer = core
            .operator(Method::DELETE, &format!("{RESET}{query}"), None)
            .await;
        assert_eq!(answer.status.as_u16(), 400, "{query}");
    }
    assert!(cancel(&core).await["reset"].is_null());
    assert_eq!(entries(&core).await, before, "nothing happened");
}

fn seconds_until_deadline(view: &Value) -> i64 {
    let at = |name: &str| -> oac_model::Time { serde_json::from_value(view["reset"][name].clone()).unwrap() };
    (at("deadline_at").millis() - at("requested_at").millis()) / 1000
}

// inv: INV-C5, INV-C15
#[tokio::test]
async fn a_repeated_reset_keeps_its_deadline_and_only_a_patient_one_becomes_another() {
    let core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 1).await;
    world::working(&core).await;
    let first = reset(&core, "auto").await;
    assert_eq!(seconds_until_deadline(&first), 3600);
    assert!(first["reset"]["forced_at"].is_null());
    let kept = |view: &Value| {
        for member in ["requested_at", "deadline_at"] {
            assert_eq!(view["reset"][member], first["reset"][member]);
        }
    };
    let told = entries(&core).await;
    let again = json!({ "expected_generation": 1, "clear": "auto", "deadline_seconds": 300 });
    kept(&ask(&core, again.clone()).await.expect(200));
    assert_eq!(entries(&core).await, told, "the same again is nothing new");
    node.kill().await;
    for _ in 0..2 {
        let forced = reset(&core, "force").await;
        kept(&forced);
        assert_eq!(forced["reset"]["clear"], "force");
        assert!(forced["reset"]["forced_at"].is_string());
    }
    let log = core.core().store.single().audit_log(None, 1000).await.unwrap();
    let forced = log.iter().filter(|entry| entry.action == "reset_force");
    assert_eq!(forced.count(), 1);
    refused(
        &ask(&core, again).await,
        409,
        "sandbox_reset_in_progress",
        "back to auto",
    );
    let stale = json!({ "expected_generation": 7, "clear": "auto" });
    refused(
        &ask(&core, stale).await,
        409,
        "sandbox_generation_stale",
        "stale first",
    );
}

/// Writes under `/core/v1/sandbox` that a reset does not refuse.
const ALLOWED: [&str; 4] = [
    "POST /core/v1/sandbox/deployment/reset",
    "DELETE /core/v1/sandbox/deployment/reset",
    "POST /core/v1/sandbox/allocations/{allocation_id}/discard",
    "DELETE /core/v1/sandbox/nodes/{node_id}/drain",
];

// inv: INV-C11
#[tokio::test]
async fn while_a_reset_stands_nothing_is_managed_enrolled_or_admitted_and_a_cancel_opens_everything_again() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 2).await;
    let (session, _, _) = world::working(&core).await;
    let path = "/core/v1/sandbox/enrollment-tokens";
    let created = core
        .operator(Method::POST, path, Some(&json!({})))
        .await
        .expect(201);
    let token = oac_model::Secret::new(created["token"].as_str().unwrap());
    let (enrollment, _) = core.enrollment().await;
    reset(&core, "auto").await;
    let told = entries(&core).await;

    let (id, unused) = (node.id(), &created["enrollment_id"].as_str().unwrap());
    let drain = json!({ "deadline_seconds": 60, "idle": "wait", "then": "archive", "retained": "keep" });
    let writes = [
        ("POST", "deployment", String::new(), docker_selection(1, 1, 512)),
        ("PUT", "deployment", String::new(), docker_selection(1, 2, 512)),
        (
            "PATCH",
            "deployment/suspension",
            String::new(),
            json!({ "idle_seconds": 60, "retention_seconds": 3600 }),
        ),
        ("POST", "enrollment-tokens", String::new(), json!({})),
        (
            "DELETE",
            "enrollment-tokens/{enrollment_id}",
            (*unused).to_owned(),
            Value::Null,
        ),
        (
            "PATCH",
            "nodes/{node_id}",
            id.to_string(),
            json!({ "name": "n", "max_active": 1, "max_retained": 1 }),
        ),
        ("DELETE", "nodes/{node_id}", id.to_string(), Value::Null),
        (
            "PUT",
            "nodes/{node_id}/labels",
            id.to_string(),
            json!({ "labels": { "a": "b" } }),
        ),
        ("POST", "nodes/{node_id}/cordon", id.to_string(), json!({})),
        ("POST", "nodes/{node_id}/uncordon", id.to_string(), json!({})),
        ("POST", "nodes/{node_id}/drain", id.to_string(), drain),
    ];
    let mut tried = BTreeSet::new();
    for (method, rest, id, body) in &writes {
        let route = format!("/core/v1/sandbox/{rest}");
        let path = route.split('/').map(|s| if s.starts_with('{') { id } else { s });
        let path = path.collect::<Vec<_>>().join("/");
        let body = Some(body).filter(|body| !body.is_null());
        let answer = core.operator(method.parse().unwrap(), &path, body).await;
        refused(&answer, 409, "sandbox_reset_in_progress", &route);
        tried.insert(format!("{method} {route}"));
    }
    let written: BTreeSet<String> = router::table()
        .iter()
        .filter(|route| route.credential == Credential::CoreKey)
        .map(|route| route.name())
        .filter(|(method, path)| *method != "GET" && path.starts_with("/core/v1/sandbox/"))
        .map(|(method, path)| format!("{method} {path}"))
        .filter(|route| !ALLOWED.contains(&route.as_str()))
        .collect();
    assert_eq!(
        tried, written,
        "a new write is refused during a reset, or named as allowed"
    );

    let enroll = "/api/v1/sandbox-node/enroll";
    let answer = core
        .call(Method::POST, enroll, Some(&token), Some(&enrollment))
        .await;
    refused(&answer, 409, "sandbox_reset_in_progress", enroll);
    let configuration = "/api/v1/sandbox-node/configuration";
    let answer = core.call(Method::GET, configuration, Some(&token), None).await;
    refused(&answer, 409, "sandbox_reset_in_progress", configuration);
    let served = core
        .request(Method::GET, configuration)
        .bearer_auth(node.enrolled.credential.expose())
        .header("x-oac-node-id", id.to_string());
    oac_testkit::core::send(served).await.expect(200);

    let sessions = core
        .core()
        .store
        .single()
        .unarchived_sessions(None, 100)
        .await
        .unwrap();
    let input = json!({ "args": ["true"] });
    for (method, path, body) in [
        (Method::POST, "/v1/sessions".to_owned(), Some(json!({}))),
        (
            Method::POST,
            format!("/v1/sessions/{session}/inputs"),
            Some(input.clone()),
        ),
        (Method::GET, format!("/v1/sessions/{session}/files?path=x"), None),
        (Method::GET, format!("/v1/sessions/{session}/ports/80/"), None),
    ] {
        let answer = core.application(method.clone(), &path, body.as_ref()).await;
        refused(&answer, 503, "sandbox_reset_in_progress", &path);
        assert!(answer.body["error"].get("details").is_none());
    }
    assert_eq!(
        core.core()
            .store
            .single()
            .unarchived_sessions(None, 100)
            .await
            .unwrap(),
        sessions
    );
    assert_eq!(
        core.core().store.single().turn_counts(session).await.unwrap(),
        (0, 1)
    );
    assert_eq!(entries(&core).await, told, "a refusal is no action");
    // Looking is not managing, and a drain that stood may be canceled.
    for path in [
        format!("/core/v1/sandbox/nodes/{id}"),
        "/core/v1/sandbox/allocations".to_owned(),
    ] {
        core.operator(Method::GET, &path, None).await.expect(200);
    }
    core.application(Method::GET, &format!("/v1/sessions/{session}"), None)
        .await
        .expect(200);
    let drain = format!("/core/v1/sandbox/nodes/{id}/drain");
    core.operator(Method::DELETE, &drain, None).await.expect(200);

    cancel(&core).await;
    core.application(
        Method::POST,
        &format!("/v1/sessions/{session}/inputs"),
        Some(&input),
    )
    .await
    .expect(202);
    core.application(Method::POST, "/v1/sessions", Some(&json!({})))
        .await
        .expect(201);
    core.call(Method::POST, enroll, Some(&token), Some(&enrollment))
        .await
        .expect(201);
}

// inv: INV-C15
#[tokio::test]
async fn the_suspension_policy_is_microsandbox_s_and_checked_for_bounds_then_reset_then_backend() {
    let core = world::core(On::Sqlite).await;
    let save = async |idle: i64, retention: i64| {
        let body = json!({ "idle_seconds": idle, "retention_seconds": retention });
        core.operator(Method::PATCH, SUSPENSION, Some(&body)).await
    };
    let bounds = async || {
        for (member, idle, retention) in [
            ("idle_seconds", 59, 3600),
            ("idle_seconds", 86_401, 3600),
            ("idle_seconds", i64::MIN, 0),
            ("retention_seconds", 60, 3599),
            ("retention_seconds", 60, 2_592_001),
        ] {
            let answer = save(idle, retention).await;
            refused(&answer, 400, "invalid_request_error", member);
            assert_eq!(answer.body["error"]["param"], member);
        }
    };
    bounds().await;
    refused(
        &save(60, 3600).await,
        409,
        "sandbox_deployment_conflict",
        "Docker",
    );
    let mut node = Node::start(&core, 1).await;
    world::working(&core).await;
    node.kill().await;
    reset(&core, "force").await;
    bounds().await;
    refused(
        &save(60, 3600).await,
        409,
        "sandbox_reset_in_progress",
        "during a reset",
    );
    cancel(&core).await;

    // No route of this build selects microsandbox.
    let tx = world::begin(&core).await;
    tx.lock_deployment(oac_store::DeploymentLock::Exclusive)
        .await
        .unwrap();
    let target = tx.deployment().await.unwrap().target().unwrap();
    let mut selection = oac_store::Selection {
        specification: tx.generation(target).await.unwrap().unwrap().specification,
        configuration: json!({}),
        metadata: json!({}),
        credential_sealed: None,
    };
    selection.specification.provider = oac_model::ProviderKind::Microsandbox;
    tx.save_selection(&selection).await.unwrap();
    tx.commit().await.unwrap();
    let before = view(&core).await;
    assert_eq!(
        before["suspension"],
        json!({ "idle_seconds": 300, "retention_seconds": 86_400 })
    );
    let told = entries(&core).await;
    for (idle, retention) in [(60, 3600), (60, 3600), (86_400, 2_592_000)] {
        let shown = save(idle, retention).await.expect(200);
        assert_eq!(
            shown["suspension"],
            json!({ "idle_seconds": idle, "retention_seconds": retention })
        );
        assert_eq!(shown["generation"], before["generation"]);
    }
    let log = core.core().store.single().audit_log(None, 1000).await.unwrap();
    assert_eq!(log.len(), told + 2, "the same again is nothing new");
    assert_eq!(log[0].action, "suspension_change");
    assert_eq!(
        log[0].details["from"],
        json!({ "idle_seconds": 60, "retention_seconds": 3600 })
    );
}
