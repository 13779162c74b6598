//! Giving the whole deployment back, so that another backend can be chosen (core.md section 14).
//!
//! A reset is a few stored facts about the deployment: how it treats work that still runs, and an absolute deadline.
//! [`State::apply`] is the only way from one state to another; [`plan`] looks at the state and at what is left and names
//! the one next step, so that a Core that is killed between any two steps, or another one that takes over, goes on where
//! the rows are. [`Remaining`] is what operators are shown meanwhile.

use std::collections::BTreeMap;

use oac_model::{AllocationState, NodeId};

use crate::Millis;

/// How long an automatic reset waits for work that runs.
pub const SHORTEST_SECONDS: i64 = 300;
pub const LONGEST_SECONDS: i64 = 86_400;
pub const DEFAULT_SECONDS: i64 = 3_600;

/// Whether the deployment is being reset, and how.
///
/// | state | asked `auto` | asked `force` | deadline passed | canceled | nothing left |
/// |---|---|---|---|---|---|
/// | None | Auto, `reset_start` | Force, `reset_start` | – | None | – |
/// | Auto | the same, its deadline too | Force, `reset_force` | Force, `reset_deadline` | None, `reset_cancel` | None, `reset_complete` |
/// | Force | refused | the same | – | None, `reset_cancel` | None, `reset_complete` |
///
/// The words are the audit log's; a dash is an event that does not happen there and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    None,
    /// Sessions that work may go on until the deadline, on the database's clock.
    Auto {
        deadline: Millis,
    },
    /// Nothing is waited for.
    Force,
}

/// What happens to a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    AskedAuto { deadline: Millis },
    AskedForce,
    DeadlinePassed,
    Canceled,
    Emptied,
}

/// The audit log's word for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Start,
    Force,
    Deadline,
    Cancel,
    Complete,
}

impl Told {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "reset_start",
            Self::Force => "reset_force",
            Self::Deadline => "reset_deadline",
            Self::Cancel => "reset_cancel",
            Self::Complete => "reset_complete",
        }
    }
}

/// A forced reset does not become a patient one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forced;

impl State {
    /// The next state, and the entry that is stored with it; without an entry nothing changes.
    pub fn apply(self, event: Event) -> Result<(Self, Option<Told>), Forced> {
        Ok(match (self, event) {
            (Self::None, Event::AskedAuto { deadline }) => (Self::Auto { deadline }, Some(Told::Start)),
            (Self::None, Event::AskedForce) => (Self::Force, Some(Told::Start)),
            (Self::Auto { .. }, Event::AskedForce) => (Self::Force, Some(Told::Force)),
            (Self::Auto { .. }, Event::DeadlinePassed) => (Self::Force, Some(Told::Deadline)),
            (Self::Force, Event::AskedAuto { .. }) => return Err(Forced),
            (Self::Auto { .. } | Self::Force, Event::Canceled) => (Self::None, Some(Told::Cancel)),
            (Self::Auto { .. } | Self::Force, Event::Emptied) => (Self::None, Some(Told::Complete)),
            (Self::None, Event::DeadlinePassed | Event::Canceled | Event::Emptied)
            | (Self::Auto { .. }, Event::AskedAuto { .. })
            | (Self::Force, Event::AskedForce | Event::DeadlinePassed) => (self, None),
        })
    }

    /// Whether the reset archives this Session now.
    pub fn archives(self, session: Session) -> bool {
        match self {
            Self::None => false,
            // During a reset nothing is placed and nothing restored: what waits for that would wait for the deadline.
            Self::Auto { .. } => !session.works || !session.has_compute,
            Self::Force => true,
        }
    }
}

/// A hosted Session that is not archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// It has a running or waiting Turn, or a file is being written to it.
    pub works: bool,
    /// It holds a place for a sandbox, and the sandbox is not suspended: it runs, or comes without being placed or
    /// restored first.
    pub has_compute: bool,
}

/// What a reset has not ended yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Unreleased allocations, and placements without one.
    pub resources: u64,
    /// A hosted Session that is not archived.
    pub sessions: bool,
}

/// The next step of a reset. Each is one transaction, [`Next::Archive`] one for each Session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// No reset stands.
    Rest,
    /// Nothing is left: the deployment is given back.
    Complete,
    /// Declare the deadline passed.
    PassDeadline,
    /// Archive what [`State::archives`] names; then wait until nodes have cleaned up.
    Archive,
    /// Every Session is archived: wait until nodes have cleaned up.
    Wait,
}

pub fn plan(state: State, left: Left, now: Millis) -> Next {
    match (state, left) {
        (State::None, _) => Next::Rest,
        (
            _,
            Left {
                resources: 0,
                sessions: false,
            },
        ) => Next::Complete,
        (State::Auto { deadline }, _) if now >= deadline => Next::PassDeadline,
        (_, Left { sessions: false, .. }) => Next::Wait,
        (State::Auto { .. } | State::Force, _) => Next::Archive,
    }
}

/// Unreleased allocations, or placements without one, that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// `None` in direct mode.
    pub node: Option<NodeId>,
    /// `None` for placements without an allocation.
    pub state: Option<AllocationState>,
    /// It is being given up already.
    pub given_up: bool,
    /// Of their Sessions; see [`Session::works`].
    pub works: bool,
    pub resources: u64,
}

/// What is left, each resource once: `busy + idle + cleanup` is all of them (INV-C23).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaining {
    pub busy: u64,
    pub idle: u64,
    pub cleanup: u64,
    /// Of these, the ones on nodes that are offline now.
    pub offline: BTreeMap<NodeId, u64>,
}

impl Remaining {
    pub fn of(groups: &[Group], is_offline: impl Fn(NodeId) -> bool) -> Self {
        let mut remaining = Self::default();
        for group in groups {
            let cleanup = group.given_up || group.state == Some(AllocationState::CleanupPending);
            let count = match (cleanup, group.works) {
                (true, _) => &mut remaining.cleanup,
                (false, true) => &mut remaining.busy,
                (false, false) => &mut remaining.idle,
            };
            *count += group.resources;
            if let Some(node) = group.node.filter(|node| group.resources > 0 && is_offline(*node)) {
                *remaining.offline.entry(node).or_default() += group.resources;
            }
        }
        remaining
    }

    pub fn on_offline_nodes(&self) -> u64 {
        self.offline.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: State = State::Auto { deadline: 1_000 };
    const STATES: [State; 3] = [State::None, AUTO, State::Force];
    const NOTHING: Left = Left {
        resources: 0,
        sessions: false,
    };

    #[test]
    fn every_event_in_every_state_does_what_the_table_says() {
        use Event::{AskedAuto, AskedForce, Canceled, DeadlinePassed, Emptied};
        let events = [
            AskedAuto { deadline: 9 },
            AskedForce,
            DeadlinePassed,
            Canceled,
            Emptied,
        ];
        let fresh = State::Auto { deadline: 9 };
        let same = |state| Ok((state, None));
        let to = |state, told| Ok((state, Some(told)));
        let expected = [
            [
                to(fresh, Told::Start),
                to(State::Force, Told::Start),
                same(State::None),
                same(State::None),
                same(State::None),
            ],
            [
                same(AUTO),
                to(State::Force, Told::Force),
                to(State::Force, Told::Deadline),
                to(State::None, Told::Cancel),
                to(State::None, Told::Complete),
            ],
            [
                Err(Forced),
                same(State::Force),
                same(State::Force),
                to(State::None, Told::Cancel),
                to(State::None, Told::Complete),
            ],
        ];
        for (state, row) in STATES.into_iter().zip(expected) {
            for (event, expected) in events.into_iter().zip(row) {
                assert_eq!(state.apply(event), expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn an_automatic_reset_spares_what_works_where_it_can_a_forced_one_nothing_and_without_one_nothing_is_archived()
     {
        for state in STATES {
            for (works, has_compute) in [(false, false), (false, true), (true, false), (true, true)] {
                let spared = match state {
                    State::None => true,
                    State::Auto { .. } => works && has_compute,
                    State::Force => false,
                };
                let session = Session { works, has_compute };
                assert_eq!(state.archives(session), !spared, "{state:?} {session:?}");
            }
        }
    }

    #[test]
    fn a_reset_is_complete_at_exactly_nothing_and_its_deadline_is_declared_while_anything_is_left() {
        let cleaning = Left {
            resources: 1,
            sessions: false,
        };
        let unplaced = Left {
            resources: 0,
            sessions: true,
        };
        let working = Left {
            resources: 1,
            sessions: true,
        };
        for now in [0, 999, 1_000, i64::MAX] {
            for left in [NOTHING, cleaning, unplaced, working] {
                assert_eq!(plan(State::None, left, now), Next::Rest);
            }
            for state in [AUTO, State::Force] {
                assert_eq!(plan(state, NOTHING, now), Next::Complete);
            }
            for (left, next) in [
                (cleaning, Next::Wait),
                (unplaced, Next::Archive),
                (working, Next::Archive),
            ] {
                let passed = now >= 1_000;
                assert_eq!(
                    plan(AUTO, left, now),
                    if passed { Next::PassDeadline } else { next }
                );
                assert_eq!(plan(State::Force, left, now), next);
            }
        }
    }

    // inv: INV-C23
    #[test]
    fn each_resource_counts_once_as_cleanup_else_busy_else_idle_and_offline_counts_follow_presence() {
        let nodes: [NodeId; 2] =
            [1, 2].map(|n| format!("00000000-0000-4000-8000-00000000000{n}").parse().unwrap());
        let states = [
            None,
            Some(AllocationState::Reserved),
            Some(AllocationState::Creating),
            Some(AllocationState::Running),
            Some(AllocationState::CleanupPending),
        ];
        let mut groups = Vec::new();
        for node in [None, Some(nodes[0]), Some(nodes[1])] {
            for state in states {
                for (given_up, works) in [(false, false), (false, true), (true, false), (true, true)] {
                    groups.push(Group {
                        node,
                        state,
                        given_up,
                        works,
                        resources: 1 << groups.len(),
                    });
                }
            }
        }
        let all: u64 = groups.iter().map(|g| g.resources).sum();
        let sum = |holds: &dyn Fn(&Group) -> bool| -> u64 {
            groups.iter().filter(|g| holds(g)).map(|g| g.resources).sum()
        };
        let cleanup = |g: &Group| g.given_up || g.state == Some(AllocationState::CleanupPending);
        let remaining = Remaining::of(&groups, |node| node == nodes[1]);
        assert_eq!(remaining.busy + remaining.idle + remaining.cleanup, all);
        assert_eq!(remaining.cleanup, sum(&cleanup));
        assert_eq!(remaining.busy, sum(&|g| !cleanup(g) && g.works));
        assert_eq!(remaining.idle, sum(&|g| !cleanup(g) && !g.works));
        let away = sum(&|g| g.node == Some(nodes[1]));
        assert_eq!(remaining.offline, BTreeMap::from([(nodes[1], away)]));
        assert_eq!(remaining.on_offline_nodes(), away);
        assert_eq!(Remaining::of(&[], |_| true), Remaining::default());
    }
}
