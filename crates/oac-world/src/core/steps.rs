//! The steps a plan names, each between its transactions, with Core able to end before and after every one
//! (`oac-core`'s `allocations/steps.rs`).

use oac_lifecycle::allocation::{Action, Event, Sighting, State};
use oac_model::{ConnectionId, NetworkAccess, NodeId, OwnerEpoch, RequestId, Secret};
use oac_peer::{FailureCode, Outcome, core::CallOutcome};
use oac_wire::{
    Nullable,
    frames::{Arguments, ResponseResult},
    shapes::{Bootstrap, Info, Link, LinkResource, LinkResourceKind, Operation},
};

use super::{
    MUTATION_RESERVE,
    calls::Wanted,
    connections::Who,
    transaction::{Purpose, Reply, Write},
};
use crate::{
    agenda::Millis,
    database::{AllocationRow, Detail},
    defect::Defect,
    host::engine::Status,
    suspension::steps::HeldStep,
    world::World,
};

const CREATE: Millis = 120_000;
const KILL: Millis = 60_000;
const INFO: Millis = 30_000;

/// What a step that ended tells the watch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Done {
    Stored,
    NotSent,
    CreateAnswered(ConnectionId),
    KillAnswered,
    AnswerLost,
    Looked {
        state: State,
        on: ConnectionId,
        sighting: Sighting,
    },
    Failed,
}

/// Where a step is. Whatever it waits for, this process may end there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// One transaction, then this.
    Storing(Done),
    Mutation {
        kind: Operation,
        operation: u64,
        stage: Stage,
    },
    Looking {
        state: State,
        on: ConnectionId,
        request: RequestId,
    },
    /// Of one that can be suspended.
    Held(HeldStep),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// The intent is being stored.
    Intending,
    /// The operation is being marked as sent on this connection.
    Marking(ConnectionId),
    /// The frame left.
    Waiting(ConnectionId, RequestId),
}

impl World {
    pub(crate) fn begin(&mut self, core: usize, row: &AllocationRow, state: State, action: Action) {
        self.say(|| {
            let id = crate::ids::number(row.id.as_uuid());
            format!("core {core}: {action:?} for allocation {id}, {state:?}")
        });
        match action {
            Action::DropIntent => self.store(core, row, Event::NotSent, Detail::default(), Done::Stored),
            Action::GiveUpAnswer => {
                self.store(core, row, Event::AnswerLost, Detail::default(), Done::AnswerLost);
            }
            Action::GiveUp(cause) => {
                let online = self.connected(core, row.node).is_some();
                self.history.gives_up(row.id, online);
                if cause.is_overtaken_by_a_link() {
                    self.may_link_now(row);
                }
                self.store(core, row, Event::GivenUp(cause), Detail::default(), Done::Stored);
            }
            Action::Look => self.look(core, row, state),
            Action::Create | Action::Kill => {
                let (kind, event) = match action {
                    Action::Create => (Operation::Create, Event::CreateIntended),
                    _ => (Operation::Kill, Event::KillIntended),
                };
                if self.has(Defect::ReplayCreate) && matches!(state, State::Creating(_)) {
                    return self.replay_create(core, row);
                }
                let operation = self.number();
                self.set_step(
                    core,
                    row,
                    Step::Mutation {
                        kind,
                        operation,
                        stage: Stage::Intending,
                    },
                );
                let detail = Detail {
                    operation: Some(operation),
                    ..Detail::default()
                };
                self.write(core, row, event, detail);
            }
        }
    }

    /// The runtime that is given up may come at this very moment.
    fn may_link_now(&mut self, row: &AllocationRow) {
        let host = self.hosts.iter().find(|host| host.id == row.node);
        let container = host.and_then(|host| host.engine.containers.get(&row.id)).copied();
        let runs = container.filter(|container| container.status == Status::Running);
        if let Some(container) = runs
            && self.random.one_in(2)
        {
            self.runtime_links(row.id, container.link_generation);
        }
    }

    fn set_step(&mut self, core: usize, row: &AllocationRow, step: Step) {
        if let Some(worker) = self.worker(core) {
            worker.steps.insert(row.id, step);
        }
    }

    /// In a transaction of whoever owns now (`record::store`).
    fn write(&mut self, core: usize, row: &AllocationRow, event: Event, detail: Detail) {
        let Some(epoch) = self.worker(core).map(|worker| worker.epoch) else {
            return;
        };
        match self.ownership(core) {
            Some(owned) => {
                let write = Write::Allocation(row.id, event, detail);
                self.submit(core, Some(owned), write, Purpose::Step(epoch, row.id));
            }
            None => self.finish(core, row.id, Done::Stored),
        }
    }

    fn store(&mut self, core: usize, row: &AllocationRow, event: Event, detail: Detail, done: Done) {
        self.set_step(core, row, Step::Storing(done));
        self.write(core, row, event, detail);
    }

    pub(crate) fn confirm_loss(&mut self, core: usize, row: &AllocationRow, on: ConnectionId) {
        let detail = Detail {
            on: Some(on),
            ..Detail::default()
        };
        self.store(core, row, Event::LossConfirmed, detail, Done::Stored);
    }

    pub(crate) fn connected(&self, core: usize, node: NodeId) -> Option<ConnectionId> {
        self.cores[core].life.as_ref()?.live.get(&node).copied()
    }

    /// A transaction of a step ended.
    pub(crate) fn step_stored(
        &mut self,
        core: usize,
        epoch: OwnerEpoch,
        id: oac_model::AllocationId,
        reply: &Reply,
    ) {
        let Some(step) = self
            .worker(core)
            .filter(|worker| worker.epoch == epoch)
            .and_then(|worker| worker.steps.get(&id).copied())
        else {
            return;
        };
        if let (Step::Held(step), Some(done)) = (step, Self::held_reply(reply)) {
            return match self.db.allocations.get(&id).cloned() {
                Some(row) => self.held_stored(core, &row, step, done),
                None => self.finish(core, id, Done::Stored),
            };
        }
        match reply {
            Reply::Applied(true) => {}
            // Someone else was first, or the row is gone; the next pass reads what is so.
            Reply::Applied(false) => return self.finish(core, id, Done::Stored),
            _ => return self.finish(core, id, Done::Failed),
        }
        let Some(row) = self.db.allocations.get(&id).cloned() else {
            return self.finish(core, id, Done::Stored);
        };
        match step {
            Step::Storing(done) => self.finish(core, id, done),
            Step::Mutation {
                kind,
                operation,
                stage: Stage::Intending,
            } => self.mark(core, &row, kind, operation),
            Step::Mutation {
                kind,
                operation,
                stage: Stage::Marking(on),
            } => self.send(core, &row, kind, operation, on),
            Step::Mutation { .. } | Step::Looking { .. } | Step::Held(_) => {}
        }
    }

    fn of(operation: u64) -> Detail {
        Detail {
            operation: Some(operation),
            ..Detail::default()
        }
    }

    fn mark(&mut self, core: usize, row: &AllocationRow, kind: Operation, operation: u64) {
        let may = self.lease_left(core) >= MUTATION_RESERVE || self.has(Defect::NoLeaseGate);
        let node = if kind == Operation::Kill {
            self.cleaned_at(row)
        } else {
            row.node
        };
        let on = self.connected(core, node).filter(|_| may);
        let Some(on) = on else {
            return self.store(core, row, Event::NotSent, Self::of(operation), Done::NotSent);
        };
        if self.has(Defect::SendBeforeMark) {
            return self.send(core, row, kind, operation, on);
        }
        let stage = Stage::Marking(on);
        self.set_step(
            core,
            row,
            Step::Mutation {
                kind,
                operation,
                stage,
            },
        );
        let epoch = self.cores[core]
            .life
            .as_ref()
            .and_then(|life| life.connections.get(&on).map(|conn| conn.epoch));
        let detail = Detail {
            connection: epoch.map(|epoch| (on, epoch)),
            ..Self::of(operation)
        };
        self.write(core, row, Event::MarkedSent, detail);
    }

    fn arguments(&self, row: &AllocationRow, kind: Operation) -> Arguments {
        if kind != Operation::Create {
            return Arguments::Kill;
        }
        let reference = row.reference();
        Arguments::Create(Box::new(Bootstrap {
            reference,
            session_id: row.session,
            network_access: NetworkAccess::Public,
            allowed_domains: Vec::new(),
            link: Link {
                version: 1,
                link_url: "wss://core.example/api/v1/sandbox-link".into(),
                credential: Secret::new("credential"),
                resource: LinkResource {
                    tenant_id: reference.tenant_id,
                    environment_id: reference.environment_id,
                    kind: LinkResourceKind::Allocation,
                    id: row.id,
                    generation: row.link_generation,
                },
            },
            workspace: Nullable(None),
        }))
    }

    fn send(&mut self, core: usize, row: &AllocationRow, kind: Operation, operation: u64, on: ConnectionId) {
        let Some(epoch) = self.worker(core).map(|worker| worker.epoch) else {
            return;
        };
        let wanted = Wanted {
            node: if kind == Operation::Kill {
                self.cleaned_at(row)
            } else {
                row.node
            },
            generation: row.generation,
            reference: row.reference(),
            arguments: self.arguments(row, kind),
            on,
            wait: if kind == Operation::Create { CREATE } else { KILL },
            who: Who::Step(epoch),
        };
        match self.call(core, wanted) {
            Some(request) => {
                let stage = Stage::Waiting(on, request);
                self.set_step(
                    core,
                    row,
                    Step::Mutation {
                        kind,
                        operation,
                        stage,
                    },
                );
            }
            None => self.store(core, row, Event::NotSent, Self::of(operation), Done::NotSent),
        }
    }

    /// The allocation's own node, but for a planted defect.
    fn cleaned_at(&self, row: &AllocationRow) -> NodeId {
        let elsewhere =
            self.has(Defect::CleanElsewhere) && row.state == oac_model::AllocationState::CleanupPending;
        let other = self.hosts.iter().find(|host| elsewhere && host.id != row.node);
        other.map_or(row.node, |host| host.id)
    }

    fn look(&mut self, core: usize, row: &AllocationRow, state: State) {
        let Some(epoch) = self.worker(core).map(|worker| worker.epoch) else {
            return;
        };
        let node = self.cleaned_at(row);
        let Some(on) = self.connected(core, node) else {
            return self.finish(core, row.id, Done::Stored);
        };
        let wanted = Wanted {
            node,
            generation: row.generation,
            reference: row.reference(),
            arguments: Arguments::Info,
            on,
            wait: INFO,
            who: Who::Step(epoch),
        };
        match self.call(core, wanted) {
            Some(request) => self.set_step(core, row, Step::Looking { state, on, request }),
            None => {
                let sighting = Sighting::Unanswered;
                self.looked(core, row, state, on, sighting, row.node);
            }
        }
    }

    /// A call of a step ended.
    #[allow(
        clippy::too_many_arguments,
        reason = "who was asked what, on which connection, and what came of it"
    )]
    pub(crate) fn step_answered(
        &mut self,
        core: usize,
        epoch: OwnerEpoch,
        id: oac_model::AllocationId,
        connection: ConnectionId,
        node: NodeId,
        answered: RequestId,
        outcome: CallOutcome,
    ) {
        let step = self
            .worker(core)
            .filter(|worker| worker.epoch == epoch)
            .and_then(|worker| worker.steps.get(&id).copied());
        let (Some(step), Some(row)) = (step, self.db.allocations.get(&id).cloned()) else {
            return;
        };
        match step {
            Step::Held(step) => self.held_answered(core, &row, step, node, answered, &outcome),
            Step::Looking { state, on, request } if request == answered => {
                let said = read(&row, &outcome);
                let sighting = match said {
                    Sighting::Unanswered if self.has(Defect::ReleaseOnTimeout) => {
                        Sighting::Absent { lost: false }
                    }
                    Sighting::NotFound if self.has(Defect::ReleaseOnNotFound) => {
                        Sighting::Absent { lost: false }
                    }
                    sighting => sighting,
                };
                self.history.looked((epoch, id), connection, said, self.now);
                self.looked(core, &row, state, on, sighting, node);
            }
            Step::Mutation {
                kind,
                operation,
                stage: Stage::Waiting(on, request),
            } if request == answered => {
                let detail = Detail {
                    answered_by: Some(node),
                    ..Self::of(operation)
                };
                self.mutation_answered(core, &row, kind, on, detail, &outcome);
            }
            _ => {}
        }
    }

    fn mutation_answered(
        &mut self,
        core: usize,
        row: &AllocationRow,
        kind: Operation,
        on: ConnectionId,
        detail: Detail,
        outcome: &CallOutcome,
    ) {
        let confirmed = matches!(outcome, CallOutcome::Answered(Outcome::Success(None)));
        if kind == Operation::Kill && (confirmed || self.has(Defect::KillAssumed)) {
            self.history.killed(row.id, confirmed);
            return self.store(core, row, Event::KillAnswered, detail, Done::KillAnswered);
        }
        let info = info_of(outcome).filter(|_| kind == Operation::Create);
        let Some(info) = info else {
            return self.store(core, row, Event::AnswerLost, detail, Done::AnswerLost);
        };
        let sighting = Sighting::of(info, &row.reference());
        if let Some(epoch) = self.worker(core).map(|worker| worker.epoch) {
            self.history.said((epoch, row.id), sighting);
        }
        let done = match sighting.settles_create() {
            true => Done::CreateAnswered(on),
            false => Done::AnswerLost,
        };
        self.store(core, row, Event::CreateAnswered(sighting), detail, done);
    }

    #[allow(clippy::too_many_arguments, reason = "what was asked, and what came of it")]
    fn looked(
        &mut self,
        core: usize,
        row: &AllocationRow,
        state: State,
        on: ConnectionId,
        sighting: Sighting,
        node: NodeId,
    ) {
        let done = Done::Looked { state, on, sighting };
        let settles = sighting.settles_create() && !matches!(state, State::Running { .. });
        if settles || sighting.diagnostic(state, row.initialized) != row.diagnostic {
            let detail = Detail {
                answered_by: Some(node),
                ..Detail::default()
            };
            self.store(core, row, Event::Observed(sighting), detail, done);
        } else {
            self.finish(core, row.id, done);
        }
    }

    /// A planted defect: the create is sent once more, whatever is stored.
    fn replay_create(&mut self, core: usize, row: &AllocationRow) {
        let Some(on) = self.connected(core, row.node) else {
            return;
        };
        let operation = self.number();
        self.send(core, row, Operation::Create, operation, on);
    }
}

fn info_of(outcome: &CallOutcome) -> Option<&Info> {
    match outcome {
        CallOutcome::Answered(
            Outcome::Success(Some(ResponseResult::Info(info)))
            | Outcome::Failed {
                receipt: Some(info), ..
            },
        ) => Some(info),
        _ => None,
    }
}

/// What an `info` told (`steps::look`).
fn read(row: &AllocationRow, outcome: &CallOutcome) -> Sighting {
    if let Some(info) = info_of(outcome) {
        return Sighting::of(info, &row.reference());
    }
    match outcome {
        CallOutcome::Uncertain(_) => Sighting::Unanswered,
        CallOutcome::Answered(Outcome::Failed { code, .. }) => match code {
            FailureCode::NotFound => Sighting::NotFound,
            FailureCode::Ownership => Sighting::Ownership,
            FailureCode::Unconfirmed => Sighting::Unconfirmed,
            _ => Sighting::Refused,
        },
        CallOutcome::Answered(_) => Sighting::Unconfirmed,
    }
}
