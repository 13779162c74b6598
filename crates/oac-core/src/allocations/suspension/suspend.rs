//! Suspending: what admits it, and the word to the runtime before it.

use std::collections::BTreeSet;

use oac_lifecycle::{
    Millis,
    suspension::{Event, Request, Stillness, may_suspend, target::Needs},
};
use oac_model::{OperationId, Time};
use oac_store::{AllocationRow, DrainIdle, Initialization, Read, SessionRow, StoreError, Tx};
use oac_wire::frames::Arguments;
use tokio::time::timeout;

use super::{
    Room, Told,
    rows::Rows,
    steps::{sent, store, suspend_of},
};
use crate::{
    Core,
    allocations::{
        limits,
        record::{ApplyError, Detail},
        steps::Done,
    },
    http::error::Chain,
    link::{Link, NotAdmitted},
};

/// What is stored about the Session, and how long it has been still by the database's clock.
pub(super) async fn stillness(
    read: &Read,
    row: &AllocationRow,
    session: &SessionRow,
    undeleted: bool,
    now: Time,
    early: bool,
) -> Result<Stillness, StoreError> {
    let (waiting, running) = read.turn_counts(session.id).await?;
    let accesses = read.file_operations(session.id).await?.len() as u64;
    let deployment = read.deployment().await?;
    let unfinished = waiting + running;
    Ok(Stillness {
        ended_turns: u64::try_from(session.last_turn)
            .unwrap_or(0)
            .saturating_sub(unfinished),
        unfinished_turns: unfinished,
        // An input is stored with its Turn, under this lock.
        pending_inputs: 0,
        open_file_operations: accesses,
        open_port_streams: 0,
        initialization_pending: row.initialization != Initialization::Complete,
        consumed_checkpoint_kept: undeleted,
        idle_for: now.millis() - session.last_activity_at.millis(),
        idle_wanted: if early {
            0
        } else {
            Millis::from(deployment.idle_seconds) * 1_000
        },
    })
}

/// Whether its node is to be emptied of idle sandboxes and another one could restore it now: then it is suspended without
/// waiting for the idle time (core.md section 15).
pub(super) async fn wanted_away(
    core: &Core,
    read: &Read,
    rows: &Rows,
    session: &SessionRow,
) -> Result<bool, StoreError> {
    let home = rows.node();
    let Some(node) = read.node(home).await?.filter(|node| {
        node.drain_requested_at.is_some()
            && node.drain_deadline_passed_at.is_none()
            && node.drain_idle == Some(DrainIdle::Suspend)
    }) else {
        return Ok(false);
    };
    let (Some(store), Some(class)) = (node.checkpoint_store, node.execution_class) else {
        return Ok(false);
    };
    let needs = Needs {
        store,
        class,
        home,
        haunted: BTreeSet::from([home]),
        failed: BTreeSet::new(),
        labels: session.required_labels.clone(),
    };
    let ready = |node| core.hub.is_ready(node, rows.row.deployment_generation);
    Ok(core.hub.memory().restore(&needs, ready, |_| false).is_some())
}

/// Under the Session's lock, in the transaction that begins to quiesce.
pub(super) async fn recheck(
    core: &Core,
    tx: &Tx,
    rows: &Rows,
    session: &SessionRow,
    early: bool,
) -> Result<(), ApplyError> {
    let early = early || wanted_away(core, tx, rows, session).await?;
    let still = stillness(tx, &rows.row, session, rows.bound().is_some(), tx.now(), early).await?;
    may_suspend(&still).map_err(|busy| {
        tracing::debug!(allocation_id = %rows.row.id, ?busy, "not suspended");
        ApplyError::Missing
    })
}

/// Under the Session's lock, in the transaction after which the suspend leaves: nothing was wanted meanwhile.
pub(super) async fn recheck_quiesced(tx: &Tx, session: &SessionRow) -> Result<(), ApplyError> {
    let (waiting, running) = tx.turn_counts(session.id).await?;
    let open = tx.file_operations(session.id).await?;
    if waiting + running == 0 && open.is_empty() && session.archived_at.is_none() {
        Ok(())
    } else {
        Err(ApplyError::Missing)
    }
}

/// Admits, quiesces the runtime, parks it, and suspends. Until then nothing is asked of the node, and no place is held
/// there: a runtime that answers nothing holds up its own allocation alone, and that not for long.
pub(super) async fn suspend(core: &Core, rows: &Rows, room: &Room) -> Result<Done, ApplyError> {
    let (Some(link), node) = (core.links.ready(rows.row.id), rows.node()) else {
        return Ok(Done::Told(Told::NotSent { node: rows.node() }));
    };
    let operation = OperationId::random();
    let detail = || Detail {
        operation: Some(operation),
        early: room.early,
        ..Detail::default()
    };
    store(core, rows, Event::QuiescingBegun(operation), detail).await?;
    match quiesce(core, &link, operation).await {
        Quieted::Busy => {
            let stored = store(core, rows, Event::QuiesceRefused, detail).await;
            // Also after a commit that was not answered: a Turn may wait.
            core.links.wake(rows.row.id);
            stored?;
            return Ok(Done::Told(Told::NotSent { node }));
        }
        Quieted::Parked => {}
        // Its link ends, and it is woken.
        Quieted::Perhaps => {
            link.end();
            return abandon(core, rows, operation).await;
        }
    }
    let Some(_place) = room.places.sending.wait(node).await else {
        return abandon(core, rows, operation).await;
    };
    match store(core, rows, Event::Quiesced, detail).await {
        Ok(_) => {}
        Err(ApplyError::Missing | ApplyError::Held(_)) => {
            return abandon(core, rows, operation).await;
        }
        Err(error) => return Err(error),
    }
    let Some(argument) = suspend_of(rows, operation, false) else {
        return Ok(Done::Failed);
    };
    let arguments = Arguments::Suspend(Box::new(argument));
    let request = Request::Suspend(operation);
    sent(core, rows, node, request, operation, arguments, limits::SUSPEND).await
}

/// What became of the word to a runtime.
enum Quieted {
    Parked,
    /// It refused, and goes on.
    Busy,
    /// It may be parked, and may not.
    Perhaps,
}

/// Has the runtime fall quiet and stay so, within [`limits::QUIESCE`] for each.
async fn quiesce(core: &Core, link: &Link, operation: OperationId) -> Quieted {
    let allocation_id = link.allocation_id();
    let asked = async {
        let client = link.admit_quiescing(core).await?;
        Ok::<_, NotAdmitted>(client.quiesce(operation).await)
    };
    match timeout(limits::QUIESCE, asked).await {
        Ok(Ok(Ok(oac_link::Quiesce::Busy))) => return Quieted::Busy,
        Ok(Ok(Ok(oac_link::Quiesce::Quiesced))) => {}
        Ok(Ok(Err(error))) => {
            tracing::info!(%allocation_id, error = %Chain(&error), "a runtime does not fall quiet");
            return Quieted::Perhaps;
        }
        Ok(Err(error)) => {
            tracing::info!(%allocation_id, error = %Chain(&error), "a runtime cannot be quiesced");
            return Quieted::Perhaps;
        }
        Err(_) => {
            tracing::warn!(event = "quiesce_unanswered", %allocation_id, "a runtime does not answer that it is to fall quiet");
            return Quieted::Perhaps;
        }
    }
    match timeout(limits::QUIESCE, link.park()).await {
        Ok(()) => Quieted::Parked,
        Err(_) => Quieted::Perhaps,
    }
}

/// Nothing was sent; what may be parked is woken.
async fn abandon(core: &Core, rows: &Rows, operation: OperationId) -> Result<Done, ApplyError> {
    store(core, rows, Event::NotSent, || Detail {
        operation: Some(operation),
        ..Detail::default()
    })
    .await?;
    Ok(Done::Stored)
}
