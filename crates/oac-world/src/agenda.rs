//! What will happen, by virtual time: one ordered heap, ties broken by the seed.

use std::{cmp::Reverse, collections::BinaryHeap};

use oac_peer::Random;

/// Virtual milliseconds.
pub(crate) type Millis = u64;

pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    /// Makes every entry's place in the order one of its own.
    serial: u64,
    ties: Random,
}

struct Entry<E> {
    key: (Millis, u64, u64),
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<E> Agenda<E> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            heap: BinaryHeap::new(),
            serial: 0,
            ties: Random::new(seed),
        }
    }

    pub(crate) fn at(&mut self, at: Millis, event: E) {
        self.serial += 1;
        let key = (at, self.ties.number(), self.serial);
        self.heap.push(Reverse(Entry { key, event }));
    }

    pub(crate) fn next(&mut self) -> Option<(Millis, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.key.0, entry.event))
    }
}
