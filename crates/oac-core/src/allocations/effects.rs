//! What a Session is told about its sandbox, and what becomes of its Turns (sessions.md sections 3 and 8).

use oac_lifecycle::{
    allocation::{Afterwards, Cause},
    limits::CREATE_ATTEMPTS,
};
use oac_model::{AllocationState, SessionId, SessionState, TurnId, TurnState};
use oac_store::{AllocationRow, CleanupCause, Dispatch, EventKind, Initialization, StoreError, Tx};
use serde_json::{Value, json};

use super::{record::cause_from, sandbox::SandboxState};
use crate::turns::{Settlement, ledger};

/// Called with every stored change of an allocation, in its transaction. Names the Turns it settled.
pub(super) async fn after(
    tx: &Tx,
    was: &AllocationRow,
    row: &AllocationRow,
) -> Result<Vec<TurnId>, StoreError> {
    show(tx, was, row).await?;
    let mut settled = Vec::new();
    if row.cause != was.cause {
        settled = interrupt(tx, row).await?;
    }
    if row.state == AllocationState::Released && was.state != AllocationState::Released {
        settled.extend(count_attempt(tx, row).await?);
    }
    Ok(settled)
}

/// Tells the Session what it is shown differently.
pub(super) async fn show(tx: &Tx, was: &AllocationRow, row: &AllocationRow) -> Result<(), StoreError> {
    let visible = |row: &AllocationRow| (SandboxState::of(row), row.compute_phase, row.diagnostic);
    if visible(was) != visible(row) {
        changed(tx, row).await?;
    }
    Ok(())
}

/// The allocation appeared or looks different.
pub(super) async fn changed(tx: &Tx, row: &AllocationRow) -> Result<(), StoreError> {
    let (kind, data) = shown(row);
    tx.append_event(row.session_id, kind, &data).await.map(drop)
}

/// The event that shows an allocation to its Session.
pub(crate) fn shown(row: &AllocationRow) -> (EventKind, Value) {
    let data = json!({
        "allocation_id": row.id,
        "state": SandboxState::of(row),
        "compute_phase": row.compute_phase,
        "diagnostic": row.diagnostic,
    });
    (EventKind::SandboxChanged, data)
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
        None | Some(CleanupCause::Archive | CleanupCause::Reset) => return Ok(()),
        Some(_) => "terminated",
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

/// A Turn that was sent is over; one that never was stays queued for the next allocation (INV-S8). An archive has settled
/// its Turns already.
async fn interrupt(tx: &Tx, row: &AllocationRow) -> Result<Vec<TurnId>, StoreError> {
    let reason = row.cause.map_or("", CleanupCause::as_str);
    let over = Settlement::without_exit(TurnState::Interrupted, reason);
    let mut settled = Vec::new();
    for mut turn in tx.unfinished_turns_of_allocation(row.session_id, row.id).await? {
        match turn.dispatch {
            Dispatch::Sent | Dispatch::Confirmed => {
                if ledger::end(tx, &mut turn, &over).await? {
                    settled.push(turn.id);
                }
            }
            Dispatch::None | Dispatch::Intent => {
                turn.state = TurnState::Queued;
                turn.dispatch = Dispatch::None;
                turn.allocation_id = None;
                tx.save_turn(&turn).await?;
            }
        }
    }
    if let (false, Some(session)) = (settled.is_empty(), tx.session(row.session_id).await?) {
        ledger::advance(tx, &session, None).await?;
    }
    Ok(settled)
}

/// Counts sandboxes in a row that never came to be; after three the Session fails with everything that waits.
async fn count_attempt(tx: &Tx, row: &AllocationRow) -> Result<Vec<TurnId>, StoreError> {
    let afterwards = row
        .cause
        .map(cause_from)
        .map_or(Afterwards::PlaceAgain, Cause::afterwards);
    let session = tx.session(row.session_id).await?;
    let Some(session) = session.filter(|s| s.archived_at.is_none() && afterwards == Afterwards::CountAttempt)
    else {
        return Ok(Vec::new());
    };
    // A sandbox that linked was none that never came to be, and its first link cleared the count.
    let failed = if row.initialization == Initialization::Complete {
        0
    } else {
        session.failed_creates + 1
    };
    if failed < CREATE_ATTEMPTS {
        tx.set_failed_creates(session.id, failed).await?;
        return Ok(Vec::new());
    }
    tx.set_failed_creates(session.id, 0).await?;
    let nothing = Settlement::without_exit(TurnState::Failed, "no_sandbox");
    let mut settled = Vec::new();
    for mut turn in tx.unfinished_turns(session.id).await? {
        if ledger::end(tx, &mut turn, &nothing).await? {
            settled.push(turn.id);
        }
    }
    let reason = row.cause.map_or("", CleanupCause::as_str);
    tx.set_session_state(session.id, SessionState::Failed, Some(reason))
        .await?;
    tx.append_event(session.id, EventKind::SessionFailed, &json!({ "reason": reason }))
        .await?;
    Ok(settled)
}
