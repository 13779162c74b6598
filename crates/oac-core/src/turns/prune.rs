//! Removes what is kept for a time only: output of long ended Turns and answers to idempotent requests.

use std::sync::Arc;

use oac_model::Time;

use crate::{
    Core,
    http::{ApiError, error::Chain},
    limits,
};

/// Removes what is kept for a time only, until it is dropped.
pub(super) async fn run(core: Arc<Core>) {
    let mut pruned = None;
    loop {
        tokio::time::sleep(limits::PRUNE_TIMER).await;
        core.owner.owned().await;
        match prune_once(&core, pruned).await {
            Ok(before) => pruned = Some(before),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "old output and answers are not removed");
            }
        }
    }
}

/// The time before which ended Turns have no output any more; up to `pruned` it is known of an earlier call.
async fn prune_once(core: &Arc<Core>, pruned: Option<Time>) -> Result<Time, ApiError> {
    let age = i64::try_from(limits::OUTPUT_AGE.as_millis()).unwrap_or(i64::MAX);
    let before = core.store.single().database_time().await?.plus_millis(-age);
    let since = pruned.or(Time::from_millis(0)).unwrap_or(before);
    loop {
        let tx = core.begin().await?;
        let removed = tx.prune_output(since, before).await? + tx.prune_idempotency_records().await?;
        tx.commit().await?;
        if removed == 0 {
            return Ok(before);
        }
    }
}
