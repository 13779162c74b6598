//! What a Session shows of its sandbox: one function for its answers and its events (sessions.md section 2).

use oac_model::{AllocationState, ComputePhase};
use oac_store::{AllocationDiagnostic, AllocationRow, Initialization};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SandboxState {
    None,
    Starting,
    Running,
    Suspending,
    Suspended,
    Waking,
    Cleaning,
    Disconnected,
    Missing,
}

impl SandboxState {
    pub(crate) fn of(row: &AllocationRow) -> Self {
        state_of(
            row.state,
            row.compute_phase,
            row.initialization,
            row.diagnostic,
            row.cause.is_some(),
        )
    }
}

fn state_of(
    state: AllocationState,
    phase: ComputePhase,
    initialization: Initialization,
    diagnostic: Option<AllocationDiagnostic>,
    given_up: bool,
) -> SandboxState {
    match state {
        // Given up before anything was sent.
        AllocationState::Reserved if given_up => return SandboxState::Cleaning,
        AllocationState::CleanupPending => return SandboxState::Cleaning,
        AllocationState::Released => return SandboxState::None,
        _ => {}
    }
    match diagnostic {
        Some(AllocationDiagnostic::NodeUnavailable) => return SandboxState::Disconnected,
        Some(AllocationDiagnostic::ResourceMissing) => return SandboxState::Missing,
        _ => {}
    }
    match phase {
        ComputePhase::Quiescing | ComputePhase::Suspending => SandboxState::Suspending,
        ComputePhase::Suspended => SandboxState::Suspended,
        ComputePhase::Restoring | ComputePhase::Waking => SandboxState::Waking,
        ComputePhase::Disabled | ComputePhase::Running => {
            // Until its runtime linked once it cannot take a command.
            if state == AllocationState::Running && initialization == Initialization::Complete {
                SandboxState::Running
            } else {
                SandboxState::Starting
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sandbox_state_follows_from_state_phase_initialization_and_diagnostic() {
        use AllocationState as A;
        use ComputePhase as P;
        let (pending, complete) = (Initialization::Pending, Initialization::Complete);
        for (state, phase, initialization, diagnostic, expected) in [
            (A::Reserved, P::Disabled, pending, None, SandboxState::Starting),
            (A::Creating, P::Disabled, pending, None, SandboxState::Starting),
            (A::Running, P::Disabled, pending, None, SandboxState::Starting),
            (A::Running, P::Disabled, complete, None, SandboxState::Running),
            (A::Running, P::Running, complete, None, SandboxState::Running),
            (A::Running, P::Quiescing, complete, None, SandboxState::Suspending),
            (
                A::Running,
                P::Suspending,
                complete,
                None,
                SandboxState::Suspending,
            ),
            (A::Running, P::Suspended, complete, None, SandboxState::Suspended),
            (A::Running, P::Restoring, complete, None, SandboxState::Waking),
            (A::Running, P::Waking, complete, None, SandboxState::Waking),
            (
                A::CleanupPending,
                P::Running,
                complete,
                None,
                SandboxState::Cleaning,
            ),
            (
                A::Running,
                P::Disabled,
                complete,
                Some(AllocationDiagnostic::NodeUnavailable),
                SandboxState::Disconnected,
            ),
            (
                A::Running,
                P::Disabled,
                complete,
                Some(AllocationDiagnostic::ResourceMissing),
                SandboxState::Missing,
            ),
        ] {
            assert_eq!(
                state_of(state, phase, initialization, diagnostic, false),
                expected,
                "{state:?} {phase:?}"
            );
        }
    }
}
