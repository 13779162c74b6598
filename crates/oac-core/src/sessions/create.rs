//! Creating a Session: it appears together with its placement, and its sandbox starts at once (sessions.md section 2).

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use oac_model::{EnvironmentId, NetworkAccess, ProviderKind, SessionId};
use oac_store::NewSession as NewRow;

use super::{
    admission::{Admitted, admit},
    body::{BadMember, NewSession},
    idempotency::{Keyed, json as answer},
    shapes::SessionShape,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::ProjectAuth,
        strict::{NoQuery, StrictJson, StrictQuery},
    },
    metrics::Asked,
    placement::{self, PlaceError},
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
    Asked(parent): Asked,
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
    let read = core.store.single();
    if placement::resetting(&core, &read).await? {
        return Err(ApiError::reset_in_progress_unavailable());
    }
    let network = new.network.clone().unwrap_or_default();
    // Every backend gives public access, which most Sessions have.
    if network.access != NetworkAccess::Public
        && let Some(provider) = read.deployment().await?.provider
        && !enforces(provider, network.access)
    {
        return Err(ApiError::network_access_unsupported(
            "The sandbox backend does not enforce this network access: use access \"public\".",
        ));
    }
    let row = NewRow {
        id: SessionId::random(),
        project_id: auth.project_id,
        environment_id: EnvironmentId::random(),
        name: new.name,
        network,
        required_labels: new.node_labels,
        metadata: new.metadata,
    };
    match (admit(&core, row, keyed.clone(), parent).await, keyed) {
        (Ok(Admitted::Stored { body, .. }), _) => Ok(answer(StatusCode::CREATED, body)),
        (Ok(Admitted::First), Some(keyed)) => keyed.first(&core).await,
        (Ok(Admitted::First), None) => Err(ApiError::internal("admission", &PlaceError::Unanswered)),
        // The last place may have gone to this very request, asked before.
        (Err(error @ PlaceError::Refused(_)), Some(keyed)) => {
            keyed.replay(&core).await?.ok_or_else(|| error.into())
        }
        (Err(error), _) => Err(error.into()),
    }
}
