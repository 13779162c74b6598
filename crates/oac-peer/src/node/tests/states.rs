use super::*;

type Make = fn(Moment) -> Node;
/// Name, event, the moment it happens at, and the next state from each state in order.
type Row<'a> = (&'a str, Event<'a>, u64, &'a str);

fn waiting(now: Moment) -> Node {
    let mut node = dialing(now);
    node.apply(Event::DialFailed, now);
    node
}

fn managing_live(now: Moment) -> Node {
    managing(&[local(1, Standing::Ready)], deployment(1, Some(1)), now)
}

/// Waiting, dialing, greeting while the report is made, after hello, while the epoch is stored, live, live of a
/// managing node, refreshing, stopped.
const STATES: [(StateName, Make); 9] = [
    (StateName::Waiting, waiting),
    (StateName::Dialing, dialing),
    (StateName::Greeting, measuring),
    (StateName::Greeting, greeting),
    (StateName::Greeting, storing),
    (StateName::Live, live),
    (StateName::Live, managing_live),
    (StateName::Refreshing, refreshing),
    (StateName::Stopped, stopped),
];

fn state_of(letter: char) -> StateName {
    match letter {
        'W' => StateName::Waiting,
        'D' => StateName::Dialing,
        'G' => StateName::Greeting,
        'L' => StateName::Live,
        'R' => StateName::Refreshing,
        'S' => StateName::Stopped,
        other => panic!("no state {other}"),
    }
}

/// The table of [`Node`]: every state, every event, the next state.
#[test]
fn every_event_in_every_state_leads_where_the_table_says() {
    let good_welcome = welcome(connection(0), epoch(1));
    let deployed_welcome = welcome_with(connection(0), epoch(1), Some(deployment(1, None)));
    let good_ack = ack(connection(0), epoch(1));
    let deployed_ack = ack_with(connection(0), epoch(1), Some(deployment(1, None)));
    let other_ack = ack(connection(9), epoch(1));
    let info = text(request(connection(0), 1, LONG, reference(0), Arguments::Info));
    let skipped = text(request(connection(0), 2, LONG, reference(0), Arguments::Info));
    let unasked = retention_ack(
        &RetentionControl {
            id: request_id(1),
            sequence: 1,
            connection_id: connection(0),
            owner_epoch: epoch(1),
            references: vec![asked(7)],
        },
        |_| false,
        deployment(1, None),
    );
    let unasked = CoreFrame::RetentionAck(unasked).encode().unwrap();
    let confirmed = || Refresh::Confirmed {
        identity: Box::new(identity()),
        stored_epoch: 1,
    };
    let message = |text| Event::Message(str::as_bytes(text));
    let table = || vec![local(1, Standing::Ready)];
    let measured = |attempt| Event::Measured(Attempt(attempt), Box::new(health(true)));
    let rows = || -> Vec<Row<'_>> {
        vec![
            ("early tick", Event::Tick, 0, "WDGGGLLRS"),
            ("tick after the backoff", Event::Tick, 1_000, "DDGGGLLRS"),
            ("tick before 10 s", Event::Tick, DIAL_MILLIS - 1, "DDGGGLLRS"),
            ("tick at 10 s", Event::Tick, DIAL_MILLIS, "DWGGGLLRS"),
            ("tick before 15 s", Event::Tick, WELCOME_MILLIS - 1, "DWGGGLLRS"),
            ("tick at 15 s", Event::Tick, WELCOME_MILLIS, "DWWWGLLRS"),
            ("tick before 35 s", Event::Tick, SILENCE_MILLIS - 1, "DWWWGLLRS"),
            ("tick at 35 s", Event::Tick, SILENCE_MILLIS, "DWWWGWWRS"),
            ("upgraded", Event::Upgraded, 0, "WGGGGLLRS"),
            ("refused", Event::Refused, 0, "WRGGGLLRS"),
            ("dial failed", Event::DialFailed, 0, "WWGGGLLRS"),
            ("bytes", Event::Bytes(Moment(0)), 0, "WDGGGLLRS"),
            ("unreadable", Event::Unreadable, 0, "WDWWWWWRS"),
            ("lost", Event::Lost, 0, "WDWWWWWRS"),
            ("no frame", message("{}"), 0, "WDWWWWWRS"),
            ("welcome", message(&good_welcome), 0, "WDWGWWWRS"),
            (
                "welcome with a deployment",
                message(&deployed_welcome),
                0,
                "WDWGWWWRS",
            ),
            ("ack", message(&good_ack), 0, "WDWWWLWRS"),
            ("ack with a deployment", message(&deployed_ack), 0, "WDWWWWLRS"),
            ("ack of another connection", message(&other_ack), 0, "WDWWWRRRS"),
            ("request", message(&info), 0, "WDWWWLLRS"),
            ("request out of sequence", message(&skipped), 0, "WDWWWRRRS"),
            (
                "retention_ack nobody asked for",
                message(&unasked),
                0,
                "WDWWWRRRS",
            ),
            ("report", measured(1), 0, "WDGGGLLRS"),
            ("stale report", measured(99), 0, "WDGGGLLRS"),
            ("epoch stored", Event::EpochStored(true), 0, "WDGGLLLRS"),
            ("epoch not stored", Event::EpochStored(false), 0, "WDGGWLLRS"),
            ("confirmed", Event::Refreshed(confirmed()), 0, "WDGGGLLWS"),
            (
                "refresh failed",
                Event::Refreshed(Refresh::Failed),
                0,
                "WDGGGLLWS",
            ),
            (
                "refresh refused",
                Event::Refreshed(Refresh::Refused),
                0,
                "WDGGGLLSS",
            ),
            (
                "unknown answer",
                Event::Answered(unknown_ticket(), crate::Outcome::Success(None)),
                0,
                "WDGGGLLRS",
            ),
            ("unknown end", Event::Ended(unknown_ticket()), 0, "WDGGGLLRS"),
            ("generations", Event::Generations(table()), 0, "WDGGGLLRS"),
            ("stop", Event::Stop, 0, "SSSSSSSSS"),
        ]
    };
    for row in 0..rows().len() {
        for (index, (state, make)) in STATES.iter().enumerate() {
            let (name, event, at, next) = rows().swap_remove(row);
            let next = state_of(next.chars().nth(index).unwrap());
            let mut node = make(Moment(0));
            assert_eq!(node.state(), *state);
            let actions = node.apply(event, Moment(at));
            let shown = format!("{name} in state {index}: {actions:?}");
            assert_eq!(node.state(), next, "{shown}");
            if *state == StateName::Stopped {
                assert_eq!(actions, [], "{shown}");
            }
            let connected =
                |s: StateName| matches!(s, StateName::Dialing | StateName::Greeting | StateName::Live);
            if connected(*state) && !connected(next) {
                assert!(close_of(&actions).is_some(), "{shown}");
            }
            let ends = *state != StateName::Stopped && next == StateName::Stopped;
            let exits = actions.iter().any(|a| matches!(a, Action::Exit(_)));
            assert_eq!(exits, ends, "{shown}");
        }
    }
}

/// A ticket that no operation of a fresh node has.
fn unknown_ticket() -> Ticket {
    let mut node = live(Moment(0));
    let mut last = None;
    for sequence in 1..=3 {
        let arguments = Arguments::Info;
        let started = jobs(send(
            &mut node,
            0,
            sequence,
            sequence as u64,
            arguments,
            Moment(0),
        ));
        if let Some(job) = started.into_iter().next() {
            node.apply(Event::Ended(job.ticket), Moment(0));
            last = Some(job.ticket);
        }
    }
    last.unwrap()
}
