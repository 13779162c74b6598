//! The steps of a long command: each printed with its time, none hidden by the failure of an earlier one.

use std::time::{Duration, Instant};

use anyhow::Result;

/// What a step could not do, and why; printed at the end so that nothing is skipped silently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) what: String,
    pub(crate) why: String,
}

#[derive(Default)]
pub(crate) struct Steps {
    failed: Vec<String>,
    skipped: Vec<Skipped>,
    times: Vec<(String, Duration)>,
}

impl Steps {
    /// Runs one step; its error is printed now and fails the command later. `None` when it failed.
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Option<T> {
        if crate::process::go_on().is_err() {
            self.failed.push(format!("{name} (interrupted)"));
            return None;
        }
        println!("==> {name}");
        let start = Instant::now();
        let result = step();
        let took = start.elapsed();
        self.times.push((name.to_owned(), took));
        match result {
            Ok(value) => {
                println!("    {name}: ok, {}", shown(took));
                Some(value)
            }
            Err(error) => {
                println!("    {name}: FAILED, {}: {error:#}", shown(took));
                self.failed.push(name.to_owned());
                None
            }
        }
    }

    /// Notes a failure that has no step of its own.
    pub(crate) fn fail(&mut self, name: &str) {
        self.failed.push(name.to_owned());
    }

    pub(crate) fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.skipped.push(Skipped {
            what: what.into(),
            why: why.into(),
        });
    }

    pub(crate) fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// One line per step, and the sum.
    pub(crate) fn print_times(&self) {
        println!();
        for (name, took) in &self.times {
            println!("{:>9}  {name}", shown(*took));
        }
        println!(
            "{:>9}  in all",
            shown(self.times.iter().map(|(_, took)| *took).sum())
        );
    }
}

pub(crate) fn shown(took: Duration) -> String {
    let seconds = took.as_secs();
    if seconds >= 60 {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}
