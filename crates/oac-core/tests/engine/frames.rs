//! Frames at exactly each limit and one byte above it, and a node that takes a large one slowly.

use std::time::Duration;

use futures_util::SinkExt as _;
use oac_core::hub::CallOutcome;
use oac_testkit::core::TestCore;
use oac_wire::{
    B64, CoreFrame, NodeFrame,
    frames::{Arguments, Response},
    limits::{CONTROL_FRAME_BYTES, REQUEST_FRAME_BYTES},
    shapes::Command,
};
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    calls,
    node::{self, Greeted, Node, dial, greet, health, hello, receive},
    world::{self, On},
};

/// `frame` with as much white space after it as makes it so many bytes long.
fn padded(frame: &NodeFrame, bytes: usize) -> Message {
    let text = frame.encode().unwrap();
    let spaces = bytes - text.len();
    Message::text(text + &" ".repeat(spaces))
}

/// The next connection, once the identity is free.
async fn again(core: &TestCore, node: &Node) -> Greeted {
    loop {
        if let Ok(greeted) = greet(core, &node.enrolled, &health(true)).await {
            return greeted;
        }
    }
}

// req: P-011
// inv: INV-P1, INV-P4
#[tokio::test]
async fn a_hello_of_32_kib_is_taken_and_one_byte_more_closes_and_stores_nothing() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let greeting = NodeFrame::Hello(Box::new(hello(&node.enrolled, &health(true))));
    let mut above = dial(&core, &node.enrolled).await.unwrap();
    above
        .send(padded(&greeting, CONTROL_FRAME_BYTES + 1))
        .await
        .unwrap();
    assert_eq!(receive(&mut above).await, None);
    let row = core.core().store.single().node(node.id()).await.unwrap().unwrap();
    assert_eq!((row.connection_id, row.last_seen_at), (None, None));
    let mut exact = loop {
        if let Ok(socket) = dial(&core, &node.enrolled).await {
            break socket;
        }
    };
    exact.send(padded(&greeting, CONTROL_FRAME_BYTES)).await.unwrap();
    assert!(matches!(receive(&mut exact).await, Some(CoreFrame::Welcome(_))));
}

// req: P-011
// inv: INV-P1
#[tokio::test]
async fn a_heartbeat_of_32_kib_is_taken_and_one_byte_more_closes_and_stores_nothing() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = again(&core, &node).await;
    let well = node::heartbeat(&greeted, health(true));
    greeted
        .socket
        .send(padded(&well, CONTROL_FRAME_BYTES))
        .await
        .unwrap();
    assert!(matches!(
        receive(&mut greeted.socket).await,
        Some(CoreFrame::HeartbeatAck(_))
    ));
    let sick = node::heartbeat(&greeted, health(false));
    greeted
        .socket
        .send(padded(&sick, CONTROL_FRAME_BYTES + 1))
        .await
        .unwrap();
    assert_eq!(receive(&mut greeted.socket).await, None);
    let row = core.core().store.single().node(node.id()).await.unwrap().unwrap();
    assert!(row.provider_ready);
}

// req: P-011
// inv: INV-P1
#[tokio::test]
async fn a_response_of_72_mib_is_an_answer_and_one_byte_more_closes_and_is_none() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    for (bytes, expected) in [
        (REQUEST_FRAME_BYTES, CallOutcome::Unconfirmed),
        (REQUEST_FRAME_BYTES + 1, CallOutcome::Uncertain),
    ] {
        let mut greeted = again(&core, &node).await;
        let call = calls::request(&core, &node, Arguments::Kill).await;
        let answer = async {
            let Some(CoreFrame::Request(request)) = receive(&mut greeted.socket).await else {
                panic!("no request")
            };
            let response = NodeFrame::Response(Box::new(Response {
                id: request.id,
                connection_id: greeted.welcome.connection_id,
                error_code: Some("unconfirmed".to_owned()),
                result: Ok(None),
            }));
            // What is too large is refused by its announced size: the rest may find nobody who reads it.
            let _ = greeted.socket.send(padded(&response, bytes)).await;
            greeted
        };
        let hub = &core.core().hub;
        let (outcome, mut greeted) = tokio::join!(hub.call(&core.core().owner, call), answer);
        assert_eq!(outcome, expected, "{bytes}");
        if expected == CallOutcome::Uncertain {
            assert_eq!(receive(&mut greeted.socket).await, None);
        }
    }
}

/// Bytes between two moments at which time passes: more than every buffer between Core and the node holds.
const PIECE: usize = 12 << 20;

async fn taking_slowly(core: TestCore) {
    let node = Node::enroll(&core, 1).await;
    let mut greeted = again(&core, &node).await;
    let command = Command {
        args: vec!["true".to_owned()],
        directory: String::new(),
        stdin: Some(B64(vec![7; 40 << 20])),
    };
    let mut request = calls::request(&core, &node, Arguments::Command(command)).await;
    request.wait = Duration::from_secs(100);
    let read = async {
        let (mut taken, mut buffer) = (0, vec![0; 1 << 20]);
        // Together well over the 10 s that a write may make no progress, and under the 35 s of silence.
        for piece in 1..=2 {
            while taken < piece * PIECE {
                taken += greeted.socket.get_mut().read(&mut buffer).await.unwrap();
            }
            core.core().hub.clock().skip(Duration::from_secs(9));
        }
        while taken < 50 << 20 {
            taken += greeted.socket.get_mut().read(&mut buffer).await.unwrap();
        }
    };
    tokio::select! {
        () = read => {}
        ended = core.core().hub.call(&core.core().owner, request) => panic!("{ended:?}"),
    }
    assert!(core.core().hub.connected(node.id()).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_a_large_frame_slowly_keeps_its_connection() {
    taking_slowly(world::core(On::Sqlite).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_a_large_frame_slowly_under_tls_keeps_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    taking_slowly(world::core_under_tls(folder.path()).await).await;
}
