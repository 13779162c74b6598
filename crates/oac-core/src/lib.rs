//! Core, the control plane: the HTTP API, the hub that nodes connect to, the workers that move allocations and Turns,
//! and the acceptor of sandbox links, over one `oac-store` database.
//!
//! In go requests, frames and time; out come answers, frames and rows. Decisions are made in the pure crates
//! (`oac-lifecycle`, `oac-peer`) and stored through `oac-store` before anything acts on them. This crate never talks to a
//! sandbox provider itself and never writes SQL.

pub mod allocations;
mod clock;
pub mod command;
pub mod config;
pub mod console;
pub mod drains;
pub mod entropy;
pub mod gathering;
pub mod http;
pub mod hub;
mod limits;
pub mod link;
pub mod metrics;
mod openapi;
pub mod owner;
pub mod placement;
pub mod presence;
mod releases;
pub mod resets;
pub mod routes;
pub mod run;
pub mod sessions;
pub mod setup;
pub mod state;
pub mod task;
pub mod turns;

pub use openapi::document as openapi_document;
pub use state::{Core, Pokes};
