use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_peer::Moment;
use oac_release::fetch;
use tokio::sync::watch;

/// The process's monotonic clock as the state machines count it. A test moves it forward instead of waiting.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    base: Instant,
    skipped: watch::Sender<u64>,
}

impl Clock {
    pub fn start() -> Self {
        Self(Arc::new(Shared {
            base: Instant::now(),
            skipped: watch::Sender::new(0),
        }))
    }

    pub(crate) fn now(&self) -> Moment {
        let elapsed = u64::try_from(self.0.base.elapsed().as_millis()).unwrap_or(u64::MAX);
        Moment(elapsed).plus_millis(*self.0.skipped.borrow())
    }

    /// Lets this much time pass at once, for everything that waits.
    pub fn skip(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0
            .skipped
            .send_modify(|skipped| *skipped = skipped.saturating_add(millis));
    }

    /// `moment` on the system's monotonic clock, as it stands now.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        Instant::now() + Duration::from_millis(moment.millis_since(self.now()))
    }

    /// Resolves at `moment`; never without one.
    pub(crate) async fn until(&self, moment: Option<Moment>) {
        let Some(moment) = moment else {
            return std::future::pending().await;
        };
        let mut skips = self.0.skipped.subscribe();
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

/// Downloads are judged by it.
impl fetch::Clock for Clock {
    fn now(&self) -> Duration {
        Duration::from_millis(Self::now(self).0)
    }
}
