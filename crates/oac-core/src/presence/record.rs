//! One transaction of several nodes' reports.
//!
//! Under the locks of their rows each report is judged alone; one whose node's row another transaction holds is left for
//! later. What is refused writes nothing; the rest is written
//! with one statement for each kind of thing. A refusal that only shows after presence was written (a digest) makes the
//! transaction begin anew without that report.

use std::collections::{HashMap, HashSet};

use oac_model::{Generation, HostMeasurements, NodeId, ProviderKind, Resources, recommend};
use oac_peer::core::{Facts, RecordFailure};
use oac_store::{
    AuditEntry, DeploymentLock, GenerationState, GenerationStatusRow, NodeHealth, NodeLimits, NodeReport,
    NodeRow, NodeSampleRow, StoreError, Tx,
};
use oac_wire::frames::Health;
use serde_json::json;

use super::{Answer, Report, Said, generations};
use crate::{Core, placement::view_of};

/// Measurements are stored about this often.
const SAMPLE_MILLIS: i64 = 30_000;

/// What one try of the transaction came to.
enum Tried {
    Stored {
        facts: HashMap<NodeId, Facts>,
        /// Nodes of which nothing was stored: another transaction holds their rows.
        held: HashSet<NodeId>,
    },
    /// Something in it depends on the target, whose lock comes before the nodes'.
    NeedsDeployment,
    Refused(Vec<(usize, RecordFailure)>),
}

/// Stores `reports`, all of one ownership and of different nodes, and answers each in their order; `None` when another
/// transaction holds its node's row, which no other node waits for.
pub(super) async fn record(core: &Core, reports: &[&Report]) -> Result<Vec<Option<Answer>>, StoreError> {
    let mut refused: HashMap<usize, RecordFailure> = HashMap::new();
    let mut with_deployment = reports.iter().any(|r| matches!(r.said, Said::Hello(_)));
    loop {
        let left: Vec<usize> = (0..reports.len()).filter(|i| !refused.contains_key(i)).collect();
        let chosen: Vec<&Report> = left.iter().map(|i| reports[*i]).collect();
        match record_once(core, &chosen, with_deployment).await? {
            Tried::NeedsDeployment => with_deployment = true,
            Tried::Refused(more) => refused.extend(more.into_iter().map(|(i, failure)| (left[i], failure))),
            Tried::Stored { mut facts, held } => {
                let answer = |(i, report): (usize, &&Report)| match refused.remove(&i) {
                    Some(failure) => Some(Err(failure)),
                    None if held.contains(&report.subject.node_id) => None,
                    None => Some(Ok(facts.remove(&report.subject.node_id))),
                };
                return Ok(reports.iter().enumerate().map(answer).collect());
            }
        }
    }
}

/// A report of health that may be recorded, on its way into the transaction.
struct Reporting<'a> {
    report: &'a Report,
    health: &'a Health,
    hello: bool,
    managing: bool,
    /// Its limits are to be recommended.
    recommends: bool,
    stored: NodeReport,
    before: &'a NodeRow,
    /// The row as the transaction leaves it.
    after: NodeRow,
}

async fn record_once(core: &Core, reports: &[&Report], with_deployment: bool) -> Result<Tried, StoreError> {
    let Some(first) = reports.first() else {
        return Ok(Tried::Stored {
            facts: HashMap::new(),
            held: HashSet::new(),
        });
    };
    let tx = core.store.begin(&first.subject.ownership).await?;
    if with_deployment {
        tx.lock_deployment(DeploymentLock::Shared).await?;
    }
    let ids: Vec<NodeId> = reports.iter().map(|r| r.subject.node_id).collect();
    let rows: HashMap<NodeId, NodeRow> = {
        let rows = tx.lock_free_nodes(&ids).await?;
        rows.into_iter().map(|row| (row.id, row)).collect()
    };
    // A row stays when its node is retired.
    let mut held: HashSet<NodeId> = ids.into_iter().collect();
    held.retain(|id| !rows.contains_key(id));
    let (mut reporting, mut leaving, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (index, report) in reports.iter().copied().enumerate() {
        let Some(row) = rows.get(&report.subject.node_id) else {
            continue;
        };
        match judge(&tx, report, row) {
            Ok(Some(one)) => reporting.push(one),
            Ok(None) if row.connection_id == Some(report.subject.connection_id) => {
                leaving.push((report.subject.node_id, report.subject.connection_id));
            }
            Ok(None) => {}
            Err(failure) => refused.push((index, failure)),
        }
    }
    if !refused.is_empty() {
        tx.rollback().await?;
        return Ok(Tried::Refused(refused));
    }
    let on_target = |one: &Reporting<'_>| {
        one.recommends || one.managing && generations::may_move_pin(one.before, one.health)
    };
    if !with_deployment && reporting.iter().any(on_target) {
        tx.rollback().await?;
        return Ok(Tried::NeedsDeployment);
    }

    let stored: Vec<NodeReport> = reporting.iter().map(|one| one.stored.clone()).collect();
    let recorded = tx.record_reports(&stored).await?;
    if recorded != stored.len() as u64 {
        // The rows are locked and were judged, so this is another program's writing.
        tx.rollback().await?;
        let all = (0..reports.len()).map(|i| (i, RecordFailure::Storage));
        return Ok(Tried::Refused(all.collect()));
    }
    let greeting: Vec<NodeId> = reporting
        .iter()
        .filter(|one| one.hello)
        .map(|one| one.before.id)
        .collect();
    let left: Vec<NodeId> = leaving.iter().map(|(node, _)| *node).collect();
    tx.clear_presence(&leaving).await?;
    // Core keeps statuses per connection.
    tx.forget_generation_statuses(&[greeting.as_slice(), &left].concat())
        .await?;

    let managing = reporting.iter().filter(|one| one.managing);
    let known = generations::Known::read(&tx, managing.map(|one| (one.before.id, one.health))).await?;
    let (mut facts, mut statuses, mut changed) = (HashMap::new(), HashMap::new(), Vec::new());
    for (index, report) in reports.iter().enumerate() {
        let Some(one) = reporting
            .iter_mut()
            .find(|one| one.before.id == report.subject.node_id)
        else {
            continue;
        };
        if !one.managing {
            let differs = one.before.provider_ready != one.after.provider_ready
                || one.before.diagnostic != one.after.diagnostic;
            if one.hello || differs {
                changed.push(status(one));
            }
            continue;
        }
        match known.judge(&report.subject, one.before, one.health, with_deployment) {
            Ok(judged) => {
                if let Some(pin) = judged.pin {
                    tx.set_serving_generation(one.before.id, pin).await?;
                    one.after.serving_generation = Some(pin);
                }
                changed.extend(judged.changed);
                statuses.insert(one.before.id, judged.statuses);
                facts.insert(one.before.id, judged.facts);
            }
            Err(failure) => refused.push((index, failure)),
        }
    }
    if !refused.is_empty() {
        tx.rollback().await?;
        return Ok(Tried::Refused(refused));
    }
    tx.save_generation_statuses(&changed).await?;
    let samples: Vec<_> = reporting.iter().filter_map(|one| sample(&tx, one)).collect();
    tx.insert_node_samples(&samples).await?;
    if reporting.iter().any(|one| one.recommends) {
        recommend_limits(&tx, &mut reporting).await?;
    }
    let remembered = remember(core, &tx, &reporting, &statuses).await?;
    let memory = core.hub.memory();
    let gone: Vec<_> = left.iter().map(|id| (memory.ticket(), *id)).collect();
    // Before the commit: whoever sees a node ready finds it ready. A placement that comes first waits for the node's row.
    for (ticket, node, whole) in remembered {
        if whole {
            memory.remember(ticket, node);
        } else {
            memory.remember_facts(ticket, node);
        }
    }
    tx.commit().await?;
    for (ticket, id) in gone {
        memory.disconnected(ticket, id);
    }
    Ok(Tried::Stored { facts, held })
}

/// Whether a report may be recorded, by its node's row; `None` for one that only says goodbye.
fn judge<'a>(tx: &Tx, report: &'a Report, row: &'a NodeRow) -> Result<Option<Reporting<'a>>, RecordFailure> {
    let (health, hello) = match &report.said {
        Said::Hello(presence) => (&presence.health, Some(presence.managing)),
        Said::Heartbeat(health) => (&**health, None),
        Said::Goodbye => return Ok(None),
    };
    let subject = &report.subject;
    let before = Some(row)
        .filter(|row| row.retired_at.is_none() && row.credential_digest.matches(&subject.credential))
        .ok_or(RecordFailure::Credential)?;
    let epoch = subject.ownership.epoch;
    let current =
        before.connection_id == Some(subject.connection_id) && before.connection_epoch == Some(epoch);
    if hello.is_none() && !current {
        return Err(RecordFailure::Epoch);
    }
    let stored = NodeReport {
        node_id: before.id,
        connection_id: subject.connection_id,
        hello,
        health: stored_health(health),
    };
    Ok(Some(Reporting {
        report,
        health,
        hello: hello.is_some(),
        managing: hello.unwrap_or(before.generation_management == Some(true)),
        recommends: before.limits == NodeLimits::RecommendedPending && measured(before, health),
        after: stored.applied_to(before, epoch, tx.now()),
        stored,
        before,
    }))
}

/// A fixed node's `provider_ready` is the status of the generation it enrolled with.
fn status(one: &Reporting<'_>) -> GenerationStatusRow {
    GenerationStatusRow {
        node_id: one.before.id,
        generation: one.before.enrolled_generation,
        digest: one.before.enrolled_digest,
        state: if one.after.provider_ready {
            GenerationState::Ready
        } else {
            GenerationState::Failed
        },
        diagnostic: one.after.diagnostic,
        connection_id: one.report.subject.connection_id,
        owner_epoch: one.report.subject.ownership.epoch,
    }
}

/// The nodes as this transaction leaves them, with their counts where memory does not have them yet.
async fn remember(
    core: &Core,
    tx: &Tx,
    reporting: &[Reporting<'_>],
    statuses: &HashMap<NodeId, Vec<GenerationStatusRow>>,
) -> Result<
    Vec<(
        crate::placement::memory::Ticket,
        oac_lifecycle::placement::Node,
        bool,
    )>,
    StoreError,
> {
    let memory = core.hub.memory();
    let target = memory.deployment().target;
    let whole = |one: &Reporting<'_>| one.hello || !memory.knows(one.before.id);
    let uncounted: Vec<NodeId> = reporting
        .iter()
        .filter(|one| whole(one))
        .map(|one| one.before.id)
        .collect();
    // Before the tickets: what is counted under the locks is as old as they are.
    let counts = tx.slot_counts_of(&uncounted).await?;
    let view = |one: &Reporting<'_>| {
        let id = one.before.id;
        let statuses = statuses.get(&id).map_or(&[][..], Vec::as_slice);
        let counts = counts.get(&id).copied().unwrap_or_default();
        let node = view_of(tx, &one.after, statuses, counts, target);
        (memory.ticket(), node, uncounted.contains(&id))
    };
    Ok(reporting.iter().map(view).collect())
}

fn sample(tx: &Tx, one: &Reporting<'_>) -> Option<NodeSampleRow> {
    let bucket = |millis: i64| millis / SAMPLE_MILLIS;
    let seen = one.before.last_seen_at;
    if seen.is_some_and(|seen| bucket(seen.millis()) == bucket(tx.now().millis())) {
        return None;
    }
    Some(NodeSampleRow {
        node_id: one.before.id,
        observed_at: tx.now(),
        cpu_utilization: one.after.cpu_utilization,
        total_memory_bytes: one.after.total_memory_bytes,
        available_memory_bytes: one.after.available_memory_bytes,
        available_disk_bytes: one.after.available_disk_bytes,
    })
}

/// Sets the recommended limits, once (INV-C25). A host that cannot hold one sandbox keeps 1 and 1 for good.
async fn recommend_limits(tx: &Tx, reporting: &mut [Reporting<'_>]) -> Result<(), StoreError> {
    let Some(resources) = target_resources(tx).await? else {
        return Ok(());
    };
    for one in reporting.iter_mut().filter(|one| one.recommends) {
        let after = &mut one.after;
        let host = HostMeasurements {
            effective_cpu_cores: after.effective_cpu_cores,
            total_memory_bytes: after.total_memory_bytes,
            available_disk_bytes: after.available_disk_bytes,
        };
        let limits = recommend(after.provider, &resources, &host);
        (after.max_active, after.max_retained) = limits.unwrap_or((after.max_active, after.max_retained));
        after.limits = NodeLimits::Recommended;
        tx.set_node_limits(after.id, after.limits, after.max_active, after.max_retained)
            .await?;
        if limits.is_some() {
            tx.audit(&AuditEntry {
                actor: "core",
                source: "health report",
                resource_type: "node",
                resource_id: after.id.to_string(),
                action: "limits_recommended",
                details: json!({ "max_active": after.max_active, "max_retained": after.max_retained }),
            })
            .await?;
        }
    }
    Ok(())
}

/// What one sandbox of the target takes.
async fn target_resources(tx: &Tx) -> Result<Option<Resources>, StoreError> {
    let target: Option<Generation> = tx.deployment().await?.target();
    Ok(match target {
        Some(target) => tx.generation(target).await?.map(|g| g.specification.resources),
        None => None,
    })
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

/// The report carries what a recommendation for this node's backend needs.
fn measured(row: &NodeRow, health: &Health) -> bool {
    let disk = row.provider == ProviderKind::Docker || health.available_disk_bytes.0.is_some();
    health.effective_cpu_cores.0.is_some() && health.total_memory_bytes.0.is_some() && disk
}
