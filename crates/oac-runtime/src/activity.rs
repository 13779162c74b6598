//! What keeps this sandbox from being quiesced beside its Turns: open file operations and port streams
//! (sessions.md section 9).
//!
//! Counting and admission are one step, so nothing begins between "nothing is open" and "nothing may begin any more":
//! [`Activity::close`] refuses while something is open, and once it has closed, [`Activity::begin`] refuses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    open: usize,
    closed: bool,
}

/// The count of one runtime; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Mutex<State>>);

/// Something that is open; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Active(Activity);

impl Activity {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file operation or a port stream begins; `None` while closed.
    pub(crate) fn begin(&self) -> Option<Active> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.open += 1;
        Some(Active(self.clone()))
    }

    /// Lets nothing begin any more; false, and nothing changes, while something is open.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.lock();
        state.closed |= state.open == 0;
        state.open == 0
    }

    /// Ends [`Self::close`].
    pub(crate) fn reopen(&self) {
        self.lock().closed = false;
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_closes_while_something_is_open_and_nothing_opens_while_closed() {
        let activity = Activity::default();
        let (file, port) = (activity.begin().unwrap(), activity.begin().unwrap());
        drop(file);
        assert!(!activity.close());
        assert!(activity.begin().is_some());
        drop(port);
        assert!(activity.close());
        assert!(activity.close());
        assert!(activity.begin().is_none());
        activity.reopen();
        assert!(activity.begin().is_some());
    }
}
