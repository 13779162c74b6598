//! The program that the tests of `oac-generations` start and kill: a stand-in for a native helper, for the node that
//! started it, for the node's child, and a scenario that ends itself at a numbered step.

mod scenario;
mod scene;

use std::{
    io::Write as _,
    path::Path,
    process::{Command, ExitCode},
};

use oac_generations::{Store, keys::InheritedLock, layout::Layout, lease};
use oac_model::ProviderKind;
use oac_records::{
    Directory,
    steps::{Verdict, watched},
};
use rustix::process::{Signal, getpid, kill_process};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["caller", base, n] => caller(Path::new(base), n),
        ["helper", base, n] => helper(Path::new(base), n),
        ["idle"] => loop {
            std::thread::park();
        },
        ["scenario", name, base, at] => return scenario(name, Path::new(base), at),
        [
            "generation",
            errand,
            "--root",
            root,
            "--installation-id",
            _,
            "--generation",
            n,
            ..,
        ] => {
            return child(errand, Path::new(root), n);
        }
        _ => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// A node that starts a helper under the shared lease and waits, never for long.
fn caller(base: &Path, n: &str) {
    let scene = scene::Scene::at(base, ProviderKind::Microsandbox);
    let number = n.parse().expect("a generation");
    let lease = lease::share(&scene.store(), scene.identity(number)).expect("the lease is free");
    let mut command = Command::new("/proc/self/exe");
    command.arg("helper").arg(base).arg(n);
    lease.hand_over(&mut command).expect("handed over");
    let mut helper = command.spawn().expect("a helper");
    drop(command);
    // It is killed long before its helper ends.
    let _ = helper.wait();
    drop(lease);
}

/// A native helper: verifies its lease, starts a daemon that must not hold it, says who it is, and works until a signal
/// ends it.
fn helper(base: &Path, n: &str) {
    assert_eq!(std::env::var(lease::ENVIRONMENT).as_deref(), Ok("3"));
    let scene = scene::Scene::at(base, ProviderKind::Microsandbox);
    let directory = Directory::open(&scene.generations()).expect("the records");
    let lease = match lease::inherited(&directory, scene.identity(n.parse().expect("a generation"))) {
        Ok(lease) => lease,
        Err(error) => return say(&format!("refused: {error}")),
    };
    let daemon = Command::new("/proc/self/exe").arg("idle").spawn();
    let mut daemon = daemon.expect("a daemon");
    say(&format!("helper {} {}", getpid().as_raw_nonzero(), daemon.id()));
    let _ = daemon.wait();
    drop(lease);
}

/// A child of the node: holds what it inherited, and says what came of it.
fn child(errand: &str, root: &Path, n: &str) -> ExitCode {
    let store = Store::open(Layout::new(root), scene::installation()).expect("the store");
    match InheritedLock::take(&store) {
        Ok(lock) => {
            say(&format!("{errand} {n}"));
            std::mem::forget(lock);
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            say(&format!("refused: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Performs a scenario on a host that stands; dies at step `at`, counted from 0, as by `kill -9`.
fn scenario(name: &str, base: &Path, at: &str) -> ExitCode {
    let scenario = scenario::Scenario::named(name).expect("a scenario");
    let scene = scene::Scene::at(base, scenario.provider());
    let mut left: u64 = at.parse().expect("a number");
    let result = watched(
        move |_| {
            if left == 0 {
                let _ = kill_process(getpid(), Signal::KILL);
            }
            left -= 1;
            Verdict::Go
        },
        || scenario.act(&scene),
    );
    if result.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
