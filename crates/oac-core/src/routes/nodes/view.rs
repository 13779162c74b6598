//! One node as lists and details show it.

use std::collections::HashMap;

use oac_model::{
    DiagnosticCode, EnrollmentId, Generation, HostMeasurements, NodeId, OwnerEpoch, ProviderKind, Time,
    recommend,
};
use oac_store::{
    DrainIdle, DrainRetained, DrainThen, GenerationRow, GenerationStatusRow, Labels, NodeCounts, NodeLimits,
    NodeRow, Read,
};
use serde::Serialize;

use super::super::{
    deployment::{NodeReadiness, ReadinessState},
    shapes::{ProviderSchema, ReadinessCodeSchema},
};
use crate::{http::ApiError, placement::pin};

/// A Linux host that runs sandboxes.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Node {
    #[schema(value_type = String, format = Uuid)]
    id: NodeId,
    name: String,
    #[schema(value_type = ProviderSchema)]
    provider: ProviderKind,
    online: bool,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    last_seen_at: Option<Time>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
    /// Sandboxes at once.
    max_active: u32,
    /// Running and suspended sandboxes together.
    max_retained: u32,
    /// `recommended_pending`, `recommended` or `custom`.
    #[schema(value_type = String)]
    limits: NodeLimits,
    /// What Core would recommend now; null when the host's measurements are missing, old or too small.
    #[schema(required)]
    recommended: Option<Capacity>,
    active: u64,
    reserved: u64,
    running: u64,
    retained: u64,
    /// Suspended sandboxes.
    snapshots: u64,
    cleanup_pending: u64,
    /// Allocations with a diagnostic.
    issues: u64,
    provider_ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<ReadinessCodeSchema>)]
    diagnostic: Option<DiagnosticCode>,
    #[schema(required)]
    cpu_count: Option<u64>,
    #[schema(required)]
    available_memory_bytes: Option<u64>,
    #[schema(required)]
    available_disk_bytes: Option<u64>,
    rollout: NodeRollout,
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: Labels,
    cordoned: bool,
    #[schema(required)]
    drain: Option<Drain>,
    #[schema(required, value_type = Option<String>, format = Uuid)]
    enrollment_id: Option<EnrollmentId>,
    /// The origin the node was enrolled under.
    core_url: String,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Capacity {
    max_active: u32,
    max_retained: u32,
}

/// Where the node stands with the target generation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct NodeRollout {
    state: ReadinessState,
    /// The generation it serves: the one it last proved ready, or for a node that manages none the one it enrolled
    /// with. Null until that is known.
    #[schema(required, value_type = Option<i64>)]
    ready_generation: Option<Generation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<ReadinessCodeSchema>)]
    diagnostic: Option<DiagnosticCode>,
}

/// How the node is being emptied.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Drain {
    #[schema(value_type = String, format = DateTime)]
    requested_at: Time,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Time>,
    /// When what still ran began to be ended; null before the deadline.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    deadline_passed_at: Option<Time>,
    #[schema(required, value_type = Option<DrainIdleSchema>)]
    idle: Option<DrainIdle>,
    #[schema(required, value_type = Option<DrainThenSchema>)]
    then: Option<DrainThen>,
    #[schema(required, value_type = Option<DrainRetainedSchema>)]
    retained: Option<DrainRetained>,
}

/// What a drain does with idle sandboxes before its deadline.
#[derive(utoipa::ToSchema)]
#[schema(as = DrainIdle, rename_all = "snake_case")]
#[expect(dead_code, reason = "schema alone")]
pub(super) enum DrainIdleSchema {
    Suspend,
    Wait,
}

/// What a drain does at its deadline with what still runs.
#[derive(utoipa::ToSchema)]
#[schema(as = DrainThen, rename_all = "snake_case")]
#[expect(dead_code, reason = "schema alone")]
pub(super) enum DrainThenSchema {
    Archive,
    Terminate,
}

/// What a drain does with suspended sandboxes.
#[derive(utoipa::ToSchema)]
#[schema(as = DrainRetained, rename_all = "snake_case")]
#[expect(dead_code, reason = "schema alone")]
pub(super) enum DrainRetainedSchema {
    Keep,
    Release,
}

/// What a node is judged against, from one snapshot.
pub(crate) struct Context {
    target: Option<GenerationRow>,
    reports: HashMap<NodeId, Vec<GenerationStatusRow>>,
    epoch: OwnerEpoch,
    pub(crate) now: Time,
}

impl Context {
    pub(crate) async fn read(read: &Read) -> Result<Self, ApiError> {
        let owner = read.owner().await?;
        let target = match read.deployment().await?.target() {
            Some(target) => read.generation(target).await?,
            None => None,
        };
        let mut reports: HashMap<NodeId, Vec<GenerationStatusRow>> = HashMap::new();
        for report in read
            .standing_generation_statuses(target.as_ref().map(|t| t.generation))
            .await?
        {
            reports.entry(report.node_id).or_default().push(report);
        }
        Ok(Self {
            target,
            reports,
            epoch: owner.epoch.ok_or_else(ApiError::standby)?,
            now: owner.now,
        })
    }

    pub(crate) fn readiness(&self, row: &NodeRow) -> NodeReadiness {
        let reports = self.reports.get(&row.id).map_or(&[][..], Vec::as_slice);
        let target = self.target.as_ref().map(|t| t.generation);
        NodeReadiness::of(row, reports, target, self.epoch, self.now)
    }

    pub(super) fn show(&self, row: NodeRow, counts: NodeCounts) -> Node {
        let readiness = self.readiness(&row);
        Node {
            recommended: self.recommended(&row, readiness.online),
            online: readiness.online,
            provider_ready: readiness.provider_ready,
            // Beside readiness there is nothing to diagnose.
            diagnostic: row.diagnostic.filter(|_| !readiness.provider_ready),
            rollout: NodeRollout {
                state: readiness.state,
                // Before its first hello nobody knows whether the node manages generations.
                ready_generation: row.generation_management.and_then(|_| pin(&row)),
                diagnostic: readiness.diagnostic,
            },
            drain: row.drain_requested_at.map(|requested_at| Drain {
                requested_at,
                deadline_at: row.drain_deadline_at,
                deadline_passed_at: row.drain_deadline_passed_at,
                idle: row.drain_idle,
                then: row.drain_then,
                retained: row.drain_retained,
            }),
            id: row.id,
            name: row.name,
            provider: row.provider,
            last_seen_at: row.last_seen_at,
            created_at: row.created_at,
            max_active: row.max_active,
            max_retained: row.max_retained,
            limits: row.limits,
            active: counts.slots.active,
            reserved: counts.reserved,
            running: counts.running,
            retained: counts.slots.retained,
            snapshots: counts.slots.retained.saturating_sub(counts.slots.active),
            cleanup_pending: counts.cleanup_pending,
            issues: counts.issues,
            cpu_count: row.cpu_count,
            available_memory_bytes: row.available_memory_bytes,
            available_disk_bytes: row.available_disk_bytes,
            labels: row.labels,
            cordoned: row.cordoned_at.is_some(),
            enrollment_id: row.enrollment_id,
            core_url: row.core_url,
        }
    }

    /// Measurements of a node that is not online are stale.
    fn recommended(&self, row: &NodeRow, online: bool) -> Option<Capacity> {
        let target = self.target.as_ref().filter(|_| online)?;
        let host = HostMeasurements {
            effective_cpu_cores: row.effective_cpu_cores,
            total_memory_bytes: row.total_memory_bytes,
            available_disk_bytes: row.available_disk_bytes,
        };
        let (max_active, max_retained) = recommend(target.provider, &target.specification.resources, &host)?;
        Some(Capacity {
            max_active,
            max_retained,
        })
    }
}
