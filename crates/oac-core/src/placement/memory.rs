//! The nodes as the owner remembers them.
//!
//! Placement looks at 10,000 nodes without a transaction, so the owner keeps them in memory, updated by its own writes.
//! Two writes to one node may be remembered in another order than they were committed in; each therefore carries a ticket
//! drawn while the node's row was locked, and an older ticket never overwrites a newer one. What is remembered may still
//! be stale: the placing transaction checks the chosen node again, and its answer replaces the memory. What makes room is
//! therefore remembered just before its commit: nobody who sees the room is refused for a memory that is behind, and a
//! commit that fails leaves a memory which the next check corrects.
//!
//! The nodes that could take a sandbox are kept in the order in which placement prefers them, so that a choice looks at
//! the first that suits the request, and at all of them only to say why there is none.

use std::{
    collections::{BTreeSet, HashMap},
    sync::atomic::{AtomicU64, Ordering},
};

use oac_lifecycle::{
    placement::{Answer, Deployment, Mode, Node, Rank, Request, place},
    suspension::{
        pressure,
        target::{Candidate, Needs, choose},
    },
};
use oac_model::{Generation, NodeId};
use parking_lot::Mutex;

/// A place in the order of writes to one node; drawn under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The owner's memory of deployment and nodes.
pub struct Memory {
    tickets: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    deployment: Deployment,
    /// Whether it was read since everything was forgotten, and no later reading failed.
    known: bool,
    /// Of the newest reading of the deployment, or of the moment everything was forgotten.
    read: Ticket,
    nodes: HashMap<NodeId, Entry>,
    /// Of each node that has one; [`Inner::change`] keeps them.
    ranks: BTreeSet<Rank>,
}

struct Entry {
    node: Node,
    /// Placements chosen here whose transaction has not ended; they count as taken.
    choosing: u32,
    facts: Ticket,
    counts: Ticket,
}

impl Default for Memory {
    fn default() -> Self {
        let deployment = Deployment {
            reset_in_progress: false,
            specification_valid: true,
            installation_matches: true,
            mode: Mode::Unset,
            target: None,
            public_url: None,
        };
        Self {
            tickets: AtomicU64::new(1),
            inner: Mutex::new(Inner {
                deployment,
                known: false,
                read: Ticket(0),
                nodes: HashMap::new(),
                ranks: BTreeSet::new(),
            }),
        }
    }
}

impl Memory {
    /// Call it while the node's row is locked, or before the deployment is read.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Remembers the deployment as it was read after `ticket` was drawn. One that reads it after a commit therefore knows
    /// that no reading from before that commit is remembered any more.
    pub fn set_deployment(&self, ticket: Ticket, deployment: Deployment) {
        let mut inner = self.inner.lock();
        if inner.read < ticket {
            inner.read = ticket;
            inner.known = true;
            inner.deployment = deployment;
        }
    }

    /// The deployment could not be read after `ticket` was drawn: what is remembered from before may hold no more.
    pub fn doubt_deployment(&self, ticket: Ticket) {
        let mut inner = self.inner.lock();
        if inner.read < ticket {
            inner.read = ticket;
            inner.known = false;
        }
    }

    /// Whether the deployment is being reset; `None` while that has to be read.
    pub fn resetting(&self) -> Option<bool> {
        let inner = self.inner.lock();
        inner.known.then_some(inner.deployment.reset_in_progress)
    }

    pub fn deployment(&self) -> Deployment {
        self.inner.lock().deployment.clone()
    }

    /// Remembers a node as a transaction read or wrote it whole.
    pub fn remember(&self, ticket: Ticket, node: Node) {
        let mut inner = self.inner.lock();
        if inner.nodes.contains_key(&node.id) {
            inner.change(node.id, |entry| {
                let (active, retained) = (node.active, node.retained);
                entry.learn(ticket, node);
                entry.count(ticket, active, retained);
            });
        } else {
            inner.ranks.extend(node.rank());
            let entry = Entry {
                node,
                choosing: 0,
                facts: ticket,
                counts: ticket,
            };
            inner.nodes.insert(entry.node.id, entry);
        }
    }

    /// Remembers everything but the counts, which a heartbeat does not read. A node not remembered yet stays so.
    pub fn remember_facts(&self, ticket: Ticket, node: Node) {
        let mut inner = self.inner.lock();
        inner.change(node.id, |entry| entry.learn(ticket, node));
    }

    /// Remembers a node's counts alone.
    pub fn remember_counts(&self, ticket: Ticket, id: NodeId, active: u32, retained: u32) {
        let mut inner = self.inner.lock();
        inner.change(id, |entry| entry.count(ticket, active, retained));
    }

    /// The node that is to restore a checkpoint, as remembered; `ready` and `drained` are asked of each.
    pub fn restore(
        &self,
        needs: &Needs,
        ready: impl Fn(NodeId) -> bool,
        drained: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let inner = self.inner.lock();
        let candidates = inner.candidates(ready, drained);
        choose(needs, inner.deployment.public_url.as_deref(), candidates)
    }

    /// The full node that would take the demand with one active slot more; none of `without`.
    pub(crate) fn place_with_room(&self, request: &Request, without: &BTreeSet<NodeId>) -> Option<NodeId> {
        let inner = self.inner.lock();
        let nodes = inner.nodes.values().map(|entry| &entry.node);
        pressure::place_with_room(request, &inner.deployment, nodes, without)
    }

    /// The same of a checkpoint, asked as in [`Self::restore`].
    pub(crate) fn restore_with_room(
        &self,
        needs: &Needs,
        ready: impl Fn(NodeId) -> bool,
        drained: impl Fn(NodeId) -> bool,
        without: &BTreeSet<NodeId>,
    ) -> Option<NodeId> {
        let inner = self.inner.lock();
        let candidates = inner.candidates(ready, drained);
        pressure::restore_with_room(needs, inner.deployment.public_url.as_deref(), candidates, without)
    }

    /// Is the node remembered with its counts?
    pub fn knows(&self, id: NodeId) -> bool {
        self.inner.lock().nodes.contains_key(&id)
    }

    /// The node is connected no more.
    pub fn disconnected(&self, ticket: Ticket, id: NodeId) {
        self.inner.lock().change(id, |entry| {
            if entry.facts < ticket {
                entry.facts = ticket;
                entry.node.online = false;
                entry.node.provider_ready = false;
                entry.node.target_status = None;
            }
        });
    }

    pub fn forget(&self, id: NodeId) {
        let mut inner = self.inner.lock();
        if let Some(rank) = inner.nodes.remove(&id).and_then(|entry| entry.node.rank()) {
            inner.ranks.remove(&rank);
        }
    }

    /// Forgets everything, before an ownership begins.
    pub fn clear(&self) {
        let ticket = self.ticket();
        let mut inner = self.inner.lock();
        inner.nodes.clear();
        inner.ranks.clear();
        inner.known = false;
        inner.read = ticket;
    }

    /// Chooses, and holds the chosen node's slot until the returned choice is dropped, so that callers at the same moment
    /// spread over the nodes instead of queueing for one row.
    ///
    /// None of `without` is chosen unless it is the only one.
    pub fn choose(&self, request: &Request, without: &BTreeSet<NodeId>) -> Choice<'_> {
        let mut inner = self.inner.lock();
        let answer = inner
            .first(request, without)
            .unwrap_or_else(|| inner.answer(request));
        let mut held = None;
        if let Answer::Node { id, .. } = answer {
            held = Some(id);
            inner.change(id, |entry| {
                entry.choosing += 1;
                entry.node.active += 1;
                entry.node.retained += 1;
            });
        }
        Choice {
            memory: self,
            held,
            answer,
        }
    }
}

impl Inner {
    fn candidates(
        &self,
        ready: impl Fn(NodeId) -> bool,
        drained: impl Fn(NodeId) -> bool,
    ) -> impl Iterator<Item = Candidate<'_>> {
        self.nodes.values().map(move |entry| Candidate {
            node: &entry.node,
            ready: ready(entry.node.id),
            drained: drained(entry.node.id),
        })
    }

    /// Changes a node that is remembered.
    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.nodes.get_mut(&id) else {
            return;
        };
        let before = entry.node.rank();
        change(entry);
        let after = entry.node.rank();
        if before != after {
            if let Some(rank) = before {
                self.ranks.remove(&rank);
            }
            self.ranks.extend(after);
        }
    }

    /// The first node in order that takes the request.
    fn first(&self, request: &Request, without: &BTreeSet<NodeId>) -> Option<Answer> {
        let ranked = self.ranks.iter().map(Rank::node);
        // The nodes behind it could only come later.
        ranked.filter(|id| !without.contains(id)).find_map(|id| {
            let answer = place(
                request,
                &self.deployment,
                self.nodes.get(&id).map(|entry| &entry.node),
            );
            matches!(answer, Answer::Node { .. }).then_some(answer)
        })
    }

    /// What `place` answers of all nodes.
    fn answer(&self, request: &Request) -> Answer {
        if let Some(answer) = self.first(request, &BTreeSet::new()) {
            return answer;
        }
        place(
            request,
            &self.deployment,
            self.nodes.values().map(|entry| &entry.node),
        )
    }
}

impl Entry {
    fn learn(&mut self, ticket: Ticket, node: Node) {
        if self.facts < ticket {
            self.facts = ticket;
            let counted = (self.node.active, self.node.retained);
            self.node = node;
            (self.node.active, self.node.retained) = counted;
        }
    }

    fn count(&mut self, ticket: Ticket, active: u32, retained: u32) {
        if self.counts < ticket {
            self.counts = ticket;
            self.node.active = active + self.choosing;
            self.node.retained = retained + self.choosing;
        }
    }
}

/// An answer, and the slot it holds in memory.
pub struct Choice<'a> {
    memory: &'a Memory,
    held: Option<NodeId>,
    answer: Answer,
}

impl Choice<'_> {
    /// Never `Direct`: running sandboxes in Core itself is a later backend's work.
    pub fn answer(&self) -> Answer {
        match self.answer {
            Answer::Direct => Answer::Unavailable,
            answer => answer,
        }
    }

    pub fn node(&self) -> Option<(NodeId, Generation)> {
        match self.answer {
            Answer::Node { id, pin } => Some((id, pin)),
            _ => None,
        }
    }
}

impl Drop for Choice<'_> {
    fn drop(&mut self) {
        let Some(id) = self.held else { return };
        self.memory.inner.lock().change(id, |entry| {
            // It may have been forgotten and learned anew meanwhile.
            if entry.choosing > 0 {
                entry.choosing -= 1;
                entry.node.active = entry.node.active.saturating_sub(1);
                entry.node.retained = entry.node.retained.saturating_sub(1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use oac_lifecycle::placement::TargetStatus;
    use oac_model::Time;

    use super::*;

    fn node(active: u32) -> Node {
        Node {
            id: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            created_at: Time::from_millis(0).unwrap(),
            online: true,
            provider_ready: true,
            pin: Some(Generation::FIRST),
            core_url: "http://c".to_owned(),
            cordoned: false,
            draining: false,
            labels: Default::default(),
            active,
            retained: active,
            max_active: 2,
            max_retained: 2,
            target_status: None,
            checkpoint_store: None,
            execution_class: None,
        }
    }

    fn choose(memory: &Memory) -> Choice<'_> {
        memory.choose(&Request::default(), &BTreeSet::new())
    }

    fn memory() -> Memory {
        let memory = Memory::default();
        let deployment = Deployment {
            mode: Mode::Nodes,
            public_url: Some("http://c".to_owned()),
            ..memory.deployment()
        };
        memory.set_deployment(memory.ticket(), deployment);
        memory
    }

    #[test]
    fn a_reading_of_the_deployment_from_before_a_later_one_or_an_earlier_ownership_is_not_remembered() {
        let memory = Memory::default();
        assert_eq!(memory.resetting(), None);
        let reading = |reset_in_progress| Deployment {
            reset_in_progress,
            ..Memory::default().deployment()
        };
        let (older, newer) = (memory.ticket(), memory.ticket());
        memory.set_deployment(newer, reading(true));
        memory.set_deployment(older, reading(false));
        assert_eq!(memory.resetting(), Some(true));
        let late = memory.ticket();
        memory.clear();
        memory.set_deployment(late, reading(true));
        assert_eq!(memory.resetting(), None);
        memory.set_deployment(memory.ticket(), reading(false));
        assert_eq!(memory.resetting(), Some(false));
    }

    #[test]
    fn after_a_reading_of_the_deployment_that_failed_whoever_asks_for_a_reset_reads_it() {
        let memory = memory();
        assert_eq!(memory.resetting(), Some(false));
        let (failed, later) = (memory.ticket(), memory.ticket());
        memory.doubt_deployment(failed);
        assert_eq!(memory.resetting(), None);
        memory.set_deployment(later, memory.deployment());
        memory.doubt_deployment(failed);
        assert_eq!(memory.resetting(), Some(false), "it was read since");
    }

    #[test]
    fn callers_at_the_same_moment_share_the_slots_a_node_has() {
        let memory = memory();
        memory.remember(memory.ticket(), node(0));
        let first = choose(&memory);
        let second = choose(&memory);
        assert!(first.node().is_some() && second.node().is_some());
        assert_eq!(choose(&memory).answer(), Answer::Unavailable);
        drop(first);
        assert!(choose(&memory).node().is_some());
        // The second one's transaction stored it: counted once, whether remembered before or after the choice ends.
        memory.remember(memory.ticket(), node(1));
        drop(second);
        let third = choose(&memory);
        assert!(third.node().is_some());
        assert_eq!(choose(&memory).answer(), Answer::Unavailable);
    }

    #[test]
    fn a_node_to_be_passed_over_is_chosen_only_where_no_other_takes_the_request() {
        let memory = memory();
        let ids: Vec<NodeId> = (0..2).map(|_| NodeId::random()).collect();
        for id in &ids {
            let node = Node { id: *id, ..node(0) };
            memory.remember(memory.ticket(), node);
        }
        let first = choose(&memory);
        let without = BTreeSet::from([first.node().unwrap().0]);
        let beside: Vec<_> = (0..3)
            .map(|_| memory.choose(&Request::default(), &without))
            .collect();
        let chosen: Vec<NodeId> = beside.iter().map(|choice| choice.node().unwrap().0).collect();
        let other = *ids.iter().find(|id| !without.contains(id)).unwrap();
        assert_eq!(chosen[..2], [other, other]);
        assert_eq!(chosen[2], first.node().unwrap().0, "the other one is full");
    }

    /// Whatever memory was told in whatever order, it answers what placement answers of all its nodes.
    fn answers_as_placement_does(seed: u64) {
        let mut random = oac_peer::Random::new(seed);
        let memory = memory();
        let ids: Vec<NodeId> = (0..6).map(|_| NodeId::random()).collect();
        let labelled = Request {
            required_labels: [("zone".to_owned(), "a".to_owned())].into(),
        };
        let mut held = Vec::new();
        for step in 0..400 {
            let id = ids[random.below(6) as usize];
            let (active, max) = (random.below(3) as u32, 1 + random.below(3) as u32);
            let preparing = random.one_in(3).then_some(TargetStatus::Preparing);
            let node = Node {
                id,
                created_at: Time::from_millis(random.below(2) as i64).unwrap(),
                online: !random.one_in(8),
                provider_ready: !random.one_in(8),
                pin: Generation::try_from(1 + random.below(2) as i64).ok(),
                core_url: format!("http://{}", if random.one_in(8) { "other" } else { "c" }),
                cordoned: random.one_in(8),
                draining: random.one_in(8),
                labels: labelled
                    .required_labels
                    .clone()
                    .into_iter()
                    .filter(|_| random.one_in(2))
                    .collect(),
                max_active: max,
                max_retained: max,
                target_status: preparing,
                ..self::node(active)
            };
            let ticket = memory.ticket();
            match random.below(8) {
                0 | 1 => memory.remember(ticket, node),
                2 => memory.remember_facts(ticket, node),
                3 => memory.remember_counts(ticket, id, active, active),
                4 => memory.disconnected(ticket, id),
                5 => memory.forget(id),
                6 => held.push(choose(&memory)),
                _ => drop(held.pop()),
            }
            for request in [&Request::default(), &labelled] {
                let inner = memory.inner.lock();
                let all = inner.nodes.values().map(|entry| &entry.node);
                let expected = place(request, &inner.deployment, all);
                assert_eq!(inner.answer(request), expected, "seed {seed}, step {step}");
            }
        }
    }

    // inv: INV-C9
    #[test]
    fn the_first_node_in_order_that_suits_is_the_one_placement_chooses_of_all() {
        for seed in 1..=50 {
            answers_as_placement_does(seed);
        }
    }

    #[test]
    fn an_older_write_remembered_late_changes_nothing() {
        let memory = memory();
        let older = memory.ticket();
        let newer = memory.ticket();
        memory.remember(newer, node(2));
        memory.remember(older, node(0));
        memory.remember_counts(older, node(0).id, 0, 0);
        assert_eq!(choose(&memory).answer(), Answer::Unavailable);
        memory.disconnected(older, node(0).id);
        memory.remember_counts(memory.ticket(), node(0).id, 1, 1);
        assert!(choose(&memory).node().is_some());
        memory.disconnected(memory.ticket(), node(0).id);
        assert_eq!(choose(&memory).answer(), Answer::Unavailable);
    }
}
