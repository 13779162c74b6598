//! `oac`, the command line for operators and developers: a typed client of Core's HTTP API and the commands on it.
//!
//! In go a configuration file and arguments, out come text for people or JSON for programs and an exit status. It keeps
//! no state of its own and decides nothing that Core decides. Keys come from the configuration file and the terminal, and
//! go to Core and that file alone.

pub mod client;
pub mod commands;
pub mod config;
pub mod copy;
pub mod failure;
pub mod follow;
pub mod forward;
pub mod interrupt;
pub mod once;
pub mod output;
pub mod sse;
pub mod terminal;
pub mod watch;

pub use commands::Cli;
pub use failure::Failure;
