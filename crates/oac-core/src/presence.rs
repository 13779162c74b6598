//! Which nodes are online, and what they last said of themselves (core.md section 10, protocol.md sections 4 and 6).
//!
//! Everything here is fenced twice: to the owner's epoch by the transaction, to the connection by its id in the node's
//! row. A node's credential is compared again at every heartbeat, so that a removed node ends with its next one.

mod generations;

use std::sync::Arc;

use oac_model::{ConnectionId, Digest, HostMeasurements, NodeId, recommend};
use oac_peer::core::{Facts, Presence, RecordFailure, Recorded};
use oac_store::{
    AuditEntry, DeploymentLock, GenerationState, GenerationStatusRow, NodeHealth, NodeLimits, NodeRow,
    NodeSampleRow, Ownership, StoreError, Tx,
};
use oac_wire::frames::Health;
use serde_json::json;

use crate::{
    Core,
    http::error::Chain,
    placement::{memory::Ticket, node_view},
};

pub(crate) use generations::answer_retention;

/// Measurements are stored about this often.
const SAMPLE_MILLIS: i64 = 30_000;
/// Tries of one recording that met a busy database.
const TRIES: usize = 3;

/// One connection of one node, as its hello or upgrade proved it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) node_id: NodeId,
    pub(crate) connection_id: ConnectionId,
    pub(crate) ownership: Ownership,
    /// SHA-256 of the credential it connected with.
    pub(crate) credential: Digest,
}

/// Why presence was not removed.
pub(crate) enum RemoveError {
    EpochLost,
    Storage(StoreError),
}

/// Why a recording was not stored.
enum Failure {
    Refused(RecordFailure),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotOwner { .. } => Self::Refused(RecordFailure::Epoch),
            other => Self::Store(other),
        }
    }
}

/// What is reported, and how.
enum Report<'a> {
    Hello(&'a Presence),
    Heartbeat(&'a Health),
}

impl Report<'_> {
    fn health(&self) -> &Health {
        match self {
            Self::Hello(presence) => &presence.health,
            Self::Heartbeat(health) => health,
        }
    }
}

/// Records presence and the first health report.
pub(crate) async fn record(core: &Core, subject: &Subject, presence: Presence) -> Recorded {
    repeat(core, subject, &Report::Hello(&presence)).await
}

/// Records a health report.
pub(crate) async fn heartbeat(core: &Core, subject: &Subject, health: Health) -> Recorded {
    repeat(core, subject, &Report::Heartbeat(&health)).await
}

async fn repeat(core: &Core, subject: &Subject, report: &Report<'_>) -> Recorded {
    for _ in 0..TRIES {
        match store(core, subject, report).await {
            Ok(facts) => return Recorded::Done(facts),
            Err(Failure::Refused(failure)) => return Recorded::Failed(failure),
            Err(Failure::Store(error)) => {
                tracing::warn!(node_id = %subject.node_id, error = %Chain(&error), "a node's report is not stored");
                if !error.is_transient() {
                    break;
                }
            }
        }
    }
    Recorded::Failed(RecordFailure::Storage)
}

async fn store(core: &Core, subject: &Subject, report: &Report<'_>) -> Result<Option<Facts>, Failure> {
    let health = report.health();
    let hello = matches!(report, Report::Hello(_));
    let mut with_deployment = hello;
    loop {
        let tx = core.store.begin(&subject.ownership).await?;
        if with_deployment {
            tx.lock_deployment(DeploymentLock::Shared).await?;
        }
        let before = tx
            .lock_node(subject.node_id)
            .await?
            .filter(|row| row.retired_at.is_none() && row.credential_digest.matches(&subject.credential))
            .ok_or(Failure::Refused(RecordFailure::Credential))?;
        let managing = match report {
            Report::Hello(presence) => presence.managing,
            Report::Heartbeat(_) => before.generation_management == Some(true),
        };
        let recommends = before.limits == NodeLimits::RecommendedPending && measured(&before, health);
        let promotes = managing && generations::may_move_pin(&before, health);
        if (recommends || promotes) && !with_deployment {
            // Both depend on the target, whose lock comes before the node's.
            with_deployment = true;
            continue;
        }
        let stored = stored_health(health);
        let current = if hello {
            tx.record_hello(subject.node_id, subject.connection_id, managing, &stored)
                .await?
        } else {
            tx.record_heartbeat(subject.node_id, subject.connection_id, &stored)
                .await?
        };
        if !current {
            return Err(Failure::Refused(RecordFailure::Epoch));
        }
        if hello {
            // Core keeps statuses per connection.
            tx.forget_generation_statuses(subject.node_id, None).await?;
        }
        let facts = if managing {
            Some(generations::record(&tx, subject, &before, health, with_deployment).await?)
        } else {
            let changed =
                before.provider_ready != stored.provider_ready || before.diagnostic != stored.diagnostic;
            if hello || changed {
                tx.save_generation_status(&status(subject, &before, &stored))
                    .await?;
            }
            None
        };
        sample(&tx, &before, &stored).await?;
        if recommends {
            recommend_limits(&tx, &before, &stored).await?;
        }
        let remembered = remember(core, &tx, subject.node_id, hello).await?;
        tx.commit().await?;
        let memory = core.hub.memory();
        match remembered {
            (ticket, Some(node), true) => memory.remember(ticket, node),
            (ticket, Some(node), false) => memory.remember_facts(ticket, node),
            (_, None, _) => {}
        }
        return Ok(facts);
    }
}

/// Reads the node as this transaction leaves it; with its counts when memory does not have them yet.
async fn remember(
    core: &Core,
    tx: &Tx,
    id: NodeId,
    hello: bool,
) -> Result<(Ticket, Option<oac_lifecycle::placement::Node>, bool), StoreError> {
    let memory = core.hub.memory();
    let ticket = memory.ticket();
    let whole = hello || !memory.knows(id);
    let Some(row) = tx.node(id).await? else {
        return Ok((ticket, None, false));
    };
    let counts = if whole {
        tx.slot_counts(Some(id)).await?
    } else {
        Default::default()
    };
    let node = node_view(tx, &row, counts, memory.deployment().target).await?;
    Ok((ticket, Some(node), whole))
}

/// A fixed node's `provider_ready` is the status of the generation it enrolled with.
fn status(subject: &Subject, row: &NodeRow, health: &NodeHealth) -> GenerationStatusRow {
    GenerationStatusRow {
        node_id: row.id,
        generation: row.enrolled_generation,
        digest: row.enrolled_digest,
        state: if health.provider_ready {
            GenerationState::Ready
        } else {
            GenerationState::Failed
        },
        diagnostic: health.diagnostic,
        connection_id: subject.connection_id,
        owner_epoch: subject.ownership.epoch,
    }
}

fn natural(value: Option<i64>) -> Option<u64> {
    value.and_then(|v| u64::try_from(v).ok())
}

fn stored_health(health: &Health) -> NodeHealth {
    NodeHealth {
        provider_ready: health.provider_ready,
        diagnostic: health
            .diagnostic
            .as_ref()
            .filter(|_| !health.provider_ready)
            .and_then(oac_wire::frames::Token::code),
        observed_at: Some(health.observed_at),
        active_operations: u32::try_from(health.active_operations).unwrap_or(0),
        cpu_utilization: health.cpu_utilization.0,
        effective_cpu_cores: health.effective_cpu_cores.0,
        cpu_count: natural(health.cpu_count.0),
        total_memory_bytes: natural(health.total_memory_bytes.0),
        available_memory_bytes: natural(health.available_memory_bytes.0),
        available_disk_bytes: natural(health.available_disk_bytes.0),
        execution_class: health.execution_class.0,
        checkpoint_store: health.checkpoint_store.0,
        boot_id: health.boot_id.0,
    }
}

async fn sample(tx: &Tx, before: &NodeRow, health: &NodeHealth) -> Result<(), StoreError> {
    let bucket = |millis: i64| millis / SAMPLE_MILLIS;
    let due = before
        .last_seen_at
        .is_none_or(|seen| bucket(seen.millis()) != bucket(tx.now().millis()));
    if !due {
        return Ok(());
    }
    tx.insert_node_sample(&NodeSampleRow {
        node_id: before.id,
        observed_at: tx.now(),
        cpu_utilization: health.cpu_utilization,
        total_memory_bytes: health.total_memory_bytes,
        available_memory_bytes: health.available_memory_bytes,
        available_disk_bytes: health.available_disk_bytes,
    })
    .await
}

/// The report carries what a recommendation for this node's backend needs.
fn measured(row: &NodeRow, health: &Health) -> bool {
    let disk = row.provider == oac_model::ProviderKind::Docker || health.available_disk_bytes.0.is_some();
    health.effective_cpu_cores.0.is_some() && health.total_memory_bytes.0.is_some() && disk
}

/// Sets the recommended limits, once (INV-C25). A host that cannot hold one sandbox keeps 1 and 1 for good.
async fn recommend_limits(tx: &Tx, row: &NodeRow, health: &NodeHealth) -> Result<(), StoreError> {
    let deployment = tx.deployment().await?;
    let Some(target) = deployment.target() else {
        return Ok(());
    };
    let Some(generation) = tx.generation(target).await? else {
        return Ok(());
    };
    let host = HostMeasurements {
        effective_cpu_cores: health.effective_cpu_cores,
        total_memory_bytes: health.total_memory_bytes,
        available_disk_bytes: health.available_disk_bytes,
    };
    let limits = recommend(row.provider, &generation.specification.resources, &host);
    let (active, retained) = limits.unwrap_or((row.max_active, row.max_retained));
    tx.set_node_limits(row.id, NodeLimits::Recommended, active, retained)
        .await?;
    if limits.is_some() {
        tx.audit(&AuditEntry {
            actor: "core",
            source: "health report",
            resource_type: "node",
            resource_id: row.id.to_string(),
            action: "limits_recommended",
            details: json!({ "max_active": active, "max_retained": retained }),
        })
        .await?;
    }
    Ok(())
}

/// Removes the presence of exactly this connection; of another one nothing (INV-P5).
pub(crate) async fn remove(core: &Core, subject: &Subject) -> Result<(), RemoveError> {
    let removed = async {
        let tx = core.store.begin(&subject.ownership).await?;
        tx.lock_node(subject.node_id).await?;
        let ticket = core.hub.memory().ticket();
        let cleared = tx.clear_presence(subject.node_id, subject.connection_id).await?;
        if cleared {
            tx.forget_generation_statuses(subject.node_id, None).await?;
        }
        tx.commit().await?;
        if cleared {
            core.hub.memory().disconnected(ticket, subject.node_id);
        }
        Ok(())
    };
    removed.await.map_err(|error| match error {
        StoreError::NotOwner { .. } => RemoveError::EpochLost,
        other => RemoveError::Storage(other),
    })
}

/// Starts this part's workers: none; each connection records its own presence.
pub fn start(_core: &Arc<Core>) {}
