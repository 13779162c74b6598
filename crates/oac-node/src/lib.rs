//! The node program: makes a Linux host's sandbox backend serve one Core installation (node.md).
//!
//! In go a configuration, a state directory and a provider; what comes out is one connection to Core on which the
//! provider's operations are served, and a health report every ten seconds. The protocol's decisions are taken in
//! `oac-peer`, the backend's in its provider; this crate moves bytes, keeps the node's records and measures the host.
//! It opens no port but the one for metrics that it was told to, and never decides where a sandbox goes or whether one
//! ends.
//!
//! A *fixed* node serves the generation it was enrolled with. One with `preparation.json` *manages* generations: it serves
//! all that its host holds, and a child of it, `generation`, prepares the target or collects what nobody needs.

mod agent;
pub mod backend;
mod clock;
pub mod command;
pub mod config;
mod core;
mod generation;
mod health;
pub mod identity;
pub mod limits;
mod managing;
pub mod measure;
pub mod metrics;
mod operation;
mod rebind;
mod register;
mod run;
mod task;

pub use agent::{ConfirmError, Served};
pub use clock::Clock;
pub use core::{CallError, ClientError, Confirmed, CoreClient, ReachError, Surroundings};
pub use managing::{Managing, ManagingError};
pub use oac_dial::Origin;
pub use register::{RegisterError, Registration, register, register_by};
pub use run::{Opened, RunError, run, run_by};
