//! Ending a Session, by its application or by an operator (sessions.md section 2, core.md section 14).

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use oac_model::{AllocationId, EnvironmentId, ProjectId, SessionId, TurnId};
use oac_store::{DeploymentLock, EventKind, Read, SessionRow, StoreError, Tx};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{read::target_session, shapes::SessionShape, view};
use crate::{
    Core,
    allocations::{self, Cause},
    http::{
        ApiError,
        auth::{Audited, ProjectAuth},
        operator::Operator,
        strict::{NoQuery, StrictJson, StrictQuery},
        target::Target,
    },
    turns::ledger,
};

/// Archives a Session: its Turns are canceled and its sandbox is removed. Harmless to repeat.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}",
    params(("session_id" = String, Path, format = Uuid)),
    responses((status = 202, body = SessionShape))
)]
pub(crate) async fn delete_session(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
) -> Result<(StatusCode, Json<SessionShape>), ApiError> {
    let tx = core.begin().await?;
    let session = target_session(&tx, auth.project_id, &target).await?;
    let done = archive(&tx, session.id, Cause::Archive).await?;
    if let Some(done) = done {
        auth.audit(&tx, Audited::new("session", session.id, "archive"))
            .await?;
        let row = target_session(&tx, auth.project_id, &target).await?;
        let answer = view::session(&core, &tx, row).await?;
        tx.commit().await?;
        done.tell(&core);
        return Ok((StatusCode::ACCEPTED, Json(answer)));
    }
    Ok((
        StatusCode::ACCEPTED,
        Json(view::session(&core, &tx, session).await?),
    ))
}

/// What others learn once an archive is committed.
pub(crate) struct Archived {
    session: SessionId,
    turns: Vec<TurnId>,
    allocation: Option<AllocationId>,
}

impl Archived {
    pub(crate) fn tell(self, core: &Core) {
        if let Some(allocation) = self.allocation {
            core.links.revoke(allocation);
            core.pokes.changed(allocation);
        }
        core.turns.notify(self.session, &self.turns);
        core.pokes.reset_may_go_on(self.session);
    }
}

/// Ends the Session, its Turns and its claim on a sandbox; `None` when it is archived already, or none.
/// `cause` is why its sandbox goes.
pub(crate) async fn archive(tx: &Tx, id: SessionId, cause: Cause) -> Result<Option<Archived>, StoreError> {
    let session = tx.lock_session(id).await?.filter(|s| s.archived_at.is_none());
    let Some(session) = session else {
        return Ok(None);
    };
    let turns = ledger::cancel_all(tx, id).await?;
    tx.archive_session(id).await?;
    tx.append_event(id, EventKind::SessionArchived, &json!({}))
        .await?;
    let allocation = tx
        .unreleased_allocation(session.environment_id)
        .await?
        .map(|a| a.id);
    match allocation {
        Some(allocation) => drop(allocations::begin_cleanup(tx, allocation, cause).await?),
        None => {
            // A placement that no allocation took up yet: nothing was ever sent.
            if let Some(placement) = tx.unreleased_placement(session.environment_id).await? {
                tx.release_placement(placement.id).await?;
            }
        }
    }
    Ok(Some(Archived {
        session: id,
        turns,
        allocation,
    }))
}

/// How far a Session's archive came.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionArchive)]
pub(crate) struct ArchiveShape {
    #[schema(value_type = uuid::Uuid)]
    session_id: SessionId,
    #[schema(value_type = uuid::Uuid)]
    environment_id: EnvironmentId,
    state: ArchiveState,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ArchiveState {
    /// Not archived.
    Active,
    /// Archived; its sandbox is still being removed.
    CleanupPending,
    /// Archived; nothing of it is left.
    Released,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveRequest {
    /// The deployment's generation as the caller knows it.
    #[schema(minimum = 0)]
    expected_generation: i64,
}

async fn of_project(read: &Read, target: &Target) -> Result<SessionRow, ApiError> {
    let project: ProjectId = target.id("project_id")?;
    target_session(read, project, target).await
}

async fn shape(read: &Read, session: &SessionRow) -> Result<ArchiveShape, ApiError> {
    let state = if session.archived_at.is_none() {
        ArchiveState::Active
    } else if read.unreleased_placement(session.environment_id).await?.is_some() {
        ArchiveState::CleanupPending
    } else {
        ArchiveState::Released
    };
    Ok(ArchiveShape {
        session_id: session.id,
        environment_id: session.environment_id,
        state,
    })
}

/// How far a Session's archive came.
#[utoipa::path(
    get,
    path = "/core/v1/projects/{project_id}/sessions/{session_id}/archive",
    params(("project_id" = String, Path, format = Uuid), ("session_id" = String, Path, format = Uuid)),
    responses((status = 200, body = ArchiveShape))
)]
pub(crate) async fn show_archive(
    Operator { core, target, .. }: Operator,
) -> Result<Json<ArchiveShape>, ApiError> {
    let read = core.store.read().await?;
    let session = of_project(&read, &target).await?;
    Ok(Json(shape(&read, &session).await?))
}

/// Archives a Session of any Project.
#[utoipa::path(
    post,
    path = "/core/v1/projects/{project_id}/sessions/{session_id}/archive",
    params(("project_id" = String, Path, format = Uuid), ("session_id" = String, Path, format = Uuid)),
    request_body = ArchiveRequest,
    responses((status = 202, body = ArchiveShape))
)]
pub(crate) async fn archive_session(
    Operator { core, auth, target }: Operator,
    StrictJson(request): StrictJson<ArchiveRequest>,
) -> Result<(StatusCode, Json<ArchiveShape>), ApiError> {
    let tx = core.begin().await?;
    // Until the archive is stored the generation stays what the caller knows.
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let session = of_project(&tx, &target).await?;
    let generation = tx.deployment().await?.generation;
    if generation != request.expected_generation {
        return Err(ApiError::generation_stale(generation));
    }
    let done = archive(&tx, session.id, Cause::Archive).await?;
    if done.is_some() {
        auth.audit(&tx, Audited::new("session", session.id, "archive"))
            .await?;
    }
    let session = of_project(&tx, &target).await?;
    let answer = shape(&tx, &session).await?;
    tx.commit().await?;
    if let Some(done) = done {
        done.tell(&core);
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}
