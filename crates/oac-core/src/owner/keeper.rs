//! The task that takes, renews and gives up the lease.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_store::{Claim, ExclusiveLock, Holder, Ownership};

use super::{LEASE, POLL, RENEWAL};
use crate::{Core, http::error::Chain};

/// Pause after a renewal that did not get an answer: short, because the lease runs on.
const RETRY: Duration = Duration::from_millis(500);

/// Owns whenever it can, and stands by otherwise. `lock` is an SQLite database's and is held for as long as this runs.
pub(crate) async fn keep(core: Arc<Core>, holder: Holder, lock: Option<ExclusiveLock>) {
    loop {
        let ownership = stand_by(&core, holder, lock.as_ref()).await;
        tracing::info!(event = "lease_taken", epoch = %ownership.epoch, "this Core owns the installation");
        hold(&core, ownership).await;
        core.owner.lost();
        tracing::warn!(event = "lease_lost", epoch = %ownership.epoch, "the lease is lost: closing every connection");
        core.hub.close_all().await;
        core.links.close_all().await;
    }
}

/// Returns with the lease.
async fn stand_by(core: &Core, holder: Holder, lock: Option<&ExclusiveLock>) -> Ownership {
    let claim = lock.map_or(Claim::WhenExpired, Claim::AtOnce);
    let mut said = false;
    loop {
        let asked_at = Instant::now();
        match core.store.acquire_ownership(holder, LEASE, claim).await {
            Ok(Some(ownership)) => {
                core.hub.memory().clear();
                core.owner.renewed(&ownership, asked_at);
                return ownership;
            }
            Ok(None) => {
                if !said {
                    tracing::info!(
                        event = "standing_by",
                        "another Core owns the installation: standing by"
                    );
                    said = true;
                }
            }
            Err(error) => {
                tracing::warn!(event = "lease_not_taken", error = %Chain(&error), "the lease cannot be asked for")
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// This Core completed a reset, and owns the installation under the next epoch: what it remembers of the nodes, and their
/// connections, are of the one before.
fn go_on(core: &Core, renewed: &Ownership) {
    tracing::info!(event = "epoch_begun", epoch = %renewed.epoch, "this Core goes on under the next epoch");
    core.hub.memory().clear();
    core.hub.hang_up();
}

/// Renews until the lease is lost.
async fn hold(core: &Core, mut ownership: Ownership) {
    let mut pause = RENEWAL;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause.min(core.owner.lease_left())) => {}
            () = core.pokes.lease.notified() => {}
        }
        let asked_at = Instant::now();
        let answer = tokio::time::timeout(
            core.owner.lease_left(),
            core.store.renew_ownership(ownership.holder, LEASE),
        )
        .await;
        match answer {
            Ok(Ok(Some(renewed))) => {
                if renewed != ownership {
                    go_on(core, &renewed);
                    ownership = renewed;
                }
                core.owner.renewed(&ownership, asked_at);
                pause = RENEWAL;
            }
            Ok(Ok(None)) => return,
            Ok(Err(error)) => {
                tracing::warn!(event = "lease_not_renewed", error = %Chain(&error), "the lease was not renewed");
                pause = RETRY;
            }
            Err(_) => tracing::warn!(event = "lease_not_renewed", "the lease was not renewed in time"),
        }
        if core.owner.lease_left().is_zero() {
            return;
        }
    }
}
