//! Suspension and restore (core.md sections 12 and 13), for allocations whose provider keeps checkpoints.
//!
//! `oac_lifecycle::suspension` decides each step; here [`rows`] reads what is stored as its state, [`write`] stores an
//! event's difference in one transaction, and [`steps`], [`suspend`] and [`restore`] perform the steps around the calls they
//! make. An allocation is in these hands from the transaction on that finds its sandbox running: its phase says so, being
//! anything but `disabled`. Nothing here runs for a provider that declares suspension absent.

mod look;
mod relief;
mod restore;
mod rows;
mod steps;
mod suspend;
mod write;

use std::{collections::BTreeSet, sync::Arc};

use oac_lifecycle::suspension::{Answer, Held, Observation};
use oac_model::{ComputePhase, NodeId, ProviderKind};
use oac_provider::Support;
use oac_store::AllocationRow;
use oac_wire::shapes::Operation;

use super::places::Places;

pub(super) use look::look_around;
pub(super) use relief::{Looked, Relief, makes_room, relief};
pub(super) use rows::{Rows, about};
pub(super) use steps::perform;
pub(super) use write::{forget, give_up, store_for};

/// Whether the provider's sandboxes can be suspended.
pub(super) fn keeps_checkpoints(provider: ProviderKind) -> bool {
    oac_provider::declarations_of(provider)
        .is_some_and(|declared| declared.support(Operation::Suspend) == Support::Supported)
}

/// Whether the allocation is in the hands of this module.
pub(super) fn owns(row: &AllocationRow) -> bool {
    row.compute_phase != ComputePhase::Disabled
}

/// Where a step may ask for something besides the node it was begun for.
pub(super) struct Room {
    pub(super) places: Arc<Places>,
    /// Nodes that are no target now.
    pub(super) passed_over: BTreeSet<NodeId>,
    /// It is suspended without waiting for the idle time: a demand fits nowhere else.
    pub(super) early: bool,
}

/// What a finished step tells the watch.
#[derive(Debug)]
pub(super) enum Told {
    /// What was asked at a node, about the state as it was then, and its answer.
    Observed {
        held: Box<Held>,
        node: NodeId,
        of: Observation,
        answer: Answer,
    },
    /// A mutation at a node was answered so that nothing is unknown of it.
    Settled {
        node: NodeId,
        answer: Answer,
    },
    /// The wake command exited 0.
    Woke {
        node: NodeId,
    },
    AnswerLost {
        node: NodeId,
    },
    NotSent {
        node: NodeId,
    },
    NoTarget,
    /// The chosen node did not take the checkpoint.
    Declined {
        node: NodeId,
    },
    /// The chosen node has no place for another operation.
    Crowded,
}
