//! Nodes that are emptied, and Cores that are killed over it.

use oac_core::allocations::{self, Cause};
use oac_model::{AllocationState, NodeId, TurnState};
use oac_store::{CleanupCause, DrainIdle, DrainRetained, DrainThen, NewDrain, Tx};
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::json;

use crate::{
    node::Node,
    operating::change,
    world::{self, On},
};

/// A drain whose deadline is now, as its route would have stored it an hour ago.
async fn overdue(tx: &Tx, node: NodeId, then: DrainThen) {
    tx.lock_node(node).await.unwrap();
    let drain = NewDrain {
        deadline_seconds: 0,
        idle: DrainIdle::Wait,
        then,
        retained: DrainRetained::Keep,
        source: "192.0.2.9".to_owned(),
    };
    tx.start_drain(node, &drain).await.unwrap();
}

async fn start(core: &TestCore, node: &Node, then: DrainThen) {
    let tx = world::begin(core).await;
    overdue(&tx, node.id(), then).await;
    tx.commit().await.unwrap();
    core.core().pokes.drains.notify_one();
}

async fn drained(core: &TestCore, node: NodeId) {
    let read = core.core().store.single();
    world::eventually("the drain is over", async || {
        let row = read.node(node).await.unwrap().unwrap();
        row.drain_requested_at.is_none()
    })
    .await;
    let row = read.node(node).await.unwrap().unwrap();
    assert!(row.cordoned_at.is_some(), "the cordon stays");
    assert_eq!(read.slot_counts(Some(node)).await.unwrap().active, 0);
}

/// What Core did about a node's drain, oldest first, each with where it was asked for.
async fn told(core: &TestCore, resource: impl ToString) -> Vec<(String, String)> {
    let resource = resource.to_string();
    let log = core.core().store.single().audit_log(None, 1000).await.unwrap();
    log.into_iter()
        .rev()
        .filter(|e| e.resource_id == resource && e.actor == "core")
        .map(|e| (e.action, e.source))
        .collect()
}

fn once(actions: &[&str]) -> Vec<(String, String)> {
    actions
        .iter()
        .map(|action| ((*action).to_owned(), "192.0.2.9".to_owned()))
        .collect()
}

async fn terminates(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 2).await;
    let (session, allocation, turn) = world::working(&core).await;
    let waits = world::input(&core, session).await;
    let other = Node::start(&core, 2).await;
    start(&core, &node, DrainThen::Terminate).await;
    let row = world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(row.cause, Some(CleanupCause::Drain));
    drained(&core, node.id()).await;
    let read = core.core().store.single();
    assert_eq!(
        read.turn(turn).await.unwrap().unwrap().state,
        TurnState::Interrupted
    );
    assert!(!read.turn(waits).await.unwrap().unwrap().state.is_terminal());
    assert!(
        read.session(session)
            .await
            .unwrap()
            .unwrap()
            .archived_at
            .is_none()
    );
    // A Turn waits: the Session goes on elsewhere.
    world::eventually("the Session has another sandbox", async || {
        let latest = read.latest_allocation(session).await.unwrap().unwrap();
        latest.id != allocation && latest.node_id == Some(other.id())
    })
    .await;
    assert_eq!(
        told(&core, node.id()).await,
        once(&["drain_deadline", "drain_complete"])
    );
    assert!(!node.native(allocation).running);
}

// inv: INV-C15, INV-C24
#[tokio::test]
async fn a_drain_that_terminates_interrupts_what_runs_keeps_the_sessions_and_is_over_when_nothing_is_left() {
    terminates(On::Sqlite).await;
}

// inv: INV-C15, INV-C24
#[tokio::test]
async fn pg_a_drain_that_terminates_interrupts_what_runs_keeps_the_sessions_and_is_over_when_nothing_is_left()
{
    terminates(On::Postgres).await;
}

async fn archives(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 2).await;
    let (session, allocation, turn) = world::working(&core).await;
    start(&core, &node, DrainThen::Archive).await;
    let row = world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(row.cause, Some(CleanupCause::Archive));
    drained(&core, node.id()).await;
    let read = core.core().store.single();
    assert!(
        read.session(session)
            .await
            .unwrap()
            .unwrap()
            .archived_at
            .is_some()
    );
    assert_eq!(read.turn(turn).await.unwrap().unwrap().state, TurnState::Canceled);
    assert_eq!(told(&core, session).await, once(&["archive"]));
    assert_eq!(
        told(&core, node.id()).await,
        once(&["drain_deadline", "drain_complete"])
    );
}

// inv: INV-C15
#[tokio::test]
async fn a_drain_that_archives_ends_the_sessions_of_what_still_runs_each_audited_once() {
    archives(On::Sqlite).await;
}

// inv: INV-C15
#[tokio::test]
async fn pg_a_drain_that_archives_ends_the_sessions_of_what_still_runs_each_audited_once() {
    archives(On::Postgres).await;
}

#[tokio::test]
async fn before_its_deadline_a_drain_ends_nothing_and_is_over_when_the_last_sandbox_goes() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 2).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    let drain =
        json!({ "deadline_seconds": 604_800, "idle": "suspend", "then": "terminate", "retained": "release" });
    change(&core, &node, Method::POST, "/drain", drain).await;
    // The worker has looked at it once it has finished a later one, which holds nothing.
    let empty = Node::enroll(&core, 1).await;
    start(&core, &empty, DrainThen::Terminate).await;
    drained(&core, empty.id()).await;
    assert_eq!(world::row(&core, allocation).await.cause, None);
    world::archive(&core, session, allocation).await;
    drained(&core, node.id()).await;
    let actions: Vec<String> = told(&core, node.id()).await.into_iter().map(|(a, _)| a).collect();
    assert_eq!(actions, ["drain_complete"], "no deadline passed");
}

// inv: INV-C19
#[tokio::test]
async fn a_drain_of_a_node_that_is_away_waits_for_its_return_and_gives_nothing_free_before() {
    let core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 1).await;
    let (_, allocation, _) = world::working(&core).await;
    node.kill().await;
    start(&core, &node, DrainThen::Terminate).await;
    world::until(&core, allocation, AllocationState::CleanupPending).await;
    let read = core.core().store.single();
    let counts = read.slot_counts(Some(node.id())).await.unwrap();
    assert_eq!(counts.active, 1);
    let row = read.node(node.id()).await.unwrap().unwrap();
    assert!(row.drain_requested_at.is_some() && row.drain_deadline_passed_at.is_some());
    node.connect(&core).await;
    drained(&core, node.id()).await;
}

#[tokio::test]
async fn a_canceled_drain_ends_nothing_more() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 1).await;
    let (_, allocation, _) = world::working(&core).await;
    // However overdue it is.
    let tx = world::begin(&core).await;
    overdue(&tx, node.id(), DrainThen::Terminate).await;
    core.core().pokes.drains.notify_one();
    tx.end_drain(node.id()).await.unwrap();
    tx.commit().await.unwrap();
    let empty = Node::enroll(&core, 1).await;
    start(&core, &empty, DrainThen::Terminate).await;
    drained(&core, empty.id()).await;
    assert_eq!(world::row(&core, allocation).await.cause, None);
    assert!(told(&core, node.id()).await.is_empty());
}

#[tokio::test]
async fn pg_a_drain_whose_node_is_locked_holds_up_no_other() {
    let core = world::core(On::Postgres).await;
    // Looked at in this order.
    let mut ids = [
        Node::enroll(&core, 1).await.id(),
        Node::enroll(&core, 1).await.id(),
    ];
    ids.sort();
    let [locked, other] = ids;
    let tx = world::begin(&core).await;
    overdue(&tx, locked, DrainThen::Terminate).await;
    overdue(&tx, other, DrainThen::Terminate).await;
    tx.commit().await.unwrap();
    let tx = world::begin(&core).await;
    tx.lock_node(locked).await.unwrap();
    core.core().pokes.drains.notify_one();
    let read = core.core().store.single();
    world::eventually("the other drain is over", async || {
        // Asked again and again: the server ends a transaction that idles.
        tx.lock_node(locked).await.unwrap();
        let row = read.node(other).await.unwrap().unwrap();
        row.drain_requested_at.is_none()
    })
    .await;
}

/// How far a drain came before its Core was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Started,
    Passed,
    EndedOne,
    EndedAll,
}

async fn killed(came: Came, then: DrainThen) {
    let mut core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 2).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(world::working(&core).await);
    }
    node.kill().await;
    let id = node.id();
    let ended = match came {
        Came::Started | Came::Passed => 0,
        Came::EndedOne => 1,
        Came::EndedAll => 2,
    };
    world::as_killed(&mut core, async |tx| {
        overdue(tx, id, then).await;
        if came != Came::Started {
            tx.pass_drain_deadline(id).await.unwrap();
        }
        for (session, _, _) in held.iter().take(ended) {
            tx.lock_session(*session).await.unwrap();
        }
        for (_, allocation, _) in held.iter().take(ended) {
            allocations::begin_cleanup(tx, *allocation, Cause::Drain)
                .await
                .unwrap();
        }
    })
    .await;
    let core = world::next_core(&core).await;
    node.connect(&core).await;
    for (_, allocation, _) in &held {
        world::until(&core, *allocation, AllocationState::Released).await;
        assert_eq!(node.native(*allocation).created, 1);
    }
    drained(&core, id).await;
    let declared = if came == Came::Started { 1 } else { 0 };
    let actions = told(&core, id).await;
    let count = |action: &str| actions.iter().filter(|(a, _)| a == action).count();
    assert_eq!(
        (count("drain_deadline"), count("drain_complete")),
        (declared, 1),
        "{came:?}: who declared it audited it"
    );
}

// inv: INV-C15
#[tokio::test]
async fn a_core_killed_between_any_two_steps_of_a_drain_is_followed_by_one_that_goes_on() {
    for then in [DrainThen::Terminate, DrainThen::Archive] {
        for came in [Came::Started, Came::Passed, Came::EndedAll] {
            killed(came, then).await;
        }
    }
    // One was ended, one was not.
    killed(Came::EndedOne, DrainThen::Terminate).await;
}

/// As after a step back to an earlier version.
#[tokio::test]
async fn pg_an_allocation_that_cannot_be_read_keeps_no_other_from_being_drained_or_shown() {
    let core = world::core(On::Postgres).await;
    let node = Node::start(&core, 3).await;
    let mut made = Vec::new();
    for _ in 0..3 {
        let (_, id) = world::session(&core).await.unwrap();
        world::until(&core, id, AllocationState::Running).await;
        made.push(id);
    }
    made.sort();
    let (odd, rest) = (made[0], &made[1..]);
    core.execute(&format!(
        "UPDATE allocations SET initialization = 'odd' WHERE id = '{odd}'"
    ))
    .await;
    for path in [
        "/core/v1/sandbox/allocations".to_owned(),
        format!("/core/v1/sandbox/nodes/{}/allocations", node.id()),
    ] {
        let (mut shown, mut after) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit=1{after}");
            let page = core.operator(Method::GET, &page, None).await.expect(200);
            let ids = page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["id"].clone());
            shown.extend(ids);
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&cursor={next}");
        }
        let expected: Vec<_> = rest.iter().map(|id| json!(id)).collect();
        assert_eq!(shown, expected, "{path}");
    }
    start(&core, &node, DrainThen::Terminate).await;
    for id in rest {
        world::until(&core, *id, AllocationState::Released).await;
    }
    let row = core.core().store.single().node(node.id()).await.unwrap().unwrap();
    assert!(row.drain_requested_at.is_some(), "something is left");
}
