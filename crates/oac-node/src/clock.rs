use std::time::Instant;

use oac_peer::Moment;

/// The process's monotonic clock as the state machines count it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    base: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Instant::now() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.base + std::time::Duration::from_millis(moment.0)
    }
}
