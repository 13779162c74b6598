//! What a plan looks at besides the allocation's own rows.

use oac_lifecycle::{
    Millis,
    suspension::{Busy, Demand, Held, may_suspend},
};
use oac_model::ComputePhase;
use oac_store::StoreError;

use super::{
    rows::Rows,
    suspend::{stillness, wanted_away},
};
use crate::Core;

/// The Session's side of an allocation, by the database's clock.
#[derive(Debug)]
pub(in crate::allocations) struct Around {
    pub(in crate::allocations) demand: Demand,
    pub(in crate::allocations) quiet_in: Option<Millis>,
    /// It runs, and something other than the time keeps it from being suspended.
    pub(in crate::allocations) is_busy: bool,
    /// How long it is to be idle before it is suspended.
    pub(in crate::allocations) idle_wanted: Millis,
    pub(in crate::allocations) phase_for: Millis,
    pub(in crate::allocations) retention_in: Option<Millis>,
}

/// `early`: it is suspended as soon as it is idle, because a demand fits nowhere.
pub(in crate::allocations) async fn look_around(
    core: &Core,
    rows: &Rows,
    held: &Held,
    early: bool,
) -> Result<Around, StoreError> {
    let read = core.store.single();
    let row = &rows.row;
    let now = read.database_time().await?;
    let mut around = Around {
        demand: Demand::None,
        quiet_in: None,
        is_busy: false,
        idle_wanted: Millis::MAX,
        phase_for: now.millis() - row.compute_phase_changed_at.millis(),
        retention_in: held
            .unconsumed()
            .and_then(|_| rows.bound())
            .map(|kept| kept.retention_deadline.millis() - now.millis()),
    };
    let Some(session) = read.session(row.session_id).await? else {
        return Ok(around);
    };
    match held.phase() {
        Some(ComputePhase::Suspended) => {
            let waiting = read.unfinished_turns(session.id).await?;
            let newest = waiting.iter().map(|turn| turn.created_at).max();
            let accesses = !read.file_operations(session.id).await?.is_empty();
            around.demand = match newest {
                Some(at) if at > row.compute_phase_changed_at => Demand::New,
                Some(_) => Demand::Waits,
                None if accesses => Demand::Waits,
                None => Demand::None,
            };
        }
        Some(ComputePhase::Running) => {
            let early = early || wanted_away(core, &read, rows, &session).await?;
            let still = stillness(&read, row, &session, rows.bound().is_some(), now, early).await?;
            around.idle_wanted = still.idle_wanted;
            around.quiet_in = match may_suspend(&still) {
                Ok(()) => Some(0),
                Err(Busy::ActiveLately) => Some(still.idle_wanted - still.idle_for),
                Err(_) => None,
            };
            around.is_busy = around.quiet_in.is_none();
        }
        _ => {}
    }
    Ok(around)
}
