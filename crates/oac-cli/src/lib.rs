//! `oac`, the command line for operators and developers: a typed client of Core's HTTP API and the commands on it.
//!
//! In go a configuration file and arguments, out come text for people or JSON for programs and an exit status. It keeps
//! no state of its own and decides nothing that Core decides.

pub mod client;
pub mod commands;
pub mod config;
pub mod failure;
pub mod output;
pub mod sse;

pub use commands::Cli;
pub use failure::Failure;
