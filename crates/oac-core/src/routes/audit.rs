//! What operators, applications and Core itself changed (core.md section 16).

use std::{str::FromStr, sync::Arc};

use axum::{Json, extract::State};
use oac_model::{AuditId, Time};
use oac_store::AuditRow;
use serde::Serialize;
use utoipa_axum::routes;

use crate::{
    Core,
    http::{
        ApiError,
        auth::{CoreKeyAuth, Credential},
        page::{Page, PageQuery},
        router::{Body, Route},
        strict::StrictQuery,
    },
};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Credential::CoreKey, Body::None, routes!(list_audit))]
}

/// One action, stored together with its write.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct AuditEntry {
    #[schema(value_type = String, format = Uuid)]
    id: AuditId,
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// `core_key:ID`, `project_key:ID`, an enrollment's, or `core` for what Core did by itself.
    actor: String,
    /// The address the request came from, or what made Core act.
    source: String,
    resource_type: String,
    resource_id: String,
    action: String,
    /// What belongs to the action; never a credential.
    #[schema(value_type = Object)]
    details: serde_json::Value,
}

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.id,
            at: row.at,
            actor: row.actor,
            source: row.source,
            resource_type: row.resource_type,
            resource_id: row.resource_id,
            action: row.action,
            details: row.details,
        }
    }
}

/// The entry that ended the page before.
struct Position(Time, AuditId);

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, id) = text.split_once('_').ok_or(())?;
        let at = at.parse().ok().and_then(Time::from_millis).ok_or(())?;
        Ok(Self(at, id.parse().map_err(drop)?))
    }
}

/// The audit log, newest first.
#[utoipa::path(
    get,
    path = "/core/v1/audit",
    params(PageQuery),
    responses((status = 200, body = Page<AuditEntry>))
)]
async fn list_audit(
    State(core): State<Arc<Core>>,
    _: CoreKeyAuth,
    StrictQuery(query): StrictQuery<PageQuery>,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let (limit, after) = (query.limit()?, query.after::<Position>()?);
    let after = after.map(|Position(at, id)| (at, id));
    let rows = core.store.single().audit_log(after, limit + 1).await?;
    let cursor = |row: &AuditRow| format!("{}_{}", row.at.millis(), row.id);
    Ok(Json(Page::of(rows, limit, cursor, AuditEntry::from)))
}
