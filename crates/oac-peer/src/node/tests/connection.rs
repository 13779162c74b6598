use super::*;

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
