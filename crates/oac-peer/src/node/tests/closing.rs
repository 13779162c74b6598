//! One row for each reason of protocol.md section 12 and each ownership violation of section 5.

use super::*;

struct Case<'a> {
    name: &'a str,
    at: Node,
    event: Event<'a>,
    now: Moment,
    reason: fn(&Reason) -> bool,
    /// The identity is read again before the next dial.
    doubtful: bool,
}

macro_rules! case {
    ($name:literal, $at:expr, $event:expr, Violation::$violation:ident) => {
        Case {
            name: $name,
            at: $at,
            event: $event,
            now: Moment(0),
            reason: |reason| *reason == Reason::Violation(Violation::$violation),
            doubtful: true,
        }
    };
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
            doubtful: false,
        }
    };
}

fn serving() -> Node {
    managing(
        &[
            local(1, Standing::Ready),
            local(2, Standing::Preparing),
            local(3, Standing::Removing),
            local(4, Standing::Stalled),
            local(5, Standing::Dropped),
        ],
        deployment(2, Some(1)),
        Moment(0),
    )
}

/// It asked about generation 4 at 10 s.
fn asking() -> (Node, RetentionControl) {
    let mut node = serving();
    let (_, control) = report(&mut node, Moment(HEARTBEAT_MILLIS));
    (node, control.unwrap())
}

fn full() -> Node {
    let mut node = live(Moment(0));
    for sequence in 1..=(1 + WAITING_REQUESTS as i64) {
        let actions = send(&mut node, 0, sequence, 0, Arguments::Info, Moment(0));
        assert_eq!(close_of(&actions), None);
    }
    node
}

fn after_epoch_nine() -> Node {
    let mut node = refreshing(Moment(0));
    node.apply(
        Event::Refreshed(Refresh::Confirmed {
            identity: Box::new(identity()),
            stored_epoch: 9,
        }),
        Moment(0),
    );
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    greet(&mut node, now);
    node
}

// req: P-003, P-011, P-026, P-030, P-050, P-052, P-058, P-080, P-093
// inv: INV-P1, INV-P2, INV-P14, INV-P22
#[test]
fn each_reason_to_close_closes_the_node_s_end_and_permits_nothing() {
    let now = Moment(0);
    let info = |change: &dyn Fn(&mut oac_wire::frames::Request)| {
        let mut request = request(connection(0), 1, LONG, reference(0), Arguments::Info);
        change(&mut request);
        text(request)
    };
    let good = info(&|_| ());
    let version = good.replace(r#""version":1"#, r#""version":2"#);
    let nodes_own = good.replace(r#""type":"request""#, r#""type":"response""#);
    let other_connection = info(&|r| r.connection_id = connection(9));
    let other_epoch = info(&|r| r.owner_epoch = epoch(2));
    let skipped = info(&|r| r.sequence = 2);
    let other_generation = info(&|r| {
        r.deployment_generation = 2;
        r.body.as_mut().unwrap().deployment_generation = generation(2);
    });
    let one_more = info(&|r| r.sequence = 2 + WAITING_REQUESTS as i64);
    let plain_welcome = welcome(connection(0), epoch(1));
    let plain_ack = ack(connection(0), epoch(1));
    let foreign_ack = ack(connection(9), epoch(1));
    let foreign_epoch_ack = ack(connection(0), epoch(2));
    let oversized = format!("{plain_ack}{}", " ".repeat(32 * 1024));
    let deployed = |d| ack_with(connection(0), epoch(1), Some(d));
    let to_fixed = deployed(deployment(1, None));
    let above = deployed(deployment(2, Some(3)));
    let redigested = deployed(Deployment {
        specification_digest: digest(9),
        ..deployment(2, Some(1))
    });
    let enrolled_redigested = welcome_with(
        connection(0),
        epoch(1),
        Some(Deployment {
            specification_digest: digest(9),
            ..deployment(1, None)
        }),
    );
    let [removing, stalled, dropped] = [3, 4, 5].map(|n| deployed(deployment(n, Some(1))));
    let serving_dropped = deployed(deployment(6, Some(5)));
    let (asking_node, control) = asking();
    let late = HEARTBEAT_MILLIS + RETENTION_MILLIS;
    let mut heard = asking_node;
    heard.apply(Event::Bytes(Moment(late)), Moment(late));
    let unasked = CoreFrame::RetentionAck(retention_ack(&control, |_| false, deployment(2, Some(1))))
        .encode()
        .unwrap();
    let message = |text| Event::Message(str::as_bytes(text));
    let stored = |text: &str| {
        let mut node = managing_greeting(&[], now);
        node.apply(Event::Message(text.as_bytes()), now);
        node
    };
    use Reason as R;
    let cases = vec![
        case!(
            "dial takes 10 s",
            dialing(now),
            Event::Tick,
            Moment(DIAL_MILLIS),
            R::DialLate
        ),
        case!("dial fails", dialing(now), Event::DialFailed, R::DialFailed),
        case!(
            "no report in 15 s",
            measuring(now),
            Event::Tick,
            Moment(WELCOME_MILLIS),
            R::ReportLate
        ),
        case!(
            "no welcome in 15 s",
            greeting(now),
            Event::Tick,
            Moment(WELCOME_MILLIS),
            R::WelcomeLate
        ),
        case!(
            "a frame before hello",
            measuring(now),
            message(&plain_welcome),
            R::UnexpectedFrame
        ),
        case!(
            "another frame than welcome",
            greeting(now),
            message(&plain_ack),
            R::UnexpectedFrame
        ),
        case!(
            "a lower epoch",
            after_epoch_nine(),
            message(&plain_welcome),
            Violation::EpochLower
        ),
        case!(
            "epoch not stored",
            storing(now),
            Event::EpochStored(false),
            R::EpochNotStored
        ),
        case!(
            "no deployment in a managing node's welcome",
            stored(&plain_welcome),
            Event::EpochStored(true),
            R::MissingDeployment
        ),
        case!(
            "enrolled generation with another digest",
            stored(&enrolled_redigested),
            Event::EpochStored(true),
            Violation::DeploymentDigest
        ),
        case!("invalid frame", live(now), message("{"), R::InvalidFrame(_)),
        case!(
            "another version",
            live(now),
            message(&version),
            R::InvalidFrame(FrameError::Version)
        ),
        case!(
            "oversized control frame",
            live(now),
            message(&oversized),
            R::InvalidFrame(FrameError::TooLarge { .. })
        ),
        case!(
            "a frame type Core does not send",
            live(now),
            message(&nodes_own),
            R::InvalidFrame(_)
        ),
        case!(
            "binary or oversized message",
            live(now),
            Event::Unreadable,
            R::Unreadable
        ),
        case!(
            "35 s silence",
            live(now),
            Event::Tick,
            Moment(SILENCE_MILLIS),
            R::Silence
        ),
        case!("write failed", live(now), Event::Lost, R::Lost),
        case!(
            "second welcome",
            live(now),
            message(&plain_welcome),
            R::UnexpectedFrame
        ),
        case!("full queue", full(), message(&one_more), R::QueueFull),
        case!(
            "a deployment to a fixed node",
            live(now),
            message(&to_fixed),
            R::SuperfluousDeployment
        ),
        case!(
            "no deployment in an acknowledgement",
            serving(),
            message(&plain_ack),
            R::MissingDeployment
        ),
        case!(
            "retention unanswered for 35 s",
            heard,
            Event::Tick,
            Moment(late),
            R::RetentionUnanswered
        ),
        case!(
            "request of another connection",
            live(now),
            message(&other_connection),
            Violation::Connection
        ),
        case!(
            "request of another epoch",
            live(now),
            message(&other_epoch),
            Violation::Epoch
        ),
        case!(
            "request out of sequence",
            live(now),
            message(&skipped),
            Violation::Sequence
        ),
        case!(
            "request for another generation",
            live(now),
            message(&other_generation),
            Violation::Generation
        ),
        case!(
            "ack of another connection",
            live(now),
            message(&foreign_ack),
            Violation::Connection
        ),
        case!(
            "ack of another epoch",
            live(now),
            message(&foreign_epoch_ack),
            Violation::Epoch
        ),
        case!(
            "serving above target",
            serving(),
            message(&above),
            Violation::ServingAboveTarget
        ),
        case!(
            "known target with another digest",
            serving(),
            message(&redigested),
            Violation::DeploymentDigest
        ),
        case!(
            "target being removed",
            serving(),
            message(&removing),
            Violation::DeploymentRemoved
        ),
        case!(
            "target half removed",
            serving(),
            message(&stalled),
            Violation::DeploymentRemoved
        ),
        case!(
            "target dropped",
            serving(),
            message(&dropped),
            Violation::DeploymentRemoved
        ),
        case!(
            "serving dropped",
            serving(),
            message(&serving_dropped),
            Violation::DeploymentRemoved
        ),
        case!(
            "retention_ack to a fixed node",
            live(now),
            message(&unasked),
            Violation::Retention
        ),
        case!(
            "retention_ack nothing asked for",
            serving(),
            message(&unasked),
            Violation::Retention
        ),
    ];
    for mut case in cases {
        let actions = case.at.apply(case.event, case.now);
        let (name, shown) = (case.name, format!("{actions:?}"));
        assert!(close_of(&actions).is_some_and(case.reason), "{name}: {shown}");
        assert_eq!(
            actions.contains(&Action::Refresh),
            case.doubtful,
            "{name}: {shown}"
        );
        let effect = |a: &Action| {
            matches!(
                a,
                Action::Run(_)
                    | Action::Send(_)
                    | Action::Granted(..)
                    | Action::Deployment(_)
                    | Action::Exit(_)
            )
        };
        assert!(!actions.iter().any(effect), "{name} has an effect: {shown}");
        // After it no frame is taken, and the process goes on.
        assert_eq!(case.at.apply(message(&good), case.now), [], "{name}");
        let next = if case.doubtful {
            StateName::Refreshing
        } else {
            StateName::Waiting
        };
        assert_eq!(case.at.state(), next, "{name}");
        if case.doubtful {
            case.at.apply(Event::Refreshed(Refresh::Failed), case.now);
        }
        let dial = case.at.next_wakeup().unwrap();
        assert_eq!(case.at.apply(Event::Tick, dial), [Action::Dial], "{name}");
    }
}

// req: P-091, P-092, P-093
// inv: INV-P14
#[test]
fn a_retention_ack_that_differs_in_anything_permits_nothing_and_is_a_violation() {
    let target = deployment(2, Some(1));
    type Spoil = fn(&mut RetentionAck);
    let spoils: [(&str, Spoil); 10] = [
        ("id", |a| a.control.id = request_id(99)),
        ("sequence", |a| a.control.sequence += 1),
        ("connection", |a| a.control.connection_id = connection(9)),
        ("epoch", |a| a.control.owner_epoch = epoch(2)),
        ("one entry fewer", |a| a.control.retentions.truncate(1)),
        ("one entry more", |a| {
            let more = RetentionAnswer {
                generation: generation(99),
                ..a.control.retentions[0]
            };
            a.control.retentions.push(more);
        }),
        ("order", |a| a.control.retentions.swap(0, 1)),
        ("generation", |a| {
            a.control.retentions[0].generation = generation(99)
        }),
        ("digest", |a| {
            a.control.retentions[1].specification_digest = digest(99)
        }),
        ("a deployment that is a violation", |a| {
            a.deployment = deployment(2, Some(3));
        }),
    ];
    let asking = || {
        let held = [local(7, Standing::Ready), local(8, Standing::Ready)];
        let mut node = managing(&held, target, Moment(0));
        let (_, control) = report(&mut node, Moment(HEARTBEAT_MILLIS));
        (node, control.unwrap())
    };
    let now = Moment(HEARTBEAT_MILLIS);
    for (name, spoil) in spoils {
        let (mut node, control) = asking();
        let mut ack = retention_ack(&control, |_| false, target);
        spoil(&mut ack);
        let actions = answer(&mut node, ack, now);
        assert!(
            matches!(
                &actions[..],
                [Action::Close(Reason::Violation(_)), Action::Refresh]
            ),
            "{name}: {actions:?}"
        );
        assert_eq!(node.asked(), [], "{name}");
    }
    // The same answer, unspoiled, permits; a second time it is an answer to nothing.
    let (mut node, control) = asking();
    let ack = retention_ack(&control, |_| false, target);
    assert_eq!(
        answer(&mut node, ack.clone(), now),
        [Action::Granted(connection(0), vec![asked(7), asked(8)])]
    );
    let replayed = answer(&mut node, ack, now);
    assert_eq!(
        close_of(&replayed),
        Some(&Reason::Violation(Violation::Retention))
    );
    // One that crosses a disconnect answers nothing of the next connection.
    let (mut node, control) = asking();
    node.apply(Event::Lost, now);
    reconnect_managing(&mut node, target);
    let stale = retention_ack(&control, |_| false, target);
    let actions = answer(&mut node, stale, Moment(60_000));
    assert_eq!(close_of(&actions), Some(&Reason::Violation(Violation::Retention)));
}

fn reconnect_managing(node: &mut Node, deployment: Deployment) {
    let now = node.next_wakeup().unwrap();
    node.apply(Event::Tick, now);
    greet(node, now);
    let text = welcome_with(connection(1), epoch(1), Some(deployment));
    let actions = node.apply(Event::Message(text.as_bytes()), now);
    assert_eq!(
        actions,
        [
            Action::Accepted(connection(1), epoch(1)),
            Action::Deployment(deployment)
        ],
        "each connection delivers for itself"
    );
}
