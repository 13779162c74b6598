//! The table of a preparation. Pure.

use crate::state::{Event, State};

/// One step of a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Refuse,
    AskCore,
    LookForReuse,
    FetchRelease,
    WritePlan,
    ComparePlan,
    VerifyFiles,
    FetchFiles,
    OwnStore,
    FindImage,
    FetchArchive,
    MarkImport,
    Import,
    DeleteArchive,
    Publish,
    RemoveJournal,
    Done,
}

/// What a run knows. Everything but `state` is found out again by the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    pub state: State,
    pub core_answered: bool,
    pub reusable: Option<bool>,
    pub release: bool,
    pub plan_compared: bool,
    pub files_verified: bool,
    pub files_complete: bool,
    pub store_owned: bool,
    pub image: Option<bool>,
    pub archive_here: bool,
    /// The archive is the preparer's to delete once the image is there.
    pub archive_owned: bool,
    pub published_now: bool,
}

impl Known {
    pub fn of(state: State) -> Self {
        Self {
            state,
            core_answered: false,
            reusable: None,
            release: false,
            plan_compared: false,
            files_verified: false,
            files_complete: false,
            store_owned: false,
            image: None,
            archive_here: false,
            archive_owned: false,
            published_now: false,
        }
    }
}

/// What a step found out, or made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    CoreAnswered,
    Reusable(bool),
    ReleaseVerified,
    PlanEqual,
    FilesVerified { archive_here: bool, archive_owned: bool },
    FilesComplete,
    StoreOwned,
    Image(bool),
    ArchiveHere,
    ArchiveDeleted,
    Durable(Event),
}

/// The table.
pub fn next(known: &Known) -> Step {
    use State::{Collecting, Dropped, Importing, Planned, Published, Publishing, Purging, Unknown};
    match known.state {
        Collecting | Purging | Dropped => return Step::Refuse,
        Published if known.published_now => return Step::Done,
        _ if !known.core_answered => return Step::AskCore,
        Unknown if known.reusable.is_none() => return Step::LookForReuse,
        Unknown if known.reusable == Some(true) => return Step::Publish,
        Publishing if !known.plan_compared => return Step::ComparePlan,
        Publishing => return Step::RemoveJournal,
        Unknown | Planned | Importing | Published => {}
    }
    if !known.release {
        return Step::FetchRelease;
    }
    match known.state {
        Unknown => return Step::WritePlan,
        Planned | Importing if !known.plan_compared => return Step::ComparePlan,
        _ => {}
    }
    if !known.files_verified {
        return Step::VerifyFiles;
    }
    if !known.files_complete {
        return Step::FetchFiles;
    }
    if !known.store_owned {
        return Step::OwnStore;
    }
    match known.image {
        None => Step::FindImage,
        Some(false) if !known.archive_here => Step::FetchArchive,
        Some(false) if known.state == Planned => Step::MarkImport,
        Some(false) => Step::Import,
        Some(true) if known.archive_here && known.archive_owned => Step::DeleteArchive,
        Some(true) if known.state == Published => Step::Done,
        Some(true) => Step::Publish,
    }
}

/// What is known after an outcome; `None` where a durable event has no place in the state, which is a defect.
pub fn learn(known: Known, outcome: Outcome) -> Option<Known> {
    let mut after = known;
    match outcome {
        Outcome::CoreAnswered => after.core_answered = true,
        Outcome::Reusable(reusable) => after.reusable = Some(reusable),
        Outcome::ReleaseVerified => after.release = true,
        Outcome::PlanEqual => after.plan_compared = true,
        Outcome::FilesVerified {
            archive_here,
            archive_owned,
        } => {
            after.files_verified = true;
            after.archive_here = archive_here;
            after.archive_owned = archive_owned;
        }
        Outcome::FilesComplete => after.files_complete = true,
        Outcome::StoreOwned => after.store_owned = true,
        Outcome::Image(found) => after.image = Some(found),
        Outcome::ArchiveHere => {
            after.archive_here = true;
            after.archive_owned = true;
        }
        Outcome::ArchiveDeleted => after.archive_here = false,
        Outcome::Durable(event) => {
            after.state = known.state.after(event)?;
            match event {
                Event::Planned => after.plan_compared = true,
                Event::Configured | Event::JournalRemoved => after.published_now = true,
                _ => {}
            }
        }
    }
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a step can find out.
    fn outcomes(step: Step) -> Vec<Outcome> {
        match step {
            Step::Refuse | Step::Done => vec![],
            Step::AskCore => vec![Outcome::CoreAnswered],
            Step::LookForReuse => vec![Outcome::Reusable(false), Outcome::Reusable(true)],
            Step::FetchRelease => vec![Outcome::ReleaseVerified],
            Step::WritePlan => vec![Outcome::Durable(Event::Planned)],
            Step::ComparePlan => vec![Outcome::PlanEqual],
            Step::VerifyFiles => [(false, false), (false, true), (true, false), (true, true)]
                .map(|(archive_here, archive_owned)| Outcome::FilesVerified {
                    archive_here,
                    archive_owned,
                })
                .to_vec(),
            Step::FetchFiles => vec![Outcome::FilesComplete],
            Step::OwnStore => vec![Outcome::StoreOwned],
            Step::FindImage => vec![Outcome::Image(false), Outcome::Image(true)],
            Step::FetchArchive => vec![Outcome::ArchiveHere],
            Step::MarkImport => vec![Outcome::Durable(Event::ImportStarted)],
            Step::Import => vec![Outcome::Image(true)],
            Step::DeleteArchive => vec![Outcome::ArchiveDeleted],
            Step::Publish => vec![Outcome::Durable(Event::Configured)],
            Step::RemoveJournal => vec![Outcome::Durable(Event::JournalRemoved)],
        }
    }

    #[test]
    fn from_every_state_with_a_kill_anywhere_each_step_has_its_ground_and_the_end_is_published() {
        let mut seen: Vec<Known> = State::ALL.map(Known::of).to_vec();
        let mut at = 0;
        while at < seen.len() {
            let known = seen[at];
            at += 1;
            let step = next(&known);
            match step {
                Step::Refuse => assert!(known.state.is_going()),
                Step::Done => assert_eq!(known.state, State::Published),
                Step::WritePlan => assert!(known.core_answered && known.release),
                Step::FetchFiles | Step::FetchArchive => {
                    assert!(
                        (State::Planned..=State::Published).contains(&known.state) && known.files_verified
                    );
                }
                Step::Import => assert!(matches!(known.state, State::Importing | State::Published)),
                Step::Publish => {
                    let reused = known.state == State::Unknown && known.reusable == Some(true);
                    assert!(known.core_answered && (reused || known.image == Some(true)));
                }
                Step::RemoveJournal => assert_eq!(known.state, State::Publishing),
                _ => {}
            }
            let after = outcomes(step).into_iter().map(|outcome| {
                learn(known, outcome).unwrap_or_else(|| panic!("{known:?} {step:?} {outcome:?}"))
            });
            // Killed here, the next run knows what is durable.
            for next in after.chain([Known::of(known.state)]) {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
        }
        assert!(seen.len() > 100, "{}", seen.len());
        // Whatever happens, a run that is not killed ends within a bound.
        for start in State::ALL {
            let mut runs = vec![(Known::of(start), 0)];
            while let Some((known, steps)) = runs.pop() {
                assert!(steps < 30, "{known:?}");
                let step = next(&known);
                runs.extend(
                    outcomes(step)
                        .into_iter()
                        .map(|o| (learn(known, o).unwrap(), steps + 1)),
                );
            }
        }
    }
}
