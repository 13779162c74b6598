//! Core's end, by subject: the table of states, opening, heartbeats, calls, answers, managing nodes, reasons to close.

mod answers;
mod calls;
mod closing;
mod heartbeats;
mod managing;
mod opening;
mod states;

use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        GenerationState, GenerationStatus, Heartbeat, Hello, Response, ResponseResult, Retention,
        RetentionControl,
    },
    shapes::{self, Operation},
};

use super::*;
use crate::{
    FailureCode,
    both_ends::registered,
    fixtures::*,
    limits::{HELLO_MILLIS, PENDING_REQUESTS, REMOVAL_MILLIS, SILENCE_MILLIS},
};

fn opening(now: Moment) -> Connection {
    Connection::open(registered(false), connection(0), epoch(1), now)
}

fn hello(identity: Identity, ready: bool) -> String {
    hello_of(identity, health(ready), None)
}

fn hello_of(identity: Identity, health: Health, generation_management: Option<bool>) -> String {
    let hello = Hello {
        identity,
        health,
        generation_management,
    };
    NodeFrame::Hello(Box::new(hello)).encode().unwrap()
}

/// What a managing node says: each generation, and whether it is ready.
fn managed(statuses: &[(i64, bool)]) -> Health {
    let status = |&(n, ready): &(i64, bool)| GenerationStatus {
        generation: generation(n),
        specification_digest: digest(n),
        state: match ready {
            true => GenerationState::Ready,
            false => GenerationState::Preparing,
        },
        diagnostic: None,
    };
    Health {
        generations: Some(statuses.iter().map(status).collect()),
        ..health(false)
    }
}

fn facts(deployment: Deployment) -> Recorded {
    Recorded::Done(Some(Facts {
        deployment,
        ignored: Vec::new(),
    }))
}

/// A live managing node that reported `statuses`.
fn managing(statuses: &[(i64, bool)], now: Moment) -> Connection {
    let mut c = opening(now);
    let text = hello_of(identity(), managed(statuses), Some(true));
    let actions = c.apply(Event::Message(text.as_bytes(), wall()), now);
    assert!(
        matches!(&actions[..], [Action::RecordPresence(p)] if p.managing),
        "{actions:?}"
    );
    let actions = c.apply(Event::PresenceRecorded(facts(deployment(2, Some(1)))), now);
    let [Action::Send(text), Action::Live] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(
        *text,
        welcome_with(connection(0), epoch(1), Some(deployment(2, Some(1))))
    );
    c
}

fn heartbeat_of(health: Health) -> String {
    let frame = Heartbeat {
        connection_id: connection(0),
        owner_epoch: epoch(1),
        health,
    };
    NodeFrame::Heartbeat(Box::new(frame)).encode().unwrap()
}

fn control(sequence: i64, asked: &[RetentionReference]) -> RetentionControl {
    RetentionControl {
        id: request_id(sequence as u64),
        sequence,
        connection_id: connection(0),
        owner_epoch: epoch(1),
        references: asked.to_vec(),
    }
}

fn retention(control: RetentionControl) -> String {
    NodeFrame::Retention(Retention { control }).encode().unwrap()
}

fn recording(now: Moment) -> Connection {
    let mut c = opening(now);
    let actions = c.apply(Event::Message(hello(identity(), true).as_bytes(), wall()), now);
    assert!(matches!(actions[..], [Action::RecordPresence(_)]), "{actions:?}");
    c
}

fn live(now: Moment) -> Connection {
    live_with(true, now)
}

fn live_with(ready: bool, now: Moment) -> Connection {
    let mut c = opening(now);
    c.apply(Event::Message(hello(identity(), ready).as_bytes(), wall()), now);
    let actions = c.apply(Event::PresenceRecorded(Recorded::Done(None)), now);
    let [Action::Send(text), Action::Live] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(*text, welcome(connection(0), epoch(1)));
    c
}

fn closing(now: Moment) -> Connection {
    let mut c = live(now);
    c.apply(Event::Lost, now);
    c
}

fn freed(now: Moment) -> Connection {
    let mut c = closing(now);
    c.apply(Event::PresenceRemoved, now);
    c
}

fn heartbeat(connection_id: ConnectionId, owner_epoch: OwnerEpoch, ready: bool) -> String {
    let frame = Heartbeat {
        connection_id,
        owner_epoch,
        health: health(ready),
    };
    NodeFrame::Heartbeat(Box::new(frame)).encode().unwrap()
}

fn response(id: RequestId, code: Option<&str>, result: Option<ResponseResult>) -> Response {
    Response {
        id,
        connection_id: connection(0),
        error_code: code.map(str::to_owned),
        result: Ok(result),
    }
}

fn frame(response: Response) -> String {
    NodeFrame::Response(Box::new(response)).encode().unwrap()
}

fn call(n: u64, lane: u64, arguments: Arguments, deadline: Moment) -> Call {
    Call {
        id: request_id(n),
        generation: generation(1),
        reference: reference(lane),
        arguments,
        deadline,
        unsupported_reason: None,
    }
}

fn requested(action: Action) -> oac_wire::frames::Request {
    let Action::Send(text) = action else {
        panic!("{action:?}");
    };
    match CoreFrame::decode(text.as_bytes()).unwrap() {
        CoreFrame::Request(request) => *request,
        other => panic!("{other:?}"),
    }
}

fn close_of(actions: &[Action]) -> Option<&CloseReason> {
    actions.iter().find_map(|a| match a {
        Action::Close(reason) => Some(reason),
        _ => None,
    })
}

fn sends(actions: &[Action]) -> usize {
    actions.iter().filter(|a| matches!(a, Action::Send(_))).count()
}
