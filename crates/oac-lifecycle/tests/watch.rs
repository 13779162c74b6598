//! What one owner remembers of an allocation: time that counts, and time that does not.

use oac_lifecycle::allocation::{
    Action, Cause, Mutation, Next, Noted, Presence, Sighting, Snapshot, State, Watch, plan,
};
use oac_lifecycle::limits;
use oac_model::ConnectionId;

fn uuid(n: u128) -> ::uuid::Uuid {
    ::uuid::Uuid::from_u128(n)
}

#[test]
fn a_reservation_with_no_node_to_send_to_is_given_up_after_its_time() {
    let mut watch = Watch::default();
    let snapshot = Snapshot {
        state: State::Reserved,
        given_up: None,
        in_flight: false,
        node: Presence::Offline,
        initialized: false,
        linked: false,
    };
    watch.tick(&snapshot, 0);
    assert_eq!(
        plan(&snapshot, &watch, 0),
        Next::Wait {
            until: Some(limits::RESERVED_UNSENT)
        }
    );
    watch.tick(&snapshot, limits::RESERVED_UNSENT);
    assert_eq!(
        plan(&snapshot, &watch, limits::RESERVED_UNSENT),
        Next::Act(Action::GiveUp(Cause::Unsent))
    );
}

#[test]
fn the_five_minute_limits_stand_still_while_the_node_is_away() {
    for (state, cause) in [
        (State::Creating(Mutation::Unconfirmed), Cause::CreateUnresolved),
        (
            State::Running {
                phase: oac_model::ComputePhase::Disabled,
            },
            Cause::NeverLinked,
        ),
    ] {
        let mut watch = Watch::default();
        let away = Snapshot {
            state,
            given_up: None,
            in_flight: false,
            node: Presence::Offline,
            initialized: false,
            linked: false,
        };
        let connection = ConnectionId::from_uuid(uuid(1)).unwrap();
        let here = Snapshot {
            node: Presence::Online {
                connection,
                ready: true,
            },
            ..away
        };
        let gives_up = |watch: &Watch, snapshot: &Snapshot, now| {
            plan(snapshot, watch, now) == Next::Act(Action::GiveUp(cause))
        };
        watch.tick(&away, 0);
        watch.tick(&away, 86_400_000);
        assert!(!gives_up(&watch, &away, 86_400_000));
        watch.tick(&here, 86_400_000);
        assert!(!gives_up(&watch, &here, 86_400_000));
        let mut now = 86_400_000 + 299_000;
        watch.tick(&here, now);
        assert!(!gives_up(&watch, &here, now), "{cause:?}");
        watch.tick(&away, now);
        now += 600_000;
        watch.tick(&here, now);
        assert!(!gives_up(&watch, &here, now), "time away does not count");
        now += 1_000;
        watch.tick(&here, now);
        assert!(gives_up(&watch, &here, now), "{cause:?}");
    }
}

/// Every state that can have linked, whether it still is, and every answer that proves nothing.
// inv: INV-C37
#[test]
fn no_time_that_passes_gives_up_what_has_linked() {
    use oac_model::ComputePhase;
    let phases = ComputePhase::ALL
        .iter()
        .map(|phase| State::Running { phase: *phase });
    let states = [Mutation::Intent, Mutation::Sent, Mutation::Unconfirmed].map(State::Creating);
    let connection = ConnectionId::from_uuid(uuid(1)).unwrap();
    for state in states.into_iter().chain(phases) {
        for (initialized, linked) in [(true, false), (true, true)] {
            for answer in [Sighting::Unanswered, Sighting::NotFound, Sighting::Unconfirmed] {
                let snapshot = Snapshot {
                    state,
                    given_up: None,
                    in_flight: false,
                    node: Presence::Online {
                        connection,
                        ready: true,
                    },
                    initialized,
                    linked,
                };
                let mut watch = Watch::default();
                for now in (0..7_200_000).step_by(1_000) {
                    watch.tick(&snapshot, now);
                    match plan(&snapshot, &watch, now) {
                        Next::Act(Action::GiveUp(cause)) => panic!("{snapshot:?}: {cause:?} at {now}"),
                        Next::Act(Action::Look) => {
                            let _ = watch.looked(state, connection, answer, now);
                        }
                        Next::Act(_) | Next::Wait { .. } => {}
                    }
                }
            }
        }
    }
    for cause in [Cause::CreateUnresolved, Cause::NeverLinked] {
        assert!(cause.is_overtaken_by_a_link(), "{cause:?}");
    }
}

// req: G-238
#[test]
fn a_sandbox_that_was_found_missing_is_looked_at_as_soon_as_it_links_again() {
    let connection = ConnectionId::from_uuid(uuid(1)).unwrap();
    let state = State::Running {
        phase: oac_model::ComputePhase::Disabled,
    };
    let down = Snapshot {
        state,
        given_up: None,
        in_flight: false,
        node: Presence::Online {
            connection,
            ready: true,
        },
        initialized: true,
        linked: false,
    };
    let up = Snapshot { linked: true, ..down };
    let looks =
        |watch: &Watch, snapshot: &Snapshot, now| plan(snapshot, watch, now) == Next::Act(Action::Look);
    let mut watch = Watch::default();
    watch.tick(&down, 0);
    assert!(looks(&watch, &down, 0));
    let _ = watch.looked(state, connection, Sighting::SettledPresent, 1);
    watch.tick(&down, 2);
    assert!(!looks(&watch, &down, 2));
    watch.tick(&up, 3);
    assert!(looks(&watch, &up, 3));
    // Once: what is found then, with the link open, is found again no sooner than before.
    let _ = watch.looked(state, connection, Sighting::SettledPresent, 4);
    watch.tick(&up, 5);
    assert!(!looks(&watch, &up, 5));
    let _ = watch.looked(state, connection, Sighting::Running, 6);
    watch.tick(&up, 7);
    assert_eq!(plan(&up, &watch, 7), Next::Wait { until: None });
    watch.tick(&down, 8);
    watch.tick(&up, 9);
    assert_eq!(
        plan(&up, &watch, 9),
        Next::Wait { until: None },
        "nothing was wrong"
    );
}

// inv: INV-C22
#[test]
fn a_loss_takes_two_answers_on_one_connection_that_are_five_seconds_apart() {
    let [one, other] = [1, 2].map(|n| ConnectionId::from_uuid(uuid(n)).unwrap());
    let state = State::Running {
        phase: oac_model::ComputePhase::Disabled,
    };
    let lost = Sighting::Absent { lost: true };
    let noted = |answers: &[(ConnectionId, Sighting, i64)]| {
        let mut watch = Watch::default();
        let all = answers.iter().map(|(on, said, now)| {
            let snapshot = Snapshot {
                state,
                given_up: None,
                in_flight: false,
                node: Presence::Online {
                    connection: *on,
                    ready: true,
                },
                initialized: true,
                linked: false,
            };
            watch.tick(&snapshot, *now);
            watch.looked(state, *on, *said, *now)
        });
        all.last().unwrap() == Noted::Loss
    };
    assert!(!noted(&[(one, lost, 0)]));
    assert!(!noted(&[(one, lost, 0), (one, lost, 4_999)]));
    assert!(noted(&[(one, lost, 0), (one, lost, 5_000)]));
    assert!(!noted(&[(one, lost, 0), (other, lost, 5_000)]));
    assert!(noted(&[(one, lost, 0), (other, lost, 1), (other, lost, 5_001)]));
    for between in [
        Sighting::Running,
        Sighting::Unanswered,
        Sighting::Unconfirmed,
        Sighting::NotFound,
        Sighting::Absent { lost: false },
    ] {
        let answers = [(one, lost, 0), (one, between, 2_500), (one, lost, 5_000)];
        assert!(!noted(&answers), "{between:?}");
    }
}
