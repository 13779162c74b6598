//! `cargo xtask world`: the simulation of the control plane, one seed with its whole trace or as many as a person likes.
//!
//! The test run goes through the first seeds; here they run in release mode. A failure prints the seed and the shortest
//! schedule of faults that still breaks the rule.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

const PACKAGE: &str = "oac-world";
const TEST: &str = "no_schedule_of_faults_breaks_an_invariant_and_every_world_comes_to_rest";

pub(crate) fn run(seed: Option<u64>, seeds: u64, from: u64) -> Result<()> {
    if !workspace::metadata()?.has_test(PACKAGE, "world") {
        bail!("{PACKAGE} has no test `world`: see xtask/src/world.rs");
    }
    let mut test = command();
    match seed {
        Some(seed) => test.env("OAC_WORLD_SEED", seed.to_string()),
        None => test
            .env("OAC_WORLD_SEEDS", seeds.to_string())
            .env("OAC_WORLD_FROM", from.to_string()),
    };
    process::run(&mut test).context("a rule was broken; the seed and what is enough to break it stand above")
}

fn command() -> Command {
    let mut test = process::cargo();
    test.args([
        "test",
        "--quiet",
        "--release",
        "-p",
        PACKAGE,
        "--test",
        "world",
        "--",
    ]);
    test.args(["--exact", TEST, "--nocapture"]);
    for name in ["OAC_WORLD_SEED", "OAC_WORLD_SEEDS", "OAC_WORLD_FROM"] {
        test.env_remove(name);
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test that is not there would be filtered out, and a run of nothing succeeds.
    #[test]
    fn the_command_names_a_test_that_there_is() {
        let main = workspace::root()
            .join("crates")
            .join(PACKAGE)
            .join("tests/world.rs");
        let source = std::fs::read_to_string(main).unwrap();
        assert!(source.contains(&format!("#[test]\nfn {TEST}() {{")));
    }
}
