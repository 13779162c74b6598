//! The contract between the node system and a sandbox backend: the trait, the outcome taxonomy, what a backend must
//! declare, the receipts a node keeps, and the suite every backend runs (providers.md sections 1 to 5).
//!
//! A reference and an operation go in; a typed result, or a failure that says what it proves, comes out. This crate
//! knows no backend and makes no native call.

pub mod conformance;
mod contract;
mod declared;
#[cfg(feature = "suite")]
pub mod fake;
mod host;
mod lane;
mod receipt;
mod receipt_store;
#[cfg(feature = "suite")]
pub mod suite;

pub use conformance::{Registered, RegistrationError};
pub use contract::*;
pub use declared::{DOCKER_REASON, E2B_REASON, declarations_of};
pub use host::{HostIdentity, MachineIdentity, host_id_of};
pub use lane::{Lanes, NoAnswer};
pub use receipt::{Phase, PhaseEvent, Receipt, ReceiptOutcome, RefusedTransition};
pub use receipt_store::{Invalid, RebindError, ReceiptError, ReceiptStore};
