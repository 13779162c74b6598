//! Seeds of the world, and the proof that its checks bite.
//!
//! `cargo xtask world --seed N` replays one seed with its whole trace, `--seeds N` runs many. Seeds that ever failed are
//! kept in `seeds.txt` and run first.

use std::{collections::BTreeMap, time::Instant};

use oac_world::{Defect, Failure, Fault, Invariant, Reached, live, live_with, schedule, shrink};

/// How many seeds the test run goes through.
const SEEDS: u64 = 2_000;
/// Within so many seeds a planted mistake is found.
const DEFECT_SEEDS: u64 = 1_000;

/// What the seeds of the test run come through; a world that no longer does proves less than it says.
const REACH: &[&str] = &[
    "32 requests were pending",
    "a Core ended between a commit and its reply",
    "a Core ended with a call under way",
    "a Core lost its lease with a call under way",
    "a Core lost the database with a call under way",
    "a Core stalled between a commit and its reply",
    "a Turn ended",
    "a backend was selected after a reset",
    "a call ended uncertain",
    "a call was refused for want of lease",
    "a checkpoint was published",
    "a checkpoint was restored",
    "a checkpoint went bad",
    "a command of a burst was answered",
    "a dial was answered 409",
    "a differing retention_ack arrived",
    "a drain ended a sandbox",
    "a demand found the room that was made for it",
    "a drain was canceled",
    "a drain was completed",
    "a drain's deadline passed",
    "a first link overtook the give-up for want of it",
    "a generation was collected",
    "a helper outlived its node",
    "a host that was given back was enrolled again",
    "a kill of unknown outcome",
    "a loss was confirmed",
    "a node found a helper of its former self",
    "a node's row was held",
    "a pin moved",
    "a placement was refused under its node's lock",
    "a receipt could not be written",
    "a removed node ended with 78",
    "a removed node's dial was answered 401",
    "a reset archived a Session",
    "a reset was canceled",
    "a reset was completed",
    "a reset's deadline passed",
    "a restore returned",
    "a retention request came while 32 requests were pending",
    "a runtime refused to fall quiet",
    "a runtime was parked",
    "a sandbox was discarded",
    "a sandbox was suspended",
    "a sandbox was suspended early",
    "a sandbox was woken",
    "a suspend came to nothing",
    "a suspended sandbox was given up",
    "a sweep found something under a tombstone",
    "a target dialed after its kill was stored",
    "a transaction committed and its sender does not know",
    "a transaction of a former owner was refused",
    "a used checkpoint was deleted",
    "an engine call that outlived its node made something",
    "an invalid request was answered",
    "an operation outlasted its budget",
    "archive",
    "compute_lost",
    "create_failed",
    "create_unresolved",
    "ownership changed hands",
    "placements of one transaction shared a node",
    "retention_end",
    "what was sent was released",
];

/// Seeds that once failed.
fn kept() -> impl Iterator<Item = u64> {
    let lines = include_str!("seeds.txt").lines();
    let seeds = lines.filter_map(|line| line.split('#').next()?.split_whitespace().next());
    seeds.map(|seed| seed.parse().expect("seeds.txt begins each line with a seed"))
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Lives through the seeds; panics with the shortest schedule that breaks a rule.
fn run(seeds: impl Iterator<Item = u64>, progress: bool) -> Reached {
    let (began, mut lived, mut events) = (Instant::now(), 0u64, 0u64);
    let mut reached = Reached::new();
    for seed in seeds {
        let life = live(seed);
        lived += 1;
        events += life.events;
        for (what, count) in life.reached {
            *reached.entry(what).or_default() += count;
        }
        if let Some(violation) = life.violation {
            let failure = shrink(seed, violation, None);
            panic!("\n{}\n{failure}", ending(&failure));
        }
        if progress && lived.is_multiple_of(1_000) {
            let rate = lived as f64 / began.elapsed().as_secs_f64();
            eprintln!("{lived} seeds, {events} events, {rate:.0} seeds/s");
        }
    }
    reached
}

/// The last of the trace of the shortest schedule.
fn ending(failure: &Failure) -> String {
    let trace = live_with(failure.seed, failure.faults.clone(), None, true).trace;
    trace[trace.len().saturating_sub(40)..].join("\n")
}

fn replay(seed: u64) {
    let life = live_with(seed, schedule(seed), None, true);
    for line in &life.trace {
        eprintln!("{line}");
    }
    eprintln!("seed {seed}: {} events", life.events);
    run(std::iter::once(seed), false);
}

// Marked is what the product's machines and planners decide. P15, P17, P26, C1, C2, C8, C12, C27, C37, N20, V6 and the rules
// of Turns are checked too, but there the decision is that of the world's own rows and shells, which proves nothing of the product's.
//
// Cores and the network between them and nodes:
// inv: INV-P3, INV-P4, INV-P5, INV-P6, INV-P7, INV-P8, INV-P12, INV-P13, INV-P14, INV-P19, INV-P22, INV-P28, INV-P29
// inv: INV-C10
// Operators:
// inv: INV-C23, INV-C24, INV-C29
// Allocations:
// inv: INV-P9, INV-P10, INV-P23, INV-P32, INV-C16, INV-C17, INV-C18, INV-C19, INV-C22
// Suspension:
// inv: INV-C20, INV-C21, INV-C28, INV-C33, INV-C34, INV-C35, INV-C36, INV-C39, INV-C40, INV-C41
// Nodes:
// inv: INV-P11, INV-N24, INV-N25, INV-N26, INV-N27
#[test]
fn no_schedule_of_faults_breaks_an_invariant_and_every_world_comes_to_rest() {
    if let Some(seed) = setting("OAC_WORLD_SEED") {
        return replay(seed);
    }
    let many = setting("OAC_WORLD_SEEDS");
    let from = setting("OAC_WORLD_FROM").unwrap_or(0);
    let reached = run(kept().chain(from..from + many.unwrap_or(SEEDS)), many.is_some());
    for (what, count) in &reached {
        eprintln!("{count:>9} {what}");
    }
    if many.is_none() {
        let missed: Vec<_> = REACH
            .iter()
            .filter(|what| !reached.contains_key(**what))
            .collect();
        assert!(missed.is_empty(), "never reached: {missed:?}");
    }
}

#[test]
fn every_planted_defect_is_found() {
    let only = std::env::var("OAC_WORLD_DEFECT").ok();
    let mut missed = BTreeMap::new();
    for defect in Defect::ALL {
        let name = format!("{defect:?}");
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let found = (0..DEFECT_SEEDS).find_map(|seed| {
            let violation = live_with(seed, schedule(seed), Some(*defect), false).violation?;
            Some((seed, violation))
        });
        let text = match &found {
            Some((seed, violation)) => {
                format!("seed {seed}, {}: {}", violation.invariant.id(), violation.what)
            }
            None => "never found".to_owned(),
        };
        eprintln!("{name}: {text}");
        if !found.is_some_and(|(_, violation)| defect.found_by().contains(&violation.invariant)) {
            missed.insert(name, text);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Three are last lines: no mistake is known that they alone would find.
#[test]
fn every_invariant_is_the_first_to_find_some_planted_defect() {
    let idle = Invariant::ALL.iter().filter(|invariant| {
        let found = |defect: &&Defect| defect.found_by().contains(invariant);
        !Defect::ALL.iter().any(|defect| found(&defect))
    });
    let idle: Vec<_> = idle.copied().collect();
    assert_eq!(idle, [Invariant::C21, Invariant::OneSandbox, Invariant::Panic]);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [0, 7, 12] {
        let [first, second] = [(); 2].map(|()| live_with(seed, schedule(seed), None, true));
        assert_eq!(first.trace, second.trace);
        assert!(first.trace.len() > 30, "a life is told");
    }
}

#[test]
fn a_failure_is_shrunk_to_the_faults_that_are_enough_for_it() {
    let defect = Some(Defect::StayOn401);
    let (seed, violation) = (0..DEFECT_SEEDS)
        .find_map(|seed| Some((seed, live_with(seed, schedule(seed), defect, false).violation?)))
        .expect("some seed removes a node");
    let failure = shrink(seed, violation, defect);
    let faults: Vec<_> = failure.faults.iter().map(|planned| planned.fault).collect();
    let removes = |fault: &Fault| matches!(fault, Fault::Retire { .. } | Fault::Reset { .. });
    assert!(
        faults.iter().any(removes) && faults.len() < schedule(seed).len(),
        "{faults:?}"
    );
    for left_out in 0..faults.len() {
        let mut fewer = failure.faults.clone();
        fewer.remove(left_out);
        let found = live_with(seed, fewer, defect, false).violation;
        assert!(
            found.is_none_or(|v| v.invariant != failure.violation.invariant),
            "{faults:?}"
        );
    }
    let again = live_with(seed, failure.faults.clone(), defect, false).violation;
    assert_eq!(again, Some(failure.violation.clone()));
    let text = failure.to_string();
    assert!(
        text.ends_with(&format!("replay: cargo xtask world --seed {seed}")),
        "{text}"
    );
}
