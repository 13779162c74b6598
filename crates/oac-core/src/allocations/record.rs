//! Storing what happened to an allocation: one function, whatever happened.
//!
//! The transition itself is decided by `oac_lifecycle::allocation::State::apply`; here its difference becomes rows: the
//! allocation, its operation, on release its placement, and what its Session is told.

use oac_lifecycle::{
    allocation::{
        Cause, CreateProof, Event, OperationState as Progress, Record, RecordError, Refused, Sighting, State,
    },
    suspension,
};
use oac_model::{AllocationId, ComputePhase, ConnectionId, NodeId, OperationId, TurnId};
use oac_store::{
    AllocationDiagnostic, AllocationRow, CleanupCause, ComputeRow, Initialization, NewOperation,
    OperationKind, OperationRow, OperationState, Read, StoreError, Tx,
};
use oac_wire::shapes::{self, Info};
use serde_json::json;

use super::{GivenUp, effects};
use crate::{Core, placement::memory::Ticket};

/// Why an event was not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("the event was not stored")]
    Store(#[from] StoreError),
    /// The allocation changed meanwhile; its next plan starts from what it is now.
    #[error("the allocation changed meanwhile")]
    Refused(#[from] Refused),
    /// The same, of one that can be suspended.
    #[error("the allocation changed meanwhile")]
    Held(#[from] suspension::Refused),
    #[error("the stored allocation cannot be read")]
    Record(#[from] RecordError),
    #[error("the allocation or its Session does not exist")]
    Missing,
}

/// Beside the event: what only its sender knows.
#[derive(Debug, Default)]
pub(super) struct Detail<'a> {
    /// CreateIntended, KillIntended: the operation's id. Otherwise the operation it is about, which must be the latest.
    pub(super) operation: Option<OperationId>,
    /// MarkedSent.
    pub(super) connection: Option<ConnectionId>,
    /// CreateIntended: SHA-256 of the fresh link credential.
    pub(super) link_digest: Option<oac_model::Digest>,
    /// CreateAnswered, Observed: what the node said.
    pub(super) info: Option<&'a Info>,
    /// A compute as a node named or showed it.
    pub(super) compute: Option<&'a shapes::Compute>,
    /// What a suspend kept.
    pub(super) retained: Option<&'a shapes::Retained>,
    /// QuiescingBegun: the idle time is not waited for.
    pub(super) early: bool,
    /// LossConfirmed: the connection both answers came on, which must still be the node's.
    pub(super) on: Option<ConnectionId>,
}

/// What a stored event led to.
#[derive(Debug)]
pub(super) struct Applied {
    pub(super) row: AllocationRow,
    /// Slots to remember with the transaction.
    pub(super) slots: Vec<(NodeId, Ticket, oac_store::SlotCounts)>,
    /// Turns that ended with it.
    pub(super) turns: Vec<TurnId>,
}

impl Applied {
    /// Commits, and tells whoever waits for what changed since `known`.
    pub(super) async fn commit(self, core: &Core, tx: Tx, known: &AllocationRow) -> Result<Self, ApplyError> {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        for (node_id, ticket, slots) in &self.slots {
            // Before the commit: whoever sees the slot free finds it free. A placement that comes first waits for the node's
            // row.
            core.hub
                .memory()
                .remember_counts(*ticket, *node_id, count(slots.active), count(slots.retained));
        }
        tx.commit().await?;
        if self.row.link_generation != known.link_generation {
            core.links.revoke(known.id);
        }
        if self.row.revision != known.revision {
            core.turns.notify(self.row.session_id, &self.turns);
        }
        let rests = |row: &AllocationRow| (row.released_at, row.compute_phase);
        if rests(&self.row) != rests(known) {
            core.pokes.reset_may_go_on(self.row.session_id);
        }
        Ok(self)
    }
}

/// The state that rows describe. `operations` as `Read::operations` gives them.
pub(super) fn state_of(row: &AllocationRow, operations: &[OperationRow]) -> Result<State, RecordError> {
    State::try_from(Record {
        state: row.state,
        phase: row.compute_phase,
        cause: row.cause.map(cause_from),
        create_settled: row.create_settled,
        create: latest(operations, OperationKind::Create).map(|op| progress(op.state)),
        kill: latest(operations, OperationKind::Kill).map(|op| progress(op.state)),
    })
}

/// Oldest first, as they are stored.
fn latest(operations: &[OperationRow], kind: OperationKind) -> Option<&OperationRow> {
    operations.iter().rev().find(|op| op.kind == kind)
}

fn progress(state: OperationState) -> Progress {
    match state {
        OperationState::Intent => Progress::Intent,
        OperationState::Sent => Progress::Sent,
        OperationState::Settled => Progress::Settled,
        OperationState::Rejected => Progress::Rejected,
        OperationState::Unconfirmed => Progress::Unconfirmed,
    }
}

/// The newest compute, and whether it is given up.
pub(super) async fn newest_compute(
    read: &Read,
    id: AllocationId,
) -> Result<Option<(ComputeRow, bool)>, StoreError> {
    let Some(compute) = read.newest_compute(id).await? else {
        return Ok(None);
    };
    let about = super::suspension::about(compute.generation);
    let operations = read.operations_in_play(id, std::slice::from_ref(&about)).await?;
    let kills = operations.iter().filter(|operation| {
        operation.kind == OperationKind::KillCompute && operation.argument.as_ref() == Some(&about)
    });
    let kills = kills.map(|operation| progress(operation.state));
    let given_up = suspension::is_given_up(compute.ended_at.is_some(), kills);
    Ok(Some((compute, given_up)))
}

/// Why an allocation is given up, as the table spells it; `None` for a reservation that was never tried.
pub(super) fn cause_to(cause: Cause) -> Option<CleanupCause> {
    Some(match cause {
        Cause::Archive => CleanupCause::Archive,
        Cause::Reset => CleanupCause::Reset,
        Cause::Discard => CleanupCause::Discard,
        Cause::Drain => CleanupCause::Drain,
        Cause::CreateFailed => CleanupCause::CreateFailed,
        Cause::CreateUnresolved => CleanupCause::CreateUnresolved,
        Cause::NeverLinked => CleanupCause::NeverLinked,
        Cause::ComputeLost => CleanupCause::ComputeLost,
        Cause::RetentionEnd => CleanupCause::RetentionEnd,
        Cause::Unsent => return None,
    })
}

pub(super) fn cause_from(cause: CleanupCause) -> Cause {
    match cause {
        CleanupCause::Archive => Cause::Archive,
        CleanupCause::Reset => Cause::Reset,
        CleanupCause::Discard => Cause::Discard,
        CleanupCause::Drain => Cause::Drain,
        CleanupCause::CreateFailed => Cause::CreateFailed,
        CleanupCause::CreateUnresolved => Cause::CreateUnresolved,
        CleanupCause::NeverLinked => Cause::NeverLinked,
        CleanupCause::ComputeLost => Cause::ComputeLost,
        CleanupCause::RetentionEnd => Cause::RetentionEnd,
    }
}

/// Stores one event in one transaction of this owner.
pub(super) async fn store(
    core: &Core,
    id: AllocationId,
    event: Event,
    detail: Detail<'_>,
) -> Result<Applied, ApplyError> {
    let Some(ownership) = core.owner.ownership() else {
        return Err(ApplyError::Missing);
    };
    let known = core
        .store
        .single()
        .allocation(id)
        .await?
        .ok_or(ApplyError::Missing)?;
    if super::suspension::owns(&known) {
        return super::suspension::store_for(core, &known, event.into(), detail).await;
    }
    let tx = core.store.begin(&ownership).await?;
    if releases(event) || event == Event::LossConfirmed {
        let node = match known.node_id {
            Some(node_id) => tx.lock_node(node_id).await?,
            None => None,
        };
        if event == Event::LossConfirmed
            && !node.is_some_and(|n| {
                detail.on.is_some()
                    && n.connection_id == detail.on
                    && n.connection_epoch == Some(ownership.epoch)
            })
        {
            return Err(ApplyError::Missing);
        }
    }
    tx.lock_session(known.session_id)
        .await?
        .ok_or(ApplyError::Missing)?;
    let row = tx.lock_allocation(id).await?.ok_or(ApplyError::Missing)?;
    apply(core, &tx, row, event, detail)
        .await?
        .commit(core, tx, &known)
        .await
}

/// Events that may release the allocation, which changes its node's counts.
fn releases(event: Event) -> bool {
    matches!(
        event,
        Event::GivenUp(_) | Event::NotSent | Event::Observed(Sighting::Absent { .. })
    )
}

/// Applies an event to a locked row, the Session being locked too, and for a release its node.
async fn apply(
    core: &Core,
    tx: &Tx,
    mut row: AllocationRow,
    event: Event,
    detail: Detail<'_>,
) -> Result<Applied, ApplyError> {
    let operations = tx.operations_in_play(row.id, &[]).await?;
    let before = state_of(&row, &operations)?;
    if event == Event::CreateIntended && row.cause.is_some() {
        // Given up before anything was sent: it is released, never begun.
        return Err(Refused { state: before, event }.into());
    }
    let state = next(&row, before, event)?;
    write_operation(tx, &row, &operations, before, event, &detail).await?;

    let was = row.clone();
    if let Event::CreateIntended = event {
        row.link_digest = detail.link_digest;
    }
    if let (Event::CreateAnswered(sighting) | Event::Observed(sighting), Some(info)) = (event, detail.info)
        && sighting.settles_create()
        && !info.provider_id.is_empty()
    {
        row.provider_id = Some(info.provider_id.clone());
        row.bootstrap_complete |= info.bootstrap_complete;
    }
    match state {
        State::Reserved => row.link_digest = None,
        State::Creating(_) => {}
        State::Running { .. } => {
            row.create_settled = true;
            row.bootstrap_complete = true;
            if was.state != state.kind() && keeps_checkpoints(tx, &row).await? {
                row.compute_phase = ComputePhase::Running;
                row.compute_phase_changed_at = tx.now();
            }
        }
        State::CleanupPending { cause, create, .. } => {
            row.cause = cause_to(cause);
            row.create_settled = create == CreateProof::Settled;
            revoke(&mut row, &was);
        }
        State::Released => {
            if let Event::GivenUp(cause) = event {
                row.cause = row.cause.or(cause_to(cause));
            }
            row.create_settled |= matches!(event, Event::Observed(_));
            row.released_at = Some(tx.now());
            revoke(&mut row, &was);
        }
    }
    if state.kind() != was.state {
        row.state = state.kind();
        row.state_changed_at = tx.now();
        row.diagnostic = None;
    }
    if let (Event::Observed(sighting), false) = (event, state == State::Released) {
        row.diagnostic = diagnostic(&row, state, sighting);
    }
    if row != was {
        tx.save_allocation(&mut row).await?;
    }
    if state == State::Released && was.released_at.is_none() {
        tx.release_placement(row.placement_id).await?;
    }
    let turns = effects::after(tx, &was, &row).await?;
    let mut slots = Vec::new();
    if let (true, Some(node_id)) = (releases(event) && state == State::Released, row.node_id) {
        slots.push((
            node_id,
            core.hub.memory().ticket(),
            tx.slot_counts(Some(node_id)).await?,
        ));
    }
    Ok(Applied { row, slots, turns })
}

/// What the event makes of a locked row.
fn next(row: &AllocationRow, before: State, event: Event) -> Result<State, Refused> {
    match event {
        Event::GivenUp(cause) if is_overtaken(row, cause) => Err(Refused { state: before, event }),
        _ if row.initialization == Initialization::Complete => before.apply(event.of_linked()),
        _ => before.apply(event),
    }
}

/// Whether what the locked row says takes the reason of a planned give-up away.
pub(super) fn is_overtaken(row: &AllocationRow, cause: Cause) -> bool {
    cause.is_overtaken_by_a_link() && row.initialization == Initialization::Complete
}

/// Whether the allocation's provider, as its generation names it, can suspend.
async fn keeps_checkpoints(tx: &Tx, row: &AllocationRow) -> Result<bool, StoreError> {
    let generation = tx.generation(row.deployment_generation).await?;
    Ok(generation.is_some_and(|generation| super::suspension::keeps_checkpoints(generation.provider)))
}

/// No link opens any more, and an open one ends: its generation has passed.
pub(super) fn revoke(row: &mut AllocationRow, was: &AllocationRow) {
    if was.link_digest.is_some() || was.state != row.state {
        row.link_digest = None;
        if let Some(next) = was.link_generation.next() {
            row.link_generation = next;
        }
    }
}

/// What an operator is shown of the allocation after an observation.
pub(super) fn diagnostic(
    row: &AllocationRow,
    state: State,
    sighting: Sighting,
) -> Option<AllocationDiagnostic> {
    use oac_lifecycle::allocation::Diagnostic;
    let initialized = row.initialization == Initialization::Complete;
    sighting
        .diagnostic(state, initialized)
        .map(|diagnostic| match diagnostic {
            Diagnostic::NodeUnavailable => AllocationDiagnostic::NodeUnavailable,
            Diagnostic::ResourceMissing => AllocationDiagnostic::ResourceMissing,
            Diagnostic::ComputeUnconfirmed => AllocationDiagnostic::ComputeUnconfirmed,
            Diagnostic::OwnershipMismatch => AllocationDiagnostic::OwnershipMismatch,
            Diagnostic::ProviderUnavailable => AllocationDiagnostic::ProviderUnavailable,
        })
}

async fn write_operation(
    tx: &Tx,
    row: &AllocationRow,
    operations: &[OperationRow],
    before: State,
    event: Event,
    detail: &Detail<'_>,
) -> Result<(), ApplyError> {
    let refused = || ApplyError::Refused(Refused { state: before, event });
    let open = operations
        .iter()
        .rev()
        .find(|op| matches!(op.state, OperationState::Intent | OperationState::Sent))
        .map(|op| op.id);
    // What this process works on must be what is stored as open.
    if let (Some(mine), Some(open)) = (detail.operation, open)
        && mine != open
    {
        return Err(refused());
    }
    let intent = |kind| NewOperation {
        id: detail.operation.unwrap_or_else(OperationId::random),
        allocation_id: row.id,
        node_id: row.node_id,
        kind,
        argument: None,
    };
    let done = match (event, open) {
        (Event::CreateIntended, _) => tx
            .insert_intent(&intent(OperationKind::Create))
            .await
            .map(|_| true)?,
        (Event::KillIntended, _) => tx
            .insert_intent(&intent(OperationKind::Kill))
            .await
            .map(|_| true)?,
        (Event::MarkedSent, Some(id)) => tx.mark_sent(id, detail.connection).await?,
        (Event::NotSent, Some(id)) => tx.reject_unsent(id).await?,
        (Event::AnswerLost, Some(id)) => tx.mark_unconfirmed(id).await?,
        (Event::KillAnswered, Some(id)) => tx.settle_operation(id, &json!({ "result": "ok" })).await?,
        (Event::CreateAnswered(sighting), Some(id)) if sighting.settles_create() => {
            tx.settle_operation(id, &outcome(detail.info)).await?
        }
        (Event::CreateAnswered(_), Some(id)) => tx.mark_unconfirmed(id).await?,
        (Event::GivenUp(_), Some(id)) => {
            // An intent that was never sent is dropped with the demand; a sent one goes on.
            tx.reject_intent(id).await?;
            true
        }
        (Event::Observed(sighting), _) if sighting.settles_create() => {
            for op in operations
                .iter()
                .filter(|op| op.state == OperationState::Unconfirmed)
            {
                let proves = op.kind == OperationKind::Create || matches!(sighting, Sighting::Absent { .. });
                if proves && op.kind != OperationKind::Kill {
                    tx.settle_operation(op.id, &outcome(detail.info)).await?;
                }
            }
            true
        }
        (Event::Observed(_) | Event::LossConfirmed | Event::GivenUp(_), _) => true,
        (_, None) => false,
    };
    if done { Ok(()) } else { Err(refused()) }
}

fn outcome(info: Option<&Info>) -> serde_json::Value {
    match info {
        Some(info) => json!({
            "state": info.state,
            "provider_id": info.provider_id,
            "bootstrap_complete": info.bootstrap_complete,
            "create_settled": info.create_settled,
            "compute_lost": info.compute_lost,
        }),
        None => json!({}),
    }
}

/// Gives an allocation up inside the caller's transaction, which holds the Session's lock: archive, reset, discard.
///
/// What was sent goes to cleanup with its link revoked. A reservation, or a create that was never sent, cannot be sent any
/// more from here on; the worker releases it with its node's slots, since the node's lock comes before the Session's.
pub(super) async fn give_up(tx: &Tx, id: AllocationId, cause: Cause) -> Result<GivenUp, ApplyError> {
    let mut row = tx.lock_allocation(id).await?.ok_or(ApplyError::Missing)?;
    if super::suspension::owns(&row) {
        return super::suspension::give_up(tx, row, cause).await;
    }
    let operations = tx.operations_in_play(id, &[]).await?;
    let before = state_of(&row, &operations)?;
    let event = Event::GivenUp(cause);
    let state = next(&row, before, event)?;
    if state == before || row.cause.is_some() {
        return Ok(GivenUp {
            row,
            turns: Vec::new(),
        });
    }
    write_operation(tx, &row, &operations, before, event, &Detail::default()).await?;
    let was = row.clone();
    row.cause = cause_to(cause);
    row.diagnostic = None;
    if let State::CleanupPending { create, .. } = state {
        row.state = state.kind();
        row.state_changed_at = tx.now();
        row.create_settled = create == CreateProof::Settled;
    } else if row.state != oac_model::AllocationState::Reserved {
        row.state = oac_model::AllocationState::Reserved;
        row.state_changed_at = tx.now();
    }
    row.link_digest = None;
    if let Some(next) = was.link_generation.next() {
        row.link_generation = next;
    }
    tx.save_allocation(&mut row).await?;
    let turns = effects::after(tx, &was, &row).await?;
    Ok(GivenUp { row, turns })
}
