//! Enrollment tokens, and the machine routes before and after a host became a node.

use oac_model::{NodeId, Secret};
use oac_testkit::core::{Answer, CoreOptions, TestCore, new_secret, send};
use reqwest::Method;
use serde_json::{Value, json};

use crate::secrets::audit;

const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const ENROLL: &str = "/api/v1/sandbox-node/enroll";
const CONFIGURATION: &str = "/api/v1/sandbox-node/configuration";

async fn enroll(core: &TestCore, token: &Secret, body: &Value) -> Answer {
    core.call(Method::POST, ENROLL, Some(token), Some(body)).await
}

async fn configuration(core: &TestCore, credential: &Secret, node: Option<NodeId>, query: &str) -> Answer {
    let mut request = core
        .request(Method::GET, &format!("{CONFIGURATION}{query}"))
        .bearer_auth(credential.expose());
    if let Some(node) = node {
        request = request.header("x-oac-node-id", node.to_string());
    }
    send(request).await
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (status, code),
        "{}",
        answer.body
    );
}

// req: G-010
#[tokio::test]
async fn a_token_needs_a_saved_configuration_and_a_usable_public_address() {
    let core = TestCore::start().await;
    refused(
        &core.operator(Method::POST, TOKENS, Some(&json!({}))).await,
        409,
        "sandbox_deployment_conflict",
    );
    for address in [
        None,
        Some("http://localhost:8080"),
        Some("http://127.0.0.1:1"),
        Some("http://[::1]:1"),
    ] {
        let public_url = Some(address.map(str::to_owned));
        let core = TestCore::with(CoreOptions {
            public_url,
            ..CoreOptions::default()
        })
        .await;
        core.deploy(2, 2048).await;
        let answer = core.operator(Method::POST, TOKENS, Some(&json!({}))).await;
        refused(&answer, 409, "sandbox_configuration_error");
        assert_eq!(
            answer.body["error"]["message"],
            "Set a public address other machines can reach before adding nodes"
        );
    }
}

// req: G-048
#[tokio::test]
async fn a_token_approves_the_recommended_or_the_chosen_limits() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    for (limits, active, kind) in [
        (json!({}), 1, "recommended_pending"),
        (json!({ "recommended": true }), 1, "recommended_pending"),
        (json!({ "max_active": 7, "max_retained": 7 }), 7, "custom"),
        (
            json!({ "max_active": 1_000_000, "max_retained": 1_000_000 }),
            1_000_000,
            "custom",
        ),
    ] {
        let node = core.enroll(&limits).await;
        assert_eq!(
            (&node.identity["max_active"], &node.identity["max_retained"]),
            (&json!(active), &json!(active))
        );
        let path = format!("/core/v1/sandbox/nodes/{}", node.node_id);
        assert_eq!(
            core.operator(Method::GET, &path, None).await.expect(200)["limits"],
            kind
        );
    }
    for limits in [
        json!({ "max_active": 0, "max_retained": 1 }),
        json!({ "max_active": -1, "max_retained": 1 }),
        json!({ "max_active": 1, "max_retained": 1_000_001 }),
        json!({ "max_active": 2, "max_retained": 1 }),
        // For Docker both are equal.
        json!({ "max_active": 1, "max_retained": 2 }),
        json!({ "max_active": 1 }),
        json!({ "recommended": true, "max_active": 1, "max_retained": 1 }),
    ] {
        let answer = core.operator(Method::POST, TOKENS, Some(&limits)).await;
        refused(&answer, 400, "invalid_node_capacity");
        assert_eq!(
            answer.body["error"]["details"],
            json!({ "min": 1, "max": 1_000_000 })
        );
    }
    refused(
        &core
            .operator(Method::POST, TOKENS, Some(&json!({ "recommended": false })))
            .await,
        400,
        "invalid_request_error",
    );
}

// req: P-002, G-014
// inv: INV-C13, INV-C15, INV-P24
#[tokio::test]
async fn enroll_checks_in_the_documented_order_and_a_refusal_leaves_the_token_usable() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let token = core.enrollment_token(&json!({})).await;
    let (good, credential) = core.enrollment().await;
    let with = |member: &str, value: Value| {
        let mut body = good.clone();
        body[member] = value;
        body
    };
    let without = |member: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(member);
        body
    };
    let wrong = new_secret("");
    let other = core.enroll(&json!({})).await;
    let entries = audit(&core).await.len();

    // The body before the token.
    let answer = enroll(&core, &wrong, &without("core_url")).await;
    refused(&answer, 400, "invalid_request_error");
    assert_eq!(answer.body["error"]["param"], "core_url");
    for (member, value) in [
        ("credential", json!("a".repeat(31))),
        ("credential", json!("a".repeat(257))),
        (
            "credential",
            json!(format!("{} {}", "a".repeat(20), "a".repeat(20))),
        ),
        ("credential", json!(format!("{}\n", "a".repeat(40)))),
        ("node_id", json!("00000000-0000-0000-0000-000000000000")),
        ("deployment_generation", json!(0)),
        ("backend_fingerprint", json!("AB".repeat(32))),
        ("specification_digest", json!("ab".repeat(31))),
    ] {
        let answer = enroll(&core, &wrong, &with(member, value)).await;
        refused(&answer, 400, "invalid_request_error");
        assert_eq!(answer.body["error"]["param"], member);
    }
    for name in ["", "  ", "a\nb", "a\0b", &"n".repeat(129)] {
        refused(
            &enroll(&core, &wrong, &with("name", json!(name))).await,
            400,
            "invalid_name",
        );
    }
    // The token before the deployment.
    refused(
        &enroll(&core, &wrong, &with("provider", json!("microsandbox"))).await,
        401,
        "invalid_node_credential",
    );
    // Provider, then generation and digest, then address, then the node's name.
    let all_wrong = |provider: &str, generation: i64, url: &str| {
        let mut body = with("provider", json!(provider));
        body["deployment_generation"] = json!(generation);
        body["core_url"] = json!(url);
        body
    };
    refused(
        &enroll(&core, &token, &all_wrong("microsandbox", 2, "http://x")).await,
        400,
        "invalid_request",
    );
    refused(
        &enroll(&core, &token, &all_wrong("docker", 2, "http://x")).await,
        409,
        "sandbox_specification_mismatch",
    );
    let digest = with("specification_digest", json!("ab".repeat(32)));
    refused(
        &enroll(&core, &token, &digest).await,
        409,
        "sandbox_specification_mismatch",
    );
    refused(
        &enroll(&core, &token, &all_wrong("docker", 1, "http://x")).await,
        409,
        "sandbox_node_address_mismatch",
    );
    let slash = format!("{}/", core.public_url.as_ref().unwrap());
    refused(
        &enroll(&core, &token, &with("core_url", json!(slash))).await,
        409,
        "sandbox_node_address_mismatch",
    );
    refused(
        &enroll(&core, &token, &with("node_id", json!(other.node_id))).await,
        409,
        "idempotency_conflict",
    );
    let credential_known = with("credential", json!(other.credential.expose()));
    refused(
        &enroll(&core, &token, &credential_known).await,
        409,
        "idempotency_conflict",
    );

    // None of that used the token or left a trace.
    assert_eq!(audit(&core).await.len(), entries);
    let node = enroll(&core, &token, &good).await.expect(201);
    let expected = json!({
        "node_id": good["node_id"],
        "installation_id": node["installation_id"],
        "provider": "docker",
        "deployment_generation": 1,
        "specification_digest": good["specification_digest"],
        "max_active": 1,
        "max_retained": 1,
    });
    assert_eq!(node, expected);
    let identity = format!(
        "/api/v1/sandbox-node/identity?node_id={}",
        good["node_id"].as_str().unwrap()
    );
    let mut known = core
        .call(Method::GET, &identity, Some(&credential), None)
        .await
        .expect(200);
    assert_eq!(known["connected"], false);
    assert_eq!(known["provider_ready"], false);
    known
        .as_object_mut()
        .unwrap()
        .retain(|name, _| name != "connected" && name != "provider_ready");
    assert_eq!(known, expected);
}

// req: G-052
// inv: INV-C13, INV-C15, INV-P24
#[tokio::test]
async fn a_token_enrolls_one_node_however_many_ask_at_once() {
    one_node_per_token(&TestCore::start().await).await;
}

// req: G-052
// inv: INV-C13, INV-C15, INV-P24
#[tokio::test]
async fn pg_a_token_enrolls_one_node_however_many_ask_at_once() {
    one_node_per_token(&TestCore::start_postgres().await).await;
}

async fn one_node_per_token(core: &TestCore) {
    core.deploy(2, 2048).await;
    let token = core.enrollment_token(&json!({})).await;
    let mut bodies = Vec::new();
    for _ in 0..12 {
        bodies.push(core.enrollment().await.0);
    }
    let answers = futures_util::future::join_all(bodies.iter().map(|body| enroll(core, &token, body))).await;
    let enrolled = answers.iter().filter(|a| a.status.as_u16() == 201).count();
    assert_eq!(enrolled, 1);
    for answer in answers.iter().filter(|a| a.status.as_u16() != 201) {
        refused(answer, 401, "invalid_node_credential");
    }
    let nodes = core
        .operator(Method::GET, "/core/v1/sandbox/nodes", None)
        .await
        .expect(200);
    assert_eq!(nodes["data"].as_array().unwrap().len(), 1);
    let added = audit(core)
        .await
        .iter()
        .filter(|e| e.resource_type == "node" && e.action == "add")
        .count();
    assert_eq!(added, 1);
}

// req: G-053
#[tokio::test]
async fn a_token_lives_one_hour_on_the_databases_clock() {
    let mut core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let (early, late) = (
        core.enrollment_token(&json!({})).await,
        core.enrollment_token(&json!({})).await,
    );
    let body = core.enrollment().await.0;
    core.stop().await;
    let minutes = |n: i64| CoreOptions {
        clock_offset_millis: n * 60_000,
        public_url: Some(core.public_url.clone()),
        ..CoreOptions::default()
    };
    let mut within = core.beside(minutes(59)).await;
    configuration(&within, &early, None, "").await.expect(200);
    enroll(&within, &early, &body).await.expect(201);
    within.stop().await;
    let after = core.beside(minutes(61)).await;
    refused(
        &configuration(&after, &late, None, "").await,
        401,
        "invalid_node_credential",
    );
    let body = after.enrollment().await.0;
    refused(
        &enroll(&after, &late, &body).await,
        401,
        "invalid_node_credential",
    );
}

#[tokio::test]
async fn only_an_unused_token_can_be_revoked_and_a_revoked_one_enrolls_nothing() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let created = core
        .operator(Method::POST, TOKENS, Some(&json!({})))
        .await
        .expect(201);
    let token = Secret::new(created["token"].as_str().unwrap());
    let path = format!("{TOKENS}/{}", created["enrollment_id"].as_str().unwrap());
    core.operator(Method::DELETE, &path, None).await.expect(204);
    assert_eq!(
        core.operator(Method::DELETE, &path, None).await.status.as_u16(),
        404
    );
    let body = core.enrollment().await.0;
    refused(
        &enroll(&core, &token, &body).await,
        401,
        "invalid_node_credential",
    );

    let created = core
        .operator(Method::POST, TOKENS, Some(&json!({})))
        .await
        .expect(201);
    let token = Secret::new(created["token"].as_str().unwrap());
    enroll(&core, &token, &body).await.expect(201);
    let path = format!("{TOKENS}/{}", created["enrollment_id"].as_str().unwrap());
    assert_eq!(
        core.operator(Method::DELETE, &path, None).await.status.as_u16(),
        404
    );
    let list = format!(
        "/core/v1/sandbox/nodes?enrollment_id={}",
        created["enrollment_id"].as_str().unwrap()
    );
    let nodes = core.operator(Method::GET, &list, None).await.expect(200);
    assert_eq!(nodes["data"][0]["id"], body["node_id"]);
}

// req: P-002
#[tokio::test]
async fn configuration_answers_the_target_to_a_token_and_any_kept_generation_to_a_node() {
    let core = TestCore::start().await;
    let first = core.deploy(2, 2048).await;
    let token = core
        .enrollment_token(&json!({ "max_active": 3, "max_retained": 3 }))
        .await;
    let node = core.enroll(&json!({})).await;
    let answer = configuration(&core, &token, None, "").await.expect(200);
    assert_eq!(
        answer,
        json!({
            "installation_id": first["installation_id"],
            "provider": "docker",
            "core_url": core.public_url,
            "generation": 1,
            "specification": first["specification"],
            "specification_digest": first["specification_digest"],
            "max_active": 3,
            "max_retained": 3,
        })
    );
    // It used nothing up.
    configuration(&core, &token, None, "").await.expect(200);

    let second = core.deploy(4, 4096).await;
    let id = Some(node.node_id);
    let current = configuration(&core, &node.credential, id, "").await.expect(200);
    assert_eq!(
        (&current["generation"], &current["max_active"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(current["specification"], second["specification"]);
    // The node was enrolled under generation 1, which is therefore kept.
    let kept = configuration(&core, &node.credential, id, "?generation=1")
        .await
        .expect(200);
    assert_eq!(kept["specification"], first["specification"]);
    refused(
        &configuration(&core, &node.credential, id, "?generation=3").await,
        409,
        "sandbox_specification_mismatch",
    );
    refused(
        &configuration(&core, &node.credential, id, "?generation=0").await,
        400,
        "invalid_request_error",
    );
    // A token names no generation, and a node names itself.
    refused(
        &configuration(&core, &token, None, "?generation=2").await,
        401,
        "invalid_node_credential",
    );
    refused(
        &configuration(&core, &node.credential, None, "").await,
        401,
        "invalid_node_credential",
    );
}

#[tokio::test]
async fn identity_is_the_named_nodes_own() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let (a, b) = (core.enroll(&json!({})).await, core.enroll(&json!({})).await);
    let identity = |id: String| format!("/api/v1/sandbox-node/identity{id}");
    let ask = |path: String| {
        let (core, credential) = (&core, &a.credential);
        async move { core.call(Method::GET, &path, Some(credential), None).await }
    };
    ask(identity(format!("?node_id={}", a.node_id))).await.expect(200);
    refused(
        &ask(identity(format!("?node_id={}", b.node_id))).await,
        401,
        "invalid_node_credential",
    );
    refused(&ask(identity(String::new())).await, 400, "invalid_request_error");
    refused(
        &ask(identity(format!("?node_id={0}&node_id={0}", a.node_id))).await,
        400,
        "invalid_request_error",
    );
}

// req: G-015
#[tokio::test]
async fn the_address_nodes_are_told_is_public_url_whatever_address_was_asked() {
    let public_url = Some(Some("https://core.example.com".to_owned()));
    let core = TestCore::with(CoreOptions {
        public_url,
        ..CoreOptions::default()
    })
    .await;
    core.deploy(2, 2048).await;
    let token = core.enrollment_token(&json!({})).await;
    let request = core
        .request(Method::GET, CONFIGURATION)
        .bearer_auth(token.expose())
        .header("host", "elsewhere.example.com")
        .header("x-forwarded-host", "elsewhere.example.com")
        .header("x-forwarded-proto", "http");
    assert_eq!(
        send(request).await.expect(200)["core_url"],
        "https://core.example.com"
    );
    let url = core.core().config.public_url.as_ref().unwrap();
    assert_eq!(url.link_url(), "wss://core.example.com/api/v1/sandbox-link");
}
