//! Core's rows, and the transactions that change them. Each happens at one moment, as locks make it look.
//!
//! What an event does to an allocation is decided by `oac_lifecycle`; rows hold what the store's columns hold, and a
//! state is read back from them each time, so that nothing but what is stored survives a Core.

use std::collections::BTreeMap;

use oac_lifecycle::{
    allocation::{Afterwards, Cause, CreateProof, Event, OperationState, Record, Refused, State},
    drain::Then,
    limits::{CREATE_ATTEMPTS, ONLINE_WINDOW},
    placement::{self, Deployment, Mode, TargetStatus},
    reset,
};
use oac_model::{
    AllocationId, AllocationState, ComputePhase, ConnectionId, Digest, Generation, NodeId, OwnerEpoch,
    Reference, SessionId, Time,
};
use oac_wire::shapes::{Compute, Operation, Retained};

use crate::{agenda::Millis, ids, suspension::rows::HeldRow};

pub(crate) const PUBLIC_URL: &str = "https://core.example";

/// The one label there is.
fn label() -> BTreeMap<String, String> {
    [("zone".to_owned(), "a".to_owned())].into()
}

/// What a Session requires of its node, said when it was created: some a label.
pub(crate) fn required(id: SessionId) -> placement::Request {
    placement::Request {
        required_labels: match ids::number(id.as_uuid()) % 4 {
            3 => label(),
            _ => BTreeMap::new(),
        },
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// A process.
    pub(crate) holder: u64,
    pub(crate) epoch: OwnerEpoch,
    /// On the database's clock.
    pub(crate) expires_at: Millis,
}

#[derive(Debug, Clone)]
pub(crate) struct StatusRow {
    pub(crate) state: oac_wire::frames::GenerationState,
    pub(crate) connection: ConnectionId,
    pub(crate) epoch: OwnerEpoch,
}

#[derive(Debug, Clone)]
pub(crate) struct NodeRow {
    pub(crate) id: NodeId,
    pub(crate) managing: bool,
    /// The generation it was enrolled under.
    pub(crate) enrolled: Generation,
    pub(crate) pin: Option<Generation>,
    pub(crate) max_active: u32,
    pub(crate) max_retained: u32,
    /// The highest limit it ever had; no column, for the checks.
    pub(crate) highest: u32,
    /// It carries the label that some Sessions require.
    pub(crate) labelled: bool,
    pub(crate) cordoned: bool,
    pub(crate) drain: Option<DrainRow>,
    pub(crate) connection: Option<(ConnectionId, OwnerEpoch)>,
    /// On the database's clock.
    pub(crate) last_seen: Millis,
    pub(crate) statuses: BTreeMap<Generation, StatusRow>,
    pub(crate) retired: bool,
}

/// A drain that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainRow {
    /// On the database's clock.
    pub(crate) deadline: Millis,
    pub(crate) passed: bool,
    pub(crate) then: Then,
    pub(crate) release: bool,
    /// Idle sandboxes are suspended early.
    pub(crate) suspends: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SessionRow {
    pub(crate) archived: bool,
    pub(crate) failed: bool,
    pub(crate) failed_creates: u32,
    /// A Turn waits.
    pub(crate) waiting: bool,
    pub(crate) latest: Option<AllocationId>,
    // In a world whose sandboxes can be suspended, where Turns really run.
    /// Turns that were asked for, and those that are terminal; they run in order.
    pub(crate) asked: u64,
    pub(crate) ended: u64,
    pub(crate) running: Option<u64>,
    /// Bytes stored of the running one.
    pub(crate) output: u64,
    /// When the newest was asked for, and the last activity; on the database's clock.
    pub(crate) newest_at: Millis,
    pub(crate) active_at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationRow {
    pub(crate) id: u64,
    pub(crate) kind: Operation,
    pub(crate) state: OperationState,
    pub(crate) node: NodeId,
    /// Once it is marked as sent.
    pub(crate) on: Option<(ConnectionId, OwnerEpoch)>,
}

#[derive(Debug, Clone)]
pub(crate) struct AllocationRow {
    pub(crate) id: AllocationId,
    pub(crate) session: SessionId,
    pub(crate) node: NodeId,
    pub(crate) generation: Generation,
    pub(crate) state: AllocationState,
    pub(crate) cause: Option<Cause>,
    pub(crate) create_settled: bool,
    pub(crate) initialized: bool,
    pub(crate) link_generation: Generation,
    /// A credential opens its link.
    pub(crate) linkable: bool,
    pub(crate) diagnostic: Option<oac_lifecycle::allocation::Diagnostic>,
    /// Oldest first.
    pub(crate) operations: Vec<OperationRow>,
    /// Whether a create of it ever left; no column, for the checks.
    pub(crate) ever_sent: bool,
    /// Once its sandbox runs, in a world where it can be suspended.
    pub(crate) held: Option<Box<HeldRow>>,
    /// The phase that a cleanup found.
    pub(crate) last_phase: ComputePhase,
}

impl NodeRow {
    pub(crate) fn enrolled(id: NodeId, generation: Generation, max_active: u32) -> Self {
        Self {
            id,
            managing: false,
            enrolled: generation,
            pin: None,
            max_active,
            max_retained: max_active,
            highest: max_active,
            labelled: ids::number(id.as_uuid()).is_multiple_of(2),
            cordoned: false,
            drain: None,
            connection: None,
            last_seen: 0,
            statuses: BTreeMap::new(),
            retired: false,
        }
    }
}

impl AllocationRow {
    pub(crate) fn reference(&self) -> Reference {
        ids::reference(self.session, self.id)
    }

    /// What operators are shown of it.
    pub(crate) fn shown(&self) -> Option<oac_lifecycle::allocation::Diagnostic> {
        let held = self.held.as_ref().and_then(|held| held.shown);
        held.or(self.diagnostic)
    }

    pub(crate) fn is_released(&self) -> bool {
        self.state == AllocationState::Released
    }

    pub(crate) fn lifecycle(&self) -> State {
        if let Some(row) = &self.held {
            return row.held.state;
        }
        let latest = |kind| self.operations.iter().rev().find(|op| op.kind == kind);
        let record = Record {
            state: self.state,
            phase: ComputePhase::Disabled,
            cause: self.cause,
            create_settled: self.create_settled,
            create: latest(Operation::Create).map(|op| op.state),
            kill: latest(Operation::Kill).map(|op| op.state),
        };
        State::try_from(record).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn open(&self) -> Option<OperationRow> {
        let is_open = |op: &&OperationRow| matches!(op.state, OperationState::Intent | OperationState::Sent);
        self.operations.iter().rev().find(is_open).copied()
    }
}

/// Beside an event: what only its sender knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Detail {
    pub(crate) operation: Option<u64>,
    /// QuiescingBegun: without waiting for the idle time.
    pub(crate) early: bool,
    pub(crate) connection: Option<(ConnectionId, OwnerEpoch)>,
    /// LossConfirmed: the connection of both answers.
    pub(crate) on: Option<ConnectionId>,
    /// Who answered; for the checks.
    pub(crate) answered_by: Option<NodeId>,
    /// A compute as its node named or showed it.
    pub(crate) shape: Option<Box<Compute>>,
    pub(crate) retained: Option<Box<Retained>>,
}

pub(crate) enum NotApplied {
    Refused(Refused),
    Missing,
}

pub(crate) struct Database {
    /// How far its wall clock is ahead of the world's beginning; it jumps.
    pub(crate) clock: Millis,
    pub(crate) owner: Option<Owner>,
    pub(crate) last_epoch: i64,
    pub(crate) target: Generation,
    /// Sandboxes can be suspended.
    pub(crate) suspends: bool,
    /// A backend is selected: not any more once a reset is completed.
    pub(crate) selected: bool,
    pub(crate) reset: reset::State,
    /// Of each generation, the first at 0.
    pub(crate) digests: Vec<Digest>,
    pub(crate) nodes: BTreeMap<NodeId, NodeRow>,
    pub(crate) sessions: BTreeMap<SessionId, SessionRow>,
    pub(crate) allocations: BTreeMap<AllocationId, AllocationRow>,
}

impl Database {
    /// What its clock says.
    pub(crate) fn time(&self, now: Millis) -> Millis {
        now + self.clock
    }

    pub(crate) fn digest(&self, generation: Generation) -> Option<Digest> {
        self.digests.get(generation.get() as usize - 1).copied()
    }

    pub(crate) fn unreleased(&self) -> impl Iterator<Item = &AllocationRow> {
        self.allocations.values().filter(|row| !row.is_released())
    }

    /// protocol.md section 8.
    pub(crate) fn is_kept(&self, generation: Generation) -> bool {
        self.is_named_otherwise(generation) || self.unreleased().any(|row| row.generation == generation)
    }

    pub(crate) fn is_named_otherwise(&self, generation: Generation) -> bool {
        self.target == generation
            || self
                .nodes
                .values()
                .filter(|node| !node.retired)
                .any(|node| node.pin == Some(generation) || (!node.managing && generation == node.enrolled))
    }

    pub(crate) fn is_online(&self, node: &NodeRow, now: Millis) -> bool {
        let epoch = self.owner.map(|owner| owner.epoch);
        node.connection.is_some_and(|(_, at)| Some(at) == epoch)
            && self.time(now) < node.last_seen + ONLINE_WINDOW as Millis
    }

    pub(crate) fn set_target(&mut self, next: Generation) {
        self.target = next;
        self.digests.push(crate::host::digest(next));
    }

    /// Active and retained slots that are taken on a node.
    pub(crate) fn counts(&self, node: NodeId) -> (u32, u32) {
        let here = || self.unreleased().filter(|row| row.node == node);
        let active = here().filter(|row| row.holds_active()).count();
        (active as u32, here().count() as u32)
    }

    /// A node as placement sees it.
    pub(crate) fn view(&self, node: &NodeRow, now: Millis) -> placement::Node {
        let pin = match node.managing {
            true => node.pin,
            false => Some(node.enrolled),
        };
        let online = self.is_online(node, now);
        let status = |generation: Generation| {
            let status = node.statuses.get(&generation)?;
            (node.connection == Some((status.connection, status.epoch))).then_some(status.state)
        };
        use oac_wire::frames::GenerationState as Reported;
        let (active, retained) = self.counts(node.id);
        placement::Node {
            id: node.id,
            created_at: Time::from_millis(ids::number(node.id.as_uuid()) as i64)
                .unwrap_or_else(|| unreachable!("it is in 1970")),
            online,
            provider_ready: online && pin.and_then(status) == Some(Reported::Ready),
            pin,
            core_url: PUBLIC_URL.to_owned(),
            cordoned: node.cordoned,
            draining: node.drain.is_some(),
            labels: match node.labelled {
                true => label(),
                false => BTreeMap::new(),
            },
            active,
            retained,
            max_active: node.max_active,
            max_retained: node.max_retained,
            target_status: status(self.target).map(|status| match status {
                Reported::Ready => TargetStatus::Ready,
                Reported::Preparing => TargetStatus::Preparing,
                Reported::Failed => TargetStatus::Failed,
            }),
            checkpoint_store: self.suspends.then(|| ids::store(0)),
            execution_class: self.suspends.then(|| Digest::of("class")),
        }
    }

    pub(crate) fn views(&self, now: Millis) -> Vec<placement::Node> {
        let nodes = self.nodes.values().filter(|node| !node.retired);
        nodes.map(|node| self.view(node, now)).collect()
    }

    pub(crate) fn deployment(&self) -> Deployment {
        Deployment {
            reset_in_progress: self.reset != reset::State::None,
            specification_valid: true,
            installation_matches: true,
            mode: match self.selected {
                true => Mode::Nodes,
                false => Mode::Unset,
            },
            target: Some(self.target),
            public_url: Some(PUBLIC_URL.to_owned()),
        }
    }

    /// Whether a Session without a sandbox needs one.
    pub(crate) fn wants(&self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get(&id).filter(|s| !s.archived && !s.failed) else {
            return false;
        };
        if self.unreleased().any(|row| row.session == id) {
            return false;
        }
        let Some(latest) = session.latest.and_then(|id| self.allocations.get(&id)) else {
            return true;
        };
        match latest.cause.unwrap_or(Cause::Unsent).afterwards() {
            Afterwards::PlaceAgain | Afterwards::CountAttempt => true,
            Afterwards::OnDemand => session.waiting,
            Afterwards::End => false,
        }
    }

    pub(crate) fn place(&mut self, session: SessionId, node: NodeId, generation: Generation) -> AllocationId {
        let id = ids::allocation(self.allocations.len() as u64);
        let row = AllocationRow {
            id,
            session,
            node,
            generation,
            state: AllocationState::Reserved,
            cause: None,
            create_settled: false,
            initialized: false,
            link_generation: Generation::FIRST,
            linkable: false,
            diagnostic: None,
            operations: Vec::new(),
            ever_sent: false,
            held: None,
            last_phase: ComputePhase::Disabled,
        };
        self.allocations.insert(id, row);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.latest = Some(id);
        }
        id
    }

    /// One event of an allocation: `allocations/record.rs` of Core, in memory. `overtaken` is a planted defect: what was
    /// stored since the plan was made takes no reason away.
    pub(crate) fn apply(
        &mut self,
        id: AllocationId,
        event: Event,
        detail: &Detail,
        next_operation: &mut u64,
        now: Millis,
        overtaken: bool,
    ) -> Result<State, NotApplied> {
        let row = self.allocations.get(&id).ok_or(NotApplied::Missing)?;
        if event == Event::LossConfirmed {
            let current = self.nodes.get(&row.node).and_then(|node| node.connection);
            let epoch = self.owner.map(|owner| owner.epoch);
            if !current.is_some_and(|(on, at)| detail.on == Some(on) && Some(at) == epoch) {
                return Err(NotApplied::Missing);
            }
        }
        let before = row.lifecycle();
        let refused = Err(NotApplied::Refused(Refused { state: before, event }));
        if event == Event::CreateIntended && row.cause.is_some() {
            return refused;
        }
        if let Event::GivenUp(cause) = event
            && cause.is_overtaken_by_a_link()
            && row.initialized
            && !overtaken
        {
            return refused;
        }
        let taken = if row.initialized { event.of_linked() } else { event };
        let Ok(after) = before.apply(taken) else {
            return refused;
        };
        let mut row = row.clone();
        if !write_operation(&mut row, event, detail, next_operation) {
            return refused;
        }
        let was = row.state;
        match after {
            State::Reserved => row.linkable = false,
            State::Creating(_) => row.linkable |= event == Event::CreateIntended,
            State::Running { .. } => {
                row.create_settled = true;
                if self.suspends {
                    row.held = Some(Box::new(HeldRow::new(row.node, self.time(now))));
                }
            }
            State::CleanupPending { cause, create, .. } => {
                row.cause = Some(cause).filter(|cause| *cause != Cause::Unsent);
                row.create_settled = create == CreateProof::Settled;
                revoke(&mut row, was != AllocationState::CleanupPending);
            }
            State::Released => {
                if let Event::GivenUp(cause) = event {
                    row.cause = row.cause.or(Some(cause).filter(|cause| *cause != Cause::Unsent));
                }
                row.create_settled |= matches!(event, Event::Observed(_));
                revoke(&mut row, was != AllocationState::Released);
            }
        }
        if after.kind() != was {
            row.state = after.kind();
            row.diagnostic = None;
        }
        if let (Event::Observed(sighting), false) = (event, after == State::Released) {
            row.diagnostic = sighting.diagnostic(after, row.initialized);
        }
        self.allocations.insert(id, row);
        if after == State::Released && was != AllocationState::Released {
            self.count_attempt(id);
        }
        Ok(after)
    }

    /// An archive, in the transaction that archives.
    pub(crate) fn give_up(&mut self, id: AllocationId, cause: Cause) {
        let Some(row) = self.allocations.get_mut(&id) else {
            return;
        };
        let before = row.lifecycle();
        let Ok(after) = before.apply(Event::GivenUp(cause)) else {
            return;
        };
        if after == before || row.cause.is_some() {
            return;
        }
        write_operation(row, Event::GivenUp(cause), &Detail::default(), &mut 0);
        row.cause = Some(cause);
        row.diagnostic = None;
        if let State::CleanupPending { create, .. } = after {
            row.state = after.kind();
            row.create_settled = create == CreateProof::Settled;
        } else {
            // The worker releases it.
            row.state = AllocationState::Reserved;
        }
        row.linkable = true;
        revoke(row, true);
    }

    pub(crate) fn count_attempt(&mut self, id: AllocationId) {
        let row = &self.allocations[&id];
        let counts = row.cause.map(Cause::afterwards) == Some(Afterwards::CountAttempt);
        let Some(session) = self
            .sessions
            .get_mut(&row.session)
            .filter(|s| counts && !s.archived)
        else {
            return;
        };
        session.failed_creates = if row.initialized {
            0
        } else {
            session.failed_creates + 1
        };
        if session.failed_creates >= CREATE_ATTEMPTS {
            session.failed_creates = 0;
            session.failed = true;
            session.waiting = false;
        }
    }
}

pub(crate) fn revoke(row: &mut AllocationRow, changed: bool) {
    if row.linkable || changed {
        row.linkable = false;
        if let Some(next) = row.link_generation.next() {
            row.link_generation = next;
        }
    }
}

/// False when the operation is not the one that is open.
fn write_operation(row: &mut AllocationRow, event: Event, detail: &Detail, next: &mut u64) -> bool {
    let open = row.open().map(|op| op.id);
    if let (Some(mine), Some(open)) = (detail.operation, open)
        && mine != open
    {
        return false;
    }
    let intent = match event {
        Event::CreateIntended => Some(Operation::Create),
        Event::KillIntended => Some(Operation::Kill),
        _ => None,
    };
    if let Some(kind) = intent {
        // A unique index of the store: one operation in intent or sent.
        if open.is_some() {
            return false;
        }
        *next += 1;
        row.operations.push(OperationRow {
            id: detail.operation.unwrap_or(*next),
            kind,
            state: OperationState::Intent,
            node: row.node,
            on: None,
        });
        return true;
    }
    let op = open.and_then(|open| row.operations.iter_mut().find(|op| op.id == open));
    let becomes = match (event, op.as_ref().map(|op| op.state)) {
        (Event::MarkedSent, Some(OperationState::Intent)) => OperationState::Sent,
        (Event::NotSent, Some(_)) => OperationState::Rejected,
        (Event::AnswerLost, Some(OperationState::Sent)) => OperationState::Unconfirmed,
        (Event::KillAnswered, Some(OperationState::Sent)) => OperationState::Settled,
        (Event::CreateAnswered(sighting), Some(OperationState::Sent)) => match sighting.settles_create() {
            true => OperationState::Settled,
            false => OperationState::Unconfirmed,
        },
        // An intent that was never sent is dropped with the demand; a sent one goes on.
        (Event::GivenUp(_), Some(OperationState::Intent)) => OperationState::Rejected,
        (Event::Observed(sighting), _) if sighting.settles_create() => {
            for op in &mut row.operations {
                if op.state == OperationState::Unconfirmed && op.kind == Operation::Create {
                    op.state = OperationState::Settled;
                }
            }
            return true;
        }
        (Event::Observed(_) | Event::LossConfirmed | Event::GivenUp(_), _) => return true,
        _ => return false,
    };
    if let Some(op) = op {
        op.state = becomes;
        if let (Event::MarkedSent, Some(on)) = (event, detail.connection) {
            op.on = Some(on);
        }
    }
    true
}
