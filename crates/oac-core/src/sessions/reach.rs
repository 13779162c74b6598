//! The way to a Session's sandbox for files and ports (sessions.md section 4).
//!
//! [`Reach::begin`] checks in this order: 404 for a Session that is missing or another Project's, 409 for an archived one,
//! 503 during a reset, 429 above the Session's limit, then, for an Environment without an unreleased allocation, the
//! placement codes: it is placed as an input would place it, so a sandbox is started even if the caller leaves at once.
//! [`Reach::client`] waits for the current, ready link, 60 s from the beginning in all, and answers 503
//! `sandbox_unreachable` after that. It wakes by notification: every stored change of an allocation, an archive, and a
//! link that becomes ready wake it; it never polls.
//!
//! While a [`Reach`], or the [`Access`] left of it, is held, the transfer or port stream counts as open.

use std::sync::Arc;

use oac_link::LinkClient;
use oac_model::{ProjectId, SessionId, SessionState};
use oac_store::{FileOperationKind, SessionRow, StoreError};
use oac_telemetry::traces::Parent;
use tokio::time::{Instant, sleep_until};

use super::{access::Access, read::target_session};
use crate::{
    Core,
    http::{ApiError, target::Target},
    limits,
    link::NotAdmitted,
    metrics::Asked,
    placement::{self, Demand, PlaceError},
    turns::ledger,
};

/// One access to a sandbox that was admitted.
pub(crate) struct Reach {
    core: Arc<Core>,
    session: SessionId,
    until: Instant,
    access: Access,
    /// The request.
    parent: Parent,
}

/// What there is of the Session's sandbox now.
enum Found {
    Ready(LinkClient),
    NotYet,
    /// The Environment has no unreleased placement.
    Nothing(Box<SessionRow>),
}

impl Reach {
    /// Admits one access to the sandbox of the Session that `{session_id}` names, and has the sandbox started.
    pub(crate) async fn begin(
        core: &Arc<Core>,
        project: ProjectId,
        target: &Target,
        kind: FileOperationKind,
        Asked(parent): Asked,
    ) -> Result<Self, ApiError> {
        let until = Instant::now() + limits::REACH_WAIT;
        let read = core.store.single();
        let session = target_session(&read, project, target).await?;
        if session.archived_at.is_some() {
            return Err(ApiError::session_archived());
        }
        if placement::resetting(core, &read).await? {
            return Err(ApiError::reset_in_progress_unavailable());
        }
        let access = core
            .accesses
            .open(session.id, kind)
            .ok_or_else(|| ApiError::too_many_accesses(kind))?;
        let reach = Self {
            core: core.clone(),
            session: session.id,
            until,
            access,
            parent,
        };
        let found = reach.look().await?;
        let ready = matches!(found, Found::Ready(_));
        if let Found::Nothing(session) = found {
            reach.place(*session, true).await?;
        }
        reach.access.store(core).await?;
        if !ready {
            // It may have to be woken.
            core.pokes.want(reach.session);
        }
        Ok(reach)
    }

    /// The right to open streams at the sandbox's current, ready link; its allocation was read a moment ago (INV-S11).
    /// Waits until 60 s after the beginning. To be asked again for a further try, when nothing was sent.
    pub(crate) async fn client(&self) -> Result<LinkClient, ApiError> {
        let mut changes = self.core.turns.events.subscribe(self.session);
        let mut owner = self.core.owner.subscribe();
        let stopping = self.core.tasks.stopping();
        loop {
            match self.look().await? {
                Found::Ready(client) => return Ok(client),
                Found::NotYet => {}
                // It was lost while this waited, or its creation failed.
                Found::Nothing(session) => {
                    self.place(*session, false).await?;
                    continue;
                }
            }
            tokio::select! {
                () = changes.changed() => {}
                _ = owner.changed() => {}
                () = stopping.cancelled() => return Err(ApiError::standby()),
                () = sleep_until(self.until) => return Err(ApiError::sandbox_unreachable()),
            }
        }
    }

    /// What keeps counting as open for as long as a transfer goes on.
    pub(crate) fn into_access(self) -> Access {
        self.access
    }

    async fn look(&self) -> Result<Found, ApiError> {
        if self.core.owner.ownership().is_none() {
            return Err(ApiError::standby());
        }
        let read = self.core.store.single();
        let session = read
            .session(self.session)
            .await?
            .ok_or_else(ApiError::not_found)?;
        if session.archived_at.is_some() {
            return Err(ApiError::session_archived());
        }
        let Some(allocation) = read.unreleased_allocation(session.environment_id).await? else {
            let placed = read.unreleased_placement(session.environment_id).await?.is_some();
            return Ok(if placed {
                Found::NotYet
            } else {
                Found::Nothing(Box::new(session))
            });
        };
        let link = self.core.links.ready(allocation.id);
        let Some(link) = link.filter(|_| ledger::takes_turns(&allocation)) else {
            return Ok(Found::NotYet);
        };
        match link.admit(&self.core).await {
            Ok(client) => Ok(Found::Ready(client.clone())),
            Err(NotAdmitted::Closed | NotAdmitted::Resting) => Ok(Found::NotYet),
            Err(NotAdmitted::Store(error)) => Err(error.into()),
        }
    }

    /// Places the Session's Environment. At the `first` time a failed Session starts over, as with an input; one that
    /// fails meanwhile has no sandbox to wait for.
    async fn place(&self, session: SessionRow, first: bool) -> Result<(), ApiError> {
        if session.state == SessionState::Failed && !first {
            return Err(ApiError::sandbox_unreachable());
        }
        let demand = Demand::of(&session).within(self.parent.clone());
        let placing = match placement::begin(&self.core, demand).await {
            // Someone else placed it meanwhile.
            Err(PlaceError::Store(StoreError::Duplicate { .. })) => return Ok(()),
            placing => placing?,
        };
        let tx = placing.tx();
        let locked = tx
            .lock_session(session.id)
            .await?
            .ok_or_else(ApiError::not_found)?;
        if locked.archived_at.is_some() {
            return Err(ApiError::session_archived());
        }
        if locked.state == SessionState::Failed {
            if !first {
                return Err(ApiError::sandbox_unreachable());
            }
            tx.activate_session(session.id, SessionState::Idle).await?;
            tx.set_failed_creates(session.id, 0).await?;
        }
        match placing.commit().await {
            Ok(_) => self.core.turns.events.notify(session.id),
            Err(StoreError::Duplicate { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
