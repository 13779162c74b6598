//! What every handler and worker of one Core process shares.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use oac_model::{AllocationId, SessionId};
use oac_store::StoreError;
use oac_telemetry::traces::Tracer;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    allocations::Samples,
    config::Config,
    http::ApiError,
    hub::Hub,
    link::Links,
    metrics::Metrics,
    owner::OwnerHandle,
    placement::pressure::{Pressure, Wanted},
    releases::Releases,
    sessions::{access::Accesses, admission::Admissions},
    task::Tasks,
    turns::Turns,
};

/// One running Core, always used as `Arc<Core>`.
pub struct Core {
    pub config: Config,
    pub store: oac_store::Store,
    /// Whether this process may act now, and for how long.
    pub owner: OwnerHandle,
    /// The connected nodes.
    pub hub: Hub,
    /// The connected sandboxes.
    pub links: Links,
    /// New Sessions that wait to be stored.
    pub admissions: Admissions,
    /// What sandboxes use, on its way to be stored.
    pub samples: Samples,
    /// What readers of Turns wait for.
    pub turns: Turns,
    /// What Sessions have open at their sandboxes beside Turns.
    pub accesses: Accesses,
    pub metrics: Metrics,
    /// The files of nodes.
    pub releases: Releases,
    /// Records what is sent to a collector of traces.
    pub traces: Tracer,
    pub pokes: Pokes,
    pub tasks: Tasks,
}

/// Wake-ups for the workers. They also wake by timer; a poke only makes them prompt, so a lost one loses nothing.
#[derive(Default)]
pub struct Pokes {
    pub allocations: Notify,
    pub turns: Notify,
    pub drains: Notify,
    pub resets: Notify,
    /// The owner renews its lease at once, and so learns under which epoch it goes on.
    pub lease: Notify,
    wanted: Mutex<HashSet<SessionId>>,
    changed: Mutex<HashSet<AllocationId>>,
    /// Sessions of which something changed that a reset may wait for.
    told: Mutex<HashSet<SessionId>>,
    pub(crate) pressure: Pressure,
    /// A reset stands, and what it waits for is told.
    pub(crate) resetting: AtomicBool,
}

impl Pokes {
    /// Something of the Session changed that its allocation is to be looked at for: a Turn, an access, a link. Within one
    /// process this is not lost; a takeover looks at everything.
    pub fn want(&self, session: SessionId) {
        self.wanted.lock().insert(session);
        self.allocations.notify_one();
        self.reset_may_go_on(session);
    }

    /// The allocation's row appeared or changed. Within one process this is not lost; a takeover looks at everything.
    pub(crate) fn changed(&self, allocation: AllocationId) {
        self.changed.lock().insert(allocation);
        self.allocations.notify_one();
    }

    pub(crate) fn take_changed(&self) -> HashSet<AllocationId> {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Something of the Session changed that a reset may wait for: it works no more, or its sandbox rests or is gone.
    pub(crate) fn reset_may_go_on(&self, session: SessionId) {
        if self.resetting.load(Ordering::Relaxed) {
            self.told.lock().insert(session);
            self.resets.notify_one();
        }
    }

    pub(crate) fn take_told(&self) -> HashSet<SessionId> {
        std::mem::take(&mut *self.told.lock())
    }

    /// A demand fits nowhere. Within one process this is not lost until the worker looked; asked again, it looks again.
    pub(crate) fn want_room(&self, wanted: Wanted) {
        if self.pressure.want(wanted) {
            self.allocations.notify_one();
        }
    }

    pub(crate) fn take_wanted(&self) -> HashSet<SessionId> {
        std::mem::take(&mut *self.wanted.lock())
    }
}

impl Core {
    /// A transaction of this owner; 503 `core_standby` when it is none any more.
    pub async fn begin(&self) -> Result<oac_store::Tx, ApiError> {
        self.begin_owned().await?.ok_or_else(ApiError::standby)
    }

    /// A transaction of this owner, under the next epoch when a reset has just begun that; `None` when it is none any
    /// more.
    pub(crate) async fn begin_owned(&self) -> Result<Option<oac_store::Tx>, StoreError> {
        let Some(ownership) = self.owner.ownership() else {
            return Ok(None);
        };
        match self.store.begin(&ownership).await {
            Err(StoreError::NotOwner { .. }) => match self.owner.instead_of(&ownership).await {
                Some(now) => self.store.begin(&now).await.map(Some),
                None => Ok(None),
            },
            begun => begun.map(Some),
        }
    }
}
