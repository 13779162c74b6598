use std::collections::HashMap;

use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{Heartbeat, Hello, InvalidResult, Response, ResponseResult},
    shapes::{self, Operation, Unsupported},
};
use proptest::prelude::*;

use super::*;
use crate::{
    FailureCode,
    fixtures::*,
    limits::{HELLO_MILLIS, PENDING_REQUESTS, REMOVAL_MILLIS, SILENCE_MILLIS},
};

fn registered() -> Registered {
    let identity = identity();
    Registered {
        node_id: identity.node_id,
        installation_id: identity.installation_id,
        provider: identity.provider,
        backend_fingerprint: identity.backend_fingerprint,
        deployment_generation: identity.deployment_generation,
        specification_digest: identity.specification_digest,
        managing: false,
    }
}

fn opening(now: Moment) -> Connection {
    Connection::open(registered(), connection(0), epoch(1), now)
}

fn hello(identity: Identity, ready: bool) -> String {
    let hello = Hello {
        identity,
        health: health(ready),
        generation_management: None,
    };
    NodeFrame::Hello(Box::new(hello)).encode().unwrap()
}

fn recording(now: Moment) -> Connection {
    let mut c = opening(now);
    let actions = c.apply(Event::Message(hello(identity(), true).as_bytes()), now);
    assert!(matches!(actions[..], [Action::RecordPresence(_)]), "{actions:?}");
    c
}

fn live(now: Moment) -> Connection {
    live_with(true, now)
}

fn live_with(ready: bool, now: Moment) -> Connection {
    let mut c = opening(now);
    c.apply(Event::Message(hello(identity(), ready).as_bytes()), now);
    let actions = c.apply(Event::PresenceRecorded(Recorded::Done(None)), now);
    let [Action::Send(text), Action::Live] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(*text, welcome(connection(0), epoch(1)));
    c
}

fn closing(now: Moment) -> Connection {
    let mut c = live(now);
    c.apply(Event::Lost, now);
    c
}

fn freed(now: Moment) -> Connection {
    let mut c = closing(now);
    c.apply(Event::PresenceRemoved, now);
    c
}

fn heartbeat(connection_id: ConnectionId, owner_epoch: OwnerEpoch, ready: bool) -> String {
    let frame = Heartbeat {
        connection_id,
        owner_epoch,
        health: health(ready),
    };
    NodeFrame::Heartbeat(Box::new(frame)).encode().unwrap()
}

fn response(id: RequestId, code: Option<&str>, result: Option<ResponseResult>) -> Response {
    Response {
        id,
        connection_id: connection(0),
        error_code: code.map(str::to_owned),
        result: Ok(result),
    }
}

fn frame(response: Response) -> String {
    NodeFrame::Response(Box::new(response)).encode().unwrap()
}

fn call(n: u64, lane: u64, arguments: Arguments, deadline: Moment) -> Call {
    Call {
        id: request_id(n),
        generation: generation(1),
        reference: reference(lane),
        arguments,
        deadline,
        unsupported_reason: None,
    }
}

fn requested(action: Action) -> oac_wire::frames::Request {
    let Action::Send(text) = action else {
        panic!("{action:?}");
    };
    match CoreFrame::decode(text.as_bytes()).unwrap() {
        CoreFrame::Request(request) => *request,
        other => panic!("{other:?}"),
    }
}

fn close_of(actions: &[Action]) -> Option<&CloseReason> {
    actions.iter().find_map(|a| match a {
        Action::Close(reason) => Some(reason),
        _ => None,
    })
}

fn sends(actions: &[Action]) -> usize {
    actions.iter().filter(|a| matches!(a, Action::Send(_))).count()
}

/// The table of [`Connection`]: every state, every event, the next state.
#[test]
fn every_event_in_every_state_leads_where_the_table_says() {
    use StateName::*;
    type MakeState = fn(Moment) -> Connection;
    let states: [(StateName, MakeState); 5] = [
        (Opening, opening),
        (Opening, recording),
        (Live, live),
        (Closing, closing),
        (Freed, freed),
    ];
    let good_hello = hello(identity(), true);
    let good_beat = heartbeat(connection(0), epoch(1), true);
    let other_beat = heartbeat(connection(9), epoch(1), true);
    let answer = frame(response(request_id(9), None, None));
    let failed = Recorded::Failed(RecordFailure::Storage);
    type Row<'a> = (&'a str, Box<dyn Fn() -> Event<'a> + 'a>, u64, [StateName; 5]);
    let rows: Vec<Row<'_>> = vec![
        (
            "tick",
            Box::new(|| Event::Tick),
            0,
            [Opening, Opening, Live, Closing, Freed],
        ),
        (
            "tick at 5 s",
            Box::new(|| Event::Tick),
            REMOVAL_MILLIS,
            [Opening, Opening, Live, Freed, Freed],
        ),
        (
            "tick at 15 s",
            Box::new(|| Event::Tick),
            HELLO_MILLIS,
            [Freed, Opening, Live, Freed, Freed],
        ),
        (
            "tick at 35 s",
            Box::new(|| Event::Tick),
            SILENCE_MILLIS,
            [Freed, Closing, Closing, Freed, Freed],
        ),
        (
            "bytes",
            Box::new(|| Event::Bytes(Moment(0))),
            0,
            [Opening, Opening, Live, Closing, Freed],
        ),
        (
            "hello",
            Box::new(|| Event::Message(good_hello.as_bytes())),
            0,
            [Opening, Closing, Closing, Closing, Freed],
        ),
        (
            "heartbeat",
            Box::new(|| Event::Message(good_beat.as_bytes())),
            0,
            [Freed, Closing, Live, Closing, Freed],
        ),
        (
            "foreign beat",
            Box::new(|| Event::Message(other_beat.as_bytes())),
            0,
            [Freed, Closing, Closing, Closing, Freed],
        ),
        (
            "response",
            Box::new(|| Event::Message(answer.as_bytes())),
            0,
            [Freed, Closing, Live, Closing, Freed],
        ),
        (
            "garbage",
            Box::new(|| Event::Message(b"{}")),
            0,
            [Freed, Closing, Closing, Closing, Freed],
        ),
        (
            "unreadable",
            Box::new(|| Event::Unreadable),
            0,
            [Freed, Closing, Closing, Closing, Freed],
        ),
        (
            "lost",
            Box::new(|| Event::Lost),
            0,
            [Freed, Closing, Closing, Closing, Freed],
        ),
        (
            "recorded",
            Box::new(|| Event::PresenceRecorded(Recorded::Done(None))),
            0,
            [Opening, Live, Live, Closing, Freed],
        ),
        (
            "not recorded",
            Box::new(move || Event::PresenceRecorded(failed)),
            0,
            [Opening, Closing, Live, Closing, Freed],
        ),
        (
            "health recorded",
            Box::new(|| Event::HealthRecorded(Recorded::Done(None))),
            0,
            [Opening, Opening, Live, Closing, Freed],
        ),
        (
            "removed",
            Box::new(|| Event::PresenceRemoved),
            0,
            [Opening, Opening, Live, Freed, Freed],
        ),
        (
            "epoch lost",
            Box::new(|| Event::EpochLost),
            0,
            [Freed, Freed, Freed, Freed, Freed],
        ),
        (
            "stop",
            Box::new(|| Event::Stop),
            0,
            [Freed, Closing, Closing, Closing, Freed],
        ),
        (
            "gave up",
            Box::new(|| Event::GaveUp(request_id(1))),
            0,
            [Opening, Opening, Live, Closing, Freed],
        ),
    ];
    for (name, event, at, next) in &rows {
        for (index, (state, make)) in states.iter().enumerate() {
            let mut c = make(Moment(0));
            assert_eq!(c.state(), *state);
            let actions = c.apply(event(), Moment(*at));
            assert_eq!(c.state(), next[index], "{name} in state {index}");
            let closes = matches!(state, Opening | Live) && matches!(next[index], Closing | Freed);
            assert_eq!(
                close_of(&actions).is_some(),
                closes,
                "{name} in state {index}: {actions:?}"
            );
            let frees = *state != Freed && next[index] == Freed;
            assert_eq!(
                actions.contains(&Action::Free),
                frees,
                "{name} in state {index}: {actions:?}"
            );
            if closes {
                assert_eq!(sends(&actions), 0, "a closing connection sends nothing: {name}");
            }
        }
    }
}

// req: P-022, P-023, P-024
// inv: INV-P4, INV-P5
#[test]
fn nothing_is_stored_before_a_matching_hello_and_no_welcome_precedes_committed_presence() {
    let other = |change: fn(&mut Identity)| {
        let mut identity = identity();
        change(&mut identity);
        identity
    };
    let differing: [fn(&mut Identity); 6] = [
        |i| i.node_id = node_id(9),
        |i| i.installation_id = "11111111-1111-4111-8111-111111111119".parse().unwrap(),
        |i| i.provider = ProviderKind::Microsandbox,
        |i| i.backend_fingerprint = Digest::of("other"),
        |i| i.deployment_generation = generation(2),
        |i| i.specification_digest = Digest::of("other"),
    ];
    for change in differing {
        let mut c = opening(Moment(0));
        let text = hello(other(change), true);
        let actions = c.apply(Event::Message(text.as_bytes()), Moment(0));
        assert_eq!(actions, [Action::Close(CloseReason::Identity), Action::Free]);
    }
    let mut c = opening(Moment(0));
    let text = hello(
        other(|i| {
            i.max_active = 9;
            i.max_retained = 10;
        }),
        true,
    );
    let actions = c.apply(Event::Message(text.as_bytes()), Moment(0));
    let [Action::RecordPresence(presence)] = &actions[..] else {
        panic!("capacity is not compared: {actions:?}");
    };
    assert_eq!(
        (presence.connection_id, presence.owner_epoch),
        (connection(0), epoch(1))
    );
    let failed = Recorded::Failed(RecordFailure::Storage);
    let actions = c.apply(Event::PresenceRecorded(failed), Moment(0));
    assert_eq!(
        actions,
        [
            Action::Close(CloseReason::Presence(RecordFailure::Storage)),
            Action::RemovePresence(connection(0)),
        ],
        "a failed recording may have committed: it is removed, and no welcome is sent"
    );
}

#[test]
fn a_managing_node_and_statuses_of_a_fixed_one_are_refused() {
    let mut c = opening(Moment(0));
    let text = hello(identity(), true).replacen(r#""health""#, r#""generation_management":true,"health""#, 1);
    let actions = c.apply(Event::Message(text.as_bytes()), Moment(0));
    assert_eq!(close_of(&actions), Some(&CloseReason::Management));
    let mut managing = Connection::open(
        Registered {
            managing: true,
            ..registered()
        },
        connection(0),
        epoch(1),
        Moment(0),
    );
    let actions = managing.apply(Event::Message(hello(identity(), true).as_bytes()), Moment(0));
    assert_eq!(close_of(&actions), Some(&CloseReason::Management));
    let mut c = live(Moment(0));
    let text = heartbeat(connection(0), epoch(1), false).replacen(
        r#""provider_ready""#,
        r#""generations":[],"provider_ready""#,
        1,
    );
    let actions = c.apply(Event::Message(text.as_bytes()), Moment(0));
    assert_eq!(close_of(&actions), Some(&CloseReason::Generations));
}

// inv: INV-P5
#[test]
fn presence_recorded_after_the_connection_ended_is_removed_even_when_the_identity_is_free() {
    for freed_first in [false, true] {
        let mut c = recording(Moment(0));
        assert_eq!(
            c.apply(Event::Lost, Moment(0)),
            [Action::Close(CloseReason::Lost)]
        );
        if freed_first {
            assert_eq!(c.apply(Event::Tick, Moment(REMOVAL_MILLIS)), [Action::Free]);
        }
        let actions = c.apply(
            Event::PresenceRecorded(Recorded::Done(None)),
            Moment(REMOVAL_MILLIS),
        );
        assert_eq!(actions[0], Action::RemovePresence(connection(0)));
        assert_eq!(sends(&actions), 0);
    }
}

// req: P-029
#[test]
fn a_heartbeat_is_recorded_before_it_is_acknowledged_and_a_failure_closes() {
    let mut c = live(Moment(0));
    let beat = heartbeat(connection(0), epoch(1), true);
    let actions = c.apply(Event::Message(beat.as_bytes()), Moment(1));
    assert!(matches!(actions[..], [Action::RecordHealth(_)]), "{actions:?}");
    // A slow store meets the next report: it is recorded after this one.
    assert_eq!(c.apply(Event::Message(beat.as_bytes()), Moment(2)), []);
    let actions = c.apply(Event::HealthRecorded(Recorded::Done(None)), Moment(3));
    let [Action::RecordHealth(_), Action::Send(text)] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(*text, ack(connection(0), epoch(1)));
    for failure in [
        RecordFailure::Storage,
        RecordFailure::Credential,
        RecordFailure::Epoch,
    ] {
        let mut c = live(Moment(0));
        c.apply(Event::Message(beat.as_bytes()), Moment(1));
        let actions = c.apply(Event::HealthRecorded(Recorded::Failed(failure)), Moment(2));
        assert_eq!(close_of(&actions), Some(&CloseReason::Health(failure)));
        assert_eq!(sends(&actions), 0);
    }
    for (id, owner, reason) in [
        (connection(9), epoch(1), CloseReason::ConnectionId),
        (connection(0), epoch(2), CloseReason::OwnerEpoch),
    ] {
        let mut c = live(Moment(0));
        let beat = heartbeat(id, owner, true);
        let actions = c.apply(Event::Message(beat.as_bytes()), Moment(1));
        assert_eq!(close_of(&actions), Some(&reason));
        assert!(!actions.iter().any(|a| matches!(a, Action::RecordHealth(_))));
    }
}

// req: P-030
// inv: INV-P21
#[test]
fn thirty_five_seconds_of_silence_close_and_a_protocol_byte_restarts_them() {
    let mut c = live(Moment(0));
    c.apply(Event::Bytes(Moment(10_000)), Moment(30_000));
    assert_eq!(c.next_wakeup(), Some(Moment(10_000 + SILENCE_MILLIS)));
    assert_eq!(c.apply(Event::Tick, Moment(SILENCE_MILLIS)), []);
    let actions = c.apply(Event::Tick, Moment(10_000 + SILENCE_MILLIS));
    assert_eq!(close_of(&actions), Some(&CloseReason::Silence));
}

// inv: INV-P1
#[test]
fn an_invalid_heartbeat_closes_and_stores_nothing() {
    let good = heartbeat(connection(0), epoch(1), true);
    for bad in [
        good.replace(r#""version":1"#, r#""version":2"#),
        good.replace(r#""active_operations":0"#, r#""active_operations":33"#),
        good.replace(r#""active_operations":0"#, r#""active_operations":0,"unknown":1"#),
        good.replace(r#""provider_ready":true"#, r#""provider_ready":null"#),
        good.replace(
            r#""provider_ready":true"#,
            r#""provider_ready":true,"provider_ready":true"#,
        ),
    ] {
        assert_ne!(bad, good);
        let mut c = live(Moment(0));
        let actions = c.apply(Event::Message(bad.as_bytes()), Moment(0));
        assert!(
            matches!(close_of(&actions), Some(CloseReason::InvalidFrame(_))),
            "{bad}"
        );
        assert!(!actions.iter().any(|a| matches!(a, Action::RecordHealth(_))));
    }
}

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
    c.apply(Event::Message(beat.as_bytes()), Moment(0));
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
    assert_eq!(c.apply(Event::Message(late.as_bytes()), soon), []);
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
    c.apply(Event::GaveUp(request_id(0)), Moment(0));
    let told = c.apply(Event::Tick, Moment(1_000));
    assert_eq!(told.len(), PENDING_REQUESTS - 1, "who gave up is not told");
    assert_eq!(c.call(one_more(), Moment(1_000)), Err(Unsent::Full));
    let late = frame(response(
        request_id(0),
        None,
        Some(ResponseResult::Info(running(reference(0)))),
    ));
    assert_eq!(c.apply(Event::Message(late.as_bytes()), Moment(1_000)), []);
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
    assert_eq!(c.apply(Event::Message(late.as_bytes()), Moment(600)), []);
    assert_eq!(
        c.apply(Event::Message(late.as_bytes()), Moment(600)),
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
    let actions = c.apply(Event::Message(frame(foreign).as_bytes()), Moment(0));
    assert_eq!(close_of(&actions), Some(&CloseReason::ConnectionId));
    assert!(actions.contains(&Action::Resolve(
        request_id(1),
        CallOutcome::Uncertain(Uncertain::Disconnected)
    )));
}

// req: P-060, P-061, P-067, P-074, P-075, P-076, P-077
// inv: INV-P18, INV-P19
#[test]
fn answers_are_read_as_the_table_says_and_whatever_breaks_it_is_unconfirmed() {
    use FailureCode as C;
    let here = reference(0);
    let info = |info: shapes::Info| Some(ResponseResult::Info(info));
    let failed = Outcome::failed;
    let evidence = |operation: &str, reason: &str| {
        Some(ResponseResult::Unsupported(Unsupported {
            operation: operation.into(),
            reason: reason.into(),
        }))
    };
    let unsettled = shapes::Info {
        create_settled: false,
        bootstrap_complete: false,
        ..running(here)
    };
    let nameless = shapes::Info {
        provider_id: String::new(),
        ..unsettled.clone()
    };
    let read = |operation, declared, code: Option<&str>, result| {
        read_answer(operation, &here, declared, response(request_id(1), code, result))
    };
    use Operation::*;
    let rows: Vec<(Operation, Option<&str>, Option<ResponseResult>, Outcome)> = vec![
        (
            Create,
            None,
            info(running(here)),
            Outcome::Success(info(running(here))),
        ),
        (
            Info,
            None,
            info(settled_absent(here)),
            Outcome::Success(info(settled_absent(here))),
        ),
        (
            Info,
            None,
            info(unsettled.clone()),
            Outcome::Success(info(unsettled.clone())),
        ),
        (Info, None, info(nameless.clone()), failed(C::Unconfirmed)),
        (Info, None, info(running(reference(1))), failed(C::Unconfirmed)),
        (Info, None, None, failed(C::Unconfirmed)),
        (
            Info,
            None,
            Some(ResponseResult::Command(command_result())),
            failed(C::Unconfirmed),
        ),
        (Kill, None, None, Outcome::Success(None)),
        (Kill, None, info(running(here)), failed(C::Unconfirmed)),
        (
            Command,
            None,
            Some(ResponseResult::Command(command_result())),
            Outcome::Success(Some(ResponseResult::Command(command_result()))),
        ),
        (Command, None, None, failed(C::CommandUnconfirmed)),
        (Observe, None, None, failed(C::ObservationUnavailable)),
        (Create, Some("exists"), None, failed(C::Exists)),
        (Create, Some("ownership"), None, failed(C::Ownership)),
        (Info, Some("not_found"), None, failed(C::NotFound)),
        (
            Observe,
            Some("runtime_not_running"),
            None,
            failed(C::RuntimeNotRunning),
        ),
        (
            Observe,
            Some("unconfirmed"),
            None,
            failed(C::ObservationUnavailable),
        ),
        (Command, Some("unconfirmed"), None, failed(C::CommandUnconfirmed)),
        (Kill, Some("unconfirmed"), None, failed(C::Unconfirmed)),
        (Kill, Some("a_code_of_tomorrow"), None, failed(C::Unconfirmed)),
        (
            Create,
            Some("invalid"),
            info(settled_absent(here)),
            Outcome::Failed {
                code: C::Invalid,
                receipt: Some(settled_absent(here)),
            },
        ),
        (
            Create,
            Some("invalid"),
            info(running(here)),
            Outcome::Failed {
                code: C::Invalid,
                receipt: Some(running(here)),
            },
        ),
        (Create, Some("invalid"), info(unsettled), failed(C::Invalid)),
        (
            Create,
            Some("invalid"),
            info(settled_absent(reference(1))),
            failed(C::Invalid),
        ),
        (
            Create,
            Some("invalid"),
            Some(ResponseResult::Command(command_result())),
            failed(C::Invalid),
        ),
        (Initial, Some("unsupported"), None, failed(C::Unconfirmed)),
        (
            Initial,
            Some("unsupported"),
            evidence("Kill", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            Some("unsupported"),
            evidence("Initial", "another"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            Some("invalid"),
            evidence("Initial", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            Initial,
            None,
            evidence("Initial", "declared"),
            failed(C::Unconfirmed),
        ),
        (
            CommandCompute,
            Some("unsupported"),
            evidence("RunCommand", "declared"),
            failed(C::CommandUnconfirmed),
        ),
        (
            Initial,
            Some("unsupported"),
            evidence("Initial", "declared"),
            Outcome::Unsupported(Unsupported {
                operation: "Initial".into(),
                reason: "declared".into(),
            }),
        ),
    ];
    for (operation, code, result, expected) in rows {
        let shown = format!("{operation:?} {code:?} {result:?}");
        assert_eq!(
            read(operation, Some("declared"), code, result),
            expected,
            "{shown}"
        );
    }
    let undeclared = read(
        Initial,
        None,
        Some("unsupported"),
        evidence("Initial", "declared"),
    );
    assert_eq!(undeclared, failed(C::Unconfirmed));
    let mut out_of_bounds = response(request_id(1), None, None);
    out_of_bounds.result = Err(InvalidResult("exit_code".into()));
    assert_eq!(
        read_answer(Command, &here, None, out_of_bounds.clone()),
        failed(C::CommandUnconfirmed)
    );
    out_of_bounds.error_code = Some("exists".into());
    assert_eq!(read_answer(Create, &here, None, out_of_bounds), failed(C::Exists));
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
                    actions = c.apply(Event::Message(frame(response(id, None, result)).as_bytes()), now);
                }
                5 => if let Some(id) = waiting.keys().next().copied() {
                    actions = c.apply(Event::GaveUp(id), now);
                    waiting.remove(&id);
                },
                6 => {
                    let beat = heartbeat(connection(0), epoch(1), true);
                    actions = c.apply(Event::Message(beat.as_bytes()), now);
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
                    // GaveUp may cross a timeout in the same step.
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
