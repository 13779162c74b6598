//! The allocation worker of one ownership (`oac-core`'s `allocations/worker.rs`): it reads rows, plans, begins steps.

use std::collections::{BTreeMap, BTreeSet};

use oac_lifecycle::{
    Millis as Time,
    allocation::{Action, Next, Noted, Presence, Snapshot, State, Watch, plan},
    suspension,
};
use oac_model::{AllocationId, AllocationState, OwnerEpoch, SessionId};

use super::{
    MUTATION_RESERVE,
    steps::{Done, Step},
};
use crate::{
    agenda::Millis,
    database::AllocationRow,
    defect::Defect,
    host::engine::Status,
    world::{Happening, World},
};

const OPERATIONS_PER_NODE: usize = 8;
const IDLE_PASS: Millis = 2_000;
const FAILED_PASS: Millis = 500;
const BUSY: Millis = 200;

pub(crate) struct Worker {
    pub(crate) epoch: OwnerEpoch,
    pub(crate) watches: BTreeMap<AllocationId, Watch>,
    /// Of those that can be suspended.
    pub(crate) helds: BTreeMap<AllocationId, suspension::Watch>,
    pub(crate) steps: BTreeMap<AllocationId, Step>,
    /// Sessions without a sandbox that may need one, and when to look.
    pub(crate) waiting: BTreeMap<SessionId, Millis>,
    /// Being placed now, all by one transaction.
    pub(super) placing: Vec<SessionId>,
    /// Those that are suspended as soon as they are idle, each until then, and the Session that fits nowhere else.
    pub(crate) early: BTreeMap<AllocationId, (Millis, SessionId)>,
    /// Sessions for which one was suspended; for what a life comes through.
    pub(crate) relieved: BTreeSet<SessionId>,
    pass_at: Option<Millis>,
    began: bool,
}

impl World {
    pub(crate) fn worker_begins(&mut self, core: usize, epoch: OwnerEpoch) {
        self.worker_ends(core);
        if let Some(life) = self.cores[core].life.as_mut() {
            life.worker = Some(Worker {
                epoch,
                watches: BTreeMap::new(),
                helds: BTreeMap::new(),
                steps: BTreeMap::new(),
                waiting: BTreeMap::new(),
                placing: Vec::new(),
                early: BTreeMap::new(),
                relieved: BTreeSet::new(),
                pass_at: None,
                began: false,
            });
        }
        self.turns_begin(core, epoch);
        self.poke(core);
    }

    pub(crate) fn worker_ends(&mut self, core: usize) {
        let Some(life) = self.cores[core].life.as_mut() else {
            return;
        };
        if life.worker.take().is_some() {
            self.give_up_calls(core);
        }
    }

    pub(crate) fn worker(&mut self, core: usize) -> Option<&mut Worker> {
        self.cores[core].life.as_mut()?.worker.as_mut()
    }

    pub(crate) fn poke(&mut self, core: usize) {
        let at = self.now + 1;
        self.pass_by(core, at);
    }

    pub(super) fn pass_by(&mut self, core: usize, at: Millis) {
        let run = self.cores[core].run;
        if let Some(worker) = self.worker(core)
            && worker.pass_at.is_none_or(|planned| at < planned)
        {
            worker.pass_at = Some(at);
            self.agenda.at(at, Happening::PassDue(core, run));
        }
    }

    pub(crate) fn pass_due(&mut self, core: usize, run: u64) {
        let now = self.now;
        if !self.cores[core].is(run) {
            return;
        }
        let owns = self.ownership(core);
        let cut = self.cores[core].cut_until > now;
        let Some(worker) = self.worker(core) else {
            return;
        };
        if worker.pass_at.is_none_or(|at| at > now) {
            return;
        }
        worker.pass_at = None;
        if owns != Some(worker.epoch) {
            return self.worker_ends(core);
        }
        if cut {
            return self.pass_by(core, now + FAILED_PASS);
        }
        if !std::mem::replace(&mut worker.began, true) {
            let sessions: Vec<_> = self.db.sessions.keys().copied().collect();
            if let Some(worker) = self.worker(core) {
                worker.waiting = sessions.into_iter().map(|id| (id, 0)).collect();
            }
        }
        let rows: Vec<_> = self.db.unreleased().cloned().collect();
        let mut next = now + IDLE_PASS;
        for row in rows {
            if self
                .worker(core)
                .is_none_or(|worker| worker.steps.contains_key(&row.id))
            {
                continue;
            }
            let due = self.consider(core, row);
            next = next.min(due.max(now + 1));
        }
        let due = self.place_waiting(core);
        self.pass_by(core, next.min(due.max(now + 1)));
    }

    pub(crate) fn snapshot(&self, core: usize, row: &AllocationRow, in_flight: bool) -> Snapshot {
        let state = row.lifecycle();
        let life = self.cores[core].life.as_ref();
        let connected = life.and_then(|life| Some((life, *life.live.get(&row.node)?)));
        let host = self.hosts.iter().find(|host| host.id == row.node);
        let container = host.and_then(|host| host.engine.containers.get(&row.id));
        let runs = container.is_some_and(|c| {
            c.status == Status::Running && c.link_generation == row.link_generation && row.linkable
        });
        Snapshot {
            state,
            given_up: row.cause.filter(|_| state == State::Reserved),
            in_flight,
            node: match connected {
                Some((life, connection)) => Presence::Online {
                    connection,
                    ready: life
                        .connections
                        .get(&connection)
                        .is_some_and(|conn| conn.machine.is_ready(row.generation)),
                },
                None => Presence::Offline,
            },
            initialized: row.initialized,
            linked: runs && life.is_some_and(|life| life.linked.contains(&row.id)),
        }
    }

    /// Plans one allocation; when it is to be looked at again.
    fn consider(&mut self, core: usize, row: AllocationRow) -> Millis {
        if row.held.is_some() {
            return self.consider_held(core, row);
        }
        let now = self.now as Time;
        let snapshot = self.snapshot(core, &row, false);
        let state = snapshot.state;
        let may_mutate = self.lease_left(core) >= MUTATION_RESERVE || self.has(Defect::NoLeaseGate);
        let away = snapshot.node == Presence::Offline && self.has(Defect::GiveUpWhileAway);
        let db = &self.db;
        let Some(worker) = self.cores[core]
            .life
            .as_mut()
            .and_then(|life| life.worker.as_mut())
        else {
            return Millis::MAX;
        };
        let at_node = |step: &AllocationId| db.allocations.get(step).is_some_and(|r| r.node == row.node);
        let busy = worker.steps.keys().filter(|id| at_node(id)).count() >= OPERATIONS_PER_NODE;
        let watch = worker.watches.entry(row.id).or_default();
        if !away {
            watch.tick(&snapshot, now);
        }
        let mut next = plan(&snapshot, watch, now);
        if away {
            let present = Snapshot {
                node: Presence::Online {
                    connection: crate::ids::connection(0),
                    ready: false,
                },
                ..snapshot
            };
            watch.tick(&present, now);
            let gives_up = plan(&present, watch, now);
            if let Next::Act(Action::GiveUp(_)) = gives_up {
                next = gives_up;
            }
        }
        if self.has(Defect::ReplayCreate)
            && state == State::Creating(oac_lifecycle::allocation::Mutation::Unconfirmed)
        {
            next = Next::Act(Action::Create);
        }
        if self.has(Defect::SentTakenForUnsent)
            && state == State::Creating(oac_lifecycle::allocation::Mutation::Sent)
        {
            next = Next::Act(Action::DropIntent);
        }
        match next {
            Next::Act(Action::Create | Action::Kill | Action::Look) if busy => self.now + BUSY,
            Next::Act(Action::Create | Action::Kill) if !may_mutate => self.now + BUSY,
            Next::Act(action) => {
                self.begin(core, &row, state, action);
                Millis::MAX
            }
            Next::Wait { until } => until.map_or(Millis::MAX, |until| until.max(0) as Millis),
        }
    }

    /// A step ended: what it tells the watch, and what follows at once.
    pub(crate) fn finish(&mut self, core: usize, id: AllocationId, done: Done) {
        let now = self.now as Time;
        let one_answer = self.has(Defect::LossOnOneAnswer);
        let two_answers = self.has(Defect::LossAcrossConnections)
            && self
                .db
                .owner
                .is_some_and(|owner| self.history.lost_answers((owner.epoch, id)) >= 2);
        let row = self.db.allocations.get(&id).cloned();
        let Some(worker) = self.worker(core) else {
            return;
        };
        worker.steps.remove(&id);
        if let Some(row) = &row
            && matches!(
                row.state,
                AllocationState::Reserved | AllocationState::CleanupPending | AllocationState::Released
            )
        {
            worker.waiting.entry(row.session).or_insert(now as Millis);
        }
        let held = worker
            .helds
            .get_mut(&id)
            .filter(|_| row.as_ref().is_some_and(|row| row.held.is_some()));
        let watch = match held {
            Some(held) => &mut held.base,
            None => match worker.watches.get_mut(&id) {
                Some(watch) => watch,
                None => return,
            },
        };
        let mut lost = None;
        let mut again = 1;
        match done {
            Done::Stored => {}
            Done::NotSent => watch.not_sent(now),
            Done::CreateAnswered(on) => watch.create_answered(on, now),
            Done::KillAnswered => watch.kill_answered(),
            Done::AnswerLost => watch.answer_lost(now),
            Done::Looked { state, on, sighting } => {
                let suspected = (one_answer || two_answers)
                    && matches!(state, State::Running { .. })
                    && sighting == (oac_lifecycle::allocation::Sighting::Absent { lost: true });
                if watch.looked(state, on, sighting, now) == Noted::Loss || suspected {
                    lost = Some(on);
                }
            }
            Done::Failed => again = FAILED_PASS,
        }
        if let (Some(on), Some(row)) = (lost, row) {
            return self.confirm_loss(core, &row, on);
        }
        let at = self.now + again;
        self.pass_by(core, at);
    }
}
