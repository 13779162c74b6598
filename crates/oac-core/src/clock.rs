use std::time::{Duration, Instant};

use oac_peer::Moment;
use tokio::sync::watch;

/// The monotonic clock of Core's connections. A test moves it forward instead of waiting.
#[derive(Debug)]
pub struct Clock {
    base: Instant,
    skipped: watch::Sender<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            base: Instant::now(),
            skipped: watch::Sender::new(0),
        }
    }
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        let elapsed = u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moment(elapsed).plus_millis(*self.skipped.borrow())
    }

    /// Lets this much time pass at once, for everything that waits.
    pub fn skip(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.skipped
            .send_modify(|skipped| *skipped = skipped.saturating_add(millis));
    }

    /// Resolves when this much time has passed.
    pub(crate) async fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.until(Some(self.now().plus_millis(millis))).await;
    }

    /// Resolves at `moment`; never without one.
    pub(crate) async fn until(&self, moment: Option<Moment>) {
        let Some(moment) = moment else {
            return std::future::pending().await;
        };
        let mut skips = self.skipped.subscribe();
        loop {
            skips.mark_unchanged();
            let left = moment.millis_since(self.now());
            if left == 0 {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(left)) => {}
                // The sender lives in `self`.
                _ = skips.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_when_the_time_it_waits_for_is_skipped() {
        let clock = Clock::default();
        let hour = Duration::from_secs(3600);
        let due = clock.now().plus_millis(3_600_000);
        let mut wait = std::pin::pin!(clock.until(Some(due)));
        assert!(futures_util::poll!(&mut wait).is_pending());
        clock.skip(hour / 2);
        assert!(futures_util::poll!(&mut wait).is_pending());
        clock.skip(hour / 2);
        wait.await;
        assert!(clock.now() >= due);
    }
}
