//! When a Session may be suspended (core.md section 12).
//!
//! Core asks [`may_suspend`] under the Session's lock and stores the phase quiescing in the same transaction; from then on
//! it admits nothing. The runtime is asked after that and has the last word: it knows of output whose acknowledgement is
//! still on its way, and refuses while anything is open at its end (INV-S15). Neither alone is enough.

use crate::{Millis, allocation::OperationState};

/// What Core has stored about one Session, read under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stillness {
    /// Turns that are terminal.
    pub ended_turns: u64,
    /// Queued, waiting or running.
    pub unfinished_turns: u64,
    /// An input is being admitted.
    pub pending_inputs: u64,
    pub open_file_operations: u64,
    pub open_port_streams: u64,
    /// The sandbox has never linked.
    pub initialization_pending: bool,
    /// A checkpoint was restored and its bytes are not deleted yet.
    pub consumed_checkpoint_kept: bool,
    /// Since the last activity, on the database's clock.
    pub idle_for: Millis,
    /// What the deployment asks for.
    pub idle_wanted: Millis,
}

/// The first reason why a Session is not suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Busy {
    /// Nothing has run yet that would be worth keeping.
    NoTurnEnded,
    TurnUnfinished,
    InputPending,
    FileOperationOpen,
    PortStreamOpen,
    InitializationPending,
    ConsumedCheckpointKept,
    ActiveLately,
}

/// Whether the Session may be quiesced now.
pub fn may_suspend(still: &Stillness) -> Result<(), Busy> {
    let reasons = [
        (still.ended_turns == 0, Busy::NoTurnEnded),
        (still.unfinished_turns > 0, Busy::TurnUnfinished),
        (still.pending_inputs > 0, Busy::InputPending),
        (still.open_file_operations > 0, Busy::FileOperationOpen),
        (still.open_port_streams > 0, Busy::PortStreamOpen),
        (still.initialization_pending, Busy::InitializationPending),
        (still.consumed_checkpoint_kept, Busy::ConsumedCheckpointKept),
        (still.idle_for < still.idle_wanted, Busy::ActiveLately),
    ];
    match reasons.into_iter().find(|(holds, _)| *holds) {
        Some((_, busy)) => Err(busy),
        None => Ok(()),
    }
}

/// Whether a restored compute is never admitted: it has ended, or a `kill_compute` of it was stored and not dropped
/// unsent (core.md section 12). `kills` are the states of the operations that name it.
pub fn is_given_up(ended: bool, kills: impl IntoIterator<Item = OperationState>) -> bool {
    ended || kills.into_iter().any(|kill| kill != OperationState::Rejected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compute_is_given_up_once_its_end_is_known_or_its_kill_is_stored_unless_that_was_dropped_unsent() {
        use OperationState::Rejected;
        assert!(!is_given_up(false, []));
        assert!(is_given_up(true, []));
        for kill in OperationState::ALL {
            assert_eq!(is_given_up(false, [*kill]), *kill != Rejected, "{kill:?}");
            assert_eq!(
                is_given_up(false, [Rejected, *kill]),
                *kill != Rejected,
                "{kill:?}"
            );
        }
    }

    const STILL: Stillness = Stillness {
        ended_turns: 1,
        unfinished_turns: 0,
        pending_inputs: 0,
        open_file_operations: 0,
        open_port_streams: 0,
        initialization_pending: false,
        consumed_checkpoint_kept: false,
        idle_for: 60_000,
        idle_wanted: 60_000,
    };

    // inv: INV-S15
    #[test]
    fn each_thing_under_way_alone_keeps_a_session_from_being_suspended() {
        assert_eq!(may_suspend(&STILL), Ok(()));
        let with = |change: fn(&mut Stillness)| {
            let mut still = STILL;
            change(&mut still);
            may_suspend(&still)
        };
        assert_eq!(with(|s| s.ended_turns = 0), Err(Busy::NoTurnEnded));
        assert_eq!(with(|s| s.unfinished_turns = 1), Err(Busy::TurnUnfinished));
        assert_eq!(with(|s| s.pending_inputs = 1), Err(Busy::InputPending));
        assert_eq!(with(|s| s.open_file_operations = 1), Err(Busy::FileOperationOpen));
        assert_eq!(with(|s| s.open_port_streams = 1), Err(Busy::PortStreamOpen));
        assert_eq!(
            with(|s| s.initialization_pending = true),
            Err(Busy::InitializationPending)
        );
        assert_eq!(
            with(|s| s.consumed_checkpoint_kept = true),
            Err(Busy::ConsumedCheckpointKept)
        );
        assert_eq!(with(|s| s.idle_for -= 1), Err(Busy::ActiveLately));
    }
}
