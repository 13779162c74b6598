//! `cargo xtask fuzz`: the fuzz targets for as long as a person likes, in release mode, with stable Rust.
//!
//! A target is a test of the crate that it attacks; the test run does a short run of it with a fixed seed. Here each one
//! goes from seed to seed until its share of the time is over. What fails is kept as a file, which `--replay` runs
//! again.

use std::{
    hash::{BuildHasher as _, RandomState},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{process, workspace};

struct Target {
    package: &'static str,
    test: &'static str,
    /// The extension of the files that it keeps.
    extension: &'static str,
}

/// In each package the test target is named `fuzz`.
const TARGETS: &[Target] = &[
    Target {
        package: "oac-wire",
        test: "the_decoder_agrees_with_the_reference_on_frames_made_at_random",
        extension: "frame",
    },
    Target {
        package: "oac-peer",
        test: "both_machines_hold_their_invariants_under_events_made_at_random",
        extension: "events",
    },
];

pub(crate) fn run(minutes: u64, seed: Option<u64>, replay: Option<&Path>) -> Result<()> {
    if let Some(file) = replay {
        return again(file);
    }
    let metadata = workspace::metadata()?;
    if let Some(target) = TARGETS
        .iter()
        .find(|target| !metadata.has_test(target.package, "fuzz"))
    {
        bail!("{} has no fuzz target: see xtask/src/fuzz.rs", target.package);
    }
    // Small, so that it can be read out and typed; every seed is as good as another.
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0) % 1_000_000_000);
    let seconds = minutes.max(1) * 60 / TARGETS.len() as u64;
    println!(
        "seed {seed}; {seconds} seconds for each of {} targets",
        TARGETS.len()
    );
    for target in TARGETS {
        println!("{}:", target.package);
        let mut test = command(target);
        test.env("OAC_FUZZ_SEED", seed.to_string())
            .env("OAC_FUZZ_SECONDS", seconds.to_string());
        process::run(&mut test).with_context(|| format!("fuzzing {} found something", target.package))?;
    }
    Ok(())
}

fn again(file: &Path) -> Result<()> {
    let file: PathBuf = file.canonicalize().with_context(|| {
        format!(
            "{} cannot be read: give the file that a run has kept",
            file.display()
        )
    })?;
    let target = TARGETS.iter().find(|target| {
        file.extension()
            .is_some_and(|extension| extension == target.extension)
    });
    let Some(target) = target else {
        bail!(
            "{} was kept by no fuzz target: their files end in .frame or .events",
            file.display()
        );
    };
    process::run(command(target).env("OAC_FUZZ_REPLAY", &file))
}

fn command(target: &Target) -> Command {
    let mut test = process::cargo();
    test.args([
        "test",
        "--quiet",
        "--release",
        "-p",
        target.package,
        "--test",
        "fuzz",
        "--",
    ]);
    test.args(["--exact", target.test, "--nocapture"]);
    for name in ["OAC_FUZZ_SEED", "OAC_FUZZ_SECONDS", "OAC_FUZZ_REPLAY"] {
        test.env_remove(name);
    }
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test that is not there would be filtered out, and a run of nothing succeeds.
    #[test]
    fn every_target_names_a_test_that_there_is() {
        for target in TARGETS {
            let main = workspace::root()
                .join("crates")
                .join(target.package)
                .join("tests/fuzz/main.rs");
            let source = std::fs::read_to_string(&main).unwrap();
            assert!(
                source.contains(&format!("#[test]\nfn {}() {{", target.test)),
                "{}",
                main.display()
            );
        }
    }
}
