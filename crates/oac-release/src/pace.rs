//! The stall rule (installer.md section 8). Pure: `now` is given.

use std::{collections::VecDeque, time::Duration};

use crate::limits::{STALL, STALL_BYTES};

/// How fast a transfer comes. It has stalled once a whole minute, wherever it begins, brought less than 64 KiB. Counted
/// by seconds, so that a minute may last up to 61 s, never less than 60.
#[derive(Debug)]
pub struct Pace {
    begun: Duration,
    /// Seconds and what came in each, in order.
    seconds: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Pace {
    pub fn begin(now: Duration) -> Self {
        Self {
            begun: now,
            seconds: VecDeque::new(),
            bytes: 0,
        }
    }

    pub fn arrived(&mut self, now: Duration, bytes: u64) {
        self.forget(now);
        self.bytes += bytes;
        match self.seconds.back_mut() {
            Some((second, sum)) if *second == now.as_secs() => *sum += bytes,
            _ => self.seconds.push_back((now.as_secs(), bytes)),
        }
    }

    pub fn has_stalled(&mut self, now: Duration) -> bool {
        self.forget(now);
        now.saturating_sub(self.begun) >= STALL && self.bytes < STALL_BYTES
    }

    fn forget(&mut self, now: Duration) {
        let first = now.as_secs().saturating_sub(STALL.as_secs());
        while let Some((second, bytes)) = self.seconds.front().copied()
            && second < first
        {
            self.bytes -= bytes;
            self.seconds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // req: G-153
    #[test]
    fn less_than_64_kib_in_any_whole_minute_is_a_stall_and_64_kib_in_each_is_none() {
        // Nothing at all.
        let mut pace = Pace::begin(seconds(5));
        assert!(!pace.has_stalled(seconds(64)));
        assert!(pace.has_stalled(seconds(65)));
        // Just enough in each minute, all of it at once, for an hour.
        let mut pace = Pace::begin(seconds(0));
        for minute in 0..60 {
            pace.arrived(seconds(minute * 60), STALL_BYTES);
            for second in 0..60 {
                assert!(
                    !pace.has_stalled(seconds(minute * 60 + second)),
                    "{minute} {second}"
                );
            }
        }
        // A byte less.
        let mut pace = Pace::begin(seconds(0));
        pace.arrived(seconds(30), STALL_BYTES - 1);
        assert!(!pace.has_stalled(seconds(59)));
        assert!(pace.has_stalled(seconds(60)));
        // A quick start does not excuse what follows, in a minute that begins with neither the transfer nor a clock's.
        let mut pace = Pace::begin(seconds(0));
        pace.arrived(seconds(17), 1 << 30);
        assert!(!pace.has_stalled(seconds(77)));
        assert!(pace.has_stalled(seconds(78)));
        // A drip of 1 KiB each second is 60 KiB in a minute.
        let mut pace = Pace::begin(seconds(0));
        let stalled = (1..).map(seconds).find(|now| {
            pace.arrived(*now, 1024);
            pace.has_stalled(*now)
        });
        assert_eq!(stalled, Some(seconds(60)));
    }
}
