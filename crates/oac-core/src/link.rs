//! Core's end of the sandbox links (sessions.md section 6).
//!
//! Guarantees: only a runtime that presents the credential of exactly its allocation and link generation is welcomed;
//! at most one connection per allocation is *current*, the newest accepted one; and no stream opens on a link whose
//! allocation was revoked or whose epoch passed (INV-S11). To a sandbox that was restored no stream opens but its first
//! status call, until its checkpoint is marked consumed (INV-S21).
//!
//! The shape that guarantees it: [`Links`] holds the current links by allocation, and a [`Link`] gives out its
//! streams only through [`Link::admit`], which reads the allocation's state and the ownership right before. Whoever
//! revokes tells `Links` after its commit; a sweep compares all links with their allocations every two seconds, so
//! that a forgotten word delays the end and does not prevent it.
//!
//! A sandbox may dial as often as it likes: what it does must not shut out the others behind its address. So a hello is
//! read however many of its address were refused, the right credential is always heard, and beyond the limit a wrong one
//! is only answered `link_busy`; and no address holds more than a quarter of the openings.
//!
//! Refused alternatives: a cache of allocation states beside the links, which would have to be right after every
//! rollback; one task per link that polls its row.

mod accept;
mod rejections;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use oac_link::{CloseReason, LinkClient, service::Status};
use oac_model::{AllocationId, ComputePhase, InstanceId, LinkId, SessionId};
use oac_store::Ownership;
use oac_wire::shapes::LinkResource;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::{
    Core,
    http::error::Chain,
    limits,
    task::Kind,
    turns::{ledger::Job, signals::Counts},
};

pub use accept::routes;

/// The connected sandboxes.
pub struct Links {
    current: Mutex<HashMap<AllocationId, Arc<Link>>>,
    /// Links between upgrade and welcome.
    opening: Arc<Semaphore>,
    /// The same by address, so that one address cannot take all places.
    opening_of: Counts<IpAddr>,
    rejections: Mutex<rejections::Rejections>,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            current: Mutex::default(),
            opening: Arc::new(Semaphore::new(limits::OPENING_LINKS)),
            opening_of: Counts::default(),
            rejections: Mutex::default(),
        }
    }
}

/// One welcomed connection of a sandbox.
pub struct Link {
    /// Which allocation, under which link generation.
    pub resource: LinkResource,
    pub session_id: SessionId,
    pub instance_id: InstanceId,
    ownership: Ownership,
    client: LinkClient,
    ready: AtomicBool,
    /// Wakes the driver of this link's Turns.
    pub(crate) wake: Notify,
    /// A Turn recorded as sent, for the driver to send without reading it again. Losing it loses nothing.
    handed: Mutex<Option<Job>>,
    /// The first status call of a restored sandbox was made, and its answer.
    asked: AtomicBool,
    first: Mutex<Option<Status>>,
    /// Sequence of the latest Turn that this link's driver began with.
    begun: AtomicI64,
}

/// A stream that may not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotAdmitted {
    #[error("the link is closed, revoked or of an earlier ownership")]
    Closed,
    /// The allocation's phase admits no stream: its sandbox is being suspended, or was restored and is not admitted yet.
    #[error("the sandbox rests")]
    Resting,
    #[error("the allocation's state cannot be read")]
    Store(#[source] oac_store::StoreError),
}

impl Link {
    pub fn allocation_id(&self) -> AllocationId {
        self.resource.id
    }

    pub fn connection_id(&self) -> LinkId {
        self.client.welcome().connection_id
    }

    /// Past welcome, and the first status call succeeded.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && self.client.is_open()
    }

    /// The right to open one stream now: reads the allocation's state and the epoch first, and ends the link when they
    /// no longer allow it. None while the sandbox rests (INV-S21).
    pub(crate) async fn admit(&self, core: &Core) -> Result<&LinkClient, NotAdmitted> {
        match self.phase(core).await? {
            ComputePhase::Disabled | ComputePhase::Running => Ok(&self.client),
            ComputePhase::Quiescing
            | ComputePhase::Suspending
            | ComputePhase::Suspended
            | ComputePhase::Restoring
            | ComputePhase::Waking => Err(NotAdmitted::Resting),
        }
    }

    /// The right to the one stream of a link whose sandbox was restored and woken: its first status call. Given once.
    pub(crate) async fn admit_first(&self, core: &Core) -> Result<&LinkClient, NotAdmitted> {
        if self.phase(core).await? != ComputePhase::Waking || self.asked.swap(true, Ordering::AcqRel) {
            return Err(NotAdmitted::Resting);
        }
        Ok(&self.client)
    }

    /// The right to the one stream of a link whose sandbox is to be suspended: the word to quiesce.
    pub(crate) async fn admit_quiescing(&self, core: &Core) -> Result<&LinkClient, NotAdmitted> {
        match self.phase(core).await? {
            ComputePhase::Quiescing => Ok(&self.client),
            _ => Err(NotAdmitted::Resting),
        }
    }

    /// Ends the link of a runtime that was quiesced: it stays parked.
    pub(crate) async fn park(&self) {
        self.client.close(CloseReason::Parked);
        self.client.closed().await;
    }

    /// The answer to the first status call, for another try of what follows it.
    pub(crate) fn first_status(&self) -> Option<Status> {
        self.first.lock().clone()
    }

    pub(crate) fn keep_first_status(&self, status: &Status) {
        *self.first.lock() = Some(status.clone());
    }

    /// Ends the link, whose runtime tries again.
    pub(crate) fn end(&self) {
        self.client.close(CloseReason::GoingAway);
    }

    async fn phase(&self, core: &Core) -> Result<ComputePhase, NotAdmitted> {
        if !self.client.is_open() {
            return Err(NotAdmitted::Closed);
        }
        if core.owner.ownership().as_ref() != Some(&self.ownership) {
            self.client.close(CloseReason::EpochChanged);
            return Err(NotAdmitted::Closed);
        }
        let read = core.store.single();
        match read.linkable_allocation(self.resource.id).await {
            Ok(Some((generation, phase))) if generation == self.resource.generation => Ok(phase),
            Ok(_) => {
                self.client.close(CloseReason::Revoked);
                Err(NotAdmitted::Closed)
            }
            Err(error) => Err(NotAdmitted::Store(error)),
        }
    }

    /// Gives the driver a Turn that was just recorded as sent here.
    pub(crate) fn hand(&self, job: Job) {
        *self.handed.lock() = Some(job);
        self.wake.notify_one();
    }

    /// A Turn that was handed over and not begun. One that the driver found by itself before it was handed over is not
    /// begun again: its end may have been acknowledged meanwhile.
    pub(crate) fn handed(&self) -> Option<Job> {
        let job = self.handed.lock().take()?;
        (job.turn.sequence > self.begun.load(Ordering::Acquire)).then_some(job)
    }

    /// The driver begins with the Turn of this sequence; no Turn before it is begun after it.
    pub(crate) fn begin(&self, sequence: i64) {
        self.begun.fetch_max(sequence, Ordering::AcqRel);
    }

    pub(crate) fn become_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }
}

impl Links {
    /// The allocation's current link, if it is open.
    pub fn current(&self, allocation: AllocationId) -> Option<Arc<Link>> {
        self.current
            .lock()
            .get(&allocation)
            .filter(|link| link.client.is_open())
            .cloned()
    }

    /// The allocation's current link, if it is ready.
    pub fn ready(&self, allocation: AllocationId) -> Option<Arc<Link>> {
        self.current(allocation).filter(|link| link.is_ready())
    }

    /// Whether the allocation's runtime is linked.
    pub fn is_linked(&self, allocation: AllocationId) -> bool {
        self.current(allocation).is_some()
    }

    /// Ends the allocation's link after its revocation was stored.
    pub fn revoke(&self, allocation: AllocationId) {
        if let Some(link) = self.current.lock().get(&allocation) {
            link.client.close(CloseReason::Revoked);
        }
    }

    /// Has the driver of the allocation's Turns look again.
    pub(crate) fn wake(&self, allocation: AllocationId) {
        if let Some(link) = self.current.lock().get(&allocation) {
            link.wake.notify_one();
        }
    }

    /// How many sandboxes are linked.
    pub fn count(&self) -> usize {
        self.current.lock().len()
    }

    /// Closes every sandbox connection, before Core stands by or stops.
    pub async fn close_all(&self) {
        let links: Vec<_> = self.current.lock().values().cloned().collect();
        for link in &links {
            link.client.close(CloseReason::EpochChanged);
        }
        for link in links {
            link.client.closed().await;
        }
    }

    /// Makes `link` the current one; an earlier one is closed.
    fn enter(&self, link: &Arc<Link>) {
        let earlier = self.current.lock().insert(link.resource.id, link.clone());
        if let Some(earlier) = earlier {
            earlier.client.close(CloseReason::Superseded);
        }
    }

    /// Forgets `link`, unless a newer one took its place.
    fn leave(&self, link: &Arc<Link>) {
        let mut current = self.current.lock();
        if current
            .get(&link.resource.id)
            .is_some_and(|c| Arc::ptr_eq(c, link))
        {
            current.remove(&link.resource.id);
        }
    }
}

/// Starts the sweep that ends links of revoked allocations and of earlier ownerships.
pub fn start(core: &Arc<Core>) {
    let this = core.clone();
    core.tasks.spawn(Kind::Worker, "link sweep", async move {
        loop {
            tokio::time::sleep(limits::LINK_SWEEP).await;
            sweep(&this).await;
        }
    });
}

async fn sweep(core: &Arc<Core>) {
    let links: Vec<_> = core.links.current.lock().values().cloned().collect();
    let ownership = core.owner.ownership();
    let ids: Vec<_> = links.iter().map(|link| link.resource.id).collect();
    let linkable: HashMap<_, _> = match core.store.single().linkable_allocations(&ids).await {
        Ok(linkable) => linkable.into_iter().collect(),
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "links cannot be compared with their allocations");
            return;
        }
    };
    for link in links {
        if ownership != Some(link.ownership) {
            link.client.close(CloseReason::EpochChanged);
        } else if linkable.get(&link.resource.id) != Some(&link.resource.generation) {
            link.client.close(CloseReason::Revoked);
        }
    }
}
