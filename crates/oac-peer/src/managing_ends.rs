//! A managing node against Core over a pipe that delivers late and breaks, while targets change, placements come and go
//! and generations are prepared and collected. Core's rows are a model here; the machines are the real ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oac_model::Generation;
use oac_wire::{
    NodeFrame,
    frames::{GenerationState, RetentionReference},
};
use proptest::prelude::*;

use crate::{
    Moment,
    both_ends::registered,
    core,
    core::{Connection, Facts, Recorded, RetentionAnswer},
    fixtures::*,
    node,
    node::{Local, Node, Standing},
};

struct World {
    now: Moment,
    node: Node,
    core: Option<Connection>,
    connections: u64,
    owner_epoch: i64,
    to_core: VecDeque<String>,
    to_node: VecDeque<String>,
    dialing: bool,
    refreshing: bool,
    measuring: VecDeque<node::Attempt>,
    /// What is being recorded: presence or not, and what it says.
    recording: VecDeque<(bool, Vec<(i64, bool)>)>,
    asking: Option<Vec<RetentionReference>>,
    // Core's rows.
    target: i64,
    pin: Option<i64>,
    placed: BTreeMap<i64, usize>,
    // The host.
    local: BTreeMap<i64, Standing>,
    /// Grants of the current connection.
    granted: BTreeSet<i64>,
    dropped: BTreeSet<i64>,
}

impl World {
    fn new() -> Self {
        let local = BTreeMap::from([(1, Standing::Ready)]);
        Self {
            now: Moment(0),
            node: Node::new(identity(), 0, 2, 3, Moment(0)).managing(table(&local)),
            core: None,
            connections: 0,
            owner_epoch: 1,
            to_core: VecDeque::new(),
            to_node: VecDeque::new(),
            dialing: false,
            refreshing: false,
            measuring: VecDeque::new(),
            recording: VecDeque::new(),
            asking: None,
            target: 1,
            pin: None,
            placed: BTreeMap::new(),
            local,
            granted: BTreeSet::new(),
            dropped: BTreeSet::new(),
        }
    }

    fn is_kept(&self, generation: i64) -> bool {
        self.target == generation
            || self.pin == Some(generation)
            || self.placed.get(&generation).is_some_and(|count| *count > 0)
    }

    fn host_changed(&mut self) {
        let table = table(&self.local);
        self.node_takes(node::Event::Generations(table));
    }

    fn node_takes(&mut self, event: node::Event<'_>) {
        let mut actions = VecDeque::from(self.node.apply(event, self.now));
        while let Some(action) = actions.pop_front() {
            match action {
                node::Action::Dial => self.dialing = true,
                node::Action::Measure(attempt) => self.measuring.push_back(attempt),
                node::Action::Send(text) => {
                    self.leaves(&text);
                    self.to_core.push_back(text);
                }
                node::Action::StoreEpoch(_) => {
                    actions.extend(self.node.apply(node::Event::EpochStored(true), self.now));
                }
                node::Action::Accepted(..) => {}
                node::Action::Deployment(deployment) => {
                    let target = deployment.generation.get();
                    assert!(
                        !self.dropped.contains(&target),
                        "a dropped generation is never prepared"
                    );
                    self.local.entry(target).or_insert(Standing::Preparing);
                    let table = table(&self.local);
                    actions.extend(self.node.apply(node::Event::Generations(table), self.now));
                }
                node::Action::Granted(id, references) => {
                    assert_eq!(Some(id), self.core.as_ref().map(Connection::connection_id));
                    for reference in references {
                        let generation = reference.generation.get();
                        // Once not kept, never kept again: that is what makes the grant safe (INV-C8).
                        assert!(!self.is_kept(generation), "generation {generation} is kept");
                        self.granted.insert(generation);
                    }
                }
                node::Action::Close(reason) => {
                    assert!(
                        !matches!(reason, node::Reason::Violation(_) | node::Reason::InvalidFrame(_)),
                        "two honest ends: {reason:?}"
                    );
                    self.granted.clear();
                    self.cut_at_core();
                }
                node::Action::Refresh => self.refreshing = true,
                node::Action::Run(_) | node::Action::Exit(_) => panic!("nothing runs, nothing ends"),
            }
        }
    }

    /// What is going, or gone, leaves health at once; what nobody may ask about is asked by nobody.
    fn leaves(&self, text: &str) {
        let standing = |g: Generation| self.local.get(&g.get()).copied();
        match NodeFrame::decode(text.as_bytes()).unwrap() {
            NodeFrame::Heartbeat(heartbeat) => {
                for status in heartbeat.health.generations.iter().flatten() {
                    let standing = standing(status.generation);
                    assert!(
                        matches!(standing, Some(Standing::Ready | Standing::Preparing)),
                        "{standing:?}"
                    );
                }
            }
            NodeFrame::Retention(retention) => {
                for asked in retention.control.references {
                    let standing = standing(asked.generation);
                    assert!(!matches!(
                        standing,
                        None | Some(Standing::Removing | Standing::Dropped)
                    ));
                }
            }
            _ => {}
        }
    }

    fn core_takes(&mut self, event: core::Event<'_>) {
        let Some(mut connection) = self.core.take() else {
            return;
        };
        let actions = connection.apply(event, self.now);
        self.core = Some(connection);
        let mut cut = false;
        for action in actions {
            match action {
                core::Action::RecordPresence(presence) => {
                    assert!(presence.managing);
                    self.recording.push_back((true, said(&presence.health)));
                }
                core::Action::RecordHealth(health) => self.recording.push_back((false, said(&health))),
                core::Action::AnswerRetention(asked) => self.asking = Some(asked),
                core::Action::Send(text) => self.to_node.push_back(text),
                core::Action::Close(reason) => {
                    let expected = matches!(
                        reason,
                        core::CloseReason::Lost
                            | core::CloseReason::Silence
                            | core::CloseReason::HelloLate
                            | core::CloseReason::EpochLost
                    );
                    assert!(expected, "two honest ends: {reason:?}");
                    cut = true;
                }
                core::Action::Free => self.core = None,
                core::Action::Live | core::Action::RemovePresence(_) | core::Action::Resolve(..) => {}
            }
        }
        if cut {
            self.to_core.clear();
            self.node_takes(node::Event::Lost);
        }
    }

    fn cut_at_core(&mut self) {
        self.dialing = false;
        self.to_node.clear();
        self.core_takes(core::Event::Lost);
    }

    /// One transaction: statuses of kept generations count, and the pin moves to a target that is ready.
    fn record(&mut self) {
        let Some((presence, statuses)) = self.recording.pop_front() else {
            return;
        };
        let mut ignored = Vec::new();
        for (generation, ready) in statuses {
            if !self.is_kept(generation) {
                ignored.push(Generation::try_from(generation).unwrap());
            } else if ready && generation == self.target {
                assert!(self.pin < Some(generation) || self.pin == Some(generation));
                self.pin = Some(generation);
            }
        }
        let recorded = Recorded::Done(Some(Facts {
            deployment: deployment(self.target, self.pin),
            ignored,
        }));
        self.core_takes(match presence {
            true => core::Event::PresenceRecorded(recorded),
            false => core::Event::HealthRecorded(recorded),
        });
    }

    fn answer_retention(&mut self) {
        let Some(asked) = self.asking.take() else { return };
        let keep = asked.iter().map(|r| self.is_kept(r.generation.get())).collect();
        let deployment = deployment(self.target, self.pin);
        self.core_takes(core::Event::RetentionAnswered(RetentionAnswer::Done {
            keep,
            deployment,
        }));
    }

    fn dial(&mut self) {
        if !std::mem::take(&mut self.dialing) {
            return;
        }
        if self.core.is_some() {
            return self.node_takes(node::Event::DialFailed);
        }
        self.connections += 1;
        self.recording.clear();
        self.asking = None;
        self.to_core.clear();
        let registered = registered(self.connections > 1);
        let (id, owner) = (connection(self.connections), epoch(self.owner_epoch));
        self.core = Some(Connection::open(registered, id, owner, self.now));
        self.node_takes(node::Event::Upgraded);
    }

    fn step(&mut self, step: u8, amount: u64) {
        match step {
            0 => self.dial(),
            1 => {
                if let Some(attempt) = self.measuring.pop_front() {
                    self.node_takes(node::Event::Measured(attempt, Box::new(health(false))));
                }
            }
            2 | 3 => {
                if let Some(text) = self.to_core.pop_front() {
                    self.core_takes(core::Event::Message(text.as_bytes(), wall()));
                }
            }
            4 | 5 => {
                if let Some(text) = self.to_node.pop_front() {
                    self.node_takes(node::Event::Message(text.as_bytes()));
                }
            }
            6 => self.record(),
            7 => self.answer_retention(),
            8 => {
                self.now = self.now.plus_millis(amount % 8_000);
                self.node_takes(node::Event::Tick);
                self.core_takes(core::Event::Tick);
                // Whoever was woken has done what was due: a shell that sleeps until the next wakeup never spins.
                let node = self.node.next_wakeup();
                assert!(node.is_none_or(|due| due > self.now), "{:?}", self.node.state());
                let core = self.core.as_ref().and_then(Connection::next_wakeup);
                assert!(core.is_none_or(|due| due > self.now), "{:?}", self.core);
            }
            9 if self.core.as_ref().map(Connection::state) == Some(core::StateName::Closing) => {
                self.core_takes(core::Event::PresenceRemoved);
            }
            10 if std::mem::take(&mut self.refreshing) => {
                self.node_takes(node::Event::Refreshed(node::Refresh::Failed));
            }
            // Preparation succeeds.
            11 => {
                let preparing = |s: &&mut Standing| **s == Standing::Preparing;
                if let Some(standing) = self.local.values_mut().find(preparing) {
                    *standing = Standing::Ready;
                    self.host_changed();
                }
            }
            // Collection, one of what is granted and needed by nothing here; then its end.
            12 => {
                let free = |g: &i64| !self.node.is_referenced(Generation::try_from(*g).unwrap());
                if let Some(generation) = self.granted.iter().copied().find(|g| free(g)) {
                    self.granted.remove(&generation);
                    self.local.insert(generation, Standing::Removing);
                    self.host_changed();
                }
            }
            13 => {
                let removing = self.local.iter().find(|(_, s)| **s == Standing::Removing);
                if let Some(generation) = removing.map(|(g, _)| *g) {
                    self.local.insert(generation, Standing::Dropped);
                    self.dropped.insert(generation);
                    self.host_changed();
                }
            }
            // Rows: a new target, a placement on the pin, one released.
            14 if amount.is_multiple_of(4) && self.target < 12 => self.target += 1,
            15 => {
                if let Some(pin) = self.pin {
                    *self.placed.entry(pin).or_default() += 1;
                }
            }
            16 | 17 => {
                let mut held = self.placed.values_mut().filter(|count| **count > 0);
                if let Some(count) = held.next() {
                    *count -= 1;
                }
            }
            18 if amount.is_multiple_of(5) => {
                self.to_core.clear();
                self.cut_at_core();
                self.node_takes(node::Event::Lost);
            }
            18 if amount.is_multiple_of(7) => {
                self.owner_epoch += 1;
                self.core_takes(core::Event::EpochLost);
            }
            _ => {}
        }
        let known = self.node.deployment().map(|d| d.generation.get());
        assert!(known.is_none_or(|known| known <= self.target));
    }

    /// Everyone does their part once, in order.
    fn round(&mut self, millis: u64) {
        for step in 0..14 {
            self.step(step, millis);
        }
    }

    /// Nothing breaks any more, and nothing is placed.
    fn calm(&mut self) {
        for _ in 0..1_500 {
            self.round(500);
            self.step(16, 0);
        }
    }
}

fn table(local: &BTreeMap<i64, Standing>) -> Vec<Local> {
    let row = |(n, standing): (&i64, &Standing)| Local {
        generation: generation(*n),
        specification_digest: digest(*n),
        standing: *standing,
        acquirable: *standing == Standing::Ready,
    };
    local.iter().map(row).collect()
}

fn said(health: &oac_wire::frames::Health) -> Vec<(i64, bool)> {
    let statuses = health.generations.iter().flatten();
    statuses
        .map(|s| (s.generation.get(), s.state == GenerationState::Ready))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // req: P-081, P-086, P-088, P-092, P-093, P-095
    // inv: INV-P14, INV-P15, INV-P17
    #[test]
    fn targets_are_served_in_the_end_and_only_what_nothing_names_is_ever_collected(
        steps in prop::collection::vec((0u8..19, any::<u64>()), 1..300),
    ) {
        let mut world = World::new();
        for (step, amount) in steps {
            world.step(step, amount);
            // Between the disorder enough goes well that heartbeats, pins and retention answers come about.
            for _ in 0..amount % 4 {
                world.round(amount % 4_000);
            }
        }
        world.calm();
        prop_assert_eq!(world.node.state(), node::StateName::Live);
        prop_assert_eq!(world.pin, Some(world.target), "what is ready is served");
        let left: Vec<_> = world.local.iter().filter(|(_, s)| **s != Standing::Dropped).collect();
        prop_assert_eq!(left.len(), 1, "what nothing needs is collected: {:?}", left);
    }
}
