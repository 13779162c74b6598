//! How long to wait before Core is dialed again (sessions.md section 6).

use std::time::Duration;

use crate::limits;

/// Delays of 1 s doubling to 30 s, each uniform between its half and itself.
#[derive(Debug)]
pub(crate) struct Backoff {
    full: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self {
            full: limits::RETRY_FIRST,
        }
    }

    /// The next delay; `random` is uniform over all its values.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let half = self.full / 2;
        let delay = half + half.mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.full = (self.full * 2).min(limits::RETRY_MAX);
        delay
    }

    /// A link ended that had lasted this long.
    pub(crate) fn connected_for(&mut self, lasted: Duration) {
        if lasted >= limits::RETRY_RESET {
            *self = Self::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_30_s_within_half_and_full_and_start_over_after_a_long_link() {
        let (mut low, mut high) = (Backoff::new(), Backoff::new());
        for full in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert_eq!(low.next(0), Duration::from_millis(full * 500));
            assert_eq!(high.next(u32::MAX), Duration::from_secs(full));
        }
        high.connected_for(Duration::from_secs(29));
        assert_eq!(high.next(u32::MAX), Duration::from_secs(30));
        high.connected_for(Duration::from_secs(30));
        assert_eq!(high.next(u32::MAX), Duration::from_secs(1));
    }
}
