//! Demands that fit nowhere, for the worker that may make room for them (core.md section 8).
//!
//! A refused request leaves no row, so what it wanted is remembered here, and only until the worker looks. Demands that want
//! the same are one: who is refused again and again wants one sandbox. Losing what is here loses nothing but room that the
//! next refusal asks for again.

use std::collections::BTreeSet;

use oac_lifecycle::placement::Request;
use oac_model::AllocationId;
use parking_lot::Mutex;

/// Demands that are remembered; further ones are dropped.
const REMEMBERED: usize = 64;

/// Who waits for room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// A new sandbox.
    Place(Request),
    /// A suspended one that is to be restored.
    Restore(AllocationId),
}

#[derive(Default)]
pub(crate) struct Pressure(Mutex<BTreeSet<Wanted>>);

impl Pressure {
    /// Whether that is news.
    pub(crate) fn want(&self, wanted: Wanted) -> bool {
        let mut all = self.0.lock();
        all.len() < REMEMBERED && all.insert(wanted)
    }

    pub(crate) fn is_felt(&self) -> bool {
        !self.0.lock().is_empty()
    }

    pub(crate) fn take(&self) -> BTreeSet<Wanted> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_twice_is_one_demand_and_so_many_are_remembered() {
        let pressure = Pressure::default();
        let zone = |n: usize| {
            Wanted::Place(Request {
                required_labels: [("zone".to_owned(), n.to_string())].into(),
            })
        };
        assert!(pressure.want(zone(0)) && !pressure.want(zone(0)));
        for n in 1..2 * REMEMBERED {
            assert_eq!(pressure.want(zone(n)), n < REMEMBERED);
        }
        assert_eq!(pressure.take().len(), REMEMBERED);
        assert!(!pressure.is_felt() && pressure.want(zone(0)));
    }
}
