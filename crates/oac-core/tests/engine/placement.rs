//! Where Sessions go, and that nothing is left where they do not.

use futures_util::future::join_all;
use oac_core::placement::PlaceError;
use oac_lifecycle::placement::Answer;
use oac_model::AllocationState;
use oac_store::{Hold, Side};
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;

use crate::{
    node::Node,
    world::{self, On},
};

async fn retained(core: &TestCore, node: &Node) -> u64 {
    core.core()
        .store
        .single()
        .slot_counts(Some(node.id()))
        .await
        .unwrap()
        .retained
}

async fn node_of(core: &TestCore, id: oac_model::AllocationId) -> oac_model::NodeId {
    world::row(core, id).await.node_id.unwrap()
}

async fn two_nodes(on: On) {
    let core = world::core(on).await;
    let first = Node::start(&core, 2).await;
    let second = Node::start(&core, 2).await;
    let mut on_nodes = Vec::new();
    for _ in 0..4 {
        let (_, allocation) = world::session(&core).await.unwrap();
        on_nodes.push(node_of(&core, allocation).await);
    }
    // Fewest active, then the node that was created first.
    assert_eq!(on_nodes, [first.id(), second.id(), first.id(), second.id()]);
}

// req: G-004
#[tokio::test]
async fn sessions_go_to_the_node_with_the_fewest_sandboxes_then_the_oldest() {
    two_nodes(On::Sqlite).await;
}

#[tokio::test]
async fn pg_sessions_go_to_the_node_with_the_fewest_sandboxes_then_the_oldest() {
    two_nodes(On::Postgres).await;
}

async fn full(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    world::session(&core).await.unwrap();
    let before = rows(&core).await;
    let refused = world::session(&core).await;
    assert!(
        matches!(refused, Err(PlaceError::Refused(Answer::Unavailable))),
        "{refused:?}"
    );
    assert_eq!(rows(&core).await, before);
    assert_eq!(retained(&core, &node).await, 1);
}

/// Sessions, unreleased allocations and placements without one.
async fn rows(core: &TestCore) -> (usize, u64, u64) {
    let read = core.core().store.single();
    let sessions = read.unarchived_sessions(None, 100).await.unwrap().len();
    let counts = read.resource_counts().await.unwrap();
    (sessions, counts.allocations, counts.pending)
}

// inv: INV-C11
#[tokio::test]
async fn a_full_node_refuses_cleanly_and_leaves_no_row() {
    full(On::Sqlite).await;
}

// inv: INV-C11
#[tokio::test]
async fn pg_a_full_node_refuses_cleanly_and_leaves_no_row() {
    full(On::Postgres).await;
}

async fn crowd(on: On) {
    let core = world::core(on).await;
    let nodes = [Node::start(&core, 3).await, Node::start(&core, 2).await];
    let placed = join_all((0..50).map(|_| world::session(&core))).await;
    let won = placed.iter().filter(|p| p.is_ok()).count();
    for refused in placed.into_iter().filter_map(Result::err) {
        assert!(
            matches!(refused, PlaceError::Refused(Answer::Unavailable)),
            "{refused:?}"
        );
    }
    assert_eq!(won, 5);
    assert_eq!(
        (retained(&core, &nodes[0]).await, retained(&core, &nodes[1]).await),
        (3, 2)
    );
    assert_eq!(rows(&core).await, (5, 5, 0));
}

// inv: INV-C10, INV-C11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_callers_at_once_get_exactly_the_five_slots_there_are() {
    crowd(On::Sqlite).await;
}

// inv: INV-C10, INV-C11, INV-C32
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pg_fifty_callers_at_once_get_exactly_the_five_slots_there_are() {
    crowd(On::Postgres).await;
}

async fn stale_memory(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    // Behind memory's back: another write than the owner's own.
    let tx = world::begin(&core).await;
    tx.lock_node(node.id()).await.unwrap();
    tx.set_node_cordoned(node.id(), true).await.unwrap();
    tx.commit().await.unwrap();
    let refused = world::session(&core).await;
    assert!(
        matches!(refused, Err(PlaceError::Refused(Answer::Unavailable))),
        "{refused:?}"
    );
    assert_eq!(rows(&core).await, (0, 0, 0));
}

// inv: INV-C24, INV-C32
#[tokio::test]
async fn what_memory_does_not_know_yet_is_found_under_the_nodes_lock() {
    stale_memory(On::Sqlite).await;
}

// inv: INV-C24, INV-C32
#[tokio::test]
async fn pg_what_memory_does_not_know_yet_is_found_under_the_nodes_lock() {
    stale_memory(On::Postgres).await;
}

// req: G-167
#[tokio::test]
async fn a_sandbox_keeps_the_configuration_it_was_created_with_when_the_deployment_changes() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 2).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    let before = world::until(&core, allocation, AllocationState::Running).await;
    let changed = core.deploy(2, 1024).await;
    oac_core::placement::refresh_deployment(core.core()).await;
    let old = before.deployment_generation.get();
    assert!(changed["generation"].as_i64().unwrap() > old);
    // The node serves on what it enrolled with; that it does is seen by another sandbox.
    let (_, other) = world::session(&core).await.unwrap();
    world::until(&core, other, AllocationState::Running).await;
    let after = world::row(&core, allocation).await;
    assert_eq!(after.state, AllocationState::Running);
    assert_eq!(after.deployment_generation.get(), old);
    let native = node.native(allocation);
    assert_eq!((native.running, native.created), (true, 1), "nobody touched it");
    assert_eq!(node.count(Operation::Kill), 0);
    // Its end, too, is asked for under its own generation, which is kept until then.
    world::archive(&core, session, allocation).await;
    world::until(&core, allocation, AllocationState::Released).await;
}

#[tokio::test]
async fn a_changed_limit_counts_at_once() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 2).await;
    world::session(&core).await.unwrap();
    let tx = world::begin(&core).await;
    tx.lock_node(node.id()).await.unwrap();
    tx.set_node_limits(node.id(), oac_store::NodeLimits::Custom, 1, 1)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert!(
        world::session(&core).await.is_err(),
        "lowering stops the next one"
    );
    assert_eq!(retained(&core, &node).await, 1, "and nothing that runs");
}

// inv: INV-C12
#[tokio::test]
async fn an_environment_is_placed_at_most_once() {
    let core = world::core(On::Sqlite).await;
    let _node = Node::start(&core, 3).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    let row = world::row(&core, allocation).await;
    let demand = oac_core::placement::Demand {
        project_id: row.tenant_id,
        session_id: session,
        environment_id: row.environment_id,
        request: Default::default(),
        parent: Default::default(),
    };
    let again = oac_core::placement::begin(core.core(), demand).await.map(drop);
    assert!(
        matches!(
            again,
            Err(PlaceError::Store(oac_store::StoreError::Duplicate { .. }))
        ),
        "{again:?}"
    );
    assert_eq!(rows(&core).await, (1, 1, 0));
}

// inv: INV-C32
#[tokio::test]
async fn pg_who_waits_for_no_row_looks_at_each_node_that_takes_the_demand_and_gives_up_where_all_are_held() {
    let core = world::core(On::Postgres).await;
    let (held, open) = (Node::start(&core, 3).await, Node::start(&core, 3).await);
    let session = oac_store::NewSession {
        id: oac_model::SessionId::random(),
        project_id: core.project_id,
        environment_id: oac_model::EnvironmentId::random(),
        name: None,
        network: Default::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    };
    let tx = world::begin(&core).await;
    tx.insert_session(&session).await.unwrap();
    tx.commit().await.unwrap();
    let demand = || oac_core::placement::Demand {
        project_id: session.project_id,
        session_id: session.id,
        environment_id: session.environment_id,
        request: Default::default(),
        parent: Default::default(),
    };
    let at_once = || oac_core::placement::begin_within(core.core(), demand(), std::time::Duration::ZERO);
    let first = world::begin(&core).await;
    first.lock_node(held.id()).await.unwrap();
    let second = world::begin(&core).await;
    second.lock_node(open.id()).await.unwrap();
    let given_up = at_once().await.map(drop);
    assert!(matches!(given_up, Err(PlaceError::Held)), "{given_up:?}");
    second.rollback().await.unwrap();
    let placed = at_once().await.unwrap().commit().await.unwrap();
    assert_eq!(placed.node_id, open.id());
    first.rollback().await.unwrap();
}

/// Lets owner commits through one by one, each held between its being made and its being known, until `seen` says so. The
/// commit that made it so is still held when this returns.
async fn held_once(core: &TestCore, first: Hold, seen: impl AsyncFn() -> bool) -> Hold {
    let mut hold = first;
    loop {
        hold.reached().await;
        if seen().await {
            return hold;
        }
        // The next one is held before this one goes on.
        hold = core.core().store.faults().hold_next(Side::After);
    }
}

async fn seen_free(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    let first = core.core().store.faults().hold_next(Side::After);
    let released = held_once(&core, first, async || {
        world::row(&core, allocation).await.state == AllocationState::Released
    });
    let (_, hold) = tokio::join!(world::archive(&core, session, allocation), released);
    assert_eq!(retained(&core, &node).await, 0);
    world::session(&core)
        .await
        .expect("whoever sees the slot free finds it free");
    drop(hold);
}

#[tokio::test]
async fn a_slot_that_is_seen_free_is_free_for_the_next_session() {
    seen_free(On::Sqlite).await;
}

#[tokio::test]
async fn pg_a_slot_that_is_seen_free_is_free_for_the_next_session() {
    seen_free(On::Postgres).await;
}
