//! The conformance suite of providers.md section 5: one list of cases that every backend runs, against a scripted
//! native backend and against the real one.
//!
//! A case knows the contract alone. What it needs done to the native side (something removed, a call lost, the host
//! rebooted) it asks of the backend's [`World`] as an [`Arrange`]. A world that cannot arrange something says so, and
//! the case reports [`Outcome::NotArranged`]; the backend's tests list which cases may do that.

mod cases;
mod commands;
mod lifecycle;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use oac_model::Reference;
use oac_wire::shapes::{Bootstrap, Info};

use crate::{Failure, Provider};

pub use cases::{CASES, Case};

/// A step of the native side of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first native effect of create.
    FirstEffect,
    /// The native create of the compute.
    Create,
    /// What delivers the bootstrap.
    Bootstrap,
    Start,
    /// The first removal of kill.
    Remove,
    /// The attach to a command.
    Attach,
}

/// What a lost call left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The call never reached the backend.
    Before,
    /// The backend acted, and its answer was lost.
    After,
}

/// What a case asks to be done beside the provider.
#[derive(Debug, Clone, Copy)]
pub enum Arrange {
    /// Something that is not the reference's holds its derived name.
    ForeignHolder(Reference),
    /// One of the reference's resources, beside the compute, becomes another owner's.
    ForeignPart(Reference),
    /// The next native create makes something that differs from what was asked.
    WrongNextCreate,
    /// The backend refuses the next native create.
    RejectNextCreate,
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
    /// Something with all labels of the installation but one of another reference's.
    ForeignTwin(Reference),
}

/// A backend under test.
#[async_trait]
pub trait World: Send + Sync {
    fn provider(&self) -> Arc<dyn Provider>;

    /// The create argument of a fresh reference.
    fn bootstrap(&self) -> Bootstrap;

    /// `false` where this world cannot do it.
    async fn arrange(&self, what: Arrange) -> bool;

    /// Native calls so far, except those that only read the backend's identity.
    fn calls(&self) -> usize;

    /// The native resources of `reference`, by derived name, foreign ones included.
    async fn present(&self, reference: &Reference) -> Vec<String>;

    /// Everything that the native side shows of `reference`: definitions, labels, environment, logs.
    async fn shown(&self, reference: &Reference) -> String;

    /// The program inside the sandbox: `echo-exit <code>` copies stdin to stdout, writes the bytes ff 00 fe and its
    /// working directory to stderr, and exits so; `flood <bytes>` writes that many to both streams and exits 7; `wait`
    /// never ends.
    fn tool(&self) -> String;

    /// The provider_key under which the provider answers `observe`.
    fn observed_as(&self) -> Option<oac_model::InstallationId>;
}

/// What running a case came to; a broken expectation panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Proven,
    /// The backend declares the case's operations unsupported, and refused each without a native call.
    Unsupported,
    /// The world could not arrange what the case needs.
    NotArranged(&'static str),
}

/// Runs the case `id` of [`CASES`].
pub async fn run(id: &str, world: &dyn World) -> Outcome {
    let case = CASES
        .iter()
        .find(|c| c.id == id)
        .unwrap_or_else(|| panic!("there is no case {id}"));
    let unsupported = case
        .needs
        .iter()
        .find(|o| world.provider().declarations().require(**o).is_err());
    if unsupported.is_some() {
        lifecycle::refuses_unsupported(world).await;
        return Outcome::Unsupported;
    }
    (case.run)(world).await
}

/// Longer than any case takes; a deadline that must not be met.
pub(crate) fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A deadline that work held up by the case certainly misses.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_millis(300)
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

/// Arranges, or ends the case.
#[macro_export]
#[doc(hidden)]
macro_rules! arrange {
    ($world:expr, $what:expr) => {
        if !$world.arrange($what).await {
            return $crate::suite::Outcome::NotArranged(stringify!($what));
        }
    };
}
