//! `oac session cp`: files and folders between this machine and a sandbox, over Core's file routes.
//!
//! What it guarantees: a file arrives whole or not at all, on either side, and is compared by SHA-256 where Core gives or
//! takes one; a download writes inside the place it was given and nowhere else, whatever names the sandbox lists; what
//! could not be copied is named, and then the exit status is not 0. What it leaves out, and says: links and special
//! files, and on the way in folders without files, for which Core has no route.

mod download;
mod names;
mod place;
mod report;
mod upload;

use std::time::Duration;

use crate::{Failure, client::Client, output::Form};

pub use place::Place;
pub use report::Report;

/// Transfers at once; Core takes 8 of a Session.
const AT_ONCE: usize = 4;
/// Largest file Core takes.
const FILE_BYTES: u64 = 512 * 1024 * 1024;
/// Bytes of a file in memory at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// A transfer that moves nothing for so long is given up.
const STILL: Duration = Duration::from_secs(150);

/// So many attempts at one file.
const ATTEMPTS: u32 = 5;
/// The longest pause between two of them, whatever an answer asks for.
const PAUSE: Duration = Duration::from_secs(10);

/// Copies `from` to `to`; one of them is in a sandbox.
pub async fn copy(client: &Client, from: Place, to: Place, form: Form) -> Result<(), Failure> {
    let report = Report::new(form);
    match (from, to) {
        (Place::Local(from), Place::Remote(to)) => upload::run(client, &from, &to, &report).await?,
        (Place::Pipe, Place::Remote(to)) => upload::run_pipe(client, &to, &report).await?,
        (Place::Remote(from), Place::Local(to)) => download::run(client, &from, &to, &report).await?,
        (Place::Remote(from), Place::Pipe) => {
            if !download::run_pipe(client, &from, &report).await? {
                return Ok(());
            }
        }
        _ => {
            return Err(Failure::Usage(
                "one of SRC and DST is in a sandbox, as SESSION:PATH, and the other is not".to_owned(),
            ));
        }
    }
    report.finish()
}

/// The pause before another attempt at what Core did not begin: too much goes on at once, or the sandbox is not there yet.
fn not_begun(failure: &Failure) -> Option<Duration> {
    match failure {
        Failure::Refused {
            status: 429 | 503,
            retry_after: Some(after),
            ..
        } => Some(PAUSE.min(*after)),
        _ => None,
    }
}

/// Whether the rest is not worth trying: what failed was not about this one file.
fn is_general(failure: &Failure) -> bool {
    match failure {
        Failure::Refused { code, status, .. } => {
            *status == 401
                || matches!(
                    code.as_deref(),
                    Some(
                        "session_archived"
                            | "sandbox_unreachable"
                            | "core_standby"
                            | "runtime_node_unavailable"
                    )
                )
        }
        Failure::Unreachable { .. } | Failure::NoAnswer { .. } | Failure::NotCore { .. } => true,
        _ => false,
    }
}
