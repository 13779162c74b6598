//! What the files of a generation mean (node.md section 5, first two tables). Pure.

/// Which records of a generation exist, and what the journals say. `provider.json` counts as the configuration of the
/// enrolled generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Files {
    pub configuration: bool,
    /// `import_started` of the plan.
    pub preparing: Option<bool>,
    /// `native_complete` of the collection journal.
    pub collecting: Option<bool>,
    pub dropped: bool,
}

/// | state | files |
/// | --- | --- |
/// | Unknown | no configuration, no journal |
/// | Planned | preparing (import_started false), no configuration |
/// | Importing | preparing (import_started true), no configuration |
/// | Publishing | configuration and preparing |
/// | Published | configuration alone |
/// | Collecting | collecting, native_complete false |
/// | Purging | collecting, native_complete true |
/// | Dropped | dropped |
///
/// A later row wins where files of several are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Unknown,
    Planned,
    Importing,
    Publishing,
    Published,
    Collecting,
    Purging,
    Dropped,
}

/// What is durable when the event happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The plan.
    Planned,
    /// The plan with `import_started` true.
    ImportStarted,
    /// The configuration; without a plan when the paths of another generation are reused.
    Configured,
    /// The plan's removal.
    JournalRemoved,
    /// The collection journal.
    CollectionStarted,
    /// `native_complete` in it.
    NativeRemoved,
    /// The marker that ends the generation.
    Dropped,
}

impl State {
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Planned,
        Self::Importing,
        Self::Publishing,
        Self::Published,
        Self::Collecting,
        Self::Purging,
        Self::Dropped,
    ];

    pub fn of(files: Files) -> Self {
        match files {
            Files { dropped: true, .. } => Self::Dropped,
            Files {
                collecting: Some(true),
                ..
            } => Self::Purging,
            Files {
                collecting: Some(false),
                ..
            } => Self::Collecting,
            Files {
                configuration: true,
                preparing: None,
                ..
            } => Self::Published,
            Files {
                configuration: true,
                preparing: Some(_),
                ..
            } => Self::Publishing,
            Files {
                preparing: Some(true),
                ..
            } => Self::Importing,
            Files {
                preparing: Some(false),
                ..
            } => Self::Planned,
            Files { .. } => Self::Unknown,
        }
    }

    /// The state after `event`; `None` where the event has no place, which is a defect of the caller.
    pub fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Unknown, Event::Planned) => Some(Self::Planned),
            (Self::Planned, Event::ImportStarted) => Some(Self::Importing),
            (Self::Unknown, Event::Configured) => Some(Self::Published),
            (Self::Planned | Self::Importing, Event::Configured) => Some(Self::Publishing),
            (Self::Publishing, Event::JournalRemoved) => Some(Self::Published),
            (
                Self::Planned | Self::Importing | Self::Publishing | Self::Published,
                Event::CollectionStarted,
            ) => Some(Self::Collecting),
            (Self::Collecting, Event::NativeRemoved) => Some(Self::Purging),
            (Self::Purging, Event::Dropped) => Some(Self::Dropped),
            _ => None,
        }
    }

    /// Collecting, Purging or Dropped: it prepares, probes, acquires and reports nothing any more.
    pub fn is_going(self) -> bool {
        self >= Self::Collecting
    }

    /// A provider may be built from it.
    pub fn is_published(self) -> bool {
        self == Self::Published
    }

    /// Core is asked about it, since something of it is on the host.
    pub fn is_held(self) -> bool {
        self > Self::Unknown && self < Self::Dropped
    }
}

impl Files {
    /// The files after `event`, whether or not it has a place.
    pub fn after(self, event: Event) -> Self {
        let mut files = self;
        match event {
            Event::Planned => files.preparing = Some(false),
            Event::ImportStarted => files.preparing = Some(true),
            Event::Configured => files.configuration = true,
            Event::JournalRemoved => files.preparing = None,
            Event::CollectionStarted => files.collecting = Some(false),
            Event::NativeRemoved => files.collecting = Some(true),
            Event::Dropped => files.dropped = true,
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 7] = [
        Event::Planned,
        Event::ImportStarted,
        Event::Configured,
        Event::JournalRemoved,
        Event::CollectionStarted,
        Event::NativeRemoved,
        Event::Dropped,
    ];

    fn all_files() -> impl Iterator<Item = Files> {
        let journal = [None, Some(false), Some(true)];
        (0..36).map(move |n| Files {
            configuration: n & 1 == 1,
            dropped: n & 2 == 2,
            preparing: journal[n / 4 % 3],
            collecting: journal[n / 12],
        })
    }

    #[test]
    fn every_pair_of_state_and_event_follows_the_table() {
        use State::*;
        let table = [
            (Unknown, Event::Planned, Planned),
            (Unknown, Event::Configured, Published),
            (Planned, Event::ImportStarted, Importing),
            (Planned, Event::Configured, Publishing),
            (Importing, Event::Configured, Publishing),
            (Publishing, Event::JournalRemoved, Published),
            (Planned, Event::CollectionStarted, Collecting),
            (Importing, Event::CollectionStarted, Collecting),
            (Publishing, Event::CollectionStarted, Collecting),
            (Published, Event::CollectionStarted, Collecting),
            (Collecting, Event::NativeRemoved, Purging),
            (Purging, Event::Dropped, Dropped),
        ];
        for state in State::ALL {
            for event in EVENTS {
                let row = table.iter().find(|(from, on, _)| (*from, *on) == (state, event));
                assert_eq!(
                    state.after(event),
                    row.map(|(_, _, to)| *to),
                    "{state:?} {event:?}"
                );
            }
        }
    }

    #[test]
    fn what_the_files_say_after_an_event_is_what_the_table_says() {
        for files in all_files() {
            for event in EVENTS {
                let state = State::of(files);
                let repeated = files.after(event) == files;
                if let Some(next) = state.after(event) {
                    assert_eq!(State::of(files.after(event)), next, "{files:?} {event:?}");
                    assert!(!repeated);
                    assert!(next > state, "no event leads back");
                }
            }
        }
    }

    #[test]
    fn nothing_leaves_dropped_and_the_later_row_wins() {
        for files in all_files() {
            let state = State::of(files);
            assert_eq!(state == State::Dropped, files.dropped);
            assert_eq!(state.is_going(), files.dropped || files.collecting.is_some());
            if files.dropped {
                assert!(EVENTS.iter().all(|event| state.after(*event).is_none()));
                assert!(
                    EVENTS
                        .iter()
                        .all(|event| State::of(files.after(*event)) == State::Dropped)
                );
            }
        }
    }
}
