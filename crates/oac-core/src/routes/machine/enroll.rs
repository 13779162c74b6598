//! POST enroll: a host becomes a node.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Extension, State},
    http::{HeaderMap, StatusCode},
};
use oac_model::{Digest, Generation, InstallationId, NodeId, ProviderKind, Secret};
use oac_store::{DeploymentLock, NewNode, NodeLimits, StoreError, TokenLimits};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{deployment::Mode, shapes::ProviderSchema};
use crate::{
    Core,
    http::{
        ApiError,
        auth::{self, Audited},
        check_name,
        serve::Peer,
        strict::{NoQuery, StrictJson, StrictQuery},
    },
};

/// What a host says of itself. Exactly these members.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Enrollment {
    #[schema(value_type = String, format = Uuid)]
    node_id: NodeId,
    /// The node's own secret: 32 to 256 bytes without white space. Core keeps its digest.
    #[schema(value_type = String)]
    credential: Secret,
    /// 1 to 128 bytes, not blank.
    name: String,
    #[schema(value_type = ProviderSchema)]
    provider: String,
    #[schema(value_type = String)]
    backend_fingerprint: Digest,
    #[schema(value_type = i64)]
    deployment_generation: Generation,
    #[schema(value_type = String)]
    specification_digest: Digest,
    /// The origin the host reached Core under.
    core_url: String,
}

/// The new node.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Enrolled {
    #[schema(value_type = String, format = Uuid)]
    pub(super) node_id: NodeId,
    #[schema(value_type = String, format = Uuid)]
    pub(super) installation_id: InstallationId,
    #[schema(value_type = ProviderSchema)]
    pub(super) provider: ProviderKind,
    #[schema(value_type = i64)]
    pub(super) deployment_generation: Generation,
    #[schema(value_type = String)]
    pub(super) specification_digest: Digest,
    pub(super) max_active: u32,
    pub(super) max_retained: u32,
}

impl Enrollment {
    /// The rules of the body that its types do not hold.
    fn check(&self) -> Result<(), ApiError> {
        let credential = self.credential.expose();
        if !(32..=256).contains(&credential.len()) || credential.contains([' ', '\t', '\r', '\n']) {
            return Err(ApiError::invalid_member(
                "credential",
                "credential must be 32 to 256 bytes without white space: correct it.",
            ));
        }
        check_name("name", &self.name)
    }
}

/// Enrolls a node. Only success uses the token.
#[utoipa::path(
    post,
    path = "/api/v1/sandbox-node/enroll",
    request_body = Enrollment,
    responses((status = 201, body = Enrolled))
)]
pub(super) async fn enroll_node(
    State(core): State<Arc<Core>>,
    headers: HeaderMap,
    peer: Option<Extension<Peer>>,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(body): StrictJson<Enrollment>,
) -> Result<(StatusCode, Json<Enrolled>), ApiError> {
    body.check()?;
    let secret = auth::bearer(&headers).ok_or_else(ApiError::invalid_node_credential)?;
    let tx = core.begin().await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let deployment = tx.deployment().await?;
    let token = tx
        .enrollment_token(&secret)
        .await?
        .filter(|token| token.usable(tx.now(), deployment.installation_id))
        .ok_or_else(ApiError::invalid_node_credential)?;
    let (Some(provider), Some(target)) = (deployment.provider, deployment.target()) else {
        return Err(ApiError::node_unavailable());
    };
    let Some(public_url) = core.config.public_url.as_ref().filter(|url| url.is_usable()) else {
        return Err(ApiError::configuration_error(
            "Core has no public address other machines can reach: set public_url first.",
        ));
    };
    if deployment.resetting() {
        return Err(ApiError::reset_in_progress());
    }
    if Mode::of(provider) != Mode::Nodes || body.provider != provider.as_str() {
        return Err(ApiError::invalid_request(format!(
            "This installation's backend is {}: enroll a node of that backend.",
            provider.as_str()
        )));
    }
    let row = tx
        .generation(target)
        .await?
        .ok_or_else(ApiError::specification_mismatch)?;
    if body.deployment_generation != target || !body.specification_digest.matches(&row.digest) {
        return Err(ApiError::specification_mismatch());
    }
    if body.core_url != public_url.as_str() {
        return Err(ApiError::node_address_mismatch());
    }
    let known =
        || ApiError::idempotency_conflict("A node with that identity is known already: create a new one.");
    if tx.node(body.node_id).await?.is_some() {
        return Err(known());
    }
    let node = NewNode {
        id: body.node_id,
        installation_id: deployment.installation_id,
        name: body.name,
        credential_digest: body.credential.digest(),
        provider,
        backend_fingerprint: body.backend_fingerprint,
        enrolled_generation: target,
        enrolled_digest: row.digest,
        core_url: body.core_url,
        max_active: token.max_active,
        max_retained: token.max_retained,
        limits: match token.limits {
            TokenLimits::Recommended => NodeLimits::RecommendedPending,
            TokenLimits::Custom => NodeLimits::Custom,
        },
        enrollment_id: Some(token.enrollment_id),
    };
    // The token first: of several hosts that ask at once, all but one wait here and then find it used.
    if !tx.consume_enrollment_token(token.enrollment_id, node.id).await? {
        return Err(ApiError::invalid_node_credential());
    }
    match tx.insert_node(&node).await {
        // Another enrollment with this identity or credential committed meanwhile; the token stays usable.
        Err(StoreError::Duplicate { .. }) => return Err(known()),
        stored => stored?,
    }
    let details = json!({ "name": node.name, "provider": provider, "enrollment_id": token.enrollment_id });
    let actor = format!("enrollment_token:{}", token.enrollment_id);
    auth::record(
        &tx,
        &actor,
        peer.map(|p| p.0.0),
        Audited::new("node", node.id, "add").details(details),
    )
    .await?;
    tx.commit().await?;
    let enrolled = Enrolled {
        node_id: node.id,
        installation_id: node.installation_id,
        provider,
        deployment_generation: target,
        specification_digest: node.enrolled_digest,
        max_active: node.max_active,
        max_retained: node.max_retained,
    };
    Ok((StatusCode::CREATED, Json(enrolled)))
}
