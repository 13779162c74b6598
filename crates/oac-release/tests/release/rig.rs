//! Publishes, and kills itself with SIGKILL at a numbered step: `oac-release-rig STEP RELEASE_DIR DIR`.

use std::{cell::Cell, path::PathBuf, process::ExitCode};

use oac_records::steps::{Verdict, watched};
use rustix::process::{Signal, getpid, kill_process};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().unwrap_or_default();
    let Ok(last) = next().parse::<u64>() else {
        return ExitCode::from(2);
    };
    let (release_dir, from) = (PathBuf::from(next()), PathBuf::from(next()));
    let seen = Cell::new(0);
    let published = watched(
        move |_| {
            if seen.get() == last {
                let _ = kill_process(getpid(), Signal::KILL);
            }
            seen.set(seen.get() + 1);
            Verdict::Go
        },
        || oac_release::store::publish(&release_dir, &from, false),
    );
    match published {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
