//! Nodes that operators change while they serve.

use futures_util::future::join_all;
use oac_core::placement::PlaceError;
use oac_lifecycle::placement::{Answer, Request};
use oac_model::AllocationState;
use oac_store::{DeploymentLock, NodeLimits};
use oac_testkit::core::TestCore;
use oac_wire::{CoreFrame, Nullable, frames::Health, shapes::Operation};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    node::{self, Node, dial, greet, health, receive, send},
    world::{self, On},
};

/// Asks for a change of the node; the node as it is then.
pub async fn change(core: &TestCore, node: &Node, method: Method, rest: &str, body: Value) -> Value {
    let path = format!("/core/v1/sandbox/nodes/{}{rest}", node.id());
    core.operator(method, &path, Some(&body)).await.expect(200)
}

async fn limit(core: &TestCore, node: &Node, slots: u32) {
    let body = json!({ "name": "n", "max_active": slots, "max_retained": slots });
    change(core, node, Method::PATCH, "", body).await;
}

fn unavailable(placed: Result<impl Sized, PlaceError>) {
    assert!(matches!(
        placed.err(),
        Some(PlaceError::Refused(Answer::Unavailable))
    ));
}

async fn edited(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 2).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        let (_, allocation) = world::session(&core).await.unwrap();
        world::until(&core, allocation, AllocationState::Running).await;
        running.push(allocation);
    }
    unavailable(world::session(&core).await);
    limit(&core, &node, 1).await;
    unavailable(world::session(&core).await);
    for allocation in running {
        assert_eq!(
            world::row(&core, allocation).await.state,
            AllocationState::Running
        );
    }
    assert_eq!(node.count(Operation::Kill), 0, "a lower limit stops nothing");
    limit(&core, &node, 3).await;
    let (_, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    unavailable(world::session(&core).await);
}

// req: G-176
// inv: INV-C10
#[tokio::test]
async fn an_edited_limit_counts_from_the_next_placement_on_and_stops_nothing_that_runs() {
    edited(On::Sqlite).await;
}

// inv: INV-C10
#[tokio::test]
async fn pg_an_edited_limit_counts_from_the_next_placement_on_and_stops_nothing_that_runs() {
    edited(On::Postgres).await;
}

// inv: INV-C25
#[tokio::test]
async fn limits_that_an_operator_saved_first_are_not_replaced_by_the_recommendation() {
    let core = world::core(On::Sqlite).await;
    let enrolled = core.enroll(&json!({})).await;
    let path = format!("/core/v1/sandbox/nodes/{}", enrolled.node_id);
    // Nothing of it is new but who decided it.
    let body = json!({ "name": "test node", "max_active": 1, "max_retained": 1 });
    let shown = core.operator(Method::PATCH, &path, Some(&body)).await.expect(200);
    assert_eq!(shown["limits"], "custom");
    let mut greeted = greet(&core, &enrolled, &health(true)).await.unwrap();
    let beat = node::heartbeat(&greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    assert!(matches!(
        receive(&mut greeted.socket).await,
        Some(CoreFrame::HeartbeatAck(_))
    ));
    let read = core.core().store.single();
    let row = read.node(enrolled.node_id).await.unwrap().unwrap();
    assert_eq!((row.limits, row.max_active), (NodeLimits::Custom, 1));
    let shown = core.operator(Method::GET, &path, None).await.expect(200);
    assert_eq!(
        shown["recommended"],
        json!({ "max_active": 7, "max_retained": 7 })
    );
    let log = read.audit_log(None, 100).await.unwrap();
    assert!(!log.iter().any(|entry| entry.action == "limits_recommended"));
}

// inv: INV-C25
#[tokio::test]
async fn a_host_too_small_for_one_sandbox_uses_its_recommendation_up() {
    let core = world::core(On::Sqlite).await;
    let enrolled = core.enroll(&json!({})).await;
    let with = |cores| Health {
        effective_cpu_cores: Nullable(Some(cores)),
        ..health(true)
    };
    let mut greeted = greet(&core, &enrolled, &with(0.5)).await.unwrap();
    let beat = node::heartbeat(&greeted, with(8.0));
    send(&mut greeted.socket, &beat).await;
    receive(&mut greeted.socket).await;
    let read = core.core().store.single();
    let row = read.node(enrolled.node_id).await.unwrap().unwrap();
    assert_eq!(
        (row.limits, row.max_active, row.max_retained),
        (NodeLimits::Recommended, 1, 1)
    );
}

async fn cordoned(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 4).await;
    let (_, before) = world::session(&core).await.unwrap();
    world::until(&core, before, AllocationState::Running).await;
    change(&core, &node, Method::POST, "/cordon", json!({})).await;
    for placed in join_all((0..20).map(|_| world::session(&core))).await {
        unavailable(placed);
    }
    assert_eq!(
        world::row(&core, before).await.state,
        AllocationState::Running,
        "what runs runs on"
    );
    change(&core, &node, Method::POST, "/uncordon", json!({})).await;
    world::session(&core).await.unwrap();
    let drain = json!({ "deadline_seconds": 60, "idle": "wait", "then": "terminate", "retained": "keep" });
    change(&core, &node, Method::POST, "/drain", drain).await;
    unavailable(world::session(&core).await);
}

// inv: INV-C24
#[tokio::test]
async fn a_cordoned_or_draining_node_receives_nothing_new_and_what_runs_there_runs_on() {
    cordoned(On::Sqlite).await;
}

// inv: INV-C24
#[tokio::test]
async fn pg_a_cordoned_or_draining_node_receives_nothing_new_and_what_runs_there_runs_on() {
    cordoned(On::Postgres).await;
}

#[tokio::test]
async fn labels_decide_from_the_next_placement_on_and_move_nothing() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 2).await;
    let demand = |zone: &str| oac_core::placement::Demand {
        project_id: core.project_id,
        session_id: oac_model::SessionId::random(),
        environment_id: oac_model::EnvironmentId::random(),
        request: Request {
            required_labels: [("zone".to_owned(), zone.to_owned())].into(),
        },
        parent: Default::default(),
    };
    let fits = async |zone: &str| {
        oac_core::placement::begin(core.core(), demand(zone))
            .await
            .is_ok()
    };
    assert!(!fits("a").await);
    let (_, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    let labels = |zone: &str| json!({ "labels": { "zone": zone } });
    change(&core, &node, Method::PUT, "/labels", labels("a")).await;
    assert!(fits("a").await && !fits("b").await);
    change(&core, &node, Method::PUT, "/labels", labels("b")).await;
    assert!(fits("b").await && !fits("a").await);
    assert_eq!(
        world::row(&core, allocation).await.state,
        AllocationState::Running
    );
}

async fn removed(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let path = format!("/core/v1/sandbox/nodes/{}", node.id());
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    let refused = async || {
        let answer = core.operator(Method::DELETE, &path, None).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (409, "runtime_node_in_use")
        );
    };
    refused().await;
    // Offline, and while its cleanup waits for it, it holds the sandbox all the same.
    node.kill().await;
    refused().await;
    world::archive(&core, session, allocation).await;
    refused().await;
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Released).await;
    node.kill().await;

    let mut greeted = loop {
        if let Ok(greeted) = greet(&core, &node.enrolled, &health(true)).await {
            break greeted;
        }
    };
    core.operator(Method::DELETE, &path, None).await.expect(204);
    // Its credential is dead before its connection is.
    let id = node.id().to_string();
    let identity = core
        .request(
            Method::GET,
            &format!("/api/v1/sandbox-node/identity?node_id={id}"),
        )
        .bearer_auth(node.enrolled.credential.expose());
    let answer = oac_testkit::core::send(identity).await;
    assert_eq!(answer.status.as_u16(), 401);
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 401);
    unavailable(world::session(&core).await);
    let beat = node::heartbeat(&greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    assert_eq!(receive(&mut greeted.socket).await, None);
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 401);
}

// inv: INV-C26, INV-C29, INV-P26
// req: P-028, G-205, G-206
#[tokio::test]
async fn a_node_is_removed_once_it_holds_nothing_and_is_nobody_from_then_on() {
    removed(On::Sqlite).await;
}

// inv: INV-C26, INV-C29, INV-P26
#[tokio::test]
async fn pg_a_node_is_removed_once_it_holds_nothing_and_is_nobody_from_then_on() {
    removed(On::Postgres).await;
}

// inv: INV-C29, INV-C32
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pg_a_node_removed_while_callers_place_on_it_is_either_kept_or_empty() {
    let core = world::core(On::Postgres).await;
    for _ in 0..5 {
        let node = Node::start(&core, 3).await;
        let path = format!("/core/v1/sandbox/nodes/{}", node.id());
        let sessions = join_all((0..6).map(|_| world::session(&core)));
        let (placed, answer) = tokio::join!(sessions, core.operator(Method::DELETE, &path, None));
        let placed: Vec<_> = placed.into_iter().filter_map(Result::ok).collect();
        let read = core.core().store.single();
        let held = read.slot_counts(Some(node.id())).await.unwrap().retained;
        match answer.status.as_u16() {
            204 => assert_eq!((placed.len(), held), (0, 0)),
            409 => {
                assert!(held > 0 && held == placed.len() as u64);
                for (session, allocation) in placed {
                    world::archive(&core, session, allocation).await;
                    world::until(&core, allocation, AllocationState::Released).await;
                }
                core.operator(Method::DELETE, &path, None).await.expect(204);
            }
            other => panic!("{other}: {}", answer.body),
        }
    }
}

/// SQLite writes one transaction at a time anyway.
#[tokio::test]
async fn pg_an_archive_waits_for_a_write_to_the_deployment_and_is_refused_under_the_generation_before() {
    let core = world::core(On::Postgres).await;
    let _node = Node::start(&core, 1).await;
    let (session, id) = world::session(&core).await.unwrap();
    world::until(&core, id, AllocationState::Running).await;
    let generation = core.core().store.single().deployment().await.unwrap().generation;
    let tx = world::begin(&core).await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    tx.save_selection(&crate::suspension::selection()).await.unwrap();
    let path = format!("/core/v1/projects/{}/sessions/{session}/archive", core.project_id);
    let body = json!({ "expected_generation": generation });
    let faults = core.core().store.faults();
    faults.count(&["pg_advisory_xact_lock_shared(7299427, 2)"]);
    let (told, mut answered) = tokio::sync::oneshot::channel();
    let archive = async {
        let answer = core.operator(Method::POST, &path, Some(&body)).await;
        let _ = told.send(());
        answer
    };
    let written = async {
        world::eventually("the archive waits, or is answered", async || {
            faults.counted()[0] > 0 || answered.try_recv().is_ok()
        })
        .await;
        tx.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(archive, written);
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_generation_stale")
    );
    assert_eq!(world::row(&core, id).await.state, AllocationState::Running);
}
