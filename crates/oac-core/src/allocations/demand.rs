//! Sessions that need a sandbox and have none: after a create that failed, a reservation that expired, or a loss while
//! Turns wait. Admission of new Sessions and inputs places at once; this is for the rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use oac_lifecycle::{
    Millis,
    allocation::{Afterwards, Cause},
};
use oac_model::{SessionId, SessionState};
use oac_store::StoreError;

use super::{limits, record::cause_from};
use crate::{
    Core,
    http::error::Chain,
    placement::{self, Demand, PlaceError},
};

/// Sessions without a sandbox that may need one, each with the time at which it is looked at next.
#[derive(Default)]
pub(super) struct Waiting {
    at: BTreeMap<SessionId, Millis>,
    /// The same by time: a few at a time are looked at, and whoever waits longest is first.
    order: BTreeSet<(Millis, SessionId)>,
}

impl Waiting {
    /// One that waits already keeps its time.
    pub(super) fn add(&mut self, id: SessionId, at: Millis) {
        if self.at.contains_key(&id) {
            return;
        }
        self.at.insert(id, at);
        self.order.insert((at, id));
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        if let Some(at) = self.at.remove(&id) {
            self.order.remove(&(at, id));
        }
    }

    /// Whose time came, the earliest first; at most so many.
    pub(super) fn due(&self, now: Millis, most: usize) -> Vec<SessionId> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).take(most).collect()
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<Millis> {
        self.order.first().map(|(at, _)| *at)
    }
}

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
    // Whatever else is to be done waits for this one.
    let placing = match placement::begin_within(core, Demand::of(&session), Duration::ZERO).await {
        Ok(placing) => placing,
        Err(
            PlaceError::Refused(_)
            | PlaceError::Standby
            | PlaceError::Held
            | PlaceError::Crowded
            | PlaceError::Unanswered,
        ) => return Ok(Placing::Later),
        // Nobody can want it any more; an input placed it meanwhile.
        Err(PlaceError::NoProject | PlaceError::Store(StoreError::Duplicate { .. })) => {
            return Ok(Placing::Done);
        }
        Err(PlaceError::Store(error)) => return Err(error),
    };
    let session = placing.tx().lock_session(id).await?;
    // Archived meanwhile: nothing is placed for it.
    if session.is_some_and(|s| s.archived_at.is_none() && s.state != SessionState::Failed) {
        placing.commit().await?;
    }
    Ok(Placing::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_many_that_wait_has_its_turn_before_any_has_another() {
        let mut waiting = Waiting::default();
        let all: BTreeSet<SessionId> = (0..10).map(|_| SessionId::random()).collect();
        for id in &all {
            waiting.add(*id, 0);
        }
        let mut looked = Vec::new();
        for now in 1..=5 {
            for id in waiting.due(now, 2) {
                // In vain: it is due again when the next ones are.
                waiting.remove(id);
                waiting.add(id, now + 1);
                looked.push(id);
            }
        }
        assert_eq!(looked.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(looked.len(), all.len());
    }

    #[test]
    fn one_that_waits_already_keeps_its_time_and_nothing_is_due_early() {
        let mut waiting = Waiting::default();
        let id = SessionId::random();
        waiting.add(id, 5);
        waiting.add(id, 1);
        assert_eq!((waiting.next(), waiting.due(4, 9)), (Some(5), vec![]));
        assert_eq!(waiting.due(5, 9), [id]);
        waiting.remove(id);
        assert_eq!((waiting.next(), waiting.due(5, 9)), (None, vec![]));
    }
}
