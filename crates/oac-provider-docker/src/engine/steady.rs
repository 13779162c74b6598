//! How long the engine has answered without interruption.

use std::time::{Duration, Instant};

/// Two answers further apart than this do not prove that the engine answered in between. Probes come every 10 s, and a
/// restart between two of them closes the session that the first one left open, which is noticed.
const LONGEST_GAP: Duration = Duration::from_secs(30);

/// After a reboot, restarts of containers may be under way for this long (providers.md section 4).
pub(crate) const STEADY_AFTER: Duration = Duration::from_secs(60);

/// The present run of answers.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    run: Option<(Instant, Instant)>,
}

impl Steady {
    pub(crate) fn answered(&mut self, now: Instant) {
        let since = match self.run {
            Some((since, last)) if now.saturating_duration_since(last) <= LONGEST_GAP => since,
            _ => now,
        };
        self.run = Some((since, now));
    }

    pub(crate) fn interrupted(&mut self) {
        self.run = None;
    }

    /// Whether the engine has answered for 60 s without interruption, up to its latest answer.
    pub(crate) fn is_steady(&self) -> bool {
        self.run
            .is_some_and(|(since, last)| last.saturating_duration_since(since) >= STEADY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // inv: INV-V4
    #[test]
    fn only_sixty_seconds_of_answers_without_gap_or_failure_are_steady() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut steady = Steady::default();
        assert!(!steady.is_steady());
        for s in (0..60).step_by(10) {
            steady.answered(at(s));
            assert!(!steady.is_steady());
        }
        steady.answered(at(60));
        assert!(steady.is_steady());
        steady.interrupted();
        assert!(!steady.is_steady());
        for s in (70..=130).step_by(10) {
            steady.answered(at(s));
        }
        assert!(steady.is_steady());
        steady.answered(at(161));
        assert!(!steady.is_steady(), "nothing proves that it answered in between");
    }
}
