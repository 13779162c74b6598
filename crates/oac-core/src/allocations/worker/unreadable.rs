//! Allocations of which something stored cannot be read by this version.

use std::collections::BTreeMap;

use oac_lifecycle::Millis;
use oac_model::AllocationId;

use super::limits;

/// Each with the time from which on it is read again, and said to be unreadable again, whoever tells of it meanwhile.
#[derive(Default)]
pub(super) struct Unreadable(BTreeMap<AllocationId, Millis>);

impl Unreadable {
    /// One could not be read. Whether that is to be said.
    pub(super) fn note(&mut self, id: AllocationId, now: Millis) -> bool {
        if self.rests(id, now) {
            return false;
        }
        self.0.insert(id, now + limits::UNREADABLE_MILLIS);
        true
    }

    pub(super) fn rests(&self, id: AllocationId, now: Millis) -> bool {
        self.0.get(&id).is_some_and(|again| now < *again)
    }

    /// Read, or gone.
    pub(super) fn forget(&mut self, id: AllocationId) {
        self.0.remove(&id);
    }

    pub(super) fn due(&self, now: Millis) -> impl Iterator<Item = AllocationId> {
        let due = self.0.iter().filter(move |(_, again)| **again <= now);
        due.map(|(id, _)| *id)
    }

    /// The earliest time after `now`.
    pub(super) fn next(&self, now: Millis) -> Option<Millis> {
        self.0.values().filter(|again| **again > now).min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_said_and_read_again_now_and_then_until_it_can_be() {
        const AGAIN: Millis = limits::UNREADABLE_MILLIS;
        let (mut unreadable, id) = (Unreadable::default(), AllocationId::random());
        assert!(!unreadable.rests(id, 0));
        assert!(unreadable.note(id, 0) && !unreadable.note(id, AGAIN - 1));
        assert!(unreadable.rests(id, AGAIN - 1));
        assert_eq!(unreadable.due(AGAIN - 1).count(), 0);
        assert_eq!(unreadable.next(0), Some(AGAIN));
        assert_eq!(unreadable.due(AGAIN).collect::<Vec<_>>(), [id]);
        assert!(unreadable.note(id, AGAIN));
        assert_eq!(unreadable.next(AGAIN), Some(2 * AGAIN));
        unreadable.forget(id);
        assert_eq!((unreadable.due(9 * AGAIN).count(), unreadable.next(0)), (0, None));
        assert!(unreadable.note(id, AGAIN), "it is news");
    }
}
