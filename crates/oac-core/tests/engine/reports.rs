//! Reports of many nodes in shared transactions (protocol.md section 6).

use futures_util::future::join_all;
use oac_model::{ConnectionId, Digest, Generation, NodeId};
use oac_store::{NodeReport, NodeRow, Side};
use oac_testkit::core::TestCore;
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{GenerationState, GenerationStatus, Health, Hello, Welcome},
};

use crate::{
    node::{self, Greeted, Node, dial, greet, health, hello, receive, send},
    world::{self, On},
};

/// More than one transaction takes while another waits, were they not shared.
const NODES: usize = 24;

async fn stored(core: &TestCore, id: NodeId) -> NodeRow {
    core.core().store.single().node(id).await.unwrap().unwrap()
}

async fn greeted(core: &TestCore, count: usize) -> Vec<(Node, Greeted)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let node = Node::enroll(core, 1).await;
        let greeted = greet(core, &node.enrolled, &health(true)).await.unwrap();
        all.push((node, greeted));
    }
    all
}

/// A heartbeat that names its sender.
fn beat(greeted: &Greeted, number: usize) -> NodeFrame {
    let health = Health {
        total_memory_bytes: Nullable(Some((16 << 30) + number as i64)),
        ..health(true)
    };
    node::heartbeat(greeted, health)
}

fn acknowledged(frame: Option<CoreFrame>) -> bool {
    matches!(frame, Some(CoreFrame::HeartbeatAck(_)))
}

/// While one node's heartbeat is held at its commit every other node says `say`; then both go on.
async fn meanwhile(core: &TestCore, all: &mut [(Node, Greeted)], say: impl Fn(&Greeted, usize) -> NodeFrame) {
    let hold = core.core().store.faults().hold_next(Side::Before);
    let ((_, first), others) = all.split_first_mut().unwrap();
    let frame = beat(first, 0);
    send(&mut first.socket, &frame).await;
    hold.reached().await;
    for (number, (_, other)) in others.iter_mut().enumerate() {
        let frame = say(other, number + 1);
        send(&mut other.socket, &frame).await;
    }
    world::eventually("every other report waits", async || {
        core.core().hub.waiting_reports() == others.len()
    })
    .await;
    drop(hold);
    assert!(acknowledged(receive(&mut first.socket).await));
}

async fn shared(on: On) {
    let core = world::core(on).await;
    let mut all = greeted(&core, NODES).await;
    meanwhile(&core, &mut all, beat).await;
    let answers = join_all(all[1..].iter_mut().map(|(_, g)| receive(&mut g.socket))).await;
    assert!(answers.into_iter().all(acknowledged));
    let mut seen = std::collections::BTreeSet::new();
    for (number, (node, _)) in all.iter().enumerate() {
        let row = stored(&core, node.id()).await;
        assert_eq!(row.total_memory_bytes, Some((16 << 30) + number as u64));
        if number > 0 {
            // The time of a row is its transaction's.
            seen.insert(row.last_seen_at);
        }
    }
    assert_eq!(seen.len(), 1, "one transaction stored them all");
}

// inv: INV-P5
#[tokio::test]
async fn heartbeats_that_come_while_a_transaction_runs_share_the_next_one() {
    shared(On::Sqlite).await;
}

// inv: INV-P5
#[tokio::test]
async fn pg_heartbeats_that_come_while_a_transaction_runs_share_the_next_one() {
    shared(On::Postgres).await;
}

async fn refused(on: On) {
    let core = world::core(on).await;
    let mut all = greeted(&core, NODES).await;
    let (removed, replaced) = (all[5].0.id(), all[9].0.id());
    let tx = world::begin(&core).await;
    tx.lock_nodes(&[removed, replaced]).await.unwrap();
    assert!(tx.retire_node(removed).await.unwrap());
    let other = NodeReport {
        node_id: replaced,
        connection_id: ConnectionId::random(),
        hello: Some(false),
        health: Default::default(),
    };
    assert_eq!(tx.record_reports(std::slice::from_ref(&other)).await.unwrap(), 1);
    tx.commit().await.unwrap();

    meanwhile(&core, &mut all, beat).await;
    let answers = join_all(all[1..].iter_mut().map(|(_, g)| receive(&mut g.socket))).await;
    for (number, answer) in (1..).zip(answers) {
        let refused = [5, 9].contains(&number);
        assert_eq!(acknowledged(answer.clone()), !refused, "{number}: {answer:?}");
        let row = stored(&core, all[number].0.id()).await;
        let told = row.total_memory_bytes == Some((16 << 30) + number as u64);
        assert_eq!(told, !refused, "{number}");
    }
    let row = stored(&core, replaced).await;
    assert_eq!(
        row.connection_id,
        Some(other.connection_id),
        "the goodbye of one removes no other"
    );
}

// inv: INV-P5, INV-P26
// req: P-028
#[tokio::test]
async fn a_wrong_credential_or_connection_among_many_reports_closes_its_own_connection_alone() {
    refused(On::Sqlite).await;
}

// inv: INV-P5, INV-P26
#[tokio::test]
async fn pg_a_wrong_credential_or_connection_among_many_reports_closes_its_own_connection_alone() {
    refused(On::Postgres).await;
}

async fn status(core: &TestCore, generation: i64) -> GenerationStatus {
    let generation = Generation::try_from(generation).unwrap();
    let read = core.core().store.single();
    GenerationStatus {
        generation,
        specification_digest: read.generation(generation).await.unwrap().unwrap().digest,
        state: GenerationState::Ready,
        diagnostic: None,
    }
}

async fn managing(core: &TestCore, report: &Health) -> (Node, Greeted) {
    let node = Node::enroll(core, 1).await;
    let mut socket = dial(core, &node.enrolled).await.unwrap();
    let hello = Hello {
        generation_management: Some(true),
        ..hello(&node.enrolled, report)
    };
    send(&mut socket, &NodeFrame::Hello(Box::new(hello))).await;
    let welcome: Welcome = match receive(&mut socket).await {
        Some(CoreFrame::Welcome(welcome)) => welcome,
        other => panic!("no welcome but {other:?}"),
    };
    (node, Greeted { socket, welcome })
}

// inv: INV-P17
#[tokio::test]
async fn each_pin_of_a_shared_transaction_moves_by_its_own_report_and_a_wrong_digest_moves_none() {
    let core = world::core(On::Sqlite).await;
    let of = |statuses: Vec<GenerationStatus>| Health {
        generations: Some(statuses),
        ..health(false)
    };
    let first = of(vec![status(&core, 1).await]);
    let mut all = Vec::new();
    for _ in 0..6 {
        all.push(managing(&core, &first).await);
    }
    core.deploy(2, 1024).await;
    let (old, new) = (status(&core, 1).await, status(&core, 2).await);
    let wrong = GenerationStatus {
        specification_digest: Digest::of("another"),
        ..new.clone()
    };
    // The first holds the transaction, the rest share the next: 1 and 2 are ready, 3 is not, 4 lies, 5 is fixed.
    all[5] = greeted(&core, 1).await.remove(0);
    let said = [&old, &new, &new, &old, &wrong];
    let report = |greeted: &Greeted, number: usize| match said.get(number) {
        Some(status) => node::heartbeat(greeted, of(vec![(*status).clone()])),
        None => beat(greeted, number),
    };
    let hold = core.core().store.faults().hold_next(Side::Before);
    let frame = report(&all[0].1, 0);
    send(&mut all[0].1.socket, &frame).await;
    hold.reached().await;
    for (number, (_, greeted)) in all.iter_mut().enumerate().skip(1) {
        let frame = report(greeted, number);
        send(&mut greeted.socket, &frame).await;
    }
    world::eventually("the others wait", async || core.core().hub.waiting_reports() == 5).await;
    drop(hold);
    let two = Generation::try_from(2).unwrap();
    for (number, (node, greeted)) in all.iter_mut().enumerate() {
        let serving = match receive(&mut greeted.socket).await {
            Some(CoreFrame::HeartbeatAck(ack)) => Some(ack.deployment.map(|d| d.serving_generation.0)),
            None => None,
            other => panic!("{other:?}"),
        };
        let (expected, pin) = match number {
            0 | 3 => (Some(Some(Some(Generation::FIRST))), Some(Generation::FIRST)),
            1 | 2 => (Some(Some(Some(two))), Some(two)),
            4 => (None, Some(Generation::FIRST)),
            _ => (Some(None), None),
        };
        assert_eq!(serving, expected, "{number}");
        let row = stored(&core, node.id()).await;
        assert_eq!(row.serving_generation, pin, "{number}");
    }
}

// inv: INV-P5
#[tokio::test]
async fn pg_a_node_whose_row_is_held_delays_no_report_of_another_and_its_own_is_stored_when_it_is_free() {
    let core = world::core(On::Postgres).await;
    let mut all = greeted(&core, 3).await;
    let tx = world::begin(&core).await;
    tx.lock_node(all[0].0.id()).await.unwrap();
    for (number, (_, greeted)) in all.iter_mut().enumerate() {
        let frame = beat(greeted, number);
        send(&mut greeted.socket, &frame).await;
    }
    let (held, others) = all.split_first_mut().unwrap();
    let answers = join_all(others.iter_mut().map(|(_, g)| receive(&mut g.socket)));
    let answers = world::while_open(&tx, answers).await;
    assert!(answers.into_iter().all(acknowledged));
    assert_eq!(
        stored(&core, held.0.id()).await.total_memory_bytes,
        health(true).total_memory_bytes.0.map(|n| n as u64)
    );
    tx.rollback().await.unwrap();
    assert!(acknowledged(receive(&mut held.1.socket).await));
    assert_eq!(
        stored(&core, held.0.id()).await.total_memory_bytes,
        Some(16 << 30)
    );
}

#[tokio::test]
async fn a_core_whose_database_is_gone_stops_without_waiting_for_it() {
    let mut core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 1).await;
    let inner = core.core().clone();
    inner.store.faults().die_at(1, Side::Before);
    node.kill().await;
    world::eventually("what says that the node left is not stored", async || {
        inner.store.faults().is_dead()
    })
    .await;
    core.stop().await;
    assert!(inner.tasks.shutdown().await, "a task went on");
}
