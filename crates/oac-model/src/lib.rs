//! The vocabulary of oac as types: ids, digests, the specification and its digest, diagnostics, states,
//! the capacity formula, the service account and secrets that print as `***`.
//!
//! In go plain values, out come values that can no longer be wrong in the ways their type names exclude
//! (a zero id, a digest of the wrong length, a generation of 0). This crate never performs I/O, never reads a
//! clock and is never async. `Id::random` draws from the operating system and is for the shells only; pure code
//! receives ids as arguments.

pub mod account;
mod capacity;
mod diagnostic;
mod digest;
mod ids;
mod network;
mod numbers;
mod reference;
mod secret;
mod specification;
mod state;
mod time;

pub use capacity::{HostMeasurements, recommend};
pub use diagnostic::DiagnosticCode;
pub use digest::{Digest, ImageDigest, ParseDigestError, SourceCommit};
pub use ids::*;
pub use network::{Network, NetworkAccess, NetworkError};
pub use numbers::{Generation, OutOfRange, OwnerEpoch};
pub use reference::Reference;
pub use secret::{NodeSecret, Secret};
pub use specification::{
    Artifacts, ProviderKind, Resources, RuntimeRelease, Specification, SpecificationError, Workspace,
    WorkspaceKind, backend_fingerprint,
};
pub use state::{AllocationState, ComputePhase, SessionState, TurnState};
pub use time::Time;
