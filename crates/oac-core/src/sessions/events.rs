//! A Session's numbered facts as an event stream (sessions.md section 3, "Events").

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use oac_model::{SessionId, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    frames::SessionStreamEvent,
    read::target_session,
    stream::{self, Found, event},
};
use crate::{
    Core,
    http::{ApiError, auth::ProjectAuth, strict::StrictQuery, target::Target},
    limits,
};

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// The number of the last event known; 0 without it. `Last-Event-ID` prevails.
    #[param(nullable = false)]
    after: Option<u64>,
}

/// One fact; the event's name is its type and its id its number.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionEvent {
    sequence: i64,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: oac_store::EventKind,
    #[schema(value_type = Object)]
    data: serde_json::Value,
    #[schema(value_type = String, format = DateTime)]
    created_at: Time,
}

/// Follows a Session's events; the stream ends after `session.archived`. The latest 10,000 are kept. Following wakes no
/// sandbox.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/events",
    params(("session_id" = String, Path, format = Uuid), EventsQuery),
    responses((status = 200, description = "One event after another", body = SessionStreamEvent, content_type = "text/event-stream"))
)]
pub(crate) async fn follow_events(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(query): StrictQuery<EventsQuery>,
    target: Target,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = stream::resume(&headers, query.after, "after")?;
    let after =
        i64::try_from(after).map_err(|_| ApiError::invalid_member("after", "after is no event's number."))?;
    let session = target_session(&core.store.single(), auth.project_id, &target).await?;
    let changes = core.turns.events.subscribe(session.id);
    let place = stream::open(&core, session.id)?;
    Ok(stream::respond(
        core,
        changes,
        place,
        after,
        move |core, after| async move { next(&core, session.id, after).await },
    ))
}

async fn next(core: &Core, session: SessionId, after: i64) -> Result<(i64, Found), ApiError> {
    let read = core.store.single();
    // The Session first: when it is archived, the events read after it are all there are.
    let archived = read
        .session(session)
        .await?
        .ok_or_else(ApiError::not_found)?
        .archived_at
        .is_some();
    let rows = read.events_after(session, after, limits::EVENTS_PAGE).await?;
    let full = rows.len() as u64 == limits::EVENTS_PAGE;
    let (mut text, mut last) = (String::new(), after);
    for row in rows {
        last = row.sequence;
        let shape = SessionEvent {
            sequence: row.sequence,
            kind: row.kind,
            data: row.data,
            created_at: row.created_at,
        };
        event(&mut text, shape.kind.as_str(), u64::try_from(last).ok(), &shape);
    }
    Ok(if archived && !full {
        (last, Found::Last(text))
    } else if text.is_empty() {
        (last, Found::Nothing)
    } else {
        (last, Found::Some(text))
    })
}
