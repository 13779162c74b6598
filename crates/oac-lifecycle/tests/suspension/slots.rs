//! The slots of two sandboxes on two nodes, through every order of what may become of them. Each step is one transaction
//! that rechecks its guard with the product's own rules; what a sandbox takes is what its state says.

use std::collections::{BTreeMap, BTreeSet};

use oac_lifecycle::{
    allocation::{Cause, State},
    placement::{self, Node, Request as Wish},
    suspension::{
        Answer, Event, Held, Observation,
        target::{Candidate, takes},
    },
};
use oac_model::{ComputePhase as P, Generation};

use crate::{
    scene::{node as id, operation},
    target::{URL, needs, node},
};

/// A sandbox, as far as slots go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    Nothing,
    Runs(usize),
    Suspended(usize),
    /// Suspended, and wanted.
    Wanted(usize),
    Restores(usize),
    /// Being cleaned up, from a phase that held an active slot or not.
    Cleanup(usize, bool),
}

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// A cleanup takes an active slot whatever it began with.
    CleanupRegains,
    /// A node that takes a checkpoint from elsewhere does not count what it retains.
    IncomingIsAtHome,
    /// The node that has the checkpoint's slot asks for another one.
    HomeIsElsewhere,
    /// A return keeps the active slot of the target.
    ReturnHolds,
}

type Pair = [Life; 2];

#[derive(Clone, Copy)]
struct Limits {
    active: [u32; 2],
    retained: [u32; 2],
    wrong: Option<Wrong>,
}

/// A state of the product that this stands for.
fn held(life: Life) -> Option<Held> {
    let apply = |held: Held, events: &[Event]| {
        events.iter().fold(held, |held, event| {
            held.apply(event.clone())
                .unwrap_or_else(|refused| panic!("{refused}"))
        })
    };
    let running = |at: usize| {
        let held = Held {
            state: State::Running { phase: P::Running },
            deferred: None,
            node: id(at),
            leave: false,
            computes: Vec::new(),
            checkpoint: None,
            suspend: None,
            open: None,
            unobserved: BTreeSet::new(),
            restore_failures: 0,
        };
        let seen = Event::Observed {
            node: id(at),
            of: Observation::Compute(0),
            answer: Answer::Running,
        };
        apply(held, &[Event::Named, seen])
    };
    let suspended = |at: usize| {
        let begun = Event::QuiescingBegun(operation(0));
        let kept = Event::Answered(Answer::Suspended);
        apply(running(at), &[begun, Event::Quiesced, Event::MarkedSent, kept])
    };
    Some(match life {
        Life::Nothing => return None,
        Life::Runs(at) => running(at),
        Life::Suspended(at) | Life::Wanted(at) => suspended(at),
        Life::Restores(at) => apply(
            suspended(1 - at),
            &[Event::RestoreIntended(id(at)), Event::MarkedSent],
        ),
        Life::Cleanup(at, true) => apply(running(at), &[Event::GivenUp(Cause::Archive)]),
        Life::Cleanup(at, false) => apply(suspended(at), &[Event::GivenUp(Cause::Archive)]),
    })
}

impl Limits {
    /// Active and retained on a node.
    fn counts(&self, pair: Pair, at: usize) -> (u32, u32) {
        let mut counts = (0, 0);
        for life in pair {
            let Some(held) = held(life).filter(|held| held.node == id(at)) else {
                continue;
            };
            // Cleanup keeps the phase it found.
            let phase = held.phase().unwrap_or(match life {
                Life::Cleanup(_, false) if self.wrong != Some(Wrong::CleanupRegains) => P::Suspended,
                _ => P::Running,
            });
            let holds = held.holds_active(phase)
                || self.wrong == Some(Wrong::ReturnHolds) && matches!(life, Life::Wanted(_));
            counts.0 += u32::from(holds);
            counts.1 += 1;
        }
        counts
    }

    fn view(&self, pair: Pair, at: usize) -> Node {
        let (active, retained) = self.counts(pair, at);
        Node {
            active,
            retained,
            max_active: self.active[at],
            max_retained: self.retained[at],
            ..node(at)
        }
    }

    fn restores_at(&self, pair: Pair, from: usize, at: usize) -> bool {
        let view = self.view(pair, at);
        let home = match self.wrong {
            Some(Wrong::IncomingIsAtHome) => at,
            Some(Wrong::HomeIsElsewhere) => 1 - at,
            _ => from,
        };
        let candidate = Candidate {
            node: &view,
            ready: true,
            drained: false,
        };
        let needs = oac_lifecycle::suspension::target::Needs {
            home: id(home),
            ..needs()
        };
        takes(&needs, Some(URL), &candidate)
    }

    /// What may become of one of them.
    fn next(&self, pair: Pair, which: usize) -> Vec<Life> {
        let wish = Wish::default();
        match pair[which] {
            Life::Nothing => (0..2)
                .filter(|at| placement::recheck(&wish, URL, Generation::FIRST, &self.view(pair, *at)).is_ok())
                .map(Life::Runs)
                .collect(),
            Life::Runs(at) => vec![Life::Suspended(at), Life::Cleanup(at, true)],
            Life::Suspended(at) => vec![Life::Wanted(at), Life::Cleanup(at, false)],
            Life::Wanted(at) => (0..2)
                .filter(|to| self.restores_at(pair, at, *to))
                .map(Life::Restores)
                .collect(),
            // It links, or returns to suspended where it is.
            Life::Restores(at) => vec![Life::Runs(at), Life::Wanted(at), Life::Cleanup(at, true)],
            Life::Cleanup(..) => vec![Life::Nothing],
        }
    }

    /// Every state that can come about, and from where.
    fn explore(&self) -> BTreeMap<Pair, BTreeSet<Pair>> {
        let start = [Life::Nothing; 2];
        let mut from = BTreeMap::from([(start, BTreeSet::new())]);
        let mut open = vec![start];
        while let Some(pair) = open.pop() {
            for which in 0..2 {
                for life in self.next(pair, which) {
                    let mut next = pair;
                    next[which] = life;
                    let known = from.contains_key(&next);
                    from.entry(next).or_default().insert(pair);
                    if !known {
                        open.push(next);
                    }
                }
            }
        }
        from
    }

    fn over_limit(&self) -> Vec<Pair> {
        let over = |pair: &Pair| {
            (0..2).any(|at| {
                let (active, retained) = self.counts(*pair, at);
                active > self.active[at] || retained > self.retained[at]
            })
        };
        self.explore().into_keys().filter(over).collect()
    }

    /// From where the first of them never runs again, whatever happens.
    fn stuck(&self) -> Vec<Pair> {
        let from = self.explore();
        let runs = |pair: &Pair| matches!(pair[0], Life::Runs(_));
        let mut good: BTreeSet<Pair> = from.keys().copied().filter(runs).collect();
        let mut open: Vec<Pair> = good.iter().copied().collect();
        while let Some(pair) = open.pop() {
            for before in &from[&pair] {
                if good.insert(*before) {
                    open.push(*before);
                }
            }
        }
        from.into_keys().filter(|pair| !good.contains(pair)).collect()
    }
}

fn all(wrong: Option<Wrong>) -> impl Iterator<Item = Limits> {
    let active = [[1, 1], [1, 2]];
    let retained = [[1, 2], [2, 2], [2, 1], [1, 1]];
    active
        .into_iter()
        .flat_map(move |active| retained.map(|retained| (active, retained)))
        .filter(|(active, retained)| (0..2).all(|at| active[at] <= retained[at]))
        .map(move |(active, retained)| Limits {
            active,
            retained,
            wrong,
        })
}

fn goes_over(wrong: Option<Wrong>) -> bool {
    all(wrong).any(|limits| !limits.over_limit().is_empty())
}

fn gets_stuck(wrong: Option<Wrong>) -> bool {
    all(wrong).any(|limits| !limits.stuck().is_empty())
}

// inv: INV-C10, INV-C20, INV-C30, INV-C40
#[test]
fn no_order_of_placements_suspensions_restores_and_cleanups_exceeds_a_limit_or_keeps_a_sandbox_from_running()
{
    for limits in all(None) {
        let (over, stuck) = (limits.over_limit(), limits.stuck());
        assert!(
            over.is_empty(),
            "{:?} {:?}: {over:?}",
            limits.active,
            limits.retained
        );
        assert!(
            stuck.is_empty(),
            "{:?} {:?}: {stuck:?}",
            limits.active,
            limits.retained
        );
    }
}

#[test]
fn a_cleanup_that_takes_the_active_slot_of_a_suspended_sandbox_is_found() {
    assert!(goes_over(Some(Wrong::CleanupRegains)));
}

#[test]
fn a_restore_that_takes_no_retained_slot_at_its_target_is_found() {
    assert!(goes_over(Some(Wrong::IncomingIsAtHome)));
}

#[test]
fn a_checkpoint_that_needs_a_second_retained_slot_at_home_is_found() {
    assert!(gets_stuck(Some(Wrong::HomeIsElsewhere)));
}

#[test]
fn a_return_to_suspended_that_keeps_the_active_slot_is_found() {
    assert!(gets_stuck(Some(Wrong::ReturnHolds)));
}
