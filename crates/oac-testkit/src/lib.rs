//! What tests, the demo and the benchmarks need around the product: a private PostgreSQL server, an installation of
//! real programs, hosts with systemd, in-process Core, a Docker Engine as the installer would leave it, and waiting on conditions.
//!
//! In go small options, out come running things that stop when dropped. Nothing here is part of a shipped program, and
//! nothing here replaces a real part that runs on a test machine, but one: [`installation::Installation::add_node`] makes
//! a node without the installer, which wants root and a host with systemd ([`host`]).

#[cfg(feature = "product")]
pub mod between;
#[cfg(feature = "core")]
pub mod collector;
#[cfg(feature = "core")]
pub mod core;
#[cfg(feature = "product")]
pub mod core_process;
#[cfg(feature = "core")]
pub mod core_program;
#[cfg(feature = "product")]
pub mod engine;
#[cfg(feature = "product")]
mod generations;
#[cfg(feature = "product")]
pub mod host;
#[cfg(feature = "product")]
pub mod installation;
#[cfg(feature = "core")]
pub mod log;
pub mod port;
pub mod postgres;
#[cfg(feature = "product")]
pub mod private_engine;
#[cfg(feature = "product")]
pub mod program;
#[cfg(feature = "product")]
pub mod runtime_image;
#[cfg(feature = "core")]
pub mod scrape;
pub mod tls;
#[cfg(feature = "product")]
pub mod wait;
