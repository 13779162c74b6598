//! Submitting an input (sessions.md section 3).
//!
//! Input and Turn are one transaction, with a placement if the Environment has none, and a refusal leaves nothing
//! (INV-S9). When the sandbox is linked and no other Turn is unfinished, the same transaction records the Turn as
//! sent; the driver of the link then sends it at once.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use oac_lifecycle::placement::Request;
use oac_model::{AllocationId, InputId, ProjectId, SessionId, SessionState, TurnId, TurnState};
use oac_store::{EventKind, NewInput as NewRow, SessionRow, Tx};
use serde_json::json;

use super::{
    body::NewInput,
    idempotency::{Keyed, json as answer},
    read::target_session,
    shapes::SubmittedInput,
    view,
};
use crate::{
    Core,
    http::{
        ApiError,
        auth::ProjectAuth,
        strict::{NoQuery, StrictJson, StrictQuery},
        target::Target,
    },
    limits,
    placement::{self, Demand},
    turns::ledger,
};

/// Submits a command. It runs after the Session's earlier ones.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/inputs",
    params(
        ("session_id" = String, Path, format = Uuid),
        ("Idempotency-Key" = Option<String>, Header, description = "At most 128 printable ASCII characters")
    ),
    request_body = NewInput,
    responses((status = 202, body = SubmittedInput))
)]
pub(crate) async fn submit_input(
    State(core): State<Arc<Core>>,
    auth: ProjectAuth,
    headers: HeaderMap,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
    StrictJson(new): StrictJson<NewInput>,
) -> Result<Response, ApiError> {
    new.check()?;
    let session = target_session(&core.store.single(), auth.project_id, &target).await?;
    let scope = format!("POST /v1/sessions/{}/inputs", session.id);
    let keyed = Keyed::of(&headers, auth.project_id, scope, &new)?;
    if let Some(keyed) = &keyed
        && let Some(replayed) = keyed.replay(&core).await?
    {
        return Ok(replayed);
    }
    let admission = Admission {
        project: auth.project_id,
        session: session.id,
        new,
        keyed,
    };
    let stored = match admission.here(&core).await? {
        Placed::Stored(body) => Some(body),
        Placed::First => None,
        Placed::Nowhere => admission.elsewhere(&core, session).await?,
    };
    match (stored, &admission.keyed) {
        (Some(body), _) => Ok(answer(StatusCode::ACCEPTED, body)),
        (None, Some(keyed)) => keyed.first(&core).await,
        (None, None) => Err(ApiError::not_found()),
    }
}

/// What became of an input where the Environment's compute is.
enum Placed {
    /// Stored; the answer's text.
    Stored(String),
    /// Another request with the same Idempotency-Key was first.
    First,
    /// The Environment has no compute; nothing was stored.
    Nowhere,
}

struct Admission {
    project: ProjectId,
    session: SessionId,
    new: NewInput,
    keyed: Option<Keyed>,
}

impl Admission {
    async fn here(&self, core: &Core) -> Result<Placed, ApiError> {
        let tx = core.begin().await?;
        let session = self.checked(&tx).await?;
        let Some(placement) = tx.unreleased_placement(session.environment_id).await? else {
            return Ok(Placed::Nowhere);
        };
        if tx.deployment().await?.resetting() {
            return Err(ApiError::reset_in_progress_unavailable());
        }
        let allocation = tx.allocation_of_placement(placement.id).await?;
        let ready = allocation
            .map(|a| a.id)
            .filter(|id| core.links.ready(*id).is_some());
        let Some((body, sent)) = self.store(&tx, &session, ready).await? else {
            return Ok(Placed::First);
        };
        tx.commit().await?;
        core.turns.notify(session.id, &[]);
        if let Some(allocation) = sent {
            core.links.wake(allocation);
        }
        Ok(Placed::Stored(body))
    }

    /// Stores the input with a placement; `None` when another request with the same Idempotency-Key was first.
    async fn elsewhere(&self, core: &Core, session: SessionRow) -> Result<Option<String>, ApiError> {
        let demand = Demand {
            project_id: session.project_id,
            session_id: session.id,
            environment_id: session.environment_id,
            request: Request {
                required_labels: session.required_labels,
            },
        };
        let placing = placement::begin(core, demand).await?;
        let session = self.checked(placing.tx()).await?;
        let Some((body, _)) = self.store(placing.tx(), &session, None).await? else {
            return Ok(None);
        };
        placing.commit().await?;
        core.turns.notify(session.id, &[]);
        Ok(Some(body))
    }

    /// The Session, locked, if it takes the input.
    async fn checked(&self, tx: &Tx) -> Result<SessionRow, ApiError> {
        let session = tx
            .lock_session(self.session)
            .await?
            .filter(|s| s.project_id == self.project);
        let session = session.ok_or_else(ApiError::not_found)?;
        if session.archived_at.is_some() {
            return Err(ApiError::session_archived());
        }
        let (queued, running) = tx.turn_counts(session.id).await?;
        if queued + running >= limits::UNFINISHED_TURNS {
            return Err(ApiError::turn_queue_full());
        }
        Ok(session)
    }

    /// Stores input, Turn and answer, and records the Turn as sent to `ready` when it is next. The answer's text, and
    /// where the Turn goes; `None` when another request with the same Idempotency-Key was first.
    async fn store(
        &self,
        tx: &Tx,
        session: &SessionRow,
        ready: Option<AllocationId>,
    ) -> Result<Option<(String, Option<AllocationId>)>, ApiError> {
        let (_, turn) = tx
            .insert_input(&NewRow {
                id: InputId::random(),
                turn_id: TurnId::random(),
                session_id: session.id,
                args: self.new.args.clone(),
                cwd: self.new.cwd().to_owned(),
                env: self.new.env.clone(),
                stdin: self.new.stdin.as_ref().map(|s| s.0.clone()),
                timeout_seconds: self.new.timeout_seconds(),
                state: TurnState::Queued,
            })
            .await?;
        if session.state != SessionState::Busy {
            tx.set_session_state(session.id, SessionState::Busy, None).await?;
        }
        if session.state == SessionState::Failed {
            // The attempts count anew.
            tx.set_failed_creates(session.id, 0).await?;
        }
        tx.touch_session(session.id).await?;
        tx.append_event(session.id, EventKind::TurnQueued, &json!({ "turn_id": turn.id }))
            .await?;
        ledger::advance(tx, session, ready).await?;
        let shape = view::turn_of(tx, session.id, turn.id)
            .await?
            .ok_or_else(ApiError::not_found)?;
        let sent = shape.allocation_id;
        let answer = SubmittedInput {
            input: shape.input.clone(),
            turn: shape,
        };
        let body = serde_json::to_string(&answer).map_err(|error| ApiError::internal("input", &error))?;
        if let Some(keyed) = &self.keyed
            && !keyed.store(tx, StatusCode::ACCEPTED, &body).await?
        {
            return Ok(None);
        }
        Ok(Some((body, sent)))
    }
}
