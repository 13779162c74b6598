//! providers.md sections 1 to 3.

use std::time::Instant;

use oac_model::{DiagnosticCode, NetworkAccess, Reference};
use oac_wire::shapes::{
    Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Operation, Resume, Retained,
    Sample, Suspend,
};

/// Why an operation did not succeed. With several classes in one error the first variant wins.
/// Only a settled receipt beside `Invalid` settles anything; nothing else here proves presence or absence.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Declared absent; no native I/O happened.
    #[error("{operation:?} is not supported: {reason}")]
    Unsupported {
        operation: Operation,
        reason: &'static str,
    },
    #[error("telemetry could not be read")]
    ObservationUnavailable(#[source] Cause),
    #[error("nothing is running to observe")]
    RuntimeNotRunning,
    #[error("arguments or resource contradict the contract")]
    Invalid(#[source] Cause),
    #[error("a matching name or id belongs to something else")]
    Ownership(#[source] Cause),
    #[error("the target name, volume or receipt is present")]
    Exists(#[source] Cause),
    #[error("this lookup found nothing")]
    NotFound,
    #[error("the command may have run, in part or whole")]
    CommandUnconfirmed(#[source] Cause),
    #[error("the outcome is unknown")]
    Unconfirmed(#[source] Cause),
}

/// Local text about a failure; it never leaves the node (INV-P20).
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cause(pub String);

impl Cause {
    pub fn new(text: impl std::fmt::Display) -> Self {
        Self(text.to_string())
    }
}

impl Failure {
    /// The wire's `error_code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "unsupported",
            Self::ObservationUnavailable(_) => "observation_unavailable",
            Self::RuntimeNotRunning => "runtime_not_running",
            Self::Invalid(_) => "invalid",
            Self::Ownership(_) => "ownership",
            Self::Exists(_) => "exists",
            Self::NotFound => "not_found",
            Self::CommandUnconfirmed(_) => "command_unconfirmed",
            Self::Unconfirmed(_) => "unconfirmed",
        }
    }
}

/// A failed create, and what it proves if anything.
#[derive(Debug, thiserror::Error)]
#[error("create failed")]
pub struct CreateFailure {
    #[source]
    pub failure: Failure,
    /// A settled receipt, where one exists.
    pub receipt: Option<Info>,
}

impl From<Failure> for CreateFailure {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            receipt: None,
        }
    }
}

/// The first failed readiness check. `text` stays on the node.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {text}")]
pub struct ProbeError {
    pub code: DiagnosticCode,
    pub text: String,
}

/// What a backend says about one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    Supported,
    /// An authored reason matching `[a-z0-9_]{1,64}`.
    Unsupported(&'static str),
}

/// Who carries out native work. It decides what may still happen when the caller is gone, and with it which claims of
/// providers.md sections 4 to 8 a backend has to meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeWork {
    /// An engine of the host: a call may outlive the node that made it, and an ended compute may be started again.
    Engine,
    /// A helper process of the node that holds the allocation's lock for as long as it works.
    Helper,
    /// A service elsewhere: without host and boot, and a create once sent may take effect at any time.
    Service,
}

/// Every operation exactly once, the network access values the backend enforces, and who does its native work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declarations {
    operations: [Support; Operation::ALL.len()],
    network_access: Vec<NetworkAccess>,
    native_work: NativeWork,
}

/// Declarations that miss, repeat or misname something (INV-V2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    #[error("operation {0:?} is not declared")]
    Missing(Operation),
    #[error("operation {0:?} is declared twice")]
    Repeated(Operation),
    #[error("the reason for operation {0:?} is not 1 to 64 of [a-z0-9_]")]
    Reason(Operation),
}

impl Declarations {
    /// Checks that every operation of the inventory is declared exactly once.
    pub fn new(
        operations: &[(Operation, Support)],
        network_access: &[NetworkAccess],
        native_work: NativeWork,
    ) -> Result<Self, DeclarationError> {
        let mut seen = [None; Operation::ALL.len()];
        for (operation, support) in operations {
            if let Support::Unsupported(reason) = support {
                let token = reason
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                if !token || !(1..=64).contains(&reason.len()) {
                    return Err(DeclarationError::Reason(*operation));
                }
            }
            if seen[*operation as usize].replace(*support).is_some() {
                return Err(DeclarationError::Repeated(*operation));
            }
        }
        let mut complete = [Support::Supported; Operation::ALL.len()];
        for operation in Operation::ALL {
            complete[*operation as usize] =
                seen[*operation as usize].ok_or(DeclarationError::Missing(*operation))?;
        }
        Ok(Self {
            operations: complete,
            network_access: network_access.to_vec(),
            native_work,
        })
    }

    pub fn support(&self, operation: Operation) -> Support {
        self.operations[operation as usize]
    }

    /// Refuses an unsupported operation before any native work (INV-V1).
    pub fn require(&self, operation: Operation) -> Result<(), Failure> {
        match self.support(operation) {
            Support::Supported => Ok(()),
            Support::Unsupported(reason) => Err(Failure::Unsupported { operation, reason }),
        }
    }

    pub fn enforces(&self, access: NetworkAccess) -> bool {
        self.network_access.contains(&access)
    }

    pub fn native_work(&self) -> NativeWork {
        self.native_work
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// References of which something was found under a tombstone and is now gone.
    pub removed: usize,
    /// References of which something is still there.
    pub left: usize,
}

/// One sandbox backend. `by` ends the caller's wait, not the native work: an implementation returns
/// `Unconfirmed` (`CommandUnconfirmed` for a command) when it passes, while the native calls go on, and the next
/// operation of the same reference waits for them. Operations of one reference never overlap (INV-V11).
#[async_trait::async_trait]
pub trait Provider: Send + Sync + 'static {
    fn declarations(&self) -> &Declarations;
    async fn probe(&self, by: Instant) -> Result<(), ProbeError>;

    /// Every readiness check that fails, for `doctor`. A backend whose checks do not build on each other runs them all.
    async fn diagnose(&self, by: Instant) -> Vec<ProbeError> {
        self.probe(by).await.err().into_iter().collect()
    }
    async fn create(&self, b: &Bootstrap, by: Instant) -> Result<Info, CreateFailure>;
    async fn info(&self, r: &Reference, by: Instant) -> Result<Info, Failure>;
    async fn renew(&self, r: &Reference, by: Instant) -> Result<Info, Failure>;
    async fn kill(&self, r: &Reference, by: Instant) -> Result<(), Failure>;
    async fn command(&self, r: &Reference, c: &Command, by: Instant) -> Result<CommandResult, Failure>;
    async fn observe(&self, r: &Reference, o: &Observation, by: Instant) -> Result<Sample, Failure>;

    // A backend that checkpoints overrides these; the others refuse by declaration.
    async fn initial(&self, _r: &Reference, _by: Instant) -> Result<Compute, Failure> {
        Err(self.undeclared(Operation::Initial))
    }
    async fn new_compute(
        &self,
        _r: &Reference,
        _generation: i64,
        _from: Option<&Retained>,
        _by: Instant,
    ) -> Result<Compute, Failure> {
        Err(self.undeclared(Operation::NewCompute))
    }
    async fn compute(&self, _r: &Reference, _c: &Compute, _by: Instant) -> Result<ComputeState, Failure> {
        Err(self.undeclared(Operation::Compute))
    }
    async fn kill_compute(&self, _r: &Reference, _c: &Compute, _by: Instant) -> Result<(), Failure> {
        Err(self.undeclared(Operation::KillCompute))
    }
    async fn resume_compute(
        &self,
        _r: &Reference,
        _c: &Compute,
        _by: Instant,
    ) -> Result<ComputeState, Failure> {
        Err(self.undeclared(Operation::ResumeCompute))
    }
    async fn command_compute(
        &self,
        _r: &Reference,
        _c: &Compute,
        _cmd: &Command,
        _by: Instant,
    ) -> Result<CommandResult, Failure> {
        Err(self.undeclared(Operation::CommandCompute))
    }
    async fn suspend(&self, _s: &Suspend, _by: Instant) -> Result<ComputeState, Failure> {
        Err(self.undeclared(Operation::Suspend))
    }
    async fn resume(&self, _s: &Resume, _by: Instant) -> Result<ComputeState, Failure> {
        Err(self.undeclared(Operation::Resume))
    }
    async fn delete_retained(&self, _r: &Reference, _k: &Retained, _by: Instant) -> Result<(), Failure> {
        Err(self.undeclared(Operation::DeleteRetained))
    }

    /// Resolves when no native work of `r` is under way or waiting in this provider. A caller whose deadline passed
    /// keeps the allocation's place and the generation's reference until then (INV-V11).
    async fn idle(&self, _r: &Reference) {}

    /// Removes what late native calls left under tombstones; a backend without such leftovers does nothing.
    async fn sweep(&self) -> Result<SweepReport, Failure> {
        Ok(SweepReport::default())
    }

    /// The declared refusal of `operation`; a backend that declares support but does not implement it is a defect
    /// that stays `Unconfirmed`.
    fn undeclared(&self, operation: Operation) -> Failure {
        match self.declarations().require(operation) {
            Err(refusal) => refusal,
            Ok(()) => Failure::Unconfirmed(Cause::new("declared as supported but not implemented")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declare(operations: &[(Operation, Support)]) -> Result<Declarations, DeclarationError> {
        Declarations::new(operations, &[NetworkAccess::Public], NativeWork::Engine)
    }

    // req: P-071, P-073
    // inv: INV-V2
    #[test]
    fn declarations_hold_exactly_the_inventory_of_operations_with_well_formed_reasons() {
        let all: Vec<_> = Operation::ALL.iter().map(|o| (*o, Support::Supported)).collect();
        assert!(declare(&all).is_ok());
        for (at, operation) in Operation::ALL.iter().enumerate() {
            let mut without = all.clone();
            without.remove(at);
            assert_eq!(
                declare(&without).unwrap_err(),
                DeclarationError::Missing(*operation)
            );
            let mut twice = all.clone();
            twice.push((*operation, Support::Unsupported("no_reason")));
            assert_eq!(
                declare(&twice).unwrap_err(),
                DeclarationError::Repeated(*operation)
            );
            for reason in ["", "Reason", "a reason", "a-reason", "/path", &"r".repeat(65)] {
                let reason: &'static str = reason.to_owned().leak();
                let mut bad = all.clone();
                bad[at].1 = Support::Unsupported(reason);
                assert_eq!(
                    declare(&bad).unwrap_err(),
                    DeclarationError::Reason(*operation),
                    "{reason:?}"
                );
            }
        }
    }
}
