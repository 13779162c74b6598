//! Sessions that need a sandbox and have none: after a create that failed, a reservation that expired, or a loss while
//! Turns wait. Admission of new Sessions and inputs places at once; this is for the rest.

use oac_lifecycle::allocation::{Afterwards, Cause};
use oac_model::{SessionId, SessionState};
use oac_store::StoreError;

use super::{limits, record::cause_from};
use crate::{
    Core,
    http::error::Chain,
    placement::{self, Demand, PlaceError},
};

/// What became of one demand.
pub(super) enum Placing {
    /// Placed, or there is no demand.
    Done,
    /// No node takes it now.
    Later,
}

/// Every Session that may need one, once per ownership.
pub(super) async fn all(core: &Core) -> Result<Vec<SessionId>, StoreError> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = core
            .store
            .single()
            .sessions_without_placement(after, limits::PAGE)
            .await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(*last);
        found.extend(page);
    }
}

/// Places the Session's demand, if it has any.
pub(super) async fn place(core: &Core, id: SessionId) -> Placing {
    match try_place(core, id).await {
        Ok(placing) => placing,
        Err(error) => {
            tracing::warn!(session_id = %id, error = %Chain(&error), "a demand is not placed");
            Placing::Later
        }
    }
}

async fn try_place(core: &Core, id: SessionId) -> Result<Placing, StoreError> {
    let read = core.store.single();
    let Some(session) = read
        .session(id)
        .await?
        .filter(|s| s.archived_at.is_none() && s.state != SessionState::Failed)
    else {
        return Ok(Placing::Done);
    };
    if read.unreleased_placement(session.environment_id).await?.is_some() {
        return Ok(Placing::Done);
    }
    let Some(latest) = read.latest_allocation(id).await? else {
        return Ok(Placing::Done);
    };
    let wanted = match latest.cause.map_or(Cause::Unsent, cause_from).afterwards() {
        Afterwards::PlaceAgain | Afterwards::CountAttempt => true,
        Afterwards::OnDemand => read.turn_counts(id).await? != (0, 0),
        Afterwards::End => false,
    };
    if !wanted {
        return Ok(Placing::Done);
    }
    let placing = match placement::begin(core, Demand::of(&session)).await {
        Ok(placing) => placing,
        Err(PlaceError::Refused(_) | PlaceError::Standby | PlaceError::Unanswered) => {
            return Ok(Placing::Later);
        }
        // Nobody can want it any more; an input placed it meanwhile.
        Err(PlaceError::NoProject | PlaceError::Store(StoreError::Duplicate { .. })) => return Ok(Placing::Done),
        Err(PlaceError::Store(error)) => return Err(error),
    };
    let session = placing.tx().lock_session(id).await?;
    // Archived meanwhile: nothing is placed for it.
    if session.is_some_and(|s| s.archived_at.is_none() && s.state != SessionState::Failed) {
        placing.commit().await?;
    }
    Ok(Placing::Done)
}
