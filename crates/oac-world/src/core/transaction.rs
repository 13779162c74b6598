//! Transactions on their way: they commit at one moment, or do not, and what their sender learns is another matter.

use std::collections::{BTreeMap, btree_map::Entry};

use oac_lifecycle::{
    allocation::{Diagnostic, Event, Sighting},
    placement::{self, Request},
    reset, suspension,
};
use oac_model::{AllocationId, AllocationState, ConnectionId, Generation, NodeId, OwnerEpoch, SessionId};
use oac_peer::core::{Presence, RecordFailure, Recorded, RetentionAnswer};
use oac_wire::frames::{Health, RetentionReference};

use super::{
    LEASE,
    chores::{Chore, ChoreStep},
    operators::Ask,
};
use crate::{
    agenda::Millis,
    database::{Detail, NotApplied, Owner, PUBLIC_URL, required},
    defect::Defect,
    ids,
    invariant::Invariant,
    suspension::turns::TurnStep,
    world::{Happening, World},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TxId(pub(crate) u64);

/// What one transaction writes.
#[derive(Clone)]
pub(crate) enum Write {
    Acquire,
    Renew,
    /// The lease is given up.
    Expire,
    Presence(NodeId, Box<Presence>),
    Health(NodeId, ConnectionId, Box<Health>),
    RemovePresence(NodeId, ConnectionId),
    Retention(Vec<RetentionReference>),
    Allocation(AllocationId, Event, Detail),
    /// Of one that can be suspended.
    Held(AllocationId, suspension::Event, Box<Detail>),
    Shown(AllocationId, Diagnostic),
    Turn(SessionId, TurnStep),
    /// The runtime's first link under this link generation.
    Linked(AllocationId),
    /// Of several Sessions at once, each judged alone beside those before it.
    Place(Vec<Choice>),
    Archive(SessionId),
    Input(SessionId),
    NewSession(SessionId),
    Operator(Ask),
    Chore(ChoreStep),
}

/// Where a Session's sandbox is to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) pin: Generation,
}

/// What became of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placing {
    /// Placed, or there was nothing to place any more.
    Done,
    Unfit,
    /// Another transaction holds the node's row.
    Held,
}

/// Who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Keeper {
        asked_at: Millis,
    },
    Presence(ConnectionId),
    Health(ConnectionId),
    Removal(ConnectionId),
    Retention(ConnectionId),
    /// Of a worker that owns this epoch.
    Step(OwnerEpoch, AllocationId),
    Place(OwnerEpoch),
    Chore(OwnerEpoch, Chore),
    Nobody,
}

#[derive(Clone)]
pub(crate) enum Reply {
    Owned(Option<OwnerEpoch>),
    Recorded(Recorded),
    Retention(RetentionAnswer),
    Removed,
    /// The event's outcome: applied, refused, or its row is gone.
    Applied(bool),
    /// What became of each, in their order.
    Placed(Vec<Placing>),
    /// A step of a chore, and what is to be done next.
    More(Vec<ChoreStep>),
    /// The deployment; the next epoch began.
    GivenBack,
    Done,
    NotOwner,
    /// Whether the whole may be tried again unchanged.
    Failed {
        transient: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Commits,
    FailsBefore,
    ReplyLost,
}

pub(crate) struct Transaction {
    pub(crate) core: usize,
    run: u64,
    pub(crate) epoch: Option<OwnerEpoch>,
    pub(crate) write: Write,
    pub(crate) purpose: Purpose,
    pub(crate) tries: u32,
    fate: Fate,
    /// It has left its sender and commits even when that is gone.
    left: bool,
    pub(crate) reply: Option<Reply>,
}

impl World {
    pub(crate) fn submit(&mut self, core: usize, epoch: Option<OwnerEpoch>, write: Write, purpose: Purpose) {
        let id = TxId(self.number());
        let transaction = Transaction {
            core,
            run: self.cores[core].run,
            epoch,
            write,
            purpose,
            tries: 0,
            fate: Fate::Commits,
            left: false,
            reply: None,
        };
        self.transactions.insert(id, transaction);
        self.send_transaction(id);
    }

    fn send_transaction(&mut self, id: TxId) {
        let Some(core) = self.transactions.get(&id).map(|tx| tx.core) else {
            return;
        };
        let renews = self
            .transactions
            .get(&id)
            .is_some_and(|tx| matches!(tx.write, Write::Renew));
        let cut = self.cores[core].cut_until > self.now
            || renews && self.cores[core].renewals_fail_until > self.now;
        let fails = self.fails_until > self.now && self.random.one_in(2);
        let lost = self.reply_lost_until > self.now && self.random.one_in(2);
        let most = if self.slow_until > self.now { 2_900 } else { 8 };
        let left = self.random.one_in(2);
        if let Some(tx) = self.transactions.get_mut(&id) {
            tx.left = left;
            tx.tries += 1;
            tx.fate = match (cut || fails, lost) {
                (true, _) => Fate::FailsBefore,
                (false, true) => Fate::ReplyLost,
                (false, false) => Fate::Commits,
            };
        }
        self.after(1, most, Happening::Commits(id));
    }

    /// The moment of the commit.
    pub(crate) fn commits(&mut self, id: TxId) {
        let Some(tx) = self.transactions.get(&id) else {
            return;
        };
        let (core, run, epoch, fate, left) = (tx.core, tx.run, tx.epoch, tx.fate, tx.left);
        let alive = self.cores[core].is(run);
        if !alive && !left && !matches!(tx.write, Write::Expire) {
            self.transactions.remove(&id);
            return;
        }
        let reply = if fate == Fate::FailsBefore {
            Reply::Failed { transient: true }
        } else {
            let (write, purpose) = (tx.write.clone(), tx.purpose);
            let holder = core as u64 * 1_000_000 + run;
            match self.execute(holder, epoch, write, purpose) {
                _ if fate == Fate::ReplyLost => {
                    self.reach("a transaction committed and its sender does not know");
                    Reply::Failed { transient: false }
                }
                reply => reply,
            }
        };
        let step = self.transactions.get(&id).is_some_and(|tx| {
            matches!(
                tx.purpose,
                Purpose::Step(..) | Purpose::Place(..) | Purpose::Chore(..)
            )
        });
        if alive
            && step
            && match &reply {
                Reply::Applied(applied) => *applied,
                Reply::Placed(all) => all.contains(&Placing::Done),
                Reply::More(_) | Reply::GivenBack => true,
                _ => false,
            }
        {
            self.after_commit(core);
        }
        if !self.cores[core].is(run) {
            self.transactions.remove(&id);
            return;
        }
        if let Some(tx) = self.transactions.get_mut(&id) {
            tx.reply = Some(reply);
        }
        self.after(0, 4, Happening::Replied(core, run, id));
    }

    /// The faults that wait for the moment between a commit and its reply.
    fn after_commit(&mut self, core: usize) {
        match self.cores[core].at_commit.pop() {
            Some(None) => {
                self.reach("a Core ended between a commit and its reply");
                self.core_ends(core);
                self.core_restarts(core, 500);
            }
            Some(Some(stall)) => {
                self.reach("a Core stalled between a commit and its reply");
                self.say(|| format!("core {core}: stalls for {stall} ms"));
                self.cores[core].stalled_until = (self.now + stall).min(self.calm_at);
            }
            None => {}
        }
    }

    pub(crate) fn again(&mut self, core: usize, run: u64, id: TxId) {
        if self.cores[core].is(run) {
            self.send_transaction(id);
        } else {
            self.transactions.remove(&id);
        }
    }

    fn execute(&mut self, holder: u64, epoch: Option<OwnerEpoch>, write: Write, purpose: Purpose) -> Reply {
        let now = self.now;
        if let Write::Acquire = write {
            return Reply::Owned(self.acquire(holder));
        }
        let Some(epoch) = epoch else {
            return Reply::NotOwner;
        };
        let owner = self
            .db
            .owner
            .filter(|owner| (owner.holder, owner.epoch) == (holder, epoch));
        if let Write::Renew = write {
            return Reply::Owned(self.renew(holder));
        }
        if owner.is_none() && !self.has(Defect::StaleCommit) {
            self.reach("a transaction of a former owner was refused");
            return Reply::NotOwner;
        }
        self.demand(owner.is_some(), Invariant::C1, || {
            format!("epoch {epoch} writes and is over")
        });
        match write {
            Write::Acquire | Write::Renew => Reply::NotOwner,
            Write::Expire => {
                let expires_at = self.db.time(now);
                if let Some(owner) = self.db.owner.as_mut() {
                    owner.expires_at = expires_at;
                }
                self.history.leases.remove(&holder);
                Reply::Done
            }
            Write::Presence(node, presence) => {
                let connection = presence.connection_id;
                let managing = presence.managing;
                let recorded = self.record(node, connection, epoch, &presence.health, Some(managing));
                Reply::Recorded(recorded)
            }
            Write::Health(node, connection, health) => {
                Reply::Recorded(self.record(node, connection, epoch, &health, None))
            }
            Write::RemovePresence(node, connection) => {
                self.remove_presence(node, connection);
                Reply::Removed
            }
            Write::Retention(asked) => Reply::Retention(self.answer_retention(&asked, purpose)),
            Write::Allocation(id, event, detail) => {
                let done = self.apply_event(id, event, &detail);
                Reply::Applied(done)
            }
            Write::Linked(id) => {
                let Some(row) = self.db.allocations.get_mut(&id) else {
                    return Reply::Done;
                };
                if matches!(row.state, AllocationState::Creating | AllocationState::Running) {
                    row.initialized = true;
                    let session = row.session;
                    let runs_turns = self.db.suspends;
                    if let Some(session) = self.db.sessions.get_mut(&session) {
                        session.failed_creates = 0;
                        session.waiting &= runs_turns;
                    }
                }
                Reply::Done
            }
            Write::Place(choices) => Reply::Placed(self.place_all(&choices)),
            Write::Archive(id) => {
                self.archive(id, oac_lifecycle::allocation::Cause::Archive);
                Reply::Done
            }
            Write::Held(id, event, detail) => Reply::Applied(self.apply_held(id, event, &detail)),
            Write::Shown(id, diagnostic) => {
                let row = self.db.allocations.get_mut(&id);
                if let Some(held) = row.and_then(|row| row.held.as_mut()) {
                    held.shown = Some(diagnostic);
                }
                Reply::Applied(true)
            }
            Write::Turn(session, step) => {
                self.turn_step(session, step);
                Reply::Done
            }
            // Nothing new is admitted while the deployment is given back, or has been.
            Write::Input(id) if !self.admits() && !self.db.unreleased().any(|row| row.session == id) => {
                Reply::Done
            }
            Write::NewSession(_) if !self.admits() => Reply::Done,
            Write::Input(id) => {
                if let Some(session) = self.db.sessions.get_mut(&id).filter(|s| !s.archived && !s.failed) {
                    session.waiting = true;
                }
                self.turn_asked(id);
                self.demanded(id);
                Reply::Done
            }
            Write::NewSession(id) => {
                if let Entry::Vacant(new) = self.db.sessions.entry(id) {
                    new.insert(Default::default());
                    self.turn_asked(id);
                }
                self.demanded(id);
                Reply::Done
            }
            Write::Operator(ask) => {
                self.operator_asks(ask);
                Reply::Done
            }
            Write::Chore(step) => self.chore(step),
        }
    }

    /// Admission places in the transaction that admits; here the owner's worker does, at once.
    fn demanded(&mut self, session: SessionId) {
        let now = self.now;
        for core in 0..self.cores.len() {
            if let Some(worker) = self.worker(core) {
                worker.waiting.insert(session, now);
            }
            self.poke(core);
        }
    }

    fn admits(&self) -> bool {
        self.db.selected && self.db.reset == reset::State::None
    }

    /// By its holder alone, which learns under which epoch it owns: a completed reset begins the next one.
    fn renew(&mut self, holder: u64) -> Option<OwnerEpoch> {
        let now = self.now;
        let expires_at = self.db.time(now) + LEASE;
        let owner = self.db.owner.as_mut().filter(|owner| owner.holder == holder)?;
        owner.expires_at = expires_at;
        self.history.leases.insert(holder, now + LEASE);
        Some(owner.epoch)
    }

    /// The owner goes on under the next epoch.
    pub(crate) fn next_epoch(&mut self) {
        let next = self.db.last_epoch + 1;
        if let (Some(owner), Ok(epoch)) = (self.db.owner.as_mut(), OwnerEpoch::try_from(next)) {
            owner.epoch = epoch;
            self.db.last_epoch = next;
        }
    }

    fn acquire(&mut self, holder: u64) -> Option<OwnerEpoch> {
        let now = self.now;
        let said = self.db.time(now);
        if self.db.owner.is_some_and(|owner| said < owner.expires_at) {
            return None;
        }
        let last = self.db.last_epoch;
        let next = match self.has(Defect::EpochReused) && last > 0 {
            true => last,
            false => last + 1,
        };
        self.demand(next > last, Invariant::C2, || {
            format!("epoch {next} after {last}")
        });
        self.db.last_epoch = next;
        let epoch = OwnerEpoch::try_from(next).ok()?;
        self.db.owner = Some(Owner {
            holder,
            epoch,
            expires_at: said + LEASE,
        });
        self.history.leases.insert(holder, now + LEASE);
        Some(epoch)
    }

    /// The placing transaction: those of the chosen nodes that no other transaction holds are locked and looked at again.
    fn place_all(&mut self, choices: &[Choice]) -> Vec<Placing> {
        let mut held = BTreeMap::new();
        for choice in choices {
            let busy = self.random.one_in(10);
            held.entry(choice.node).or_insert(busy);
        }
        let mut beside: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut placed = Vec::with_capacity(choices.len());
        for choice in choices {
            if held[&choice.node] {
                self.reach("a node's row was held");
                placed.push(Placing::Held);
                continue;
            }
            let beside = beside.entry(choice.node).or_default();
            let before = self.db.counts(choice.node);
            let uncounted = if self.has(Defect::SharedUncounted) {
                *beside
            } else {
                0
            };
            let fits = self.place(*choice, uncounted);
            let is_new = self.db.counts(choice.node) != before;
            if is_new {
                *beside += 1;
            }
            if is_new && *beside > 1 {
                self.reach("placements of one transaction shared a node");
            }
            placed.push(if fits { Placing::Done } else { Placing::Unfit });
        }
        placed
    }

    /// True also when there is nothing to be placed. `uncounted` is a planted mistake's.
    fn place(&mut self, choice: Choice, uncounted: u32) -> bool {
        let Choice { session, node, pin } = choice;
        if !self.db.wants(session) && !self.has(Defect::PlaceTwice) {
            return true;
        }
        if self
            .db
            .sessions
            .get(&session)
            .is_none_or(|session| session.archived || session.failed)
        {
            return true;
        }
        let Some(row) = self.db.nodes.get(&node).filter(|row| !row.retired) else {
            return false;
        };
        let (cordoned, limit) = (row.cordoned || row.drain.is_some(), row.max_active);
        let (held, _) = self.db.counts(node);
        let mut view = self.db.view(row, self.now);
        view.active -= uncounted.min(view.active);
        view.retained -= uncounted.min(view.retained);
        if self.has(Defect::CordonIgnored) {
            (view.cordoned, view.draining) = (false, false);
        }
        if !self.admits() {
            return false;
        }
        let wanted = required(session);
        let carries = wanted.required_labels.is_empty() || wanted.required_labels == view.labels;
        let asked = match self.has(Defect::LabelsIgnored) {
            true => Request::default(),
            false => wanted,
        };
        let fits = placement::recheck(&asked, PUBLIC_URL, pin, &view);
        if fits.is_err() && !self.has(Defect::PlaceWithoutRecheck) {
            self.reach("a placement was refused under its node's lock");
            return false;
        }
        self.demand(held < limit, Invariant::C10, || {
            format!("a placement beside {held} on a node for {limit}")
        });
        self.demand(carries, Invariant::Labels, || {
            "a placement on a node without the Session's label".to_owned()
        });
        self.demand(!cordoned, Invariant::C24, || {
            "a placement on a cordoned node".to_owned()
        });
        let id = self.db.place(session, node, pin);
        self.say(|| {
            let (id, session) = (ids::number(id.as_uuid()), ids::number(session.as_uuid()));
            format!(
                "session {session}: allocation {id} placed on node {}",
                ids::number(node.as_uuid())
            )
        });
        true
    }

    fn apply_event(&mut self, id: AllocationId, event: Event, detail: &Detail) -> bool {
        let before = self.db.allocations.get(&id).cloned();
        if before.as_ref().is_some_and(|row| row.held.is_some()) {
            return self.apply_held(id, event.into(), detail);
        }
        let mut next = self.number();
        let overtaken = self.has(Defect::GiveUpOvertaken);
        let applied = self.db.apply(id, event, detail, &mut next, self.now, overtaken);
        match applied {
            Ok(state) => {
                if let Some(before) = before {
                    self.loss_releases(&before, event);
                    self.say(|| format!("allocation {}: {event:?} -> {state:?}", ids::number(id.as_uuid())));
                    self.check_event(&before, event, detail);
                }
                true
            }
            Err(NotApplied::Refused(refused)) => {
                if matches!(event, Event::GivenUp(cause) if cause.is_overtaken_by_a_link()) {
                    self.reach("a first link overtook the give-up for want of it");
                }
                self.say(|| format!("allocation {}: {refused}", ids::number(id.as_uuid())));
                false
            }
            Err(NotApplied::Missing) => false,
        }
    }

    /// A planted defect.
    fn loss_releases(&mut self, before: &crate::database::AllocationRow, event: Event) {
        let lost = event == Event::Observed(Sighting::Absent { lost: true });
        if self.has(Defect::LossReleases)
            && before.state == AllocationState::Creating
            && lost
            && let Some(row) = self.db.allocations.get_mut(&before.id)
        {
            row.state = AllocationState::Released;
        }
    }
}

/// How often a recording or an event is tried again while the database is merely busy.
pub(crate) fn retries(purpose: Purpose) -> Option<(u32, Millis)> {
    match purpose {
        Purpose::Presence(_) | Purpose::Health(_) | Purpose::Retention(_) => Some((3, 1)),
        Purpose::Removal(_) => Some((u32::MAX, 250)),
        Purpose::Step(..) => Some((6, 50)),
        Purpose::Keeper { .. } | Purpose::Place(..) | Purpose::Chore(..) | Purpose::Nobody => None,
    }
}

pub(crate) fn recording_failed(reply: &Reply) -> Recorded {
    Recorded::Failed(match reply {
        Reply::NotOwner => RecordFailure::Epoch,
        _ => RecordFailure::Storage,
    })
}
