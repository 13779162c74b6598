//! What is stored, as the planner's state and as the shapes that are sent.

use std::collections::BTreeSet;

use oac_lifecycle::{
    allocation::{RecordError, State},
    suspension::{Checkpoint, Compute, Held, Open, Progress, Request},
};
use oac_model::{NodeId, OperationId};
use oac_store::{
    AllocationRow, CheckpointRow, ComputeRow, DrainThen, OperationKind, OperationRow, OperationState, Read,
    StoreError,
};
use oac_wire::shapes::{self, Opaque, Retained};

use crate::allocations::record::{cause_from, state_of};

/// One allocation with what of it can still matter: not with all that it went through, which grows as long as it lives.
#[derive(Debug, Clone)]
pub(in crate::allocations) struct Rows {
    pub(in crate::allocations) row: AllocationRow,
    /// Oldest first: those not ended or with a kill owed, the newest, and targets of the bound checkpoint.
    pub(super) computes: Vec<ComputeRow>,
    /// The bound one, and what computes not ended or with a kill owed were restored from.
    pub(super) checkpoints: Vec<CheckpointRow>,
    /// Oldest first: what is open or unconfirmed, the latest of each kind, and the kills of computes not ended or with one owed.
    pub(super) operations: Vec<OperationRow>,
    leave: bool,
}

impl Rows {
    pub(in crate::allocations) async fn of(read: &Read, row: AllocationRow) -> Result<Self, StoreError> {
        let computes = read.computes_in_play(row.id).await?;
        let kills: Vec<_> = computes
            .iter()
            .filter(|compute| compute.ended_at.is_none() || compute.kill_owed)
            .map(|compute| about(compute.generation))
            .collect();
        let node = match row.node_id {
            Some(id) => read.node(id).await?,
            None => None,
        };
        // A drain that terminates leaves what its deadline found on the way to wherever it can be restored.
        let leave = node.is_some_and(|node| {
            node.drain_requested_at.is_some()
                && node.drain_deadline_passed_at.is_some()
                && node.drain_then == Some(DrainThen::Terminate)
        });
        Ok(Self {
            computes,
            checkpoints: read.checkpoints_in_play(row.id).await?,
            operations: read.operations_in_play(row.id, &kills).await?,
            leave,
            row,
        })
    }

    /// The state that the rows describe.
    pub(in crate::allocations) fn held(&self) -> Result<Held, RecordError> {
        let state = state_of(&self.row, &self.operations)?;
        let node = self.node();
        let own = |op: &&OperationRow| !matches!(op.kind, OperationKind::Create | OperationKind::Kill);
        let operations = || self.operations.iter().filter(own);
        let open = operations()
            .rev()
            .find(|op| matches!(op.state, OperationState::Intent | OperationState::Sent));
        Ok(Held {
            state,
            deferred: match state {
                State::Running { .. } => self.row.cause.map(cause_from),
                _ => None,
            },
            node,
            leave: self.leave,
            computes: self.computes.iter().map(|row| self.compute(row)).collect(),
            checkpoint: self.bound().map(|row| Checkpoint {
                operation: row.operation_id,
                source: row.source_generation,
                consumed: row.consumed_at.is_some(),
            }),
            suspend: self.latest_suspend(),
            open: open.and_then(|op| {
                Some(Open {
                    request: request_of(op)?,
                    node: op.node_id.unwrap_or(node),
                    progress: match op.state {
                        OperationState::Intent => Progress::Intent,
                        _ => Progress::Sent,
                    },
                })
            }),
            unobserved: operations()
                .filter(|op| op.state == OperationState::Unconfirmed)
                .map(|op| op.node_id.unwrap_or(node))
                .collect::<BTreeSet<_>>(),
            restore_failures: self.row.restore_failures,
        })
    }

    /// The allocation's node; those without one never get here.
    pub(super) fn node(&self) -> NodeId {
        self.row
            .node_id
            .unwrap_or_else(|| unreachable!("a provider on nodes"))
    }

    fn compute(&self, row: &ComputeRow) -> Compute {
        let killed = self.operations.iter().any(|op| {
            request_of(op) == Some(Request::KillCompute(row.generation))
                && matches!(op.state, OperationState::Settled | OperationState::Unconfirmed)
        });
        Compute {
            generation: row.generation,
            node: row.node_id.unwrap_or_else(|| self.node()),
            restored_from: row.restored_from,
            seen: row.native_id.is_some(),
            kill_sent: killed,
            failed: row.failed_at.is_some(),
            ended: row.ended_at.is_some(),
            kill_owed: row.kill_owed,
        }
    }

    /// The checkpoint that is not deleted.
    pub(super) fn bound(&self) -> Option<&CheckpointRow> {
        self.checkpoints.iter().find(|row| row.deleted_at.is_none())
    }

    /// The latest suspend: what the runtime was quiesced with.
    pub(super) fn latest_suspend(&self) -> Option<OperationId> {
        self.latest(OperationKind::Suspend)
    }

    pub(super) fn latest(&self, kind: OperationKind) -> Option<OperationId> {
        self.operations
            .iter()
            .rev()
            .find(|op| op.kind == kind)
            .map(|op| op.id)
    }

    /// A compute as it is sent.
    pub(super) fn shape(&self, generation: i64) -> Option<Box<shapes::Compute>> {
        let row = self.computes.iter().find(|row| row.generation == generation)?;
        let restored_from = match row.restored_from {
            Some(id) => Some(retained(self.checkpoints.iter().find(|c| c.operation_id == id)?)?),
            None => None,
        };
        Some(Box::new(shapes::Compute {
            generation: row.generation,
            name: row.name.clone(),
            id: row.native_id.clone().into(),
            restored_from: restored_from.into(),
        }))
    }

    pub(in crate::allocations) fn current(&self) -> Option<Box<shapes::Compute>> {
        self.shape(self.computes.last()?.generation)
    }
}

/// Its exact bytes come back (INV-P30).
pub(super) fn retained(row: &CheckpointRow) -> Option<Retained> {
    let text = String::from_utf8(row.data.clone()).ok()?;
    Some(Retained {
        operation_id: row.operation_id,
        source_generation: row.source_generation,
        source_name: row.source_name.clone(),
        source_id: row.source_id.clone(),
        store_id: row.store_id,
        execution_class: row.execution_class,
        digest: row.digest,
        size_bytes: i64::try_from(row.size_bytes).ok()?,
        data: Opaque(serde_json::value::RawValue::from_string(text).ok()?),
    })
}

/// What is stored of an argument that names a compute.
pub(in crate::allocations) fn about(generation: i64) -> serde_json::Value {
    serde_json::json!({ "generation": generation })
}

/// The argument of a kill_compute names its compute.
fn request_of(op: &OperationRow) -> Option<Request> {
    Some(match op.kind {
        OperationKind::Create | OperationKind::Kill => return None,
        OperationKind::KillCompute => {
            Request::KillCompute(op.argument.as_ref()?.get("generation")?.as_i64()?)
        }
        OperationKind::ResumeCompute => Request::ResumeCompute,
        OperationKind::Suspend => Request::Suspend(op.id),
        OperationKind::Resume => Request::Resume,
        OperationKind::DeleteRetained => Request::DeleteRetained,
        OperationKind::CommandCompute => Request::Wake,
    })
}

pub(super) fn kind_of(request: Request) -> OperationKind {
    match request {
        Request::Suspend(_) => OperationKind::Suspend,
        Request::Resume => OperationKind::Resume,
        Request::KillCompute(_) => OperationKind::KillCompute,
        Request::ResumeCompute => OperationKind::ResumeCompute,
        Request::Wake => OperationKind::CommandCompute,
        Request::DeleteRetained => OperationKind::DeleteRetained,
    }
}
