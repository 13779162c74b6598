//! The steps a plan names, around the calls they make.

use oac_lifecycle::{
    allocation::Diagnostic,
    suspension::{Action, Answer, Event, Held, Observation, Request},
};
use oac_model::{NodeId, OperationId};
use oac_peer::FailureCode;
use oac_store::{AllocationDiagnostic, OperationKind};
use oac_wire::{
    Nullable,
    frames::{Arguments, ResponseResult},
    shapes::{Command, Compute, ComputeState, Resume, Suspend},
};

use super::{
    Room, Told, restore,
    rows::{Rows, retained},
    suspend, write,
};
use crate::{
    Core,
    allocations::{
        effects, limits,
        record::{Applied, ApplyError, Detail},
        steps::{self, Done, busy, request_at},
    },
    http::error::Chain,
    hub::CallOutcome,
};

/// Performs one action for an allocation as it was read.
pub(in crate::allocations) async fn perform(
    core: &Core,
    rows: &Rows,
    held: Held,
    action: Action,
    room: &Room,
) -> Done {
    let done = match action {
        Action::Base(base) => return steps::perform(core, &rows.row, held.state, base).await,
        Action::Name => name(core, rows).await,
        Action::Look(node, of) => look(core, rows, &held, node, of).await,
        Action::DropIntent => store(core, rows, Event::NotSent, Detail::default)
            .await
            .map(|_| Done::Stored),
        Action::GiveUpAnswer => {
            let node = held.open.map_or(held.node, |open| open.node);
            let stored = store(core, rows, Event::AnswerLost, Detail::default).await;
            stored.map(|_| Done::Told(Told::AnswerLost { node }))
        }
        Action::Suspend => suspend::suspend(core, rows, room).await,
        Action::Restore => restore::restore(core, rows, &held, room).await,
        Action::KillCompute(_) | Action::ResumeCompute | Action::Wake | Action::DeleteRetained => {
            mutate(core, rows, &held, action).await
        }
        Action::Show(diagnostic) => show(core, rows, diagnostic).await,
    };
    match done {
        Ok(done) => done,
        // Someone else was first; the next pass reads what is so.
        Err(ApplyError::Refused(_) | ApplyError::Held(_) | ApplyError::Missing) => Done::Stored,
        Err(error) => {
            tracing::warn!(event = "allocation_step_failed", allocation_id = %rows.row.id, ?action, error = %Chain(&error), "a step of an allocation failed");
            Done::Failed
        }
    }
}

/// Stores an event, again while the database is merely busy.
pub(super) async fn store<'a>(
    core: &Core,
    rows: &Rows,
    event: Event,
    detail: impl Fn() -> Detail<'a>,
) -> Result<Applied, ApplyError> {
    let mut tries = 0;
    loop {
        let stored = write::store(core, rows.row.id, event.clone(), detail()).await;
        if !busy(&stored, &mut tries).await {
            return stored;
        }
    }
}

/// What a node says of one compute; the compute as it shows it.
pub(super) fn answered(of: Observation, outcome: &CallOutcome) -> (Answer, Option<&ComputeState>) {
    match outcome {
        CallOutcome::Ok(Some(ResponseResult::State(state))) => {
            let answer = match of {
                Observation::Suspend => Answer::of_suspend(state),
                _ => Answer::of_compute(state),
            };
            (answer, Some(state))
        }
        CallOutcome::Ok(Some(ResponseResult::Command(result))) if result.exit_code == 0 => {
            (Answer::Done, None)
        }
        CallOutcome::Ok(Some(ResponseResult::Command(_))) => (Answer::Refused, None),
        CallOutcome::Ok(None) => (Answer::Done, None),
        CallOutcome::Refused { code, .. } => match code {
            FailureCode::NotFound => (Answer::NotFound, None),
            FailureCode::Invalid => (Answer::Invalid, None),
            FailureCode::CommandUnconfirmed => (Answer::Unknown, None),
            _ => (Answer::Refused, None),
        },
        CallOutcome::Ok(Some(_))
        | CallOutcome::Unsupported
        | CallOutcome::Unconfirmed
        | CallOutcome::Uncertain
        | CallOutcome::Unavailable => (Answer::Unknown, None),
    }
}

/// Generation 0 by the name that its node derives; nothing native happens.
async fn name(core: &Core, rows: &Rows) -> Result<Done, ApplyError> {
    let node = rows.node();
    let request = request_at(core, &rows.row, node, Arguments::Initial, limits::INFO);
    let CallOutcome::Ok(Some(ResponseResult::Compute(compute))) = core.hub.call(&core.owner, request).await
    else {
        return Ok(Done::Told(Told::NotSent { node }));
    };
    store(core, rows, Event::Named, || Detail {
        compute: Some(&compute),
        ..Detail::default()
    })
    .await?;
    Ok(Done::Stored)
}

async fn look(
    core: &Core,
    rows: &Rows,
    held: &Held,
    node: NodeId,
    of: Observation,
) -> Result<Done, ApplyError> {
    let Some(arguments) = question(rows, of) else {
        return Ok(Done::Stored);
    };
    let request = request_at(core, &rows.row, node, arguments, limits::INFO);
    let outcome = core.hub.call(&core.owner, request).await;
    let (mut answer, state) = answered(of, &outcome);
    let event = Event::Observed { node, of, answer };
    // What changes nothing is not written.
    if held.apply(event.clone()).is_ok_and(|next| next != *held) {
        let stored = store(core, rows, event, || Detail {
            compute: state.map(|state| &state.compute),
            retained: state.and_then(|state| state.retained.0.as_ref()),
            ..Detail::default()
        })
        .await;
        match stored {
            Ok(_) => {}
            // A compute shown without its native id, say, or a state that is no more: no answer, and none to be had by asking
            // again at once.
            Err(ApplyError::Missing | ApplyError::Refused(_) | ApplyError::Held(_)) => {
                tracing::debug!(allocation_id = %rows.row.id, ?of, ?answer, "an answer cannot be stored");
                answer = Answer::Unknown;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Done::Told(Told::Observed {
        held: Box::new(held.clone()),
        node,
        of,
        answer,
    }))
}

fn question(rows: &Rows, of: Observation) -> Option<Arguments> {
    Some(match of {
        Observation::Info => Arguments::Info,
        Observation::Compute(generation) => Arguments::Compute(rows.shape(generation)?),
        Observation::Suspend => Arguments::Suspend(Box::new(suspend_of(rows, rows.latest_suspend()?, true)?)),
        Observation::Resume => {
            let operation = rows.latest(OperationKind::Resume)?;
            Arguments::Resume(Box::new(resume_of(rows, operation, *rows.current()?, true)?))
        }
    })
}

pub(super) fn suspend_of(rows: &Rows, operation: OperationId, reconcile_only: bool) -> Option<Suspend> {
    Some(Suspend {
        reference: rows.row.reference(),
        operation_id: operation,
        source: *rows.current()?,
        retained: Nullable(None),
        reconcile_only,
    })
}

pub(super) fn resume_of(
    rows: &Rows,
    operation: OperationId,
    target: Compute,
    reconcile_only: bool,
) -> Option<Resume> {
    Some(Resume {
        reference: rows.row.reference(),
        operation_id: operation,
        retained: retained(rows.bound()?)?,
        target,
        reconcile_only,
        workspace: Nullable(None),
    })
}

async fn mutate(core: &Core, rows: &Rows, held: &Held, action: Action) -> Result<Done, ApplyError> {
    let (request, arguments, wait) = match action {
        Action::KillCompute(generation) => (
            Request::KillCompute(generation),
            rows.shape(generation).map(Arguments::KillCompute),
            limits::KILL,
        ),
        Action::ResumeCompute => (
            Request::ResumeCompute,
            rows.current().map(Arguments::ResumeCompute),
            limits::INFO,
        ),
        Action::Wake => (Request::Wake, wake_of(rows), limits::WAKE),
        _ => (
            Request::DeleteRetained,
            rows.bound()
                .and_then(retained)
                .map(|kept| Arguments::DeleteRetained(Box::new(kept))),
            limits::KILL,
        ),
    };
    let (Some(arguments), Some(node)) = (arguments, held.node_of(request)) else {
        tracing::debug!(allocation_id = %rows.row.id, ?action, "an argument is not stored");
        return Ok(Done::Failed);
    };
    let operation = OperationId::random();
    store(core, rows, Event::Intended(request), || Detail {
        operation: Some(operation),
        ..Detail::default()
    })
    .await?;
    sent(core, rows, node, request, operation, arguments, wait).await
}

/// An intent that is stored leaves, and its answer is stored.
pub(super) async fn sent(
    core: &Core,
    rows: &Rows,
    node: NodeId,
    request: Request,
    operation: OperationId,
    arguments: Arguments,
    wait: std::time::Duration,
) -> Result<Done, ApplyError> {
    let call = request_at(core, &rows.row, node, arguments, wait);
    let outcome = match steps::send(core, &rows.row, operation, call).await? {
        Ok((_, outcome)) => outcome,
        Err(_) => return Ok(Done::Told(Told::NotSent { node })),
    };
    let of = match request {
        Request::Suspend(_) => Observation::Suspend,
        _ => Observation::Resume,
    };
    let (answer, state) = answered(of, &outcome);
    let event = match answer {
        Answer::Unknown => Event::AnswerLost,
        answer => Event::Answered(answer),
    };
    let applied = store(core, rows, event, || Detail {
        operation: Some(operation),
        compute: state.map(|state| &state.compute),
        retained: state.and_then(|state| state.retained.0.as_ref()),
        ..Detail::default()
    })
    .await?;
    let now = Rows::of(&core.store.single(), applied.row).await?.held()?;
    Ok(Done::Told(if now.unobserved.contains(&node) {
        tracing::info!(allocation_id = %rows.row.id, ?request, ?answer, "observing before another mutation there");
        Told::AnswerLost { node }
    } else if request == Request::Wake {
        Told::Woke { node }
    } else {
        Told::Settled { node, answer }
    }))
}

/// The one command that may be issued again.
fn wake_of(rows: &Rows) -> Option<Arguments> {
    let command = Command {
        args: vec![
            "/usr/local/bin/oac-runtime".to_owned(),
            "wake".to_owned(),
            "--suspend-id".to_owned(),
            rows.latest_suspend()?.to_string(),
        ],
        directory: String::new(),
        stdin: None,
    };
    Some(Arguments::CommandCompute(rows.current()?, command))
}

async fn show(core: &Core, rows: &Rows, diagnostic: Diagnostic) -> Result<Done, ApplyError> {
    let ownership = core.owner.ownership().ok_or(ApplyError::Missing)?;
    let tx = core.store.begin(&ownership).await?;
    tx.lock_session(rows.row.session_id).await?;
    let was = tx
        .lock_allocation(rows.row.id)
        .await?
        .ok_or(ApplyError::Missing)?;
    if was.revision != rows.row.revision {
        return Ok(Done::Stored);
    }
    let mut row = was.clone();
    row.diagnostic = AllocationDiagnostic::from_text(diagnostic.as_str());
    tx.save_allocation(&mut row).await?;
    effects::show(&tx, &was, &row).await?;
    tx.commit().await?;
    core.turns.notify(row.session_id, &[]);
    Ok(Done::Stored)
}
