//! What to do about one Turn when a sandbox links: the table of sessions.md section 8 as a function.

/// Core's record of a Turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Dispatch `none` or `intent`: nothing was sent.
    NotSent,
    /// Dispatch `sent`: the request may or may not have arrived.
    Sent { stored: u64 },
    /// Dispatch `confirmed`: the runtime said that it has the Turn.
    Confirmed { stored: u64 },
    /// Settled, or no Turn of this Session: nothing of it is wanted any more.
    Over,
}

/// The runtime's record of a Turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    Absent,
    Running { offset: u64 },
    Ended { offset: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing to do for this pair.
    Nothing,
    /// Dispatch it when it is next.
    DispatchWhenNext,
    /// Issue the same PUT again, to this allocation; its identity makes it one execution.
    PutAgain,
    /// Read output from the stored offset to the exit record, settle, acknowledge for good.
    Follow,
    /// Settle `interrupted`, keeping the stored bytes.
    Interrupt,
    /// Settle `interrupted`, then have the runtime end it and forget it.
    InterruptAndForget,
    /// Have the runtime end it, if it runs, and forget it.
    Forget,
}

pub(crate) fn reconcile(core: Recorded, runtime: Reported) -> Step {
    use Recorded as C;
    use Reported as R;
    match (core, runtime) {
        (C::NotSent, R::Absent) => Step::DispatchWhenNext,
        // The runtime cannot know a Turn that was never sent to it; it forgets whatever this is before the Turn runs.
        (C::NotSent, _) => Step::InterruptAndForget,
        (C::Sent { .. }, R::Absent) => Step::PutAgain,
        (C::Confirmed { .. }, R::Absent) => Step::Interrupt,
        (C::Sent { stored } | C::Confirmed { stored }, R::Running { offset } | R::Ended { offset }) => {
            // After a power loss the sandbox's log may be shorter than what Core holds.
            if offset < stored {
                Step::InterruptAndForget
            } else {
                Step::Follow
            }
        }
        (C::Over, R::Absent) => Step::Nothing,
        (C::Over, _) => Step::Forget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // inv: INV-S2, INV-S8
    #[test]
    fn every_pair_of_records_has_the_result_of_the_table() {
        let recorded = [
            Recorded::NotSent,
            Recorded::Sent { stored: 5 },
            Recorded::Confirmed { stored: 5 },
            Recorded::Over,
        ];
        let reported = [
            Reported::Absent,
            Reported::Running { offset: 5 },
            Reported::Ended { offset: 6 },
            Reported::Running { offset: 4 },
            Reported::Ended { offset: 4 },
        ];
        use Step::*;
        let table = [
            [
                DispatchWhenNext,
                InterruptAndForget,
                InterruptAndForget,
                InterruptAndForget,
                InterruptAndForget,
            ],
            [PutAgain, Follow, Follow, InterruptAndForget, InterruptAndForget],
            [Interrupt, Follow, Follow, InterruptAndForget, InterruptAndForget],
            [Nothing, Forget, Forget, Forget, Forget],
        ];
        for (row, core) in recorded.into_iter().enumerate() {
            for (column, runtime) in reported.into_iter().enumerate() {
                assert_eq!(
                    reconcile(core, runtime),
                    table[row][column],
                    "{core:?} {runtime:?}"
                );
            }
        }
    }
}
