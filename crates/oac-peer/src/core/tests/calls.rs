use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

// req: P-038, P-039, P-040, P-041, P-042
#[test]
fn a_call_becomes_a_request_with_the_next_sequence_and_what_is_left_of_its_deadline() {
    let mut c = live(Moment(0));
    let first = requested(
        c.call(call(1, 0, command_arguments(), Moment(31_000)), Moment(1_000))
            .unwrap(),
    );
    assert_eq!((first.id, first.sequence), (request_id(1), 1));
    assert_eq!(
        (first.connection_id, first.owner_epoch),
        (connection(0), epoch(1))
    );
    assert_eq!(first.deployment_generation, 1);
    let body = first.body.unwrap();
    assert_eq!(body.timeout_ms, 30_000);
    assert_eq!(
        (body.reference, body.arguments),
        (reference(0), command_arguments())
    );
    let far = requested(
        c.call(call(2, 0, Arguments::Info, Moment(u64::MAX)), Moment(1_000))
            .unwrap(),
    );
    assert_eq!((far.sequence, far.body.unwrap().timeout_ms), (2, 120_000));
    let late = c.call(call(3, 0, Arguments::Info, Moment(1_000)), Moment(1_000));
    assert_eq!(late, Err(Unsent::NoTime));
    let next = requested(
        c.call(call(4, 0, Arguments::Info, Moment(2_000)), Moment(1_999))
            .unwrap(),
    );
    assert_eq!(
        (next.sequence, next.body.unwrap().timeout_ms),
        (3, 1),
        "what was not sent took no sequence"
    );
}

// req: P-054
// inv: INV-P13
#[test]
fn what_may_not_be_sent_is_refused_unsent() {
    let soon = Moment(10_000);
    let mut c = opening(Moment(0));
    assert_eq!(
        c.call(call(1, 0, Arguments::Info, soon), Moment(0)),
        Err(Unsent::NotConnected)
    );
    let mut c = live_with(false, Moment(0));
    let create = create_arguments(reference(0));
    assert_eq!(
        c.call(call(1, 0, create.clone(), soon), Moment(0)),
        Err(Unsent::NotReady)
    );
    let mut other = call(1, 0, Arguments::Info, soon);
    other.generation = generation(2);
    assert_eq!(c.call(other, Moment(0)), Err(Unsent::Generation));
    // A recorded report changes readiness, one that merely arrived does not.
    let beat = heartbeat(connection(0), epoch(1), true);
    c.apply(Event::Message(beat.as_bytes(), wall()), Moment(0));
    assert_eq!(
        c.call(call(1, 0, create.clone(), soon), Moment(0)),
        Err(Unsent::NotReady)
    );
    c.apply(Event::HealthRecorded(Recorded::Done(None)), Moment(0));
    c.call(call(1, 0, create, soon), Moment(0)).unwrap();
    assert_eq!(
        c.call(call(2, 0, Arguments::Kill, soon), Moment(0)),
        Err(Unsent::MutationOutstanding)
    );
    c.call(call(3, 0, Arguments::Info, soon), Moment(0)).unwrap();
    c.call(call(4, 1, Arguments::Kill, soon), Moment(0)).unwrap();
    let mut wrong = call(5, 2, create_arguments(reference(0)), soon);
    wrong.reference = reference(2);
    assert!(matches!(c.call(wrong, Moment(0)), Err(Unsent::Invalid(_))));
    // Even after its caller was told, the create is outstanding until its response arrives.
    c.apply(Event::Tick, soon);
    let later = Moment(20_000);
    assert_eq!(
        c.call(call(6, 0, Arguments::Kill, later), soon),
        Err(Unsent::MutationOutstanding)
    );
    let late = frame(response(request_id(1), Some("unconfirmed"), None));
    assert_eq!(c.apply(Event::Message(late.as_bytes(), wall()), soon), []);
    c.call(call(6, 0, Arguments::Kill, later), soon).unwrap();
}

// req: P-055
// inv: INV-P12
#[test]
fn at_most_thirty_two_requests_are_pending_those_given_up_included() {
    let mut c = live(Moment(0));
    for n in 0..PENDING_REQUESTS as u64 {
        c.call(call(n, n, Arguments::Info, Moment(1_000)), Moment(0))
            .unwrap();
    }
    let one_more = || call(99, 99, Arguments::Info, Moment(9_000));
    assert_eq!(c.call(one_more(), Moment(0)), Err(Unsent::Full));
    c.give_up(request_id(0));
    let told = c.apply(Event::Tick, Moment(1_000));
    assert_eq!(told.len(), PENDING_REQUESTS - 1, "who gave up is not told");
    assert_eq!(c.call(one_more(), Moment(1_000)), Err(Unsent::Full));
    let late = frame(response(
        request_id(0),
        None,
        Some(ResponseResult::Info(running(reference(0)))),
    ));
    assert_eq!(
        c.apply(Event::Message(late.as_bytes(), wall()), Moment(1_000)),
        []
    );
    c.call(one_more(), Moment(1_000)).unwrap();
}

// req: P-057, P-068
#[test]
fn a_timeout_and_a_disconnect_are_uncertain_and_a_late_answer_is_dropped() {
    let mut c = live(Moment(0));
    c.call(call(1, 0, Arguments::Kill, Moment(500)), Moment(0))
        .unwrap();
    c.call(call(2, 1, Arguments::Kill, Moment(90_000)), Moment(0))
        .unwrap();
    assert_eq!(c.next_wakeup(), Some(Moment(500)));
    let uncertain = |id, why| Action::Resolve(id, CallOutcome::Uncertain(why));
    assert_eq!(
        c.apply(Event::Tick, Moment(500)),
        [uncertain(request_id(1), Uncertain::Timeout)]
    );
    let late = frame(response(request_id(1), None, None));
    assert_eq!(c.apply(Event::Message(late.as_bytes(), wall()), Moment(600)), []);
    assert_eq!(
        c.apply(Event::Message(late.as_bytes(), wall()), Moment(600)),
        [],
        "an unknown id is ignored"
    );
    let actions = c.apply(Event::Lost, Moment(700));
    assert_eq!(actions[0], uncertain(request_id(2), Uncertain::Disconnected));
    assert_eq!(
        c.call(call(3, 0, Arguments::Info, Moment(9_000)), Moment(700)),
        Err(Unsent::NotConnected)
    );
}

#[test]
fn a_response_of_another_connection_closes() {
    let mut c = live(Moment(0));
    c.call(call(1, 0, Arguments::Kill, Moment(500)), Moment(0))
        .unwrap();
    let mut foreign = response(request_id(1), None, None);
    foreign.connection_id = connection(9);
    let actions = c.apply(Event::Message(frame(foreign).as_bytes(), wall()), Moment(0));
    assert_eq!(close_of(&actions), Some(&CloseReason::ConnectionId));
    assert!(actions.contains(&Action::Resolve(
        request_id(1),
        CallOutcome::Uncertain(Uncertain::Disconnected)
    )));
}

proptest! {
    // inv: INV-P12, INV-P13
    #[test]
    fn every_sent_call_is_told_exactly_once_and_sequences_have_no_gap(
        steps in prop::collection::vec((0u8..8, 0u64..5, 0u64..2_000), 1..200),
    ) {
        let mut c = live(Moment(0));
        let (mut now, mut next, mut expected) = (Moment(0), 0u64, 1i64);
        let mut waiting: HashMap<RequestId, Moment> = HashMap::new();
        let mut sent: Vec<(RequestId, u64, bool)> = Vec::new();
        for (step, lane, pause) in steps {
            now = now.plus_millis(pause);
            let mut actions = Vec::new();
            match step {
                0..=2 => {
                    next += 1;
                    let kill = step == 2;
                    let arguments = if kill { Arguments::Kill } else { Arguments::Info };
                    let deadline = now.plus_millis(pause);
                    let outstanding = sent.iter().any(|s| s.1 == lane && s.2);
                    match c.call(call(next, lane, arguments, deadline), now) {
                        Ok(action) => {
                            let request = requested(action);
                            prop_assert_eq!(request.sequence, expected);
                            prop_assert!(!(kill && outstanding), "two mutations of one allocation");
                            prop_assert!(request.body.unwrap().timeout_ms >= 1);
                            expected += 1;
                            waiting.insert(request.id, deadline);
                            sent.push((request.id, lane, kill));
                        }
                        Err(refused) => prop_assert!(
                            sent.len() == PENDING_REQUESTS || (kill && outstanding) || pause == 0,
                            "{refused:?}"
                        ),
                    }
                }
                3 | 4 if !sent.is_empty() => {
                    let (id, lane, kill) = sent.remove(pause as usize % sent.len());
                    let result = (!kill).then(|| ResponseResult::Info(running(reference(lane))));
                    actions = c.apply(Event::Message(frame(response(id, None, result)).as_bytes(), wall()), now);
                }
                5 => if let Some(id) = waiting.keys().next().copied() {
                    c.give_up(id);
                    waiting.remove(&id);
                },
                6 => {
                    let beat = heartbeat(connection(0), epoch(1), true);
                    actions = c.apply(Event::Message(beat.as_bytes(), wall()), now);
                    actions.extend(c.apply(Event::HealthRecorded(Recorded::Done(None)), now));
                }
                _ => {
                    // The node is never silent in this world.
                    actions = c.apply(Event::Bytes(now), now);
                    actions.extend(c.apply(Event::Tick, now));
                }
            }
            for action in actions {
                if let Action::Resolve(id, outcome) = action {
                    // Giving up may cross a timeout in the same step.
                    if let Some(deadline) = waiting.remove(&id)
                        && outcome == CallOutcome::Uncertain(Uncertain::Timeout)
                    {
                        prop_assert!(deadline <= now);
                    }
                }
            }
            prop_assert_eq!(c.pending(), sent.len());
            prop_assert!(c.pending() <= PENDING_REQUESTS);
            if c.state() != StateName::Live {
                return Ok(());
            }
        }
        let told: Vec<_> = c.apply(Event::Lost, now).into_iter().filter_map(|a| match a {
            Action::Resolve(id, CallOutcome::Uncertain(_)) => Some(id),
            _ => None,
        }).collect();
        for id in &told {
            prop_assert!(waiting.remove(id).is_some(), "told twice");
        }
        prop_assert!(waiting.is_empty(), "a caller was forgotten: {:?}", waiting);
    }
}
