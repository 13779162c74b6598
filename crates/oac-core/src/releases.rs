//! The releases that this Core serves to nodes (releases.md sections 4 and 6).
//!
//! Two workers keep what may be served: one reads the directory every [`READ_EVERY`] and whenever it is asked to, the
//! other hashes one file after the other, so that a large file does not hold up the news of a release that became
//! current. A request looks at what was read last, and opens no file but the one that was looked at.

pub(crate) mod range;
pub(crate) mod serve;

use std::{collections::HashSet, io, path::Path, sync::Arc, time::Duration};

use oac_model::SourceCommit;
use oac_release::{
    manifest::Artifact,
    store::{self, FileKey, Holding, Shelf, Verdicts},
};
use oac_telemetry::Gauges;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Core, http::error::Chain, metrics::table, task::Kind};

/// A release becomes current, and a file is seen, within this time and that of reading the directory.
const READ_EVERY: Duration = Duration::from_secs(2);

/// What may be served, as it was read last.
#[derive(Default)]
pub struct Releases {
    shelf: Mutex<Arc<Shelf>>,
    verdicts: Mutex<Verdicts>,
    /// Files that could not be hashed when it was tried last; told once each.
    unreadable: Mutex<HashSet<FileKey>>,
    pub(crate) downloads: serve::Downloads,
    /// Something may be unread.
    unread: Notify,
    /// Something was hashed.
    hashed: Notify,
}

impl Releases {
    /// What was read last.
    pub(crate) fn shelf(&self) -> Arc<Shelf> {
        self.shelf.lock().clone()
    }

    /// Reads `directory`. A missing one holds no releases.
    fn read(&self, directory: &Path) {
        let before = self.shelf();
        let verdicts = self.verdicts.lock().clone();
        let now = match Shelf::read(directory, &before, &verdicts) {
            Ok(shelf) => shelf,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Shelf::default(),
            Err(error) => {
                tracing::warn!(event = "releases_unreadable", directory = %directory.display(), %error, "the release directory cannot be read: what was read before is served");
                return;
            }
        };
        for problem in &now.problems {
            if !before.problems.contains(problem) {
                tracing::error!(event = "release_file_wrong", path = %problem.path.display(), fault = problem.fault, "not served: publish the release again after removing what is wrong");
            }
        }
        if let Some(commit) = now.current().filter(|current| before.current() != Some(*current)) {
            tracing::info!(event = "release_current", %commit, "a release is current");
        }
        *self.shelf.lock() = Arc::new(now);
    }

    /// Hashes one file that nobody hashed yet; whether there was one that could be. An error of `verify` proves nothing
    /// about a file's bytes: it holds up no other file, and after the next reading it is tried again.
    fn hash(&self, verify: impl Fn(SourceCommit, &Artifact, FileKey) -> io::Result<Option<bool>>) -> bool {
        for (commit, artifact, key) in self.shelf().unread() {
            match verify(commit, &artifact, key) {
                Ok(verdict) => {
                    self.unreadable.lock().remove(&key);
                    // Without one another file has its name: the next reading sees it.
                    let verdict = verdict.map(|right| ((key, artifact.sha256), right));
                    self.verdicts.lock().extend(verdict);
                    return true;
                }
                Err(error) => {
                    if self.unreadable.lock().insert(key) {
                        tracing::error!(event = "release_file_unreadable", file = artifact.filename, error = %Chain(&error), "a release file cannot be hashed; it is tried again");
                    }
                }
            }
        }
        false
    }

    pub(crate) fn show(&self, gauges: &mut Gauges) {
        let mut counts = [("held", 0), ("unverified", 0), ("missing", 0), ("wrong", 0)];
        for (_, release) in self.shelf().releases() {
            for holding in &release.files {
                let state = match holding {
                    Holding::Held(_) => 0,
                    Holding::Unread(_) => 1,
                    Holding::Missing => 2,
                    Holding::Wrong => 3,
                };
                counts[state].1 += 1;
            }
        }
        let series = counts.map(|(state, count)| ([state.to_owned()], f64::from(count)));
        gauges.many(&table::RELEASE_FILES, series);
    }
}

/// Reads the directory before anything is served, then keeps reading and hashing.
pub(crate) async fn start(core: &Arc<Core>) {
    read(core).await;
    let reader = core.clone();
    core.tasks.spawn(Kind::Worker, "releases", async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(READ_EVERY) => {}
                () = reader.releases.hashed.notified() => {}
            }
            read(&reader).await;
        }
    });
    let hasher = core.clone();
    core.tasks.spawn(Kind::Worker, "release hashes", async move {
        loop {
            let core = hasher.clone();
            let hashed = blocking(move || {
                let directory = &core.config.release_dir;
                core.releases
                    .hash(|commit, artifact, key| store::verify(directory, commit, artifact, key))
            })
            .await;
            if hashed {
                hasher.releases.hashed.notify_one();
            }
            hasher.releases.unread.notified().await;
        }
    });
}

async fn read(core: &Arc<Core>) {
    let core = core.clone();
    blocking(move || {
        core.releases.read(&core.config.release_dir);
        if core.releases.shelf().unread().next().is_some() {
            core.releases.unread.notify_one();
        }
    })
    .await;
}

/// Runs what waits for the disk where waiting holds nobody up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that ends drops such work, and nobody awaits it then.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use oac_release::made::{commit, made};

    use super::*;

    #[test]
    fn a_file_that_cannot_be_hashed_now_holds_up_no_other_and_is_tried_again() {
        let temp = tempfile::tempdir().unwrap();
        let (offer, directory) = (temp.path().join("offer"), temp.path().join("releases"));
        std::fs::create_dir(&directory).unwrap();
        made(commit('a'), "x").write(&offer);
        store::publish(&directory, &offer, false).unwrap();
        let releases = Releases::default();
        releases.read(&directory);
        let (_, _, bad) = releases.shelf().unread().next().unwrap();
        let right = |commit, artifact: &Artifact, key| store::verify(&directory, commit, artifact, key);
        while releases.hash(|commit, artifact, key| {
            if key == bad {
                Err(io::ErrorKind::Other.into())
            } else {
                right(commit, artifact, key)
            }
        }) {
            releases.read(&directory);
        }
        let left: Vec<FileKey> = releases.shelf().unread().map(|(_, _, key)| key).collect();
        assert_eq!(left, [bad], "all others were hashed");
        assert!(releases.hash(right), "nothing is decided about it");
        releases.read(&directory);
        assert_eq!(releases.shelf().unread().count(), 0);
        let shelf = releases.shelf();
        let files = &shelf.release(commit('a')).unwrap().files;
        assert!(files.iter().all(|holding| matches!(holding, Holding::Held(_))));
    }
}
