//! The console: its development server, its build and its tests.
//!
//! It is a program of its own language: Node.js with npm is a stated prerequisite, which nothing here installs. What npm
//! installs goes to `console/node_modules`, as the lock file names it. The build leaves the console's files where the next
//! build of oac-core finds them; without Node.js that folder is empty and Core is built without the console.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::host::services::Services;
use crate::ledger::junit::Report;
use crate::steps::Steps;
use crate::workspace::{self, Metadata};
use crate::{process, requirements};

/// The oldest Node.js that the console's tools run on.
const NODE: (u32, u32) = (20, 19);

pub(crate) fn run(only_build: bool, core: &str) -> Result<()> {
    if only_build {
        return build();
    }
    install()?;
    println!("    passing routes on to {core}; stop with Ctrl-C");
    process::run(npm(&["run", "dev"]).env("OAC_CONSOLE_CORE", core))
}

/// Builds the console and hands it to the next build of oac-core.
pub(crate) fn build() -> Result<()> {
    install()?;
    process::run(&mut npm(&["run", "--silent", "build"]))?;
    let (built, embedded) = (folder().join("dist"), folder().join("embedded"));
    // Equal files keep their times, so that Core is not built anew because of them.
    if contents(&built)? != contents(&embedded)? {
        for entry in std::fs::read_dir(&embedded).context("console/embedded is missing")? {
            let path = entry?.path();
            if path.is_dir() {
                std::fs::remove_dir_all(&path)?;
            } else if !is_kept(&path) {
                std::fs::remove_file(&path)?;
            }
        }
        for (name, bytes) in contents(&built)? {
            let path = embedded.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Measures what the console costs whoever opens it, against the programs that were built.
pub(crate) fn bench(services: &Services) -> Result<()> {
    let mut command = npm(&["run", "--silent", "bench"]);
    services.tell(&mut command);
    process::run(&mut command)
}

/// Why the console cannot be built here, if it cannot.
pub(crate) fn missing() -> Option<String> {
    let (major, minor) = NODE;
    let wanted = format!("the console needs Node.js {major}.{minor} or later, with npm");
    let text = process::capture(Command::new("node").arg("--version")).ok();
    let found = text.as_deref().and_then(|text| {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    match found {
        Some(version) if version >= NODE && process::which("npm").is_some() => None,
        Some((major, minor)) => Some(format!("{wanted}: this is {major}.{minor}")),
        None => Some(format!("{wanted}: install it")),
    }
}

/// The console's part of the whole test run.
pub(crate) struct Tests {
    reports: PathBuf,
    /// Why there are none.
    missing: Option<String>,
    quick: bool,
}

impl Tests {
    pub(crate) fn new(metadata: &Metadata, quick: bool) -> Self {
        Self {
            reports: requirements::other_reports(metadata),
            missing: missing(),
            quick,
        }
    }

    /// Everything that needs no browser, and the build. Without Node.js a whole run fails: nobody would see the console.
    pub(crate) fn unit(&self, steps: &mut Steps, count: impl FnMut(&Report)) {
        if let Some(missing) = &self.missing {
            if self.quick {
                steps.skip("console", missing.clone());
            } else {
                steps.run("console", || -> Result<()> { bail!("{missing}") });
            }
            return;
        }
        steps.run("console: install", install);
        steps.run("console: generated types", || {
            process::run(&mut npm(&["run", "--silent", "types:check"]))
                .context("src/api/schema.ts is out of date: run `npm run types` in console")
        });
        steps.run("console: lint", || {
            process::run(&mut npm(&["run", "--silent", "lint"]))
                .context("run `npm run format` in console, then mend what is left")
        });
        self.vitest(
            steps,
            "console: tests",
            "test",
            "console.xml",
            &Services::default(),
            count,
        );
        steps.run("console: build", build);
    }

    /// The pages in a browser, against the Core that was built.
    pub(crate) fn browser(&self, steps: &mut Steps, services: &Services, count: impl FnMut(&Report)) {
        let script = "test:browser";
        if self.quick {
            steps.skip("console in a browser", "it needs a service and this is --quick");
        } else if self.missing.is_none() && services.programs.is_some() {
            self.vitest(
                steps,
                "console: browser",
                script,
                "console-browser.xml",
                services,
                count,
            );
        }
    }

    fn vitest(
        &self,
        steps: &mut Steps,
        name: &str,
        script: &str,
        report: &str,
        services: &Services,
        mut count: impl FnMut(&Report),
    ) {
        let path = self.reports.join(report);
        let mut command = npm(&[
            "run",
            "--silent",
            script,
            "--",
            "--reporter=dot",
            "--reporter=junit",
        ]);
        command.arg(format!("--outputFile.junit={}", path.display()));
        services.tell(&mut command);
        steps.run(name, || process::run(&mut command));
        let read = steps.run(&format!("{name}: report"), || {
            Report::parse(&workspace::read(&path).context("no test ran")?)
        });
        if let Some(report) = read {
            count(&report);
        }
    }
}

fn folder() -> PathBuf {
    workspace::root().join("console")
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(folder()).args(arguments);
    command
}

/// Installs what the lock file names, unless that very file was installed last.
fn install() -> Result<()> {
    if let Some(missing) = missing() {
        bail!("{missing}");
    }
    let lock = workspace::read(&folder().join("package-lock.json"))?;
    let note = folder().join("node_modules/.installed-lock.json");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    println!("    installing the console's packages with npm into console/node_modules");
    process::run(&mut npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"]))
        .context("npm cannot install them: check the network and npm's registry settings")?;
    std::fs::write(&note, lock).context("cannot write into console/node_modules")
}

/// What version control keeps in a folder of built files.
fn is_kept(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".gitignore")
}

/// Files by name relative to `folder`, sorted.
fn contents(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in workspace::files(folder)? {
        if !is_kept(&name) {
            let bytes = std::fs::read(folder.join(&name))?;
            found.push((name, bytes));
        }
    }
    Ok(found)
}
