//! What a run finds, and what follows from it: every decision of the installer, without a host. Facts go in, hints and
//! the next change come out; nothing here reads a file, asks a program or speaks to anybody.

pub mod account;
pub mod engine;
pub mod host;
pub mod inspection;
pub mod place;
pub mod removal;
pub mod service;

pub use oac_model::account::{NAME as ACCOUNT_NAME, UID};
