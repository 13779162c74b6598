//! Creating a Session: it appears together with its placement, and its sandbox starts at once (sessions.md section 2).

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use oac_lifecycle::placement::Request;
use oac_model::{EnvironmentId, NetworkAccess, ProviderKind, SessionId};
use oac_store::{EventKind, NewSession as NewRow};
use serde_json::json;

use super::{
    body::{BadMember, NewSession},
    idempotency::{Keyed, json as answer},
    shapes::SessionShape,
    view,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::ProjectAuth,
        strict::{NoQuery, StrictJson, StrictQuery},
    },
    placement::{self, Demand},
};

impl From<BadMember> for ApiError {
    fn from(bad: BadMember) -> Self {
        Self::invalid_member(bad.param, format!("{}: correct it.", bad.message))
    }
}

/// What a network access needs that a backend enforces (providers.md section 3).
fn enforces(provider: ProviderKind, access: NetworkAccess) -> bool {
    provider != ProviderKind::Docker || access == NetworkAccess::Public
}

/// Creates a Session and starts its sandbox.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    params(("Idempotency-Key" = Option<String>, Header, description = "At most 128 printable ASCII characters")),
    request_body = NewSession,
    responses((status = 201, body = SessionShape))
)]
pub(crate) async fn create_session(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    headers: HeaderMap,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(new): StrictJson<NewSession>,
) -> Result<Response, ApiError> {
    new.check()?;
    let keyed = Keyed::of(&headers, auth.project_id, "POST /v1/sessions".to_owned(), &new)?;
    if let Some(keyed) = &keyed
        && let Some(replayed) = keyed.replay(&core).await?
    {
        return Ok(replayed);
    }
    let deployment = core.store.single().deployment().await?;
    if deployment.resetting() {
        return Err(ApiError::reset_in_progress_unavailable());
    }
    let network = new.network.clone().unwrap_or_default();
    if deployment
        .provider
        .is_some_and(|provider| !enforces(provider, network.access))
    {
        return Err(ApiError::network_access_unsupported(
            "The sandbox backend does not enforce this network access: use access \"public\".",
        ));
    }
    let demand = Demand {
        project_id: auth.project_id,
        session_id: SessionId::random(),
        environment_id: EnvironmentId::random(),
        request: Request {
            required_labels: new.node_labels.clone(),
        },
    };
    let row = NewRow {
        id: demand.session_id,
        project_id: demand.project_id,
        environment_id: demand.environment_id,
        name: new.name,
        network,
        required_labels: new.node_labels,
        metadata: new.metadata,
    };
    let placing = placement::begin(&core, demand).await?;
    let tx = placing.tx();
    let session = tx.insert_session(&row).await?;
    tx.append_event(session.id, EventKind::SessionCreated, &json!({}))
        .await?;
    let shape = view::fresh(tx, session, placing.placed()).await?;
    let body = serde_json::to_string(&shape).map_err(|error| ApiError::internal("session", &error))?;
    if let Some(keyed) = &keyed
        && !keyed.store(tx, StatusCode::CREATED, &body).await?
    {
        drop(placing);
        return keyed.first(&core).await;
    }
    placing.commit().await?;
    Ok(answer(StatusCode::CREATED, body))
}
