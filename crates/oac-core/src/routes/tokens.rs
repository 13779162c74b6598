//! Enrollment tokens, each good for one node (core.md section 9).

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use oac_lifecycle::capacity::Limits;
use oac_model::{EnrollmentId, Time};
use oac_store::{DeploymentLock, DeploymentRow, NewEnrollmentToken, TokenLimits};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::routes;

use super::{commands, deployment::Mode};
use crate::{
    Core, entropy,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth, Credential},
        limits,
        operator::Operator,
        router::{Body, Route},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
};

/// How long a token may be used, on the database's clock.
const LIVES_SECONDS: u32 = 3600;

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, json, routes!(create_enrollment_token)).refuses(&[409]),
        Route::new(Credential::CoreKey, Body::None, routes!(revoke_enrollment_token)).refuses(&[409]),
    ]
}

/// The capacity the new node gets: `{"recommended": true}` or nothing for what Core recommends, or both limits.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    /// True when given.
    #[schema(nullable = false)]
    recommended: Option<bool>,
    /// Sandboxes at once.
    #[schema(nullable = false, minimum = 1, maximum = 1_000_000)]
    max_active: Option<i64>,
    /// Running and suspended sandboxes together; for Docker equal to `max_active`.
    #[schema(nullable = false, minimum = 1, maximum = 1_000_000)]
    max_retained: Option<i64>,
}

/// A new token, the only time its text is shown.
#[derive(Serialize, utoipa::ToSchema)]
struct CreatedToken {
    /// 64 hex digits; enrolls one node.
    token: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Time,
    #[schema(value_type = String, format = Uuid)]
    enrollment_id: EnrollmentId,
    /// What makes a host a node when it is pasted there: one line, the token in it. Null while this Core lacks a file
    /// that the host would need; `index.json` tells which.
    #[schema(required)]
    command: Option<String>,
}

/// The limits a body asks for.
fn capacity(body: &NewToken, deployment: &DeploymentRow) -> Result<(TokenLimits, u32, u32), ApiError> {
    match (body.recommended, body.max_active, body.max_retained) {
        (None | Some(true), None, None) => Ok((TokenLimits::Recommended, 1, 1)),
        (Some(false), None, None) => Err(ApiError::invalid_member(
            "recommended",
            "recommended is true or absent: give both limits instead.",
        )),
        (None, Some(active), Some(retained)) => Limits::custom(deployment.provider, active, retained)
            .map(|limits| (TokenLimits::Custom, limits.active, limits.retained))
            .ok_or_else(ApiError::invalid_node_capacity),
        _ => Err(ApiError::invalid_node_capacity()),
    }
}

/// Creates a token, which enrolls one node within an hour.
#[utoipa::path(
    post,
    path = "/core/v1/sandbox/enrollment-tokens",
    request_body = NewToken,
    responses((status = 201, body = CreatedToken))
)]
async fn create_enrollment_token(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(body): StrictJson<NewToken>,
) -> Result<(StatusCode, Json<CreatedToken>), ApiError> {
    let tx = core.begin().await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let deployment = tx.deployment().await?;
    let (limits, max_active, max_retained) = capacity(&body, &deployment)?;
    if deployment.resetting() {
        return Err(ApiError::reset_in_progress());
    }
    let stored = match deployment.target() {
        Some(target) => tx.generation(target).await?,
        None => None,
    };
    let ready =
        stored.filter(|row| Mode::of(row.provider) == Mode::Nodes && row.specification.validate().is_ok());
    let Some(stored) = ready else {
        return Err(ApiError::deployment_conflict(
            "Nodes need a saved sandbox configuration of Docker or microsandbox: save one first.",
        ));
    };
    let address = commands::usable_address(&core)?;
    let token = entropy::secret("").map_err(|e| ApiError::internal("create an enrollment token", &e))?;
    let new = NewEnrollmentToken {
        token_digest: token.digest(),
        limits,
        max_active,
        max_retained,
        lives_seconds: LIVES_SECONDS,
    };
    let row = tx
        .create_enrollment_token(deployment.installation_id, &new)
        .await?;
    let details = json!({ "limits": limits, "max_active": max_active, "max_retained": max_retained });
    auth.audit(
        &tx,
        Audited::new("enrollment_token", row.enrollment_id, "create").details(details),
    )
    .await?;
    let command = commands::install(
        &core,
        address,
        deployment.installation_id,
        stored.provider,
        &token,
    )?;
    tx.commit().await?;
    let created = CreatedToken {
        token: token.expose().to_owned(),
        expires_at: row.expires_at,
        enrollment_id: row.enrollment_id,
        command: command.map(|command| command.expose().to_owned()),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Revokes a token that was not used; 404 for any other. 409 during a reset, whose completion revokes all.
#[utoipa::path(
    delete,
    path = "/core/v1/sandbox/enrollment-tokens/{enrollment_id}",
    params(("enrollment_id" = String, Path, format = Uuid)),
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_enrollment_token(Operator { core, auth, target }: Operator) -> Result<StatusCode, ApiError> {
    let id: EnrollmentId = target.id("enrollment_id")?;
    let tx = core.begin().await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let resetting = tx.deployment().await?.resetting();
    if !tx.revoke_enrollment_token(id).await? {
        return Err(ApiError::not_found());
    }
    if resetting {
        return Err(ApiError::reset_in_progress());
    }
    auth.audit(&tx, Audited::new("enrollment_token", id, "revoke"))
        .await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
