//! Many dials at once, beside nodes that live.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::SinkExt as _;
use oac_testkit::core::{EnrolledNode, TestCore, new_secret};
use oac_wire::CoreFrame;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::{
    node::{self, Greeted, Node, greet, health, receive, try_dial},
    world::{self, On},
};

const NODES: usize = 20;

async fn beats(greeted: &mut Greeted) {
    let beat = node::heartbeat(greeted, health(true)).encode().unwrap();
    greeted.socket.send(Message::text(beat)).await.unwrap();
    assert!(matches!(
        receive(&mut greeted.socket).await,
        Some(CoreFrame::HeartbeatAck(_))
    ));
}

/// What became of so many dials, by status; of those that TLS did not let through in time, 0.
async fn storm(core: TestCore, count: usize) -> BTreeMap<u16, usize> {
    let mut live = Vec::new();
    for _ in 0..NODES {
        let node = Node::enroll(&core, 1).await;
        let greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
        live.push((node, greeted));
    }
    let fresh = Node::enroll(&core, 1).await;
    let core = Arc::new(core);
    let mut dials = JoinSet::new();
    for n in 0..count {
        let known = &live[n % NODES].0.enrolled;
        let who = match n % 4 {
            // Connected already.
            0 | 1 => known.clone(),
            // Somebody else's name for it.
            2 => EnrolledNode {
                credential: new_secret(""),
                ..known.clone()
            },
            // All for one place.
            _ => fresh.enrolled.clone(),
        };
        let core = core.clone();
        dials.spawn(async move {
            match try_dial(&core, &who).await {
                Ok(socket) => (101, Some(socket)),
                Err(Error::Http(response)) => (response.status().as_u16(), None),
                Err(_) => (0, None),
            }
        });
    }
    let (mut answers, mut opened) = (BTreeMap::<u16, usize>::new(), Vec::new());
    while let Some(dialed) = dials.join_next().await {
        let (status, socket) = dialed.unwrap();
        *answers.entry(status).or_default() += 1;
        opened.extend(socket);
    }
    assert!(opened.len() <= 1, "one of all for one place gets it: {answers:?}");
    for (_, greeted) in &mut live {
        beats(greeted).await;
    }
    answers
}

// req: P-018
// inv: INV-P3
#[tokio::test(flavor = "multi_thread")]
async fn every_one_of_two_thousand_dials_at_once_is_answered_and_live_connections_stay() {
    let answers = storm(world::core(On::Sqlite).await, 2_000).await;
    // 503 where its credential could not be looked up in time.
    let known = |status: &u16| [101, 401, 409, 503].contains(status);
    assert!(answers.keys().all(known), "{answers:?}");
}

// inv: INV-P3
#[tokio::test(flavor = "multi_thread")]
async fn live_connections_stay_through_a_storm_of_dials_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    let answers = storm(world::core_under_tls(folder.path()).await, 400).await;
    let known = |status: &u16| [0, 101, 401, 409, 503].contains(status);
    assert!(answers.keys().all(known), "{answers:?}");
}
