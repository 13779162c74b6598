//! What operators change of a node, and the log of it.

use oac_model::{AllocationId, EnvironmentId, NodeId, PlacementId, SessionId};
use oac_store::{ComputeRow, NewAllocation, NewPlacement, NewSession};
use oac_testkit::core::{Answer, EnrolledNode, TestCore};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{golden::NOBODY, secrets::audit};

const NODES: &str = "/core/v1/sandbox/nodes";

async fn node(core: &TestCore) -> EnrolledNode {
    core.deploy(1, 512).await;
    core.enroll(&json!({ "max_active": 2, "max_retained": 2 })).await
}

async fn ask(core: &TestCore, method: Method, id: impl ToString, rest: &str, body: Option<Value>) -> Answer {
    let path = format!("{NODES}/{}{rest}", id.to_string());
    core.operator(method, &path, body.as_ref()).await
}

async fn edit(core: &TestCore, id: impl ToString, name: &str, active: i64, retained: i64) -> Answer {
    let body = json!({ "name": name, "max_active": active, "max_retained": retained });
    ask(core, Method::PATCH, id, "", Some(body)).await
}

async fn post(core: &TestCore, id: impl ToString, rest: &str, body: Value) -> Answer {
    ask(core, Method::POST, id, rest, Some(body)).await
}

/// Actions on nodes, oldest first, but for their enrollment.
async fn actions(core: &TestCore) -> Vec<String> {
    let log = audit(core).await;
    log.into_iter()
        .filter(|entry| entry.resource_type == "node" && entry.action != "add")
        .map(|entry| entry.action)
        .collect()
}

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (status, code),
        "{}",
        answer.body
    );
}

// inv: INV-C15
#[tokio::test]
async fn name_and_limits_are_saved_with_one_audit_entry_and_an_edit_that_changes_nothing_has_none() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    for _ in 0..2 {
        let shown = edit(&core, id, "rack 7", 5, 5).await.expect(200);
        assert_eq!(shown["name"], "rack 7");
        assert_eq!(
            (&shown["max_active"], &shown["max_retained"], &shown["limits"]),
            (&json!(5), &json!(5), &json!("custom"))
        );
    }
    assert_eq!(actions(&core).await, ["edit"]);
    let log = audit(&core).await;
    let entry = log.last().unwrap();
    assert_eq!(
        entry.details,
        json!({
            "from": { "name": "test node", "max_active": 2, "max_retained": 2 },
            "to": { "name": "rack 7", "max_active": 5, "max_retained": 5 },
        })
    );
    assert_eq!(entry.actor, format!("core_key:{}", core.core_key_id));
}

#[tokio::test]
async fn a_docker_node_holds_as_many_as_it_runs_and_every_other_pair_is_refused_with_the_bounds() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    for (active, retained) in [
        (0, 0),
        (-1, 1),
        (1, 2),
        (2, 1),
        (1_000_001, 1_000_001),
        (i64::MAX, i64::MAX),
    ] {
        let answer = edit(&core, id, "n", active, retained).await;
        refused(&answer, 400, "invalid_node_capacity");
        assert_eq!(
            answer.body["error"]["details"],
            json!({ "min": 1, "max": 1_000_000 })
        );
    }
    for name in ["", " ", "a\nb", &"n".repeat(129)] {
        refused(&edit(&core, id, name, 1, 1).await, 400, "invalid_name");
    }
    assert_eq!(actions(&core).await, Vec::<String>::new());
    edit(&core, id, &"n".repeat(128), 1_000_000, 1_000_000)
        .await
        .expect(200);
}

// inv: INV-C15
#[tokio::test]
async fn labels_are_replaced_whole_within_their_bounds() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    let put = async |labels: Value| {
        ask(
            &core,
            Method::PUT,
            id,
            "/labels",
            Some(json!({ "labels": labels })),
        )
        .await
    };
    let many = |n: usize| -> Value {
        (0..n)
            .map(|i| (format!("k{i}"), json!("v")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let pair = |key: &str, value: &str| json!({ key: value });
    for labels in [
        many(33),
        pair("", "v"),
        pair("-a", "v"),
        pair("A", "v"),
        pair("a b", "v"),
        pair(&"k".repeat(64), "v"),
        pair("k", &"v".repeat(64)),
    ] {
        let answer = put(labels).await;
        refused(&answer, 400, "invalid_request_error");
        assert_eq!(answer.body["error"]["param"], "labels");
    }
    assert_eq!(actions(&core).await, Vec::<String>::new());
    put(many(32)).await.expect(200);
    let kept = json!({ "0a._/-": "", "zone": &"v".repeat(63) });
    for _ in 0..2 {
        assert_eq!(put(kept.clone()).await.expect(200)["labels"], kept);
    }
    assert_eq!(put(json!({})).await.expect(200)["labels"], json!({}));
    assert_eq!(actions(&core).await, ["labels"; 3]);
}

// inv: INV-C15
#[tokio::test]
async fn a_cordon_is_set_and_taken_away_each_with_one_audit_entry_however_often_asked() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    for cordoned in [true, false] {
        let rest = if cordoned { "/cordon" } else { "/uncordon" };
        for _ in 0..2 {
            let shown = post(&core, id, rest, json!({})).await.expect(200);
            assert_eq!(shown["cordoned"], cordoned);
        }
    }
    assert_eq!(actions(&core).await, ["cordon", "uncordon"]);
}

const DRAIN: &str = "/drain";

fn drain(seconds: i64) -> Value {
    json!({ "deadline_seconds": seconds, "idle": "suspend", "then": "archive", "retained": "keep" })
}

/// A Session with a reserved allocation on the node.
async fn hold(core: &TestCore, node_id: NodeId) -> AllocationId {
    let tx = core.core().begin().await.unwrap();
    let generation = tx.node(node_id).await.unwrap().unwrap().enrolled_generation;
    let session = NewSession {
        id: SessionId::random(),
        project_id: core.project_id,
        environment_id: EnvironmentId::random(),
        name: None,
        network: Default::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    };
    tx.insert_session(&session).await.unwrap();
    let placement = NewPlacement {
        id: PlacementId::random(),
        environment_id: session.environment_id,
        node_id: Some(node_id),
        generation,
    };
    tx.insert_placement(&placement).await.unwrap();
    let allocation = NewAllocation {
        id: AllocationId::random(),
        placement_id: placement.id,
        tenant_id: core.project_id,
        session_id: session.id,
        environment_id: session.environment_id,
        node_id: Some(node_id),
        deployment_generation: generation,
    };
    tx.insert_allocation(&allocation).await.unwrap();
    tx.commit().await.unwrap();
    allocation.id
}

// inv: INV-C15
#[tokio::test]
async fn a_drain_cordons_is_shown_refuses_a_second_one_and_is_canceled_without_undoing_the_cordon() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    hold(&core, id).await;
    for seconds in [59, 604_801, -1, i64::MAX] {
        let answer = post(&core, id, DRAIN, drain(seconds)).await;
        refused(&answer, 400, "invalid_request_error");
        assert_eq!(answer.body["error"]["param"], "deadline_seconds");
    }
    let mut unknown = drain(60);
    unknown["idle"] = json!("sleep");
    assert_eq!(post(&core, id, DRAIN, unknown).await.status.as_u16(), 400);
    let shown = post(&core, id, DRAIN, drain(3600)).await.expect(200);
    assert_eq!(shown["cordoned"], true);
    let standing = &shown["drain"];
    assert_eq!(
        (&standing["idle"], &standing["then"], &standing["retained"]),
        (&json!("suspend"), &json!("archive"), &json!("keep"))
    );
    assert!(standing["deadline_passed_at"].is_null());
    let at = |member: &str| -> oac_model::Time { standing[member].as_str().unwrap().parse().unwrap() };
    assert_eq!(
        at("deadline_at").millis() - at("requested_at").millis(),
        3_600_000
    );
    refused(
        &post(&core, id, DRAIN, drain(60)).await,
        409,
        "runtime_node_draining",
    );
    refused(
        &post(&core, id, "/uncordon", json!({})).await,
        409,
        "runtime_node_draining",
    );
    post(&core, id, "/cordon", json!({})).await.expect(200);
    for _ in 0..2 {
        let shown = ask(&core, Method::DELETE, id, DRAIN, None).await.expect(200);
        assert_eq!(
            (&shown["drain"], &shown["cordoned"]),
            (&Value::Null, &json!(true))
        );
    }
    post(&core, id, "/uncordon", json!({})).await.expect(200);
    assert_eq!(
        actions(&core).await,
        ["drain_start", "drain_cancel", "uncordon"],
        "a drain's cordon is part of it"
    );
}

// req: G-205
// inv: INV-C29
#[tokio::test]
async fn a_node_that_holds_a_sandbox_or_may_have_computes_left_is_not_removed_though_it_is_offline() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    let allocation = hold(&core, id).await;
    let answer = ask(&core, Method::DELETE, id, "", None).await;
    refused(&answer, 409, "runtime_node_in_use");
    assert_eq!(answer.body["error"]["details"]["sandboxes"], 1);
    // A suspended one is held too.
    let tx = core.core().begin().await.unwrap();
    let mut row = tx.lock_allocation(allocation).await.unwrap().unwrap();
    row.state = oac_model::AllocationState::Running;
    row.compute_phase = oac_model::ComputePhase::Suspended;
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    let answer = ask(&core, Method::DELETE, id, "", None).await;
    refused(&answer, 409, "runtime_node_in_use");
    let tx = core.core().begin().await.unwrap();
    let mut row = tx.lock_allocation(allocation).await.unwrap().unwrap();
    row.state = oac_model::AllocationState::Released;
    row.released_at = Some(tx.now());
    tx.save_allocation(&mut row).await.unwrap();
    tx.release_placement(row.placement_id).await.unwrap();
    let compute = ComputeRow {
        allocation_id: allocation,
        generation: 0,
        node_id: Some(id),
        name: "oac-0".to_owned(),
        native_id: None,
        restored_from: None,
        failed_at: None,
        ended_at: None,
        kill_owed: false,
    };
    tx.insert_compute(&compute).await.unwrap();
    tx.commit().await.unwrap();
    let answer = ask(&core, Method::DELETE, id, "", None).await;
    refused(&answer, 409, "runtime_node_in_use");
    let tx = core.core().begin().await.unwrap();
    tx.end_compute(allocation, 0).await.unwrap();
    tx.commit().await.unwrap();
    ask(&core, Method::DELETE, id, "", None).await.expect(204);
    let list = core.operator(Method::GET, NODES, None).await.expect(200);
    assert_eq!(list["data"], json!([]));
    for (method, rest) in [(Method::GET, ""), (Method::DELETE, "")] {
        let answer = ask(&core, method, id, rest, None).await;
        refused(&answer, 404, "not_found_error");
    }
    refused(&edit(&core, id, "n", 1, 1).await, 404, "not_found_error");
    assert_eq!(actions(&core).await, ["remove"]);
}

// req: G-207, G-208
// inv: INV-C26
#[tokio::test]
async fn a_removed_nodes_identity_never_comes_back_its_host_may_as_a_new_node_and_the_configuration_stays() {
    let core = TestCore::start().await;
    let node = node(&core).await;
    ask(&core, Method::DELETE, node.node_id, "", None)
        .await
        .expect(204);
    let deployment = core
        .operator(Method::GET, "/core/v1/sandbox/deployment", None)
        .await
        .expect(200);
    assert_eq!(
        (&deployment["provider"], &deployment["generation"]),
        (&json!("docker"), &json!(1))
    );
    let token = core.enrollment_token(&json!({})).await;
    let (mut body, _) = core.enrollment().await;
    let own = body["node_id"].clone();
    let path = "/api/v1/sandbox-node/enroll";
    body["node_id"] = json!(node.node_id);
    let answer = core.call(Method::POST, path, Some(&token), Some(&body)).await;
    refused(&answer, 409, "idempotency_conflict");
    let answer = core
        .call(
            Method::GET,
            &format!("/api/v1/sandbox-node/identity?node_id={}", node.node_id),
            Some(&node.credential),
            None,
        )
        .await;
    refused(&answer, 401, "invalid_node_credential");
    body["node_id"] = own;
    core.call(Method::POST, path, Some(&token), Some(&body))
        .await
        .expect(201);
}

#[tokio::test]
async fn a_node_that_is_none_is_404_before_anything_else_of_the_request_is_judged_but_its_shape() {
    let core = TestCore::start().await;
    node(&core).await;
    for id in [NOBODY, "not-an-id"] {
        refused(&edit(&core, id, "", 0, 0).await, 404, "not_found_error");
        let labels = Some(json!({ "labels": { "A": "" } }));
        refused(
            &ask(&core, Method::PUT, id, "/labels", labels).await,
            404,
            "not_found_error",
        );
        refused(&post(&core, id, DRAIN, drain(1)).await, 404, "not_found_error");
        let short = Some(json!({ "name": "n" }));
        refused(
            &ask(&core, Method::PATCH, id, "", short).await,
            400,
            "invalid_request_error",
        );
    }
}

#[tokio::test]
async fn the_audit_log_is_read_newest_first_page_by_page_and_whole() {
    let core = TestCore::start().await;
    let id = node(&core).await.node_id;
    for n in 1..=5 {
        edit(&core, id, &format!("n{n}"), n, n).await.expect(200);
    }
    let stored: Vec<String> = audit(&core)
        .await
        .into_iter()
        .rev()
        .map(|entry| entry.id.to_string())
        .collect();
    let (mut read, mut path) = (Vec::new(), "/core/v1/audit?limit=2".to_owned());
    loop {
        let page = core.operator(Method::GET, &path, None).await.expect(200);
        let entries = page["data"].as_array().unwrap();
        assert!(entries.len() <= 2);
        for entry in entries {
            read.push(entry["id"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(next) => path = format!("/core/v1/audit?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(read, stored);
    let newest = core
        .operator(Method::GET, "/core/v1/audit", None)
        .await
        .expect(200);
    let entry = &newest["data"][0];
    assert_eq!(
        (&entry["resource_type"], &entry["action"], &entry["resource_id"]),
        (&json!("node"), &json!("edit"), &json!(id))
    );
    assert_eq!(entry["details"]["to"]["name"], "n5");
    for cursor in ["x", "1", "1_x", "-1_99999999-9999-4999-8999-999999999999"] {
        let path = format!("/core/v1/audit?cursor={cursor}");
        let answer = core.operator(Method::GET, &path, None).await;
        refused(&answer, 400, "invalid_request_error");
    }
}
