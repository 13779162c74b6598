//! The releases that this Core serves to nodes (releases.md sections 4 and 6).
//!
//! Two workers keep what may be served: one reads the directory every [`READ_EVERY`] and whenever it is asked to, the
//! other hashes one file after the other, so that a large file does not hold up the news of a release that became
//! current. A request looks at what was read last, and opens no file but the one that was looked at.

pub(crate) mod range;
pub(crate) mod serve;

use std::{collections::HashMap, io, path::Path, sync::Arc, time::Duration};

use oac_release::store::{self, FileKey, Holding, Shelf};
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
    verdicts: Mutex<HashMap<FileKey, bool>>,
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

    /// Hashes one file that nobody hashed yet; whether there was one.
    fn hash(&self, directory: &Path) -> bool {
        let Some((commit, artifact, key)) = self.shelf().unread() else {
            return false;
        };
        match store::verify(directory, commit, &artifact, key) {
            Ok(Some(right)) => {
                self.verdicts.lock().insert(key, right);
            }
            // Another file has its name: the next reading sees it.
            Ok(None) => {}
            Err(error) => {
                tracing::error!(event = "release_file_unreadable", file = artifact.filename, error = %Chain(&error), "not served until it changes");
                self.verdicts.lock().insert(key, false);
            }
        }
        true
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
            let hashed = blocking(move || core.releases.hash(&core.config.release_dir)).await;
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
        if core.releases.shelf().unread().is_some() {
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
