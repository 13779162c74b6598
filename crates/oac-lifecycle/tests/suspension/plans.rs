//! When the planner acts.

use std::collections::BTreeMap;

use oac_lifecycle::{
    Millis,
    allocation::{self, Cause, Diagnostic, Presence},
    limits,
    suspension::{
        Action, Answer, Demand, Event, Held, Next, Observation, Request, Snapshot, Watch, plan, rests_for,
    },
};
use oac_model::{ComputePhase as P, ConnectionId, NodeId, OperationId};

use crate::{
    scene::node,
    table::{cleanup, held, waking_alone},
};

struct Core {
    held: Held,
    watch: Watch,
    now: Millis,
    connected: BTreeMap<NodeId, ConnectionId>,
    demand: Demand,
    phase_for: Millis,
    retention_in: Option<Millis>,
    quiet_in: Option<Millis>,
    linked: bool,
}

impl Core {
    fn of(held: Held) -> Self {
        Self {
            held,
            watch: Watch::default(),
            now: 0,
            connected: (0..2).map(|n| (node(n), ConnectionId::random())).collect(),
            demand: Demand::None,
            phase_for: 0,
            retention_in: Some(3_600_000),
            quiet_in: None,
            linked: false,
        }
    }

    fn snapshot<'a>(&self, held: &'a Held) -> Snapshot<'a> {
        Snapshot {
            held,
            base: allocation::Snapshot {
                state: held.state,
                given_up: None,
                in_flight: false,
                node: match self.connected.get(&held.node) {
                    Some(id) => Presence::Online {
                        connection: *id,
                        ready: true,
                    },
                    None => Presence::Offline,
                },
                initialized: true,
                linked: self.linked,
            },
            connected: self.connected.clone(),
            demand: self.demand,
            quiet_in: self.quiet_in,
            phase_for: self.phase_for,
            retention_in: self.retention_in,
            shown: None,
        }
    }

    fn next(&mut self) -> Next {
        let held = self.held.clone();
        let snapshot = self.snapshot(&held);
        self.watch
            .tick(&held, &snapshot.base, &snapshot.connected, self.now);
        plan(&snapshot, &self.watch, self.now)
    }

    fn acts(&mut self) -> Option<Action> {
        match self.next() {
            Next::Act(action) => Some(action),
            Next::Wait { .. } => None,
        }
    }

    /// The `info` of a node that connected is answered.
    fn asked_at_connecting(&mut self) {
        self.acts();
        let connection = *self.connected.get(&self.held.node).unwrap();
        let running = allocation::Sighting::Running;
        self.watch
            .base
            .looked(self.held.state, connection, running, self.now);
    }

    fn saw(&mut self, of: Observation, answer: Answer) {
        let node = self.held.node;
        self.watch.observed(&self.held, node, of, answer, self.now);
        self.held = self.held.apply(Event::Observed { node, of, answer }).unwrap();
    }
}

const RETENTION_ENDS: Action = Action::Base(allocation::Action::GiveUp(Cause::RetentionEnd));

// inv: INV-C33
#[test]
fn retention_ends_at_its_deadline_in_every_phase_that_has_an_unused_checkpoint_and_never_before() {
    for phase in [P::Suspended, P::Restoring, P::Waking] {
        let mut core = Core::of(held(phase));
        core.retention_in = Some(1);
        assert_ne!(core.acts(), Some(RETENTION_ENDS));
        core.retention_in = Some(0);
        assert_eq!(core.acts(), Some(RETENTION_ENDS), "{phase:?}");
        core.held = core.held.apply(Event::GivenUp(Cause::RetentionEnd)).unwrap();
        assert_ne!(core.acts(), Some(RETENTION_ENDS), "it is said once");
    }
    for failures in 0..10 {
        let mut core = Core::of(held(P::Suspended));
        core.held.restore_failures = failures;
        core.demand = Demand::New;
        assert_ne!(core.acts(), Some(RETENTION_ENDS));
    }
    let mut core = Core::of(held(P::Waking).apply(Event::Linked).unwrap());
    core.retention_in = Some(0);
    assert_ne!(core.acts(), Some(RETENTION_ENDS), "used up");
    let late = core.held.apply(Event::GivenUp(Cause::RetentionEnd));
    assert!(late.is_err(), "nor stored when the plan is older than the link");
}

#[test]
fn a_suspended_sandbox_is_restored_on_demand_at_once_then_with_backoff_then_for_a_new_input_alone() {
    let mut core = Core::of(held(P::Suspended));
    assert_eq!(core.acts(), None);
    core.demand = Demand::Waits;
    assert_eq!(core.acts(), Some(Action::Restore));
    for (failures, wait) in [(1, 5_000), (2, 10_000)] {
        core.held.restore_failures = failures;
        core.phase_for = wait - 1;
        assert_eq!(core.acts(), None, "{failures}");
        core.phase_for = wait;
        assert_eq!(core.acts(), Some(Action::Restore), "{failures}");
    }
    core.held.restore_failures = limits::RESTORE_ATTEMPTS;
    core.phase_for = 24 * 3_600_000;
    assert_eq!(core.acts(), Some(Action::Show(Diagnostic::ComputeUnconfirmed)));
    core.demand = Demand::New;
    assert_eq!(core.acts(), Some(Action::Restore));
    core.phase_for = limits::WAKE_FAILED - 1;
    assert_ne!(
        core.acts(),
        Some(Action::Restore),
        "not earlier than ten minutes after"
    );
}

#[test]
fn a_database_clock_that_is_set_back_delays_no_restore_beyond_its_backoff() {
    let mut core = Core::of(held(P::Suspended));
    core.demand = Demand::Waits;
    core.phase_for = -3_600_000;
    assert_eq!(core.acts(), Some(Action::Restore));
    core.held.restore_failures = 1;
    core.now += 4_999;
    assert_eq!(core.acts(), None);
    core.now += 1;
    assert_eq!(
        core.acts(),
        Some(Action::Restore),
        "this owner saw the backoff pass"
    );
}

#[test]
fn a_restore_that_finds_no_node_waits_before_it_looks_for_one_again() {
    let mut core = Core::of(held(P::Suspended));
    core.demand = Demand::Waits;
    assert_eq!(core.acts(), Some(Action::Restore));
    core.watch.no_target(core.now);
    assert_eq!(
        core.next(),
        Next::Wait {
            until: Some(limits::RESTORE_RETRY)
        }
    );
}

// inv: INV-C37
#[test]
fn a_wake_of_ten_minutes_kills_a_target_that_can_be_replaced_and_only_shows_one_that_cannot() {
    for (state, expected) in [
        (held(P::Waking), Action::KillCompute(1)),
        (waking_alone(), Action::Show(Diagnostic::ComputeUnconfirmed)),
    ] {
        let mut core = Core::of(state);
        core.acts();
        // Time in which the node was away does not count.
        let away = core.connected.remove(&core.held.node).unwrap();
        core.now += limits::WAKE_FAILED * 2;
        core.acts();
        core.connected.insert(core.held.node, away);
        core.acts();
        core.now += limits::WAKE_FAILED - 1;
        assert_ne!(core.acts(), Some(expected));
        core.now += 1;
        assert_eq!(core.acts(), Some(expected));
    }
}

#[test]
fn a_woken_compute_is_thawed_if_paused_told_to_wake_once_it_runs_and_looked_at_again_without_a_link() {
    let mut core = Core::of(waking_alone());
    assert_eq!(core.acts(), Some(Action::Look(node(0), Observation::Compute(0))));
    core.saw(Observation::Compute(0), Answer::Paused);
    assert_eq!(core.acts(), Some(Action::ResumeCompute));
    core.saw(Observation::Compute(0), Answer::Running);
    assert_eq!(core.acts(), Some(Action::Wake));
    core.watch.woke(core.now);
    core.asked_at_connecting();
    assert_eq!(core.acts(), None);
    core.now += limits::WAKE_LINK;
    assert_eq!(core.acts(), Some(Action::Look(node(0), Observation::Compute(0))));
    // One whose outcome is unknown is repeated only after an observation.
    let sent = core.held.apply(Event::Intended(Request::Wake)).unwrap();
    let sent = sent.apply(Event::MarkedSent).unwrap();
    core.held = sent.apply(Event::Answered(Answer::Refused)).unwrap();
    core.watch.answer_lost(node(0), core.now);
    assert_eq!(core.acts(), Some(Action::Look(node(0), Observation::Compute(0))));
    core.saw(Observation::Compute(0), Answer::Running);
    assert_eq!(core.acts(), None, "with backoff");
    core.now += limits::CLEANUP_BACKOFF_FIRST;
    assert_eq!(core.acts(), Some(Action::Wake));
}

#[test]
fn a_target_on_a_node_to_be_left_is_killed_once_its_resume_is_answered_and_not_before() {
    let mut core = Core::of(held(P::Restoring));
    core.held.leave = true;
    assert_eq!(core.acts(), Some(Action::Look(node(1), Observation::Resume)));
    core.saw(Observation::Resume, Answer::Running);
    assert_eq!(core.held.phase(), Some(P::Restoring));
    assert_eq!(core.acts(), Some(Action::KillCompute(1)));
    let mut core = Core::of(held(P::Waking));
    core.held.leave = true;
    assert_eq!(core.acts(), Some(Action::KillCompute(1)));
}

// inv: INV-C38
#[test]
fn a_former_compute_at_a_node_that_is_away_keeps_nothing_waiting() {
    let mut linked = held(P::Waking).apply(Event::Linked).unwrap();
    linked.computes[1].seen = true;
    let mut core = Core::of(linked.clone());
    core.linked = true;
    core.connected.remove(&node(0));
    assert_eq!(core.acts(), Some(Action::DeleteRetained));
    core.held.checkpoint = None;
    core.quiet_in = Some(0);
    assert_eq!(core.acts(), Some(Action::Suspend));
    // An intent for it that could not be sent is dropped.
    core.held = linked.apply(Event::Intended(Request::KillCompute(0))).unwrap();
    assert_eq!(core.acts(), Some(Action::DropIntent));
    // In cleanup it delays the release and nothing else.
    let mut core = Core::of(cleanup(&linked));
    core.connected.remove(&node(0));
    assert_eq!(core.acts(), Some(Action::KillCompute(1)));
    core.held.computes[1].ended = true;
    assert_eq!(core.acts(), Some(Action::DeleteRetained));
    core.held.checkpoint = None;
    assert_eq!(core.acts(), Some(Action::Base(allocation::Action::Kill)));
}

#[test]
fn a_cleanup_kills_the_newest_compute_first() {
    let mut core = Core::of(cleanup(&held(P::Waking)));
    assert_eq!(core.acts(), Some(Action::KillCompute(1)));
    core.held.computes[1].ended = true;
    assert_eq!(core.acts(), Some(Action::KillCompute(0)));
}

#[test]
fn a_session_is_suspended_when_it_was_quiet_for_long_enough_and_is_linked() {
    let mut core = Core::of(held(P::Running));
    core.linked = true;
    core.asked_at_connecting();
    assert_eq!(core.acts(), None, "something keeps it");
    core.quiet_in = Some(1);
    assert_eq!(
        core.next(),
        Next::Wait {
            until: Some(core.now + 1)
        }
    );
    core.quiet_in = Some(0);
    assert_eq!(core.acts(), Some(Action::Suspend));
    core.linked = false;
    assert_ne!(core.acts(), Some(Action::Suspend), "there is nobody to quiesce");
}

#[test]
fn what_an_earlier_owner_was_quiescing_is_woken_and_what_it_suspended_is_only_reconciled() {
    assert_eq!(Core::of(held(P::Quiescing)).acts(), Some(Action::DropIntent));
    assert_eq!(
        Core::of(held(P::Suspending)).acts(),
        Some(Action::Look(node(0), Observation::Suspend))
    );
    assert_eq!(
        Core::of(held(P::Restoring)).acts(),
        Some(Action::Look(node(1), Observation::Resume))
    );
}

/// A sandbox that is linked and idle, and may be suspended now.
fn idle() -> Core {
    let mut core = Core::of(waking_alone().apply(Event::Linked).unwrap());
    core.held.suspend = None;
    (core.linked, core.quiet_in) = (true, Some(0));
    core.asked_at_connecting();
    core
}

/// The ways in which a suspend ends and the sandbox goes on.
fn fails(core: &mut Core, how: usize) {
    let mut apply = |event| core.held = core.held.apply(event).unwrap();
    apply(Event::QuiescingBegun(OperationId::random()));
    match how % 3 {
        0 => return apply(Event::QuiesceRefused),
        1 => apply(Event::NotSent),
        _ => {
            apply(Event::Quiesced);
            apply(Event::MarkedSent);
            apply(Event::Answered(Answer::Running));
        }
    }
    assert_eq!(core.held.phase(), Some(P::Waking));
    // However long the wake takes: it is no pause.
    core.acts();
    core.now += limits::CLEANUP_BACKOFF_LAST - 1;
    core.acts();
    core.held = core.held.apply(Event::Linked).unwrap();
}

#[test]
fn a_suspend_that_fails_is_repeated_with_backoff_however_it_failed_until_one_succeeds() {
    for how in 0..3 {
        let mut core = idle();
        assert_eq!(core.acts(), Some(Action::Suspend), "the first at once");
        for (attempt, wait) in [5_000, 10_000, 20_000].into_iter().enumerate() {
            fails(&mut core, how);
            assert_eq!(core.acts(), None, "{how}: {attempt}");
            core.now += wait - 1;
            assert_eq!(core.acts(), None, "{how}: {attempt}");
            core.now += 1;
            assert_eq!(core.acts(), Some(Action::Suspend), "{how}: {attempt}");
        }
        for attempt in 0..20 {
            fails(&mut core, attempt);
            core.acts();
            core.now += limits::CLEANUP_BACKOFF_LAST;
            assert_eq!(core.acts(), Some(Action::Suspend), "never longer than that");
        }
        for event in [
            Event::QuiescingBegun(OperationId::random()),
            Event::Quiesced,
            Event::MarkedSent,
            Event::Answered(Answer::Suspended),
        ] {
            core.held = core.held.apply(event).unwrap();
        }
        core.acts();
        core.held.checkpoint = None;
        core.held.state = allocation::State::Running { phase: P::Running };
        assert_eq!(core.acts(), Some(Action::Suspend), "that one succeeded");
    }
}

#[test]
fn what_is_sent_counts_at_the_node_it_goes_to_and_a_suspend_or_restore_not_before_its_node_is_known() {
    let mut held = held(P::Waking).apply(Event::Linked).unwrap();
    held.computes[1].seen = true;
    let (home, former) = (node(1), node(0));
    assert_eq!(held.node, home);
    for (action, to) in [
        (Action::KillCompute(0), Some(former)),
        (Action::KillCompute(1), Some(home)),
        (Action::Look(former, Observation::Compute(0)), Some(former)),
        (Action::DeleteRetained, Some(home)),
        (Action::Wake, Some(home)),
        (Action::ResumeCompute, Some(home)),
        (Action::Name, Some(home)),
        (Action::Base(allocation::Action::Look), Some(home)),
        (Action::Base(allocation::Action::Kill), Some(home)),
        (Action::Base(allocation::Action::DropIntent), None),
        (RETENTION_ENDS, None),
        (Action::Suspend, None),
        (Action::Restore, None),
        (Action::DropIntent, None),
        (Action::GiveUpAnswer, None),
        (Action::Show(Diagnostic::ComputeUnconfirmed), None),
    ] {
        assert_eq!(action.sends_to(&held), to, "{action:?}");
    }
}

#[test]
fn a_node_that_does_not_take_a_checkpoint_is_passed_over_with_backoff_while_others_are_asked_at_once() {
    let mut core = Core::of(held(P::Suspended));
    core.demand = Demand::Waits;
    assert_eq!(core.acts(), Some(Action::Restore));
    for wait in [5_000, 10_000] {
        core.watch.declined(node(0), core.now);
        assert_eq!(core.acts(), Some(Action::Restore), "another node");
        assert_eq!(core.watch.passed_over(core.now), [node(0)].into());
        core.now += wait - 1;
        assert_eq!(core.watch.passed_over(core.now), [node(0)].into());
        core.now += 1;
        assert!(core.watch.passed_over(core.now).is_empty(), "its turn again");
    }
    core.watch.declined(node(0), core.now);
    core.held = core.held.apply(Event::RestoreIntended(node(1))).unwrap();
    core.acts();
    assert!(
        core.watch.passed_over(core.now).is_empty(),
        "that attempt is over"
    );
}

#[test]
fn a_sandbox_that_nothing_happens_to_unless_somebody_tells_rests_long() {
    let rests = |held: &Held, demand| {
        let mut core = Core::of(held.clone());
        core.demand = demand;
        rests_for(&core.snapshot(held)) == limits::LOOK_RESTING
    };
    let running = waking_alone().apply(Event::Linked).unwrap();
    assert!(rests(&running, Demand::None));
    assert!(rests(&held(P::Suspended), Demand::None));
    assert!(!rests(&held(P::Suspended), Demand::Waits), "it is wanted");
    for phase in [P::Quiescing, P::Suspending, P::Restoring, P::Waking] {
        assert!(!rests(&held(phase), Demand::None), "{phase:?}");
    }
    assert!(rests(&cleanup(&running), Demand::None), "its nodes come and go");
    let mut restored = held(P::Waking).apply(Event::Linked).unwrap();
    assert!(!rests(&restored, Demand::None), "its checkpoint is left");
    restored.checkpoint = None;
    assert!(
        rests(&restored, Demand::None),
        "its source is left at a node that comes and goes"
    );
    let kill = restored.apply(Event::Intended(Request::KillCompute(0))).unwrap();
    assert!(!rests(&kill, Demand::None), "its kill is under way");
}
