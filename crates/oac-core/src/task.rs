//! Every task of Core has a kind with a policy for cancel and error, and shutdown waits for all of them, bounded.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long [`Tasks::shutdown`] waits for tasks that were told to stop.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);

/// What a task does, which decides what cancel and its end mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Runs as long as Core: owner renewal, the converging workers. Dropped at its next await on shutdown.
    /// One that panics stops Core: the process must not go on with a part missing.
    Worker,
    /// Serves one connection (node, sandbox link, HTTP). Dropped at its next await on shutdown; a panic ends only it.
    Connection,
    /// A short piece of work that must finish: shutdown waits for it, up to [`SHUTDOWN_WAIT`].
    Finish,
}

/// The tasks of one Core.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    failed: CancellationToken,
}

impl Tasks {
    /// Starts `future` under the policy of `kind`. After [`Self::stop`] a `Worker` or `Connection` ends at once.
    #[allow(clippy::disallowed_methods)] // The one place in Core that spawns.
    pub fn spawn(&self, kind: Kind, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let guard = FailGuard {
            kind,
            name,
            failed: self.failed.clone(),
        };
        let task = self.tracker.track_future(async move {
            let guard = guard;
            match kind {
                Kind::Finish => future.await,
                Kind::Worker | Kind::Connection => {
                    stop.run_until_cancelled(future).await;
                }
            }
            std::mem::forget(guard);
        });
        tokio::spawn(task);
    }

    /// Resolves when Core is to stop. For work that wants to end cleanly instead of being dropped.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Resolves when a worker panicked, after which the program has to end.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// Tells every task to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// [`Self::stop`], then waits for all tasks for at most [`SHUTDOWN_WAIT`]; false if some were left.
    pub async fn shutdown(&self) -> bool {
        self.stop();
        self.tracker.close();
        let done = tokio::time::timeout(SHUTDOWN_WAIT, self.tracker.wait())
            .await
            .is_ok();
        if !done {
            tracing::warn!(left = self.tracker.len(), "tasks did not end in time");
        }
        done
    }
}

/// Dropped only when its task panicked or the runtime went away.
struct FailGuard {
    kind: Kind,
    name: &'static str,
    failed: CancellationToken,
}

impl Drop for FailGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(event = "task_panicked", task = self.name, "a task panicked");
            if self.kind == Kind::Worker {
                self.failed.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn shutdown_drops_workers_and_waits_for_work_that_must_finish() {
        let tasks = Tasks::default();
        let (done, finished) = tokio::sync::oneshot::channel();
        let stop = tasks.stopping();
        tasks.spawn(Kind::Worker, "forever", std::future::pending());
        tasks.spawn(Kind::Finish, "last words", async move {
            stop.cancelled().await;
            let _ = done.send(());
        });
        assert!(tasks.shutdown().await);
        finished.await.unwrap();
    }

    #[tokio::test]
    async fn a_panicking_worker_is_reported_and_a_panicking_connection_is_not() {
        let tasks = Tasks::default();
        tasks.spawn(Kind::Connection, "connection", async { panic!("test") });
        tasks.tracker.close();
        tasks.tracker.wait().await;
        assert!(!tasks.failed.is_cancelled());
        tasks.tracker.reopen();
        tasks.spawn(Kind::Worker, "worker", async { panic!("test") });
        tasks.failed().await;
    }
}
