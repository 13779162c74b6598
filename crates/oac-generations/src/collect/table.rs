//! The table of a collection. Pure.

use crate::state::{Event, State};

/// One step of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    WriteJournal,
    VerifyFiles,
    VerifyStore,
    CountSandboxes,
    FindImage,
    RemoveImage,
    RecordNative,
    RemoveFiles,
    WriteDropped,
    Done,
}

/// What a run knows. Everything but `state` is found out again by the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    pub state: State,
    /// Something native of it may exist, and is this node's to remove: not on Docker, not of a plan whose import never
    /// began.
    pub native: bool,
    pub image_shared: bool,
    pub store_shared: bool,
    pub files_verified: bool,
    pub store_verified: bool,
    pub no_sandboxes: bool,
    pub image: Option<bool>,
    pub files_gone: bool,
}

/// What a step found out, or made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    FilesVerified,
    StoreVerified,
    NoSandboxes,
    Image(bool),
    /// Asked for; whether it is gone is found out again.
    RemovalAsked,
    FilesGone,
    Durable(Event),
}

/// The table.
pub fn next(known: &Known) -> Step {
    match known.state {
        State::Unknown | State::Dropped => return Step::Done,
        state if !state.is_going() => return Step::WriteJournal,
        _ => {}
    }
    if !known.files_verified {
        return Step::VerifyFiles;
    }
    if known.state == State::Purging {
        return if known.files_gone {
            Step::WriteDropped
        } else {
            Step::RemoveFiles
        };
    }
    if known.native {
        if !known.store_verified {
            return Step::VerifyStore;
        }
        if !known.store_shared && !known.no_sandboxes {
            return Step::CountSandboxes;
        }
        if !known.image_shared {
            match known.image {
                None => return Step::FindImage,
                Some(true) => return Step::RemoveImage,
                Some(false) => {}
            }
        }
    }
    Step::RecordNative
}

/// What is known after an outcome; `None` where a durable event has no place in the state, which is a defect.
pub fn learn(known: Known, outcome: Outcome) -> Option<Known> {
    let mut after = known;
    match outcome {
        Outcome::FilesVerified => after.files_verified = true,
        Outcome::StoreVerified => after.store_verified = true,
        Outcome::NoSandboxes => after.no_sandboxes = true,
        Outcome::Image(found) => after.image = Some(found),
        Outcome::RemovalAsked => after.image = None,
        Outcome::FilesGone => after.files_gone = true,
        Outcome::Durable(event) => after.state = known.state.after(event)?,
    }
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(step: Step) -> Vec<Outcome> {
        match step {
            Step::Done => vec![],
            Step::WriteJournal => vec![Outcome::Durable(Event::CollectionStarted)],
            Step::VerifyFiles => vec![Outcome::FilesVerified],
            Step::VerifyStore => vec![Outcome::StoreVerified],
            Step::CountSandboxes => vec![Outcome::NoSandboxes],
            Step::FindImage => vec![Outcome::Image(false), Outcome::Image(true)],
            Step::RemoveImage => vec![Outcome::RemovalAsked],
            Step::RecordNative => vec![Outcome::Durable(Event::NativeRemoved)],
            Step::RemoveFiles => vec![Outcome::FilesGone],
            Step::WriteDropped => vec![Outcome::Durable(Event::Dropped)],
        }
    }

    fn starts() -> Vec<Known> {
        let mut all = Vec::new();
        for state in State::ALL {
            for n in 0..8 {
                all.push(Known {
                    state,
                    native: n & 1 > 0,
                    image_shared: n & 2 > 0,
                    store_shared: n & 4 > 0,
                    files_verified: false,
                    store_verified: false,
                    no_sandboxes: false,
                    image: None,
                    files_gone: false,
                });
            }
        }
        all
    }

    #[test]
    fn from_every_state_with_a_kill_anywhere_each_deletion_has_its_ground_and_the_end_is_dropped() {
        let mut seen = starts();
        let mut at = 0;
        while at < seen.len() {
            let known = seen[at];
            at += 1;
            let step = next(&known);
            match step {
                Step::Done => assert!(matches!(known.state, State::Unknown | State::Dropped)),
                Step::RemoveImage => {
                    assert_eq!(known.state, State::Collecting);
                    assert!(
                        known.native && !known.image_shared && known.files_verified && known.store_verified
                    );
                    assert!(known.store_shared || known.no_sandboxes);
                }
                Step::RecordNative => {
                    let proven = known.image_shared || known.image == Some(false);
                    assert!(known.files_verified && (!known.native || proven));
                }
                Step::RemoveFiles => assert!(known.state == State::Purging && known.files_verified),
                Step::WriteDropped => assert!(known.state == State::Purging && known.files_gone),
                Step::VerifyStore | Step::CountSandboxes | Step::FindImage => {
                    assert_eq!(
                        known.state,
                        State::Collecting,
                        "no native program runs once its end is recorded"
                    );
                    assert!(known.native);
                }
                Step::WriteJournal | Step::VerifyFiles => {}
            }
            let killed = starts().into_iter().find(|start| {
                let same = (start.native, start.image_shared, start.store_shared);
                start.state == known.state && same == (known.native, known.image_shared, known.store_shared)
            });
            let after = outcomes(step).into_iter().map(|outcome| {
                learn(known, outcome).unwrap_or_else(|| panic!("{known:?} {step:?} {outcome:?}"))
            });
            for next in after.chain(killed) {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }
}
