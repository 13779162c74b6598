//! One allocation from its first start on: Core as it is meant to work around the planner, two nodes, and whatever may go
//! wrong. Each step is one that really is atomic; the checks are those of the explicit-state model.

/// What happened, when it is to be told.
macro_rules! tell {
    ($scene:expr, $($line:tt)*) => {
        if $scene.telling {
            let line = format!($($line)*);
            $scene.log.push(line);
        }
    };
}

mod checks;
mod core;
mod faults;
mod natives;

use std::collections::{BTreeMap, BTreeSet};

use oac_lifecycle::{
    Millis,
    allocation::{self, Cause, Diagnostic, Presence, State},
    suspension::{Demand, Event, Held, Observation, Request, Snapshot, Watch},
};
use oac_model::{ComputePhase as P, ConnectionId, NodeId, OperationId};

use crate::host::{Ask, Connection, Host, Receipt, Shelf, Stored, Vm};

/// What is built wrong, to see a check bite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    // Core.
    ReturnsWithoutKill,
    ConsumesBeforeTheLink,
    AdmitsWhatIsBeingKilled,
    CleansUpWithoutReconciling,
    ReleasesWithComputesLeft,
    ComputeVerifies,
    CountsEveryReturn,
    FailureSettlesNothing,
    UnsentRestoreStays,
    WaitsForTheAway,
    // The node.
    NoLock,
    SourceRunsOn,
    ComputeWrites,
    RestoringSticks,
    KillSuspendsAny,
    EndedIsNotLost,
    KeepsBadCheckpoint,
}

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).expect("below n")
    }

    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

pub fn node(n: usize) -> NodeId {
    format!("00000000-0000-4000-8000-00000000000{n}").parse().unwrap()
}

pub fn operation(k: usize) -> OperationId {
    format!("00000000-0000-4000-8000-0000000001{k:02}")
        .parse()
        .unwrap()
}

/// What this process is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Flight {
    /// An intent is stored.
    Intended(Ask, usize, What),
    /// A frame left.
    Waits(Ask, usize, What),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Request(Request),
    Kill,
    Look(Observation),
    BaseLook,
}

pub struct Scene {
    pub random: Random,
    pub now: Millis,
    pub held: Held,
    pub watch: Watch,
    pub hosts: [Host; 2],
    pub shelf: Shelf,
    flight: Option<Flight>,
    connections: [Option<ConnectionId>; 2],
    phase_at: Millis,
    retention_at: Option<Millis>,
    demand: Demand,
    shown: Option<Diagnostic>,
    /// The Session has been still since then.
    pub suspends_left: u32,
    next_operation: usize,
    pub linked: bool,
    /// A sandbox ran, so there is something to lose.
    used: bool,
    pub discarded: BTreeSet<NodeId>,
    pub given_up: Option<Cause>,
    pub defect: Option<Defect>,
    pub violations: BTreeSet<&'static str>,
    pub reached: BTreeSet<&'static str>,
    pub telling: bool,
    pub log: Vec<String>,
    /// Faults that may still happen.
    pub faults: u32,
    killed_sent: BTreeSet<i64>,
    /// Targets whose resume left Core.
    resumed: BTreeSet<i64>,
}

impl Scene {
    pub fn new(seed: u64, defect: Option<Defect>) -> Self {
        let mut hosts = [Host::new(), Host::new()];
        hosts[0].receipt = Receipt::Settled;
        hosts[0].vms.insert(0, Vm::Running);
        hosts[0].woken.insert(0, true);
        let mut random = Random(seed);
        let faults = u32::try_from(random.below(7)).unwrap();
        let suspends_left = 1 + u32::try_from(random.below(3)).unwrap();
        Self {
            random,
            now: 1_000_000,
            held: Held {
                state: State::Running { phase: P::Running },
                deferred: None,
                node: node(0),
                leave: false,
                computes: Vec::new(),
                checkpoint: None,
                suspend: None,
                open: None,
                unobserved: BTreeSet::new(),
                restore_failures: 0,
            },
            watch: Watch::default(),
            hosts,
            shelf: Shelf::default(),
            flight: None,
            connections: [Some(ConnectionId::random()), Some(ConnectionId::random())],
            phase_at: 1_000_000,
            retention_at: None,
            demand: Demand::None,
            shown: None,
            suspends_left,
            next_operation: 0,
            linked: true,
            used: true,
            discarded: BTreeSet::new(),
            given_up: None,
            defect,
            violations: BTreeSet::new(),
            reached: BTreeSet::new(),
            telling: false,
            log: Vec::new(),
            faults,
            killed_sent: BTreeSet::new(),
            resumed: BTreeSet::new(),
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn violated(&mut self, what: &'static str) {
        self.violations.insert(what);
    }

    fn index(&self, id: NodeId) -> usize {
        usize::from(id != node(0))
    }

    /// There is a state of the sandbox somewhere.
    fn has_state(&self) -> bool {
        let live = self.hosts.iter().any(Host::has_live);
        let kept = self
            .shelf
            .kept
            .iter()
            .any(|(k, stored)| *stored == Stored::Good && self.shelf.valid.get(k) == Some(&true));
        live && self.used || kept
    }

    /// Stores an event, checking what a single transition may do.
    fn store(&mut self, event: Event) -> bool {
        let Ok(next) = self.held.apply(event.clone()) else {
            return false;
        };
        let was = std::mem::replace(&mut self.held, next);
        tell!(self, "  stores {event:?}");
        self.transition(&was, &event);
        true
    }

    fn snapshot(&self) -> Snapshot<'_> {
        let connected: BTreeMap<_, _> = (0..2)
            .filter(|n| self.hosts[*n].connection == Connection::Current)
            .filter_map(|n| self.connections[n].map(|id| (node(n), id)))
            .collect();
        Snapshot {
            held: &self.held,
            base: allocation::Snapshot {
                state: self.held.state,
                given_up: None,
                in_flight: self.flight.is_some(),
                node: match connected.get(&self.held.node) {
                    Some(id) => Presence::Online {
                        connection: *id,
                        ready: true,
                    },
                    None => Presence::Offline,
                },
                initialized: true,
                linked: self.linked,
            },
            connected,
            demand: self.demand,
            quiet_in: (self.suspends_left > 0 && self.held.phase() == Some(P::Running))
                .then_some(self.phase_at + 60_000 - self.now),
            phase_for: self.now - self.phase_at,
            retention_in: self.retention_at.map(|at| at - self.now),
            shown: self.shown,
        }
    }

    /// A Turn is queued.
    pub fn demand(&mut self) {
        self.demand = Demand::New;
    }

    /// Nothing is left to do, and it is well. Unless former computes at nodes that are down for good are given up, their end
    /// is owed, and nothing else waits for it; of those that were given up nothing is owed but at such nodes.
    pub fn rests(&self, discards: bool) -> bool {
        let down = |id: NodeId| self.hosts[self.index(id)].down;
        let owed = self.held.former().any(|c| discards || !down(c.node));
        if self.held.owed().any(|c| !down(c.node)) {
            return false;
        }
        match self.held.state {
            State::Released => true,
            State::Running { phase: P::Running } => {
                let at = self.index(self.held.node);
                self.hosts[at]
                    .vms
                    .get(&self.held.current().map_or(0, |c| c.generation))
                    == Some(&Vm::Running)
                    && self.held.checkpoint.is_none()
                    && !owed
            }
            State::Running { phase: P::Suspended } => self.demand == Demand::None && !owed,
            _ => false,
        }
    }

    /// A node that never returns keeps what it was sent (INV-C19); the release of an allocation waits for its former nodes
    /// until an operator says that they are gone, and a wanted checkpoint for a node that may have it.
    pub fn waits_for_good(&self, discards: bool) -> bool {
        let down = |id: NodeId| self.hosts[self.index(id)].down;
        let held = &self.held;
        match held.phase() {
            Some(P::Suspended) => self.hosts.iter().any(|host| host.down) || held.computes.len() >= 12,
            Some(P::Restoring) => {
                let sent = held
                    .current()
                    .is_some_and(|c| self.resumed.contains(&c.generation));
                down(held.node) && sent
            }
            None if !discards && held.computes.iter().any(|c| !c.ended && down(c.node)) => true,
            _ => down(held.node),
        }
    }

    pub fn leave_no_more(&mut self) {
        self.held.leave = false;
    }
}
