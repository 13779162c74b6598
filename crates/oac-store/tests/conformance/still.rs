//! Which sandboxes of a node may be suspended early: the store finds those that `oac_lifecycle` would suspend if time did
//! not matter, and no other.

use std::collections::BTreeSet;

use oac_lifecycle::suspension::{Stillness, may_suspend};
use oac_model::{AllocationId, AllocationState, ComputePhase, Generation, NodeId, ProjectId, TurnState};
use oac_store::{
    AllocationRow, CleanupCause, Dispatch, FileOperationKind, Initialization, OperationKind, Tx,
};

use crate::{
    in_play::{checkpoint, settled},
    world::{World, new_allocation, new_input, new_placement, new_session},
};

/// What is stored of one Session and its sandbox.
#[derive(Debug, Clone, Copy)]
struct Facts {
    state: AllocationState,
    phase: ComputePhase,
    cause: Option<CleanupCause>,
    initialization: Initialization,
    has_ended_turn: bool,
    unfinished: Option<TurnState>,
    open: Option<FileOperationKind>,
    checkpoint: Checkpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checkpoint {
    None,
    Consumed,
    Deleted,
}

/// Nothing but the time keeps this one from being suspended.
const STILL: Facts = Facts {
    state: AllocationState::Running,
    phase: ComputePhase::Running,
    cause: None,
    initialization: Initialization::Complete,
    has_ended_turn: true,
    unfinished: None,
    open: None,
    checkpoint: Checkpoint::None,
};

impl Facts {
    fn may_be_suspended(&self) -> bool {
        let runs = self.state == AllocationState::Running && self.phase == ComputePhase::Running;
        let still = Stillness {
            ended_turns: u64::from(self.has_ended_turn),
            unfinished_turns: u64::from(self.unfinished.is_some()),
            pending_inputs: 0,
            open_file_operations: u64::from(self.open == Some(FileOperationKind::Write)),
            open_port_streams: u64::from(self.open == Some(FileOperationKind::Port)),
            initialization_pending: self.initialization == Initialization::Pending,
            consumed_checkpoint_kept: self.checkpoint == Checkpoint::Consumed,
            idle_for: 0,
            idle_wanted: 0,
        };
        runs && self.cause.is_none() && may_suspend(&still).is_ok()
    }
}

/// All of what may be true of a Session whose sandbox runs.
fn of_sessions() -> Vec<Facts> {
    let turns = [
        None,
        Some(TurnState::Queued),
        Some(TurnState::Waiting),
        Some(TurnState::Running),
    ];
    let open = [
        None,
        Some(FileOperationKind::Write),
        Some(FileOperationKind::Port),
    ];
    let checkpoints = [Checkpoint::None, Checkpoint::Consumed, Checkpoint::Deleted];
    let mut all = Vec::new();
    for initialization in Initialization::ALL {
        for has_ended_turn in [true, false] {
            for unfinished in turns {
                for open in open {
                    all.extend(checkpoints.map(|checkpoint| Facts {
                        initialization: *initialization,
                        has_ended_turn,
                        unfinished,
                        open,
                        checkpoint,
                        ..STILL
                    }));
                }
            }
        }
    }
    all
}

/// Every pair of state and phase.
fn of_allocations() -> Vec<Facts> {
    let mut all = Vec::new();
    for state in AllocationState::ALL {
        for phase in ComputePhase::ALL {
            all.extend([None, Some(CleanupCause::Archive)].map(|cause| Facts {
                state: *state,
                phase: *phase,
                cause,
                ..STILL
            }));
        }
    }
    all
}

async fn turn(tx: &Tx, allocation: &AllocationRow, state: TurnState) {
    let (_, mut turn) = tx.insert_input(&new_input(allocation.session_id)).await.unwrap();
    turn.state = state;
    if state == TurnState::Running {
        (turn.dispatch, turn.allocation_id) = (Dispatch::Sent, Some(allocation.id));
    }
    assert!(tx.save_turn(&turn).await.unwrap());
}

async fn stored(tx: &Tx, project: ProjectId, node: NodeId, of: Generation, facts: &Facts) -> AllocationId {
    let session = tx.insert_session(&new_session(project)).await.unwrap();
    let placement = new_placement(session.environment_id, Some(node), of);
    let placement = tx.insert_placement(&placement).await.unwrap();
    let allocation = new_allocation(placement.id, &session, Some(node), of);
    let mut row = tx.insert_allocation(&allocation).await.unwrap();
    if facts.has_ended_turn {
        turn(tx, &row, TurnState::Completed).await;
    }
    if let Some(state) = facts.unfinished {
        turn(tx, &row, state).await;
    }
    if let Some(kind) = facts.open {
        tx.begin_file_operation(session.id, kind).await.unwrap();
    }
    if facts.checkpoint != Checkpoint::None {
        let suspend = settled(tx, row.id, OperationKind::Suspend, None).await.id;
        tx.insert_checkpoint(&checkpoint(row.id, suspend, 0))
            .await
            .unwrap();
        assert!(tx.consume_checkpoint(suspend).await.unwrap());
        if facts.checkpoint == Checkpoint::Deleted {
            assert!(tx.delete_checkpoint(suspend).await.unwrap());
        }
    }
    (row.state, row.compute_phase) = (facts.state, facts.phase);
    (row.cause, row.initialization) = (facts.cause, facts.initialization);
    if facts.state == AllocationState::Released {
        row.released_at = Some(tx.now());
    }
    tx.save_allocation(&mut row).await.unwrap();
    row.id
}

// inv: INV-S15
pub(crate) async fn what_is_found_still_is_what_may_be_suspended_whatever_the_time(world: World) {
    let generation = world.generation(2).await;
    let (node, other) = (
        world.node(generation, 1000, 1000).await,
        world.node(generation, 10, 10).await,
    );
    let project = world.project().await;
    let facts: Vec<Facts> = of_sessions().into_iter().chain(of_allocations()).collect();
    let tx = world.begin().await;
    let mut all = Vec::with_capacity(facts.len());
    for facts in &facts {
        all.push((stored(&tx, project, node, generation, facts).await, facts));
    }
    stored(&tx, project, other, generation, &STILL).await;
    tx.commit().await.unwrap();

    let read = world.store.single();
    let found = read.still_allocations(node, 1000).await.unwrap();
    let found: BTreeSet<AllocationId> = found.iter().map(|row| row.id).collect();
    let wrong: Vec<_> = all
        .iter()
        .filter(|(id, facts)| found.contains(id) != facts.may_be_suspended())
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!found.is_empty() && found.len() < all.len());
    assert_eq!(read.still_allocations(node, 1).await.unwrap().len(), 1);
}
