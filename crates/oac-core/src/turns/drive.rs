//! Drives the Turns of one Session for as long as one link of its sandbox lives.
//!
//! It is a converging worker: it takes no argument but the link, reads what is stored and what the runtime reports,
//! and does the next step; a new link, a repeated wake and the happy path run the same code. Two drivers of one
//! Session may overlap while a newer link replaces an older one: every write compares what it continues from
//! (`super::ledger`), so the slower one changes nothing.

use std::{convert::Infallible, sync::Arc, time::Duration};

use oac_link::{
    CallError, OutputError, PutTurn,
    service::{Ack, Cancel, PutTurnRequest, RunState, Status, StatusTurn},
};
use oac_model::{InstanceId, TurnId, TurnState};
use oac_store::{Dispatch, StoreError};

use super::{
    follow,
    ledger::{self, Job},
    reconcile::{Recorded, Reported, Step, reconcile},
    settle::Settlement,
};
use crate::{
    Core,
    http::error::Chain,
    limits,
    link::{Link, NotAdmitted},
    task::Kind,
};

/// Why driving stopped and begins anew with a status call.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    #[error("a call to the runtime failed")]
    Call(#[from] CallError),
    #[error("storing a Turn's progress failed")]
    Store(#[from] StoreError),
    #[error("this Core does not own the installation")]
    NotOwner,
    #[error("the runtime's status names another instance than its hello")]
    OtherInstance,
    #[error("the runtime and Core disagree about Turn {0}: asking again")]
    Disagree(TurnId),
}

/// Drives until the caller drops it, which it does when the connection ends.
pub(crate) async fn drive(core: &Arc<Core>, link: &Arc<Link>) -> Infallible {
    let mut pause = limits::DRIVE_PAUSE;
    loop {
        let mut progressed = false;
        let trouble = match session(core, link, &mut progressed).await {
            Ok(never) => match never {},
            Err(trouble) => trouble,
        };
        let allocation = link.allocation_id();
        tracing::debug!(%allocation, trouble = %Chain(&trouble), "driving Turns starts over");
        if progressed {
            pause = limits::DRIVE_PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(limits::DRIVE_PAUSE_MAX);
    }
}

async fn session(core: &Arc<Core>, link: &Arc<Link>, progressed: &mut bool) -> Result<Infallible, Trouble> {
    let status = status(core, link).await?;
    if status.instance_id != link.instance_id {
        return Err(Trouble::OtherInstance);
    }
    ledger::linked(core, link).await?;
    link.become_ready();
    // Whoever waits for the sandbox.
    core.turns.events.notify(link.session_id);
    core.pokes.changed(link.allocation_id());
    let mut job = begin(core, link, &status).await?;
    loop {
        *progressed = true;
        if job.is_none() {
            job = match link.handed() {
                Some(job) => Some(job),
                None => ledger::next(core, link).await?,
            };
        }
        match job.take() {
            Some(now) => job = run(core, link, now).await?,
            None => {
                // The timer only covers a wake that was lost.
                let _ = tokio::time::timeout(limits::DRIVE_TIMER, link.wake.notified()).await;
            }
        }
    }
}

/// The runtime's Turns and identity. A restored sandbox is asked once, and that answer serves until it is admitted.
async fn status(core: &Arc<Core>, link: &Arc<Link>) -> Result<Status, Trouble> {
    match link.admit(core).await {
        Ok(client) => return Ok(client.status().await?),
        Err(NotAdmitted::Resting) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(status) = link.first_status() {
        return Ok(status);
    }
    let answer = link.admit_first(core).await?.status().await;
    match &answer {
        Ok(status) => link.keep_first_status(status),
        // The next link has its own first call.
        Err(_) => link.end(),
    }
    Ok(answer?)
}

/// Reconciles everything both sides know (sessions.md section 8). The Turn to go on with, if one is under way.
async fn begin(core: &Arc<Core>, link: &Arc<Link>, status: &Status) -> Result<Option<Job>, Trouble> {
    let mut known = ledger::unfinished(core, link).await?;
    let mut goes_on = None;
    let mut forget = Vec::new();
    for reported in &status.turns {
        let job = known
            .iter()
            .position(|job| job.turn.id == reported.turn_id)
            .map(|at| known.remove(at));
        let recorded = job.as_ref().map_or(Recorded::Over, |job| recorded(job, link));
        match (reconcile(recorded, reported_as(reported)), job) {
            (Step::Follow, Some(job)) => goes_on = Some(job.without_put(status.instance_id)),
            (Step::InterruptAndForget, Some(job)) => {
                ledger::settle(core, link, &job.turn, &interrupted(), false).await?;
                forget.push(*reported);
            }
            (Step::Forget, _) => forget.push(*reported),
            // The remaining steps belong to Turns the runtime does not report.
            _ => {}
        }
    }
    for job in known {
        match reconcile(recorded(&job, link), Reported::Absent) {
            Step::PutAgain => goes_on = Some(job),
            Step::Interrupt => {
                ledger::settle(core, link, &job.turn, &interrupted(), false).await?;
            }
            _ => {}
        }
    }
    // Before anything is dispatched: a runtime with a running Turn refuses another.
    for reported in forget {
        let running = reported.state == RunState::Running;
        self::forget(core, link, reported.turn_id, running.then_some(reported.offset)).await?;
    }
    Ok(goes_on)
}

pub(super) fn interrupted() -> Settlement {
    Settlement::without_exit(TurnState::Interrupted, "runtime_lost")
}

fn recorded(job: &Job, link: &Link) -> Recorded {
    let stored = job.turn.output_bytes;
    match job.turn.dispatch {
        // Sent elsewhere: not this runtime's, and settled when that allocation is lost (INV-S8).
        _ if job.turn.allocation_id.is_some_and(|a| a != link.allocation_id()) => Recorded::Over,
        Dispatch::None | Dispatch::Intent => Recorded::NotSent,
        Dispatch::Sent => Recorded::Sent { stored },
        Dispatch::Confirmed => Recorded::Confirmed { stored },
    }
}

fn reported_as(turn: &StatusTurn) -> Reported {
    match turn.state {
        RunState::Running => Reported::Running { offset: turn.offset },
        RunState::Ended => Reported::Ended { offset: turn.offset },
    }
}

/// Sends the Turn if it was not, follows it to its end and settles it. The next Turn, already recorded as sent.
async fn run(core: &Arc<Core>, link: &Arc<Link>, mut job: Job) -> Result<Option<Job>, Trouble> {
    let turn = job.turn.id;
    link.begin(job.turn.sequence);
    let mut confirmed = job.confirmed;
    if let Some(request) = job.put.take() {
        match put(core, link, turn, &request).await? {
            Put::Has(instance) => confirmed = Some(instance),
            Put::Never(settlement) => return ledger::settle(core, link, &job.turn, &settlement, true).await,
        }
    }
    match follow::follow(core, link, job.turn, confirmed).await? {
        follow::End::Settled { next, offset } => {
            acknowledge_finally(core, link, turn, offset);
            Ok(next)
        }
        // Someone else settled it: an archive, a lost allocation, or a driver of a newer link.
        follow::End::Elsewhere => Ok(None),
        follow::End::Lost { job: row } => {
            let next = ledger::settle(core, link, &row, &interrupted(), false).await?;
            forget(core, link, turn, Some(0)).await?;
            Ok(next)
        }
    }
}

enum Put {
    Has(InstanceId),
    Never(Settlement),
}

async fn put(
    core: &Arc<Core>,
    link: &Arc<Link>,
    turn: TurnId,
    request: &PutTurnRequest,
) -> Result<Put, Trouble> {
    let answer = link.admit(core).await?.put_turn(turn, request).await;
    Ok(match answer {
        Ok(PutTurn::Started { instance_id } | PutTurn::Known { instance_id }) => Put::Has(instance_id),
        // It runs something Core does not know of: the status tells what.
        Ok(PutTurn::OtherRunning) => return Err(Trouble::Disagree(turn)),
        // The runtime has it under this id and will not run it again; how it ended is gone.
        Ok(PutTurn::DigestDiffers | PutTurn::EndedAndAcknowledged) => Put::Never(interrupted()),
        Err(CallError::Answered { status, code }) if status.is_client_error() => {
            Put::Never(Settlement::without_exit(TurnState::Failed, &code))
        }
        Err(error) => return Err(error.into()),
    })
}

/// The last acknowledgement of a settled Turn, beside whatever is next. If it is lost, the next status shows the Turn
/// again.
fn acknowledge_finally(core: &Arc<Core>, link: &Arc<Link>, turn: TurnId, offset: u64) {
    let (this, link) = (core.clone(), link.clone());
    core.tasks.spawn(Kind::Connection, "final acknowledgement", async move {
        if let Err(trouble) = acknowledge(&this, &link, turn, offset).await {
            tracing::debug!(%turn, trouble = %Chain(&trouble), "a final acknowledgement waits for the next link");
        }
    });
}

async fn acknowledge(core: &Arc<Core>, link: &Link, turn: TurnId, offset: u64) -> Result<(), Trouble> {
    let ack = Ack {
        offset,
        is_final: true,
    };
    link.admit(core).await?.ack(turn, ack).await?;
    core.turns.acked.note(turn, offset);
    Ok(())
}

/// Has the runtime end a Turn, if it still `runs` from that offset on, and forget it.
async fn forget(core: &Arc<Core>, link: &Arc<Link>, turn: TurnId, runs: Option<u64>) -> Result<(), Trouble> {
    let client = link.admit(core).await?;
    if runs.is_some() {
        let grace_ms = limits::CANCEL_GRACE.as_millis() as u64;
        if !client.cancel(turn, Cancel { grace_ms }).await? {
            return Ok(());
        }
    }
    let mut pause = Duration::from_millis(50);
    let offset = loop {
        match link.admit(core).await?.turn(turn).await? {
            None => return Ok(()),
            Some(record) if record.state == RunState::Ended => break record.offset,
            Some(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    };
    link.admit(core)
        .await?
        .ack(
            turn,
            Ack {
                offset,
                is_final: true,
            },
        )
        .await?;
    Ok(())
}

/// What an output request that cannot be served says about the Turn.
pub(super) fn lost(error: &OutputError) -> bool {
    matches!(error, OutputError::OutOfRange | OutputError::Unknown)
}
