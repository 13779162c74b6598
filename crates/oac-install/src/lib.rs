//! The installer: makes a Linux host a node of an installation, and gives it back (installer.md).
//!
//! In go a command line, the host and, once, an enrollment token on standard input; out come an account, a group
//! membership, a unit, records, a node root and a registered node, or one line that says what to mend. Decisions are
//! functions of facts ([`plan`]); the rest looks, asks [`plan`] and does the next thing, so that a run that was ended
//! anywhere is continued by the next one. Root prepares account, group and unit alone; everything that speaks to Core,
//! Docker or a server, and everything below the account's home, happens in children that have given up being root.
//! This crate installs no software, starts no engine and changes no permission that is not its own.

pub mod arguments;
mod child;
mod core;
mod delete;
mod descend;
mod display;
mod doctor;
pub mod hint;
pub mod host;
mod install;
mod lock;
mod look;
pub mod plan;
pub mod points;
pub mod records;
mod report;
mod root_files;
pub mod run;
mod tools;
mod uninstall;
