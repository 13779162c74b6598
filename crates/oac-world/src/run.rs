//! One seed's world from its beginning to rest, and the search for the shortest schedule that still breaks a rule.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    defect::Defect,
    fault::{Planned, schedule},
    invariant::Invariant,
    world::{Reached, Violation, World},
};

/// How a world ended.
pub struct Life {
    pub violation: Option<Violation>,
    /// Events that happened.
    pub events: u64,
    pub reached: Reached,
    /// One line for each thing worth telling; empty unless asked for.
    pub trace: Vec<String>,
}

/// A broken rule with the least of the schedule that still breaks it.
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
    pub faults: Vec<Planned>,
}

/// The world of a seed.
pub fn live(seed: u64) -> Life {
    live_with(seed, schedule(seed), None, false)
}

/// A world with another schedule, a planted mistake, or a trace.
pub fn live_with(seed: u64, faults: Vec<Planned>, defect: Option<Defect>, tracing: bool) -> Life {
    let mut world = World::new(seed, faults, defect, tracing);
    // The rest of a world that panicked is only read.
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    if let Err(panic) = lived {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        world.violated(Invariant::Panic, || text.unwrap_or_default());
    }
    if world.violation.is_none() {
        world.note_reach();
    }
    Life {
        violation: world.violation,
        events: world.events,
        reached: world.reached,
        trace: world.trace.unwrap_or_default(),
    }
}

/// Delta debugging: halves, quarters, single entries are left out while the same rule stays broken.
pub fn shrink(seed: u64, violation: Violation, defect: Option<Defect>) -> Failure {
    let mut faults = schedule(seed);
    let mut violation = violation;
    let mut chunk = faults.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        let mut smaller = false;
        while start < faults.len() {
            let mut fewer = faults.clone();
            fewer.drain(start..(start + chunk).min(fewer.len()));
            match live_with(seed, fewer.clone(), defect, false).violation {
                Some(found) if found.invariant == violation.invariant => {
                    (faults, violation, smaller) = (fewer, found, true);
                }
                _ => start += chunk,
            }
        }
        if chunk == 1 && !smaller {
            return Failure {
                seed,
                violation,
                faults,
            };
        }
        chunk = (chunk / 2).max(1);
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { invariant, at, what } = &self.violation;
        writeln!(
            f,
            "seed {} breaks {}: {}",
            self.seed,
            invariant.id(),
            invariant.text()
        )?;
        writeln!(f, "at {at} ms: {what}")?;
        writeln!(f, "{} faults are enough:", self.faults.len())?;
        for Planned { at, fault } in &self.faults {
            writeln!(f, "{at:>9} {fault:?}")?;
        }
        write!(f, "replay: cargo xtask world --seed {}", self.seed)
    }
}
