//! What a Session is told about its sandbox, and what becomes of its Turns (sessions.md sections 3 and 8).

use oac_lifecycle::{
    allocation::{Afterwards, Cause},
    limits::CREATE_ATTEMPTS,
};
use oac_model::{AllocationState, SessionId, SessionState, TurnState};
use oac_store::{AllocationRow, CleanupCause, Dispatch, EventKind, Initialization, StoreError, Tx};
use serde_json::json;

use super::record::cause_from;

/// The sandbox as its Session shows it; `None` is shown as `none`.
fn shown(row: &AllocationRow) -> &'static str {
    match row.state {
        AllocationState::Reserved if row.cause.is_some() => "cleaning",
        AllocationState::Reserved | AllocationState::Creating => "starting",
        AllocationState::Running => "running",
        AllocationState::CleanupPending => "cleaning",
        AllocationState::Released => "none",
    }
}

/// Called with every stored change of an allocation, in its transaction.
pub(super) async fn after(tx: &Tx, was: &AllocationRow, row: &AllocationRow) -> Result<(), StoreError> {
    if shown(was) != shown(row) || was.diagnostic != row.diagnostic {
        changed(tx, row).await?;
    }
    let entered = |state| row.state == state && was.state != state;
    let lost = matches!(
        row.cause,
        Some(CleanupCause::ComputeLost | CleanupCause::Discard | CleanupCause::Drain)
    );
    if lost && row.cause != was.cause {
        interrupt(tx, row, row.cause.map_or("", CleanupCause::as_str)).await?;
    }
    if entered(AllocationState::Released) {
        count_attempt(tx, row).await?;
    }
    Ok(())
}

/// The allocation appeared or looks different.
pub(super) async fn changed(tx: &Tx, row: &AllocationRow) -> Result<(), StoreError> {
    let data = json!({
        "allocation_id": row.id,
        "state": shown(row),
        "compute_phase": row.compute_phase,
        "diagnostic": row.diagnostic,
    });
    tx.append_event(row.session_id, EventKind::SandboxChanged, &data)
        .await
        .map(drop)
}

/// A new allocation begins without the files of an earlier one that once ran (INV-S18).
pub(crate) async fn announce_reset(tx: &Tx, session_id: SessionId) -> Result<(), StoreError> {
    let Some(earlier) = tx.latest_allocation(session_id).await? else {
        return Ok(());
    };
    let reason = match earlier.cause {
        Some(CleanupCause::RetentionEnd) => "suspension_expired",
        Some(CleanupCause::ComputeLost) => "compute_lost",
        Some(CleanupCause::Discard) => "discarded",
        Some(CleanupCause::Drain) => "terminated",
        _ => return Ok(()),
    };
    if earlier.initialization == Initialization::Complete {
        tx.append_event(
            session_id,
            EventKind::EnvironmentReset,
            &json!({ "reason": reason }),
        )
        .await?;
    }
    Ok(())
}

/// A Turn that was sent is over; one that never was stays queued for the next allocation (INV-S8).
async fn interrupt(tx: &Tx, row: &AllocationRow, reason: &str) -> Result<(), StoreError> {
    for mut turn in tx.unfinished_turns_of_allocation(row.session_id, row.id).await? {
        match turn.dispatch {
            Dispatch::Sent | Dispatch::Confirmed => {
                turn.state = TurnState::Interrupted;
                turn.ended_at = Some(tx.now());
                turn.reason = Some(reason.to_owned());
            }
            Dispatch::None | Dispatch::Intent => {
                turn.state = TurnState::Queued;
                turn.dispatch = Dispatch::None;
                turn.allocation_id = None;
            }
        }
        if tx.save_turn(&turn).await? && turn.state.is_terminal() {
            ended(tx, &turn).await?;
        }
    }
    settle_state(tx, row.session_id).await
}

async fn ended(tx: &Tx, turn: &oac_store::TurnRow) -> Result<(), StoreError> {
    let data = json!({
        "turn_id": turn.id,
        "sequence": turn.sequence,
        "state": turn.state,
        "reason": turn.reason,
    });
    tx.append_event(turn.session_id, EventKind::TurnEnded, &data)
        .await
        .map(drop)
}

/// A Session without an unfinished Turn is idle.
async fn settle_state(tx: &Tx, id: SessionId) -> Result<(), StoreError> {
    let Some(session) = tx.session(id).await? else {
        return Ok(());
    };
    if session.state == SessionState::Busy && tx.turn_counts(id).await? == (0, 0) {
        tx.set_session_state(id, SessionState::Idle, None).await?;
    }
    Ok(())
}

/// Counts sandboxes in a row that never came to be; after three the Session fails with everything that waits.
async fn count_attempt(tx: &Tx, row: &AllocationRow) -> Result<(), StoreError> {
    let afterwards = row
        .cause
        .and_then(cause_from)
        .map_or(Afterwards::PlaceAgain, Cause::afterwards);
    let Some(session) = tx
        .session(row.session_id)
        .await?
        .filter(|s| s.archived_at.is_none())
    else {
        return Ok(());
    };
    if afterwards != Afterwards::CountAttempt {
        if session.failed_creates != 0 && row.initialization == Initialization::Complete {
            tx.set_failed_creates(session.id, 0).await?;
        }
        return Ok(());
    }
    let failed = session.failed_creates + 1;
    if failed < CREATE_ATTEMPTS {
        return tx.set_failed_creates(session.id, failed).await;
    }
    tx.set_failed_creates(session.id, 0).await?;
    let reason = row.cause.map_or("", CleanupCause::as_str);
    for mut turn in tx.unfinished_turns(session.id).await? {
        turn.state = TurnState::Failed;
        turn.ended_at = Some(tx.now());
        turn.reason = Some("no_sandbox".to_owned());
        if tx.save_turn(&turn).await? {
            ended(tx, &turn).await?;
        }
    }
    tx.set_session_state(session.id, SessionState::Failed, Some(reason))
        .await?;
    tx.append_event(session.id, EventKind::SessionFailed, &json!({ "reason": reason }))
        .await
        .map(drop)
}
