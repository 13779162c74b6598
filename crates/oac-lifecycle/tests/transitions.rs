//! Every pair of state and event, against the table in the documentation of `State`.

use oac_lifecycle::allocation::{
    Cause, CreateProof, Event, Kill, Mutation, OperationState, Record, Refused, Sighting, State,
};
use oac_model::{AllocationState, ComputePhase};

use Mutation::{Intent, Sent, Unconfirmed};

const RUNNING: State = State::Running {
    phase: ComputePhase::Disabled,
};

fn cleanup(create: CreateProof, kill: Kill) -> State {
    State::CleanupPending {
        cause: Cause::Archive,
        create,
        kill,
    }
}

fn states() -> Vec<State> {
    let mut all = vec![
        State::Reserved,
        State::Creating(Intent),
        State::Creating(Sent),
        State::Creating(Unconfirmed),
        RUNNING,
        State::Released,
    ];
    for create in [
        CreateProof::Settled,
        CreateProof::Unproven(Sent),
        CreateProof::Unproven(Unconfirmed),
    ] {
        for kill in [
            Kill::NotYet,
            Kill::Open(Intent),
            Kill::Open(Sent),
            Kill::Open(Unconfirmed),
            Kill::Confirmed,
        ] {
            // A kill is never begun while the create may still be answered.
            if create != CreateProof::Unproven(Sent) || kill == Kill::NotYet {
                all.push(cleanup(create, kill));
            }
        }
    }
    all
}

const SIGHTINGS: [Sighting; 10] = [
    Sighting::Running,
    Sighting::SettledPresent,
    Sighting::Present,
    Sighting::Absent { lost: false },
    Sighting::Absent { lost: true },
    Sighting::NotFound,
    Sighting::Ownership,
    Sighting::Refused,
    Sighting::Unconfirmed,
    Sighting::Unanswered,
];

fn events() -> Vec<Event> {
    let mut all = vec![
        Event::CreateIntended,
        Event::KillIntended,
        Event::MarkedSent,
        Event::NotSent,
        Event::AnswerLost,
        Event::KillAnswered,
        Event::LossConfirmed,
        Event::GivenUp(Cause::Archive),
    ];
    all.extend(SIGHTINGS.map(Event::CreateAnswered));
    all.extend(SIGHTINGS.map(Event::Observed));
    all
}

/// The table, row by row; `None` refuses.
fn table(state: State, event: Event) -> Option<State> {
    let settles = |s: Sighting| {
        matches!(
            s,
            Sighting::Running | Sighting::SettledPresent | Sighting::Absent { .. }
        )
    };
    let by = |s: Sighting| match s {
        Sighting::Running => RUNNING,
        s if settles(s) => State::CleanupPending {
            cause: Cause::CreateFailed,
            create: CreateProof::Settled,
            kill: Kill::NotYet,
        },
        _ => State::Creating(Unconfirmed),
    };
    let proof = |s: Sighting, otherwise| {
        if settles(s) {
            CreateProof::Settled
        } else {
            otherwise
        }
    };
    let unproven = CreateProof::Unproven(Unconfirmed);
    Some(match (state, event) {
        (State::Reserved, Event::CreateIntended) => State::Creating(Intent),
        (State::Reserved, Event::GivenUp(_)) => State::Released,

        (State::Creating(Intent), Event::MarkedSent) => State::Creating(Sent),
        (State::Creating(Intent), Event::NotSent) => State::Reserved,
        (State::Creating(Intent), Event::GivenUp(_)) => State::Released,

        (State::Creating(Sent), Event::NotSent) => State::Reserved,
        (State::Creating(Sent), Event::AnswerLost) => State::Creating(Unconfirmed),
        (State::Creating(Sent), Event::CreateAnswered(s)) => by(s),
        (State::Creating(Sent), Event::GivenUp(_)) => cleanup(CreateProof::Unproven(Sent), Kill::NotYet),

        (State::Creating(Unconfirmed), Event::Observed(s)) => by(s),
        (State::Creating(Unconfirmed), Event::GivenUp(_)) => cleanup(unproven, Kill::NotYet),

        (State::Running { .. }, Event::Observed(_)) => state,
        (State::Running { .. }, Event::GivenUp(_)) => cleanup(CreateProof::Settled, Kill::NotYet),
        (State::Running { .. }, Event::LossConfirmed) => State::CleanupPending {
            cause: Cause::ComputeLost,
            create: CreateProof::Settled,
            kill: Kill::NotYet,
        },

        (State::Released, Event::GivenUp(_)) => state,
        (State::CleanupPending { .. }, Event::GivenUp(_)) => state,

        (
            State::CleanupPending {
                create: CreateProof::Unproven(Sent),
                ..
            },
            event,
        ) => match event {
            Event::NotSent => State::Released,
            Event::AnswerLost => cleanup(unproven, Kill::NotYet),
            Event::CreateAnswered(s) => cleanup(proof(s, unproven), Kill::NotYet),
            _ => return None,
        },
        (State::CleanupPending { create, kill, .. }, event) => match (kill, event) {
            (Kill::NotYet | Kill::Open(Unconfirmed) | Kill::Confirmed, Event::KillIntended) => {
                cleanup(create, Kill::Open(Intent))
            }
            (Kill::Open(Intent), Event::MarkedSent) => cleanup(create, Kill::Open(Sent)),
            (Kill::Open(Intent | Sent), Event::NotSent) => cleanup(create, Kill::NotYet),
            (Kill::Open(Sent), Event::AnswerLost) => cleanup(create, Kill::Open(Unconfirmed)),
            (Kill::Open(Sent), Event::KillAnswered) => cleanup(create, Kill::Confirmed),
            (Kill::Confirmed, Event::Observed(Sighting::Absent { .. })) => State::Released,
            (Kill::NotYet | Kill::Open(Unconfirmed) | Kill::Confirmed, Event::Observed(s)) => {
                cleanup(proof(s, create), kill)
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[test]
fn every_pair_of_state_and_event_follows_the_table_or_is_refused() {
    for state in states() {
        for event in events() {
            let expected = table(state, event).ok_or(Refused { state, event });
            assert_eq!(state.apply(event), expected, "{state:?} on {event:?}");
        }
    }
}

// inv: INV-C18, INV-P10
#[test]
fn only_a_settled_absence_after_a_confirmed_kill_releases_what_was_ever_sent() {
    for state in states() {
        for event in events() {
            if state.apply(event) != Ok(State::Released) || state == State::Released {
                continue;
            }
            let unsent = matches!(
                (state, event),
                (State::Reserved | State::Creating(Intent), Event::GivenUp(_))
                    | (
                        State::CleanupPending {
                            create: CreateProof::Unproven(Sent),
                            ..
                        },
                        Event::NotSent
                    )
            );
            let proven = matches!(
                (state, event),
                (
                    State::CleanupPending {
                        kill: Kill::Confirmed,
                        ..
                    },
                    Event::Observed(Sighting::Absent { .. })
                )
            );
            assert!(unsent || proven, "{state:?} on {event:?}");
        }
    }
}

#[test]
fn no_event_leads_out_of_the_known_states_and_none_opens_a_second_mutation() {
    for state in states() {
        for event in events() {
            let Ok(next) = state.apply(event) else { continue };
            let with_archive = match next {
                State::CleanupPending { create, kill, .. } => cleanup(create, kill),
                other => other,
            };
            assert!(
                states().contains(&with_archive),
                "{state:?} on {event:?} gave {next:?}"
            );
            let opens = matches!(event, Event::CreateIntended | Event::KillIntended);
            assert!(!opens || state.open().is_none(), "{event:?} on {state:?}");
        }
    }
}

fn record_of(state: State) -> Record {
    let row = |open: Mutation| match open {
        Intent => OperationState::Intent,
        Sent => OperationState::Sent,
        Unconfirmed => OperationState::Unconfirmed,
    };
    let mut record = Record {
        state: state.kind(),
        phase: ComputePhase::Disabled,
        cause: None,
        create_settled: false,
        create: None,
        kill: None,
    };
    match state {
        State::Creating(open) => record.create = Some(row(open)),
        State::Running { .. } => {
            record.create_settled = true;
            record.create = Some(OperationState::Settled);
        }
        State::CleanupPending { cause, create, kill } => {
            record.cause = Some(cause);
            match create {
                CreateProof::Settled => record.create_settled = true,
                CreateProof::Unproven(open) => record.create = Some(row(open)),
            }
            record.kill = match kill {
                Kill::NotYet => None,
                Kill::Open(open) => Some(row(open)),
                Kill::Confirmed => Some(OperationState::Settled),
            };
        }
        State::Reserved | State::Released => {}
    }
    record
}

#[test]
fn a_state_read_back_from_its_rows_is_the_same_state() {
    for state in states() {
        assert_eq!(State::try_from(record_of(state)), Ok(state));
    }
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let creating = Record {
        state: AllocationState::Creating,
        ..record_of(State::Reserved)
    };
    assert!(
        State::try_from(creating).is_err(),
        "a create without its operation"
    );
    let unsent = record_of(cleanup(CreateProof::Settled, Kill::NotYet));
    let unsent = Record {
        create_settled: false,
        create: Some(OperationState::Rejected),
        ..unsent
    };
    assert!(
        State::try_from(unsent).is_err(),
        "a cleanup of what was never sent"
    );
}
