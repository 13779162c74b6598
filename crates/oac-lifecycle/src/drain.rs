//! Emptying a node while everything runs (core.md section 15).
//!
//! A drain is a few stored facts about a node: an absolute deadline, what then happens to what still runs, and whether the
//! deadline was declared passed. [`plan`] looks at them and at the node's counts and names the one next step, so that a Core
//! that is killed between any two steps, or another one that takes over, goes on where the rows are.

use oac_model::{AllocationState, ComputePhase};

use crate::Millis;

/// How long a drain may last.
pub const SHORTEST_SECONDS: i64 = 60;
pub const LONGEST_SECONDS: i64 = 604_800;

/// What becomes at the deadline of what still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Its Session is archived.
    Archive,
    /// Its sandbox is cleaned up; the Session stays.
    Terminate,
}

/// A drain as it is stored, on the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    pub deadline: Millis,
    /// It was declared passed, which is audited once.
    pub deadline_passed: bool,
    /// Suspended sandboxes have to go too.
    pub release: bool,
}

/// The node's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub active: u64,
    pub retained: u64,
}

/// The next step of a drain. Each is one transaction, [`Next::End`] one for each sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing is left: the drain is over and the cordon stays.
    Complete,
    /// Declare the deadline passed.
    PassDeadline,
    /// End what [`ending`] names; then wait until the node has cleaned up.
    End,
    Wait,
}

pub fn plan(drain: &Drain, held: Held, now: Millis) -> Next {
    let left = if drain.release { held.retained } else { held.active };
    match (left, drain.deadline_passed) {
        (0, _) => Next::Complete,
        (_, true) => Next::End,
        (_, false) if now >= drain.deadline => Next::PassDeadline,
        (_, false) => Next::Wait,
    }
}

/// One allocation on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sandbox {
    pub state: AllocationState,
    pub phase: ComputePhase,
    /// It is being given up already.
    pub given_up: bool,
    /// A checkpoint is bound that no restore has used up.
    pub restorable: bool,
}

/// How a drain whose deadline passed ends one allocation on its node; `None` for one that is being given up already, and
/// for one that it spares: a suspended one unless those have to go too, and, where sandboxes are terminated, one whose
/// checkpoint may be all there is of its files until its suspension or restore has settled.
pub fn ending(then: Then, release: bool, sandbox: Sandbox) -> Option<Then> {
    let alive = match sandbox.state {
        AllocationState::Reserved | AllocationState::Creating | AllocationState::Running => !sandbox.given_up,
        AllocationState::CleanupPending | AllocationState::Released => false,
    };
    let ends = match sandbox.phase {
        ComputePhase::Disabled | ComputePhase::Running | ComputePhase::Quiescing => Some(then),
        // Its retention ends, and its Session goes on without its files.
        ComputePhase::Suspended => release.then_some(Then::Terminate),
        ComputePhase::Suspending | ComputePhase::Restoring => (then == Then::Archive).then_some(then),
        ComputePhase::Waking => (then == Then::Archive || !sandbox.restorable).then_some(then),
    };
    ends.filter(|_| alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Drain = Drain {
        deadline: 1_000,
        deadline_passed: false,
        release: false,
    };
    const NOTHING: Held = Held {
        active: 0,
        retained: 0,
    };

    #[test]
    fn a_drain_waits_for_its_deadline_declares_it_passed_once_and_then_ends_what_is_left() {
        let held = Held {
            active: 1,
            retained: 1,
        };
        assert_eq!(plan(&DRAIN, held, 999), Next::Wait);
        assert_eq!(plan(&DRAIN, held, 1_000), Next::PassDeadline);
        let passed = Drain {
            deadline_passed: true,
            ..DRAIN
        };
        // However far the clock was set back since.
        for now in [0, 1_000, i64::MAX] {
            assert_eq!(plan(&passed, held, now), Next::End);
        }
    }

    #[test]
    fn a_drain_is_over_once_nothing_active_is_left_and_with_release_nothing_at_all() {
        let suspended = Held {
            active: 0,
            retained: 2,
        };
        for deadline_passed in [false, true] {
            let drain = Drain {
                deadline_passed,
                ..DRAIN
            };
            let release = Drain {
                release: true,
                ..drain
            };
            for now in [0, 5_000] {
                assert_eq!(plan(&drain, NOTHING, now), Next::Complete);
                assert_eq!(plan(&drain, suspended, now), Next::Complete);
                assert_eq!(plan(&release, NOTHING, now), Next::Complete);
                assert_ne!(plan(&release, suspended, now), Next::Complete);
            }
        }
    }

    #[test]
    fn what_is_given_up_is_left_alone_and_terminating_spares_what_is_on_its_way_to_or_from_a_checkpoint() {
        use AllocationState as A;
        use ComputePhase as P;
        let states = [
            A::Reserved,
            A::Creating,
            A::Running,
            A::CleanupPending,
            A::Released,
        ];
        let phases = [
            P::Disabled,
            P::Running,
            P::Quiescing,
            P::Suspending,
            P::Suspended,
            P::Restoring,
            P::Waking,
        ];
        for then in [Then::Archive, Then::Terminate] {
            for (release, restorable) in [(false, false), (false, true), (true, false), (true, true)] {
                for state in states {
                    for phase in phases {
                        let sandbox = |given_up| Sandbox {
                            state,
                            phase,
                            given_up,
                            restorable,
                        };
                        assert_eq!(ending(then, release, sandbox(true)), None);
                        let expected = match phase {
                            _ if matches!(state, A::CleanupPending | A::Released) => None,
                            P::Suspended => release.then_some(Then::Terminate),
                            P::Suspending | P::Restoring if then == Then::Terminate => None,
                            P::Waking if then == Then::Terminate && restorable => None,
                            _ => Some(then),
                        };
                        assert_eq!(
                            ending(then, release, sandbox(false)),
                            expected,
                            "{then:?} {release} {:?}",
                            sandbox(false)
                        );
                    }
                }
            }
        }
    }
}
