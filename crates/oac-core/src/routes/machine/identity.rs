//! GET identity: what Core knows of a node. It recovers a lost answer to enroll.

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::NodeId;
use serde::{Deserialize, Serialize};

use super::{super::deployment::NodeReadiness, enroll::Enrolled};
use crate::{
    Core,
    http::{ApiError, auth::NodeAuth, strict::StrictQuery},
};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct IdentityQuery {
    /// The node whose credential is sent.
    #[param(value_type = String, format = Uuid)]
    node_id: NodeId,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct NodeIdentity {
    #[serde(flatten)]
    enrolled: Enrolled,
    /// Is the node connected to this Core?
    connected: bool,
    /// Is it online and ready for the generation it serves?
    provider_ready: bool,
}

/// The node's identity; 401 once it is removed.
#[utoipa::path(
    get,
    path = "/api/v1/sandbox-node/identity",
    params(IdentityQuery),
    responses((status = 200, body = NodeIdentity))
)]
pub(super) async fn get_node_identity(
    State(core): State<Arc<Core>>,
    auth: NodeAuth,
    StrictQuery(query): StrictQuery<IdentityQuery>,
) -> Result<Json<NodeIdentity>, ApiError> {
    if query.node_id != auth.node_id {
        return Err(ApiError::invalid_node_credential());
    }
    let read = core.store.read().await?;
    let node = read
        .node(auth.node_id)
        .await?
        .filter(|node| node.retired_at.is_none());
    let node = node.ok_or_else(ApiError::invalid_node_credential)?;
    // While the enrolled generation is kept, its digest must be the one enrolled.
    let kept = read.kept_generation(node.enrolled_generation).await?;
    if kept.is_some_and(|row| row.digest != node.enrolled_digest) {
        return Err(ApiError::specification_mismatch());
    }
    let owner = read.owner().await?;
    let epoch = owner.epoch.ok_or_else(ApiError::standby)?;
    let reports = read.generation_statuses(node.id).await?;
    let readiness = NodeReadiness::of(&node, &reports, None, epoch, owner.now);
    Ok(Json(NodeIdentity {
        connected: node.connection_id.is_some() && node.connection_epoch == Some(epoch),
        provider_ready: readiness.provider_ready,
        enrolled: Enrolled {
            node_id: node.id,
            installation_id: node.installation_id,
            provider: node.provider,
            deployment_generation: node.enrolled_generation,
            specification_digest: node.enrolled_digest,
            max_active: node.max_active,
            max_retained: node.max_retained,
        },
    }))
}
