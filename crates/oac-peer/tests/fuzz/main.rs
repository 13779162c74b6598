//! Fuzzing of both machines, each alone against a peer that says anything and a shell that answers in any order.
//!
//! An episode is a seed: events are made from it and from what the machine asked for so far, and the invariants are
//! checked after every one. The tests run a fixed number of episodes; `cargo xtask fuzz` goes on for as long as a person
//! likes. An episode that fails is kept as a file that names it, and `cargo xtask fuzz --replay FILE` runs it again.
#![allow(clippy::print_stdout, reason = "a run says its seed and what it met")]

mod core_end;
#[path = "../../src/fixtures.rs"]
#[allow(dead_code, reason = "shared with the crate's own tests, which use the rest")]
mod fixtures;
mod node_end;
#[path = "../../../oac-wire/tests/fuzz/random.rs"]
mod random;
#[path = "../../../oac-wire/tests/fuzz/seeds.rs"]
mod seeds;
mod values;

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use random::Random;

/// Episodes of each machine in the short run.
const SHORT: u64 = 100;
/// Episodes of each machine and seed in the long run.
const LONG: u64 = 20 * SHORT;
/// Events of an episode.
const EVENTS: usize = 400;

type Episode = fn(Random, &mut Story);

const MACHINES: [(&str, Episode); 2] = [("core", core_end::run), ("node", node_end::run)];

/// What happened in an episode: told when it fails.
pub(crate) struct Story {
    events: usize,
    telling: bool,
    told: Vec<String>,
    counts: Counts,
}

/// How often an episode came to what it is about.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) live: u64,
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) violations: u64,
}

impl Story {
    fn new(telling: bool) -> Self {
        Self {
            events: EVENTS,
            telling,
            told: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn events(&self) -> usize {
        self.events
    }

    /// Words cost more than events, so only an episode that has failed is told.
    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.telling {
            self.told.push(what().chars().take(400).collect());
        }
    }

    pub(crate) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

/// One episode; `Err` holds what failed and how it came to it.
fn play(episode: Episode, seed: u64, telling: bool) -> Result<Counts, String> {
    let mut story = Story::new(telling);
    let run = panic::catch_unwind(AssertUnwindSafe(|| episode(Random::new(seed), &mut story)));
    match run {
        Ok(()) => Ok(story.counts),
        Err(_) if !telling => play(episode, seed, true),
        Err(cause) => {
            let said = cause
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| cause.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without words");
            let last = story.told.len().saturating_sub(30);
            Err(format!(
                "{said}\nafter {} events, the last of them:\n{}",
                story.told.len(),
                story.told[last..].join("\n")
            ))
        }
    }
}

fn fail(machine: &str, seed: u64, said: &str) -> ! {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{machine}-{seed}.events"));
    fs::write(&path, format!("{machine} {seed}\n{said}\n")).unwrap();
    panic!(
        "{machine}, episode {seed}: {said}\nrun it again: cargo xtask fuzz --replay {}",
        path.display()
    );
}

/// `episodes` of each machine from `seed` on.
fn run(seed: u64, episodes: u64) {
    for (machine, episode) in MACHINES {
        let mut met = Counts::default();
        for number in 0..episodes {
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(number);
            match play(episode, seed, false) {
                Ok(counts) => {
                    met.live += counts.live;
                    met.requests += counts.requests;
                    met.answers += counts.answers;
                    met.violations += counts.violations;
                }
                Err(said) => fail(machine, seed, &said),
            }
        }
        println!(
            "{machine}, seed {seed}: {episodes} episodes, {} connections, {} requests, {} answers, {} violations",
            met.live, met.requests, met.answers, met.violations
        );
        assert!(
            met.live > episodes / 4
                && met.requests > episodes
                && met.answers > episodes / 4
                && met.violations > episodes / 8,
            "{machine}: the episodes no longer come to what they are about"
        );
    }
}

// inv: INV-P6, INV-P7, INV-P8, INV-P12, INV-P13, INV-P28
#[test]
fn both_machines_hold_their_invariants_under_events_made_at_random() {
    if let Some(path) = std::env::var_os("OAC_FUZZ_REPLAY") {
        let text = fs::read_to_string(path).unwrap();
        let (machine, seed) = text.lines().next().and_then(|line| line.split_once(' ')).unwrap();
        let (_, episode) = MACHINES.into_iter().find(|(name, _)| *name == machine).unwrap();
        if let Err(said) = play(episode, seed.parse().unwrap(), true) {
            panic!("{said}");
        }
        return;
    }
    seeds::each(SHORT, LONG, run);
}
