//! A kill, with the node killed within it and answers lost.

use oac_model::AllocationState;
use oac_store::{OperationKind, OperationState};
use oac_wire::shapes::Operation;

use crate::{
    node::{Act, Node, Receipt},
    world::{self, On},
};

async fn killed_during_kill(on: On, act: Act) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    node.plan(Operation::Kill, &[act]);
    world::archive(&core, session, allocation).await;
    node.dead().await;
    let held = world::row(&core, allocation).await;
    assert_eq!(
        held.state,
        AllocationState::CleanupPending,
        "an unconfirmed kill releases nothing"
    );
    assert_eq!(
        core.core()
            .store
            .single()
            .slot_counts(Some(node.id()))
            .await
            .unwrap()
            .active,
        1
    );
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Released).await;
    let native = node.native(allocation);
    assert_eq!(
        (native.receipt, native.running, native.volumes),
        (Receipt::Tombstone, false, false)
    );
    let kills: Vec<_> = world::operations(&core, allocation)
        .await
        .into_iter()
        .filter(|op| op.kind == OperationKind::Kill)
        .map(|op| op.state)
        .collect();
    assert_eq!(kills, [OperationState::Unconfirmed, OperationState::Settled]);
    // Between the two the first was observed.
    let order: Vec<_> = node
        .host
        .lock()
        .requests
        .iter()
        .map(|(operation, _)| *operation)
        .collect();
    let kills: Vec<_> = (0..order.len())
        .filter(|at| order[*at] == Operation::Kill)
        .collect();
    assert!(order[kills[0]..kills[1]].contains(&Operation::Info), "{order:?}");
    assert_eq!(order.last(), Some(&Operation::Info), "released on what info said");
}

// inv: INV-C18, INV-C19, INV-P10
#[tokio::test]
async fn a_node_killed_halfway_through_a_kill_keeps_the_slot_until_the_next_one_is_confirmed() {
    killed_during_kill(On::Sqlite, Act::DieHalfway).await;
}

// inv: INV-C18, INV-C19, INV-P10
#[tokio::test]
async fn pg_a_node_killed_halfway_through_a_kill_keeps_the_slot_until_the_next_one_is_confirmed() {
    killed_during_kill(On::Postgres, Act::DieHalfway).await;
}

// inv: INV-C18, INV-P10
#[tokio::test]
async fn a_kill_whose_answer_was_lost_is_observed_before_another_one_is_sent() {
    killed_during_kill(On::Sqlite, Act::DieAfter).await;
}

// inv: INV-C19
#[tokio::test]
async fn cleanup_waits_for_a_node_that_is_away_and_goes_on_when_it_returns() {
    let core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 1).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    node.kill().await;
    world::eventually("the node is away", async || {
        core.core().hub.connected(node.id()).is_none()
    })
    .await;
    world::archive(&core, session, allocation).await;
    let row = world::row(&core, allocation).await;
    assert_eq!(
        (row.state, row.link_digest),
        (AllocationState::CleanupPending, None)
    );
    assert_eq!(
        core.core()
            .store
            .single()
            .slot_counts(Some(node.id()))
            .await
            .unwrap()
            .active,
        1
    );
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Released).await;
}

async fn core_killed_during_kill(on: On) {
    let mut core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    node.plan(Operation::Kill, &[Act::Swallow]);
    world::archive(&core, session, allocation).await;
    world::eventually("the kill ran", async || {
        node.native(allocation).receipt == Receipt::Tombstone
    })
    .await;
    core.restart().await;
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(node.native(allocation).created, 1);
}

// inv: INV-C18
#[tokio::test]
async fn a_core_killed_while_it_waits_for_a_kills_answer_finishes_the_cleanup() {
    core_killed_during_kill(On::Sqlite).await;
}

// inv: INV-C18
#[tokio::test]
async fn pg_a_core_killed_while_it_waits_for_a_kills_answer_finishes_the_cleanup() {
    core_killed_during_kill(On::Postgres).await;
}
