//! The one place where tasks are started.

use std::future::Future;

/// What a task is for. None is ever canceled: all end with the process, and the run loop waits, bounded, for what must
/// be finished first.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Starts and follows one Turn; the run loop waits for it when it stops.
    Turn,
    /// Carries one port stream until it ends; at the process's end it is cut.
    PortStream,
    /// Waits for wakes for ever.
    WakeSocket,
    /// Collects the exits of child processes for ever.
    Reaper,
}

/// Starts a task. A panic ends the whole program (`panic = "abort"`), so there is no error to handle.
pub(crate) fn spawn(_kind: Kind, future: impl Future<Output = ()> + Send + 'static) {
    #[allow(clippy::disallowed_methods, reason = "the task module")]
    drop(tokio::spawn(future));
}

/// Runs file work where it may block. It begins at once, and goes on if the future is dropped.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let working = tokio::task::spawn_blocking(work);
    async move {
        working
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}
