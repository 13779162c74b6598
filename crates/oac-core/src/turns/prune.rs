//! Removes what is kept for a time only: output of long ended Turns and answers to idempotent requests.

use std::sync::Arc;

use crate::{
    Core,
    http::{ApiError, error::Chain},
    limits,
};

/// Removes what is kept for a time only, until it is dropped.
pub(super) async fn run(core: Arc<Core>) {
    loop {
        tokio::time::sleep(limits::PRUNE_TIMER).await;
        core.owner.owned().await;
        if let Err(error) = prune_once(&core).await {
            tracing::warn!(error = %Chain(&error), "old output and answers are not removed");
        }
    }
}

async fn prune_once(core: &Arc<Core>) -> Result<(), ApiError> {
    let age = i64::try_from(limits::OUTPUT_AGE.as_millis()).unwrap_or(i64::MAX);
    loop {
        let tx = core.begin().await?;
        let removed =
            tx.prune_output(tx.now().plus_millis(-age)).await? + tx.prune_idempotency_records().await?;
        tx.commit().await?;
        if removed == 0 {
            return Ok(());
        }
    }
}
