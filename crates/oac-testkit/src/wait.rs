//! Waiting on conditions. Nothing in a test waits for time to pass.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A condition that did not come true.
#[derive(Debug, thiserror::Error)]
#[error("waited {seconds} s in vain: {what}")]
pub struct InVain {
    pub what: String,
    pub seconds: u64,
}

/// Looks until `look` gives a value, at most for `limit`.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Result<T, InVain> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = look().await {
            return Ok(value);
        }
        if Instant::now() >= end {
            return Err(InVain {
                what: what.to_owned(),
                seconds: limit.as_secs(),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}
