//! One row for each reason of protocol.md section 12, and what none of them may reveal.

use super::*;

struct Case<'a> {
    name: &'a str,
    at: Connection,
    event: Event<'a>,
    now: Moment,
    reason: fn(&CloseReason) -> bool,
}

macro_rules! case {
    ($name:literal, $at:expr, $event:expr, $reason:pat) => {
        case!($name, $at, $event, Moment(0), $reason)
    };
    ($name:literal, $at:expr, $event:expr, $now:expr, $reason:pat) => {
        Case {
            name: $name,
            at: $at,
            event: $event,
            now: $now,
            reason: |reason| matches!(reason, $reason),
        }
    };
}

fn recording_health() -> Connection {
    let mut c = live(Moment(0));
    let beat = heartbeat(connection(0), epoch(1), true);
    c.apply(Event::Message(beat.as_bytes(), wall()), Moment(0));
    c
}

fn asking() -> Connection {
    let mut c = managing(&[(1, true)], Moment(0));
    let text = retention(control(1, &[asked(7), asked(8)]));
    c.apply(Event::Message(text.as_bytes(), wall()), Moment(0));
    c
}

// req: P-011, P-022, P-028, P-030, P-050
// inv: INV-P1, INV-P2, INV-P4, INV-P16
#[test]
fn each_reason_to_close_closes_core_s_end_sends_nothing_and_leaves_every_call_uncertain() {
    let now = Moment(0);
    let known_managing = || Connection::open(registered(true), connection(0), epoch(1), now);
    let good = heartbeat(connection(0), epoch(1), true);
    let version = good.replace(r#""version":1"#, r#""version":2"#);
    let oversized = format!("{good}{}", " ".repeat(32 * 1024));
    let late_hello = oversized_hello();
    let other_connection = heartbeat(connection(9), epoch(1), true);
    let other_epoch = heartbeat(connection(0), epoch(2), true);
    let hello_again = hello(identity(), true);
    let foreign = hello(
        Identity {
            node_id: node_id(9),
            ..identity()
        },
        true,
    );
    let statuses = heartbeat_of(managed(&[(1, true)]));
    let nine = managed(&(1..=9).map(|n| (n, true)).collect::<Vec<_>>());
    let nine = spoiled_nine(&nine);
    let claims_ready = heartbeat(connection(0), epoch(1), true);
    let managing_claims = hello_of(identity(), health(false), Some(true))
        .replace(r#""provider_ready":false"#, r#""provider_ready":true"#);
    let asks = retention(control(1, &[asked(7)]));
    let skips = retention(control(2, &[asked(7)]));
    let second = retention(control(2, &[asked(9)]));
    let other_control = retention(RetentionControl {
        connection_id: connection(9),
        ..control(1, &[asked(7)])
    });
    let other_control_epoch = retention(RetentionControl {
        owner_epoch: epoch(2),
        ..control(1, &[asked(7)])
    });
    let foreign_answer = frame(Response {
        connection_id: connection(9),
        ..response(request_id(1), None, None)
    });
    let cores_own = ack(connection(0), epoch(1));
    let message = |text| Event::Message(str::as_bytes(text), wall());
    let health_failed = |failure| Event::HealthRecorded(Recorded::Failed(failure));
    use CloseReason as C;
    use RecordFailure as F;
    let cases = vec![
        case!(
            "hello late",
            opening(now),
            Event::Tick,
            Moment(HELLO_MILLIS),
            C::HelloLate
        ),
        case!("first frame not hello", opening(now), message(&good), C::NotHello),
        case!(
            "hello over 32 KiB",
            opening(now),
            message(&late_hello),
            C::Unreadable
        ),
        case!("identity differing", opening(now), message(&foreign), C::Identity),
        case!(
            "managing no more",
            known_managing(),
            message(&hello_again),
            C::Management
        ),
        case!(
            "a managing hello of its own readiness",
            opening(now),
            message(&managing_claims),
            C::InvalidFrame(FrameError::Malformed(_))
        ),
        case!(
            "a frame before welcome",
            recording(now),
            message(&good),
            C::UnexpectedFrame
        ),
        case!(
            "presence not recorded",
            recording(now),
            Event::PresenceRecorded(Recorded::Failed(F::Storage)),
            C::Presence(F::Storage)
        ),
        case!(
            "another digest in hello",
            recording(now),
            Event::PresenceRecorded(Recorded::Failed(F::Digest)),
            C::Presence(F::Digest)
        ),
        case!("invalid frame", live(now), message("{"), C::InvalidFrame(_)),
        case!(
            "another version",
            live(now),
            message(&version),
            C::InvalidFrame(FrameError::Version)
        ),
        case!(
            "oversized control frame",
            live(now),
            message(&oversized),
            C::InvalidFrame(FrameError::TooLarge { .. })
        ),
        case!(
            "a frame of Core's",
            live(now),
            message(&cores_own),
            C::InvalidFrame(FrameError::Direction { .. })
        ),
        case!(
            "binary or oversized message",
            live(now),
            Event::Unreadable,
            C::Unreadable
        ),
        case!(
            "nine statuses",
            managing(&[], now),
            message(&nine),
            C::InvalidFrame(_)
        ),
        case!(
            "35 s silence",
            live(now),
            Event::Tick,
            Moment(SILENCE_MILLIS),
            C::Silence
        ),
        case!(
            "35 s silence while opening",
            recording(now),
            Event::Tick,
            Moment(SILENCE_MILLIS),
            C::Silence
        ),
        case!("write failed", live(now), Event::Lost, C::Lost),
        case!(
            "second hello",
            live(now),
            message(&hello_again),
            C::UnexpectedFrame
        ),
        case!(
            "heartbeat of another connection",
            live(now),
            message(&other_connection),
            C::ConnectionId
        ),
        case!(
            "heartbeat of another epoch",
            live(now),
            message(&other_epoch),
            C::OwnerEpoch
        ),
        case!(
            "statuses of a fixed node",
            live(now),
            message(&statuses),
            C::Generations
        ),
        case!(
            "readiness of a managing node's own",
            managing(&[], now),
            message(&claims_ready),
            C::ManagedReadiness
        ),
        case!(
            "health not recorded",
            recording_health(),
            health_failed(F::Storage),
            C::Health(F::Storage)
        ),
        case!(
            "credential refused",
            recording_health(),
            health_failed(F::Credential),
            C::Health(F::Credential)
        ),
        case!(
            "epoch lost in the transaction",
            recording_health(),
            health_failed(F::Epoch),
            C::Health(F::Epoch)
        ),
        case!(
            "another digest",
            recording_health(),
            health_failed(F::Digest),
            C::Health(F::Digest)
        ),
        case!("epoch lost", live(now), Event::EpochLost, C::EpochLost),
        case!("Core stops", live(now), Event::Stop, C::Stopping),
        case!(
            "response of another connection",
            live(now),
            message(&foreign_answer),
            C::ConnectionId
        ),
        case!(
            "retention of a fixed node",
            live(now),
            message(&asks),
            C::Retention
        ),
        case!(
            "wrong retention sequence",
            managing(&[], now),
            message(&skips),
            C::RetentionSequence
        ),
        case!(
            "retention of another connection",
            managing(&[], now),
            message(&other_control),
            C::ConnectionId
        ),
        case!(
            "retention of another epoch",
            managing(&[], now),
            message(&other_control_epoch),
            C::OwnerEpoch
        ),
        case!(
            "a second retention request",
            asking(),
            message(&second),
            C::RetentionPending
        ),
        case!(
            "retention not answerable",
            asking(),
            Event::RetentionAnswered(RetentionAnswer::Failed(F::Digest)),
            C::RetentionAnswer(F::Digest)
        ),
        case!(
            "half a retention answer",
            asking(),
            Event::RetentionAnswered(half_an_answer()),
            C::RetentionAnswer(F::Storage)
        ),
    ];
    for mut case in cases {
        let mut waiting = Vec::new();
        if case.at.state() == StateName::Live {
            case.at
                .call(call(77, 77, Arguments::Kill, Moment(100_000)), now)
                .unwrap();
            waiting.push(Action::Resolve(
                request_id(77),
                CallOutcome::Uncertain(Uncertain::Disconnected),
            ));
        }
        let actions = case.at.apply(case.event, case.now);
        let (name, shown) = (case.name, format!("{actions:?}"));
        assert!(close_of(&actions).is_some_and(case.reason), "{name}: {shown}");
        assert_eq!(sends(&actions), 0, "{name}: {shown}");
        assert!(waiting.iter().all(|w| actions.contains(w)), "{name}: {shown}");
        let recorded = |a: &Action| {
            matches!(
                a,
                Action::RecordPresence(_) | Action::RecordHealth(_) | Action::AnswerRetention(_)
            )
        };
        assert!(!actions.iter().any(recorded), "{name} has an effect: {shown}");
        // Nothing is heard or said any more.
        assert_eq!(case.at.apply(message(&good), case.now), [], "{name}");
        let late = case
            .at
            .call(call(1, 1, Arguments::Info, Moment(100_000)), case.now);
        assert_eq!(late, Err(Unsent::NotConnected), "{name}");
    }
}

fn half_an_answer() -> RetentionAnswer {
    RetentionAnswer::Done {
        keep: vec![false],
        deployment: deployment(2, None),
    }
}

fn oversized_hello() -> String {
    format!("{}{}", hello(identity(), true), " ".repeat(32 * 1024))
}

/// The sender's validator refuses nine, so the ninth is put into the text.
fn spoiled_nine(nine: &Health) -> String {
    let mut eight = nine.clone();
    let ninth = eight.generations.as_mut().and_then(Vec::pop).unwrap();
    let entry = format!(
        r#"{{"generation":9,"specification_digest":"{}","state":"ready"}}]"#,
        ninth.specification_digest
    );
    let text = heartbeat_of(eight);
    let at = text.rfind(']').unwrap();
    format!("{},{entry}{}", &text[..at], &text[at + 1..])
}

// inv: INV-P20
#[test]
fn no_reason_to_close_repeats_a_value_the_peer_wrote() {
    const MARKER: &str = "secret_of_the_peer";
    let good = heartbeat(connection(0), epoch(1), true);
    let frames = [
        good.replace(r#""type":"heartbeat""#, &format!(r#""type":"{MARKER}""#)),
        good.replace(
            r#""provider_ready":true"#,
            &format!(r#""provider_ready":"{MARKER}""#),
        ),
        good.replace(r#""observed_at":"#, &format!(r#""observed_at":"{MARKER}","x":"#)),
        good.replace(
            r#""provider_ready":true"#,
            &format!(r#""provider_ready":true,"diagnostic":"/var/{MARKER}""#),
        ),
        format!("{MARKER}{good}"),
        format!(r#"{{"version":1,"type":"response","id":"{MARKER}"}}"#),
    ];
    for text in frames {
        assert!(text.contains(MARKER));
        let mut c = live(Moment(0));
        let actions = c.apply(Event::Message(text.as_bytes(), wall()), Moment(0));
        let reason = close_of(&actions).unwrap_or_else(|| panic!("{text} is taken"));
        assert!(!format!("{reason:?}").contains(MARKER), "{reason:?}");
        let mut cause: Option<&dyn std::error::Error> = Some(reason);
        while let Some(error) = cause {
            assert!(!error.to_string().contains(MARKER), "{error}");
            cause = error.source();
        }
    }
}
