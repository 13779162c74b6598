//! Turns, as little of them as suspension depends on: they run one at a time, each is started once in the sandbox, its
//! output is stored by offset before it is acknowledged, and what is wanted wakes a Session.

use oac_lifecycle::suspension::{Demand, Event, Held};
use oac_model::{AllocationId, ComputePhase, OwnerEpoch, SessionId};

use super::steps::{HeldStep, Tell};
use crate::{
    core::{
        steps::Step,
        transaction::{Purpose, Write},
    },
    database::AllocationRow,
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

/// One transaction of a Turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnStep {
    /// It is the next one, and is sent.
    Dispatched(u64),
    /// Its bytes between two offsets.
    Output(u64, u64, u64),
    Ended(u64),
}

impl World {
    pub(crate) fn turns_begin(&mut self, core: usize, epoch: OwnerEpoch) {
        if self.db.suspends {
            let run = self.cores[core].run;
            self.after(100, 1_000, Happening::TurnsDue(core, run, epoch));
        }
    }

    /// A Turn is queued, in the transaction that admits it.
    pub(crate) fn turn_asked(&mut self, id: SessionId) {
        let (suspends, now) = (self.db.suspends, self.db.time(self.now));
        let session = self.db.sessions.get_mut(&id);
        let Some(session) = session.filter(|s| suspends && !s.archived && !s.failed) else {
            return;
        };
        session.asked += 1;
        session.waiting = true;
        (session.newest_at, session.active_at) = (now, now);
    }

    pub(crate) fn demand_for(&self, row: &AllocationRow, held: &Held) -> Demand {
        let session = &self.db.sessions[&row.session];
        let since = row.held.as_ref().map_or(0, |row| row.phase_at);
        match held.phase() {
            Some(ComputePhase::Suspended) if session.asked > session.ended => {
                match session.newest_at > since {
                    true => Demand::New,
                    false => Demand::Waits,
                }
            }
            _ => Demand::None,
        }
    }

    /// The owner looks at what runs and what waits.
    pub(crate) fn turns_due(&mut self, core: usize, run: u64, epoch: OwnerEpoch) {
        let owns = self.ownership(core) == Some(epoch);
        let mine = self.worker(core).is_some_and(|worker| worker.epoch == epoch);
        if !self.cores[core].is(run) || !mine {
            return;
        }
        self.after(400, 1_200, Happening::TurnsDue(core, run, epoch));
        if !owns || self.cores[core].cut_until > self.now {
            return;
        }
        let rows: Vec<_> = self
            .db
            .unreleased()
            .filter(|row| row.held.is_some())
            .cloned()
            .collect();
        for row in rows {
            if let Some(step) = self.turn_goes_on(core, &row) {
                let write = Write::Turn(row.session, step);
                self.submit(core, Some(epoch), write, Purpose::Nobody);
            }
        }
    }

    fn turn_goes_on(&mut self, core: usize, row: &AllocationRow) -> Option<TurnStep> {
        let held = self.held_of(row)?;
        let linked = self.is_linked(core, row, &held);
        let restored = held.replaceable() && self.has(Defect::DispatchesToTarget);
        if !(linked && held.phase() == Some(ComputePhase::Running) || restored) {
            return None;
        }
        let session = self.db.sessions.get(&row.session)?.clone();
        let Some(turn) = session.running else {
            let next = session.ended + 1;
            return (next <= session.asked).then_some(TurnStep::Dispatched(next));
        };
        // It may not arrive, and is sent again with the same id.
        if self.mishap(6) {
            return None;
        }
        let (now, unread) = (self.now, self.has(Defect::EndsUnread));
        self.runtime_takes(row, turn);
        let vm = self.vm_of(row, &held)?;
        let memory = &mut vm.memory;
        memory.acked = memory.acked.max(session.output.min(memory.total));
        let (over, total) = (now >= memory.until, memory.total);
        let wrote = if over { total } else { total / 2 };
        if memory.turn != turn {
            return None;
        }
        if over && unread {
            return Some(TurnStep::Ended(turn));
        }
        if session.output < wrote {
            return Some(TurnStep::Output(turn, session.output, wrote));
        }
        (over && memory.acked == total).then_some(TurnStep::Ended(turn))
    }

    /// The runtime starts each Turn once, whatever it is sent.
    fn runtime_takes(&mut self, row: &AllocationRow, turn: u64) {
        let (total, lasts) = (1 + self.random.below(1_000), self.between(200, 4_000));
        let again = self.has(Defect::TurnAgain);
        let Some(held) = self.held_of(row) else { return };
        let (now, number) = (self.now, ids::number(row.session.as_uuid()));
        let Some(vm) = self.vm_of(row, &held) else { return };
        if vm.memory.turn >= turn && !again {
            return;
        }
        vm.memory.turn = turn;
        vm.memory.until = now + lasts;
        (vm.memory.total, vm.memory.acked) = (total, 0);
        let first = self.history.turns.insert((row.session, turn));
        self.history.wrote.insert((row.session, turn), total);
        self.reach("a Turn was started");
        self.demand(first, Invariant::S2, || {
            format!("Turn {turn} of session {number} is started twice")
        });
        self.demand(held.unconsumed().is_none(), Invariant::S21, || {
            format!("Turn {turn} of session {number} is started in a sandbox whose checkpoint is not used up")
        });
    }

    pub(crate) fn turn_step(&mut self, id: SessionId, step: TurnStep) {
        let now = self.db.time(self.now);
        // Only to a sandbox that may take it, as it is stored now.
        let linked = self.db.unreleased().any(|row| {
            let held = row.held.as_ref().filter(|_| row.session == id);
            held.is_some_and(|row| row.held.phase() == Some(ComputePhase::Running))
        }) || self.has(Defect::DispatchesToTarget);
        let wrote = |turn: u64| self.history.wrote.get(&(id, turn)).copied();
        let Some(session) = self.db.sessions.get(&id).filter(|s| !s.archived) else {
            return;
        };
        let mut session = session.clone();
        match step {
            TurnStep::Dispatched(turn)
                if linked && session.running.is_none() && turn == session.ended + 1 =>
            {
                (session.running, session.output) = (Some(turn), 0);
            }
            TurnStep::Output(turn, from, to) if session.running == Some(turn) && session.output == from => {
                session.output = to;
            }
            TurnStep::Ended(turn) if session.running == Some(turn) => {
                let (stored, wrote) = (session.output, wrote(turn));
                (session.running, session.ended) = (None, turn);
                session.waiting = session.asked > session.ended;
                session.active_at = now;
                self.reach("a Turn ended");
                self.demand(wrote == Some(stored), Invariant::S4, || {
                    format!("{stored} bytes are stored of Turn {turn}, {wrote:?} were written")
                });
            }
            _ => return,
        }
        self.db.sessions.insert(id, session);
    }

    /// The runtime answered that it is quiet, or refused, or did not answer.
    pub(crate) fn quieted(&mut self, core: usize, run: u64, id: AllocationId, operation: u64) {
        if !self.cores[core].is(run) {
            return;
        }
        let step = self
            .worker(core)
            .and_then(|worker| worker.steps.get(&id).copied());
        let mine = matches!(step, Some(Step::Held(HeldStep::Quieting(asked))) if asked == operation);
        let Some(row) = self.db.allocations.get(&id).cloned().filter(|_| mine) else {
            return;
        };
        match self.quiesces(core, id) {
            // Perhaps it is parked: whoever looks next finds an intent that was never sent.
            None => self.finish_held(core, id, Tell::Nothing),
            Some(false) => {
                self.reach("a runtime refused to fall quiet");
                self.store_held(
                    core,
                    &row,
                    Event::QuiesceRefused,
                    Self::of_operation(operation),
                    Tell::Nothing,
                );
            }
            Some(true) => {
                self.held_step(core, &row, HeldStep::Parked(operation));
                self.write_held(core, &row, Event::Quiesced, Self::of_operation(operation));
            }
        }
    }

    /// The runtime is asked to fall quiet; `None` when it does not answer.
    pub(crate) fn quiesces(&mut self, core: usize, id: AllocationId) -> Option<bool> {
        let row = self.db.allocations.get(&id).cloned()?;
        let held = self.held_of(&row)?;
        if !self.is_linked(core, &row, &held) || self.mishap(8) {
            return None;
        }
        // Something is open at its end.
        if self.mishap(12) {
            return Some(false);
        }
        let now = self.now;
        let busy_is_fine = self.has(Defect::SuspendsBusy);
        let vm = self.vm_of(&row, &held)?;
        let busy = now < vm.memory.until || vm.memory.acked < vm.memory.total;
        if busy && !busy_is_fine {
            return Some(false);
        }
        vm.parked = true;
        if let Some(life) = self.cores[core].life.as_mut() {
            life.linked.remove(&id);
        }
        self.reach("a runtime was parked");
        // Its answer may be lost.
        (!self.mishap(12)).then_some(true)
    }
}
