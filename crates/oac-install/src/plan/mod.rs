//! What a run finds, and what follows from it: every decision of the installer, without a host. Facts go in, hints and
//! the next change come out; nothing here reads a file, asks a program or speaks to anybody.

pub mod account;
pub mod engine;
pub mod host;
pub mod inspection;
pub mod place;
pub mod removal;
pub mod service;

/// The account that nodes run as.
pub const ACCOUNT_NAME: &str = "oac-node";
/// Also that of Core's service.
pub const UID: u32 = 65532;
