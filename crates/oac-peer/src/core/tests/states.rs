use super::*;

type Make = fn(Moment) -> Connection;
/// Name, event, the moment it happens at, and the next state from each state in order.
type Row<'a> = (&'a str, Event<'a>, u64, &'a str);

fn managing_live(now: Moment) -> Connection {
    managing(&[(1, true)], now)
}

/// Opening before hello, opening while presence is recorded, live, live of a managing node, closing, freed.
const STATES: [(StateName, Make); 6] = [
    (StateName::Opening, opening),
    (StateName::Opening, recording),
    (StateName::Live, live),
    (StateName::Live, managing_live),
    (StateName::Closing, closing),
    (StateName::Freed, freed),
];

fn state_of(letter: char) -> StateName {
    match letter {
        'O' => StateName::Opening,
        'L' => StateName::Live,
        'C' => StateName::Closing,
        'F' => StateName::Freed,
        other => panic!("no state {other}"),
    }
}

/// The table of [`Connection`]: every state, every event, the next state.
#[test]
fn every_event_in_every_state_leads_where_the_table_says() {
    let good_hello = hello(identity(), true);
    let managing_hello = hello_of(identity(), managed(&[(1, true)]), Some(true));
    let beat = heartbeat(connection(0), epoch(1), true);
    let managed_beat = heartbeat_of(managed(&[(2, true)]));
    let other_beat = heartbeat(connection(9), epoch(1), true);
    let answer = frame(response(request_id(9), None, None));
    let asks = retention(control(1, &[asked(3)]));
    let text = |text: &'static str| Event::Message(text.as_bytes(), wall());
    let message = |text| Event::Message(str::as_bytes(text), wall());
    let failed = || Recorded::Failed(RecordFailure::Storage);
    let kept = || RetentionAnswer::Done {
        keep: vec![true],
        deployment: deployment(2, Some(1)),
    };
    let rows = || -> Vec<Row<'_>> {
        vec![
            ("tick", Event::Tick, 0, "OOLLCF"),
            ("tick at 5 s", Event::Tick, REMOVAL_MILLIS, "OOLLFF"),
            ("tick before 15 s", Event::Tick, HELLO_MILLIS - 1, "OOLLFF"),
            ("tick at 15 s", Event::Tick, HELLO_MILLIS, "FOLLFF"),
            ("tick before 35 s", Event::Tick, SILENCE_MILLIS - 1, "FOLLFF"),
            ("tick at 35 s", Event::Tick, SILENCE_MILLIS, "FCCCFF"),
            ("bytes", Event::Bytes(Moment(0)), 0, "OOLLCF"),
            ("hello", message(&good_hello), 0, "OCCCCF"),
            ("hello of a managing node", message(&managing_hello), 0, "OCCCCF"),
            ("heartbeat", message(&beat), 0, "FCLCCF"),
            ("heartbeat with generations", message(&managed_beat), 0, "FCCLCF"),
            (
                "heartbeat of another connection",
                message(&other_beat),
                0,
                "FCCCCF",
            ),
            ("response", message(&answer), 0, "FCLLCF"),
            ("retention", message(&asks), 0, "FCCLCF"),
            ("no frame", text("{}"), 0, "FCCCCF"),
            ("unreadable", Event::Unreadable, 0, "FCCCCF"),
            ("lost", Event::Lost, 0, "FCCCCF"),
            (
                "recorded",
                Event::PresenceRecorded(Recorded::Done(None)),
                0,
                "OLLLCF",
            ),
            ("not recorded", Event::PresenceRecorded(failed()), 0, "OCLLCF"),
            (
                "health recorded",
                Event::HealthRecorded(Recorded::Done(None)),
                0,
                "OOLLCF",
            ),
            (
                "health not recorded",
                Event::HealthRecorded(failed()),
                0,
                "OOLLCF",
            ),
            (
                "retention answered",
                Event::RetentionAnswered(kept()),
                0,
                "OOLLCF",
            ),
            ("removed", Event::PresenceRemoved, 0, "OOLLFF"),
            ("epoch lost", Event::EpochLost, 0, "FFFFFF"),
            ("stop", Event::Stop, 0, "FCCCCF"),
        ]
    };
    for row in 0..rows().len() {
        for (index, (state, make)) in STATES.iter().enumerate() {
            let (name, event, at, next) = rows().swap_remove(row);
            let next = state_of(next.chars().nth(index).unwrap());
            let mut c = make(Moment(0));
            assert_eq!(c.state(), *state);
            let actions = c.apply(event, Moment(at));
            let shown = format!("{name} in state {index}: {actions:?}");
            assert_eq!(c.state(), next, "{shown}");
            let closes = matches!(state, StateName::Opening | StateName::Live)
                && matches!(next, StateName::Closing | StateName::Freed);
            assert_eq!(close_of(&actions).is_some(), closes, "{shown}");
            let frees = *state != StateName::Freed && next == StateName::Freed;
            assert_eq!(actions.contains(&Action::Free), frees, "{shown}");
            if closes {
                assert_eq!(sends(&actions), 0, "a closing connection sends nothing: {shown}");
            }
        }
    }
}

// inv: INV-P3
#[test]
fn an_identity_is_free_again_only_with_the_action_that_says_so() {
    // Whatever ends a connection, `Free` comes once, and at the latest 5 s after the end.
    let ends: [fn() -> Event<'static>; 4] = [
        || Event::Lost,
        || Event::Unreadable,
        || Event::Stop,
        || Event::EpochLost,
    ];
    for (index, (_, make)) in STATES.iter().enumerate().take(4) {
        for end in ends {
            let mut c = make(Moment(0));
            let mut freed = c.apply(end(), Moment(0));
            freed.extend(c.apply(Event::PresenceRecorded(Recorded::Done(None)), Moment(1)));
            freed.extend(c.apply(Event::Tick, Moment(REMOVAL_MILLIS)));
            freed.extend(c.apply(Event::PresenceRemoved, Moment(REMOVAL_MILLIS + 1)));
            let free = freed.iter().filter(|a| **a == Action::Free).count();
            assert_eq!(free, 1, "state {index}: {freed:?}");
            assert_eq!(c.state(), StateName::Freed);
        }
    }
}
