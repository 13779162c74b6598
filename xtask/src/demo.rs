//! `cargo xtask demo`: the product's main job on this machine, from nothing to nothing.
//!
//! This module brings the machine into shape: packages, engine, Runtime image, programs. The play itself is the
//! program `oac-demo` of the crate of cross-crate tests; it finds the services as a test does.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::host::runtime_image::Variant;
use crate::host::services::Services;
use crate::host::{docker, lock, packages, runtime_image};
use crate::process;
use crate::steps::Steps;
use crate::workspace::{self, Metadata};

const PACKAGE: &str = "oac-tests";
const PROGRAM: &str = "oac-demo";

/// With `full` the sandbox has compilers, interpreters and common tools; building that image takes minutes.
pub(crate) fn run(keep: bool, full: bool) -> Result<()> {
    let metadata = workspace::metadata()?;
    if !metadata.has_program(PACKAGE, PROGRAM) {
        bail!("the demo is not built yet: the parts it shows come first");
    }
    let _lock = lock::take()?;
    let mut steps = Steps::default();
    let variant = if full { Variant::Full } else { Variant::Minimal };
    let result = play(&mut steps, &metadata, keep, variant);
    steps.print_times();
    result
}

fn play(steps: &mut Steps, metadata: &Metadata, keep: bool, variant: Variant) -> Result<()> {
    let mut services = Services::default();
    steps
        .run("packages", || {
            packages::ensure_packages(&[packages::DOCKER, packages::IMAGE])
        })
        .context("packages are missing")?;
    let programs = steps.run("programs", || {
        process::run(process::cargo_build().args(["--workspace", "--exclude", "xtask", "--bins"]))?;
        Ok(metadata.target_directory.join("debug"))
    });
    let programs = programs.context("the programs do not build")?;
    services.programs = Some(programs.clone());
    let engine = steps
        .run("Docker Engine", docker::ensure_docker)
        .context("there is no Docker Engine")?;
    let image = steps
        .run("Runtime image", || {
            runtime_image::ensure_runtime_image(metadata, &programs, &engine, variant)
        })
        .flatten();
    services.image = Some(image.context("this workspace cannot build a Runtime image yet")?);
    services.engine = Some(engine);
    let played = steps.run("demo", || {
        let mut program = Command::new(programs.join(PROGRAM));
        if keep {
            program.arg("--keep");
        }
        services.tell(&mut program);
        process::run(&mut program)
    });
    if keep && played.is_some() {
        if let Some(image) = services.image.take() {
            image.keep();
        }
        if let Some(pid) = services.engine.take().and_then(docker::Engine::keep) {
            println!(
                "    the Docker Engine that this run started keeps running: stop it with `kill {pid}` as root"
            );
        }
    }
    played.context("the demo failed: its last line says what is missing")
}
