//! The worker that resets the deployment (core.md section 14).
//!
//! It must guarantee that a reset archives what it was asked to archive, once; that a cancel is obeyed from its commit on;
//! that the deployment is given back exactly when nothing of it is left (INV-C23); and that a Core killed between any two
//! steps goes on. `oac_lifecycle::reset` names the next step from the deployment's row and what is left; each step is one
//! transaction that locks the deployment, reads it again and decides again. What is archived is cleaned up by the
//! allocation workers, so a node that is away delays the reset and nothing else.
//!
//! The last step also begins the next owner epoch. This Core goes on under it: its lease is renewed at once, and the
//! renewal says which epoch it now is. Until then its transactions are refused like those of a Core that lost its lease.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use oac_lifecycle::reset::{self, Event, Left, Next, Session, State};
use oac_model::{SessionId, Time};
use oac_store::{DeploymentLock, DeploymentRow, Ownership, Read, ResetClear, ResetSession, StoreError, Tx};
use serde_json::{Value, json};

use crate::{
    Core,
    allocations::Cause,
    http::{
        auth::{Audited, record_own},
        error::Chain,
    },
    placement, sessions,
    task::Kind,
};

/// How long the worker rests unless poked: while a reset stands, whoever changes what it waits for says so, and its deadline
/// is known; a standby that takes over looks at once.
const IDLE: Duration = Duration::from_secs(5);
/// All Sessions are looked through in no more than one of so many parts of the time; those that something is told of at once.
const SHARE: u32 = 10;
/// Between two passes: of very many changes in a row one pass sees the most.
const GAP: Duration = Duration::from_millis(200);
/// After a pass that the database did not carry.
const FAILED: Duration = Duration::from_millis(500);
/// Sessions read at a time.
const PAGE: u64 = 256;

/// Starts this part's worker.
pub fn start(core: &Arc<Core>) {
    core.tasks.spawn(Kind::Worker, "resets", run(core.clone()));
}

/// When all Sessions are looked through, and not only those that something is told of.
struct Pace {
    /// The ownership and reset for which they were.
    of: Option<(Ownership, State, Option<Time>)>,
    again: Instant,
}

async fn run(core: Arc<Core>) {
    let mut pace = Pace {
        of: None,
        again: Instant::now(),
    };
    loop {
        let ownership = core.owner.owned().await;
        // From before the pass on: what changes during it is told.
        core.pokes.resetting.store(true, Ordering::Relaxed);
        let (stands, pause) = match pass(&core, &ownership, &mut pace).await {
            Ok(State::None) => (false, IDLE),
            Ok(state) => (true, until_deadline(&core, state).await.min(IDLE)),
            Err(error) => {
                // What was told may be lost with it.
                pace.of = None;
                tracing::warn!(event = "reset_stalled", error = %Chain(&error), "a reset does not go on yet");
                (true, FAILED)
            }
        };
        core.pokes.resetting.store(stands, Ordering::Relaxed);
        if stands {
            tokio::time::sleep(GAP).await;
        }
        tokio::select! {
            () = core.pokes.resets.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// How long the deadline of an automatic reset is away.
async fn until_deadline(core: &Core, state: State) -> Duration {
    let State::Auto { deadline } = state else {
        return Duration::MAX;
    };
    let now = core.store.single().database_time().await;
    let left = now.map_or(0, |now| deadline - now.millis());
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

/// Takes a reset as far as it goes now; the one that still stands.
async fn pass(core: &Core, ownership: &Ownership, pace: &mut Pace) -> Result<State, StoreError> {
    let read = core.store.single();
    loop {
        // Most of the time there is nothing to do, which needs no lock.
        let row = read.deployment().await?;
        let state = state_of(&row);
        if state == State::None {
            return Ok(state);
        }
        let now = read.database_time().await?.millis();
        match reset::plan(state, left(&read).await?, now) {
            Next::Rest => return Ok(State::None),
            Next::Wait => return Ok(state),
            Next::PassDeadline => pass_deadline(core, ownership).await?,
            Next::Complete => complete(core, ownership).await?,
            Next::Archive => {
                let told = core.pokes.take_told();
                let began = Instant::now();
                let of = Some((*ownership, state, row.reset_requested_at));
                if pace.of == of && began < pace.again {
                    if !archive_told(core, ownership, told).await? {
                        pace.again = pace.again.min(Instant::now() + IDLE);
                    }
                } else {
                    let all = archive_all(core, ownership).await?;
                    let pause = if all { began.elapsed() * SHARE } else { IDLE };
                    pace.of = of;
                    pace.again = Instant::now() + IDLE.max(pause);
                }
                return Ok(state);
            }
        }
    }
}

/// The reset that stands.
pub(crate) fn state_of(row: &DeploymentRow) -> State {
    match (row.reset_requested_at, row.reset_clear) {
        (None, _) => State::None,
        (Some(_), Some(ResetClear::Auto)) => State::Auto {
            deadline: row.reset_deadline_at.map_or(0, |at| at.millis()),
        },
        (Some(_), Some(ResetClear::Force) | None) => State::Force,
    }
}

async fn left(read: &Read) -> Result<Left, StoreError> {
    let (resources, sessions) = read.left_of_reset().await?;
    Ok(Left { resources, sessions })
}

fn archives(state: State, session: &ResetSession) -> bool {
    state.archives(Session {
        works: session.works,
        has_compute: session.has_compute,
    })
}

/// The deployment under its exclusive lock, with the step that is due.
async fn due(tx: &Tx) -> Result<(DeploymentRow, Next), StoreError> {
    tx.lock_deployment(DeploymentLock::Exclusive).await?;
    let row = tx.deployment().await?;
    let next = reset::plan(state_of(&row), left(tx).await?, tx.now().millis());
    Ok((row, next))
}

/// What the reset does by itself is told with the address that asked for it.
async fn audit(tx: &Tx, row: &DeploymentRow, entry: Audited<'_>) -> Result<(), StoreError> {
    let source = row.reset_source.as_deref().unwrap_or("reset");
    record_own(tx, source, entry).await
}

/// The entry of an event in the present state, when it changes anything.
fn told(row: &DeploymentRow, event: Event, details: Value) -> Option<Audited<'static>> {
    let (_, told) = state_of(row).apply(event).ok()?;
    let entry = Audited::new("sandbox_deployment", row.installation_id, told?.as_str());
    Some(entry.details(details))
}

/// From the deadline on nothing is waited for, also when the clock is set back.
async fn pass_deadline(core: &Core, ownership: &Ownership) -> Result<(), StoreError> {
    let tx = core.store.begin(ownership).await?;
    let (row, next) = due(&tx).await?;
    let details = json!({ "requested_by": row.reset_actor });
    let entry = told(&row, Event::DeadlinePassed, details).filter(|_| next == Next::PassDeadline);
    let Some(entry) = entry else { return Ok(()) };
    tx.force_reset().await?;
    audit(&tx, &row, entry).await?;
    tx.commit().await?;
    tracing::info!(
        event = "reset_deadline_passed",
        "the deadline of the reset passed: it is forced"
    );
    Ok(())
}

/// Gives the deployment back, if nothing of it is left.
async fn complete(core: &Core, ownership: &Ownership) -> Result<(), StoreError> {
    let tx = core.store.begin_last(ownership).await?;
    let (row, next) = due(&tx).await?;
    if next != Next::Complete {
        return Ok(());
    }
    let (generation, owner_epoch) = tx.complete_reset().await?;
    let details = json!({
        "requested_by": row.reset_actor,
        "provider": row.provider,
        "generation": generation,
        "owner_epoch": owner_epoch,
    });
    if let Some(entry) = told(&row, Event::Emptied, details) {
        audit(&tx, &row, entry).await?;
    }
    tx.commit().await?;
    tracing::info!(event = "deployment_reset", generation, epoch = %owner_epoch, "the deployment is reset");
    core.pokes.lease.notify_one();
    placement::refresh_deployment(core).await;
    Ok(())
}

/// Archives every Session that the reset archives now, page by page. False if one could not be.
async fn archive_all(core: &Core, ownership: &Ownership) -> Result<bool, StoreError> {
    let read = core.store.single();
    let (mut after, mut all) = (None, true);
    // Each page as the reset stands then: it may have been forced or canceled.
    while let Some(clear) = read.deployment().await?.reset_clear {
        let page = read.reset_sessions(clear, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        for session in &page {
            all &= try_archive(core, ownership, session.id).await?;
        }
    }
    Ok(all)
}

/// Of these Sessions, archives those that the reset archives now. False if one could not be.
async fn archive_told(
    core: &Core,
    ownership: &Ownership,
    told: HashSet<SessionId>,
) -> Result<bool, StoreError> {
    let read = core.store.single();
    let mut all = true;
    for id in told {
        let state = state_of(&read.deployment().await?);
        let session = read.reset_session(id).await?;
        if session.is_some_and(|session| archives(state, &session)) {
            all &= try_archive(core, ownership, id).await?;
        }
    }
    Ok(all)
}

/// One that cannot be archived holds up no other; false says so, and it is tried again soon.
async fn try_archive(core: &Core, ownership: &Ownership, id: SessionId) -> Result<bool, StoreError> {
    match archive(core, ownership, id).await {
        Ok(()) => Ok(true),
        Err(error @ StoreError::NotOwner { .. }) => Err(error),
        Err(error) => {
            tracing::warn!(event = "reset_stalled", session_id = %id, error = %Chain(&error), "a reset does not archive a Session yet");
            Ok(false)
        }
    }
}

/// Archives one Session, if the reset still stands and still wants it.
async fn archive(core: &Core, ownership: &Ownership, id: SessionId) -> Result<(), StoreError> {
    let tx = core.store.begin(ownership).await?;
    // A cancel waits for this lock, and this for a cancel.
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let row = tx.deployment().await?;
    tx.lock_session(id).await?;
    let session = tx.reset_session(id).await?;
    if session.is_none_or(|session| !archives(state_of(&row), &session)) {
        return Ok(());
    }
    let Some(archived) = sessions::archive(&tx, id, Cause::Reset).await? else {
        return Ok(());
    };
    let entry = Audited::new("session", id, "archive").details(json!({ "reset": row.reset_clear }));
    audit(&tx, &row, entry).await?;
    tx.commit().await?;
    archived.tell(core);
    Ok(())
}
