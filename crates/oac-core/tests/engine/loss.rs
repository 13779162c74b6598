//! A sandbox that is gone (core.md section 13).

use oac_model::{AllocationState, TurnState};
use oac_store::{CleanupCause, EventKind};
use oac_wire::shapes::Operation;

use crate::{
    node::{Act, Node},
    world::{self, On},
};

async fn lost(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (session, allocation, sent) = world::working(&core).await;
    let waits = world::input(&core, session).await;

    node.kill().await;
    node.host.lock().natives.get_mut(&allocation).unwrap().running = false;
    node.plan(Operation::Info, &[Act::Answer]);
    node.connect(&core).await;
    let before = node.count(Operation::Info);
    world::eventually("one answer came", async || node.count(Operation::Info) > before).await;
    assert_eq!(
        world::row(&core, allocation).await.state,
        AllocationState::Running,
        "one answer takes nothing away"
    );

    let row = world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(row.cause, Some(CleanupCause::ComputeLost));
    let read = core.core().store.single();
    assert_eq!(
        read.turn(sent).await.unwrap().unwrap().state,
        TurnState::Interrupted
    );
    let waiting = read.turn(waits).await.unwrap().unwrap();
    assert!(!waiting.state.is_terminal() && waiting.allocation_id.is_none());

    // A Turn waits: the Session gets another sandbox, and is told that its files are gone.
    world::eventually("another allocation is there", async || {
        read.latest_allocation(session).await.unwrap().unwrap().id != allocation
    })
    .await;
    let events = read.events_after(session, 0, 100).await.unwrap();
    let reset: Vec<_> = events
        .iter()
        .filter(|e| e.kind == EventKind::EnvironmentReset)
        .collect();
    assert_eq!(reset.len(), 1);
    assert_eq!(reset[0].data["reason"], "compute_lost");
}

// inv: INV-C22, INV-P23, INV-S18
// req: P-048, G-242
#[tokio::test]
async fn a_sandbox_removed_by_hand_is_lost_after_two_answers_and_its_session_goes_on_with_another() {
    lost(On::Sqlite).await;
}

// inv: INV-C22, INV-P23
#[tokio::test]
async fn pg_a_sandbox_removed_by_hand_is_lost_after_two_answers_and_its_session_goes_on_with_another() {
    lost(On::Postgres).await;
}
