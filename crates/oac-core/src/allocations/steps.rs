//! The steps a plan names, each with its transactions around the call it makes.

use oac_lifecycle::allocation::{Action, Event, Sighting, State};
use oac_model::{ConnectionId, NodeId, OperationId, ProviderKind, Secret};
use oac_peer::FailureCode;
use oac_store::AllocationRow;
use oac_wire::{
    Nullable,
    frames::{Arguments, ResponseResult},
    shapes::{Bootstrap, Link, LinkResource, LinkResourceKind},
};

use super::{
    limits,
    record::{self, Applied, ApplyError, Detail},
    suspension::Told,
};
use crate::{
    Core,
    http::error::Chain,
    hub::{CallOutcome, Request},
};

/// What a finished step tells the watch.
#[derive(Debug)]
pub(super) enum Done {
    /// Nothing but that time passed and rows may have changed.
    Stored,
    NotSent,
    CreateAnswered(ConnectionId),
    KillAnswered,
    AnswerLost,
    Looked {
        state: State,
        on: ConnectionId,
        sighting: Sighting,
    },
    /// Of one that can be suspended.
    Told(Told),
    /// The database or the ownership did not carry it; try again.
    Failed,
}

/// Performs one action for an allocation as it was read.
pub(super) async fn perform(core: &Core, row: &AllocationRow, state: State, action: Action) -> Done {
    let done = match action {
        Action::Create => create(core, row).await,
        Action::Kill => kill(core, row).await,
        Action::Look => look(core, row, state).await,
        Action::DropIntent => event(core, row, Event::NotSent).await,
        Action::GiveUpAnswer => event(core, row, Event::AnswerLost)
            .await
            .map(|_| Done::AnswerLost),
        Action::GiveUp(cause) => event(core, row, Event::GivenUp(cause)).await,
    };
    match done {
        Ok(done) => done,
        // Someone else was first; the next pass reads what is so.
        Err(ApplyError::Refused(_) | ApplyError::Held(_) | ApplyError::Missing) => Done::Stored,
        Err(error) => {
            tracing::warn!(event = "allocation_step_failed", allocation_id = %row.id, ?action, error = %Chain(&error), "a step of an allocation failed");
            Done::Failed
        }
    }
}

async fn event(core: &Core, row: &AllocationRow, event: Event) -> Result<Done, ApplyError> {
    store(core, row, event, Detail::default)
        .await
        .map(|_| Done::Stored)
}

/// Stores an event, again while the database is merely busy.
async fn store<'a>(
    core: &Core,
    row: &AllocationRow,
    event: Event,
    detail: impl Fn() -> Detail<'a>,
) -> Result<Applied, ApplyError> {
    let mut tries = 0;
    loop {
        let stored = record::store(core, row.id, event, detail()).await;
        if !busy(&stored, &mut tries).await {
            return stored;
        }
    }
}

/// Whether the database was merely busy and the event is stored again; then a moment has passed.
pub(super) async fn busy(stored: &Result<Applied, ApplyError>, tries: &mut usize) -> bool {
    let transient = matches!(stored, Err(ApplyError::Store(error)) if error.is_transient());
    if !transient || *tries >= limits::STORE_TRIES {
        return false;
    }
    *tries += 1;
    tokio::time::sleep(limits::STORE_PAUSE).await;
    true
}

pub(super) fn request(
    core: &Core,
    row: &AllocationRow,
    arguments: Arguments,
    wait: std::time::Duration,
) -> Option<Request> {
    Some(request_at(core, row, row.node_id?, arguments, wait))
}

pub(super) fn request_at(
    core: &Core,
    row: &AllocationRow,
    node_id: NodeId,
    arguments: Arguments,
    wait: std::time::Duration,
) -> Request {
    let provider = core.hub.provider(node_id).unwrap_or(ProviderKind::Docker);
    Request {
        node_id,
        generation: row.deployment_generation,
        provider,
        reference: row.reference(),
        arguments,
        on: None,
        wait,
    }
}

/// The open mutation becomes `sent`, leaves, and is answered or not.
pub(super) async fn send(
    core: &Core,
    row: &AllocationRow,
    operation: OperationId,
    request: Request,
) -> Result<Result<(ConnectionId, CallOutcome), Done>, ApplyError> {
    let detail = || Detail {
        operation: Some(operation),
        ..Detail::default()
    };
    let connected = core
        .hub
        .connected(request.node_id)
        .filter(|_| core.owner.may_mutate());
    let Some(connected) = connected else {
        store(core, row, Event::NotSent, detail).await?;
        return Ok(Err(Done::NotSent));
    };
    let on = connected.connection_id;
    store(core, row, Event::MarkedSent, || Detail {
        connection: Some(on),
        ..detail()
    })
    .await?;
    let outcome = core
        .hub
        .call(
            &core.owner,
            Request {
                on: Some(on),
                ..request
            },
        )
        .await;
    if outcome == CallOutcome::Unavailable {
        store(core, row, Event::NotSent, detail).await?;
        return Ok(Err(Done::NotSent));
    }
    Ok(Ok((on, outcome)))
}

async fn create(core: &Core, row: &AllocationRow) -> Result<Done, ApplyError> {
    let (Some(public_url), Some(session)) = (
        core.config.public_url.as_ref(),
        core.store.single().session(row.session_id).await?,
    ) else {
        return Ok(Done::NotSent);
    };
    let mut entropy = [0; 32];
    if getrandom::fill(&mut entropy).is_err() {
        return Ok(Done::Failed);
    }
    // Its text lives here alone, until the frame left.
    let credential = Secret::from_entropy("", entropy);
    let operation = OperationId::random();
    let intended = store(core, row, Event::CreateIntended, || Detail {
        operation: Some(operation),
        link_digest: Some(credential.digest()),
        ..Detail::default()
    })
    .await?;
    let reference = row.reference();
    let bootstrap = Bootstrap {
        reference,
        session_id: row.session_id,
        network_access: session.network.access,
        allowed_domains: session.network.allowed_domains,
        link: Link {
            version: 1,
            link_url: public_url.link_url(),
            credential,
            resource: LinkResource {
                tenant_id: reference.tenant_id,
                environment_id: reference.environment_id,
                kind: LinkResourceKind::Allocation,
                id: reference.allocation_id,
                generation: intended.row.link_generation,
            },
        },
        workspace: Nullable(None),
    };
    let Some(request) = request(core, row, Arguments::Create(Box::new(bootstrap)), limits::CREATE) else {
        return Ok(Done::NotSent);
    };
    let (on, outcome) = match send(core, row, operation, request).await? {
        Ok(answered) => answered,
        Err(done) => return Ok(done),
    };
    let info = match &outcome {
        CallOutcome::Ok(Some(ResponseResult::Info(info)))
        | CallOutcome::Refused {
            receipt: Some(info), ..
        } => info,
        _ => {
            tracing::info!(allocation_id = %row.id, ?outcome, "a create has no usable answer: observing it");
            store(core, row, Event::AnswerLost, || Detail {
                operation: Some(operation),
                ..Detail::default()
            })
            .await?;
            return Ok(Done::AnswerLost);
        }
    };
    let sighting = Sighting::of(info, &reference);
    store(core, row, Event::CreateAnswered(sighting), || Detail {
        operation: Some(operation),
        info: Some(info),
        ..Detail::default()
    })
    .await?;
    Ok(if sighting.settles_create() {
        Done::CreateAnswered(on)
    } else {
        Done::AnswerLost
    })
}

async fn kill(core: &Core, row: &AllocationRow) -> Result<Done, ApplyError> {
    let operation = OperationId::random();
    let detail = || Detail {
        operation: Some(operation),
        ..Detail::default()
    };
    store(core, row, Event::KillIntended, detail).await?;
    let Some(request) = request(core, row, Arguments::Kill, limits::KILL) else {
        return Ok(Done::NotSent);
    };
    match send(core, row, operation, request).await? {
        Err(done) => Ok(done),
        Ok((_, CallOutcome::Ok(None))) => {
            store(core, row, Event::KillAnswered, detail).await?;
            Ok(Done::KillAnswered)
        }
        Ok((_, outcome)) => {
            tracing::info!(allocation_id = %row.id, ?outcome, "a kill is not confirmed: observing before another");
            store(core, row, Event::AnswerLost, detail).await?;
            Ok(Done::AnswerLost)
        }
    }
}

async fn look(core: &Core, row: &AllocationRow, state: State) -> Result<Done, ApplyError> {
    let Some((request, on)) = request(core, row, Arguments::Info, limits::INFO).and_then(|request| {
        core.hub
            .connected(request.node_id)
            .map(|c| (request, c.connection_id))
    }) else {
        return Ok(Done::Stored);
    };
    let outcome = core
        .hub
        .call(
            &core.owner,
            Request {
                on: Some(on),
                ..request
            },
        )
        .await;
    let (sighting, info) = match &outcome {
        CallOutcome::Ok(Some(ResponseResult::Info(info)))
        | CallOutcome::Refused {
            receipt: Some(info), ..
        } => (Sighting::of(info, &row.reference()), Some(info)),
        CallOutcome::Refused {
            code: FailureCode::NotFound,
            ..
        } => (Sighting::NotFound, None),
        CallOutcome::Refused {
            code: FailureCode::Ownership,
            ..
        } => (Sighting::Ownership, None),
        CallOutcome::Refused { .. } => (Sighting::Refused, None),
        CallOutcome::Ok(_) | CallOutcome::Unsupported | CallOutcome::Unconfirmed => {
            (Sighting::Unconfirmed, None)
        }
        CallOutcome::Uncertain | CallOutcome::Unavailable => (Sighting::Unanswered, None),
    };
    if worth_storing(row, state, sighting) {
        store(core, row, Event::Observed(sighting), || Detail {
            info,
            ..Detail::default()
        })
        .await?;
    }
    Ok(Done::Looked { state, on, sighting })
}

/// An observation that changes nothing is not written.
fn worth_storing(row: &AllocationRow, state: State, sighting: Sighting) -> bool {
    let settles = sighting.settles_create() && !matches!(state, State::Running { .. });
    settles || record::diagnostic(row, state, sighting) != row.diagnostic
}

/// The node is away for good measure: the allocation is shown as disconnected, and nothing else changes.
pub(super) async fn disconnected(core: &Core, row: &AllocationRow) -> Done {
    match store(core, row, Event::Observed(Sighting::Unanswered), Detail::default).await {
        Ok(_) | Err(ApplyError::Refused(_) | ApplyError::Held(_) | ApplyError::Missing) => Done::Stored,
        Err(error) => {
            tracing::warn!(allocation_id = %row.id, error = %Chain(&error), "a disconnected node is not shown yet");
            Done::Failed
        }
    }
}

/// The second of two answers: everything is rechecked in one transaction.
pub(super) async fn confirm_loss(core: &Core, row: &AllocationRow, on: ConnectionId) -> Done {
    let confirmed = store(core, row, Event::LossConfirmed, || Detail {
        on: Some(on),
        ..Detail::default()
    })
    .await;
    match confirmed {
        Ok(_) => {
            tracing::warn!(event = "sandbox_lost", allocation_id = %row.id, "the sandbox is lost: its node confirmed it twice");
            Done::Stored
        }
        Err(ApplyError::Refused(_) | ApplyError::Held(_) | ApplyError::Missing) => Done::Stored,
        Err(error) => {
            tracing::warn!(allocation_id = %row.id, error = %Chain(&error), "a confirmed loss is not stored yet");
            Done::Failed
        }
    }
}
