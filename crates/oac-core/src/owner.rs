//! Whether this process may act: the owner lease (core.md section 3).
//!
//! One Core acts. The lease row is renewed every 3 s and lasts 10 s; what counts here is the monotonic clock from before
//! the last successful renewal, so this process stops acting no later than the database lets another one begin,
//! whatever the wall clocks do. With SQLite a file lock beside the database admits one process, which therefore takes
//! the lease without waiting; with PostgreSQL an unexpired lease of another holder means standing by.

mod keeper;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_store::Ownership;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use keeper::keep;

/// How long a lease lasts.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often the owner renews it.
pub const RENEWAL: Duration = Duration::from_secs(3);
/// How often a standby looks.
pub const POLL: Duration = Duration::from_secs(2);
/// No provider mutation is sent with less lease left (INV-C27).
pub const MUTATION_RESERVE: Duration = Duration::from_secs(5);

/// The current ownership, shared by everything that acts.
#[derive(Clone)]
pub struct OwnerHandle {
    held: Arc<Mutex<Option<Held>>>,
    changed: watch::Sender<Option<Ownership>>,
}

struct Held {
    ownership: Ownership,
    /// Taken before the renewal was sent.
    renewed_at: Instant,
}

impl Default for OwnerHandle {
    fn default() -> Self {
        Self {
            held: Arc::default(),
            changed: watch::Sender::new(None),
        }
    }
}

impl OwnerHandle {
    /// What a Core may do that renewed its lease then and never again. For tests of what the lease permits.
    pub fn last_renewed(ownership: &Ownership, at: Instant) -> Self {
        let owner = Self::default();
        owner.renewed(ownership, at);
        owner
    }

    /// Holder and epoch while this process owns the installation and its lease has not run out.
    pub fn ownership(&self) -> Option<Ownership> {
        self.held
            .lock()
            .as_ref()
            .filter(|h| !h.left().is_zero())
            .map(|h| h.ownership)
    }

    /// What is left of the lease, on the monotonic clock from before the last successful renewal; zero for a standby.
    pub fn lease_left(&self) -> Duration {
        self.held.lock().as_ref().map_or(Duration::ZERO, Held::left)
    }

    /// May a provider mutation be sent now (INV-C27)? Ask again right before each one.
    pub fn may_mutate(&self) -> bool {
        self.lease_left() >= MUTATION_RESERVE
    }

    /// Changes with every gain and loss of ownership. Holds the last value, which may have run out meanwhile: ask
    /// [`Self::ownership`] before acting.
    pub fn subscribe(&self) -> watch::Receiver<Option<Ownership>> {
        self.changed.subscribe()
    }

    /// Waits until this process owns the installation.
    pub async fn owned(&self) -> Ownership {
        let mut changes = self.subscribe();
        loop {
            if let Some(ownership) = self.ownership() {
                return ownership;
            }
            // The sender lives in `self`, so this fails only together with everything else.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What this process owns instead of `ownership`, under which a transaction was refused: the next epoch after a reset
    /// that it completed, which the renewal of its lease tells; or nothing.
    pub async fn instead_of(&self, ownership: &Ownership) -> Option<Ownership> {
        let mut changes = self.subscribe();
        let changed = async {
            while self.ownership().as_ref() == Some(ownership) && changes.changed().await.is_ok() {}
        };
        // A renewal that gets no answer says nothing.
        let _ = tokio::time::timeout(RENEWAL, changed).await;
        self.ownership().filter(|now| now != ownership)
    }

    fn renewed(&self, ownership: &Ownership, asked_at: Instant) {
        *self.held.lock() = Some(Held {
            ownership: *ownership,
            renewed_at: asked_at,
        });
        self.changed.send_if_modified(|now| {
            let changes = now.as_ref() != Some(ownership);
            *now = Some(*ownership);
            changes
        });
    }

    fn lost(&self) {
        *self.held.lock() = None;
        self.changed.send_if_modified(|now| now.take().is_some());
    }
}

impl Held {
    fn left(&self) -> Duration {
        LEASE.saturating_sub(self.renewed_at.elapsed())
    }
}
