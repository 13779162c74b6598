//! Every pair of a state and an event, against the table in the documentation of `Held`.

use std::collections::BTreeSet;

use oac_lifecycle::{
    allocation::{self, Cause, CreateProof, Kill, Mutation, Sighting, State},
    suspension::{Answer, Checkpoint, Compute, Event, Held, Observation, Open, Progress, Request},
};
use oac_model::ComputePhase as P;

use crate::scene::{node, operation};

const PHASES: [P; 6] = [
    P::Running,
    P::Quiescing,
    P::Suspending,
    P::Suspended,
    P::Restoring,
    P::Waking,
];

pub fn compute(generation: i64, at: usize) -> Compute {
    Compute {
        generation,
        node: node(at),
        restored_from: (generation > 0).then(|| operation(0)),
        seen: true,
        kill_sent: false,
        failed: false,
        ended: false,
        kill_owed: false,
    }
}

/// The plainest state of a phase; restoring and waking with a checkpoint that is not used up.
pub fn held(phase: P) -> Held {
    let kept = Checkpoint {
        operation: operation(0),
        source: 0,
        consumed: false,
    };
    let restored = matches!(phase, P::Restoring | P::Waking);
    let mut computes = vec![compute(0, 0)];
    if restored {
        computes.push(Compute {
            seen: false,
            ..compute(1, 1)
        });
    }
    let open = Open {
        request: Request::Suspend(operation(0)),
        node: node(0),
        progress: Progress::Intent,
    };
    Held {
        state: State::Running { phase },
        deferred: None,
        node: node(usize::from(restored)),
        leave: false,
        computes,
        checkpoint: (restored || phase == P::Suspended).then_some(kept),
        suspend: (phase != P::Running).then(|| operation(0)),
        open: (phase == P::Quiescing).then_some(open),
        unobserved: BTreeSet::new(),
        restore_failures: 0,
    }
}

/// Waking that no checkpoint backs: quiescing was given up, or a suspend rolled back.
pub fn waking_alone() -> Held {
    Held {
        state: State::Running { phase: P::Waking },
        open: None,
        ..held(P::Quiescing)
    }
}

pub fn cleanup(held: &Held) -> Held {
    held.apply(Event::GivenUp(Cause::Archive)).unwrap()
}

fn with(held: Held, request: Request, progress: Progress) -> Held {
    let node = held.node_of(request).unwrap();
    Held {
        open: Some(Open {
            request,
            node,
            progress,
        }),
        ..held
    }
}

/// Every phase, with each mutation that can be open in it, given up or not, on a node to be left or not.
fn states() -> Vec<Held> {
    let mut plain: Vec<Held> = PHASES.map(held).into();
    plain.push(waking_alone());
    let mut all = plain.clone();
    for state in &plain {
        let current = state.current().unwrap().generation;
        let requests = [
            Request::Suspend(operation(0)),
            Request::Resume,
            Request::KillCompute(current),
            Request::ResumeCompute,
            Request::Wake,
        ];
        for request in requests {
            let may = match (request, state.phase().unwrap()) {
                (Request::Suspend(_), P::Suspending) | (Request::Resume, P::Restoring) => true,
                (Request::KillCompute(_), P::Restoring | P::Waking) => state.replaceable(),
                (Request::ResumeCompute, P::Restoring | P::Waking) | (Request::Wake, P::Waking) => true,
                _ => false,
            };
            if may {
                all.push(with(state.clone(), request, Progress::Intent));
                all.push(with(state.clone(), request, Progress::Sent));
            }
        }
    }
    let consumed = held(P::Waking).apply(Event::Linked).unwrap();
    all.push(with(consumed.clone(), Request::DeleteRetained, Progress::Intent));
    all.push(with(consumed.clone(), Request::DeleteRetained, Progress::Sent));
    all.push(with(consumed.clone(), Request::KillCompute(0), Progress::Sent));
    all.push(consumed);
    for state in all.clone() {
        all.push(Held {
            leave: true,
            ..state.clone()
        });
        if matches!(state.phase(), Some(P::Suspending | P::Restoring)) {
            all.push(Held {
                deferred: Some(Cause::Archive),
                ..state
            });
        }
    }
    all
}

fn events(held: &Held) -> Vec<Event> {
    let current = held.current().unwrap().generation;
    let mut all = vec![
        Event::Named,
        Event::QuiescingBegun(operation(1)),
        Event::QuiesceRefused,
        Event::Quiesced,
        Event::RestoreIntended(node(0)),
        Event::RestoreIntended(node(1)),
        Event::MarkedSent,
        Event::NotSent,
        Event::AnswerLost,
        Event::Linked,
        Event::LossConfirmed,
        Event::GivenUp(Cause::Discard),
        Event::GivenUp(Cause::RetentionEnd),
    ];
    all.extend(Answer::ALL.map(Event::Answered));
    for of in [
        Observation::Suspend,
        Observation::Resume,
        Observation::Compute(current),
    ] {
        all.extend(Answer::ALL.map(|answer| Event::Observed {
            node: held.node,
            of,
            answer,
        }));
    }
    all
}

/// Where an event leads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    Refused,
    Stay,
    Phase(P),
    Cleanup(Cause),
}

/// The table, row by row.
fn table(state: &Held, event: &Event) -> To {
    let phase = state.phase().unwrap();
    let open = state.open;
    let sent = open.is_some_and(|o| o.progress == Progress::Sent);
    let target_given_up = state.is_given_up(state.current().unwrap().generation);
    // What an answer about the open suspend or resume leads to.
    let about = |request: Option<Request>, answer: Answer| match (phase, request) {
        (P::Suspending, Some(Request::Suspend(_))) => match (answer, state.deferred) {
            (Answer::Suspended, None) => To::Phase(P::Suspended),
            (Answer::Running | Answer::Paused, None) => To::Phase(P::Waking),
            (
                Answer::Suspended | Answer::Running | Answer::Paused | Answer::Ended | Answer::NotFound,
                Some(cause),
            ) => To::Cleanup(cause),
            _ => To::Stay,
        },
        (P::Restoring, Some(Request::Resume)) => match (answer, state.deferred) {
            (Answer::Invalid, None) => To::Phase(P::Suspended),
            (Answer::Running, None) if !target_given_up && !state.leave => To::Phase(P::Waking),
            (Answer::Unknown | Answer::Refused | Answer::Done, _) | (_, None) => To::Stay,
            (_, Some(cause)) => To::Cleanup(cause),
        },
        (P::Restoring | P::Waking, Some(Request::KillCompute(g)))
            if answer == Answer::Done && state.replaceable() && state.current().unwrap().generation == g =>
        {
            match state.deferred {
                None => To::Phase(P::Suspended),
                Some(cause) => To::Cleanup(cause),
            }
        }
        _ => To::Stay,
    };
    match (event, phase) {
        (Event::QuiescingBegun(_), P::Running) if open.is_none() && state.checkpoint.is_none() => {
            To::Phase(P::Quiescing)
        }
        (Event::QuiesceRefused, P::Quiescing) => To::Phase(P::Running),
        (Event::Quiesced, P::Quiescing) => To::Phase(P::Suspending),
        (Event::MarkedSent, P::Quiescing) => To::Refused,
        (Event::RestoreIntended(_), P::Suspended) => To::Phase(P::Restoring),
        (Event::MarkedSent, _) if open.is_some() && !sent => To::Stay,
        (Event::NotSent, _) if open.is_some() => match (open.unwrap().request, state.deferred) {
            (Request::Suspend(_) | Request::Resume, Some(cause)) => To::Cleanup(cause),
            (Request::Suspend(_), None) => To::Phase(P::Waking),
            (Request::Resume, None) => To::Phase(P::Suspended),
            _ => To::Stay,
        },
        (Event::AnswerLost, _) if sent => To::Stay,
        (Event::Answered(answer), _) if sent => about(open.map(|o| o.request), *answer),
        (Event::Observed { of, answer, .. }, _) if open.is_none() => match of {
            Observation::Suspend => about(Some(Request::Suspend(operation(0))), *answer),
            Observation::Resume => about(Some(Request::Resume), *answer),
            Observation::Compute(_) if phase == P::Restoring && *answer != Answer::Unknown => {
                state.deferred.map_or(To::Stay, To::Cleanup)
            }
            _ => To::Stay,
        },
        (Event::Linked, P::Waking) if !target_given_up => To::Phase(P::Running),
        (Event::LossConfirmed, _) if open.is_none() => match phase {
            P::Restoring | P::Waking if state.unconsumed().is_some() => match state.deferred {
                None => To::Phase(P::Suspended),
                Some(cause) => To::Cleanup(cause),
            },
            P::Quiescing | P::Suspended => To::Refused,
            _ => To::Cleanup(Cause::ComputeLost),
        },
        (Event::GivenUp(Cause::RetentionEnd), _) if state.unconsumed().is_none() => To::Refused,
        (Event::GivenUp(_), P::Suspending | P::Restoring) => To::Stay,
        (Event::GivenUp(cause), _) => To::Cleanup(*cause),
        _ => To::Refused,
    }
}

// inv: INV-C34, INV-C36
#[test]
fn every_pair_of_state_and_event_follows_the_table_or_is_refused() {
    let mut pairs = 0;
    for state in states() {
        for event in events(&state) {
            pairs += 1;
            let found = match state.apply(event.clone()) {
                Err(refused) => {
                    assert_eq!(*refused.held, state);
                    To::Refused
                }
                Ok(next) => match next.state {
                    State::Running { phase } if Some(phase) == state.phase() => To::Stay,
                    State::Running { phase } => To::Phase(phase),
                    State::CleanupPending { cause, .. } => To::Cleanup(cause),
                    other => panic!("{state:?} on {event:?} gave {other:?}"),
                },
            };
            assert_eq!(found, table(&state, &event), "{state:#?} on {event:?}");
        }
    }
    assert!(pairs > 3_000, "{pairs}");
}

// inv: INV-C41
#[test]
fn a_return_counts_when_the_target_came_into_being_was_refused_or_lost_and_not_on_a_node_to_be_left() {
    let sent = |seen: bool, leave: bool, request| {
        let mut state = with(held(P::Restoring), request, Progress::Sent);
        state.leave = leave;
        state.computes[1].seen = seen;
        state
    };
    let kill = |seen, leave| sent(seen, leave, Request::KillCompute(1));
    for (state, event, counts) in [
        (kill(false, false), Event::Answered(Answer::Done), false),
        (kill(true, false), Event::Answered(Answer::Done), true),
        (kill(true, true), Event::Answered(Answer::Done), false),
        (
            sent(false, false, Request::Resume),
            Event::Answered(Answer::Invalid),
            true,
        ),
        (sent(false, false, Request::Resume), Event::NotSent, false),
        (held(P::Restoring), Event::LossConfirmed, true),
        (held(P::Waking), Event::LossConfirmed, true),
    ] {
        let next = state.apply(event.clone()).unwrap();
        assert_eq!(next.phase(), Some(P::Suspended));
        assert_eq!(next.restore_failures, u32::from(counts), "{event:?} of {state:?}");
        assert_eq!(next.computes[1].failed, counts);
        let ends = event != Event::LossConfirmed;
        assert_eq!(next.computes[1].ended, ends, "a lost target's kill is still owed");
        assert_eq!(next.former().count(), usize::from(!ends));
        assert_eq!(next.node, node(1), "what is retained stays where the target was");
    }
}

// inv: INV-C36
#[test]
fn a_target_is_given_up_from_the_intent_of_its_kill_on_unless_that_is_dropped_unsent() {
    let waking = held(P::Waking);
    let intended = waking.apply(Event::Intended(Request::KillCompute(1))).unwrap();
    assert!(intended.apply(Event::Linked).is_err());
    let dropped = intended.apply(Event::NotSent).unwrap();
    assert!(dropped.apply(Event::Linked).is_ok());
    let sent = intended.apply(Event::MarkedSent).unwrap();
    assert!(sent.apply(Event::Linked).is_err());
    assert!(sent.apply(Event::NotSent).unwrap().apply(Event::Linked).is_ok());
    let lost = sent.apply(Event::AnswerLost).unwrap();
    assert!(lost.apply(Event::Linked).is_err());
    // A further attempt that was dropped makes nothing of the first undone.
    let observed = lost
        .apply(Event::Observed {
            node: node(1),
            of: Observation::Compute(1),
            answer: Answer::Running,
        })
        .unwrap();
    let again = observed.apply(Event::Intended(Request::KillCompute(1))).unwrap();
    assert!(again.apply(Event::NotSent).unwrap().apply(Event::Linked).is_err());
}

// inv: INV-C35
#[test]
fn the_checkpoint_is_used_up_by_the_link_and_by_nothing_else_and_deleted_only_after_it_or_in_cleanup() {
    let delete = Event::Intended(Request::DeleteRetained);
    for phase in [P::Suspended, P::Restoring, P::Waking] {
        assert!(held(phase).apply(delete.clone()).is_err(), "{phase:?}");
        for event in events(&held(phase)) {
            let consumed = held(phase)
                .apply(event.clone())
                .is_ok_and(|next| next.checkpoint.is_some_and(|c| c.consumed));
            assert_eq!(
                consumed,
                phase == P::Waking && event == Event::Linked,
                "{event:?}"
            );
        }
    }
    let linked = held(P::Waking).apply(Event::Linked).unwrap();
    assert!(linked.checkpoint.unwrap().consumed);
    assert!(linked.apply(delete.clone()).is_ok());
    assert!(
        linked.apply(Event::QuiescingBegun(operation(1))).is_err(),
        "it blocks the next suspension"
    );
    assert!(cleanup(&held(P::Suspended)).apply(delete).is_ok());
}

// inv: INV-C21
#[test]
fn a_checkpoint_has_one_target_at_a_time_and_none_where_a_lost_one_may_be() {
    let lost = held(P::Waking).apply(Event::LossConfirmed).unwrap();
    assert_eq!(lost.haunted(), BTreeSet::from([node(1)]));
    assert_eq!(lost.failed_at(), BTreeSet::from([node(1)]));
    assert!(lost.apply(Event::RestoreIntended(node(1))).is_err());
    let again = lost.apply(Event::RestoreIntended(node(0))).unwrap();
    assert_eq!(again.current().unwrap().generation, 2);
    assert!(again.apply(Event::RestoreIntended(node(0))).is_err());
    let linked = held(P::Waking).apply(Event::Linked).unwrap();
    let suspended = Held {
        state: State::Running { phase: P::Suspended },
        ..linked
    };
    assert!(
        suspended.apply(Event::RestoreIntended(node(0))).is_err(),
        "used up"
    );
}

// inv: INV-C28
#[test]
fn a_cleanup_is_over_only_without_checkpoint_open_operation_and_compute_not_known_to_have_ended() {
    let confirmed = State::CleanupPending {
        cause: Cause::Archive,
        create: CreateProof::Settled,
        kill: Kill::Confirmed,
    };
    let absent = Event::Base(allocation::Event::Observed(Sighting::Absent { lost: false }));
    let mut cleaning = Held {
        state: confirmed,
        ..held(P::Suspended)
    };
    assert_eq!(cleaning.apply(absent.clone()).unwrap().state, confirmed);
    cleaning.checkpoint = None;
    assert_eq!(cleaning.apply(absent.clone()).unwrap().state, confirmed);
    cleaning.computes[0].ended = true;
    assert_eq!(cleaning.apply(absent).unwrap().state, State::Released);
}

// inv: INV-C16, INV-C38
#[test]
fn one_mutation_is_open_at_a_time_and_one_of_unknown_outcome_blocks_its_own_node_alone() {
    let linked = held(P::Waking).apply(Event::Linked).unwrap();
    let sent = linked
        .apply(Event::Intended(Request::KillCompute(0)))
        .unwrap()
        .apply(Event::MarkedSent)
        .unwrap();
    assert!(sent.apply(Event::Intended(Request::DeleteRetained)).is_err());
    let lost = sent.apply(Event::AnswerLost).unwrap();
    assert_eq!(lost.unobserved, BTreeSet::from([node(0)]));
    // The former node says nothing; at the present one everything goes on.
    assert!(lost.apply(Event::Intended(Request::KillCompute(0))).is_err());
    assert!(lost.apply(Event::Intended(Request::DeleteRetained)).is_ok());
    let observed = |answer| Event::Observed {
        node: node(0),
        of: Observation::Compute(0),
        answer,
    };
    let unknown = lost.apply(observed(Answer::Unknown)).unwrap();
    assert!(unknown.apply(Event::Intended(Request::KillCompute(0))).is_err());
    for answer in [Answer::NotFound, Answer::Ended, Answer::Refused] {
        let definite = lost.apply(observed(answer)).unwrap();
        assert!(definite.apply(Event::Intended(Request::KillCompute(0))).is_ok());
    }
    let mut cleaning = cleanup(&linked);
    cleaning.state = State::CleanupPending {
        cause: Cause::Archive,
        create: CreateProof::Settled,
        kill: Kill::Open(Mutation::Sent),
    };
    assert!(cleaning.apply(Event::Intended(Request::KillCompute(0))).is_err());
}

// inv: INV-C39
#[test]
fn an_operator_forgets_former_computes_elsewhere_and_never_the_one_in_use() {
    let all = BTreeSet::from([node(0), node(1)]);
    let linked = held(P::Waking).apply(Event::Linked).unwrap();
    let forgotten = linked.apply(Event::Forgotten(all.clone())).unwrap();
    let told = |held: &Held| -> Vec<_> { held.computes.iter().map(|c| (c.ended, c.kill_owed)).collect() };
    assert_eq!(told(&forgotten), [(true, true), (false, false)]);
    let running = held(P::Running).apply(Event::Forgotten(all)).unwrap();
    assert_eq!(told(&running), [(false, false)]);
}

// inv: INV-C38, INV-C39
#[test]
fn a_forgotten_compute_is_waited_for_by_nothing_and_its_kill_stays_owed_until_its_node_confirms_it() {
    let there = BTreeSet::from([node(0)]);
    let kill = Request::KillCompute(0);
    let absence = Event::Base(allocation::Event::Observed(Sighting::Absent { lost: false }));
    let cleaned = |held: &Held| Held {
        checkpoint: None,
        computes: vec![
            held.computes[0].clone(),
            Compute {
                ended: true,
                ..held.computes[1].clone()
            },
        ],
        state: State::CleanupPending {
            cause: Cause::Archive,
            create: CreateProof::Settled,
            kill: Kill::Confirmed,
        },
        ..held.clone()
    };
    let waits = cleaned(&held(P::Waking).apply(Event::Linked).unwrap());
    assert!(waits.waits_only_elsewhere());
    assert_ne!(waits.apply(absence.clone()).unwrap().state, State::Released);
    let forgotten = waits.apply(Event::Forgotten(there)).unwrap();
    assert!(!forgotten.waits_only_elsewhere());
    let released = forgotten.apply(absence).unwrap();
    assert_eq!(released.state, State::Released);
    for held in [forgotten, released] {
        let sent = with(held.apply(Event::Intended(kill)).unwrap(), kill, Progress::Sent);
        let lost = sent.apply(Event::AnswerLost).unwrap();
        assert_eq!(lost.owed().count(), 1);
        assert!(lost.apply(Event::Intended(kill)).is_err(), "it is observed first");
        let seen = Event::Observed {
            node: node(0),
            of: Observation::Compute(0),
            answer: Answer::Ended,
        };
        let again = lost.apply(seen).unwrap().apply(Event::Intended(kill)).unwrap();
        let confirmed = with(again, kill, Progress::Sent)
            .apply(Event::Answered(Answer::Done))
            .unwrap();
        assert_eq!(confirmed.owed().count(), 0);
        assert_eq!(confirmed.state, held.state);
        assert!(confirmed.apply(Event::Intended(kill)).is_err(), "it is owed once");
    }
}

/// Where the outcome of a kill is unknown, a resume without an answer would be taken for what was unknown before.
// inv: INV-C21
#[test]
fn no_checkpoint_is_restored_where_something_is_unobserved() {
    let mut suspended = held(P::Suspended);
    suspended.computes.insert(0, compute(0, 1));
    suspended.computes[1].generation = 1;
    suspended.checkpoint = suspended.checkpoint.map(|kept| Checkpoint { source: 1, ..kept });
    let kill = Request::KillCompute(0);
    let lost = suspended
        .apply(Event::Intended(kill))
        .and_then(|held| held.apply(Event::MarkedSent))
        .and_then(|held| held.apply(Event::AnswerLost))
        .unwrap();
    assert_eq!(lost.haunted(), BTreeSet::from([node(1)]));
    assert!(lost.apply(Event::RestoreIntended(node(1))).is_err());
    assert!(lost.apply(Event::RestoreIntended(node(0))).is_ok());
    let observed = Event::Observed {
        node: node(1),
        of: Observation::Compute(0),
        answer: Answer::Ended,
    };
    let observed = lost.apply(observed).unwrap();
    assert!(observed.apply(Event::RestoreIntended(node(1))).is_ok());
}

/// Of every state with a mutation under way: a lost answer is told by its node alone, which nothing else had made so.
// inv: INV-P32
#[test]
fn what_is_open_at_a_node_is_the_only_thing_that_is_unknown_there() {
    for state in states() {
        for event in events(&state) {
            for at in [node(0), node(1)] {
                let before = Held {
                    unobserved: BTreeSet::from([at]),
                    ..state.clone()
                };
                let Ok(after) = before.apply(event.clone()) else {
                    continue;
                };
                if let (None, Some(open)) = (before.open, after.open) {
                    assert_ne!(open.node, at, "{event:?} in {before:?}");
                }
            }
        }
    }
}

#[test]
fn no_checkpoint_is_restored_where_a_forgotten_compute_may_still_be() {
    let mut back = held(P::Waking).apply(Event::LossConfirmed).unwrap();
    back.node = node(0);
    let intend = Event::RestoreIntended(node(1));
    assert!(
        back.apply(intend.clone()).is_err(),
        "its lost target is not confirmed gone"
    );
    let forgotten = back.apply(Event::Forgotten(BTreeSet::from([node(1)]))).unwrap();
    assert!(forgotten.haunted().contains(&node(1)));
    assert!(forgotten.apply(intend.clone()).is_err());
    let kill = Request::KillCompute(1);
    let killed = with(
        forgotten.apply(Event::Intended(kill)).unwrap(),
        kill,
        Progress::Sent,
    )
    .apply(Event::Answered(Answer::Done))
    .unwrap();
    assert!(killed.apply(intend).is_ok());
}
