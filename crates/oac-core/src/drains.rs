//! The worker that empties nodes (core.md section 15).
//!
//! It must guarantee that a drain ends what it was asked to end, once, and is over exactly when nothing is left; that a
//! cancel is obeyed from its commit on; and that a Core killed between any two steps goes on. `oac_lifecycle::drain` names
//! the next step from the node's row and its counts; each step is one transaction that locks the node, reads both again and
//! decides again. What is ended is cleaned up by the allocation workers, so a node that is away delays its drain and
//! nothing else.

use std::{sync::Arc, time::Duration};

use oac_lifecycle::drain::{self, Drain, Held, Next, Sandbox, Then};
use oac_model::{AllocationId, ComputePhase, NodeId};
use oac_store::{
    AllocationRow, DrainRetained, DrainThen, NodeRow, Ownership, Read, SlotCounts, StoreError, Tx,
};
use serde_json::json;

use crate::{
    Core,
    allocations::{self, Cause},
    http::{
        auth::{Audited, record_own},
        error::Chain,
    },
    placement::facts_of,
    sessions,
    task::Kind,
};

/// How long the worker rests while a node is being drained: what it waits for is seen in rows.
const PASS: Duration = Duration::from_millis(500);
/// How long without any, unless poked: a standby that takes over looks at once.
const IDLE: Duration = Duration::from_secs(5);
/// Rows read at a time.
const PAGE: u64 = 32;

/// Starts this part's worker.
pub fn start(core: &Arc<Core>) {
    core.tasks.spawn(Kind::Worker, "drains", run(core.clone()));
}

async fn run(core: Arc<Core>) {
    loop {
        let ownership = core.owner.owned().await;
        let pause = match pass(&core, &ownership).await {
            Ok(0) => IDLE,
            Ok(_) => PASS,
            Err(error) => {
                tracing::warn!(event = "drain_stalled", error = %Chain(&error), "the nodes that are drained are not known yet");
                PASS
            }
        };
        tokio::select! {
            () = core.pokes.drains.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Takes every drain as far as it goes now; how many there are.
async fn pass(core: &Core, ownership: &Ownership) -> Result<usize, StoreError> {
    let nodes = core.store.single().draining_nodes().await?;
    for row in &nodes {
        // One that cannot go on holds up no other.
        if let Err(error) = take(core, ownership, row).await {
            tracing::warn!(event = "drain_stalled", node_id = %row.id, error = %Chain(&error), "a drain does not go on yet");
        }
    }
    Ok(nodes.len())
}

async fn take(core: &Core, ownership: &Ownership, row: &NodeRow) -> Result<(), StoreError> {
    let read = core.store.single();
    // Most of the time there is nothing to do, which needs no lock.
    let counts = read.slot_counts(Some(row.id)).await?;
    let now = read.database_time().await?.millis();
    if drain_of(row).is_some_and(|drain| drain::plan(&drain, held(counts), now) != Next::Wait) {
        while step(core, ownership, row.id).await? {}
    }
    Ok(())
}

/// The drain that stands on a node.
fn drain_of(row: &NodeRow) -> Option<Drain> {
    row.drain_requested_at
        .filter(|_| row.retired_at.is_none())
        .map(|_| Drain {
            deadline: row.drain_deadline_at.map_or(0, |at| at.millis()),
            deadline_passed: row.drain_deadline_passed_at.is_some(),
            release: row.drain_retained == Some(DrainRetained::Release),
        })
}

fn held(counts: SlotCounts) -> Held {
    Held {
        active: counts.active,
        retained: counts.retained,
    }
}

/// The node under its lock, with the step that is due there.
async fn due(tx: &Tx, id: NodeId) -> Result<Option<(NodeRow, Next)>, StoreError> {
    let Some(row) = tx.lock_node(id).await? else {
        return Ok(None);
    };
    let counts = tx.slot_counts(Some(id)).await?;
    Ok(drain_of(&row).map(|drain| {
        let next = drain::plan(&drain, held(counts), tx.now().millis());
        (row, next)
    }))
}

/// One step; whether another may be due at once.
async fn step(core: &Core, ownership: &Ownership, id: NodeId) -> Result<bool, StoreError> {
    let tx = core.store.begin(ownership).await?;
    match due(&tx, id).await? {
        None | Some((_, Next::Wait)) => Ok(false),
        Some((row, Next::PassDeadline)) => {
            tx.pass_drain_deadline(id).await?;
            let entry = Audited::new("node", id, "drain_deadline");
            audit(&tx, &row, entry.details(json!({ "then": row.drain_then }))).await?;
            tx.commit().await?;
            tracing::info!(event = "drain_deadline_passed", node_id = %id, "a drain's deadline passed");
            Ok(true)
        }
        Some((row, Next::Complete)) => {
            tx.end_drain(id).await?;
            audit(&tx, &row, Audited::new("node", id, "drain_complete")).await?;
            let facts = facts_of(core, &tx, id).await?;
            tx.commit().await?;
            facts.remember(core);
            tracing::info!(event = "node_drained", node_id = %id, "a node is drained");
            Ok(false)
        }
        Some((_, Next::End)) => {
            tx.rollback().await?;
            end_all(core, ownership, id).await?;
            Ok(false)
        }
    }
}

/// What the drain does by itself is told with the address that asked for it.
async fn audit(tx: &Tx, row: &NodeRow, entry: Audited<'_>) -> Result<(), StoreError> {
    let source = row.drain_source.as_deref().unwrap_or("drain");
    record_own(tx, source, entry).await
}

fn then(row: &NodeRow) -> Then {
    match row.drain_then {
        Some(DrainThen::Archive) => Then::Archive,
        Some(DrainThen::Terminate) | None => Then::Terminate,
    }
}

async fn ending(read: &Read, row: &NodeRow, allocation: &AllocationRow) -> Result<Option<Then>, StoreError> {
    let restorable = allocation.compute_phase == ComputePhase::Waking
        && read
            .undeleted_checkpoint(allocation.id)
            .await?
            .is_some_and(|kept| kept.consumed_at.is_none());
    let sandbox = Sandbox {
        state: allocation.state,
        phase: allocation.compute_phase,
        given_up: allocation.cause.is_some(),
        restorable,
    };
    let release = row.drain_retained == Some(DrainRetained::Release);
    Ok(drain::ending(then(row), release, sandbox))
}

/// Ends everything that is left, page by page. What was ended in an earlier pass is passed over. What cannot be read keeps
/// its slot, and with it the drain, as the allocation workers say of it; nothing else waits for it.
async fn end_all(core: &Core, ownership: &Ownership, id: NodeId) -> Result<(), StoreError> {
    let read = core.store.single();
    let mut after = None;
    loop {
        let page = read.allocations_of_node(id, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last);
        let Some(row) = read.node(id).await? else {
            return Ok(());
        };
        for allocation in &page.rows {
            if ending(&read, &row, allocation).await?.is_some() {
                try_end(core, ownership, id, allocation.id).await?;
            }
        }
    }
}

/// One that cannot be ended holds up no other; the next pass tries it again.
async fn try_end(
    core: &Core,
    ownership: &Ownership,
    id: NodeId,
    allocation: AllocationId,
) -> Result<(), StoreError> {
    match end(core, ownership, id, allocation).await {
        Err(error @ StoreError::NotOwner { .. }) => Err(error),
        Err(error) => {
            tracing::warn!(event = "drain_stalled", node_id = %id, allocation_id = %allocation, error = %Chain(&error), "a drain does not end an allocation yet");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Ends one allocation, if the drain still stands and still wants it.
async fn end(
    core: &Core,
    ownership: &Ownership,
    id: NodeId,
    allocation: AllocationId,
) -> Result<(), StoreError> {
    let tx = core.store.begin(ownership).await?;
    let Some((row, Next::End)) = due(&tx, id).await? else {
        return Ok(());
    };
    let Some(session) = tx.allocation(allocation).await?.map(|a| a.session_id) else {
        return Ok(());
    };
    tx.lock_session(session).await?;
    // Who changes an allocation holds its Session.
    let Some(found) = tx.allocation(allocation).await? else {
        return Ok(());
    };
    let ends = ending(&tx, &row, &found).await?;
    match ends.filter(|_| found.node_id == Some(id)) {
        None => Ok(()),
        Some(Then::Terminate) => {
            let given_up = allocations::begin_cleanup(&tx, allocation, Cause::Drain).await?;
            tx.commit().await?;
            given_up.tell(core);
            Ok(())
        }
        Some(Then::Archive) => {
            let Some(archived) = sessions::archive(&tx, session, Cause::Archive).await? else {
                return Ok(());
            };
            let entry = Audited::new("session", session, "archive");
            audit(&tx, &row, entry.details(json!({ "drained_node": id }))).await?;
            tx.commit().await?;
            archived.tell(core);
            Ok(())
        }
    }
}
