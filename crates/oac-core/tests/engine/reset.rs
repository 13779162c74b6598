//! Deployments that are given back.

mod killed;

use futures_util::future;
use oac_model::{AllocationState, SessionId, TurnId, TurnState};
use oac_store::{CleanupCause, FileOperationKind};
use oac_testkit::core::{CoreOptions, TestCore};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    node::{Node, dial},
    world::{self, On},
};

pub const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
pub const RESET: &str = "/core/v1/sandbox/deployment/reset";

/// The deployment as operators see it; whenever a reset stands, what remains adds up.
pub async fn view(core: &TestCore) -> Value {
    let view = core.operator(Method::GET, DEPLOYMENT, None).await.expect(200);
    adds_up(&view);
    view
}

fn adds_up(view: &Value) {
    if view["reset"].is_null() {
        return;
    }
    let remaining = &view["reset"]["remaining"];
    let count = |name: &str| remaining[name].as_u64().unwrap();
    let resources = &view["resources"];
    assert_eq!(
        count("busy") + count("idle") + count("cleanup"),
        resources["allocations"].as_u64().unwrap() + resources["pending"].as_u64().unwrap(),
        "{view}"
    );
    let nodes = remaining["offline_nodes"].as_array().unwrap();
    let offline: u64 = nodes.iter().map(|node| node["resources"].as_u64().unwrap()).sum();
    assert_eq!(count("on_offline_nodes"), offline, "{view}");
}

/// Asks for a reset; the deployment as it is then.
pub async fn reset(core: &TestCore, clear: &str) -> Value {
    let generation = &view(core).await["generation"];
    let body = json!({ "expected_generation": generation, "clear": clear });
    let view = core.operator(Method::POST, RESET, Some(&body)).await.expect(200);
    adds_up(&view);
    view
}

pub async fn cancel(core: &TestCore) -> Value {
    let path = format!("{RESET}?expected_generation={}", view(core).await["generation"]);
    core.operator(Method::DELETE, &path, None).await.expect(200)
}

/// Waits until the reset is complete: at nothing left, and not before.
pub async fn completed(core: &TestCore) -> Value {
    world::eventually("the deployment is reset", async || {
        let view = view(core).await;
        view["reset"].is_null() && view["provider"].is_null()
    })
    .await;
    let read = core.core().store.single();
    assert_eq!(read.left_of_reset().await.unwrap(), (0, false));
    view(core).await
}

async fn is_archived(core: &TestCore, id: SessionId) -> bool {
    let session = core.core().store.single().session(id).await.unwrap().unwrap();
    session.archived_at.is_some()
}

async fn turn_state(core: &TestCore, id: TurnId) -> TurnState {
    core.core().store.single().turn(id).await.unwrap().unwrap().state
}

async fn end_turn(core: &TestCore, session: SessionId, turn: TurnId) {
    let tx = world::begin(core).await;
    tx.lock_session(session).await.unwrap();
    let mut row = tx.turn(turn).await.unwrap().unwrap();
    (row.state, row.ended_at) = (TurnState::Completed, Some(tx.now()));
    assert!(tx.save_turn(&row).await.unwrap());
    tx.commit().await.unwrap();
}

/// What was done about the deployment, oldest first, each with who did it.
async fn told(core: &TestCore) -> Vec<(String, String)> {
    let log = core.core().store.single().audit_log(None, 1000).await.unwrap();
    let about = log.into_iter().rev().filter(|e| e.action.starts_with("reset_"));
    about
        .map(|entry| {
            assert_eq!(entry.source, "127.0.0.1", "where the reset was asked for");
            let actor = entry.actor.split(':').next().unwrap().to_owned();
            (entry.action, actor)
        })
        .collect()
}

fn lines(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(action, actor): &(&str, &str)| ((*action).to_owned(), (*actor).to_owned());
    lines.iter().map(own).collect()
}

/// How often the Session's archive was audited.
async fn archives_told(core: &TestCore, id: SessionId) -> usize {
    let log = core.core().store.single().audit_log(None, 1000).await.unwrap();
    let id = id.to_string();
    let of = log
        .iter()
        .filter(|e| e.resource_id == id && e.action == "archive");
    of.count()
}

async fn auto(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 5).await;
    let (idle, idle_allocation) = world::session(&core).await.unwrap();
    world::until(&core, idle_allocation, AllocationState::Running).await;
    let (running, running_allocation, turn) = world::working(&core).await;
    let (writing, written_allocation) = world::session(&core).await.unwrap();
    world::until(&core, written_allocation, AllocationState::Running).await;
    let tx = world::begin(&core).await;
    tx.lock_session(writing).await.unwrap();
    let write = tx
        .begin_file_operation(writing, FileOperationKind::Write)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let begun = reset(&core, "auto").await;
    assert_eq!(begun["reset"]["clear"], "auto");
    let row = world::until(&core, idle_allocation, AllocationState::Released).await;
    assert_eq!(row.cause, Some(CleanupCause::Reset));
    assert!(is_archived(&core, idle).await);
    world::eventually("only what works is left", async || {
        let remaining = &view(&core).await["reset"]["remaining"];
        (&remaining["busy"], &remaining["idle"], &remaining["cleanup"]) == (&json!(2), &json!(0), &json!(0))
    })
    .await;
    for (session, allocation) in [(running, running_allocation), (writing, written_allocation)] {
        assert!(!is_archived(&core, session).await);
        assert!(node.native(allocation).running);
    }
    assert_eq!(turn_state(&core, turn).await, TurnState::Running);

    end_turn(&core, running, turn).await;
    world::until(&core, running_allocation, AllocationState::Released).await;
    assert_eq!(
        turn_state(&core, turn).await,
        TurnState::Completed,
        "it was left to finish"
    );
    assert!(!is_archived(&core, writing).await);
    let tx = world::begin(&core).await;
    assert!(tx.end_file_operation(write.id).await.unwrap());
    tx.commit().await.unwrap();
    completed(&core).await;
    assert_eq!(
        told(&core).await,
        lines(&[("reset_start", "core_key"), ("reset_complete", "core")])
    );
    for session in [idle, running, writing] {
        assert_eq!(archives_told(&core, session).await, 1);
    }
}

// req: G-181, G-182
// inv: INV-C15, INV-C23
#[tokio::test]
async fn an_automatic_reset_archives_what_is_idle_at_once_and_everything_else_when_its_work_is_done() {
    auto(On::Sqlite).await;
}

// inv: INV-C15, INV-C23
#[tokio::test]
async fn pg_an_automatic_reset_archives_what_is_idle_at_once_and_everything_else_when_its_work_is_done() {
    auto(On::Postgres).await;
}

async fn force(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 8).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(world::working(&core).await);
    }
    let waits = world::input(&core, all[0].0).await;
    for _ in 0..4 {
        // Some are still being created.
        world::session(&core).await.unwrap();
    }
    let token = core.enrollment_token(&json!({})).await;
    let (enrollment, _) = core.enrollment().await;
    let before = view(&core).await;

    let begun = reset(&core, "force").await;
    assert_eq!(begun["reset"]["clear"], "force");
    assert!(begun["reset"]["deadline_at"].is_null() && begun["reset"]["forced_at"].is_string());
    let after = completed(&core).await;
    for (session, allocation, turn) in &all {
        assert!(is_archived(&core, *session).await);
        assert_eq!(turn_state(&core, *turn).await, TurnState::Canceled);
        assert!(!node.native(*allocation).running);
        assert_eq!(archives_told(&core, *session).await, 1);
    }
    assert_eq!(turn_state(&core, waits).await, TurnState::Canceled);
    let higher = |name: &str| after[name].as_i64().unwrap() - before[name].as_i64().unwrap();
    assert_eq!((higher("generation"), higher("owner_epoch")), (1, 1));
    assert_eq!(
        told(&core).await,
        lines(&[("reset_start", "core_key"), ("reset_complete", "core")])
    );
    assert!(after["mode"].is_null() && after.get("specification").is_none());

    // Nothing that opened something before opens it now.
    let read = core.core().store.single();
    assert!(read.nodes().await.unwrap().is_empty());
    world::eventually("the node's connection ended", async || {
        core.core().hub.connected(node.id()).is_none()
    })
    .await;
    let refused = dial(&core, &node.enrolled).await.err();
    assert_eq!(
        refused.map(|status| status.as_u16()),
        Some(StatusCode::UNAUTHORIZED.as_u16())
    );
    let path = "/api/v1/sandbox-node/enroll";
    let unused = core
        .call(Method::POST, path, Some(&token), Some(&enrollment))
        .await;
    assert_eq!(unused.status, 401);

    // And everything can begin anew, under a number that never was.
    let anew = core.deploy(2, 1024).await;
    assert_eq!(
        anew["generation"],
        json!(after["generation"].as_i64().unwrap() + 1)
    );
    let node = Node::start(&core, 1).await;
    let (_, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    assert!(node.native(allocation).running);
}

// req: G-183, G-185, G-186
// inv: INV-C2, INV-C4, INV-C23, INV-C26
#[tokio::test]
async fn a_forced_reset_cancels_what_runs_and_gives_everything_back_and_a_new_deployment_begins_anew() {
    force(On::Sqlite).await;
}

// inv: INV-C2, INV-C4, INV-C23, INV-C26
#[tokio::test]
async fn pg_a_forced_reset_cancels_what_runs_and_gives_everything_back_and_a_new_deployment_begins_anew() {
    force(On::Postgres).await;
}

// req: G-184
// inv: INV-C19, INV-C23
#[tokio::test]
async fn a_node_that_is_away_holds_the_reset_up_is_named_and_completes_it_by_coming_back() {
    let core = world::core(On::Sqlite).await;
    let mut away = Node::start(&core, 2).await;
    let (_, kept, _) = world::working(&core).await;
    let (_, other, _) = world::working(&core).await;
    away.kill().await;
    let here = Node::start(&core, 1).await;
    let (_, gone, _) = world::working(&core).await;
    reset(&core, "force").await;
    world::until(&core, gone, AllocationState::Released).await;
    for allocation in [kept, other] {
        world::until(&core, allocation, AllocationState::CleanupPending).await;
    }
    let shown = view(&core).await;
    let remaining = &shown["reset"]["remaining"];
    assert_eq!(
        remaining["offline_nodes"],
        json!([{ "node_id": away.id(), "name": "test node", "resources": 2 }])
    );
    assert_eq!(
        (&remaining["cleanup"], &remaining["on_offline_nodes"]),
        (&json!(2), &json!(2))
    );
    assert!(core.core().hub.connected(here.id()).is_some(), "still needed");
    away.connect(&core).await;
    world::eventually("it is not offline any more", async || {
        let view = view(&core).await;
        view["reset"].is_null() || view["reset"]["remaining"]["on_offline_nodes"] == 0
    })
    .await;
    completed(&core).await;
    for allocation in [kept, other] {
        assert!(!away.native(allocation).running);
    }
}

/// A node that is away may leave hundreds of sandboxes in cleanup for days, and Core has a poke for whatever happens.
#[tokio::test]
async fn what_waits_for_a_node_that_is_away_is_not_planned_again_with_every_poke() {
    let core = world::core(On::Sqlite).await;
    let mut away = Node::start(&core, 4).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(world::working(&core).await.1);
    }
    away.kill().await;
    world::eventually("the node is away", async || {
        core.core().hub.connected(away.id()).is_none()
    })
    .await;
    reset(&core, "force").await;
    for allocation in &held {
        world::until(&core, *allocation, AllocationState::CleanupPending).await;
    }
    // A pass asks for each of three states, and for one more page where there was one.
    const PASS: u64 = 4;
    let faults = core.core().store.faults();
    world::eventually("a pass that plans none of them", async || {
        faults.count(&["WHERE released_at IS NULL AND state = $1", "FROM operations"]);
        world::eventually("a whole pass", async || {
            core.core().pokes.allocations.notify_one();
            faults.counted()[0] >= 2 * PASS
        })
        .await;
        faults.counted()[1] == 0
    })
    .await;
    away.connect(&core).await;
    completed(&core).await;
}

/// Between the commit of a completed reset and the renewal of its lease, a Core goes on under the next epoch.
#[tokio::test]
async fn a_demand_that_meets_the_end_of_a_reset_is_answered_as_one_after_it() {
    let core = world::core(On::Sqlite).await;
    let _node = Node::start(&core, 1).await;
    let ownership = core.core().owner.ownership().unwrap();
    let last = core.core().store.begin_last(&ownership).await.unwrap();
    last.complete_reset().await.unwrap();
    last.commit().await.unwrap();
    let placing = world::session(&core);
    let renewing = async { core.core().pokes.lease.notify_one() };
    let (placed, ()) = future::join(placing, renewing).await;
    assert!(
        matches!(placed, Err(oac_core::placement::PlaceError::Refused(_))),
        "{placed:?}"
    );
}

async fn deadline(on: On) {
    let mut core = world::core(on).await;
    let mut node = Node::start(&core, 2).await;
    let (session, allocation, turn) = world::working(&core).await;
    let body = json!({ "expected_generation": 1, "clear": "auto", "deadline_seconds": 300 });
    core.operator(Method::POST, RESET, Some(&body)).await.expect(200);
    let later = async |core: &mut TestCore, node: &mut Node, seconds: i64| {
        node.kill().await;
        core.stop().await;
        let options = CoreOptions {
            public_url: Some(core.public_url.clone()),
            clock_offset_millis: seconds * 1000,
            ..CoreOptions::default()
        };
        let core = core.beside(options).await;
        node.connect(&core).await;
        core
    };
    // One Core may have been away at the deadline.
    let mut core = later(&mut core, &mut node, 200).await;
    assert_eq!(view(&core).await["reset"]["remaining"]["busy"], 1);
    assert_eq!(turn_state(&core, turn).await, TurnState::Running);
    let core = later(&mut core, &mut node, 301).await;
    world::until(&core, allocation, AllocationState::Released).await;
    completed(&core).await;
    assert!(is_archived(&core, session).await);
    assert_eq!(turn_state(&core, turn).await, TurnState::Canceled);
    let expected = [
        ("reset_start", "core_key"),
        ("reset_deadline", "core"),
        ("reset_complete", "core"),
    ];
    assert_eq!(told(&core).await, lines(&expected));
}

// req: G-180
// inv: INV-C15
#[tokio::test]
async fn at_its_deadline_an_automatic_reset_is_forced_by_whichever_core_serves_then() {
    deadline(On::Sqlite).await;
}

// inv: INV-C15
#[tokio::test]
async fn pg_at_its_deadline_an_automatic_reset_is_forced_by_whichever_core_serves_then() {
    deadline(On::Postgres).await;
}

// req: G-187, G-188
// inv: INV-C15
#[tokio::test]
async fn a_canceled_reset_archives_nothing_more_and_what_it_archived_stays_archived() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 3).await;
    let (idle, idle_allocation) = world::session(&core).await.unwrap();
    world::until(&core, idle_allocation, AllocationState::Running).await;
    let (working, allocation, turn) = world::working(&core).await;
    reset(&core, "auto").await;
    world::until(&core, idle_allocation, AllocationState::Released).await;
    let canceled = cancel(&core).await;
    assert!(canceled["reset"].is_null());
    assert_eq!(
        (&canceled["provider"], &canceled["generation"]),
        (&json!("docker"), &json!(1))
    );
    end_turn(&core, working, turn).await;
    core.core().pokes.resets.notify_one();
    // Placement goes on, and a later reset archives both: nothing of the first one is left to do.
    let (fresh, fresh_allocation) = world::session(&core).await.unwrap();
    world::until(&core, fresh_allocation, AllocationState::Running).await;
    assert!(is_archived(&core, idle).await);
    assert!(!is_archived(&core, working).await && node.native(allocation).running);
    cancel(&core).await;
    assert_eq!(
        told(&core).await,
        lines(&[("reset_start", "core_key"), ("reset_cancel", "core_key")]),
        "canceling nothing is nothing"
    );
    reset(&core, "auto").await;
    completed(&core).await;
    assert!(is_archived(&core, fresh).await && is_archived(&core, working).await);
}

/// A Session whose sandbox was lost waits for another, and during a reset none is placed.
#[tokio::test]
async fn a_session_that_waits_for_a_place_does_not_hold_an_automatic_reset_up() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 1).await;
    let (session, allocation, _) = world::working(&core).await;
    let waits = world::input(&core, session).await;
    reset(&core, "auto").await;
    let tx = world::begin(&core).await;
    tx.lock_session(session).await.unwrap();
    let lost =
        oac_core::allocations::begin_cleanup(&tx, allocation, oac_core::allocations::Cause::ComputeLost);
    lost.await.unwrap();
    tx.commit().await.unwrap();
    core.core().pokes.allocations.notify_one();
    completed(&core).await;
    assert!(is_archived(&core, session).await);
    assert_eq!(turn_state(&core, waits).await, TurnState::Canceled);
    assert_eq!(node.native(allocation).created, 1);
}
