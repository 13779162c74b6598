//! Frames at exactly each limit, and one byte above it.

use axum::extract::ws::Message;
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{Arguments, HeartbeatAck, Welcome},
    limits::{CONTROL_FRAME_BYTES, REQUEST_FRAME_BYTES},
};

use crate::{
    installation::{connected, dialed},
    limits::again,
    provider::Reply,
    scripted_core::Link,
    shapes::{reference, response, running},
};

/// `frame` with as much white space after it as makes it so many bytes long.
fn padded(frame: String, bytes: usize) -> Message {
    let spaces = bytes - frame.len();
    Message::text(frame + &" ".repeat(spaces))
}

fn welcome(link: &Link) -> String {
    CoreFrame::Welcome(Welcome {
        connection_id: link.connection_id,
        owner_epoch: link.owner_epoch,
        deployment: None,
    })
    .encode()
    .unwrap()
}

fn acknowledgement(link: &Link) -> String {
    CoreFrame::HeartbeatAck(HeartbeatAck {
        connection_id: link.connection_id,
        owner_epoch: link.owner_epoch,
        deployment: None,
    })
    .encode()
    .unwrap()
}

// req: P-011
// inv: INV-P1
#[tokio::test]
async fn a_welcome_of_32_kib_is_taken_and_one_byte_more_closes() {
    let (mut core, _installation, mut calls, node, mut link) = dialed().await;
    let above = padded(welcome(&link), CONTROL_FRAME_BYTES + 1);
    link.socket.send(above).await.unwrap();
    link.closed().await;
    let mut link = again(&mut core, &node).await;
    link.hello().await;
    let exact = padded(welcome(&link), CONTROL_FRAME_BYTES);
    link.socket.send(exact).await.unwrap();
    crate::limits::is_served(&mut link, &mut calls).await;
    node.stop().await.unwrap();
}

// req: P-011
// inv: INV-P1
#[tokio::test]
async fn a_control_frame_of_32_kib_is_taken_and_one_byte_more_closes() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let exact = padded(acknowledgement(&link), CONTROL_FRAME_BYTES);
    link.socket.send(exact).await.unwrap();
    crate::limits::is_served(&mut link, &mut calls).await;
    let above = padded(acknowledgement(&link), CONTROL_FRAME_BYTES + 1);
    link.socket.send(above).await.unwrap();
    link.closed().await;
    node.stop().await.unwrap();
}

// req: P-011
// inv: INV-P1
#[tokio::test]
async fn a_request_of_72_mib_runs_and_one_byte_more_closes_and_runs_nothing() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let (id, request) = link.request(0, 100_000, Arguments::Info);
    let exact = padded(request, REQUEST_FRAME_BYTES);
    let (sent, called) = tokio::join!(link.socket.send(exact), calls.recv());
    sent.unwrap();
    called.unwrap().reply(Reply::Info(running(reference(0))));
    let answer = loop {
        match link.next().await {
            NodeFrame::Heartbeat(_) => {}
            frame => break response(frame),
        }
    };
    assert_eq!((answer.id, answer.error_code), (id, None));
    let (_, request) = link.request(0, 100_000, Arguments::Info);
    // It is refused by its announced size: the rest may find nobody who reads it.
    let _ = link.socket.send(padded(request, REQUEST_FRAME_BYTES + 1)).await;
    link.closed().await;
    assert!(calls.try_recv().is_err());
    node.stop().await.unwrap();
}
