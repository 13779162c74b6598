//! The releases that a Core keeps: a directory of one folder per commit, `current.json` and `.publish.lock`
//! (releases.md sections 4 and 5).
//!
//! | | who | what |
//! | --- | --- | --- |
//! | [`publish()`], [`Removal`] | `oac-core release`, one at a time, as the directory's owner | adds whole verified releases and files; takes a whole release away |
//! | [`Shelf`] | Core, at any time | what may be served: only what valid metadata names, under its final name |
//!
//! Nothing published is overwritten: everything is checked before the first change, a new release gets its name in one
//! rename, a missing file in one each, after all of them are complete and durable. So a publisher that is killed leaves
//! what was there, or more of it, and names that begin with a dot, which nobody serves and the next one removes.

mod archive;
mod disk;
mod publish;
mod remove;
mod shelf;

use std::{io, path::PathBuf};

use oac_model::SourceCommit;
use serde::{Deserialize, Serialize};

use crate::metadata::MetadataError;

pub use publish::{Published, check, publish};
pub use remove::Removal;
pub use shelf::{FileKey, Holding, Shelf, ShelfProblem, Shelved, Verdicts, verify};

const LOCK: &str = ".publish.lock";
const CURRENT: &str = "current.json";

/// `current.json`: whose installer and program a fresh node gets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Current {
    format: u32,
    source_commit: SourceCommit,
}

/// Why nothing was published or removed. A published file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} cannot be used", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("root does not publish. Run: sudo -u oac-node oac-core release …")]
    Root,
    #[error("{} belongs to another account: run this as its owner", .0.display())]
    Owner(PathBuf),
    #[error("another publisher runs: wait for its end")]
    Busy,
    #[error("{} is not the metadata of a release", path.display())]
    Metadata {
        path: PathBuf,
        #[source]
        source: MetadataError,
    },
    #[error("{}: {fault}", path.display())]
    Invalid { path: PathBuf, fault: &'static str },
    /// With what is published.
    #[error("{}: {fault}; what is published is never changed", path.display())]
    Conflict { path: PathBuf, fault: &'static str },
    #[error("release {0} is not published")]
    Unknown(SourceCommit),
    #[error("release {0} is the current one: publish another first")]
    Current(SourceCommit),
    #[error("release {0} is selected by a generation that is kept")]
    Selected(SourceCommit),
}

/// Whoever changes releases owns their directory and is not root.
pub fn check_owner(release_dir: &std::path::Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File {
        path: release_dir.to_owned(),
        source,
    };
    let own = rustix::process::geteuid();
    if own.is_root() {
        return Err(StoreError::Root);
    }
    let stat = rustix::fs::stat(release_dir).map_err(|errno| failed(errno.into()))?;
    if stat.st_uid != own.as_raw() {
        return Err(StoreError::Owner(release_dir.to_owned()));
    }
    Ok(())
}
