//! The node's end, by subject: the table of states, the connection, requests, answers, managed generations, reasons to
//! close.

mod answers;
mod closing;
mod connection;
mod managing;
mod requests;
mod states;

use oac_model::DiagnosticCode;
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{
        Arguments, GenerationState, Hello, Response, ResponseResult, RetentionAck, RetentionAckControl,
        RetentionAnswer, RetentionControl,
    },
};

use super::*;
use crate::{
    FailureCode,
    fixtures::*,
    limits::{
        DIAL_MILLIS, HEARTBEAT_MILLIS, RETENTION_MILLIS, SILENCE_MILLIS, WAITING_REQUESTS, WELCOME_MILLIS,
    },
};

const SLOTS: usize = 2;
const LONG: u32 = 60_000;

fn fresh(now: Moment) -> Node {
    Node::new(identity(), 0, SLOTS, 7, now)
}

fn dialing(now: Moment) -> Node {
    let mut node = fresh(now);
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    node
}

fn measuring(now: Moment) -> Node {
    let mut node = dialing(now);
    assert!(matches!(
        node.apply(Event::Upgraded, now)[..],
        [Action::Measure(_)]
    ));
    node
}

fn greeting(now: Moment) -> Node {
    let mut node = dialing(now);
    greet(&mut node, now);
    node
}

/// From Dialing until hello was sent.
fn greet(node: &mut Node, now: Moment) -> Hello {
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    let actions = node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    match sent(&actions).pop() {
        Some(NodeFrame::Hello(hello)) => *hello,
        other => panic!("{other:?}"),
    }
}

fn storing(now: Moment) -> Node {
    let mut node = greeting(now);
    let text = welcome(connection(0), epoch(1));
    node.apply(Event::Message(text.as_bytes()), now);
    node
}

fn local(n: i64, standing: Standing) -> Local {
    Local {
        generation: generation(n),
        specification_digest: digest(n),
        standing,
        acquirable: matches!(standing, Standing::Ready | Standing::Failed(_)),
    }
}

/// A managing node past its hello.
fn managing_greeting(local: &[Local], now: Moment) -> Node {
    let mut node = fresh(now).managing(local.iter().copied());
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    greet(&mut node, now);
    node
}

/// A live managing node that was told `deployment`.
fn managing(local: &[Local], deployment: Deployment, now: Moment) -> Node {
    let mut node = managing_greeting(local, now);
    let text = welcome_with(connection(0), epoch(1), Some(deployment));
    node.apply(Event::Message(text.as_bytes()), now);
    assert_eq!(
        node.apply(Event::EpochStored(true), now),
        [
            Action::Accepted(connection(0), epoch(1)),
            Action::Deployment(deployment)
        ]
    );
    node
}

/// The frames of the heartbeat that is due at `now`.
fn beat(node: &mut Node, now: Moment) -> Vec<NodeFrame> {
    node.apply(Event::Bytes(now), now);
    let actions = node.apply(Event::Tick, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    sent(&node.apply(Event::Measured(attempt, Box::new(health(true))), now))
}

/// What a heartbeat says of generations, and what is asked beside it.
fn report(node: &mut Node, now: Moment) -> (Vec<i64>, Option<RetentionControl>) {
    let mut frames = beat(node, now).into_iter();
    let Some(NodeFrame::Heartbeat(heartbeat)) = frames.next() else {
        panic!("a heartbeat comes first");
    };
    let named = heartbeat.health.generations.unwrap();
    let control = frames.next().map(|frame| match frame {
        NodeFrame::Retention(retention) => retention.control,
        other => panic!("{other:?}"),
    });
    assert!(frames.next().is_none());
    (named.iter().map(|s| s.generation.get()).collect(), control)
}

/// The answer to `control` that keeps what `keep` admits.
fn retention_ack(
    control: &RetentionControl,
    keep: impl Fn(i64) -> bool,
    deployment: Deployment,
) -> RetentionAck {
    let answer = |r: &RetentionReference| RetentionAnswer {
        generation: r.generation,
        specification_digest: r.specification_digest,
        keep: keep(r.generation.get()),
    };
    RetentionAck {
        control: RetentionAckControl {
            id: control.id,
            sequence: control.sequence,
            connection_id: control.connection_id,
            owner_epoch: control.owner_epoch,
            retentions: control.references.iter().map(answer).collect(),
        },
        deployment,
    }
}

fn answer(node: &mut Node, ack: RetentionAck, now: Moment) -> Vec<Action> {
    let text = CoreFrame::RetentionAck(ack).encode().unwrap();
    node.apply(Event::Message(text.as_bytes()), now)
}

fn acknowledge(node: &mut Node, deployment: Option<Deployment>, now: Moment) -> Vec<Action> {
    let text = ack_with(connection(0), epoch(1), deployment);
    node.apply(Event::Message(text.as_bytes()), now)
}

fn live(now: Moment) -> Node {
    let mut node = greeting(now);
    let text = welcome(connection(0), epoch(1));
    assert_eq!(
        node.apply(Event::Message(text.as_bytes()), now),
        [Action::StoreEpoch(epoch(1))]
    );
    assert_eq!(
        node.apply(Event::EpochStored(true), now),
        [Action::Accepted(connection(0), epoch(1))]
    );
    node
}

/// A live node whose connection has number `n` and which has stored epoch 1 already.
fn reconnect(node: &mut Node, n: u64, now: Moment) {
    assert_eq!(node.state(), StateName::Waiting);
    let now = now.max(node.next_wakeup().unwrap());
    assert_eq!(node.apply(Event::Tick, now), [Action::Dial]);
    let actions = node.apply(Event::Upgraded, now);
    let [Action::Measure(attempt)] = actions[..] else {
        panic!("{actions:?}");
    };
    node.apply(Event::Measured(attempt, Box::new(health(true))), now);
    let text = welcome(connection(n), epoch(1));
    assert_eq!(
        node.apply(Event::Message(text.as_bytes()), now),
        [Action::Accepted(connection(n), epoch(1))]
    );
}

fn refreshing(now: Moment) -> Node {
    let mut node = dialing(now);
    assert_eq!(
        node.apply(Event::Refused, now),
        [Action::Close(Reason::Refused), Action::Refresh]
    );
    node
}

fn stopped(now: Moment) -> Node {
    let mut node = fresh(now);
    node.apply(Event::Stop, now);
    node
}

fn sent(actions: &[Action]) -> Vec<NodeFrame> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(text) => Some(NodeFrame::decode(text.as_bytes()).unwrap()),
            _ => None,
        })
        .collect()
}

fn responses(actions: &[Action]) -> Vec<Response> {
    sent(actions)
        .into_iter()
        .map(|frame| match frame {
            NodeFrame::Response(response) => *response,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn jobs(actions: Vec<Action>) -> Vec<Job> {
    actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Run(job) => Some(job),
            _ => None,
        })
        .collect()
}

fn close_of(actions: &[Action]) -> Option<&Reason> {
    actions.iter().find_map(|action| match action {
        Action::Close(reason) => Some(reason),
        _ => None,
    })
}

fn send(node: &mut Node, n: u64, sequence: i64, lane: u64, arguments: Arguments, now: Moment) -> Vec<Action> {
    let frame = text(request(connection(n), sequence, LONG, reference(lane), arguments));
    node.apply(Event::Message(frame.as_bytes()), now)
}
