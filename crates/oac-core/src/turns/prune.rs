//! Removes what is kept for a time only: output of long ended Turns, answers to idempotent requests, and samples of hosts.

use std::{sync::Arc, time::Duration};

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
        core.hub.clock.pass(limits::PRUNE_TIMER).await;
        core.owner.owned().await;
        match prune_once(&core, pruned).await {
            Ok(before) => pruned = Some(before),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "old output, answers and samples are not removed");
            }
        }
    }
}

/// The time before which ended Turns have no output any more; up to `pruned` it is known of an earlier call.
async fn prune_once(core: &Arc<Core>, pruned: Option<Time>) -> Result<Time, ApiError> {
    let millis = |age: Duration| i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let now = core.store.single().database_time().await?;
    let before = now.plus_millis(-millis(limits::OUTPUT_AGE));
    let sampled_before = now.plus_millis(-millis(limits::SAMPLES_AGE));
    let since = pruned.or(Time::from_millis(0)).unwrap_or(before);
    loop {
        let tx = core.begin().await?;
        let removed = tx.prune_output(since, before).await?
            + tx.prune_idempotency_records().await?
            + tx.prune_node_samples(sampled_before).await?;
        tx.commit().await?;
        if removed == 0 {
            return Ok(before);
        }
    }
}
