//! Looking at Turns and canceling them.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use oac_model::{TurnId, TurnState};

use super::{
    read::target_session,
    shapes::{TurnPage, TurnShape},
    view,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::ProjectAuth,
        page::PageQuery,
        strict::{Empty, NoQuery, StrictJson, StrictQuery},
        target::Target,
    },
    turns::{Settlement, ledger},
};

/// A Session's Turns in sequence order.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/turns",
    params(("session_id" = String, Path, format = Uuid), PageQuery),
    responses((status = 200, body = TurnPage))
)]
pub(crate) async fn list_turns(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(page): StrictQuery<PageQuery>,
    target: Target,
) -> Result<Json<TurnPage>, ApiError> {
    let limit = page.limit()?;
    let after = page.after::<i64>()?.unwrap_or(0);
    let read = core.store.read().await?;
    let session = target_session(&read, auth.project_id, &target).await?;
    let mut rows = read.turns(session.id, after, limit + 1).await?;
    let more = rows.len() as u64 > limit;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.sequence.to_string());
    let mut data = Vec::with_capacity(rows.len());
    for row in rows {
        data.push(view::with_input(&read, row).await?);
    }
    Ok(Json(TurnPage { data, next }))
}

/// One Turn.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/turns/{turn_id}",
    params(("session_id" = String, Path, format = Uuid), ("turn_id" = String, Path, format = Uuid)),
    responses((status = 200, body = TurnShape))
)]
pub(crate) async fn show_turn(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
) -> Result<Json<TurnShape>, ApiError> {
    let read = core.store.read().await?;
    let session = target_session(&read, auth.project_id, &target).await?;
    let turn = view::turn_of(&read, session.id, target.id("turn_id")?).await?;
    turn.map(Json).ok_or_else(ApiError::not_found)
}

/// Cancels a Turn: a queued or waiting one at once, a running one by SIGTERM and, 10 s later, SIGKILL. Harmless to
/// repeat; a Turn that ended is answered unchanged.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/turns/{turn_id}/cancel",
    params(("session_id" = String, Path, format = Uuid), ("turn_id" = String, Path, format = Uuid)),
    request_body = Empty,
    responses((status = 202, body = TurnShape))
)]
pub(crate) async fn cancel_turn(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
    StrictJson(Empty {}): StrictJson<Empty>,
) -> Result<(StatusCode, Json<TurnShape>), ApiError> {
    let turn_id: TurnId = target.id("turn_id")?;
    let tx = core.begin().await?;
    let session = target_session(&tx, auth.project_id, &target).await?;
    let session = tx
        .lock_session(session.id)
        .await?
        .ok_or_else(ApiError::not_found)?;
    let mut turn = tx
        .turn_of_session(session.id, turn_id)
        .await?
        .ok_or_else(ApiError::not_found)?;
    match turn.state {
        TurnState::Running if turn.cancel_requested_at.is_none() => {
            turn.cancel_requested_at = Some(tx.now());
            tx.save_turn(&turn).await?;
        }
        TurnState::Queued | TurnState::Waiting => {
            let canceled = Settlement::without_exit(TurnState::Canceled, "canceled");
            ledger::end(&tx, &mut turn, &canceled).await?;
            ledger::advance(&tx, &session, None).await?;
        }
        _ => {}
    }
    let answer = view::with_input(&tx, turn).await?;
    tx.commit().await?;
    core.turns.notify(session.id, &[turn_id]);
    core.pokes.reset_may_go_on(session.id);
    match answer.allocation_id {
        Some(allocation) => core.links.wake(allocation),
        // The next one may be dispatched where the Session's sandbox is.
        None => wake(&core, session.environment_id).await,
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// Has the driver of the Session's sandbox look again.
async fn wake(core: &Core, environment: oac_model::EnvironmentId) {
    if let Ok(Some(allocation)) = core.store.single().unreleased_allocation(environment).await {
        core.links.wake(allocation.id);
    }
}
