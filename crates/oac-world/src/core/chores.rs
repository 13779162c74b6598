//! The workers that empty nodes and give the deployment back (`oac-core`'s `drains.rs` and `resets.rs`).
//!
//! A pass reads rows and names steps; each step is one transaction that reads again and decides again. What it ends is
//! cleaned up by the allocation worker.

use std::collections::{BTreeMap, VecDeque};

use oac_lifecycle::{
    allocation::Cause,
    drain::{self, Drain, Sandbox, Then},
    reset::{self, Group, Left, Remaining},
    suspension,
};
use oac_model::{AllocationId, AllocationState, ComputePhase, NodeId, OwnerEpoch, SessionId};

use super::transaction::{Purpose, Reply, Write};
use crate::{
    agenda::Millis,
    database::{AllocationRow, Detail, DrainRow, NodeRow},
    defect::Defect,
    host::engine::Status,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

const PASS: Millis = 500;
const IDLE: Millis = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chore {
    Drains,
    Resets,
}

/// One transaction of a chore.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChoreStep {
    /// Whatever is due of a node's drain.
    Drain(NodeId),
    /// A drain ends one allocation.
    End(NodeId, AllocationId),
    /// Whatever is due of the reset.
    Reset,
    /// A reset archives one Session.
    Archive(SessionId),
}

/// Of one ownership: what each chore has still to do of its pass.
pub(crate) struct Chores {
    epoch: OwnerEpoch,
    queues: BTreeMap<Chore, VecDeque<ChoreStep>>,
}

impl World {
    pub(crate) fn chores_begin(&mut self, core: usize, epoch: OwnerEpoch) {
        let run = self.cores[core].run;
        if let Some(life) = self.cores[core].life.as_mut() {
            life.chores = Some(Chores {
                epoch,
                queues: BTreeMap::new(),
            });
        }
        for chore in [Chore::Drains, Chore::Resets] {
            self.after(0, 5, Happening::ChoreDue(core, run, epoch, chore));
        }
    }

    fn chores(&mut self, core: usize, epoch: OwnerEpoch) -> Option<&mut Chores> {
        let chores = self.cores[core].life.as_mut()?.chores.as_mut();
        chores.filter(|chores| chores.epoch == epoch)
    }

    /// One pass begins.
    pub(crate) fn chore_due(&mut self, core: usize, run: u64, epoch: OwnerEpoch, chore: Chore) {
        if !self.cores[core].is(run) || self.chores(core, epoch).is_none() {
            return;
        }
        if self.ownership(core) != Some(epoch) || self.cores[core].cut_until > self.now {
            return self.after(PASS, PASS, Happening::ChoreDue(core, run, epoch, chore));
        }
        let steps = match chore {
            Chore::Drains => self.drains_due(),
            Chore::Resets => self.reset_due(),
        };
        if let Some(chores) = self.chores(core, epoch) {
            chores.queues.insert(chore, steps.into());
        }
        self.chore_goes_on(core, epoch, chore);
    }

    fn chore_goes_on(&mut self, core: usize, epoch: OwnerEpoch, chore: Chore) {
        let run = self.cores[core].run;
        let next = self
            .chores(core, epoch)
            .and_then(|chores| chores.queues.get_mut(&chore)?.pop_front());
        if let Some(step) = next {
            return self.submit(
                core,
                Some(epoch),
                Write::Chore(step),
                Purpose::Chore(epoch, chore),
            );
        }
        let stands = match chore {
            Chore::Drains => self.db.nodes.values().any(|node| node.drain.is_some()),
            Chore::Resets => self.db.reset != reset::State::None,
        };
        let pause = if stands { PASS } else { IDLE };
        self.after(pause, pause, Happening::ChoreDue(core, run, epoch, chore));
    }

    /// A step ended. One that cannot go on holds up no other.
    pub(crate) fn chore_stored(&mut self, core: usize, epoch: OwnerEpoch, chore: Chore, reply: &Reply) {
        let run = self.cores[core].run;
        match reply {
            Reply::More(steps) => {
                if let Some(chores) = self.chores(core, epoch) {
                    let queue = chores.queues.entry(chore).or_default();
                    steps.iter().rev().for_each(|step| queue.push_front(*step));
                }
            }
            Reply::GivenBack => {
                // This Core goes on under the next epoch, once its lease says so.
                if let Some(life) = self.cores[core].life.as_mut() {
                    life.renew_now();
                }
                self.keeper_due(core, run);
            }
            Reply::NotOwner => {
                if let Some(chores) = self.chores(core, epoch) {
                    chores.queues.remove(&chore);
                }
            }
            _ => {}
        }
        self.chore_goes_on(core, epoch, chore);
    }

    pub(crate) fn chore(&mut self, step: ChoreStep) -> Reply {
        match step {
            ChoreStep::Drain(node) => self.drain_step(node),
            ChoreStep::End(node, allocation) => self.drain_ends(node, allocation),
            ChoreStep::Reset => self.reset_step(),
            ChoreStep::Archive(session) => self.reset_archives(session),
        }
    }

    /// Archives in the transaction of whoever wants it.
    pub(crate) fn archive(&mut self, id: SessionId, cause: Cause) {
        let Some(session) = self.db.sessions.get_mut(&id) else {
            return;
        };
        session.archived = true;
        session.waiting = false;
        let row = self.db.unreleased().find(|row| row.session == id);
        if let Some(row) = row.map(|row| row.id) {
            self.give_up(row, cause);
        }
        if let Some(session) = self.db.sessions.get_mut(&id) {
            (session.ended, session.running) = (session.asked, None);
        }
    }

    /// In the transaction of whoever wants it.
    pub(super) fn give_up(&mut self, id: AllocationId, cause: Cause) {
        let held = self.db.allocations.get(&id).is_some_and(|row| row.held.is_some());
        if held {
            self.apply_held(id, suspension::Event::GivenUp(cause), &Detail::default());
        } else {
            self.db.give_up(id, cause);
        }
    }

    // Drains.

    fn drain_of(&self, id: NodeId) -> Option<(&NodeRow, DrainRow, drain::Next)> {
        let row = self.db.nodes.get(&id).filter(|row| !row.retired)?;
        let stored = row.drain?;
        let drain = Drain {
            deadline: stored.deadline as oac_lifecycle::Millis,
            deadline_passed: stored.passed,
            release: stored.release,
        };
        let (active, retained) = self.db.counts(id);
        let held = drain::Held {
            active: active.into(),
            retained: retained.into(),
        };
        let ahead = if self.has(Defect::DrainTooEarly) {
            60_000
        } else {
            0
        };
        let now = (self.db.time(self.now) + ahead) as oac_lifecycle::Millis;
        Some((row, stored, drain::plan(&drain, held, now)))
    }

    fn drains_due(&self) -> Vec<ChoreStep> {
        let due = |id: &&NodeId| {
            self.drain_of(**id)
                .is_some_and(|(_, _, next)| next != drain::Next::Wait)
        };
        self.db
            .nodes
            .keys()
            .filter(due)
            .map(|id| ChoreStep::Drain(*id))
            .collect()
    }

    fn drain_step(&mut self, id: NodeId) -> Reply {
        let Some((_, stored, next)) = self.drain_of(id) else {
            return Reply::Done;
        };
        self.say(|| format!("drain of node {}: {next:?}", ids::number(id.as_uuid())));
        match next {
            drain::Next::Wait => Reply::Done,
            drain::Next::PassDeadline => {
                let said = self.db.time(self.now);
                let asked = self.history.drain_passes(id);
                self.demand(
                    asked.is_some_and(|deadline| said >= deadline),
                    Invariant::Asked,
                    || format!("a drain's deadline passes at {said}, {asked:?} was asked"),
                );
                self.set_drain(
                    id,
                    Some(DrainRow {
                        passed: true,
                        ..stored
                    }),
                );
                self.reach("a drain's deadline passed");
                Reply::More(vec![ChoreStep::Drain(id)])
            }
            drain::Next::Complete => {
                self.set_drain(id, None);
                self.history.drain_over(id);
                self.check_drained(id);
                self.reach("a drain was completed");
                Reply::Done
            }
            drain::Next::End => {
                let here = self.db.unreleased().filter(|row| row.node == id);
                let ends = here.filter(|row| ending(stored, row).is_some());
                Reply::More(ends.map(|row| ChoreStep::End(id, row.id)).collect())
            }
        }
    }

    fn set_drain(&mut self, id: NodeId, drain: Option<DrainRow>) {
        if let Some(row) = self.db.nodes.get_mut(&id) {
            row.drain = drain;
        }
    }

    /// Nothing runs on the host of a drained node that Core placed there.
    fn check_drained(&mut self, id: NodeId) {
        let here = self.hosts.iter().filter(|host| host.id == id);
        let runs = here
            .flat_map(|host| &host.engine.containers)
            .find(|(allocation, container)| {
                let row = self.db.allocations.get(allocation);
                container.status == Status::Running && row.is_some_and(|row| !row.is_released())
            })
            .map(|(allocation, _)| *allocation);
        self.demand(runs.is_none(), Invariant::Asked, || {
            format!("a drain is over and {runs:?} runs")
        });
    }

    fn drain_ends(&mut self, id: NodeId, allocation: AllocationId) -> Reply {
        let Some((_, stored, drain::Next::End)) = self.drain_of(id) else {
            return Reply::Done;
        };
        let Some(row) = self.db.allocations.get(&allocation) else {
            return Reply::Done;
        };
        let session = row.session;
        let ends = ending(stored, row).filter(|_| row.node == id);
        let Some(then) = ends else { return Reply::Done };
        let passed = self.history.drain_passed(id);
        self.demand(passed, Invariant::Asked, || {
            format!(
                "a drain that nobody wants ends allocation {}",
                ids::number(allocation.as_uuid())
            )
        });
        self.reach("a drain ended a sandbox");
        match then {
            Then::Terminate => self.give_up(allocation, Cause::Drain),
            Then::Archive => self.archive(session, Cause::Archive),
        }
        Reply::Applied(true)
    }

    // Resets.

    fn left(&self) -> Left {
        let early = self.has(Defect::ResetOverCleanup);
        let counts = |row: &&AllocationRow| !early || row.state != AllocationState::CleanupPending;
        Left {
            resources: self.db.unreleased().filter(counts).count() as u64,
            sessions: self.db.sessions.values().any(|session| !session.archived),
        }
    }

    fn reset_next(&self) -> reset::Next {
        let now = self.db.time(self.now) as oac_lifecycle::Millis;
        reset::plan(self.db.reset, self.left(), now)
    }

    /// Whether the reset archives the Session now.
    fn reset_wants(&self, id: SessionId) -> bool {
        let Some(session) = self.db.sessions.get(&id).filter(|session| !session.archived) else {
            return false;
        };
        let state = match self.db.reset {
            reset::State::Auto { .. } if self.has(Defect::ResetImpatient) => reset::State::Force,
            state => state,
        };
        state.archives(reset::Session {
            works: session.waiting,
            has_compute: self.has_compute(id),
        })
    }

    /// It holds a place for a sandbox, and the sandbox is not suspended.
    fn has_compute(&self, id: SessionId) -> bool {
        let held = |row: &AllocationRow| row.session == id && row.phase() != ComputePhase::Suspended;
        self.db.unreleased().any(held)
    }

    fn reset_due(&mut self) -> Vec<ChoreStep> {
        match self.reset_next() {
            reset::Next::Rest => Vec::new(),
            reset::Next::Wait => {
                self.check_remaining();
                Vec::new()
            }
            reset::Next::PassDeadline | reset::Next::Complete => vec![ChoreStep::Reset],
            reset::Next::Archive => {
                self.check_remaining();
                let sessions = self.db.sessions.keys().copied();
                sessions
                    .filter(|id| self.reset_wants(*id))
                    .map(ChoreStep::Archive)
                    .collect()
            }
        }
    }

    /// What operators are shown meanwhile counts each resource once.
    fn check_remaining(&mut self) {
        let group = |row: &AllocationRow| Group {
            node: Some(row.node),
            state: Some(row.state),
            given_up: row.cause.is_some(),
            works: self
                .db
                .sessions
                .get(&row.session)
                .is_some_and(|session| session.waiting),
            resources: 1,
        };
        let groups: Vec<_> = self.db.unreleased().map(group).collect();
        let remaining = Remaining::of(&groups, |_| false);
        let shown = remaining.busy + remaining.idle + remaining.cleanup;
        self.demand(shown == groups.len() as u64, Invariant::C23, || {
            format!("{remaining:?} of {}", groups.len())
        });
    }

    fn reset_step(&mut self) -> Reply {
        let next = self.reset_next();
        self.say(|| format!("reset: {next:?}"));
        match next {
            reset::Next::PassDeadline => {
                let said = self.db.time(self.now) as oac_lifecycle::Millis;
                let asked = self.history.reset;
                let due = matches!(asked, reset::State::Auto { deadline } if said >= deadline);
                self.demand(due, Invariant::Asked, || {
                    format!("a reset's deadline passes at {said}, {asked:?} was asked")
                });
                if let Ok((state, _)) = self.db.reset.apply(reset::Event::DeadlinePassed) {
                    self.db.reset = state;
                    self.history.reset = state;
                }
                self.reach("a reset's deadline passed");
                Reply::More(vec![ChoreStep::Reset])
            }
            reset::Next::Complete => {
                self.give_back();
                Reply::GivenBack
            }
            reset::Next::Rest | reset::Next::Archive | reset::Next::Wait => Reply::Done,
        }
    }

    fn reset_archives(&mut self, id: SessionId) -> Reply {
        if !self.reset_wants(id) {
            return Reply::Done;
        }
        let works = self.db.sessions.get(&id).is_some_and(|session| session.waiting);
        let placed = self.has_compute(id);
        let asked = self.history.reset;
        let wanted = match asked {
            reset::State::None => false,
            reset::State::Auto { .. } => !(works && placed),
            reset::State::Force => true,
        };
        self.demand(wanted, Invariant::Asked, || {
            format!("a reset archives a Session that works: {works}, {asked:?} was asked")
        });
        self.archive(id, Cause::Reset);
        self.reach("a reset archived a Session");
        Reply::Applied(true)
    }

    /// The deployment is given back: nodes are retired, generation and owner epoch are one higher.
    fn give_back(&mut self) {
        let row = self.db.unreleased().next().map(|row| row.id);
        self.demand(row.is_none(), Invariant::C23, || {
            format!("a reset is completed and {row:?} is left")
        });
        let holds = |host: &crate::host::Host| {
            let runs = |container: &crate::host::engine::Container| container.status == Status::Running;
            let mut receipts = host.receipts.iter();
            receipts.any(|(id, receipt)| {
                receipt.phase() != oac_provider::Phase::Tombstone
                    && host.engine.containers.get(id).is_some_and(runs)
            })
        };
        let holds = self.hosts.iter().find(|host| holds(host)).map(|host| host.number);
        self.demand(holds.is_none(), Invariant::C23, || {
            format!("a reset is completed and a sandbox runs on host {holds:?}")
        });
        self.db.reset = reset::State::None;
        self.history.reset = reset::State::None;
        self.db.selected = false;
        if let Some(next) = self.db.target.next() {
            self.db.set_target(next);
        }
        for node in self.db.nodes.values_mut() {
            self.history.removed.insert(node.id);
            node.retired = true;
            node.connection = None;
            node.statuses.clear();
        }
        let before = self.db.last_epoch;
        if !self.has(Defect::ResetKeepsEpoch) {
            self.next_epoch();
        }
        let after = self.db.owner.map_or(before, |owner| owner.epoch.get());
        self.demand(after > before, Invariant::C2, || {
            format!("epoch {after} follows a reset in {before}")
        });
        self.reach("a reset was completed");
    }
}

fn ending(drain: DrainRow, row: &AllocationRow) -> Option<Then> {
    let sandbox = Sandbox {
        state: row.state,
        phase: row.phase(),
        given_up: row.cause.is_some(),
        restorable: row.unconsumed(),
    };
    drain::ending(drain.then, drain.release, sandbox)
}
