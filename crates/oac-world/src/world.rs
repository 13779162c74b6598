//! The world: Cores, hosts, the network between them, and time.

use std::collections::BTreeMap;

use oac_model::{AllocationId, ConnectionId, Generation, OperationId, OwnerEpoch, ProviderKind, SessionId};
use oac_peer::{Moment, Random, node::Attempt, node::Ticket};

use crate::{
    agenda::{Agenda, Millis},
    core::{CoreHost, chores::Chore, transaction::TxId},
    database::{Database, NodeRow, SessionRow},
    defect::Defect,
    fault::{Loss, Planned, calm_at, suspends},
    host::{Host, engine::CallId, native::WorkId, vms::Kept},
    ids,
    invariant::Invariant,
    network::{DialAnswer, DialId, End, LinkId, Network},
};

/// Everything must have come to rest within this after the disorder.
const REST_WITHIN: Millis = 45 * 60_000;
const LOOK_FOR_REST: Millis = 3_000;
/// How long into the calm an operator leaves to Core what could be given up.
const OPERATORS_PATIENCE: Millis = 15 * 60_000;

/// What may happen next. A number named `run` is of the process it belongs to; another process takes no notice.
pub(crate) enum Happening {
    Fault(usize),
    Calm,
    LookForRest,
    // The network.
    DialArrives(DialId),
    DialAnswered(DialId, DialAnswer),
    Arrives(LinkId, End),
    // A host.
    NodeStarts(usize),
    NodeTick(usize, u64),
    Measured(usize, u64, Attempt, bool),
    EpochStored(usize, u64, bool),
    IdentityAsked(usize, u64, usize),
    IdentityAnswered(usize, u64, Identity),
    Probed(usize, u64, Generation, bool),
    Collected(usize, u64, Generation),
    SweepDue(usize, u64),
    WorkGoesOn(usize, u64, WorkId),
    WorkLate(usize, u64, WorkId),
    WorkEnded(usize, u64, Ticket),
    EngineActs(usize, u64, CallId),
    EngineAnswers(usize, u64, CallId),
    ContainerRestarts(usize, u64, AllocationId),
    RuntimeDials(usize, u64, AllocationId),
    // A Core.
    CoreStarts(usize),
    KeeperDue(usize, u64),
    PassDue(usize, u64),
    ConnectionTick(usize, u64, ConnectionId),
    Commits(TxId),
    Replied(usize, u64, TxId),
    Again(usize, u64, TxId),
    StopDeadline(usize, u64),
    ChoreDue(usize, u64, OwnerEpoch, Chore),
    /// What a fault does to it while a mutation it sent is under way.
    InCall(usize, u64, usize, Loss),
    // Where sandboxes can be suspended.
    HelperActs(usize, u64, u64),
    VmDials(usize, u64, AllocationId, i64),
    /// The runtime was asked to fall quiet.
    Quieted(usize, u64, AllocationId, u64),
    TurnsDue(usize, u64, OwnerEpoch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Confirmed,
    Unauthorized,
    Failed,
}

/// The first rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub at: Millis,
    pub what: String,
}

/// How often something happened that a test of the world's reach asks about.
pub type Reached = BTreeMap<&'static str, u64>;

pub(crate) struct World {
    pub(crate) now: Millis,
    pub(crate) agenda: Agenda<Happening>,
    pub(crate) random: Random,
    pub(crate) defect: Option<Defect>,
    pub(crate) faults: Vec<Planned>,
    pub(crate) calm: bool,
    pub(crate) calm_at: Millis,
    pub(crate) db: Database,
    pub(crate) cores: Vec<CoreHost>,
    pub(crate) hosts: Vec<Host>,
    /// The store that all nodes keep checkpoints in.
    pub(crate) kept: BTreeMap<OperationId, Kept>,
    pub(crate) network: Network,
    /// Numbers for whatever needs one of its own.
    serial: u64,
    pub(crate) events: u64,
    pub(crate) rested: bool,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) reached: Reached,
    // The database's weather.
    pub(crate) fails_until: Millis,
    pub(crate) reply_lost_until: Millis,
    pub(crate) slow_until: Millis,
    pub(crate) transactions: BTreeMap<TxId, crate::core::transaction::Transaction>,
    pub(crate) history: crate::check::History,
}

impl World {
    pub(crate) fn new(seed: u64, faults: Vec<Planned>, defect: Option<Defect>, tracing: bool) -> Self {
        let mut random = Random::new(seed);
        let suspends = suspends(seed);
        let mut hosts: Vec<_> = (0..1 + random.below(3))
            .map(|number| Host::new(number as usize, random.one_in(2), &mut random))
            .collect();
        if suspends {
            for host in &mut hosts {
                host.identity.provider = ProviderKind::Microsandbox;
            }
        }
        let nodes = hosts.iter().map(|host| {
            let max_active = 1 + random.below(3) as u32;
            let mut row = NodeRow::enrolled(host.id, Generation::FIRST, max_active);
            row.max_retained += if suspends { 2 } else { 0 };
            (host.id, row)
        });
        let db = Database {
            // It may be set back as well.
            clock: 1_000_000_000,
            owner: None,
            last_epoch: 0,
            target: Generation::FIRST,
            suspends,
            selected: true,
            reset: oac_lifecycle::reset::State::None,
            digests: vec![crate::host::digest(Generation::FIRST)],
            nodes: nodes.collect(),
            sessions: BTreeMap::new(),
            allocations: BTreeMap::new(),
        };
        let mut world = Self {
            now: 0,
            agenda: Agenda::new(seed ^ 0x71e5),
            defect,
            calm: false,
            calm_at: calm_at(seed),
            db,
            cores: (0..1 + random.below(2)).map(|_| CoreHost::default()).collect(),
            hosts,
            random,
            kept: BTreeMap::new(),
            network: Network::default(),
            serial: 0,
            events: 0,
            rested: false,
            violation: None,
            trace: tracing.then(Vec::new),
            reached: Reached::new(),
            fails_until: 0,
            reply_lost_until: 0,
            slow_until: 0,
            transactions: BTreeMap::new(),
            history: crate::check::History::default(),
            faults,
        };
        for session in 0..1 + world.random.below(3) {
            world
                .db
                .sessions
                .insert(ids::session(session), SessionRow::default());
            world.turn_asked(ids::session(session));
        }
        for core in 0..world.cores.len() {
            world.after(0, 20, Happening::CoreStarts(core));
        }
        for host in 0..world.hosts.len() {
            world.after(0, 2_000, Happening::NodeStarts(host));
        }
        for (number, planned) in world.faults.iter().enumerate() {
            world.agenda.at(planned.at, Happening::Fault(number));
        }
        world.agenda.at(world.calm_at, Happening::Calm);
        world
    }

    /// Lives until everything rests, or a rule is broken.
    pub(crate) fn live(&mut self) {
        while !self.rested && self.violation.is_none() {
            let Some((at, happening)) = self.agenda.next() else {
                return self.violated(Invariant::Comes, || "nothing happens any more".to_owned());
            };
            self.now = self.now.max(at);
            if self.now > self.calm_at + REST_WITHIN {
                let unrest = self.unrest().unwrap_or_default();
                return self.violated(Invariant::Comes, || format!("no rest: {unrest}"));
            }
            self.events += 1;
            self.happen(happening);
            self.check();
        }
    }

    fn happen(&mut self, happening: Happening) {
        use Happening as H;
        // A process that is stalled takes everything later.
        if let Some(until) = self.stalled_until(&happening) {
            self.agenda.at(until, happening);
            return;
        }
        match happening {
            H::Fault(number) => self.strike(self.faults[number].fault),
            H::Calm => self.come_to_rest(),
            H::LookForRest => match self.unrest() {
                None => self.rested = true,
                Some(_) => {
                    if self.now > self.calm_at + OPERATORS_PATIENCE {
                        self.accept_losses_of_creates();
                    }
                    self.after(LOOK_FOR_REST, LOOK_FOR_REST, H::LookForRest);
                }
            },
            H::DialArrives(dial) => self.dial_arrives(dial),
            H::DialAnswered(dial, answer) => self.dial_answered(dial, answer),
            H::Arrives(link, end) => self.arrives(link, end),
            H::NodeStarts(host) => self.node_starts(host),
            H::NodeTick(host, run) => self.node_ticks(host, run),
            H::Measured(host, run, attempt, ready) => self.measured(host, run, attempt, ready),
            H::EpochStored(host, run, done) => self.epoch_stored(host, run, done),
            H::IdentityAsked(host, run, core) => self.identity_asked(host, run, core),
            H::IdentityAnswered(host, run, answer) => self.identity_answered(host, run, answer),
            H::Probed(host, run, generation, ready) => self.probed(host, run, generation, ready),
            H::Collected(host, run, generation) => self.collected(host, run, generation),
            H::SweepDue(host, run) => self.sweep(host, run),
            H::WorkGoesOn(host, run, work) => self.work_goes_on(host, run, work),
            H::WorkLate(host, run, work) => self.work_late(host, run, work),
            H::WorkEnded(host, run, ticket) => self.work_ended(host, run, ticket),
            H::EngineActs(host, boot, call) => self.engine_acts(host, boot, call),
            H::EngineAnswers(host, run, call) => self.engine_answers(host, run, call),
            H::ContainerRestarts(host, boot, allocation) => self.container_restarts(host, boot, allocation),
            H::RuntimeDials(host, boot, allocation) => self.runtime_dials(host, boot, allocation),
            H::CoreStarts(core) => self.core_starts(core),
            H::KeeperDue(core, run) => self.keeper_due(core, run),
            H::PassDue(core, run) => self.pass_due(core, run),
            H::ConnectionTick(core, run, connection) => self.connection_ticks(core, run, connection),
            H::Commits(tx) => self.commits(tx),
            H::Replied(core, run, tx) => self.replied(core, run, tx),
            H::Again(core, run, tx) => self.again(core, run, tx),
            H::StopDeadline(core, run) => self.stop_deadline(core, run),
            H::ChoreDue(core, run, epoch, chore) => self.chore_due(core, run, epoch, chore),
            H::InCall(core, run, host, loss) => self.in_call(core, run, host, loss),
            H::HelperActs(host, boot, serial) => self.helper_acts(host, boot, serial),
            H::VmDials(host, boot, allocation, generation) => {
                self.vm_dials(host, boot, allocation, generation);
            }
            H::Quieted(core, run, allocation, operation) => self.quieted(core, run, allocation, operation),
            H::TurnsDue(core, run, epoch) => self.turns_due(core, run, epoch),
        }
    }

    fn stalled_until(&self, happening: &Happening) -> Option<Millis> {
        use Happening as H;
        let core = |core: usize| self.cores[core].stalled_until;
        let host = |host: usize| self.hosts[host].stalled_until;
        let until = match happening {
            H::DialArrives(dial) => self.network.dials.get(dial).map_or(0, |dial| core(dial.core)),
            H::DialAnswered(dial, _) => self.network.dials.get(dial).map_or(0, |dial| host(dial.host)),
            H::Arrives(link, end) => self.network.links.get(link).map_or(0, |link| match end {
                End::Core => core(link.core),
                End::Node => host(link.host),
            }),
            H::NodeTick(h, _)
            | H::Measured(h, ..)
            | H::EpochStored(h, ..)
            | H::IdentityAnswered(h, ..)
            | H::Probed(h, ..)
            | H::Collected(h, ..)
            | H::SweepDue(h, _)
            | H::WorkGoesOn(h, ..)
            | H::WorkLate(h, ..)
            | H::WorkEnded(h, ..)
            | H::EngineAnswers(h, ..) => host(*h),
            H::IdentityAsked(_, _, c)
            | H::KeeperDue(c, _)
            | H::PassDue(c, _)
            | H::ConnectionTick(c, ..)
            | H::Replied(c, ..)
            | H::Again(c, ..)
            | H::StopDeadline(c, _)
            | H::Quieted(c, ..)
            | H::TurnsDue(c, ..)
            | H::ChoreDue(c, ..) => core(*c),
            _ => 0,
        };
        (until > self.now).then_some(until)
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment(self.now)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Between `least` and `most` milliseconds from now.
    pub(crate) fn after(&mut self, least: Millis, most: Millis, happening: Happening) {
        let delay = self.between(least, most);
        self.agenda.at(self.now + delay, happening);
    }

    pub(crate) fn between(&mut self, least: Millis, most: Millis) -> Millis {
        least + self.random.below(most - least + 1)
    }

    /// Chance of a disorder; none in calm.
    pub(crate) fn mishap(&mut self, one_in: u64) -> bool {
        let hit = self.random.one_in(one_in);
        hit && !self.calm
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(crate) fn violated(&mut self, invariant: Invariant, what: impl FnOnce() -> String) {
        if self.violation.is_some() {
            return;
        }
        let what = what();
        self.say(|| format!("{} BROKEN: {what}", invariant.id()));
        let at = self.now;
        self.violation = Some(Violation { invariant, at, what });
    }

    pub(crate) fn demand(&mut self, holds: bool, invariant: Invariant, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(invariant, what);
        }
    }

    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9} {}", self.now, line()));
        }
    }

    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// No disorder from here on: what is down comes up, what is slow is quick again.
    fn come_to_rest(&mut self) {
        self.say(|| "--- CALM ---".to_owned());
        self.calm = true;
        (self.fails_until, self.reply_lost_until, self.slow_until) = (0, 0, 0);
        for core in &mut self.cores {
            core.stalled_until = 0;
            core.cut_until = 0;
            core.renewals_fail_until = 0;
            core.at_commit.clear();
            core.in_call.clear();
        }
        for host in &mut self.hosts {
            host.settle_down();
        }
        // What fell silent is noticed by its ends; nobody mends a connection.
        self.agenda.at(self.now + LOOK_FOR_REST, Happening::LookForRest);
    }

    pub(crate) fn session_number(&self, number: u64) -> Option<SessionId> {
        let count = self.db.sessions.len() as u64;
        (count > 0).then(|| ids::session(number % count))
    }
}
