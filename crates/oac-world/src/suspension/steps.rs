//! The steps that the planner names, each between its transactions (`oac-core`'s `allocations/suspension/{steps,suspend,
//! restore}.rs`): Core may end before and after every one.

use std::collections::BTreeMap;

use oac_lifecycle::{
    Millis as Time,
    allocation::Diagnostic,
    suspension::{
        Action, Answer, Busy, Event, Held, Next, Observation, Request, Snapshot, may_suspend, plan,
        rests_for,
        target::{Candidate, Needs, choose},
    },
};
use oac_model::{AllocationId, ComputePhase, ConnectionId, Generation, NodeId, RequestId};
use oac_peer::{Outcome, core::CallOutcome};
use oac_wire::frames::{Arguments, ResponseResult};

use super::calls::read;

use crate::{
    agenda::Millis,
    core::{
        MUTATION_RESERVE,
        steps::{Done, Stage, Step},
        transaction::{Purpose, Reply, Write},
    },
    database::{AllocationRow, Detail, required},
    defect::Defect,
    ids,
    world::{Happening, World},
};

const BUSY: Millis = 200;
const OBSERVE: Millis = 30_000;
const MUTATE: Millis = 60_000;

/// What a step that ended tells the watch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tell {
    Nothing,
    NotSent(NodeId),
    AnswerLost(NodeId),
    Settled(NodeId, Answer),
    Woke(NodeId),
    Observed(NodeId, Observation, Answer),
    Declined(NodeId),
    NoTarget,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldStep {
    /// One transaction, then this.
    Storing(Tell),
    Naming(RequestId),
    Looking {
        node: NodeId,
        of: Observation,
        request: RequestId,
    },
    /// That quiescing begins is being stored, or the runtime is being asked.
    Quieting(u64),
    /// That it is parked is being stored.
    Parked(u64),
    /// The target derives its compute.
    Deriving {
        target: NodeId,
        request: RequestId,
    },
    /// The target is being recorded.
    Moving {
        target: NodeId,
        operation: u64,
    },
    Mutation {
        request: Request,
        node: NodeId,
        operation: u64,
        stage: Stage,
    },
}

impl World {
    /// Plans one allocation; when it is to be looked at again.
    pub(crate) fn consider_held(&mut self, core: usize, row: AllocationRow) -> Millis {
        let now = self.now as Time;
        let (Some(held), Some(stored)) = (self.held_of(&row), row.held.as_ref()) else {
            return Millis::MAX;
        };
        let said = self.db.time(self.now) as Time;
        let mut base = self.snapshot(core, &row, false);
        base.linked = self.is_linked(core, &row, &held);
        let nodes = held.computes.iter().map(|c| c.node).chain([held.node]);
        let connected: BTreeMap<NodeId, ConnectionId> = nodes
            .filter_map(|node| Some((node, self.connected(core, node)?)))
            .collect();
        let early = self.comes_early(core, row.id);
        let still = self.stillness(row.session, &row, early);
        let quiet_in = match may_suspend(&still) {
            _ if held.phase() != Some(ComputePhase::Running) => None,
            Ok(()) => Some(0),
            Err(Busy::ActiveLately) => Some(still.idle_wanted - still.idle_for),
            Err(_) if self.has(Defect::SuspendsBusy) && self.db.sessions[&row.session].running.is_some() => {
                Some(0)
            }
            Err(_) => None,
        };
        let goes_on = match held.phase() {
            Some(ComputePhase::Running) => quiet_in.is_some(),
            phase => matches!(phase, Some(ComputePhase::Quiescing | ComputePhase::Suspending)),
        };
        let ends_sooner = if self.has(Defect::RetentionEarly) {
            60_000
        } else {
            0
        };
        let snapshot = Snapshot {
            held: &held,
            base,
            connected,
            demand: self.demand_for(&row, &held),
            quiet_in,
            phase_for: said - stored.phase_at as Time,
            retention_in: held
                .unconsumed()
                .map(|_| stored.retention_at as Time - said - ends_sooner),
            shown: stored.shown,
        };
        let may_mutate = self.lease_left(core) >= MUTATION_RESERVE || self.has(Defect::NoLeaseGate);
        let Some(worker) = self.worker(core) else {
            return Millis::MAX;
        };
        if !goes_on
            && let Some((_, session)) = worker.early.remove(&row.id)
            && held.phase() == Some(ComputePhase::Suspended)
        {
            worker.relieved.insert(session);
        }
        let watch = worker.helds.entry(row.id).or_default();
        watch.tick(&held, &snapshot.base, &snapshot.connected, now);
        let next = plan(&snapshot, watch, now);
        let rests = rests_for(&snapshot);
        match next {
            Next::Act(_) if !may_mutate => self.now + BUSY,
            Next::Act(action) => {
                if action.mutates() {
                    watch.began();
                }
                self.begin_held(core, &row, held, action);
                Millis::MAX
            }
            Next::Wait { until } => until.unwrap_or(Time::MAX).min(now + rests).max(0) as Millis,
        }
    }

    fn begin_held(&mut self, core: usize, row: &AllocationRow, held: Held, action: Action) {
        if let Action::Base(base) = action {
            return self.begin(core, row, held.state, base);
        }
        self.say(|| {
            let id = ids::number(row.id.as_uuid());
            format!("core {core}: {action:?} for allocation {id}, {:?}", held.state)
        });
        match action {
            Action::Base(_) => {}
            Action::Show(diagnostic) => self.show(core, row, diagnostic),
            Action::DropIntent => {
                self.store_held(core, row, Event::NotSent, Detail::default(), Tell::Nothing)
            }
            Action::GiveUpAnswer => {
                let node = held.open.map_or(held.node, |open| open.node);
                let tell = Tell::AnswerLost(node);
                self.store_held(core, row, Event::AnswerLost, Detail::default(), tell);
            }
            Action::Name => match self.asks(core, row, held.node, Arguments::Initial, OBSERVE) {
                Some((_, request)) => self.held_step(core, row, HeldStep::Naming(request)),
                None => self.finish_held(core, row.id, Tell::NotSent(held.node)),
            },
            Action::Look(node, of) => {
                let asked = self.question(row, of);
                let sent = asked.and_then(|asked| self.asks(core, row, node, asked, OBSERVE));
                match sent {
                    Some((_, request)) => {
                        self.held_step(core, row, HeldStep::Looking { node, of, request });
                    }
                    None => self.finish_held(core, row.id, Tell::Observed(node, of, Answer::Unknown)),
                }
            }
            Action::Suspend => {
                let operation = self.number();
                self.held_step(core, row, HeldStep::Quieting(operation));
                let event = Event::QuiescingBegun(ids::operation(operation));
                let detail = Detail {
                    early: self.comes_early(core, row.id),
                    ..Self::of_operation(operation)
                };
                self.write_held(core, row, event, detail);
            }
            Action::Restore => self.restore(core, row, &held),
            Action::KillCompute(generation) => {
                self.mutate(core, row, &held, Request::KillCompute(generation))
            }
            Action::ResumeCompute => self.mutate(core, row, &held, Request::ResumeCompute),
            Action::Wake => self.mutate(core, row, &held, Request::Wake),
            Action::DeleteRetained => self.mutate(core, row, &held, Request::DeleteRetained),
        }
    }

    pub(super) fn of_operation(operation: u64) -> Detail {
        Detail {
            operation: Some(operation),
            ..Detail::default()
        }
    }

    pub(super) fn held_step(&mut self, core: usize, row: &AllocationRow, step: HeldStep) {
        if let Some(worker) = self.worker(core) {
            worker.steps.insert(row.id, Step::Held(step));
        }
    }

    pub(super) fn write_held(&mut self, core: usize, row: &AllocationRow, event: Event, detail: Detail) {
        let Some(epoch) = self.worker(core).map(|worker| worker.epoch) else {
            return;
        };
        match self.ownership(core) {
            Some(owned) => {
                let write = Write::Held(row.id, event, Box::new(detail));
                self.submit(core, Some(owned), write, Purpose::Step(epoch, row.id));
            }
            None => self.finish_held(core, row.id, Tell::Nothing),
        }
    }

    pub(super) fn store_held(
        &mut self,
        core: usize,
        row: &AllocationRow,
        event: Event,
        detail: Detail,
        tell: Tell,
    ) {
        self.held_step(core, row, HeldStep::Storing(tell));
        self.write_held(core, row, event, detail);
    }

    fn show(&mut self, core: usize, row: &AllocationRow, diagnostic: Diagnostic) {
        let Some(epoch) = self.worker(core).map(|worker| worker.epoch) else {
            return;
        };
        self.held_step(core, row, HeldStep::Storing(Tell::Nothing));
        let write = Write::Shown(row.id, diagnostic);
        self.submit(core, Some(epoch), write, Purpose::Step(epoch, row.id));
    }

    fn restore(&mut self, core: usize, row: &AllocationRow, held: &Held) {
        let now = self.now as Time;
        let passed_over = self
            .worker(core)
            .and_then(|worker| worker.helds.get(&row.id))
            .map(|watch| watch.passed_over(now))
            .unwrap_or_default();
        let mut views = self.db.views(self.now);
        if self.has(Defect::RestoreOverLimit) {
            views.iter_mut().for_each(|view| view.active = 0);
        }
        let life = self.cores[core].life.as_ref();
        let ready = |node: NodeId| {
            life.and_then(|life| life.connections.get(life.live.get(&node)?))
                .is_some_and(|conn| conn.machine.is_ready(row.generation))
        };
        let needs = Needs {
            store: ids::store(0),
            class: oac_model::Digest::of("class"),
            home: held.node,
            haunted: held.haunted(),
            failed: held.failed_at(),
            labels: required(row.session).required_labels,
        };
        let candidates = views
            .iter()
            .filter(|view| !passed_over.contains(&view.id))
            .map(|view| {
                let drain = self.db.nodes.get(&view.id).and_then(|node| node.drain);
                Candidate {
                    node: view,
                    ready: ready(view.id),
                    drained: drain.is_some_and(|drain| drain.passed),
                }
            });
        let target = choose(&needs, Some(crate::database::PUBLIC_URL), candidates);
        let (Some(target), Some(kept)) = (target, row.held.as_ref().and_then(|row| row.retained.clone()))
        else {
            return self.finish_held(core, row.id, Tell::NoTarget);
        };
        let next = held.current().map_or(0, |compute| compute.generation) + 1;
        let Ok(generation) = Generation::try_from(next) else {
            return self.finish_held(core, row.id, Tell::NoTarget);
        };
        let derive = Arguments::NewCompute {
            generation,
            retained: Some(Box::new(kept)),
        };
        match self.asks(core, row, target, derive, OBSERVE) {
            Some((_, request)) => self.held_step(core, row, HeldStep::Deriving { target, request }),
            None => self.finish_held(core, row.id, Tell::Declined(target)),
        }
    }

    fn mutate(&mut self, core: usize, row: &AllocationRow, held: &Held, request: Request) {
        let Some(node) = held.node_of(request) else {
            return self.finish_held(core, row.id, Tell::Nothing);
        };
        let operation = self.number();
        let stage = Stage::Intending;
        let step = HeldStep::Mutation {
            request,
            node,
            operation,
            stage,
        };
        self.held_step(core, row, step);
        self.write_held(core, row, Event::Intended(request), Self::of_operation(operation));
    }

    /// A transaction of a step ended.
    pub(crate) fn held_stored(&mut self, core: usize, row: &AllocationRow, step: HeldStep, done: bool) {
        match step {
            HeldStep::Moving { target, .. } if !done => {
                self.finish_held(core, row.id, Tell::Declined(target))
            }
            _ if !done => self.finish_held(core, row.id, Tell::Nothing),
            HeldStep::Storing(tell) => self.finish_held(core, row.id, tell),
            HeldStep::Quieting(operation) => {
                let run = self.cores[core].run;
                self.after(5, 1_500, Happening::Quieted(core, run, row.id, operation));
            }
            HeldStep::Parked(operation) => {
                let node = row.node;
                let request = Request::Suspend(ids::operation(operation));
                self.mark_held(core, row, request, node, operation);
            }
            HeldStep::Moving { target, operation } => {
                self.mark_held(core, row, Request::Resume, target, operation);
            }
            HeldStep::Mutation {
                request,
                node,
                operation,
                stage,
            } => match stage {
                Stage::Intending if matches!(request, Request::KillCompute(_)) && self.random.one_in(2) => {
                    self.target_links_now(row);
                    self.mark_held(core, row, request, node, operation);
                }
                Stage::Intending => self.mark_held(core, row, request, node, operation),
                Stage::Marking(on) => self.send_held(core, row, request, node, operation, on),
                Stage::Waiting(..) => {}
            },
            HeldStep::Naming(_) | HeldStep::Looking { .. } | HeldStep::Deriving { .. } => {}
        }
    }

    fn mark_held(
        &mut self,
        core: usize,
        row: &AllocationRow,
        request: Request,
        node: NodeId,
        operation: u64,
    ) {
        let may = self.lease_left(core) >= MUTATION_RESERVE || self.has(Defect::NoLeaseGate);
        let on = self.connected(core, node).filter(|_| may);
        let Some(on) = on else {
            let detail = Self::of_operation(operation);
            return self.store_held(core, row, Event::NotSent, detail, Tell::NotSent(node));
        };
        let stage = Stage::Marking(on);
        let step = HeldStep::Mutation {
            request,
            node,
            operation,
            stage,
        };
        self.held_step(core, row, step);
        let life = self.cores[core].life.as_ref();
        let epoch = life.and_then(|life| life.connections.get(&on).map(|conn| conn.epoch));
        let detail = Detail {
            connection: epoch.map(|epoch| (on, epoch)),
            ..Self::of_operation(operation)
        };
        self.write_held(core, row, Event::MarkedSent, detail);
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "which mutation goes where, on which connection"
    )]
    fn send_held(
        &mut self,
        core: usize,
        row: &AllocationRow,
        request: Request,
        node: NodeId,
        operation: u64,
        on: ConnectionId,
    ) {
        let arguments = self.arguments_of(row, request, operation);
        let here = self.connected(core, node) == Some(on);
        let sent = arguments
            .filter(|_| here)
            .and_then(|arguments| self.asks(core, row, node, arguments, MUTATE));
        match sent {
            Some((_, asked)) => {
                let stage = Stage::Waiting(on, asked);
                let step = HeldStep::Mutation {
                    request,
                    node,
                    operation,
                    stage,
                };
                self.held_step(core, row, step);
            }
            None => {
                let detail = Self::of_operation(operation);
                self.store_held(core, row, Event::NotSent, detail, Tell::NotSent(node));
            }
        }
    }

    /// A call of a step ended.
    #[allow(clippy::too_many_arguments, reason = "what was asked, and what came of it")]
    pub(crate) fn held_answered(
        &mut self,
        core: usize,
        row: &AllocationRow,
        step: HeldStep,
        node: NodeId,
        answered: RequestId,
        outcome: &CallOutcome,
    ) {
        let compute = match outcome {
            CallOutcome::Answered(Outcome::Success(Some(ResponseResult::Compute(compute)))) => {
                Some(compute.clone())
            }
            _ => None,
        };
        match step {
            HeldStep::Naming(request) if request == answered => match compute {
                Some(shape) => {
                    let detail = Detail {
                        shape: Some(shape),
                        ..Detail::default()
                    };
                    self.store_held(core, row, Event::Named, detail, Tell::Nothing);
                }
                None => self.finish_held(core, row.id, Tell::NotSent(node)),
            },
            HeldStep::Deriving { target, request } if request == answered => match compute {
                Some(shape) => {
                    let operation = self.number();
                    self.held_step(core, row, HeldStep::Moving { target, operation });
                    let detail = Detail {
                        shape: Some(shape),
                        ..Self::of_operation(operation)
                    };
                    self.write_held(core, row, Event::RestoreIntended(target), detail);
                }
                None => self.finish_held(core, row.id, Tell::Declined(target)),
            },
            HeldStep::Looking { node, of, request } if request == answered => {
                self.looked_at(core, row, node, of, outcome);
            }
            HeldStep::Mutation {
                request,
                node,
                operation,
                stage: Stage::Waiting(_, asked),
            } if asked == answered => self.mutated(core, row, request, node, operation, outcome),
            _ => {}
        }
    }

    fn looked_at(
        &mut self,
        core: usize,
        row: &AllocationRow,
        node: NodeId,
        of: Observation,
        outcome: &CallOutcome,
    ) {
        let (answer, state) = read(of, outcome);
        let tell = Tell::Observed(node, of, answer);
        let event = Event::Observed { node, of, answer };
        let held = self.held_of(row);
        let changes = held.is_some_and(|held| held.apply(event.clone()).is_ok_and(|next| next != held));
        let verifies = self.has(Defect::ComputeVerifies) && of == Observation::Resume;
        if verifies {
            self.history.verified.remove(&row.id);
        } else if of == Observation::Resume && answer == Answer::Running {
            self.history.verified.insert(row.id);
        }
        if !changes {
            return self.finish_held(core, row.id, tell);
        }
        let detail = Detail {
            shape: state.as_ref().map(|state| Box::new(state.compute.clone())),
            retained: state.and_then(|state| state.retained.0.map(Box::new)),
            answered_by: Some(node),
            ..Detail::default()
        };
        self.store_held(core, row, event, detail, tell);
    }

    fn mutated(
        &mut self,
        core: usize,
        row: &AllocationRow,
        request: Request,
        node: NodeId,
        operation: u64,
        outcome: &CallOutcome,
    ) {
        let of = match request {
            Request::Suspend(_) => Observation::Suspend,
            _ => Observation::Resume,
        };
        let (answer, state) = read(of, outcome);
        if request == Request::Resume && answer == Answer::Running {
            self.history.verified.insert(row.id);
        }
        if request == Request::DeleteRetained && answer == Answer::Done {
            self.reach("a used checkpoint was deleted");
        }
        let (event, tell) = match answer {
            Answer::Unknown => (Event::AnswerLost, Tell::AnswerLost(node)),
            answer => {
                let held = self.held_of(row);
                let after = held.and_then(|held| held.apply(Event::Answered(answer)).ok());
                let unknown = after.is_some_and(|after| after.unobserved.contains(&node));
                let tell = match request {
                    _ if unknown => Tell::AnswerLost(node),
                    Request::Wake => Tell::Woke(node),
                    _ => Tell::Settled(node, answer),
                };
                (Event::Answered(answer), tell)
            }
        };
        let detail = Detail {
            shape: state.as_ref().map(|state| Box::new(state.compute.clone())),
            retained: state.and_then(|state| state.retained.0.map(Box::new)),
            answered_by: Some(node),
            ..Self::of_operation(operation)
        };
        self.store_held(core, row, event, detail, tell);
    }

    pub(crate) fn finish_held(&mut self, core: usize, id: AllocationId, tell: Tell) {
        let now = self.now as Time;
        let held = self.db.allocations.get(&id).and_then(|row| self.held_of(row));
        if let Some(worker) = self.worker(core)
            && let Some(watch) = worker.helds.get_mut(&id)
        {
            match tell {
                Tell::Nothing => {}
                Tell::NotSent(node) => watch.not_sent(node, now),
                Tell::AnswerLost(node) => watch.answer_lost(node, now),
                Tell::Settled(node, answer) => watch.settled(node, answer),
                Tell::Woke(node) => {
                    watch.settled(node, Answer::Done);
                    watch.woke(now);
                }
                Tell::Observed(node, of, answer) => {
                    if let Some(held) = &held {
                        watch.observed(held, node, of, answer, now);
                    }
                }
                Tell::Declined(node) => watch.declined(node, now),
                Tell::NoTarget => watch.no_target(now),
            }
        }
        self.finish(core, id, Done::Stored);
    }

    pub(crate) fn held_reply(reply: &Reply) -> Option<bool> {
        match reply {
            Reply::Applied(done) => Some(*done),
            _ => None,
        }
    }
}
