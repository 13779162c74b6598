//! The conformance suite of providers.md section 5: one table of cases that every backend runs, against a scripted native
//! side and against the real one.
//!
//! A case knows the contract alone. What it needs done to the native side (something removed, a call lost, the host
//! rebooted) it asks of the backend's [`World`] as an [`Arrange`]. Which cases a backend has to meet follows from its
//! declarations alone ([`Needs`]). A crate makes its tests from the table with [`conformance!`](crate::conformance!), and
//! registers with its [`report`](crate::conformance::report).
//!
//! The table proves itself on the scripted fake (`crate::fake`): every case passes there, and for every case there is a
//! fake with one defect that it catches.

mod cases;
mod checkpoints;
mod commands;
mod faults;
mod lifecycle;
mod outcomes;
mod restores;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use oac_model::{
    AllocationId, DiagnosticCode, Digest, EnvironmentId, Generation, InstallationId, NetworkAccess,
    ProjectId, Reference, Secret, SessionId,
};
use oac_wire::shapes::{Bootstrap, Info, Link, LinkResource, LinkResourceKind};

use cases::RUNS;

use crate::{
    Declarations, Failure, Phase, Provider, Receipt,
    conformance::{Needs, cases as table},
};

/// A step of the native side of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads what there is of a reference.
    Inventory,
    /// The first native effect of create.
    FirstEffect,
    /// The native create of the compute.
    Create,
    /// What delivers the bootstrap.
    Bootstrap,
    Start,
    /// One removal of kill.
    Remove,
    /// The attach to a command.
    Attach,
    /// One reading of telemetry.
    Observe,
    Pause,
    Thaw,
    Capture,
    Publish,
    /// Reads a published checkpoint's files and hashes them.
    Verify,
    /// Ends the captured source.
    Stop,
    Restore,
    DeleteCheckpoint,
}

impl Step {
    /// Whether it changes anything.
    pub fn is_effect(self) -> bool {
        !matches!(self, Self::Inventory | Self::Observe | Self::Verify)
    }
}

/// What a lost call left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The call never reached the backend.
    Before,
    /// The backend acted, and its answer was lost.
    After,
}

/// What becomes of one native call, whichever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The backend answers that it failed, and did nothing.
    Refused,
    Lost(Lost),
    /// The backend acts, and what it answers cannot be read.
    Malformed,
    /// It waits until `Release`, past the caller's deadline; then it has its effect.
    Late,
    /// From this call until `Calm` the backend cannot be reached.
    Unreachable,
}

impl CallFault {
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::Lost(Lost::Before),
        Self::Lost(Lost::After),
        Self::Malformed,
        Self::Late,
        Self::Unreachable,
    ];
}

/// What is wrong with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    Manifest,
    Size,
    Digest,
    Class,
    Specification,
}

impl Damage {
    pub const ALL: [Self; 5] = [
        Self::Manifest,
        Self::Size,
        Self::Digest,
        Self::Class,
        Self::Specification,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    Recorded,
    Missing,
    Another,
}

/// What a case asks to be done beside the provider.
#[derive(Debug, Clone, Copy)]
pub enum Arrange {
    /// Something that is not the reference's holds its derived name.
    ForeignHolder(Reference),
    /// One of the reference's resources, beside the compute, becomes another owner's.
    ForeignPart(Reference),
    /// Something with all labels of the installation but one of another reference's.
    ForeignTwin(Reference),
    /// The reference's compute says that it was restored from something else.
    ForeignParent(Reference),
    /// The next call of this step makes something that differs from what was asked.
    Spoil(Step),
    /// The backend refuses the next call of this step.
    Reject(Step),
    /// The next call of this step is lost, and the operation with it.
    Lose(Step, Lost),
    /// The next call of this step waits until `Release`; then it has its effect.
    Hold(Step),
    /// Resolves when the held call has come.
    AwaitHeld,
    Release,
    /// The next call of this step is lost to the node, and reaches the backend with `Deliver`.
    Delay(Step),
    Deliver,
    /// The call of this number from now, the first being 0, meets a fault.
    FaultAt(usize, CallFault),
    /// The same, of the calls that change something.
    FaultAtEffect(usize, CallFault),
    /// No fault is in force any more.
    Calm,
    /// Listings fail, or work again.
    FailInventory(bool),
    /// Removals answer success and remove nothing, or work again.
    KeepOnRemoval(bool),
    RemoveCompute(Reference),
    EndCompute(Reference),
    /// Starts an ended compute again, as the backend's own restart would.
    RestartCompute(Reference),
    /// The kernel's boot_id changes and the backend's run of answers ends. Processes are not touched.
    Reboot,
    /// 60 s of uninterrupted answers pass.
    Steady,
    /// The host is another one than the recorded, or the recorded one again.
    OtherHost(bool),
    /// The node restarts: a new provider on the same receipts.
    RestartNode,
    /// The check of this number and all later ones of [`World::checks`] fail.
    FailChecks(usize),
    /// Resolves when no native work of the reference is under way, whichever node began it.
    AwaitWork(Reference),
    Damage(Reference, Damage),
    /// The files of the reference's checkpoints cannot be read, or can be again.
    Unreadable(Reference, bool),
    RemoveCheckpoints(Reference),
    StoreMarker(Marker),
    /// A receipt of the reference was never here, as on the node that a checkpoint is moved to.
    ForgetReceipt(Reference),
    /// The operator discards a create whose sandbox was never seen.
    Discard(Reference),
}

/// A backend under test.
#[async_trait]
pub trait World: Send + Sync {
    fn provider(&self) -> Arc<dyn Provider>;

    /// What the backend is registered with.
    fn declared(&self) -> Declarations;

    /// The create argument of a fresh reference.
    fn bootstrap(&self) -> Bootstrap {
        let reference = Reference {
            tenant_id: ProjectId::random(),
            environment_id: EnvironmentId::random(),
            allocation_id: AllocationId::random(),
        };
        let secret = Digest::of(reference.allocation_id.to_string());
        Bootstrap {
            reference,
            session_id: SessionId::random(),
            network_access: NetworkAccess::Public,
            allowed_domains: Vec::new(),
            link: Link {
                version: 1,
                link_url: "ws://core.example/api/v1/sandbox-link".into(),
                credential: Secret::new(secret.to_string()),
                resource: LinkResource {
                    tenant_id: reference.tenant_id,
                    environment_id: reference.environment_id,
                    kind: LinkResourceKind::Allocation,
                    id: reference.allocation_id,
                    generation: Generation::FIRST,
                },
            },
            workspace: None.into(),
        }
    }

    /// Panics where this world cannot do it.
    async fn arrange(&self, what: Arrange);

    /// Native calls so far, except those that only read the backend's identity.
    fn calls(&self) -> usize;

    /// Native calls so far that change something.
    fn effects(&self) -> usize;

    /// Calls of this step that reached the backend.
    fn made(&self, step: Step) -> usize;

    /// The durable receipt.
    fn receipt(&self, reference: &Reference) -> Option<Receipt>;

    /// The native resources of `reference`, by derived name, foreign ones included.
    async fn present(&self, reference: &Reference) -> Vec<String>;

    /// The names of the computes of `reference` that have not ended.
    async fn live(&self, reference: &Reference) -> Vec<String>;

    /// The network policy that the live compute of `reference` is under.
    async fn policy(&self, reference: &Reference) -> String;

    /// Everything that the native side shows of `reference`: definitions, labels, environment, logs.
    async fn shown(&self, reference: &Reference) -> String;

    /// The codes of the probe's checks, in their stated order.
    fn checks(&self) -> Vec<DiagnosticCode>;

    /// The program inside the sandbox: `echo-exit <code>` copies stdin to stdout, writes the bytes ff 00 fe and its
    /// working directory to stderr, and exits so; `flood <bytes>` writes that many to both streams and exits 7; `wait`
    /// never ends.
    fn tool(&self) -> String;

    /// The provider_key under which the provider answers `observe`.
    fn observed_as(&self) -> InstallationId;

    /// Whether faults are tried at every native call; at those that change something otherwise, where calls cost time.
    fn is_quick(&self) -> bool {
        true
    }

    /// The published checkpoints of `reference`. Backends that make none have none.
    fn checkpoints(&self, _reference: &Reference) -> Vec<String> {
        Vec::new()
    }

    /// The checkpoint store's marker.
    fn marker(&self) -> Option<String> {
        None
    }

    /// What the records of `reference` said, write for write: the phase, and the id of the sandbox once one was seen.
    /// For backends whose native work a service does.
    fn written(&self, _reference: &Reference) -> Vec<(Phase, Option<String>)> {
        Vec::new()
    }
}

/// Runs one case by its name; a broken expectation panics.
pub async fn check(name: &str, world: &dyn World) {
    let case = table().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
    assert_eq!(
        case.needs.missing(&world.declared()),
        None,
        "{name} is not about this backend"
    );
    run_of(case.name)(world).await;
}

fn run_of(name: &str) -> cases::Run {
    let found = RUNS.iter().find(|(named, _)| *named == name);
    found.unwrap_or_else(|| panic!("the case {name} does nothing")).1
}

/// That these cases are exactly those which the declarations imply.
pub fn covers(names: &[&str], declared: &Declarations) {
    let mut made = names.to_vec();
    let implied = table().filter(|case| case.needs.missing(declared).is_none());
    let mut implied: Vec<_> = implied.map(|case| case.name).collect();
    made.sort_unstable();
    implied.sort_unstable();
    assert_eq!(made, implied);
}

/// Longer than any case takes; a deadline that must not be met.
pub(crate) fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// How long a caller waits for work that the case holds up.
pub(crate) const SOON: Duration = Duration::from_millis(300);

/// A deadline that work held up by the case certainly misses.
pub(crate) fn soon() -> Instant {
    Instant::now() + SOON
}

pub(crate) fn is_running(info: &Info, reference: &Reference) {
    assert_eq!(info.reference, *reference);
    assert_eq!(info.state, Info::RUNNING);
    assert!(
        info.bootstrap_complete && info.create_settled && !info.compute_lost,
        "{info:?}"
    );
    assert!(!info.provider_id.is_empty() && info.provider_id.len() <= 256);
}

pub(crate) fn is_settled_absent(info: &Info, reference: &Reference, lost: bool) {
    assert!(info.is_settled_receipt_of(reference), "{info:?}");
    assert_eq!(info.state, Info::ABSENT);
    assert_eq!(info.compute_lost, lost, "{info:?}");
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Failure>) -> &'static str {
    match result {
        Ok(value) => panic!("expected a failure, got {value:?}"),
        Err(failure) => failure.code(),
    }
}

/// The phase of the durable receipt.
pub(crate) fn phase(world: &dyn World, reference: &Reference) -> Option<Phase> {
    world.receipt(reference).map(|receipt| receipt.phase())
}
