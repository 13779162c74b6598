//! What Core stores of an allocation that can be suspended (`oac-core`'s `allocations/suspension/{rows,write}.rs`).

use std::collections::BTreeMap;

use oac_lifecycle::{
    allocation::{self, Diagnostic, OperationState, State},
    drain::Then,
    suspension::{
        Event, Held, Progress, Request, Stillness, may_suspend,
        target::{Candidate, Needs, takes},
    },
};
use oac_model::{AllocationId, ComputePhase, Digest, NodeId, OperationId, SessionId};
use oac_wire::shapes::{Compute, Operation, Retained};

use crate::{
    agenda::Millis,
    database::{AllocationRow, Detail, OperationRow, PUBLIC_URL, required},
    defect::Defect,
    ids,
    world::World,
};

/// How long a Session is still before its sandbox is suspended; shorter than a deployment may ask for, so that a world sees
/// much of it.
const IDLE: Millis = 6_000;

/// How long a checkpoint is kept: one outlives every wake, another may end during it.
fn retention(checkpoint: OperationId) -> Millis {
    match ids::number(checkpoint.as_uuid()).is_multiple_of(2) {
        true => 1_500_000,
        false => 100_000,
    }
}

/// From its first start on.
#[derive(Debug, Clone)]
pub(crate) struct HeldRow {
    pub(crate) held: Held,
    /// On the database's clock.
    pub(crate) phase_at: Millis,
    pub(crate) retention_at: Millis,
    /// Computes as they are sent.
    pub(crate) shapes: BTreeMap<i64, Compute>,
    /// The bound checkpoint.
    pub(crate) retained: Option<Retained>,
    /// The latest resume.
    pub(crate) resume: Option<OperationId>,
    pub(crate) shown: Option<Diagnostic>,
}

impl HeldRow {
    pub(crate) fn new(node: NodeId, now: Millis) -> Self {
        Self {
            held: Held {
                state: State::Running {
                    phase: ComputePhase::Running,
                },
                deferred: None,
                node,
                leave: false,
                computes: Vec::new(),
                checkpoint: None,
                suspend: None,
                open: None,
                unobserved: Default::default(),
                restore_failures: 0,
            },
            phase_at: now,
            retention_at: 0,
            shapes: BTreeMap::new(),
            retained: None,
            resume: None,
            shown: None,
        }
    }

    pub(crate) fn current(&self) -> Option<&Compute> {
        self.shapes.get(&self.held.current()?.generation)
    }
}

/// The operation of the protocol that a request is.
pub(crate) fn kind_of(request: Request) -> Operation {
    match request {
        Request::Suspend(_) => Operation::Suspend,
        Request::Resume => Operation::Resume,
        Request::KillCompute(_) => Operation::KillCompute,
        Request::ResumeCompute => Operation::ResumeCompute,
        Request::Wake => Operation::CommandCompute,
        Request::DeleteRetained => Operation::DeleteRetained,
    }
}

impl AllocationRow {
    /// It holds one of its node's active slots; cleanup keeps the phase it found.
    pub(crate) fn holds_active(&self) -> bool {
        self.phase() != ComputePhase::Suspended
    }

    pub(crate) fn phase(&self) -> ComputePhase {
        match &self.held {
            Some(row) => row.held.phase().unwrap_or(self.last_phase),
            None => ComputePhase::Disabled,
        }
    }

    pub(crate) fn unconsumed(&self) -> bool {
        let row = self.held.as_ref();
        row.is_some_and(|row| row.held.unconsumed().is_some())
    }
}

impl World {
    /// As it is read: whether its node is to be left is the node's row.
    pub(crate) fn held_of(&self, row: &AllocationRow) -> Option<Held> {
        let mut held = row.held.as_ref()?.held.clone();
        let drain = self.db.nodes.get(&held.node).and_then(|node| node.drain);
        held.leave = drain.is_some_and(|drain| drain.passed && drain.then == Then::Terminate);
        Some(held)
    }

    /// `early`: a demand fits nowhere else.
    pub(crate) fn stillness(&self, id: SessionId, row: &AllocationRow, early: bool) -> Stillness {
        let session = &self.db.sessions[&id];
        let running = u64::from(session.running.is_some());
        let held = row.held.as_ref();
        Stillness {
            ended_turns: session.ended,
            unfinished_turns: session.asked - session.ended,
            pending_inputs: 0,
            open_file_operations: 0,
            open_port_streams: 0,
            initialization_pending: !row.initialized,
            consumed_checkpoint_kept: held.is_some_and(|row| row.held.checkpoint.is_some()),
            idle_for: self.db.time(self.now) as i64 - session.active_at as i64 - running as i64,
            idle_wanted: if early || self.wanted_away(row) {
                0
            } else {
                IDLE as i64
            },
        }
    }

    /// Its node is to be emptied of idle sandboxes, and another one could restore it now.
    fn wanted_away(&self, row: &AllocationRow) -> bool {
        let drain = self.db.nodes.get(&row.node).and_then(|node| node.drain);
        let suspends = drain.is_some_and(|drain| !drain.passed && drain.suspends);
        suspends && {
            let needs = Needs {
                haunted: [row.node].into(),
                ..needs_at(row.node, row.session)
            };
            self.db.views(self.now).iter().any(|view| {
                let candidate = Candidate {
                    node: view,
                    ready: true,
                    drained: false,
                };
                takes(&needs, Some(PUBLIC_URL), &candidate)
            })
        }
    }

    /// What is checked again in the transaction that stores an event, under the locks of what it depends on.
    fn may_store(&self, row: &AllocationRow, held: &Held, event: &Event, detail: &Detail) -> bool {
        let session = &self.db.sessions[&row.session];
        match event {
            Event::QuiescingBegun(_) => {
                may_suspend(&self.stillness(row.session, row, detail.early)).is_ok()
                    || self.has(Defect::SuspendsBusy)
            }
            Event::Quiesced => session.asked == session.ended || self.has(Defect::SuspendsBusy),
            Event::RestoreIntended(node) => self.takes_checkpoint(row, held, *node),
            Event::LossConfirmed => {
                let current = self.db.nodes.get(&row.node).and_then(|node| node.connection);
                let epoch = self.db.owner.map(|owner| owner.epoch);
                current.is_some_and(|(on, at)| detail.on == Some(on) && Some(at) == epoch)
            }
            Event::GivenUp(cause) => {
                row.cause.is_none() && !(cause.is_overtaken_by_a_link() && row.initialized)
            }
            _ => true,
        }
    }

    pub(crate) fn takes_checkpoint(&self, row: &AllocationRow, held: &Held, id: NodeId) -> bool {
        let Some(node) = self.db.nodes.get(&id).filter(|node| !node.retired) else {
            return false;
        };
        let needs = Needs {
            home: held.node,
            haunted: held.haunted(),
            failed: held.failed_at(),
            ..needs_at(held.node, row.session)
        };
        let mut view = self.db.view(node, self.now);
        if self.has(Defect::RestoreOverLimit) {
            view.active = 0;
        }
        let candidate = Candidate {
            node: &view,
            ready: self.is_ready(node.id, row.generation),
            drained: node.drain.is_some_and(|drain| drain.passed),
        };
        self.db.reset == oac_lifecycle::reset::State::None && takes(&needs, Some(PUBLIC_URL), &candidate)
    }

    fn is_ready(&self, node: NodeId, generation: oac_model::Generation) -> bool {
        let row = &self.db.nodes[&node];
        let status = row.statuses.get(&generation);
        let ready = oac_wire::frames::GenerationState::Ready;
        status.is_some_and(|status| {
            row.connection == Some((status.connection, status.epoch)) && status.state == ready
        })
    }

    /// One event, in one transaction.
    pub(crate) fn apply_held(&mut self, id: AllocationId, event: Event, detail: &Detail) -> bool {
        let now = self.db.time(self.now);
        let Some(before) = self.db.allocations.get(&id).cloned() else {
            return false;
        };
        let (Some(mut stored), Some(held)) = (before.held.clone(), self.held_of(&before)) else {
            return false;
        };
        let open = before.open().map(|op| op.id);
        let other = matches!((detail.operation, open), (Some(mine), Some(open)) if mine != open);
        if other || !self.may_store(&before, &held, &event, detail) {
            self.say(|| {
                let number = ids::number(id.as_uuid());
                format!("allocation {number}: {event:?} is not stored any more")
            });
            return false;
        }
        let applied = match self.planted(&held, &event) {
            Some(planted) => Ok(planted),
            None => held.apply(event.clone()),
        };
        let Ok(after) = applied else {
            self.say(|| {
                let number = ids::number(id.as_uuid());
                format!("allocation {number}: {event:?} is refused in {:?}", held.state)
            });
            return false;
        };
        if !write_computes(&mut stored, &held, &after, detail) {
            return false;
        }
        match (held.checkpoint, after.checkpoint) {
            (None, Some(_)) => {
                let Some(kept) = &detail.retained else {
                    return false;
                };
                stored.retained = Some((**kept).clone());
                stored.retention_at = now + retention(kept.operation_id);
            }
            (Some(_), None) => stored.retained = None,
            _ => {}
        }
        let mut row = before.clone();
        write_operation(&mut row, &held, &after, &event, detail);
        if let Some(open) = after.open.filter(|open| open.request == Request::Resume) {
            stored.resume = detail.operation.map(ids::operation).or(stored.resume);
            debug_assert!(open.node == after.node);
        }
        if after.phase() != held.phase() {
            row.last_phase = held.phase().unwrap_or(row.last_phase);
            stored.phase_at = now;
            stored.shown = None;
        }
        row.node = after.node;
        row.cause = row.cause.or(match after.state {
            State::CleanupPending { cause, .. } => Some(cause),
            _ => after.deferred,
        });
        if self.has(Defect::CleanupRegains) && after.cleaning() {
            row.last_phase = ComputePhase::Running;
        }
        if after.state.kind() != before.state {
            row.state = after.state.kind();
            row.diagnostic = None;
            crate::database::revoke(&mut row, true);
        }
        stored.held = after.clone();
        row.held = Some(stored);
        self.say(|| {
            let number = ids::number(id.as_uuid());
            format!("allocation {number}: {event:?} -> {:?}", after.state)
        });
        self.db.allocations.insert(id, row);
        // A sandbox that is to wake is admitted by a link of its own: one that is open still, because the runtime was never
        // parked, is ended.
        let wakes = after.phase() == Some(ComputePhase::Waking) && held.phase() != Some(ComputePhase::Waking);
        if wakes && !self.has(Defect::LinkStaysOpen) {
            for life in self.cores.iter_mut().filter_map(|core| core.life.as_mut()) {
                life.linked.remove(&id);
            }
        }
        if after.phase().is_none() && held.phase().is_some() {
            self.interrupts(before.session);
        }
        if after.state == State::Released && held.state != State::Released {
            self.db.count_attempt(id);
        }
        self.check_held(&before, &held, &after, &event, detail);
        true
    }

    /// The Turn that ran in a sandbox that is given up.
    fn interrupts(&mut self, id: SessionId) {
        if let Some(session) = self.db.sessions.get_mut(&id)
            && let Some(turn) = session.running.take()
        {
            session.ended = session.ended.max(turn);
            session.waiting = session.asked > session.ended;
        }
    }
}

/// Every node of a world keeps its checkpoints in one store, and is of one class.
fn needs_at(home: NodeId, session: SessionId) -> Needs {
    Needs {
        store: ids::store(0),
        class: Digest::of("class"),
        home,
        haunted: Default::default(),
        failed: Default::default(),
        labels: required(session).required_labels,
    }
}

/// False when the answer lacks what is to be stored of it.
fn write_computes(stored: &mut HeldRow, before: &Held, after: &Held, detail: &Detail) -> bool {
    for compute in &after.computes {
        let Some(was) = before.compute(compute.generation) else {
            let Some(shape) = &detail.shape else { return false };
            stored.shapes.insert(compute.generation, (**shape).clone());
            continue;
        };
        if compute.seen && !was.seen {
            let shown = detail
                .shape
                .as_ref()
                .filter(|shape| shape.generation == compute.generation);
            let Some(native) = shown.and_then(|shape| shape.id.0.clone()) else {
                return false;
            };
            if let Some(shape) = stored.shapes.get_mut(&compute.generation) {
                shape.id = Some(native).into();
            }
        }
    }
    true
}

fn write_operation(row: &mut AllocationRow, before: &Held, after: &Held, event: &Event, detail: &Detail) {
    let open = row.open().map(|op| op.id);
    let base = |held: &Held| held.state.open();
    let was = before.open.map(|open| open.progress == Progress::Sent);
    let now = after.open.map(|open| open.progress == Progress::Sent);
    if let (None, Some(intent)) = (before.open, after.open) {
        row.operations.push(OperationRow {
            id: detail.operation.unwrap_or(0),
            kind: kind_of(intent.request),
            state: OperationState::Intent,
            node: intent.node,
            on: None,
        });
        return;
    }
    if *event == Event::Base(allocation::Event::KillIntended) {
        row.operations.push(OperationRow {
            id: detail.operation.unwrap_or(0),
            kind: Operation::Kill,
            state: OperationState::Intent,
            node: after.node,
            on: None,
        });
        return;
    }
    let over = was.is_some() && now.is_none() || base(before).is_some() && base(after) != base(before);
    let unknown = matches!(event, Event::AnswerLost)
        || before
            .open
            .is_some_and(|open| after.unobserved.contains(&open.node));
    let Some(op) = open.and_then(|open| row.operations.iter_mut().find(|op| op.id == open)) else {
        return;
    };
    match event {
        Event::MarkedSent => {
            op.state = OperationState::Sent;
            op.on = detail.connection;
        }
        Event::NotSent | Event::QuiesceRefused if over => op.state = OperationState::Rejected,
        Event::GivenUp(_) if over => op.state = OperationState::Rejected,
        _ if over && unknown => op.state = OperationState::Unconfirmed,
        _ if over => op.state = OperationState::Settled,
        _ => {}
    }
}
