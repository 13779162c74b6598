//! GET configuration: what a host has to prepare. It uses up nothing.

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{Digest, Generation, InstallationId, ProviderKind, Specification};
use serde::{Deserialize, Serialize};

use super::super::{
    deployment::Mode,
    shapes::{ProviderSchema, SpecificationSchema},
};
use crate::{
    Core,
    http::{ApiError, auth::MachineAuth, strict::StrictQuery},
};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ConfigurationQuery {
    /// A kept generation, for a registered node; the target without it.
    #[param(nullable = false, value_type = Option<i64>, minimum = 1)]
    generation: Option<Generation>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct NodeConfiguration {
    #[schema(value_type = String, format = Uuid)]
    installation_id: InstallationId,
    #[schema(value_type = ProviderSchema)]
    provider: ProviderKind,
    /// The origin to reach Core under.
    core_url: String,
    #[schema(value_type = i64)]
    generation: Generation,
    #[schema(value_type = SpecificationSchema)]
    specification: Specification,
    #[schema(value_type = String)]
    specification_digest: Digest,
    max_active: u32,
    max_retained: u32,
}

/// The target, or for a registered node any kept generation.
#[utoipa::path(
    get,
    path = "/api/v1/sandbox-node/configuration",
    params(
        ConfigurationQuery,
        ("X-OAC-Node-ID" = Option<String>, Header, format = Uuid, description = "With a node credential: its node")
    ),
    responses((status = 200, body = NodeConfiguration))
)]
pub(super) async fn get_node_configuration(
    State(core): State<Arc<Core>>,
    auth: MachineAuth,
    StrictQuery(query): StrictQuery<ConfigurationQuery>,
) -> Result<Json<NodeConfiguration>, ApiError> {
    if query.generation.is_some() && matches!(auth, MachineAuth::Token { .. }) {
        return Err(ApiError::invalid_node_credential());
    }
    let read = core.store.read().await?;
    let deployment = read.deployment().await?;
    let Some((provider, target)) = deployment.provider.zip(deployment.target()) else {
        return Err(ApiError::node_unavailable());
    };
    if Mode::of(provider) != Mode::Nodes {
        return Err(ApiError::deployment_conflict(
            "This installation's backend needs no nodes.",
        ));
    }
    let (core_url, max_active, max_retained) = match auth {
        MachineAuth::Token { .. } if deployment.resetting() => return Err(ApiError::reset_in_progress()),
        MachineAuth::Token {
            max_active,
            max_retained,
        } => {
            let url = core.config.public_url.as_ref().filter(|url| url.is_usable());
            let url = url.ok_or_else(|| {
                ApiError::configuration_error(
                    "Core has no public address other machines can reach: set public_url first.",
                )
            })?;
            (url.as_str().to_owned(), max_active, max_retained)
        }
        MachineAuth::Node(node) => {
            let node = read
                .node(node.node_id)
                .await?
                .filter(|node| node.retired_at.is_none());
            let node = node.ok_or_else(ApiError::invalid_node_credential)?;
            (node.core_url, node.max_active, node.max_retained)
        }
    };
    let row = match query.generation {
        None => read.generation(target).await?,
        Some(generation) => read.kept_generation(generation).await?,
    };
    let row = row.ok_or_else(ApiError::specification_mismatch)?;
    Ok(Json(NodeConfiguration {
        installation_id: deployment.installation_id,
        provider: row.provider,
        core_url,
        generation: row.generation,
        specification: row.specification,
        specification_digest: row.digest,
        max_active,
        max_retained,
    }))
}
