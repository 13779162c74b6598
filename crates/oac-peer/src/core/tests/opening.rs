use super::*;

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
        let actions = c.apply(Event::Message(text.as_bytes(), wall()), Moment(0));
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
    let actions = c.apply(Event::Message(text.as_bytes(), wall()), Moment(0));
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
