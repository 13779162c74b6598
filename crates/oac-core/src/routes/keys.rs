//! Project API keys. A key is shown once; the database holds its digest.

use axum::{Json, http::StatusCode};
use oac_model::{ProjectId, ProjectKeyId, Time};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::routes;

use crate::{
    entropy::{self, PROJECT_KEY_PREFIX},
    http::{
        ApiError,
        auth::{Audited, Credential},
        check_name, limits,
        operator::Operator,
        router::{Body, Route},
        strict::StrictJson,
    },
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, json, routes!(create_project_key)),
        Route::new(Credential::CoreKey, Body::None, routes!(revoke_project_key)),
    ]
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProjectKey {
    /// What the key is for: 1 to 128 bytes, not blank.
    name: String,
}

/// A new key, the only time its text is shown.
#[derive(Serialize, utoipa::ToSchema)]
struct CreatedProjectKey {
    #[schema(value_type = String, format = Uuid)]
    id: ProjectKeyId,
    #[schema(value_type = String, format = Uuid)]
    project_id: ProjectId,
    name: String,
    /// `oac_key_` and 64 hex digits. Keep it: Core does not.
    key: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

/// Creates a key of a Project.
#[utoipa::path(
    post,
    path = "/core/v1/projects/{project_id}/keys",
    params(("project_id" = String, Path, format = Uuid)),
    request_body = NewProjectKey,
    responses((status = 201, body = CreatedProjectKey))
)]
async fn create_project_key(
    Operator { core, auth, target }: Operator,
    StrictJson(new): StrictJson<NewProjectKey>,
) -> Result<(StatusCode, Json<CreatedProjectKey>), ApiError> {
    let project_id: ProjectId = target.id("project_id")?;
    let tx = core.begin().await?;
    if tx.project(project_id).await?.is_none() {
        return Err(ApiError::not_found());
    }
    check_name("name", &new.name)?;
    let key = entropy::secret(PROJECT_KEY_PREFIX).map_err(|e| ApiError::internal("create a key", &e))?;
    let row = tx.create_project_key(project_id, &new.name, key.digest()).await?;
    let details = json!({ "project_id": project_id, "name": row.name });
    auth.audit(&tx, Audited::new("key", row.id, "create").details(details))
        .await?;
    tx.commit().await?;
    let created = CreatedProjectKey {
        id: row.id,
        project_id,
        name: row.name,
        key: key.expose().to_owned(),
        created_at: row.created_at,
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Revokes a key.
#[utoipa::path(
    delete,
    path = "/core/v1/projects/{project_id}/keys/{key_id}",
    params(("project_id" = String, Path, format = Uuid), ("key_id" = String, Path, format = Uuid)),
    responses((status = 204, description = "Revoked"))
)]
async fn revoke_project_key(Operator { core, auth, target }: Operator) -> Result<StatusCode, ApiError> {
    let (project_id, id): (ProjectId, ProjectKeyId) = (target.id("project_id")?, target.id("key_id")?);
    let tx = core.begin().await?;
    if !tx.revoke_project_key(project_id, id).await? {
        return Err(ApiError::not_found());
    }
    auth.audit(
        &tx,
        Audited::new("key", id, "delete").details(json!({ "project_id": project_id })),
    )
    .await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
