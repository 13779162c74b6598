//! `cargo xtask bench [name]`: the budgets of the design, each beside its baseline in one run.
//!
//! This module brings the machine into shape; the measuring is done by the program `oac-bench` of the crate of
//! cross-crate tests, built for release. Without a name it runs every benchmark it knows.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::host::runtime_image::Variant;
use crate::host::services::Services;
use crate::host::{docker, lock, packages, postgres, runtime_image};
use crate::steps::Steps;
use crate::{console, process, workspace};

const PACKAGE: &str = "oac-tests";
const PROGRAM: &str = "oac-bench";
/// Measured in a browser, by the console's own runner.
const WEB: &str = "web";

pub(crate) fn run(name: Option<&str>) -> Result<()> {
    let metadata = workspace::metadata()?;
    if !metadata.has_program(PACKAGE, PROGRAM) {
        match name {
            Some(name) => bail!("the benchmark `{name}` is not built yet"),
            None => bail!("no benchmark is built yet"),
        }
    }
    let _lock = lock::take()?;
    let mut steps = Steps::default();
    let needs = [
        packages::DOCKER,
        packages::POSTGRES,
        packages::IMAGE,
        packages::BROWSER,
        packages::BENCH,
    ];
    steps
        .run("packages", || packages::ensure_packages(&needs))
        .context("packages are missing")?;
    let web = name.is_none_or(|name| name == WEB);
    if web {
        // First, so that the program holds what is measured.
        steps
            .run("console", console::build)
            .context("the console does not build")?;
    }
    let programs = steps.run("programs", || {
        let release = [
            "build",
            "--quiet",
            "--release",
            "--workspace",
            "--exclude",
            "xtask",
            "--bins",
        ];
        process::run(process::cargo().args(release))?;
        Ok(metadata.target_directory.join("release"))
    });
    let programs = programs.context("the programs do not build")?;
    let mut services = Services {
        postgres: steps.run("PostgreSQL", postgres::ensure_durable),
        programs: Some(programs.clone()),
        ..Services::default()
    };
    if web {
        let measured = steps.run("console in a browser", || console::bench(&services));
        measured.context("the console could not be measured")?;
    }
    if name == Some(WEB) {
        return Ok(());
    }
    services.engine = steps.run("Docker Engine", docker::ensure_docker);
    let engine = services.engine.as_ref().context("there is no Docker Engine")?;
    services.image = steps
        .run("Runtime image", || {
            runtime_image::ensure_runtime_image(&metadata, &programs, engine, Variant::Minimal)
        })
        .flatten();
    let measured = steps.run("benchmarks", || {
        let mut program = Command::new(programs.join(PROGRAM));
        program.args(name);
        services.tell(&mut program);
        process::run(&mut program)
    });
    measured.context("a benchmark failed: its last line says why")
}
