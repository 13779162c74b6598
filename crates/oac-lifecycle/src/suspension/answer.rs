//! What a node said about one exact compute, reduced to what the lifecycle depends on.

use oac_wire::shapes::ComputeState;

/// What is asked without changing anything but the node's own record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// `info`, at the allocation's node.
    Info,
    /// `compute` of this generation, at its node.
    Compute(i64),
    /// The open `suspend` again, with `reconcile_only`.
    Suspend,
    /// The open `resume` again, with `reconcile_only`.
    Resume,
}

/// One answer about a compute, or the lack of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Success of an operation without a result, or a wake command that exited 0.
    Done,
    /// Status `suspended` with a bound retained value, resources released and the suspend settled.
    Suspended,
    /// To a suspend: only with the suspend settled and nothing retained.
    Running,
    /// To a suspend: likewise.
    Paused,
    /// A restored compute that is there and did not pass its checks.
    Failed,
    Ended,
    /// There, and nothing more can be said yet.
    Present,
    NotFound,
    Invalid,
    /// Any other refusal; and a wake command that exited otherwise.
    Refused,
    /// Unconfirmed, not sent, or no usable answer.
    Unknown,
}

impl Answer {
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Suspended,
        Self::Running,
        Self::Paused,
        Self::Failed,
        Self::Ended,
        Self::Present,
        Self::NotFound,
        Self::Invalid,
        Self::Refused,
        Self::Unknown,
    ];

    /// Reads an answer to `compute`, `resume` or `resume_compute`. That it was suspended is believed of a suspend alone.
    pub fn of_compute(state: &ComputeState) -> Self {
        match state.status.as_str() {
            "running" => Self::Running,
            "paused" => Self::Paused,
            "failed" => Self::Failed,
            "ended" => Self::Ended,
            "suspended" => Self::Suspended,
            _ => Self::Present,
        }
    }

    /// Reads an answer to `suspend`. The active slot is freed, or the source goes on, only when it says so in every member
    /// (core.md section 12).
    pub fn of_suspend(state: &ComputeState) -> Self {
        match (Self::of_compute(state), state.retained.0.is_some()) {
            (Self::Suspended, true) if state.resources_released && state.suspend_settled => Self::Suspended,
            (went_on @ (Self::Running | Self::Paused), false) if state.suspend_settled => went_on,
            (ended @ (Self::Ended | Self::Failed), false) => ended,
            _ => Self::Unknown,
        }
    }

    /// It answers anything but unconfirmed, unavailable and uncertain.
    pub fn is_definite(self) -> bool {
        self != Self::Unknown
    }

    /// It shows that the compute came into being.
    pub fn shows(self) -> bool {
        matches!(
            self,
            Self::Running | Self::Paused | Self::Failed | Self::Ended | Self::Present
        )
    }

    /// The compute does not run and will not by itself.
    pub fn is_dead(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::Ended | Self::NotFound | Self::Suspended
        )
    }
}
