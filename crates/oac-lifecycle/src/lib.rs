//! The decisions of the control plane as functions: where a sandbox is placed, and what is done next about an allocation.
//!
//! In go snapshots of what Core stores and sees, and `now` as a number of milliseconds on any clock that only moves
//! forward; out come answers, next states and actions. The shell persists, then acts, then comes back. This crate
//! never performs I/O, never reads a clock, never draws random numbers and is never async, so that a whole life of an
//! allocation, with Core killed between any two steps, runs as a seeded simulation (`oac-world`).

pub mod allocation;
pub mod capacity;
pub mod discard;
pub mod drain;
pub mod limits;
pub mod placement;
pub mod reset;
pub mod suspension;

/// Milliseconds on a clock that only moves forward; its zero has no meaning.
pub type Millis = i64;
