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
use oac_model::{AllocationId, InputId, ProjectId, SessionId, SessionState, TurnId, TurnState};
use oac_store::{EventKind, NewInput as NewRow, SessionRow, StoreError, Tx};
use oac_telemetry::traces::Parent;
use serde_json::json;

use super::{
    body::NewInput,
    idempotency::{Keyed, json as answer},
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
    metrics::Asked,
    placement::{self, Demand, PlaceError},
    turns::ledger::{self, Job},
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
    Asked(parent): Asked,
    headers: HeaderMap,
    StrictQuery(NoQuery {}): StrictQuery<NoQuery>,
    target: Target,
    StrictJson(new): StrictJson<NewInput>,
) -> Result<Response, ApiError> {
    new.check()?;
    let session: SessionId = target.id("session_id")?;
    let scope = format!("POST /v1/sessions/{session}/inputs");
    let keyed = Keyed::of(&headers, auth.project_id, scope, &new)?;
    if let Some(keyed) = &keyed
        && let Some(replayed) = keyed.replay(&core).await?
    {
        return Ok(replayed);
    }
    let admission = Admission {
        project: auth.project_id,
        session,
        new,
        keyed,
        parent,
    };
    match (admission.admit(&core).await?, &admission.keyed) {
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
    /// The Session's Environment has no compute; nothing was stored.
    Nowhere(Box<SessionRow>),
}

struct Admission {
    project: ProjectId,
    session: SessionId,
    new: NewInput,
    keyed: Option<Keyed>,
    /// The request.
    parent: Parent,
}

impl Admission {
    /// The answer's text; `None` when another request with the same Idempotency-Key was first.
    async fn admit(&self, core: &Core) -> Result<Option<String>, ApiError> {
        for _ in 0..limits::ADMISSION_TRIES {
            match self.here(core).await? {
                Placed::Stored(body) => return Ok(Some(body)),
                Placed::First => return Ok(None),
                Placed::Nowhere(session) => match self.elsewhere(core, *session).await {
                    Err(PlaceError::Store(StoreError::Duplicate { .. })) => {
                        // Someone else placed it meanwhile.
                    }
                    placed => return placed.map_err(ApiError::from)?,
                },
            }
        }
        Err(ApiError::node_unavailable())
    }

    /// Stores the input where the Environment's compute is.
    async fn here(&self, core: &Core) -> Result<Placed, ApiError> {
        let tx = core.begin().await?;
        let (session, unfinished) = self.checked(&tx).await?;
        let allocation = tx.unreleased_allocation(session.environment_id).await?;
        if allocation.is_none() && tx.unreleased_placement(session.environment_id).await?.is_none() {
            return Ok(Placed::Nowhere(Box::new(session)));
        }
        if placement::resetting(core, &tx).await? {
            return Err(ApiError::reset_in_progress_unavailable());
        }
        let id = allocation.as_ref().map(|a| a.id);
        let asleep = allocation.as_ref().is_some_and(ledger::rests);
        // Next, and its sandbox waits for it.
        let link = allocation
            .filter(|a| unfinished == 0 && ledger::takes_turns(a))
            .and_then(|a| core.links.ready(a.id));
        let Some((body, job)) = self
            .store(
                &tx,
                &session,
                unfinished,
                link.as_ref().map(|link| link.allocation_id()),
            )
            .await?
        else {
            return Ok(Placed::First);
        };
        tx.commit().await?;
        if asleep {
            core.pokes.want(session.id);
        }
        core.turns.notify(session.id, &[]);
        match (link, job, id) {
            (Some(link), Some(job), _) => link.hand(job),
            // A sandbox that became ready meanwhile has looked before there was anything to see.
            (_, _, Some(id)) if unfinished == 0 => core.links.wake(id),
            _ => {}
        }
        Ok(Placed::Stored(body))
    }

    /// Stores the input with a placement.
    async fn elsewhere(
        &self,
        core: &Core,
        session: SessionRow,
    ) -> Result<Result<Option<String>, ApiError>, PlaceError> {
        let placing = placement::begin(core, Demand::of(&session).within(self.parent.clone())).await?;
        let stored = async {
            let (session, unfinished) = self.checked(placing.tx()).await?;
            self.store(placing.tx(), &session, unfinished, None).await
        };
        match stored.await {
            Ok(Some((body, _))) => {
                placing.commit().await?;
                core.turns.notify(session.id, &[]);
                Ok(Ok(Some(body)))
            }
            Ok(None) => Ok(Ok(None)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// The Session, locked, if it takes the input, and how many of its Turns are unfinished.
    async fn checked(&self, tx: &Tx) -> Result<(SessionRow, u64), ApiError> {
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
        Ok((session, queued + running))
    }

    /// Stores input, Turn and answer, and records the Turn as sent to `allocation`, which is given when it is next and can
    /// go there. The answer's text, and what was sent; `None` when another request with the same Idempotency-Key was
    /// first.
    async fn store(
        &self,
        tx: &Tx,
        session: &SessionRow,
        unfinished: u64,
        allocation: Option<AllocationId>,
    ) -> Result<Option<(String, Option<Job>)>, ApiError> {
        let state = if unfinished == 0 {
            TurnState::Waiting
        } else {
            TurnState::Queued
        };
        let (input, mut turn) = tx
            .insert_input(&NewRow {
                id: InputId::random(),
                turn_id: TurnId::random(),
                session_id: session.id,
                args: self.new.args.clone(),
                cwd: self.new.cwd().to_owned(),
                env: self.new.env.clone(),
                stdin: self.new.stdin.as_ref().map(|s| s.0.clone()),
                timeout_seconds: self.new.timeout_seconds(),
                state,
            })
            .await?;
        tx.activate_session(session.id, SessionState::Busy).await?;
        if session.state == SessionState::Failed {
            // The attempts count anew.
            tx.set_failed_creates(session.id, 0).await?;
        }
        let data = json!({ "turn_id": turn.id });
        tx.append_event(session.id, EventKind::TurnQueued, &data).await?;
        let mut job = None;
        if let Some(allocation) = allocation {
            let sent = ledger::send(tx, turn, input.clone(), allocation).await?;
            turn = sent.turn.clone();
            job = Some(sent);
        }
        let shape = view::turn(turn, input);
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
        Ok(Some((body, job)))
    }
}
