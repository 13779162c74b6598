//! When an operator may give a sandbox up (core.md sections 4 and 13).
//!
//! Core itself gives up nothing it cannot prove gone. What stays is a person's decision: to accept the loss of a sandbox
//! that ended or is missing, on a node that is there to be asked and to clean up.

use oac_model::AllocationState;

use crate::allocation::Diagnostic;

/// What the decision looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    pub state: AllocationState,
    /// It is being given up already.
    pub given_up: bool,
    /// What operators are shown of it.
    pub diagnostic: Option<Diagnostic>,
    pub node_online: bool,
    /// Its runtime is linked: it runs, whatever was found before.
    pub linked: bool,
}

/// Whether an operator may accept the loss: its node is online and said that the sandbox ended or is missing, or its wake or
/// restore keeps failing (core.md section 12), wherever it is. While nothing is known (the node is away, or cannot say), and
/// while the sandbox is linked, there is no loss to accept.
pub fn is_discardable(sandbox: Sandbox) -> bool {
    let lost = match sandbox.diagnostic {
        Some(Diagnostic::ResourceMissing) => sandbox.node_online && !sandbox.linked,
        Some(Diagnostic::ComputeUnconfirmed) => true,
        Some(
            Diagnostic::NodeUnavailable | Diagnostic::OwnershipMismatch | Diagnostic::ProviderUnavailable,
        )
        | None => false,
    };
    // One that is still being created is shown as missing only if it ran: its runtime linked before its create was answered.
    let ran = matches!(
        sandbox.state,
        AllocationState::Creating | AllocationState::Running
    );
    ran && !sandbox.given_up && lost
}

/// What a discardable sandbox may be shown with: who looks for those that are, reads no others.
pub fn diagnostics() -> impl Iterator<Item = Diagnostic> {
    Diagnostic::ALL.iter().copied().filter(|diagnostic| {
        is_discardable(Sandbox {
            state: AllocationState::Running,
            given_up: false,
            diagnostic: Some(*diagnostic),
            node_online: true,
            linked: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_or_missing_sandbox_of_an_online_node_is_discardable_and_one_that_keeps_failing_to_wake() {
        let states = [
            AllocationState::Reserved,
            AllocationState::Creating,
            AllocationState::Running,
            AllocationState::CleanupPending,
            AllocationState::Released,
        ];
        for diagnostic in Diagnostic::ALL.iter().copied().map(Some).chain([None]) {
            for state in states {
                for bits in 0..8 {
                    let [given_up, node_online, linked] = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
                    let sandbox = Sandbox {
                        state,
                        given_up,
                        diagnostic,
                        node_online,
                        linked,
                    };
                    let lost = match diagnostic {
                        Some(Diagnostic::ResourceMissing) => node_online && !linked,
                        other => other == Some(Diagnostic::ComputeUnconfirmed),
                    };
                    let ran = [AllocationState::Creating, AllocationState::Running].contains(&state);
                    let expected = ran && !given_up && lost;
                    assert_eq!(is_discardable(sandbox), expected, "{sandbox:?}");
                    let is_read = diagnostic.is_some_and(|diagnostic| diagnostics().any(|d| d == diagnostic));
                    assert!(is_read || !expected, "{sandbox:?}");
                }
            }
        }
    }
}
