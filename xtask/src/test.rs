//! `cargo xtask test`: every check and test, with what they need and nothing left behind.
//!
//! A failing step hides no later one. The last lines say what was skipped and why, then the sum; the exit status is
//! zero only if every step succeeded and every test passed.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::host::runtime_image::Variant;
use crate::host::services::Services;
use crate::host::{docker, lock, packages, postgres, runtime_image, test_hosts, tools, vendor};
use crate::ledger::junit::{Outcome, Report};
use crate::steps::Steps;
use crate::workspace::{self, Metadata};
use crate::{console, dist, process, requirements, tidy};

mod nextest;

/// Tests of the whole run: nextest's and the documentation's.
#[derive(Default)]
struct Sum {
    passed: usize,
    failed: usize,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.passed += report.count(Outcome::Passed);
        self.failed += report.count(Outcome::Failed);
    }
}

pub(crate) fn run(quick: bool) -> Result<()> {
    let _lock = lock::take()?;
    let metadata = workspace::metadata()?;
    let mut steps = Steps::default();
    let mut sum = Sum::default();

    forget_earlier_runs(&metadata)?;
    steps.run("format", || {
        process::run(process::cargo().args(["fmt", "--all", "--", "--check", "--files-with-diff"]))
            .context("these files are not formatted: run `cargo fmt --all`")
    });
    // First, so that the programs hold the console that the tests open.
    let console = console::Tests::new(&metadata, quick);
    console.unit(&mut steps, |report| sum.add(report));
    steps.run("tidy", || tidy::run(false));
    steps.run("clippy", || {
        process::run(process::cargo().args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    });
    if quick {
        steps.skip("dependencies (cargo deny)", "--quick");
    } else {
        dependencies(&mut steps);
    }

    let services = if quick {
        Services::default()
    } else {
        start(&mut steps, &metadata)
    };
    if let Some(nextest) = steps.run("test runner", || tools::ensure_tool(&tools::NEXTEST)) {
        run_tests(&mut steps, &mut sum, &metadata, &nextest, &services, quick);
    }
    console.browser(&mut steps, &services, |report| sum.add(report));
    drop(services);

    if let Some((passed, failed)) = steps.run("documentation tests", documentation) {
        sum.passed += passed;
        sum.failed += failed;
        if failed > 0 {
            steps.fail("documentation tests");
        }
    }
    if !quick {
        steps.run("requirements", || {
            requirements::evaluate(&metadata, requirements::full_run_note(&metadata).exists())
        });
    }
    conclude(&steps, &sum)
}

fn conclude(steps: &Steps, sum: &Sum) -> Result<()> {
    steps.print_times();
    println!();
    for skipped in steps.skipped() {
        println!("skipped: {}: {}", skipped.what, skipped.why);
    }
    for failed in steps.failed() {
        println!("failed: {failed}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        sum.passed,
        sum.failed,
        steps.skipped().len()
    );
    if sum.failed > 0 || !steps.failed().is_empty() {
        bail!(
            "the run failed: {}",
            if steps.failed().is_empty() {
                "tests".to_owned()
            } else {
                steps.failed().join(", ")
            }
        );
    }
    Ok(())
}

/// Licences, bans and sources from the lock file alone; advisories where their database can be reached.
fn dependencies(steps: &mut Steps) {
    let Some(deny) = steps.run("dependency checker", || tools::ensure_tool(&tools::DENY)) else {
        return;
    };
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&deny);
        command.current_dir(workspace::root()).args(arguments);
        command
    };
    steps.run("dependencies", || {
        process::run(&mut deny(&[
            "--log-level",
            "error",
            "check",
            "--hide-inclusion-graph",
            "licenses",
            "bans",
            "sources",
        ]))
    });
    let mut fetch = Command::new("timeout");
    fetch
        .arg("90")
        .arg(deny(&[]).get_program())
        .args(["--log-level", "error", "fetch", "db"])
        .current_dir(workspace::root());
    if process::succeeds(&mut fetch) {
        steps.run("advisories", || {
            process::run(&mut deny(&[
                "--log-level",
                "error",
                "check",
                "--disable-fetch",
                "advisories",
            ]))
        });
    } else {
        steps.skip(
            "advisories (cargo deny)",
            "the advisory database cannot be reached from here",
        );
    }
}

fn start(steps: &mut Steps, metadata: &Metadata) -> Services {
    // Tests across crates start the programs; the runner alone builds only those of a test's own package.
    let programs = steps.run("programs", || {
        process::run(process::cargo_build().args(["--workspace", "--bins"]))?;
        Ok(metadata.target_directory.join("debug"))
    });
    steps.run("packages", || {
        packages::ensure_packages(&[
            packages::DOCKER,
            packages::OWN_ENGINE,
            packages::POSTGRES,
            packages::IMAGE,
            packages::HOSTS,
            packages::BROWSER,
            packages::CONTAINERD,
            packages::VENDOR,
        ])
    });
    let mut services = Services {
        engine: steps.run("Docker Engine", docker::ensure_docker),
        postgres: steps.run("PostgreSQL", postgres::ensure_postgres),
        image: None,
        full_image: None,
        host_root: None,
        programs,
        vendor: steps.run("vendor's files", vendor::ensure_vendor),
        releases: None,
    };
    if let Some(programs) = &services.programs {
        services.host_root = steps.run("test hosts", || test_hosts::ensure_root(programs));
        services.releases = steps.run("two builds of a release", || dist::for_tests(metadata, programs));
    }
    if let (Some(engine), Some(programs)) = (&services.engine, &services.programs) {
        let image = steps.run("Runtime image", || {
            runtime_image::ensure_runtime_image(metadata, programs, engine, Variant::Minimal)
        });
        services.image = image.flatten();
        let full = steps.run("full Runtime image", || {
            runtime_image::ensure_runtime_image(metadata, programs, engine, Variant::Full)
        });
        services.full_image = full.flatten();
    }
    services
}

fn run_tests(
    steps: &mut Steps,
    sum: &mut Sum,
    metadata: &Metadata,
    program: &std::path::Path,
    services: &Services,
    quick: bool,
) {
    let runner = nextest::Runner { program, quick };
    let listed = steps.run("build the tests", || runner.list(services));
    let Some(listed) = listed else { return };
    steps.run("tests", || runner.run(services));
    let ran = steps.run("test report", || {
        let found = requirements::read_report()?;
        let missing = listed.selected.saturating_sub(found.tests.len());
        sum.add(&found);
        if missing > 0 {
            bail!("{missing} of {} tests did not run", listed.selected);
        }
        Ok(found)
    });
    for skipped in nextest::skipped(&listed, metadata) {
        steps.skip(skipped.what, skipped.why);
    }
    if ran.is_some() && !quick {
        let note = requirements::full_run_note(metadata);
        let written = note
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&note, ""));
        if written.is_err() {
            steps.fail("test report");
        }
    }
}

/// An old report must never stand for this run.
fn forget_earlier_runs(metadata: &Metadata) -> Result<()> {
    for old in [requirements::report_path(), requirements::full_run_note(metadata)] {
        if old.exists() {
            std::fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    let others = requirements::other_reports(metadata);
    if others.exists() {
        std::fs::remove_dir_all(&others).with_context(|| format!("cannot remove {}", others.display()))?;
    }
    Ok(())
}

/// Runs the examples in documentation comments: (passed, failed).
fn documentation() -> Result<(usize, usize)> {
    let output = process::output(process::cargo().args([
        "test",
        "--quiet",
        "--workspace",
        "--doc",
        "--no-fail-fast",
    ]))?;
    let counts = doc_counts(&output.text);
    if counts.1 > 0 || !output.success {
        print!("{}", output.text);
    }
    if !output.success && counts.1 == 0 {
        bail!("the documentation tests do not build");
    }
    Ok(counts)
}

fn doc_counts(text: &str) -> (usize, usize) {
    let count = |line: &str, word: &str| {
        let before = line.split(word).next()?;
        before.split_whitespace().last()?.parse::<usize>().ok()
    };
    let results = text.lines().filter(|line| line.starts_with("test result:"));
    results.fold((0, 0), |(passed, failed), line| {
        (
            passed + count(line, " passed").unwrap_or(0),
            failed + count(line, " failed").unwrap_or(0),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_results_are_added_up_over_crates() {
        let text = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\ntest result: FAILED. 1 passed; 3 failed; 0 ignored\n";
        assert_eq!(doc_counts(text), (3, 3));
    }
}
