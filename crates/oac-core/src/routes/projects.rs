//! Projects, the tenants of the installation.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use oac_model::{ProjectId, Time};
use oac_store::ProjectRow;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::{Audited, CoreKeyAuth, Credential},
        check_name, limits,
        operator::Operator,
        router::{Body, Route},
        strict::{NoQuery, StrictJson, StrictQuery},
    },
};

pub(crate) fn routes() -> Vec<Route> {
    let json = Body::Json {
        limit: limits::JSON_BODY_BYTES,
    };
    vec![
        Route::new(Credential::CoreKey, Body::None, routes!(list_projects)),
        Route::new(Credential::CoreKey, json, routes!(create_project)),
        Route::new(Credential::CoreKey, Body::None, routes!(delete_project)).refuses(&[409]),
    ]
}

/// The tenant of Sessions and their keys.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Project {
    #[schema(value_type = String, format = Uuid)]
    id: ProjectId,
    name: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewProject {
    /// 1 to 128 bytes, not blank.
    name: String,
}

impl From<ProjectRow> for Project {
    fn from(row: ProjectRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            created_at: row.created_at,
        }
    }
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Projects {
    data: Vec<Project>,
}

/// The Projects, oldest first.
#[utoipa::path(get, path = "/core/v1/projects", responses((status = 200, body = Projects)))]
async fn list_projects(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
) -> Result<Json<Projects>, ApiError> {
    let rows = core.store.single().projects().await?;
    Ok(Json(Projects {
        data: rows.into_iter().map(Project::from).collect(),
    }))
}

/// Creates a Project.
#[utoipa::path(post, path = "/core/v1/projects", request_body = NewProject, responses((status = 201, body = Project)))]
async fn create_project(
    State(core): State<Arc<Core>>,
    auth: CoreKeyAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    StrictJson(new): StrictJson<NewProject>,
) -> Result<(StatusCode, Json<Project>), ApiError> {
    check_name("name", &new.name)?;
    let tx = core.begin().await?;
    let row = tx.create_project(&new.name).await?;
    auth.audit(
        &tx,
        Audited::new("project", row.id, "create").details(json!({ "name": row.name })),
    )
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(row.into())))
}

/// Deletes a Project without sandboxes, and its keys with it.
#[utoipa::path(
    delete,
    path = "/core/v1/projects/{project_id}",
    params(("project_id" = String, Path, format = Uuid)),
    responses((status = 204, description = "Deleted"))
)]
async fn delete_project(Operator { core, auth, target }: Operator) -> Result<StatusCode, ApiError> {
    let id: ProjectId = target.id("project_id")?;
    let tx = core.begin().await?;
    if !tx.delete_project(id).await? {
        return Err(ApiError::not_found());
    }
    let (allocations, pending) = tx.project_resources(id).await?;
    if allocations + pending > 0 {
        return Err(ApiError::in_use(allocations, pending));
    }
    auth.audit(&tx, Audited::new("project", id, "delete")).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
