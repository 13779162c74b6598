//! The node's side of generations: their files, what those mean, and how a generation is prepared, repaired, leased and
//! collected on a host that may be killed or lose power at any moment (node.md sections 2 to 9).
//!
//! In go a root directory, an identity and two ways to the outside ([`outside`]); out come files that are wholly old
//! or wholly new. Decisions are tables without input or output ([`state`], [`prepare::next`], [`collect::next`],
//! [`readiness`], [`attempts`], [`uses`]); beside them stand executors that perform one step at a time and ask the
//! table again. A run that was killed is repeated, not resumed, so there is one path. This crate opens no connection,
//! starts no process, and deletes nothing without Core's key and the node's own ([`keys`]).

pub mod attempts;
pub mod collect;
pub mod inherit;
pub mod keys;
pub mod layout;
pub mod lease;
pub mod limits;
pub mod native;
mod numbered;
pub mod outside;
mod payload;
mod planned;
pub mod prepare;
pub mod readiness;
pub mod records;
pub mod recovery;
pub mod state;
pub mod store;
pub mod uses;

pub use collect::{CollectError, Collection};
pub use keys::{
    Connection, Deployment, Generations, Grant, InheritedLock, InstallLock, Needed, Order, Refusal, Unneeded,
    Use, Void,
};
pub use lease::{ExclusiveLease, LeaseError, SharedLease};
pub use payload::PayloadError;
pub use planned::PlanError;
pub use prepare::{Preparation, PrepareError};
pub use records::{Configuration, Identity};
pub use state::State;
pub use store::{Found, Store, StoreError};
