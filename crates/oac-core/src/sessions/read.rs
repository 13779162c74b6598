//! Looking at Sessions. Reading wakes nothing and is not activity (INV-S17).

use std::sync::Arc;

use axum::{Json, extract::State};
use oac_model::{ProjectId, SessionId, SessionState, Time};
use oac_store::{Read, SessionRow};
use serde::Deserialize;

use super::{
    shapes::{SessionPage, SessionShape},
    view,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::ProjectAuth,
        page::PageQuery,
        strict::{NoQuery, StrictQuery},
        target::Target,
    },
};

/// The Session that `{session_id}` names, if it is this Project's (INV-S10).
pub(super) async fn target_session(
    read: &Read,
    project: ProjectId,
    target: &Target,
) -> Result<SessionRow, ApiError> {
    let id: SessionId = target.id("session_id")?;
    read.session_of_project(project, id)
        .await?
        .ok_or_else(ApiError::not_found)
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionsQuery {
    /// The `next` of the page before.
    #[param(nullable = false)]
    cursor: Option<String>,
    /// Rows of a page, 1 to 100; 100 without it.
    #[param(nullable = false, minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// Only Sessions in this state.
    #[param(nullable = false, value_type = Option<super::shapes::SessionStateShape>)]
    state: Option<SessionState>,
}

/// A place in the list: creation time in milliseconds, and id.
struct After(Time, SessionId);

impl std::str::FromStr for After {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (millis, id) = text.split_once('.').ok_or(())?;
        let at = Time::from_millis(millis.parse().map_err(|_| ())?).ok_or(())?;
        Ok(Self(at, id.parse().map_err(|_| ())?))
    }
}

/// The Project's Sessions, newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    params(SessionsQuery),
    responses((status = 200, body = SessionPage))
)]
pub(crate) async fn list_sessions(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(query): StrictQuery<SessionsQuery>,
) -> Result<Json<SessionPage>, ApiError> {
    let page = PageQuery {
        cursor: query.cursor,
        limit: query.limit,
    };
    let limit = page.limit()?;
    let after = page.after::<After>()?.map(|After(at, id)| (at, id));
    let read = core.store.read().await?;
    let mut rows = read
        .sessions_of_project(auth.project_id, query.state, after, limit + 1)
        .await?;
    let more = rows.len() as u64 > limit;
    rows.truncate(limit as usize);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|row| format!("{}.{}", row.created_at.millis(), row.id));
    let mut data = Vec::with_capacity(rows.len());
    for row in rows {
        data.push(view::session(&core, &read, row).await?);
    }
    Ok(Json(SessionPage { data, next }))
}

/// One Session.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}",
    params(("session_id" = String, Path, format = Uuid)),
    responses((status = 200, body = SessionShape))
)]
pub(crate) async fn show_session(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
) -> Result<Json<SessionShape>, ApiError> {
    let read = core.store.read().await?;
    let row = target_session(&read, auth.project_id, &target).await?;
    Ok(Json(view::session(&core, &read, row).await?))
}
