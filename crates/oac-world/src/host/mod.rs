//! A host: its disk, its engine, and the node process that comes and goes on it.

pub(crate) mod effects;
pub(crate) mod engine;
mod generations;
mod messages;
pub(crate) mod native;
mod process;
mod provider;
pub(crate) mod vms;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oac_model::{AllocationId, Digest, Generation, NodeId, ProviderKind};
use oac_peer::{
    Moment, Random,
    node::{Local, Node, Standing, Ticket},
};
use oac_provider::Receipt;
use oac_wire::frames::Identity;

use crate::{
    agenda::Millis,
    fault::Tamper,
    ids,
    network::{DialId, LinkId, Note},
};
use engine::Engine;
use native::{Work, WorkId};
pub(crate) use process::wall;
use vms::Machine;

/// Of a generation's specification.
pub(crate) fn digest(generation: Generation) -> Digest {
    Digest::of(format!("specification {generation}"))
}

pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) id: NodeId,
    pub(crate) identity: Identity,
    pub(crate) managing: bool,
    // The disk.
    pub(crate) stored_epoch: i64,
    pub(crate) receipts: BTreeMap<AllocationId, Receipt>,
    pub(crate) generations: BTreeMap<Generation, Kept>,
    pub(crate) engine: Engine,
    /// Of a backend that keeps checkpoints.
    pub(crate) machine_state: Machine,
    /// Grows with each reboot.
    pub(crate) boot: u64,
    /// Grows with each start of the process.
    pub(crate) run: u64,
    pub(crate) process: Option<Process>,
    /// It exited with 78 and is not started again.
    pub(crate) over: bool,
    pub(crate) operations: usize,
    // The weather.
    pub(crate) stalled_until: Millis,
    pub(crate) path_slow_until: Millis,
    pub(crate) refused_until: Millis,
    pub(crate) disk_full_until: Millis,
    /// What runs in its sandboxes does not reach Core.
    pub(crate) runtimes_cut_until: Millis,
    /// How far its wall clock is ahead; it jumps.
    pub(crate) clock: i64,
    pub(crate) duplicates: u32,
    pub(crate) proxy_401: u32,
    /// It ends with its next call that makes something, and stays down so long.
    pub(crate) crash_in_call: Option<Millis>,
    pub(crate) tampers: Vec<Tamper>,
}

/// What the disk holds of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its configuration is published.
    Published,
    /// Its collection has begun.
    Collecting,
    Dropped,
}

/// What a process has in memory.
pub(crate) struct Process {
    pub(crate) machine: Node,
    pub(crate) tick_at: Option<Millis>,
    pub(crate) dial: Option<DialId>,
    pub(crate) link: Option<LinkId>,
    /// The epoch being stored; what arrives meanwhile waits.
    pub(crate) storing: Option<i64>,
    pub(crate) inbox: VecDeque<(LinkId, String, Note)>,
    /// The identity was confirmed, and the loop runs.
    pub(crate) serving: bool,
    /// A proxy's 401 is being confirmed.
    pub(crate) doubted: bool,
    /// What the latest probe said; a fixed node's.
    pub(crate) probed: bool,
    /// A managing node's generations as its memory has them.
    pub(crate) standings: BTreeMap<Generation, Standing>,
    /// What may be collected, while that connection is current.
    pub(crate) granted: VecDeque<Generation>,
    pub(crate) collecting: Option<Generation>,
    pub(crate) work: BTreeMap<WorkId, Work>,
    /// The first of each runs.
    pub(crate) lanes: BTreeMap<AllocationId, VecDeque<WorkId>>,
    /// Tickets that were started and whose end was not told.
    pub(crate) unfinished: BTreeSet<Ticket>,
    /// Answers that a planted defect kept.
    pub(crate) kept_answers: Vec<String>,
}

impl Host {
    pub(crate) fn new(number: usize, managing: bool, random: &mut Random) -> Self {
        let id = ids::node(number as u64);
        Self {
            number,
            id,
            identity: Identity {
                node_id: id,
                installation_id: ids::installation(0),
                provider: ProviderKind::Docker,
                backend_fingerprint: Digest::of("backend"),
                deployment_generation: Generation::FIRST,
                specification_digest: digest(Generation::FIRST),
                max_active: 1,
                max_retained: 1,
            },
            managing,
            stored_epoch: 0,
            receipts: BTreeMap::new(),
            generations: BTreeMap::from([(Generation::FIRST, Kept::Published)]),
            engine: Engine::default(),
            machine_state: Machine::default(),
            boot: 1,
            run: 0,
            process: None,
            over: false,
            operations: 1 + random.below(8) as usize,
            stalled_until: 0,
            path_slow_until: 0,
            refused_until: 0,
            disk_full_until: 0,
            runtimes_cut_until: 0,
            clock: 0,
            duplicates: 0,
            proxy_401: 0,
            crash_in_call: None,
            tampers: Vec::new(),
        }
    }

    /// It was given back, and is a node anew: with another identity and nothing of the one before.
    pub(crate) fn enroll(&mut self, id: NodeId, generation: Generation) {
        self.id = id;
        self.identity.node_id = id;
        self.identity.deployment_generation = generation;
        self.identity.specification_digest = digest(generation);
        self.generations = BTreeMap::from([(generation, Kept::Published)]);
        self.stored_epoch = 0;
        self.receipts.clear();
        self.engine.containers.clear();
        self.engine.volumes.clear();
        self.machine_state = Machine::default();
        self.over = false;
    }

    pub(crate) fn process(&mut self, run: u64) -> Option<&mut Process> {
        self.process.as_mut().filter(|_| self.run == run)
    }

    pub(crate) fn is_linked(&self, run: u64, link: LinkId) -> bool {
        self.run == run && self.process.as_ref().is_some_and(|p| p.link == Some(link))
    }

    pub(crate) fn disk_is_full(&self, now: Millis) -> bool {
        now < self.disk_full_until
    }

    /// Its weather clears.
    pub(crate) fn settle_down(&mut self) {
        (self.stalled_until, self.path_slow_until, self.refused_until) = (0, 0, 0);
        (self.disk_full_until, self.duplicates, self.proxy_401) = (0, 0, 0);
        self.crash_in_call = None;
        self.tampers.clear();
        self.engine.settle_down();
    }

    pub(crate) fn machine(&self, slots: usize, seed: u64, now: Millis) -> Node {
        let (identity, epoch) = (self.identity.clone(), self.stored_epoch);
        let node = Node::new(identity, epoch, slots, seed, Moment(now));
        match self.managing {
            true => node.managing(self.table(&self.loaded())),
            false => node,
        }
    }

    /// What a start makes of the disk: nothing is ready before it was probed.
    pub(crate) fn loaded(&self) -> BTreeMap<Generation, Standing> {
        let standing = |kept: &Kept| match kept {
            Kept::Published => Standing::Preparing,
            Kept::Collecting => Standing::Stalled,
            Kept::Dropped => Standing::Dropped,
        };
        self.generations
            .iter()
            .map(|(g, kept)| (*g, standing(kept)))
            .collect()
    }

    pub(crate) fn table(&self, standings: &BTreeMap<Generation, Standing>) -> Vec<Local> {
        let local = |(generation, standing): (&Generation, &Standing)| Local {
            generation: *generation,
            specification_digest: digest(*generation),
            standing: *standing,
            acquirable: self.generations.get(generation) == Some(&Kept::Published),
        };
        standings.iter().map(local).collect()
    }
}
