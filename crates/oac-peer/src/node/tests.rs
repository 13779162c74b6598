use oac_wire::{
    NodeFrame,
    frames::{Arguments, Response, ResponseResult},
    shapes::Unsupported,
};
use proptest::prelude::*;

use super::*;
use crate::{
    FailureCode,
    fixtures::*,
    limits::{HEARTBEAT_MILLIS, SILENCE_MILLIS, WAITING_REQUESTS, WELCOME_MILLIS},
};

const SLOTS: usize = 2;
const LONG: u32 = 60_000;

fn fresh(now: Moment) -> Node {
    Node::new(identity(), 0, SLOTS, 7, now)
}

fn dialing(now: Moment) -> Node {
    let mut node = fresh(now);
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    node
}

fn greeting(now: Moment) -> Node {
    let mut node = dialing(now);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    let hello = node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    assert!(matches!(sent(&hello)[..], [NodeFrame::Hello(_)]), "{hello:?}");
    node
}

fn live(now: Moment) -> Node {
    let mut node = greeting(now);
    let text = welcome(connection(0), epoch(1));
    assert_eq!(
        node.apply(Event::Message(text.as_bytes()), now),
        [Action::StoreEpoch(epoch(1))]
    );
    assert_eq!(
        node.apply(Event::EpochStored(true), now),
        [Action::Accepted(connection(0), epoch(1))]
    );
    node
}

/// A live node whose connection has number `n` and which has stored epoch 1 already.
fn reconnect(node: &mut Node, n: u64, now: Moment) {
    assert_eq!(node.state(), StateName::Waiting);
    let now = now.max(node.next_wakeup().unwrap());
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    let text = welcome(connection(n), epoch(1));
    assert_eq!(
        node.apply(Event::Message(text.as_bytes()), now),
        [Action::Accepted(connection(n), epoch(1))]
    );
}

fn refreshing(now: Moment) -> Node {
    let mut node = dialing(now);
    assert_eq!(
        node.apply(Event::Refused, now),
        [Action::Close(Reason::Refused), Action::Refresh]
    );
    node
}

fn stopped(now: Moment) -> Node {
    let mut node = fresh(now);
    node.apply(Event::Stop, now);
    node
}

fn sent(actions: &[Action]) -> Vec<NodeFrame> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(text) => Some(NodeFrame::decode(text.as_bytes()).unwrap()),
            _ => None,
        })
        .collect()
}

fn responses(actions: &[Action]) -> Vec<Response> {
    sent(actions)
        .into_iter()
        .map(|frame| match frame {
            NodeFrame::Response(response) => *response,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn jobs(actions: Vec<Action>) -> Vec<Job> {
    actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Run(job) => Some(job),
            _ => None,
        })
        .collect()
}

fn close_of(actions: &[Action]) -> Option<&Reason> {
    actions.iter().find_map(|action| match action {
        Action::Close(reason) => Some(reason),
        _ => None,
    })
}

fn send(node: &mut Node, n: u64, sequence: i64, lane: u64, arguments: Arguments, now: Moment) -> Vec<Action> {
    let frame = text(request(connection(n), sequence, LONG, reference(lane), arguments));
    node.apply(Event::Message(frame.as_bytes()), now)
}

// req: P-019, P-020, P-021, P-031
#[test]
fn hello_carries_the_identity_and_a_first_report_and_no_management() {
    let now = Moment(5);
    let mut node = dialing(now);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    let actions = node.apply(Event::Measured(attempt, Box::new(health(true))), Moment(4_000));
    let [NodeFrame::Hello(hello)] = &sent(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(hello.identity, identity());
    assert!(hello.health.provider_ready);
    assert_eq!(hello.generation_management, None);
    assert_eq!(node.next_wakeup(), Some(Moment(4_000 + WELCOME_MILLIS)));
}

type MakeState = fn(Moment) -> Node;

/// The table of [`Node`]: every state, every event, the next state.
#[test]
fn every_event_in_every_state_leads_where_the_table_says() {
    use StateName::*;
    let states: [(StateName, MakeState); 6] = [
        (Waiting, waiting),
        (Dialing, dialing),
        (Greeting, greeting),
        (Live, live),
        (Refreshing, refreshing),
        (Stopped, stopped),
    ];
    fn waiting(now: Moment) -> Node {
        let mut node = dialing(now);
        node.apply(Event::DialFailed, now);
        node
    }
    let good_welcome = welcome(connection(0), epoch(1));
    let lower = |node: &mut Node| {
        node.apply(
            Event::Refreshed(Refresh::Confirmed {
                identity: Box::new(identity()),
                stored_epoch: 9,
            }),
            Moment(0),
        )
    };
    let good_ack = ack(connection(0), epoch(1));
    let other_ack = ack(connection(9), epoch(1));
    let info = text(request(connection(0), 1, LONG, reference(0), Arguments::Info));
    let skipped = text(request(connection(0), 2, LONG, reference(0), Arguments::Info));
    let confirmed = || {
        Event::Refreshed(Refresh::Confirmed {
            identity: Box::new(identity()),
            stored_epoch: 1,
        })
    };
    // Each row: name, event, next state for Waiting, Dialing, Greeting, Live, Refreshing; Stopped always stays.
    type Row<'a> = (&'a str, Box<dyn Fn() -> Event<'a> + 'a>, [StateName; 5]);
    let rows: Vec<Row<'_>> = vec![
        (
            "early tick",
            Box::new(|| Event::Tick),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "upgraded",
            Box::new(|| Event::Upgraded),
            [Waiting, Greeting, Greeting, Live, Refreshing],
        ),
        (
            "refused",
            Box::new(|| Event::Refused),
            [Waiting, Refreshing, Greeting, Live, Refreshing],
        ),
        (
            "dial failed",
            Box::new(|| Event::DialFailed),
            [Waiting, Waiting, Greeting, Live, Refreshing],
        ),
        (
            "bytes",
            Box::new(|| Event::Bytes(Moment(1))),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "unreadable",
            Box::new(|| Event::Unreadable),
            [Waiting, Dialing, Waiting, Waiting, Refreshing],
        ),
        (
            "lost",
            Box::new(|| Event::Lost),
            [Waiting, Dialing, Waiting, Waiting, Refreshing],
        ),
        (
            "garbage",
            Box::new(|| Event::Message(b"{}")),
            [Waiting, Dialing, Waiting, Waiting, Refreshing],
        ),
        (
            "welcome",
            Box::new(|| Event::Message(good_welcome.as_bytes())),
            [Waiting, Dialing, Greeting, Waiting, Refreshing],
        ),
        (
            "ack",
            Box::new(|| Event::Message(good_ack.as_bytes())),
            [Waiting, Dialing, Waiting, Live, Refreshing],
        ),
        (
            "ack of another connection",
            Box::new(|| Event::Message(other_ack.as_bytes())),
            [Waiting, Dialing, Waiting, Refreshing, Refreshing],
        ),
        (
            "request",
            Box::new(|| Event::Message(info.as_bytes())),
            [Waiting, Dialing, Waiting, Live, Refreshing],
        ),
        (
            "request out of sequence",
            Box::new(|| Event::Message(skipped.as_bytes())),
            [Waiting, Dialing, Waiting, Refreshing, Refreshing],
        ),
        (
            "stored",
            Box::new(|| Event::EpochStored(true)),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "not stored",
            Box::new(|| Event::EpochStored(false)),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "stale report",
            Box::new(|| Event::Measured(Attempt(99), Box::new(health(true)))),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "confirmed",
            Box::new(confirmed),
            [Waiting, Dialing, Greeting, Live, Waiting],
        ),
        (
            "refresh failed",
            Box::new(|| Event::Refreshed(Refresh::Failed)),
            [Waiting, Dialing, Greeting, Live, Waiting],
        ),
        (
            "refresh refused",
            Box::new(|| Event::Refreshed(Refresh::Refused)),
            [Waiting, Dialing, Greeting, Live, Stopped],
        ),
        (
            "unknown answer",
            Box::new(|| Event::Answered(unknown_ticket(), crate::Outcome::Success(None))),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "unknown end",
            Box::new(|| Event::Ended(unknown_ticket())),
            [Waiting, Dialing, Greeting, Live, Refreshing],
        ),
        (
            "stop",
            Box::new(|| Event::Stop),
            [Stopped, Stopped, Stopped, Stopped, Stopped],
        ),
    ];
    for (name, event, next) in &rows {
        for (index, (state, make)) in states.iter().enumerate() {
            let mut node = make(Moment(0));
            assert_eq!(node.state(), *state);
            let actions = node.apply(event(), Moment(0));
            let expected = next.get(index).copied().unwrap_or(Stopped);
            assert_eq!(node.state(), expected, "{name} in {state:?}");
            if *state == Stopped {
                assert_eq!(actions, [], "{name} in Stopped");
            }
            let was_connected = matches!(state, Dialing | Greeting | Live);
            let still = matches!(expected, Dialing | Greeting | Live);
            if was_connected && !still {
                assert!(close_of(&actions).is_some(), "{name} in {state:?} closes");
            }
        }
    }
    // A welcome below the stored epoch is a violation.
    let mut node = refreshing(Moment(0));
    lower(&mut node);
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    let actions = node.apply(Event::Message(good_welcome.as_bytes()), now);
    assert_eq!(
        actions,
        [
            Action::Close(Reason::Violation(Violation::EpochLower)),
            Action::Refresh
        ]
    );
    assert_eq!(node.state(), Refreshing);
}

/// A ticket that no operation of a fresh node has.
fn unknown_ticket() -> Ticket {
    let mut node = live(Moment(0));
    let mut last = None;
    for sequence in 1..=3 {
        let started = jobs(send(
            &mut node,
            0,
            sequence,
            sequence as u64,
            Arguments::Info,
            Moment(0),
        ));
        if let Some(job) = started.into_iter().next() {
            node.apply(Event::Ended(job.ticket), Moment(0));
            last = Some(job.ticket);
        }
    }
    last.unwrap()
}

// req: P-016, P-017
// inv: INV-P22
#[test]
fn only_a_confirmed_401_ends_the_node_and_it_never_dials_again() {
    let mut node = refreshing(Moment(0));
    assert_eq!(
        node.apply(Event::Refreshed(Refresh::Refused), Moment(0)),
        [Action::Exit(Exit::Unauthorized)]
    );
    assert_eq!(node.apply(Event::Tick, Moment(u64::MAX)), []);
    // A 401 that GET identity does not confirm, and every other failure, is retried.
    let mut node = refreshing(Moment(0));
    node.apply(Event::Refreshed(Refresh::Failed), Moment(0));
    let now = node.next_wakeup().unwrap();
    assert!(now <= Moment(1_000));
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    node.apply(Event::DialFailed, now);
    let now = node.next_wakeup().unwrap();
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
}

// req: P-026
// inv: INV-P6
#[test]
fn no_request_is_accepted_before_the_higher_epoch_is_durable() {
    let now = Moment(0);
    let mut node = greeting(now);
    let text_of_welcome = welcome(connection(0), epoch(5));
    assert_eq!(
        node.apply(Event::Message(text_of_welcome.as_bytes()), now),
        [Action::StoreEpoch(epoch(5))]
    );
    let mut early = request(connection(0), 1, LONG, reference(0), Arguments::Info);
    early.owner_epoch = epoch(5);
    let actions = node.apply(Event::Message(text(early).as_bytes()), now);
    assert_eq!(actions, [Action::Close(Reason::UnexpectedFrame)]);

    let mut node = greeting(now);
    node.apply(Event::Message(text_of_welcome.as_bytes()), now);
    assert_eq!(
        node.apply(Event::EpochStored(false), now),
        [Action::Close(Reason::EpochNotStored)]
    );
    // Nothing below the stored epoch is ever welcomed again.
    let mut node = live(now);
    node.apply(Event::Lost, now);
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    let higher = welcome(connection(1), epoch(2));
    assert_eq!(
        node.apply(Event::Message(higher.as_bytes()), now),
        [Action::StoreEpoch(epoch(2))]
    );
}

// req: P-027, P-034
#[test]
fn a_heartbeat_with_a_new_report_leaves_every_ten_seconds() {
    let mut node = live(Moment(0));
    for beat in 1..=3u64 {
        let now = Moment(beat * HEARTBEAT_MILLIS);
        assert_eq!(node.next_wakeup(), Some(now));
        let actions = node.apply(Event::Tick, now);
        let [Action::Measure(attempt)] = actions[..] else {
            panic!("a report is made for each heartbeat: {actions:?}");
        };
        let actions = node.apply(Event::Measured(attempt, Box::new(health(beat != 2))), now);
        let [NodeFrame::Heartbeat(heartbeat)] = &sent(&actions)[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(
            (heartbeat.connection_id, heartbeat.owner_epoch),
            (connection(0), epoch(1))
        );
        assert_eq!(heartbeat.health.provider_ready, beat != 2);
        let text = ack(connection(0), epoch(1));
        assert_eq!(node.apply(Event::Message(text.as_bytes()), now), []);
    }
}

// req: P-030
// inv: INV-P21
#[test]
fn thirty_five_seconds_without_a_protocol_byte_close_and_a_byte_restarts_them() {
    let mut node = live(Moment(0));
    let beats = |node: &mut Node, until: u64| {
        for at in (10_000..until).step_by(10_000) {
            node.apply(Event::Tick, Moment(at));
        }
    };
    beats(&mut node, SILENCE_MILLIS);
    assert_eq!(node.apply(Event::Tick, Moment(SILENCE_MILLIS - 1)), []);
    node.apply(Event::Bytes(Moment(20_000)), Moment(SILENCE_MILLIS));
    assert_eq!(node.apply(Event::Tick, Moment(20_000 + SILENCE_MILLIS - 1)), []);
    let actions = node.apply(Event::Tick, Moment(20_000 + SILENCE_MILLIS));
    assert_eq!(actions, [Action::Close(Reason::Silence)]);
}

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

// req: P-059, P-060, P-067
// inv: INV-P19
#[test]
fn an_answer_carries_the_result_of_its_row_and_a_failure_at_most_a_settled_receipt() {
    use crate::Outcome::*;
    let info = ResponseResult::Info;
    let here = reference(0);
    let unsettled = oac_wire::shapes::Info {
        create_settled: false,
        bootstrap_complete: false,
        ..running(here)
    };
    let cases: Vec<(Arguments, crate::Outcome, Option<&str>, Option<ResponseResult>)> = vec![
        (
            Arguments::Info,
            Success(Some(info(running(here)))),
            None,
            Some(info(running(here))),
        ),
        (Arguments::Kill, Success(None), None, None),
        (
            Arguments::Kill,
            Success(Some(info(running(here)))),
            Some("unconfirmed"),
            None,
        ),
        (Arguments::Info, Success(None), Some("unconfirmed"), None),
        (
            Arguments::Info,
            Success(Some(info(running(reference(1))))),
            Some("unconfirmed"),
            None,
        ),
        (
            command_arguments(),
            Success(None),
            Some("command_unconfirmed"),
            None,
        ),
        (
            command_arguments(),
            Success(Some(ResponseResult::Command(oac_wire::shapes::CommandResult {
                exit_code: 256,
                ..command_result()
            }))),
            Some("command_unconfirmed"),
            None,
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Invalid,
                receipt: Some(settled_absent(here)),
            },
            Some("invalid"),
            Some(info(settled_absent(here))),
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Exists,
                receipt: Some(unsettled),
            },
            Some("exists"),
            None,
        ),
        (
            create_arguments(here),
            Failed {
                code: FailureCode::Invalid,
                receipt: Some(settled_absent(reference(1))),
            },
            Some("invalid"),
            None,
        ),
        (
            Arguments::Initial,
            Unsupported(self::Unsupported {
                operation: "Initial".into(),
                reason: "no".into(),
            }),
            Some("unsupported"),
            Some(ResponseResult::Unsupported(self::Unsupported {
                operation: "Initial".into(),
                reason: "no".into(),
            })),
        ),
    ];
    let mut node = live(Moment(0));
    for (index, (arguments, outcome, code, result)) in cases.into_iter().enumerate() {
        let sequence = index as i64 + 1;
        let job = jobs(send(&mut node, 0, sequence, 0, arguments, Moment(0))).remove(0);
        let shown = format!("{outcome:?}");
        let actions = node.apply(Event::Answered(job.ticket, outcome), Moment(0));
        let response = responses(&actions).remove(0);
        assert_eq!(response.id, request_id(sequence as u64));
        assert_eq!(response.error_code.as_deref(), code, "{shown}");
        assert_eq!(response.result, Ok(result), "{shown}");
        node.apply(Event::Ended(job.ticket), Moment(0));
    }
}

#[test]
fn a_deployment_or_a_retention_ack_has_no_place_at_a_fixed_node() {
    let with_deployment = |text: String| {
        let at = text.rfind('}').unwrap();
        let deployment = format!(
            r#","deployment":{{"generation":1,"specification_digest":"{}","serving_generation":null}}}}"#,
            "ab".repeat(32)
        );
        format!("{}{deployment}", &text[..at])
    };
    let mut node = greeting(Moment(0));
    let frame = with_deployment(welcome(connection(0), epoch(1)));
    let actions = node.apply(Event::Message(frame.as_bytes()), Moment(0));
    assert_eq!(actions, [Action::Close(Reason::SuperfluousDeployment)]);
    let mut node = live(Moment(0));
    let frame = with_deployment(ack(connection(0), epoch(1)));
    let actions = node.apply(Event::Message(frame.as_bytes()), Moment(0));
    assert_eq!(actions, [Action::Close(Reason::SuperfluousDeployment)]);
}

// req: P-032
#[test]
fn a_report_counts_the_operations_under_way() {
    let mut node = live(Moment(0));
    let job = jobs(send(&mut node, 0, 1, 0, Arguments::Info, Moment(0))).remove(0);
    send(&mut node, 0, 2, 1, Arguments::Info, Moment(0));
    send(&mut node, 0, 3, 2, Arguments::Info, Moment(0));
    node.apply(
        Event::Answered(job.ticket, crate::Outcome::failed(FailureCode::NotFound)),
        Moment(0),
    );
    let now = Moment(HEARTBEAT_MILLIS);
    let actions = node.apply(Event::Tick, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    let actions = node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    let [NodeFrame::Heartbeat(heartbeat)] = &sent(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(
        heartbeat.health.active_operations, 3,
        "an answered one counts until its native work ends"
    );
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
