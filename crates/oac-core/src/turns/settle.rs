//! From an exit record to a terminal state (sessions.md sections 3 and 8).

use oac_model::TurnState;

/// The error a restarted runtime writes for a Turn whose process it killed.
pub(crate) const RUNTIME_RESTARTED: &str = "runtime_restarted";

/// How a process ended, as its runtime recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub canceled: bool,
    pub error: Option<String>,
}

/// A Turn's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub state: TurnState,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
}

impl Settlement {
    /// An end that no exit record describes.
    pub(crate) fn without_exit(state: TurnState, reason: &str) -> Self {
        Self {
            state,
            exit_code: None,
            signal: None,
            reason: Some(reason.to_owned()),
        }
    }

    pub(crate) fn of(exit: &Exit) -> Self {
        let state = match exit.error.as_deref() {
            Some(RUNTIME_RESTARTED) => TurnState::Interrupted,
            Some(_) => TurnState::Failed,
            None if exit.timed_out => TurnState::TimedOut,
            // Set by the runtime only when the signal it sent ended the process: one that finished first completed.
            None if exit.canceled => TurnState::Canceled,
            None => TurnState::Completed,
        };
        Self {
            state,
            exit_code: exit.code,
            signal: exit.signal,
            reason: exit.error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exit_record_has_one_terminal_state() {
        let exit = |f: fn(&mut Exit)| {
            let mut exit = Exit::default();
            f(&mut exit);
            Settlement::of(&exit).state
        };
        assert_eq!(exit(|e| e.code = Some(0)), TurnState::Completed);
        assert_eq!(exit(|e| e.code = Some(7)), TurnState::Completed);
        assert_eq!(exit(|e| e.signal = Some(9)), TurnState::Completed);
        assert_eq!(
            exit(|e| (e.timed_out, e.signal) = (true, Some(9))),
            TurnState::TimedOut
        );
        assert_eq!(
            exit(|e| (e.canceled, e.signal) = (true, Some(15))),
            TurnState::Canceled
        );
        assert_eq!(
            exit(|e| e.error = Some("program_not_found".into())),
            TurnState::Failed
        );
        assert_eq!(
            exit(|e| e.error = Some(RUNTIME_RESTARTED.into())),
            TurnState::Interrupted
        );
    }
}
