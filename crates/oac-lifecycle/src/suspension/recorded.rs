//! What is recorded of an allocation that can be suspended: its computes, its checkpoint, and the mutation under way.

use oac_model::{NodeId, OperationId};

/// One recorded incarnation of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compute {
    /// 0 first, one more for each restore.
    pub generation: i64,
    /// Where it was made, or was to be made.
    pub node: NodeId,
    /// The suspend whose checkpoint it was restored from.
    pub restored_from: Option<OperationId>,
    /// An answer showed it: it came into being.
    pub seen: bool,
    /// A `kill_compute` of it was sent.
    pub kill_sent: bool,
    /// It counted as a failed restore.
    pub failed: bool,
    /// Proven gone, proven never to have been, or discarded by an operator (INV-C39).
    pub ended: bool,
    /// An operator discarded it while its node was away: nothing waits for it, and its `kill_compute` is still sent should
    /// the node return.
    pub kill_owed: bool,
}

impl Compute {
    pub(super) fn new(generation: i64, node: NodeId, restored_from: Option<OperationId>) -> Self {
        Self {
            generation,
            node,
            restored_from,
            seen: false,
            kill_sent: false,
            failed: false,
            ended: false,
            kill_owed: false,
        }
    }
}

/// The retained checkpoint that is bound and not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The suspend that made it.
    pub operation: OperationId,
    /// Generation of the compute it was made of.
    pub source: i64,
    /// A target restored from it linked; it is never restored again.
    pub consumed: bool,
}

/// A mutation besides `create` and `kill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Of the current compute; its operation names the checkpoint.
    Suspend(OperationId),
    /// Of the current compute, from the bound checkpoint.
    Resume,
    KillCompute(i64),
    /// Thaws the current compute.
    ResumeCompute,
    /// The wake command in the current compute.
    Wake,
    DeleteRetained,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Intent,
    Sent,
}

/// The one mutation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub request: Request,
    pub node: NodeId,
    pub progress: Progress,
}
