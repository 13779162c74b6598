//! What one owner remembers of an allocation: time that counts, and time that does not.

use oac_lifecycle::allocation::{Action, Cause, Mutation, Next, Presence, Snapshot, State, Watch, plan};
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
