//! Step 27: Core sees the node connected and ready.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{kept, runtime};
use crate::{core::Core, hint::Hint};

const PERIOD: Duration = Duration::from_secs(2);
const AT_MOST: Duration = Duration::from_secs(60);

/// Asks until it is so; `false` when it is not within a minute.
pub(crate) fn await_ready(root: &Path) -> Result<bool, Hint> {
    let kept = kept(root)?.ok_or_else(|| Hint::StateMissing {
        root: root.display().to_string(),
    })?;
    runtime()?.block_on(async {
        let core = Core::at(&kept.core)?;
        let end = Instant::now() + AT_MOST;
        loop {
            if let Ok(known) = core.identity(kept.node, &kept.credential).await
                && known.connected
                && known.provider_ready
            {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            sleep(PERIOD).await;
        }
    })
}
