//! Builds the root of test hosts into a cache unless it is there, and prints where it is: `oac-test-host-root CACHE`.

use std::{io::Write as _, process::ExitCode};

fn main() -> ExitCode {
    let Some(cache) = std::env::args_os().nth(1) else {
        eprintln!("usage: oac-test-host-root CACHE");
        return ExitCode::from(2);
    };
    match oac_testkit::host::root::ensure(cache.as_ref()) {
        Ok(root) => {
            let printed = writeln!(std::io::stdout(), "{}", root.display());
            if printed.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            let causes = std::iter::successors(std::error::Error::source(&error), |e| e.source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            eprintln!("oac-test-host-root: {error}{causes}");
            ExitCode::FAILURE
        }
    }
}
