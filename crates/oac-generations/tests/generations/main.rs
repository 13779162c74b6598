//! Generations on a real disk: killed at every step, cut off from power at every step, leased by real processes.

mod disk;
mod kills;
mod leases;
mod loss;
mod power;
mod proof;
mod refusals;
mod scenario;
mod scene;
mod traces;
mod walk;

pub(crate) use disk::{base, records, snapshot};
