//! When which generation is prepared, repaired or collected (node.md section 7, first table). Pure; `now` is an
//! argument, counted from any fixed moment.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | Idle k | candidate due, nothing else runs | Running |
//! | Running | exit 0 | Verifying |
//! | Running | 65, other failure, 30 min | Backoff k+1 |
//! | Running | 75 | Idle k, not before 1 min |
//! | Running | target changed, shutdown | Idle k |
//! | Verifying | the probe is ready | Idle 0 |
//! | Verifying | the probe fails | Backoff k+1 |
//! | Verifying | the probe is canceled | Verifying |
//! | Backoff k | 1, 2, 5, 10, then 30 min elapsed | Idle k |
//!
//! A collection that failed waits as long, counted for itself; a busy one a minute.

use std::{collections::BTreeMap, time::Duration};

use oac_model::Generation;

use crate::{
    keys::Deployment,
    limits::{ATTEMPT, BACKOFF, BUSY},
    readiness::{Ended, Probed},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Running { since: Duration },
    Verifying,
}

#[derive(Debug, Clone, Copy)]
struct Schedule {
    phase: Phase,
    failures: usize,
    not_before: Duration,
}

const FRESH: Schedule = Schedule {
    phase: Phase::Idle,
    failures: 0,
    not_before: Duration::ZERO,
};

impl Schedule {
    fn fail(&mut self, now: Duration) {
        self.phase = Phase::Idle;
        self.not_before = now + BACKOFF[self.failures.min(BACKOFF.len() - 1)];
        self.failures += 1;
    }
}

/// A generation that could be worked on, as the node sees it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub generation: Generation,
    /// Its readiness asks for it ([`crate::readiness::Readiness::wants_attempt`]).
    pub wanted: bool,
    /// An operation, a probe or a helper uses it.
    pub used: bool,
    /// It is being removed.
    pub going: bool,
}

/// The schedule of one node. At most one preparation, repair or collection runs.
#[derive(Debug, Default)]
pub struct Attempts {
    schedules: BTreeMap<Generation, Schedule>,
    /// Of collections that failed; a generation whose collection succeeded is here no longer.
    collections: BTreeMap<Generation, Schedule>,
    deployment: Option<Deployment>,
    collecting: bool,
    /// The last one that was neither target nor serving; the next rotation continues behind it.
    last: Option<Generation>,
}

impl Attempts {
    /// A delivery was adopted. Returns the running attempt that it cancels: a changed target is prepared first, whatever
    /// runs (INV-N37). Nothing is prepared before the first delivery.
    #[must_use = "the attempt's process group has to be killed"]
    pub fn deployed(&mut self, deployment: Deployment) -> Option<Generation> {
        let before = self.deployment.replace(deployment)?;
        (before.target != deployment.target)
            .then(|| self.running())
            .flatten()
    }

    /// The generation whose attempt runs.
    pub fn running(&self) -> Option<Generation> {
        let running = |schedule: &Schedule| matches!(schedule.phase, Phase::Running { .. });
        self.schedules
            .iter()
            .find(|(_, schedule)| running(schedule))
            .map(|(generation, _)| *generation)
    }

    /// Nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.collecting && self.running().is_none()
    }

    /// The candidate that is due: target, serving, then the others in turn.
    pub fn due(&self, candidates: &[Candidate], now: Duration) -> Option<Generation> {
        let Deployment { target, serving } = self.deployment?;
        if !self.is_idle() {
            return None;
        }
        let due = |candidate: &&Candidate| {
            let schedule = self.schedules.get(&candidate.generation).unwrap_or(&FRESH);
            candidate.wanted
                && !candidate.used
                && !candidate.going
                && schedule.phase == Phase::Idle
                && schedule.not_before <= now
        };
        // Behind the last one first, then from the beginning.
        let turn = |generation: Generation| (self.last.is_some_and(|last| generation <= last), generation);
        candidates
            .iter()
            .filter(due)
            .map(|candidate| candidate.generation)
            .min_by_key(|generation| {
                (
                    *generation != target,
                    Some(*generation) != serving,
                    turn(*generation),
                )
            })
    }

    /// The attempt starts. False where something else runs, or nothing was delivered: then it must not.
    #[must_use]
    pub fn start(&mut self, generation: Generation, now: Duration) -> bool {
        let Some(Deployment { target, serving }) = self.deployment else {
            return false;
        };
        if !self.is_idle() {
            return false;
        }
        if generation != target && Some(generation) != serving {
            self.last = Some(generation);
        }
        self.schedules.entry(generation).or_insert(FRESH).phase = Phase::Running { since: now };
        true
    }

    /// The running attempt is over its deadline: its process group is killed, which ends it as failed.
    pub fn overdue(&self, now: Duration) -> Option<Generation> {
        self.schedules
            .iter()
            .find_map(|(generation, schedule)| match schedule.phase {
                Phase::Running { since } if now >= since + ATTEMPT => Some(*generation),
                _ => None,
            })
    }

    /// The running attempt ended.
    pub fn ended(&mut self, generation: Generation, how: Ended, now: Duration) {
        let Some(schedule) = self.schedules.get_mut(&generation) else {
            return;
        };
        if !matches!(schedule.phase, Phase::Running { .. }) {
            return;
        }
        match how {
            Ended::Completed => schedule.phase = Phase::Verifying,
            Ended::TransferFailed | Ended::Failed => schedule.fail(now),
            Ended::Busy => {
                schedule.phase = Phase::Idle;
                schedule.not_before = now + BUSY;
            }
            Ended::Canceled => schedule.phase = Phase::Idle,
        }
    }

    /// `install.lock` or the lease was busy before anything was started: not before a minute, nothing counted.
    pub fn busy(&mut self, generation: Generation, now: Duration) {
        let schedule = self.schedules.entry(generation).or_insert(FRESH);
        if schedule.phase == Phase::Idle {
            schedule.not_before = now + BUSY;
        }
    }

    /// A probe ended.
    pub fn probed(&mut self, generation: Generation, how: Probed, now: Duration) {
        let Some(schedule) = self.schedules.get_mut(&generation) else {
            return;
        };
        if schedule.phase != Phase::Verifying {
            return;
        }
        match how {
            Probed::Ready => *schedule = FRESH,
            Probed::Failed(_) => schedule.fail(now),
            Probed::Canceled => {}
        }
    }

    /// A collection starts. False where something else runs.
    #[must_use]
    pub fn start_collection(&mut self) -> bool {
        let idle = self.is_idle();
        self.collecting |= idle;
        idle
    }

    /// A granted generation is not collected again before the failed collection's backoff has elapsed.
    pub fn may_collect(&self, generation: Generation, now: Duration) -> bool {
        let schedule = self.collections.get(&generation);
        schedule.is_none_or(|schedule| schedule.not_before <= now)
    }

    /// The collection ended.
    pub fn collected(&mut self, generation: Generation, how: Ended, now: Duration) {
        self.collecting = false;
        let schedule = self.collections.entry(generation).or_insert(FRESH);
        match how {
            Ended::Completed => {
                self.collections.remove(&generation);
            }
            Ended::TransferFailed | Ended::Failed => schedule.fail(now),
            Ended::Busy => schedule.not_before = now + BUSY,
            Ended::Canceled => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use oac_model::DiagnosticCode;

    use super::*;

    fn g(n: i64) -> Generation {
        Generation::try_from(n).unwrap()
    }

    fn wanted(n: i64) -> Candidate {
        Candidate {
            generation: g(n),
            wanted: true,
            used: false,
            going: false,
        }
    }

    fn delivered(target: i64, serving: Option<i64>) -> Attempts {
        let mut attempts = Attempts::default();
        let deployment = Deployment {
            target: g(target),
            serving: serving.map(g),
        };
        assert_eq!(attempts.deployed(deployment), None);
        attempts
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn before_a_delivery_nothing_is_due_and_at_most_one_thing_runs() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.due(&[wanted(1)], MINUTE), None);
        assert!(!attempts.start(g(1), MINUTE));
        let mut attempts = delivered(3, Some(1));
        let all = [wanted(1), wanted(2), wanted(3)];
        assert_eq!(attempts.due(&all, MINUTE), Some(g(3)));
        assert!(attempts.start(g(3), MINUTE));
        assert_eq!(attempts.due(&all, MINUTE), None);
        assert!(!attempts.start(g(1), MINUTE) && !attempts.start_collection());
        attempts.ended(g(3), Ended::Canceled, MINUTE);
        assert!(attempts.start_collection());
        assert_eq!(attempts.due(&all, MINUTE), None);
        assert!(!attempts.start(g(3), MINUTE) && !attempts.start_collection());
        attempts.collected(g(2), Ended::Completed, MINUTE);
        assert_eq!(attempts.due(&all, MINUTE), Some(g(3)));
    }

    #[test]
    fn target_and_serving_come_first_and_the_others_take_turns() {
        let mut attempts = delivered(5, Some(4));
        let all = [wanted(1), wanted(2), wanted(3), wanted(4), wanted(5)];
        let mut order = Vec::new();
        for turn in 0..5 {
            let next = attempts.due(&all, MINUTE * turn).unwrap();
            assert!(attempts.start(next, MINUTE * turn));
            attempts.ended(next, Ended::Busy, MINUTE * 100);
            order.push(next.get());
        }
        assert_eq!(order, [5, 4, 1, 2, 3]);
        let mut attempts = delivered(5, None);
        assert!(attempts.start(g(2), MINUTE));
        attempts.ended(g(2), Ended::Canceled, MINUTE);
        assert_eq!(
            attempts.due(&[wanted(1), wanted(2), wanted(3)], MINUTE),
            Some(g(3))
        );
        for skipped in [
            Candidate {
                used: true,
                ..wanted(1)
            },
            Candidate {
                going: true,
                ..wanted(1)
            },
            Candidate {
                wanted: false,
                ..wanted(1)
            },
        ] {
            assert_eq!(attempts.due(&[skipped], MINUTE), None);
        }
    }

    #[test]
    fn failures_back_off_by_1_2_5_10_and_then_30_minutes_and_an_unready_probe_is_a_failure() {
        for by_probe in [false, true] {
            let mut attempts = delivered(1, None);
            let mut now = MINUTE;
            for minutes in [1, 2, 5, 10, 30, 30, 30] {
                assert!(attempts.start(g(1), now));
                if by_probe {
                    attempts.ended(g(1), Ended::Completed, now);
                    assert_eq!(
                        attempts.due(&[wanted(1)], now + MINUTE * 1000),
                        None,
                        "awaits its probe"
                    );
                    attempts.probed(g(1), Probed::Canceled, now);
                    assert_eq!(
                        attempts.due(&[wanted(1)], now + MINUTE * 1000),
                        None,
                        "still awaits it"
                    );
                    attempts.probed(g(1), Probed::Failed(DiagnosticCode::ProviderUnavailable), now);
                } else {
                    attempts.ended(g(1), Ended::TransferFailed, now);
                }
                let due = now + MINUTE * minutes;
                assert_eq!(attempts.due(&[wanted(1)], due - Duration::from_millis(1)), None);
                assert_eq!(attempts.due(&[wanted(1)], due), Some(g(1)));
                now = due;
            }
            assert!(attempts.start(g(1), now));
            attempts.ended(g(1), Ended::Completed, now);
            attempts.probed(g(1), Probed::Ready, now);
            assert!(attempts.start(g(1), now));
            attempts.ended(g(1), Ended::Failed, now);
            assert_eq!(
                attempts.due(&[wanted(1)], now + MINUTE),
                Some(g(1)),
                "counted from 0 again"
            );
        }
    }

    #[test]
    fn a_failed_collection_waits_by_the_same_steps_and_a_done_one_counts_from_0() {
        let mut attempts = Attempts::default();
        let mut now = MINUTE;
        for minutes in [1, 2, 5, 10, 30, 30] {
            assert!(attempts.may_collect(g(1), now) && attempts.start_collection());
            attempts.collected(g(1), Ended::Failed, now);
            let due = now + MINUTE * minutes;
            assert!(!attempts.may_collect(g(1), due - Duration::from_millis(1)));
            assert!(attempts.may_collect(g(2), now), "another's");
            now = due;
        }
        attempts.collected(g(1), Ended::Busy, now);
        assert!(!attempts.may_collect(g(1), now) && attempts.may_collect(g(1), now + MINUTE));
        attempts.collected(g(1), Ended::Canceled, now + MINUTE);
        assert!(attempts.may_collect(g(1), now + MINUTE));
        attempts.collected(g(1), Ended::Completed, now);
        attempts.collected(g(1), Ended::Failed, now);
        assert!(attempts.may_collect(g(1), now + MINUTE));
    }

    #[test]
    fn busy_and_canceled_count_nothing_and_a_changed_target_cancels() {
        let mut attempts = delivered(1, None);
        assert!(attempts.start(g(1), MINUTE));
        attempts.ended(g(1), Ended::Busy, MINUTE);
        assert_eq!(attempts.due(&[wanted(1)], MINUTE), None);
        assert!(attempts.start(g(1), MINUTE * 2));
        let next = Deployment {
            target: g(2),
            serving: None,
        };
        assert_eq!(attempts.deployed(next), Some(g(1)));
        attempts.ended(g(1), Ended::Canceled, MINUTE * 2);
        assert!(attempts.start(g(1), MINUTE * 2));
        attempts.ended(g(1), Ended::Failed, MINUTE * 2);
        assert_eq!(
            attempts.due(&[wanted(1)], MINUTE * 3),
            Some(g(1)),
            "the first failure"
        );
        assert!(attempts.start(g(2), MINUTE * 3));
        let served = Deployment {
            serving: Some(g(2)),
            ..next
        };
        assert_eq!(attempts.deployed(served), None, "the target is the same");
        let newer = Deployment {
            target: g(3),
            serving: Some(g(2)),
        };
        assert_eq!(
            attempts.deployed(newer),
            Some(g(2)),
            "a serving one waits for the target"
        );
        assert_eq!(attempts.overdue(MINUTE * 33 - Duration::from_millis(1)), None);
        assert_eq!(attempts.overdue(MINUTE * 33), Some(g(2)));
        attempts.ended(g(2), Ended::Failed, MINUTE * 33);
        attempts.busy(g(2), MINUTE * 40);
        assert_eq!(attempts.due(&[wanted(2)], MINUTE * 40), None);
        assert_eq!(attempts.due(&[wanted(2)], MINUTE * 41), Some(g(2)));
    }
}
