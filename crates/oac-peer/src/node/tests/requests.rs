use proptest::prelude::*;

use super::*;

// inv: INV-P1, INV-P2
#[test]
fn an_invalid_frame_closes_and_has_no_effect() {
    let good = text(request(connection(0), 1, LONG, reference(0), Arguments::Info));
    let bad = [
        good.replace(r#""version":1"#, r#""version":2"#),
        good.replace(r#""sequence":1"#, r#""sequence":1.0"#),
        good.replace(r#""sequence":1"#, r#""sequence":1,"sequence":1"#),
        good.replace(r#""sequence":1"#, r#""Sequence":1"#),
        good.replace(r#""sequence":1"#, r#""sequence":1,"more":0"#),
        good.replace(r#""sequence":1"#, r#""sequence":null"#),
        good.replace(r#""tenant_id""#, r#""extra":1,"tenant_id""#),
        good.replace(r#""type":"request""#, r#""type":"response""#),
        format!("{good}x"),
        String::new(),
    ];
    for bad in bad {
        let mut node = live(Moment(0));
        let actions = node.apply(Event::Message(bad.as_bytes()), Moment(0));
        assert!(
            matches!(actions[..], [Action::Close(Reason::InvalidFrame(_))]),
            "{bad}: {actions:?}"
        );
        assert_eq!(node.state(), StateName::Waiting);
    }
}

// req: P-050, P-052
// inv: INV-P7
#[test]
fn a_wrong_connection_epoch_sequence_or_generation_is_a_violation_and_runs_nothing() {
    let base = || request(connection(0), 1, LONG, reference(0), Arguments::Info);
    let change = |f: &dyn Fn(&mut oac_wire::frames::Request)| {
        let mut request = base();
        f(&mut request);
        text(request)
    };
    let generation_two = change(&|r| {
        r.deployment_generation = 2;
        r.body.as_mut().unwrap().deployment_generation = generation(2);
    });
    for (frame, violation) in [
        (
            change(&|r| r.connection_id = connection(9)),
            Violation::Connection,
        ),
        (change(&|r| r.owner_epoch = epoch(2)), Violation::Epoch),
        (change(&|r| r.sequence = 2), Violation::Sequence),
        (generation_two, Violation::Generation),
        (
            text(base()).replace(r#""deployment_generation":1"#, r#""deployment_generation":0"#),
            Violation::Generation,
        ),
    ] {
        let mut node = live(Moment(0));
        let actions = node.apply(Event::Message(frame.as_bytes()), Moment(0));
        assert_eq!(
            actions,
            [Action::Close(Reason::Violation(violation)), Action::Refresh]
        );
        // After a violation no frame is accepted (INV-P28).
        assert_eq!(node.apply(Event::Message(text(base()).as_bytes()), Moment(0)), []);
    }
    let mut node = live(Moment(0));
    assert_eq!(
        jobs(send(&mut node, 0, 1, 0, Arguments::Info, Moment(0))).len(),
        1
    );
    let repeated = send(&mut node, 0, 1, 0, Arguments::Info, Moment(0));
    assert_eq!(close_of(&repeated), Some(&Reason::Violation(Violation::Sequence)));
}

// req: P-051, P-062
// inv: INV-P28
#[test]
fn a_value_out_of_bounds_answers_invalid_and_the_next_sequence_is_accepted() {
    let good = |sequence| {
        text(request(
            connection(0),
            sequence,
            50,
            reference(0),
            Arguments::Info,
        ))
    };
    let mut node = live(Moment(0));
    for (index, (from, to)) in [
        (r#""operation":"info""#, r#""operation":"reboot""#),
        (r#""operation":"info""#, r#""operation":"create""#),
        (r#""timeout_ms":50"#, r#""timeout_ms":0"#),
        (r#""timeout_ms":50"#, r#""timeout_ms":120001"#),
    ]
    .into_iter()
    .enumerate()
    {
        let sequence = index as i64 + 1;
        let frame = good(sequence).replace(from, to);
        let actions = node.apply(Event::Message(frame.as_bytes()), Moment(0));
        let [response] = &responses(&actions)[..] else {
            panic!("{to}: {actions:?}");
        };
        assert_eq!(response.error_code.as_deref(), Some("invalid"), "{to}");
        assert_eq!(
            (response.id, response.connection_id),
            (request_id(sequence as u64), connection(0))
        );
        assert_eq!(response.result, Ok(None));
    }
    let frame = good(5);
    assert_eq!(
        jobs(node.apply(Event::Message(frame.as_bytes()), Moment(0))).len(),
        1
    );
}

// inv: INV-P11
#[test]
fn create_on_a_provider_that_is_not_ready_is_unconfirmed_without_native_work() {
    let mut node = live(Moment(0));
    let now = Moment(HEARTBEAT_MILLIS);
    let actions = node.apply(Event::Tick, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(false))), now);
    let create = create_arguments(reference(0));
    let actions = send(&mut node, 0, 1, 0, create.clone(), now);
    assert_eq!(responses(&actions)[0].error_code.as_deref(), Some("unconfirmed"));
    assert!(jobs(actions).is_empty());
    let info = send(&mut node, 0, 2, 0, Arguments::Info, now);
    let [job] = &jobs(info)[..] else {
        panic!("observing needs no readiness");
    };
    let queued = send(&mut node, 0, 3, 0, create, now);
    assert_eq!(queued, [], "the create waits for its lane");
    let later = Moment(2 * HEARTBEAT_MILLIS);
    let actions = node.apply(Event::Tick, later);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(true))), later);
    let ticket = job.ticket;
    node.apply(
        Event::Answered(ticket, crate::Outcome::failed(FailureCode::NotFound)),
        later,
    );
    let started = jobs(node.apply(Event::Ended(ticket), later));
    assert_eq!(started.len(), 1, "readiness counts when the operation starts");
}

// req: P-056, P-063
// inv: INV-N25
#[test]
fn a_budget_that_ends_in_the_queue_is_answered_unconfirmed_and_runs_nothing() {
    let mut node = live(Moment(0));
    let first = jobs(send(&mut node, 0, 1, 0, Arguments::Info, Moment(0)));
    let short = text(request(
        connection(0),
        2,
        1_000,
        reference(0),
        command_arguments(),
    ));
    assert_eq!(node.apply(Event::Message(short.as_bytes()), Moment(500)), []);
    assert_eq!(node.next_wakeup(), Some(Moment(1_500)));
    assert_eq!(node.apply(Event::Tick, Moment(1_499)), []);
    let actions = node.apply(Event::Tick, Moment(1_500));
    let [response] = &responses(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(response.id, request_id(2));
    assert_eq!(response.error_code.as_deref(), Some("unconfirmed"));
    assert_eq!(node.apply(Event::Ended(first[0].ticket), Moment(1_600)).len(), 1);
    assert_eq!(node.active_operations(), 0, "the expired entry never starts");
}

// inv: INV-P8, INV-N26
#[test]
fn a_budget_that_ends_while_running_is_answered_once_and_keeps_the_lane() {
    let mut node = live(Moment(0));
    let command = text(request(
        connection(0),
        1,
        1_000,
        reference(0),
        command_arguments(),
    ));
    let job = jobs(node.apply(Event::Message(command.as_bytes()), Moment(0))).remove(0);
    assert_eq!(job.deadline, Moment(1_000));
    let actions = node.apply(Event::Tick, Moment(1_000));
    assert_eq!(
        responses(&actions)[0].error_code.as_deref(),
        Some("command_unconfirmed")
    );
    assert_eq!(send(&mut node, 0, 2, 0, Arguments::Kill, Moment(1_001)), []);
    let late = crate::Outcome::Success(Some(ResponseResult::Command(command_result())));
    assert_eq!(node.apply(Event::Answered(job.ticket, late), Moment(2_000)), []);
    assert_eq!(node.active_operations(), 1, "native work has not ended");
    let started = jobs(node.apply(Event::Ended(job.ticket), Moment(3_000)));
    assert_eq!(started.len(), 1);
}

// inv: INV-N27, INV-P8
#[test]
fn a_disconnect_discards_what_waits_and_no_answer_crosses_to_another_connection() {
    let mut node = live(Moment(0));
    let running = jobs(send(&mut node, 0, 1, 0, Arguments::Info, Moment(0))).remove(0);
    assert_eq!(send(&mut node, 0, 2, 0, Arguments::Kill, Moment(0)), []);
    assert_eq!(node.apply(Event::Lost, Moment(1)), [Action::Close(Reason::Lost)]);
    reconnect(&mut node, 1, Moment(1));
    let outcome = crate::Outcome::Success(Some(ResponseResult::Info(running_info())));
    assert_eq!(
        node.apply(Event::Answered(running.ticket, outcome), Moment(2_000)),
        []
    );
    // The lane is still held: work of one allocation never overlaps, across connections too.
    assert_eq!(send(&mut node, 1, 1, 0, Arguments::Info, Moment(2_000)), []);
    let started = jobs(node.apply(Event::Ended(running.ticket), Moment(2_001)));
    assert_eq!(started.len(), 1, "the new request alone, not the discarded kill");
    assert_eq!(started[0].request.arguments, Arguments::Info);
}

fn running_info() -> oac_wire::shapes::Info {
    running(reference(0))
}

// req: P-058
#[test]
fn a_full_queue_closes() {
    let mut node = live(Moment(0));
    for sequence in 1..=(1 + WAITING_REQUESTS as i64) {
        let actions = send(&mut node, 0, sequence, 0, Arguments::Info, Moment(0));
        assert_eq!(close_of(&actions), None);
    }
    let actions = send(
        &mut node,
        0,
        2 + WAITING_REQUESTS as i64,
        0,
        Arguments::Info,
        Moment(0),
    );
    assert_eq!(actions, [Action::Close(Reason::QueueFull)]);
    assert_eq!(node.state(), StateName::Waiting);
}

proptest! {
    // inv: INV-P7, INV-P8, INV-N24, INV-N25, INV-N27
    #[test]
    fn whatever_arrives_requests_run_in_sequence_once_and_are_answered_at_most_once_on_their_connection(
        steps in prop::collection::vec((0u8..9, 0u64..4, 1u64..3_000), 1..150),
    ) {
        let mut node = live(Moment(0));
        let (mut now, mut current, mut sequence) = (Moment(0), 0u64, 0i64);
        let mut next_id = 1u64;
        let mut asked: Vec<(oac_model::RequestId, u64)> = Vec::new();
        let mut answered = std::collections::HashSet::new();
        let mut open: Vec<(Ticket, u64)> = Vec::new();
        for (step, lane, pause) in steps {
            now = now.plus_millis(pause);
            let mut actions = Vec::new();
            match step {
                0..=3 if node.state() == StateName::Live => {
                    // Now and then a sequence that is not the next.
                    let wrong = step == 3 && lane == 3;
                    let number = if wrong { sequence + 2 } else { sequence + 1 };
                    let mut request =
                        request(connection(current), number, pause as u32, reference(lane), Arguments::Info);
                    request.id = request_id(next_id);
                    next_id += 1;
                    if !wrong {
                        sequence += 1;
                        asked.push((request.id, current));
                    }
                    let frame = text(request);
                    actions = node.apply(Event::Message(frame.as_bytes()), now);
                    if wrong {
                        prop_assert_ne!(node.state(), StateName::Live);
                        prop_assert!(!actions.iter().any(|a| matches!(a, Action::Run(_))));
                    }
                }
                4 => if let Some((ticket, lane)) = open.first().copied() {
                    let outcome = crate::Outcome::Success(Some(ResponseResult::Info(running(reference(lane)))));
                    actions = node.apply(Event::Answered(ticket, outcome), now);
                },
                5 if !open.is_empty() => {
                    let (ticket, _) = open.remove(0);
                    actions = node.apply(Event::Ended(ticket), now);
                }
                6 if lane == 0 => actions = node.apply(Event::Lost, now),
                _ => actions = node.apply(Event::Tick, now),
            }
            for action in actions {
                match action {
                    Action::Run(job) => {
                        let lane = (0..4).find(|n| allocation(*n) == job.request.reference.allocation_id).unwrap();
                        prop_assert!(open.iter().all(|(_, l)| *l != lane), "one allocation overlaps");
                        prop_assert!(job.deadline > now, "no operation starts after its budget");
                        open.push((job.ticket, lane));
                    }
                    Action::Send(frame) => if let NodeFrame::Response(response) = NodeFrame::decode(frame.as_bytes()).unwrap() {
                        prop_assert_eq!(response.connection_id, connection(current));
                        prop_assert!(asked.contains(&(response.id, current)), "an answer of another connection");
                        prop_assert!(answered.insert(response.id), "answered twice");
                    },
                    _ => {}
                }
            }
            if node.state() == StateName::Refreshing {
                node.apply(Event::Refreshed(Refresh::Failed), now);
            }
            if node.state() == StateName::Dialing {
                node.apply(Event::DialFailed, now);
            }
            if node.state() == StateName::Waiting {
                now = now.max(node.next_wakeup().unwrap());
                current += 1;
                sequence = 0;
                // What ran may expire at the wakeup, unanswered: nobody is connected.
                for _ in 0..3 {
                    if node.state() == StateName::Waiting {
                        now = now.max(node.next_wakeup().unwrap());
                        node.apply(Event::Tick, now);
                    }
                }
                while node.state() == StateName::Waiting {
                    now = now.plus_millis(1_000);
                    node.apply(Event::Tick, now);
                }
                let upgraded = node.apply(Event::Upgraded, now);
                let attempt = upgraded.iter().find_map(|a| match a {
                    Action::Measure(attempt) => Some(*attempt),
                    _ => None,
                }).unwrap();
                node.apply(Event::Measured(attempt, Box::new(health(true))), now);
                let frame = welcome(connection(current), epoch(1));
                node.apply(Event::Message(frame.as_bytes()), now);
                prop_assert_eq!(node.state(), StateName::Live);
            }
        }
    }
}
