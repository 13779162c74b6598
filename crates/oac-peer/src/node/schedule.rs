//! Which requests wait, which run, and which lanes and slots they hold (node.md section 10, Operations).
//!
//! Waiting entries belong to the connection and go with it. What has started goes on: it keeps its allocation's lane
//! until its native work has ended, even after its answer, so that operations of one allocation never overlap
//! (INV-N24) and the count of unfinished work is honest (INV-N26).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oac_model::{AllocationId, Generation};

use crate::{
    Moment,
    limits::{UNFINISHED_OPERATIONS, WAITING_REQUESTS},
};

/// Names one admitted request for the life of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// 32 entries wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueFull;

/// What an entry holds from its admission until it is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) lane: AllocationId,
    /// Kept from collection meanwhile.
    pub(super) generation: Generation,
}

#[derive(Debug)]
struct Waiting<M, J> {
    ticket: Ticket,
    place: Place,
    deadline: Moment,
    meta: M,
    job: J,
}

#[derive(Debug)]
struct Running<M> {
    place: Place,
    deadline: Moment,
    /// `None` once answered, or once the connection that asked is gone.
    meta: Option<M>,
    /// Its answer was given, or its time passed: it no longer holds a slot.
    answered: bool,
}

/// `M` is what an answer needs (request id, operation), `J` what running it needs.
#[derive(Debug)]
pub(super) struct Schedule<M, J> {
    slots: usize,
    next: u64,
    waiting: VecDeque<Waiting<M, J>>,
    running: BTreeMap<Ticket, Running<M>>,
}

/// An entry that holds its lane and slot from now on.
#[derive(Debug)]
pub(super) struct Started<J> {
    pub(super) ticket: Ticket,
    pub(super) deadline: Moment,
    pub(super) job: J,
}

impl<M: Copy, J> Schedule<M, J> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: slots.clamp(1, UNFINISHED_OPERATIONS),
            next: 0,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Queues an entry. Every start that is possible has been made before, so an entry that could start now is never
    /// refused for the others that wait.
    pub(super) fn admit(&mut self, place: Place, deadline: Moment, meta: M, job: J) -> Result<(), QueueFull> {
        let lane = place.lane;
        let starts_now = self.has_slot()
            && !self.running.values().any(|r| r.place.lane == lane)
            && !self.waiting.iter().any(|w| w.place.lane == lane);
        if self.waiting.len() >= WAITING_REQUESTS && !starts_now {
            return Err(QueueFull);
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back(Waiting {
            ticket,
            place,
            deadline,
            meta,
            job,
        });
        Ok(())
    }

    /// The oldest entry whose lane is free, if a slot is. Call it until it returns `None`.
    pub(super) fn start_next(&mut self) -> Option<(M, Started<J>)> {
        if !self.has_slot() {
            return None;
        }
        let mut held: BTreeSet<AllocationId> = self.running.values().map(|r| r.place.lane).collect();
        // Whatever waits behind an entry of its own lane keeps its place.
        let index = self.waiting.iter().position(|w| held.insert(w.place.lane))?;
        let entry = self.waiting.remove(index)?;
        self.running.insert(
            entry.ticket,
            Running {
                place: entry.place,
                deadline: entry.deadline,
                meta: Some(entry.meta),
                answered: false,
            },
        );
        let started = Started {
            ticket: entry.ticket,
            deadline: entry.deadline,
            job: entry.job,
        };
        Some((entry.meta, started))
    }

    /// Removes the waiting entries whose budget ended.
    pub(super) fn expire_waiting(&mut self, now: Moment) -> Vec<M> {
        let (expired, kept) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|w| w.deadline <= now);
        self.waiting = kept.into();
        expired.into_iter().map(|w| w.meta).collect()
    }

    /// Started entries whose budget ended unanswered; they free their slot and keep their lane.
    pub(super) fn expire_running(&mut self, now: Moment) -> Vec<M> {
        self.running
            .values_mut()
            .filter(|r| !r.answered && r.deadline <= now)
            .filter_map(|r| {
                r.answered = true;
                r.meta.take()
            })
            .collect()
    }

    /// The call of `ticket` returned; what its answer needs, unless it was answered before or nobody waits for it.
    pub(super) fn answer(&mut self, ticket: Ticket) -> Option<M> {
        let running = self.running.get_mut(&ticket)?;
        running.answered = true;
        running.meta.take()
    }

    /// The native work of `ticket` ended: its lane is free.
    pub(super) fn end(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// The connection is gone: nothing that waits will run, and no answer of what runs will be sent.
    pub(super) fn disconnect(&mut self) {
        self.waiting.clear();
        for running in self.running.values_mut() {
            running.meta = None;
        }
    }

    /// Whether a waiting or running entry still needs this generation.
    pub(super) fn is_referenced(&self, generation: Generation) -> bool {
        let waiting = self.waiting.iter().map(|w| w.place.generation);
        let running = self.running.values().map(|r| r.place.generation);
        waiting.chain(running).any(|g| g == generation)
    }

    /// Started operations whose native work has not ended.
    pub(super) fn active(&self) -> usize {
        self.running.len()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let waiting = self.waiting.iter().map(|w| w.deadline);
        let running = self.running.values().filter(|r| !r.answered).map(|r| r.deadline);
        waiting.chain(running).min()
    }

    fn has_slot(&self) -> bool {
        self.running.len() < UNFINISHED_OPERATIONS
            && self.running.values().filter(|r| !r.answered).count() < self.slots
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lane(n: u8) -> AllocationId {
        format!("11111111-1111-4111-8111-1111111111{n:02x}")
            .parse()
            .unwrap()
    }

    fn place(n: u8) -> Place {
        Place {
            lane: lane(n),
            generation: Generation::FIRST,
        }
    }

    fn start_all(schedule: &mut Schedule<u64, u64>) -> Vec<(Ticket, u64)> {
        std::iter::from_fn(|| schedule.start_next())
            .map(|(_, started)| (started.ticket, started.job))
            .collect()
    }

    fn admit(schedule: &mut Schedule<u64, u64>, l: u8, job: u64) -> Result<(), QueueFull> {
        schedule.admit(place(l), Moment(1_000), job, job)
    }

    // inv: INV-N24
    #[test]
    fn a_blocked_allocation_delays_only_itself() {
        let mut schedule = Schedule::new(3);
        for (l, job) in [(1, 10), (1, 11), (2, 20), (1, 12), (3, 30), (4, 40)] {
            admit(&mut schedule, l, job).unwrap();
        }
        let started = start_all(&mut schedule);
        assert_eq!(started.iter().map(|s| s.1).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(schedule.answer(started[0].0).is_some());
        let next = start_all(&mut schedule);
        assert_eq!(
            next.iter().map(|s| s.1).collect::<Vec<_>>(),
            [40],
            "lane 1 is held until its native work ends"
        );
        schedule.end(started[0].0);
        assert!(start_all(&mut schedule).is_empty(), "three answers are still due");
        schedule.answer(started[1].0);
        assert_eq!(start_all(&mut schedule)[0].1, 11);
    }

    // inv: INV-N26
    #[test]
    fn unfinished_native_work_is_bounded_even_when_all_of_it_is_answered() {
        let mut schedule = Schedule::new(1);
        for n in 0..UNFINISHED_OPERATIONS as u8 {
            admit(&mut schedule, n, u64::from(n)).unwrap();
            let started = start_all(&mut schedule);
            assert_eq!(started.len(), 1);
            schedule.answer(started[0].0);
        }
        admit(&mut schedule, 100, 100).unwrap();
        assert!(start_all(&mut schedule).is_empty());
        assert_eq!(schedule.active(), UNFINISHED_OPERATIONS);
        schedule.end(Ticket(0));
        assert_eq!(start_all(&mut schedule).len(), 1);
    }

    // req: P-058
    #[test]
    fn the_thirty_third_waiting_entry_is_refused_unless_it_starts_at_once() {
        let mut schedule = Schedule::new(2);
        for job in 0..33 {
            admit(&mut schedule, 1, job).unwrap();
            start_all(&mut schedule);
        }
        assert_eq!(schedule.waiting(), WAITING_REQUESTS);
        assert_eq!(admit(&mut schedule, 1, 33), Err(QueueFull));
        admit(&mut schedule, 2, 34).unwrap();
        assert_eq!(start_all(&mut schedule)[0].1, 34);
    }

    proptest! {
        // inv: INV-N24, INV-N26
        #[test]
        fn lanes_never_overlap_and_start_in_order(
            slots in 1usize..6,
            steps in prop::collection::vec((0u8..4, 0u8..5), 1..200),
        ) {
            let mut schedule = Schedule::new(slots);
            let (mut admitted, mut open) = (0u64, Vec::<(Ticket, u8, bool)>::new());
            let mut last = [0u64; 4];
            for (l, step) in steps {
                match step {
                    0 | 1 => { admitted += 1; let _ = schedule.admit(place(l), Moment(u64::MAX), admitted, (l, admitted)); }
                    2 => if let Some(o) = open.iter_mut().find(|o| o.1 == l) { schedule.answer(o.0); o.2 = true; },
                    3 => if let Some(at) = open.iter().position(|o| o.1 == l) { schedule.end(open.remove(at).0); },
                    _ => { schedule.disconnect(); prop_assert_eq!(schedule.waiting(), 0); }
                }
                while let Some((_, started)) = schedule.start_next() {
                    let (l, number) = started.job;
                    prop_assert!(open.iter().all(|o| o.1 != l), "lane {} overlaps", l);
                    prop_assert!(number > last[l as usize], "out of order");
                    last[l as usize] = number;
                    open.push((started.ticket, l, false));
                }
                prop_assert!(open.iter().filter(|o| !o.2).count() <= slots);
                prop_assert_eq!(schedule.active(), open.len());
            }
        }
    }
}
