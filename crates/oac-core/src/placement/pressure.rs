//! Demands that fit nowhere, for the worker that may make room for them (core.md section 8).
//!
//! A refused request leaves no row, so what it wanted is remembered here, and only until the worker looks. Demands that want
//! the same are one: who is refused again and again wants one sandbox. Losing what is here loses nothing but room that the
//! next refusal asks for again.

use std::collections::VecDeque;

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

/// Each demand once, the one that waits for longest first.
#[derive(Default)]
pub(crate) struct Pressure(Mutex<VecDeque<Wanted>>);

impl Pressure {
    /// Whether that is news.
    pub(crate) fn want(&self, wanted: Wanted) -> bool {
        let mut all = self.0.lock();
        let news = all.len() < REMEMBERED && !all.contains(&wanted);
        if news {
            all.push_back(wanted);
        }
        news
    }

    pub(crate) fn is_felt(&self) -> bool {
        !self.0.lock().is_empty()
    }

    pub(crate) fn take(&self) -> VecDeque<Wanted> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Those that were taken and not looked at are before all that came meanwhile.
    pub(crate) fn put_back(&self, mut left: VecDeque<Wanted>) {
        let mut all = self.0.lock();
        all.retain(|wanted| !left.contains(wanted));
        left.append(&mut all);
        left.truncate(REMEMBERED);
        *all = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(n: usize) -> Wanted {
        Wanted::Place(Request {
            required_labels: [("zone".to_owned(), n.to_string())].into(),
        })
    }

    #[test]
    fn what_is_wanted_twice_is_one_demand_and_so_many_are_remembered() {
        let pressure = Pressure::default();
        assert!(pressure.want(zone(0)) && !pressure.want(zone(0)));
        for n in 1..2 * REMEMBERED {
            assert_eq!(pressure.want(zone(n)), n < REMEMBERED);
        }
        assert_eq!(pressure.take().len(), REMEMBERED);
        assert!(!pressure.is_felt() && pressure.want(zone(0)));
    }

    #[test]
    fn demands_that_were_not_looked_at_are_the_next_ones_and_no_more_than_are_remembered() {
        let pressure = Pressure::default();
        for n in (0..4).rev() {
            pressure.want(zone(n));
        }
        let mut taken = pressure.take();
        assert_eq!(taken.pop_front(), Some(zone(3)), "the first that came");
        for n in 1..=REMEMBERED {
            pressure.want(zone(n));
        }
        pressure.put_back(taken);
        let taken = pressure.take();
        assert_eq!(taken.len(), REMEMBERED);
        let first: Vec<_> = taken.into_iter().take(5).collect();
        assert_eq!(first, [2, 1, 0, 3, 4].map(zone));
    }
}
