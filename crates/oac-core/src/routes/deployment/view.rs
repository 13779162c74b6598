//! The safe deployment: what an operator sees of the selection. No secret is in it.

use oac_model::{Digest, InstallationId, OwnerEpoch, ProviderKind, Specification};
use oac_store::{NodeRow, Read, ResourceCounts, StoreError};
use serde::Serialize;
use serde_json::Value;

use super::{
    super::shapes::{ProviderSchema, SpecificationSchema},
    reset::Reset,
    rollout::{self, NodeReadiness, RolloutNodes, RolloutState},
};
use crate::{config::Config, http::ApiError, link::Links};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Sandboxes run on nodes.
    Nodes,
    /// Core drives the backend itself.
    Direct,
}

impl Mode {
    pub(crate) fn of(provider: ProviderKind) -> Self {
        match provider {
            ProviderKind::Docker | ProviderKind::Microsandbox => Self::Nodes,
            ProviderKind::E2b => Self::Direct,
        }
    }
}

/// The selection and what runs under it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Deployment)]
pub(crate) struct SafeDeployment {
    #[schema(value_type = String, format = Uuid)]
    installation_id: InstallationId,
    /// Null while nothing is selected.
    #[schema(required, value_type = Option<ProviderSchema>)]
    provider: Option<ProviderKind>,
    /// The public address; null while it is unset.
    #[schema(required)]
    core_url: Option<String>,
    #[schema(required)]
    mode: Option<Mode>,
    /// 0 before the first selection.
    generation: i64,
    #[schema(value_type = i64)]
    owner_epoch: OwnerEpoch,
    /// Null unless a reset is in progress.
    #[schema(required)]
    reset: Option<Reset>,
    rollout: Rollout,
    /// Null without microsandbox.
    #[schema(required)]
    suspension: Option<Suspension>,
    resources: DeploymentResources,
    credential_configured: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<SpecificationSchema>)]
    specification: Option<Specification>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<String>)]
    specification_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    configuration: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    metadata: Option<Value>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Rollout {
    state: RolloutState,
    /// Sandboxes that still run an older generation.
    previous_generation_sandboxes: u64,
    /// Null unless sandboxes run on nodes.
    #[schema(required)]
    nodes: Option<RolloutNodes>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Suspension {
    idle_seconds: u32,
    retention_seconds: u32,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeploymentResources {
    /// Unreleased allocations.
    allocations: u64,
    /// Placements that have no allocation yet.
    pending: u64,
}

impl SafeDeployment {
    /// From one snapshot or transaction.
    pub(crate) async fn read(read: &Read, links: &Links, config: &Config) -> Result<Self, ApiError> {
        let row = read.deployment().await?;
        let owner = read.owner().await?;
        // Core answers only as owner, so some epoch has begun.
        let owner_epoch = owner.epoch.ok_or_else(ApiError::standby)?;
        let target = match row.target() {
            None => None,
            Some(generation) => {
                let row = read.generation(generation).await?;
                Some(row.ok_or_else(|| StoreError::Stored {
                    column: "deployment.generation".to_owned(),
                })?)
            }
        };
        let mode = row.provider.map(Mode::of);
        let nodes: Vec<(NodeRow, NodeReadiness)> = if mode == Some(Mode::Nodes) {
            let reports = match &target {
                Some(target) => read.statuses_of_generation(target.generation).await?,
                None => Vec::new(),
            };
            let generation = target.as_ref().map(|t| t.generation);
            let nodes = read.nodes().await?.into_iter();
            nodes
                .map(|node| {
                    let readiness = NodeReadiness::of(&node, &reports, generation, owner_epoch, owner.now);
                    (node, readiness)
                })
                .collect()
        } else {
            Vec::new()
        };
        // In one statement whichever it is: what remains of a reset adds up to the resources (INV-C23).
        let (counts, reset) = if row.resetting() {
            let groups = read.resource_groups().await?;
            let reset = Reset::read(read, links, &row, &groups, &nodes).await?;
            (ResourceCounts::of(&groups), reset)
        } else {
            (read.resource_counts().await?, None)
        };
        let (state, buckets) = rollout::summarize(nodes.iter().map(|(_, readiness)| readiness));
        let configured = target.is_some();
        Ok(Self {
            installation_id: row.installation_id,
            provider: row.provider,
            core_url: config.public_url.as_ref().map(|url| url.as_str().to_owned()),
            mode,
            generation: row.generation,
            owner_epoch,
            reset,
            rollout: Rollout {
                state,
                previous_generation_sandboxes: counts.previous_generation,
                nodes: (mode == Some(Mode::Nodes)).then_some(buckets),
            },
            suspension: (row.provider == Some(ProviderKind::Microsandbox)).then_some(Suspension {
                idle_seconds: row.idle_seconds,
                retention_seconds: row.retention_seconds,
            }),
            resources: DeploymentResources {
                allocations: counts.allocations,
                pending: counts.pending,
            },
            credential_configured: row.credential_sealed.is_some(),
            specification_digest: target.as_ref().map(|t| t.digest),
            specification: target.map(|t| t.specification),
            configuration: configured.then_some(row.configuration),
            metadata: configured.then_some(row.metadata),
        })
    }
}
