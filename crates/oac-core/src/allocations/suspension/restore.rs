//! Restoring: where, and the transaction that moves the allocation there with its slots.

use oac_lifecycle::suspension::{
    Event, Held, Request,
    target::{Candidate, Needs, takes},
};
use oac_model::{Generation, NodeId, OperationId};
use oac_store::{NodeRow, SessionRow, Tx};
use oac_wire::frames::{Arguments, ResponseResult};

use super::{
    Room, Told,
    rows::{Rows, retained},
    steps::{resume_of, sent, store},
};
use crate::{
    Core,
    allocations::{
        limits,
        record::{ApplyError, Detail},
        steps::{Done, request_at},
    },
    hub::CallOutcome,
    placement::{deployment_view, node_view, pressure::Wanted},
};

pub(super) fn needs(rows: &Rows, held: &Held, session: &SessionRow) -> Option<Needs> {
    let kept = rows.bound()?;
    Some(Needs {
        store: kept.store_id,
        class: kept.execution_class,
        home: held.node,
        haunted: held.haunted(),
        failed: held.failed_at(),
        labels: session.required_labels.clone(),
    })
}

/// A drain whose deadline passed lets nothing be restored any more, not even what is at home.
pub(super) fn is_drained(row: &NodeRow) -> bool {
    row.drain_requested_at.is_some() && row.drain_deadline_passed_at.is_some()
}

/// Under the locks of both nodes: the target takes the checkpoint in this transaction (INV-C10).
pub(super) async fn recheck(
    core: &Core,
    tx: &Tx,
    rows: &Rows,
    session: &SessionRow,
    target: NodeId,
    nodes: &[NodeRow],
) -> Result<(), ApplyError> {
    let row = nodes
        .iter()
        .find(|row| row.id == target)
        .ok_or(ApplyError::Missing)?;
    let deployment = deployment_view(core, tx).await?;
    let counts = tx.slot_counts(Some(target)).await?;
    let node = node_view(tx, row, counts, deployment.target).await?;
    let candidate = Candidate {
        node: &node,
        ready: core.hub.is_ready(target, rows.row.deployment_generation),
        drained: is_drained(row),
    };
    let needs = needs(rows, &rows.held()?, session).ok_or(ApplyError::Missing)?;
    let fits = !deployment.reset_in_progress && takes(&needs, deployment.public_url.as_deref(), &candidate);
    if fits {
        Ok(())
    } else {
        core.hub.memory().remember(core.hub.memory().ticket(), node);
        Err(ApplyError::Missing)
    }
}

pub(super) async fn restore(core: &Core, rows: &Rows, held: &Held, room: &Room) -> Result<Done, ApplyError> {
    let read = core.store.single();
    let none = Ok(Done::Told(Told::NoTarget));
    let Some(session) = read.session(rows.row.session_id).await? else {
        return none;
    };
    let (Some(needs), Some(kept)) = (needs(rows, held, &session), rows.bound().and_then(retained)) else {
        return none;
    };
    let home_drained = read.node(held.node).await?.is_some_and(|row| is_drained(&row));
    let target = core.hub.memory().restore(
        &needs,
        |node| core.hub.is_ready(node, rows.row.deployment_generation) && !room.passed_over.contains(&node),
        |node| node == held.node && home_drained,
    );
    let Some(target) = target else {
        // Perhaps room is made, and found at the next try.
        core.pokes.want_room(Wanted::Restore(rows.row.id));
        return none;
    };
    let Some(_place) = room.places.sending.take(target) else {
        return Ok(Done::Told(Told::Crowded));
    };
    let declined = Ok(Done::Told(Told::Declined { node: target }));
    let next = held.current().map_or(0, |compute| compute.generation) + 1;
    let Ok(generation) = Generation::try_from(next) else {
        return none;
    };
    // Its name is derived there; nothing native happens.
    let derive = Arguments::NewCompute {
        generation,
        retained: Some(Box::new(kept)),
    };
    let request = request_at(core, &rows.row, target, derive, limits::INFO);
    let CallOutcome::Ok(Some(ResponseResult::Compute(compute))) = core.hub.call(&core.owner, request).await
    else {
        return declined;
    };
    let operation = OperationId::random();
    let stored = store(core, rows, Event::RestoreIntended(target), || Detail {
        operation: Some(operation),
        compute: Some(&compute),
        ..Detail::default()
    })
    .await;
    match stored {
        Ok(_) => {}
        Err(ApplyError::Missing | ApplyError::Held(_)) => return declined,
        Err(error) => return Err(error),
    }
    tracing::info!(allocation_id = %rows.row.id, node_id = %target, generation = next, "restoring");
    let Some(argument) = resume_of(rows, operation, *compute, false) else {
        return Ok(Done::Failed);
    };
    let arguments = Arguments::Resume(Box::new(argument));
    sent(
        core,
        rows,
        target,
        Request::Resume,
        operation,
        arguments,
        limits::RESUME,
    )
    .await
}
