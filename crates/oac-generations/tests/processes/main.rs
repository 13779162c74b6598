//! Generations and real processes: killed at every step, leases that outlive who took them.
//!
//! A process that is being started holds copies of all descriptors of its parent for a moment, locks included, so these
//! tests take turns, and stand apart from those that start none.

#[path = "../generations/disk.rs"]
mod disk;
mod kills;
mod leases;
#[path = "../generations/proof.rs"]
mod proof;
#[path = "../generations/scenario.rs"]
mod scenario;
#[path = "../generations/scene.rs"]
mod scene;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use disk::{base, records, snapshot};

const RIG: &str = env!("CARGO_BIN_EXE_oac-generations-rig");

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
