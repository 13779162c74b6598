//! Storing what happened: one event, one transaction, the difference as rows.

use std::collections::BTreeSet;

use oac_lifecycle::{
    allocation::{self, Cause, Sighting, State},
    suspension::{Event, Held, Open, Progress, Request},
};
use oac_model::{AllocationId, ComputePhase, NodeId, OperationId};
use oac_store::{
    AllocationRow, CheckpointRow, ComputeRow, DeploymentLock, NewOperation, OperationKind, OperationRow,
    OperationState, Tx,
};
use serde_json::json;

use super::{
    restore,
    rows::{Rows, about, kind_of},
    suspend,
};
use crate::{
    Core,
    allocations::{
        GivenUp, effects,
        record::{Applied, ApplyError, Detail, cause_to, diagnostic, is_overtaken, revoke},
    },
};

/// Stores one event of an allocation as it was read a moment ago.
pub(super) async fn store(
    core: &Core,
    id: AllocationId,
    event: Event,
    detail: Detail<'_>,
) -> Result<Applied, ApplyError> {
    let known = core
        .store
        .single()
        .allocation(id)
        .await?
        .ok_or(ApplyError::Missing)?;
    store_for(core, &known, event, detail).await
}

/// The same, of a row that is known already.
pub(in crate::allocations) async fn store_for(
    core: &Core,
    known: &AllocationRow,
    event: Event,
    detail: Detail<'_>,
) -> Result<Applied, ApplyError> {
    let ownership = core.owner.ownership().ok_or(ApplyError::Missing)?;
    let tx = core.store.begin(&ownership).await?;
    if matches!(event, Event::RestoreIntended(_)) {
        tx.lock_deployment(DeploymentLock::Shared).await?;
    }
    let mut nodes = Vec::new();
    for id in locked(known, &event) {
        nodes.extend(tx.lock_node(id).await?);
    }
    let lost_on = |node: &oac_store::NodeRow| {
        detail.on.is_some()
            && node.connection_id == detail.on
            && node.connection_epoch == Some(ownership.epoch)
    };
    if event == Event::LossConfirmed && !nodes.iter().any(lost_on) {
        return Err(ApplyError::Missing);
    }
    let session = tx
        .lock_session(known.session_id)
        .await?
        .ok_or(ApplyError::Missing)?;
    let row = tx.lock_allocation(known.id).await?.ok_or(ApplyError::Missing)?;
    if row.node_id != known.node_id {
        return Err(ApplyError::Missing);
    }
    let rows = Rows::of(&tx, row).await?;
    match event {
        Event::RestoreIntended(node) => restore::recheck(core, &tx, &rows, &session, node, &nodes).await?,
        Event::QuiescingBegun(_) => suspend::recheck(core, &tx, &rows, &session, detail.early).await?,
        Event::Quiesced => suspend::recheck_quiesced(&tx, &session).await?,
        _ => {}
    }
    let before = rows.row.compute_phase;
    let (row, turns) = apply(&tx, rows, event, &detail).await?;
    // A sandbox that is to wake is admitted by a link of its own (INV-S21). Of one whose suspend was given up before its
    // runtime was parked the link may still be open, and a runtime that is linked dials no other.
    let wakes = row.compute_phase == ComputePhase::Waking && before != ComputePhase::Waking;
    let link = core.links.current(known.id).filter(|_| wakes);
    let mut slots = Vec::new();
    for node in nodes {
        slots.push((
            node.id,
            core.hub.memory().ticket(),
            tx.slot_counts(Some(node.id)).await?,
        ));
    }
    let stored = Applied { row, slots, turns }.commit(core, tx, known).await;
    // However the commit was answered: it may be stored, and a link that ends too much is opened again.
    if let Some(link) = link {
        link.end();
    }
    stored
}

/// The nodes whose counts the event may change, ascending.
fn locked(known: &AllocationRow, event: &Event) -> BTreeSet<NodeId> {
    let changes = matches!(
        event,
        Event::RestoreIntended(_)
            | Event::NotSent
            | Event::Answered(_)
            | Event::Observed { .. }
            | Event::LossConfirmed
            | Event::Base(allocation::Event::Observed(Sighting::Absent { .. }))
    );
    let home = known.node_id.filter(|_| changes);
    let target = match event {
        Event::RestoreIntended(node) => Some(*node),
        _ => None,
    };
    home.into_iter().chain(target).collect()
}

/// Gives it up inside the caller's transaction, which holds the Session's lock. Nothing it holds is freed by that.
pub(in crate::allocations) async fn give_up(
    tx: &Tx,
    row: AllocationRow,
    cause: Cause,
) -> Result<GivenUp, ApplyError> {
    let rows = Rows::of(tx, row).await?;
    if rows.row.cause.is_some() {
        return Ok(GivenUp {
            row: rows.row,
            turns: Vec::new(),
        });
    }
    let (row, turns) = apply(tx, rows, Event::GivenUp(cause), &Detail::default()).await?;
    Ok(GivenUp { row, turns })
}

/// Discards its former computes at those of these nodes that are offline, whose locks the caller's transaction holds, and the
/// Session's. Names the nodes; none when there is nothing to discard.
pub(in crate::allocations) async fn forget(
    tx: &Tx,
    row: AllocationRow,
    offline: &BTreeSet<NodeId>,
) -> Result<BTreeSet<NodeId>, ApplyError> {
    let rows = Rows::of(tx, row).await?;
    let held = rows.held()?;
    let elsewhere = held.elsewhere().map(|compute| compute.node);
    let nodes: BTreeSet<NodeId> = elsewhere.filter(|node| offline.contains(node)).collect();
    if !nodes.is_empty() {
        apply(tx, rows, Event::Forgotten(nodes.clone()), &Detail::default()).await?;
    }
    Ok(nodes)
}

/// Applies an event to locked rows.
async fn apply(
    tx: &Tx,
    rows: Rows,
    event: Event,
    detail: &Detail<'_>,
) -> Result<(AllocationRow, Vec<oac_model::TurnId>), ApplyError> {
    let before = rows.held()?;
    let open = open_of(&rows.operations);
    // What this process works on must be what is stored as open.
    if let (Some(mine), Some(open)) = (detail.operation, open)
        && mine != open.id
    {
        return Err(ApplyError::Missing);
    }
    if matches!(event, Event::GivenUp(cause) if is_overtaken(&rows.row, cause)) {
        return Err(ApplyError::Missing);
    }
    let after = before.apply(event.clone())?;
    write_computes(tx, &rows, &before, &after, detail).await?;
    write_checkpoint(tx, &rows, &before, &after, detail).await?;
    write_operation(tx, &rows, &before, &after, &event, detail).await?;
    let was = rows.row;
    let mut row = was.clone();
    write_row(tx, &was, &mut row, &after, &event).await?;
    if row != was {
        tx.save_allocation(&mut row).await?;
    }
    if row.released_at.is_some() && was.released_at.is_none() {
        tx.release_placement(row.placement_id).await?;
    }
    let turns = effects::after(tx, &was, &row).await?;
    Ok((row, turns))
}

fn open_of(operations: &[OperationRow]) -> Option<&OperationRow> {
    let open = |op: &&OperationRow| matches!(op.state, OperationState::Intent | OperationState::Sent);
    operations.iter().rev().find(open)
}

async fn write_computes(
    tx: &Tx,
    rows: &Rows,
    before: &Held,
    after: &Held,
    detail: &Detail<'_>,
) -> Result<(), ApplyError> {
    let id = rows.row.id;
    for compute in &after.computes {
        let Some(was) = before.compute(compute.generation) else {
            let name = detail.compute.ok_or(ApplyError::Missing)?.name.clone();
            tx.insert_compute(&ComputeRow {
                allocation_id: id,
                generation: compute.generation,
                node_id: Some(compute.node),
                name,
                native_id: None,
                restored_from: compute.restored_from,
                failed_at: None,
                ended_at: None,
                kill_owed: false,
            })
            .await?;
            continue;
        };
        if compute.seen && !was.seen {
            let shown = detail
                .compute
                .filter(|shown| shown.generation == compute.generation);
            let native = shown
                .and_then(|shown| shown.id.0.as_deref())
                .ok_or(ApplyError::Missing)?;
            tx.set_compute_native_id(id, compute.generation, native).await?;
        }
        if compute.kill_owed && !was.kill_owed {
            tx.discard_compute(id, compute.generation).await?;
        } else if (compute.ended, compute.kill_owed) != (was.ended, was.kill_owed) {
            tx.end_compute(id, compute.generation).await?;
        }
        if compute.failed && !was.failed {
            tx.fail_compute(id, compute.generation).await?;
        }
    }
    Ok(())
}

async fn write_checkpoint(
    tx: &Tx,
    rows: &Rows,
    before: &Held,
    after: &Held,
    detail: &Detail<'_>,
) -> Result<(), ApplyError> {
    match (before.checkpoint, after.checkpoint) {
        (None, Some(_)) => {
            let kept = detail.retained.ok_or(ApplyError::Missing)?;
            let seconds = tx.deployment().await?.retention_seconds;
            tx.insert_checkpoint(&CheckpointRow {
                operation_id: kept.operation_id,
                allocation_id: rows.row.id,
                source_generation: kept.source_generation,
                source_name: kept.source_name.clone(),
                source_id: kept.source_id.clone(),
                store_id: kept.store_id,
                execution_class: kept.execution_class,
                digest: kept.digest,
                size_bytes: u64::try_from(kept.size_bytes).unwrap_or(0),
                data: kept.data.0.get().as_bytes().to_vec(),
                retention_deadline: tx.now().plus_millis(i64::from(seconds) * 1_000),
                consumed_at: None,
                deleted_at: None,
            })
            .await?;
        }
        (Some(was), None) => {
            tx.delete_checkpoint(was.operation).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn write_operation(
    tx: &Tx,
    rows: &Rows,
    before: &Held,
    after: &Held,
    event: &Event,
    detail: &Detail<'_>,
) -> Result<(), ApplyError> {
    let row = &rows.row;
    let intent = |kind, node, generation: Option<i64>| NewOperation {
        id: detail.operation.unwrap_or_else(OperationId::random),
        allocation_id: row.id,
        node_id: Some(node),
        kind,
        argument: generation.map(about),
    };
    let open = open_of(&rows.operations).map(|op| op.id);
    let settled = json!({ "answer": format!("{event:?}") });
    match (before.open, after.open) {
        (None, Some(open)) => {
            tx.insert_intent(&intent(
                kind_of(open.request),
                open.node,
                generation_of(after, open),
            ))
            .await?;
        }
        (Some(was), Some(now)) if was.progress != now.progress => {
            let sent = tx
                .mark_sent(open.ok_or(ApplyError::Missing)?, detail.connection)
                .await?;
            debug_assert!(sent && now.progress == Progress::Sent);
        }
        (Some(was), None) => {
            let id = open.ok_or(ApplyError::Missing)?;
            // Nothing is sent to a node where something is unobserved: what is so now is this one.
            let unknown = after.unobserved.contains(&was.node);
            match event {
                Event::NotSent | Event::QuiesceRefused => tx.reject_unsent(id).await?,
                Event::GivenUp(_) => tx.reject_intent(id).await?,
                _ if unknown => tx.mark_unconfirmed(id).await?,
                _ => tx.settle_operation(id, &settled).await?,
            };
        }
        _ => {}
    }
    if before.open.is_none() && after.open.is_none() {
        write_kill(
            tx,
            event,
            open,
            intent(OperationKind::Kill, after.node, None),
            detail,
        )
        .await?;
    }
    // What was observed is known; the next mutation there may begin.
    for op in &rows.operations {
        let own = !matches!(op.kind, OperationKind::Create | OperationKind::Kill);
        let node = op.node_id.unwrap_or(before.node);
        let observed = before.unobserved.contains(&node) && !after.unobserved.contains(&node);
        if own && observed && op.state == OperationState::Unconfirmed {
            tx.settle_operation(op.id, &settled).await?;
        }
    }
    Ok(())
}

/// The generation that a request is about, as far as a later reader needs it.
fn generation_of(held: &Held, open: Open) -> Option<i64> {
    match open.request {
        Request::KillCompute(generation) => Some(generation),
        Request::Resume => held.current().map(|compute| compute.generation),
        _ => None,
    }
}

/// Cleanup's `kill`.
async fn write_kill(
    tx: &Tx,
    event: &Event,
    open: Option<OperationId>,
    intent: NewOperation,
    detail: &Detail<'_>,
) -> Result<(), ApplyError> {
    match (event, open) {
        (Event::Base(allocation::Event::KillIntended), _) => {
            tx.insert_intent(&intent).await?;
        }
        (Event::Base(allocation::Event::KillAnswered), Some(id)) => {
            tx.settle_operation(id, &json!({})).await?;
        }
        (Event::MarkedSent, Some(id)) => {
            tx.mark_sent(id, detail.connection).await?;
        }
        (Event::NotSent, Some(id)) => {
            tx.reject_unsent(id).await?;
        }
        (Event::AnswerLost, Some(id)) => {
            tx.mark_unconfirmed(id).await?;
        }
        _ => {}
    }
    Ok(())
}

async fn write_row(
    tx: &Tx,
    was: &AllocationRow,
    row: &mut AllocationRow,
    after: &Held,
    event: &Event,
) -> Result<(), ApplyError> {
    if was.node_id != Some(after.node) {
        row.node_id = Some(after.node);
        tx.move_placement(row.placement_id, after.node).await?;
    }
    row.restore_failures = after.restore_failures;
    if let Some(phase) = after.phase().filter(|phase| *phase != was.compute_phase) {
        row.compute_phase = phase;
        row.compute_phase_changed_at = tx.now();
        row.diagnostic = None;
    }
    match after.state {
        State::CleanupPending { cause, .. } => row.cause = row.cause.or(cause_to(cause)),
        _ => row.cause = row.cause.or(after.deferred.and_then(cause_to)),
    }
    if after.state.kind() != was.state {
        row.state = after.state.kind();
        row.state_changed_at = tx.now();
        row.diagnostic = None;
        revoke(row, was);
    }
    if after.state == State::Released {
        row.released_at = row.released_at.or(Some(tx.now()));
    } else if let Event::Base(allocation::Event::Observed(sighting)) = event {
        let found = diagnostic(row, after.state, *sighting);
        // That a wake or a restore keeps failing is not taken back by a sandbox that is there.
        let fails = was.diagnostic == Some(oac_store::AllocationDiagnostic::ComputeUnconfirmed)
            && row.compute_phase == ComputePhase::Waking;
        if found.is_some() || !fails {
            row.diagnostic = found;
        }
    }
    Ok(())
}
