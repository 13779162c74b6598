use super::*;

// req: P-029
#[test]
fn a_heartbeat_is_recorded_before_it_is_acknowledged_and_a_failure_closes() {
    let mut c = live(Moment(0));
    let beat = heartbeat(connection(0), epoch(1), true);
    let actions = c.apply(Event::Message(beat.as_bytes(), wall()), Moment(1));
    assert!(matches!(actions[..], [Action::RecordHealth(_)]), "{actions:?}");
    // A slow store meets the next report: it is recorded after this one.
    assert_eq!(c.apply(Event::Message(beat.as_bytes(), wall()), Moment(2)), []);
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
        c.apply(Event::Message(beat.as_bytes(), wall()), Moment(1));
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
        let actions = c.apply(Event::Message(beat.as_bytes(), wall()), Moment(1));
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
        let actions = c.apply(Event::Message(bad.as_bytes(), wall()), Moment(0));
        assert!(
            matches!(close_of(&actions), Some(CloseReason::InvalidFrame(_))),
            "{bad}"
        );
        assert!(!actions.iter().any(|a| matches!(a, Action::RecordHealth(_))));
    }
}

// req: P-029
#[test]
fn heartbeats_that_arrive_while_one_is_recorded_share_the_next_recording_and_each_is_acknowledged() {
    let mut c = live(Moment(0));
    for ready in [true, true, false] {
        let beat = heartbeat(connection(0), epoch(1), ready);
        c.apply(Event::Message(beat.as_bytes(), wall()), Moment(1));
    }
    let actions = c.apply(Event::HealthRecorded(Recorded::Done(None)), Moment(2));
    let [Action::RecordHealth(newest), Action::Send(_)] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert!(!newest.provider_ready);
    let actions = c.apply(Event::HealthRecorded(Recorded::Done(None)), Moment(3));
    let due = ack(connection(0), epoch(1));
    assert_eq!(actions, [Action::Send(due.clone()), Action::Send(due)]);
}
