use crate::{
    limits::{BACKOFF_FIRST_MILLIS, BACKOFF_LAST_MILLIS, BACKOFF_RESET_MILLIS},
    random::Random,
};

/// Delays between dials: the base doubles from 1 s to 30 s, the delay is uniform in [base/2, base], and an attempt
/// that lasted 30 s starts over (protocol.md section 5).
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    base_millis: u64,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self {
            base_millis: BACKOFF_FIRST_MILLIS,
        }
    }

    /// The delay after an attempt that lasted `lasted_millis`.
    pub(super) fn delay_millis(&mut self, lasted_millis: u64, random: &mut Random) -> u64 {
        if lasted_millis >= BACKOFF_RESET_MILLIS {
            self.base_millis = BACKOFF_FIRST_MILLIS;
        }
        let half = self.base_millis / 2;
        let delay = half + random.below(self.base_millis - half + 1);
        self.base_millis = (self.base_millis * 2).min(BACKOFF_LAST_MILLIS);
        delay
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // req: P-017
        #[test]
        fn delays_are_jittered_within_a_doubling_bounded_base(seed: u64) {
            let (mut backoff, mut random) = (Backoff::new(), Random::new(seed));
            for base in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
                let delay = backoff.delay_millis(29_999, &mut random);
                prop_assert!((base / 2..=base).contains(&delay), "{delay} for base {base}");
            }
            let delay = backoff.delay_millis(30_000, &mut random);
            prop_assert!((500..=1_000).contains(&delay), "{delay} after a long attempt");
        }
    }

    #[test]
    fn different_seeds_spread_nodes_that_lost_the_same_core() {
        let delays: std::collections::HashSet<_> = (0..100)
            .map(|seed| Backoff::new().delay_millis(0, &mut Random::new(seed)))
            .collect();
        assert!(delays.len() > 50, "{} distinct delays of 100", delays.len());
    }
}
