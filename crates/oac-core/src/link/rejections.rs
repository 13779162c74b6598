//! Refused hellos counted by address, so that guessing tells nothing and fills no log.

use std::{collections::HashMap, net::IpAddr, time::Instant};

use crate::limits::{REJECTED_ADDRESSES, REJECTED_HELLOS, REJECTED_HELLOS_WINDOW};

#[derive(Default)]
pub(super) struct Rejections(HashMap<IpAddr, Window>);

struct Window {
    began: Instant,
    count: u32,
}

impl Rejections {
    /// Whether a refused hello from `address` is still told why.
    pub(super) fn admits(&self, address: IpAddr, now: Instant) -> bool {
        self.0
            .get(&address)
            .is_none_or(|w| w.is_over(now) || w.count < REJECTED_HELLOS)
    }

    pub(super) fn record(&mut self, address: IpAddr, now: Instant) {
        if self.0.len() >= REJECTED_ADDRESSES && !self.0.contains_key(&address) {
            self.0.retain(|_, w| !w.is_over(now));
            if self.0.len() >= REJECTED_ADDRESSES
                && let Some(oldest) = self.0.iter().min_by_key(|(_, w)| w.began).map(|(a, _)| *a)
            {
                self.0.remove(&oldest);
            }
        }
        let window = self.0.entry(address).or_insert(Window { began: now, count: 0 });
        if window.is_over(now) {
            *window = Window { began: now, count: 0 };
        }
        window.count += 1;
    }
}

impl Window {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= REJECTED_HELLOS_WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_nothing_after_sixty_refusals_until_its_minute_is_over() {
        let mut rejections = Rejections::default();
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let start = Instant::now();
        for _ in 0..REJECTED_HELLOS {
            assert!(rejections.admits(one, start));
            rejections.record(one, start);
        }
        assert!(!rejections.admits(one, start));
        assert!(rejections.admits(two, start));
        let later = start + REJECTED_HELLOS_WINDOW;
        assert!(rejections.admits(one, later));
        rejections.record(one, later);
        assert!(rejections.admits(one, later));
    }

    #[test]
    fn the_memory_of_addresses_is_bounded() {
        let mut rejections = Rejections::default();
        let now = Instant::now();
        for n in 0..=REJECTED_ADDRESSES {
            rejections.record(IpAddr::from((n as u32).to_be_bytes()), now);
        }
        assert_eq!(rejections.0.len(), REJECTED_ADDRESSES);
    }
}
