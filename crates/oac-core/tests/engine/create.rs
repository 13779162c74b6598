//! A create, with the node or Core killed between its steps.
//!
//! Kill points of a create and what the next Core, or the next connection, must make of each:
//!
//! | after | rows | native | then |
//! |---|---|---|---|
//! | placement | reserved | nothing | created once |
//! | intent stored | creating, intent | nothing | intent dropped, created once, with another credential |
//! | marked sent, no frame | creating, sent | nothing | never sent again; observed; cleaned only with a tombstone |
//! | frame delivered, nothing done | creating, sent | nothing | the same |
//! | container created, not started | creating, sent | a leftover | the same; the leftover is killed |
//! | done, answer lost | creating, sent | running | observed running |

use oac_core::allocations::{self, Cause};
use oac_model::{
    AllocationId, AllocationState, Digest, NodeId, OperationId, ProjectId, SessionId, SessionState, TurnState,
};
use oac_store::{EventKind, Initialization, NewOperation, OperationKind, OperationState, Tx};
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;

use crate::{
    node::{Act, Node, Receipt},
    world::{self, On},
};

async fn creates_and_releases(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    let row = world::until(&core, allocation, AllocationState::Running).await;
    assert!(row.create_settled && row.bootstrap_complete);
    assert_eq!(row.provider_id.as_deref(), Some("container"));
    let delivered = node.host.lock().credentials[&allocation].clone();
    assert_eq!(row.link_digest, Some(delivered.digest()));
    assert_eq!(delivered.expose().len(), 64);
    assert_eq!(world::creates(&core, allocation).await, [OperationState::Settled]);

    let revoked = world::archive(&core, session, allocation).await;
    assert_eq!(
        (revoked.state, revoked.link_digest),
        (AllocationState::CleanupPending, None)
    );
    assert!(revoked.link_generation > row.link_generation);
    world::until(&core, allocation, AllocationState::Released).await;
    let native = node.native(allocation);
    assert_eq!(
        (native.receipt, native.volumes, native.created),
        (Receipt::Tombstone, false, 1)
    );
    assert_eq!(
        core.core()
            .store
            .single()
            .slot_counts(Some(node.id()))
            .await
            .unwrap()
            .retained,
        0
    );
    world::session(&core).await.expect("its slot is free again");
}

// req: G-005, P-043, P-045
// inv: INV-C16, INV-C17, INV-C18
#[tokio::test]
async fn a_session_gets_its_sandbox_and_an_archived_one_leaves_nothing() {
    creates_and_releases(On::Sqlite).await;
}

// inv: INV-C16, INV-C17, INV-C18
#[tokio::test]
async fn pg_a_session_gets_its_sandbox_and_an_archived_one_leaves_nothing() {
    creates_and_releases(On::Postgres).await;
}

/// One create request at most reached the node, and one container at most was made.
fn once(node: &Node, id: AllocationId) {
    let creates = node
        .host
        .lock()
        .requests
        .iter()
        .filter(|r| **r == (Operation::Create, id))
        .count();
    assert!(creates <= 1, "a create was sent {creates} times");
    assert!(node.native(id).created <= 1);
}

async fn lost_reply(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    node.plan(Operation::Create, &[Act::DieAfter]);
    let (_, allocation) = world::session(&core).await.unwrap();
    node.dead().await;
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Running).await;
    once(&node, allocation);
    assert_eq!(world::creates(&core, allocation).await, [OperationState::Settled]);
    assert_ne!(node.count(Operation::Info), 0, "it was observed");
}

// inv: INV-C17, INV-P9
// req: P-048, P-068, P-069
#[tokio::test]
async fn a_create_whose_answer_was_lost_is_observed_running_and_never_sent_again() {
    lost_reply(On::Sqlite).await;
}

// inv: INV-C17, INV-P9
#[tokio::test]
async fn pg_a_create_whose_answer_was_lost_is_observed_running_and_never_sent_again() {
    lost_reply(On::Postgres).await;
}

async fn node_killed(on: On, act: Act) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    node.plan(Operation::Create, &[act]);
    let (session, allocation) = world::session(&core).await.unwrap();
    node.dead().await;
    world::eventually("the create is of unknown outcome", async || {
        world::creates(&core, allocation).await == [OperationState::Unconfirmed]
    })
    .await;
    let held = world::row(&core, allocation).await;
    assert_eq!(
        held.state,
        AllocationState::Creating,
        "an unreachable node loses nothing"
    );
    node.connect(&core).await;
    world::eventually("it is observed", async || node.count(Operation::Info) > 0).await;
    assert_eq!(
        world::row(&core, allocation).await.state,
        AllocationState::Creating,
        "not_found proves nothing"
    );

    world::archive(&core, session, allocation).await;
    world::until(&core, allocation, AllocationState::Released).await;
    once(&node, allocation);
    let native = node.native(allocation);
    assert_eq!((native.receipt, native.volumes), (Receipt::Tombstone, false));
}

// inv: INV-C17, INV-C18, INV-C19, INV-P10
#[tokio::test]
async fn a_node_killed_before_it_began_a_create_keeps_the_allocation_until_cleanup_is_proven() {
    node_killed(On::Sqlite, Act::DieBefore).await;
}

// inv: INV-C17, INV-C18, INV-C19, INV-P10
#[tokio::test]
async fn a_node_killed_halfway_through_a_create_leaves_nothing_behind_once_cleaned() {
    node_killed(On::Sqlite, Act::DieHalfway).await;
}

// inv: INV-C17, INV-C18, INV-C19, INV-P10
#[tokio::test]
async fn pg_a_node_killed_halfway_through_a_create_leaves_nothing_behind_once_cleaned() {
    node_killed(On::Postgres, Act::DieHalfway).await;
}

/// What the killed Core had done last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    Placed,
    Intended,
    Sent,
}

const LOST: &str = "the credential that died with the Core";

async fn stored(tx: &Tx, project: ProjectId, node: NodeId, killed: Killed) -> (SessionId, AllocationId) {
    let (session, id) = world::reserve(tx, project, node).await;
    if killed == Killed::Placed {
        return (session, id);
    }
    let mut row = tx.allocation(id).await.unwrap().unwrap();
    let new = NewOperation {
        id: OperationId::random(),
        allocation_id: id,
        node_id: row.node_id,
        kind: OperationKind::Create,
        argument: None,
    };
    tx.insert_intent(&new).await.unwrap();
    if killed == Killed::Sent {
        tx.mark_sent(new.id, None).await.unwrap();
    }
    row.state = AllocationState::Creating;
    row.link_digest = Some(Digest::of(LOST));
    tx.save_allocation(&mut row).await.unwrap();
    (session, id)
}

/// The next Core, with its node, after one that was killed there.
async fn taken_over(on: On, killed: Killed) -> (TestCore, Node, SessionId, AllocationId) {
    let mut core = world::core(on).await;
    let mut node = Node::enroll(&core, 1).await;
    let (project, node_id) = (core.project_id, node.id());
    let (session, allocation) =
        world::as_killed(&mut core, async |tx| stored(tx, project, node_id, killed).await).await;
    let next = world::next_core(&core).await;
    node.connect(&next).await;
    (next, node, session, allocation)
}

async fn core_killed_unsent(on: On, killed: Killed, operations: &[OperationState]) {
    let (core, node, _, allocation) = taken_over(on, killed).await;
    let row = world::until(&core, allocation, AllocationState::Running).await;
    once(&node, allocation);
    assert_eq!(world::creates(&core, allocation).await, operations);
    assert_ne!(
        row.link_digest,
        Some(Digest::of(LOST)),
        "the lost credential opens nothing"
    );
}

// inv: INV-C17
#[tokio::test]
async fn a_core_killed_after_the_placement_is_followed_by_one_create() {
    core_killed_unsent(On::Sqlite, Killed::Placed, &[OperationState::Settled]).await;
}

// inv: INV-C16, INV-C17, INV-C38
#[tokio::test]
async fn a_core_killed_after_the_intent_is_followed_by_one_create_with_another_credential() {
    core_killed_unsent(
        On::Sqlite,
        Killed::Intended,
        &[OperationState::Rejected, OperationState::Settled],
    )
    .await;
}

// inv: INV-C16, INV-C17, INV-C38
#[tokio::test]
async fn pg_a_core_killed_after_the_intent_is_followed_by_one_create_with_another_credential() {
    core_killed_unsent(
        On::Postgres,
        Killed::Intended,
        &[OperationState::Rejected, OperationState::Settled],
    )
    .await;
}

async fn core_killed_sent(on: On) {
    let (core, node, session, allocation) = taken_over(on, Killed::Sent).await;
    world::eventually("it is observed", async || node.count(Operation::Info) > 0).await;
    let row = world::row(&core, allocation).await;
    assert_eq!(row.state, AllocationState::Creating, "not_found settles nothing");
    assert_eq!(
        world::creates(&core, allocation).await,
        [OperationState::Unconfirmed]
    );
    world::archive(&core, session, allocation).await;
    world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(
        node.count(Operation::Create),
        0,
        "what may have been sent is never sent again"
    );
    assert_eq!(node.native(allocation).receipt, Receipt::Tombstone);
}

// inv: INV-C17, INV-C18, INV-P9, INV-P10
#[tokio::test]
async fn a_core_killed_after_marking_a_create_sent_never_sends_it_and_releases_only_with_a_tombstone() {
    core_killed_sent(On::Sqlite).await;
}

// inv: INV-C17, INV-C18, INV-P9, INV-P10
#[tokio::test]
async fn pg_a_core_killed_after_marking_a_create_sent_never_sends_it_and_releases_only_with_a_tombstone() {
    core_killed_sent(On::Postgres).await;
}

async fn core_killed_waiting(on: On) {
    let mut core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    node.plan(Operation::Create, &[Act::Swallow]);
    let (_, allocation) = world::session(&core).await.unwrap();
    world::eventually("the create ran", async || node.native(allocation).running).await;
    core.restart().await;
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Running).await;
    once(&node, allocation);
}

// inv: INV-C17
#[tokio::test]
async fn a_core_killed_while_it_waits_for_a_creates_answer_finds_the_sandbox_running() {
    core_killed_waiting(On::Sqlite).await;
}

// inv: INV-C17
#[tokio::test]
async fn pg_a_core_killed_while_it_waits_for_a_creates_answer_finds_the_sandbox_running() {
    core_killed_waiting(On::Postgres).await;
}

#[tokio::test]
async fn an_archived_reservation_that_was_never_sent_is_released_without_asking_the_node() {
    let mut core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let (project, node_id) = (core.project_id, node.id());
    let (session, allocation) = world::as_killed(&mut core, async |tx| {
        stored(tx, project, node_id, Killed::Intended).await
    })
    .await;
    let core = world::next_core(&core).await;
    world::archive(&core, session, allocation).await;
    world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(node.host.lock().requests.len(), 0);
    assert_eq!(
        core.core()
            .store
            .single()
            .slot_counts(Some(node_id))
            .await
            .unwrap()
            .retained,
        0
    );
}

async fn rejected(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    node.plan(Operation::Create, &[Act::Reject, Act::Reject, Act::Reject]);
    let (session, _) = world::session(&core).await.unwrap();
    let turn = world::input(&core, session).await;
    world::eventually("the Session failed", async || {
        let row = core
            .core()
            .store
            .single()
            .session(session)
            .await
            .unwrap()
            .unwrap();
        row.state == SessionState::Failed
    })
    .await;
    assert_eq!(node.count(Operation::Create), 3);
    let turn = core.core().store.single().turn(turn).await.unwrap().unwrap();
    assert_eq!(turn.state, TurnState::Failed);
    let events = core
        .core()
        .store
        .single()
        .events_after(session, 0, 100)
        .await
        .unwrap();
    assert_eq!(
        events
            .iter()
            .filter(|e| e.kind == EventKind::SessionFailed)
            .count(),
        1
    );
    assert_eq!(
        core.core()
            .store
            .single()
            .slot_counts(Some(node.id()))
            .await
            .unwrap()
            .retained,
        0
    );
    let ids: std::collections::HashSet<_> = node.host.lock().requests.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), 3, "each attempt is an allocation of its own");
}

#[tokio::test]
async fn three_creates_that_settle_without_a_sandbox_fail_the_session_and_what_waits_in_it() {
    rejected(On::Sqlite).await;
}

#[tokio::test]
async fn pg_three_creates_that_settle_without_a_sandbox_fail_the_session_and_what_waits_in_it() {
    rejected(On::Postgres).await;
}

#[tokio::test]
async fn nodes_never_wait_for_one_another() {
    let core = world::core(On::Sqlite).await;
    let stuck = Node::start(&core, 1).await;
    stuck.plan(Operation::Create, &[Act::Swallow]);
    let (_, waits) = world::session(&core).await.unwrap();
    world::eventually("the first create is under way", async || {
        stuck.count(Operation::Create) == 1
    })
    .await;
    let _other = Node::start(&core, 1).await;
    let (_, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    assert_eq!(world::row(&core, waits).await.state, AllocationState::Creating);
}

/// The plan that gives a sandbox up for having no link may be older than the link that is stored before it.
async fn a_link_wins(on: On) {
    let core = world::core(on).await;
    let _node = Node::start(&core, 1).await;
    let (session, allocation, _turn) = world::working(&core).await;
    let linked = world::row(&core, allocation).await;
    let tx = world::begin(&core).await;
    tx.lock_session(session).await.unwrap();
    let given_up = allocations::begin_cleanup(&tx, allocation, Cause::NeverLinked).await;
    assert!(given_up.is_err(), "it linked");
    tx.commit().await.unwrap();
    let row = world::row(&core, allocation).await;
    assert_eq!((row.state, row.cause), (linked.state, None));
}

/// A create without an answer whose sandbox links.
pub async fn linked_without_an_answer(core: &TestCore, node: &Node) -> (SessionId, AllocationId) {
    node.plan(Operation::Create, &[Act::Swallow]);
    let (session, allocation) = world::session(core).await.unwrap();
    world::eventually("the create was done", async || node.count(Operation::Create) == 1).await;
    let tx = world::begin(core).await;
    tx.lock_session(session).await.unwrap();
    let mut row = tx.lock_allocation(allocation).await.unwrap().unwrap();
    assert_eq!(row.state, AllocationState::Creating);
    row.initialization = Initialization::Complete;
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    (session, allocation)
}

/// No time that passes gives it up.
async fn a_link_wins_before_the_answer(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 1).await;
    let (session, allocation) = linked_without_an_answer(&core, &node).await;
    let tx = world::begin(&core).await;
    tx.lock_session(session).await.unwrap();
    let given_up = allocations::begin_cleanup(&tx, allocation, Cause::CreateUnresolved).await;
    assert!(given_up.is_err(), "it linked");
    tx.commit().await.unwrap();
    let row = world::row(&core, allocation).await;
    assert_eq!((row.state, row.cause), (AllocationState::Creating, None));
}

// inv: INV-C37
#[tokio::test]
async fn a_sandbox_that_linked_before_its_create_was_answered_is_not_given_up_for_want_of_the_answer() {
    a_link_wins_before_the_answer(On::Sqlite).await;
}

// inv: INV-C37
#[tokio::test]
async fn pg_a_sandbox_that_linked_before_its_create_was_answered_is_not_given_up_for_want_of_the_answer() {
    a_link_wins_before_the_answer(On::Postgres).await;
}

// inv: INV-C37
#[tokio::test]
async fn a_sandbox_that_linked_is_not_given_up_by_an_older_plan_for_not_having_linked() {
    a_link_wins(On::Sqlite).await;
}

// inv: INV-C37
#[tokio::test]
async fn pg_a_sandbox_that_linked_is_not_given_up_by_an_older_plan_for_not_having_linked() {
    a_link_wins(On::Postgres).await;
}
