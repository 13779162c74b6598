//! Remembers which offsets runtimes have acknowledged for good, many in one transaction.
//!
//! Nothing is decided by it: a Turn whose final acknowledgement was lost is shown by the next status. So it is written a
//! little later, and a transaction of its own for each short command is saved.

use std::sync::Arc;

use oac_model::TurnId;
use parking_lot::Mutex;

use crate::{Core, http::error::Chain, limits};

/// What is known and not stored yet.
#[derive(Default)]
pub(crate) struct Acked(Mutex<Vec<(TurnId, u64)>>);

impl Acked {
    /// The runtime forgot the Turn, all of whose bytes up to `offset` Core has.
    pub(super) fn note(&self, turn: TurnId, offset: u64) {
        let mut noted = self.0.lock();
        if noted.len() < limits::ACKED_NOTED {
            noted.push((turn, offset));
        }
    }
}

/// Stores what was noted, until it is dropped.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        tokio::time::sleep(limits::ACKED_TIMER).await;
        if let Err(error) = store(&core).await {
            tracing::debug!(error = %Chain(&error), "acknowledgements are not remembered");
        }
    }
}

async fn store(core: &Core) -> Result<(), oac_store::StoreError> {
    let noted = std::mem::take(&mut *core.turns.acked.0.lock());
    let Some(ownership) = core.owner.ownership().filter(|_| !noted.is_empty()) else {
        return Ok(());
    };
    let tx = core.store.begin(&ownership).await?;
    for (turn, offset) in noted {
        tx.record_acked(turn, offset).await?;
    }
    tx.commit().await
}
