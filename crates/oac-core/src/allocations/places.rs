//! How much of what Core asks is open at each node.
//!
//! A node that answers nothing holds up what is asked of it and nothing else. So a step holds a place at the node that its
//! frame goes to, from right before it until its answer is stored: not at the node where its allocation happens to be, and
//! not while it waits for somebody else, such as a runtime that is to fall quiet.

use std::{collections::HashMap, sync::Arc};

use oac_model::NodeId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits;

/// The places at every node. An ownership has its own: the steps of an earlier one end with it.
pub(super) struct Places {
    /// For frames to the node.
    pub(super) sending: Seats,
    /// For steps that wait for a runtime there before they send anything.
    pub(super) quieting: Seats,
}

/// So many at each node.
pub(super) struct Seats {
    each: usize,
    nodes: Mutex<HashMap<NodeId, Arc<Semaphore>>>,
}

/// One of them, free again when this is dropped.
pub(super) type Place = OwnedSemaphorePermit;

impl Places {
    pub(super) fn new() -> Self {
        Self {
            sending: Seats::new(limits::OPERATIONS_PER_NODE),
            quieting: Seats::new(limits::QUIETING_PER_NODE),
        }
    }
}

impl Seats {
    fn new(each: usize) -> Self {
        Self {
            each,
            nodes: Mutex::default(),
        }
    }

    fn at(&self, node: NodeId) -> Arc<Semaphore> {
        let mut nodes = self.nodes.lock();
        let seats = nodes
            .entry(node)
            .or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        seats.clone()
    }

    /// How many are taken there.
    pub(super) fn taken(&self, node: NodeId) -> usize {
        self.each.saturating_sub(self.at(node).available_permits())
    }

    /// A place there, if one is free.
    pub(super) fn take(&self, node: NodeId) -> Option<Place> {
        self.at(node).try_acquire_owned().ok()
    }

    /// A place there, once one is free; whoever waits longest is first. `None` if none became free in time.
    pub(super) async fn wait(&self, node: NodeId) -> Option<Place> {
        let free = self.at(node).acquire_owned();
        tokio::time::timeout(limits::PLACE, free).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_places_whatever_is_open_at_another_and_gets_them_back() {
        let seats = Seats::new(2);
        let (one, other) = (NodeId::random(), NodeId::random());
        let held = (seats.take(one), seats.take(one));
        assert!(held.0.is_some() && held.1.is_some());
        assert!(seats.take(one).is_none());
        assert_eq!((seats.taken(one), seats.taken(other)), (2, 0));
        assert!(seats.take(other).is_some());
        drop(held);
        assert!(seats.take(one).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_place_gets_the_next_one_and_gives_up_in_time() {
        let seats = Seats::new(1);
        let node = NodeId::random();
        let held = seats.take(node);
        assert!(seats.wait(node).await.is_none());
        let ((), waited) = tokio::join!(async { drop(held) }, seats.wait(node));
        assert!(waited.is_some());
    }
}
