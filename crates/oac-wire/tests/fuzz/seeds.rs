//! Which seeds a run goes through.

use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a whole number")),
    )
}

/// One seed of `short` length in the tests; in the long run seed after seed of `long` length until the time is over.
pub(crate) fn each(short: u64, long: u64, run: impl Fn(u64, u64)) {
    let seed = number("OAC_FUZZ_SEED").unwrap_or(1);
    let Some(seconds) = number("OAC_FUZZ_SECONDS") else {
        return run(seed, short);
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    for seed in seed.. {
        run(seed, long);
        if Instant::now() >= end {
            break;
        }
    }
}
