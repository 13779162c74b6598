//! The limits of the connection, with the node's clock moved forward instead of waited for.

use std::time::Duration;

use axum::extract::ws::Message;
use oac_model::OwnerEpoch;
use oac_wire::{NodeFrame, frames::Arguments};

use crate::{
    installation::{Installation, Running, connected, dialed},
    provider::{Calls, Reply, scripted},
    scripted_core::{Link, ScriptedCore},
    shapes::{command, output, reference, response, running},
};

/// The next connection; the backoff before it passes at once.
pub(crate) async fn again(core: &mut ScriptedCore, node: &Running) -> Link {
    node.hurried(async || core.accept().await).await
}

/// The node has taken everything that was sent to it before.
pub(crate) async fn is_served(link: &mut Link, calls: &mut Calls) {
    link.call(0, Arguments::Info).await;
    calls
        .recv()
        .await
        .unwrap()
        .reply(Reply::Info(running(reference(0))));
    while !matches!(link.next().await, NodeFrame::Response(_)) {}
}

// req: P-030
// inv: INV-P21
#[tokio::test]
async fn thirty_five_seconds_without_a_frame_close_the_connection_however_many_pings_come() {
    let (mut core, _installation, mut calls, node, mut link) = connected().await;
    for _ in 0..3 {
        // Each frame restarts the 35 s.
        is_served(&mut link, &mut calls).await;
        node.skip(34);
    }
    is_served(&mut link, &mut calls).await;
    for _ in 0..7 {
        link.socket.send(Message::Ping(Vec::new().into())).await.unwrap();
        node.skip(5);
    }
    link.closed().await;
    drop(again(&mut core, &node).await);
    node.stop().await.unwrap();
}

// req: P-019
#[tokio::test]
async fn a_core_that_says_no_welcome_within_15_s_is_left_and_dialed_again() {
    let (mut core, _installation, _calls, node, link) = dialed().await;
    node.skip(15);
    link.closed().await;
    let mut link = again(&mut core, &node).await;
    link.hello().await;
    link.welcome().await;
    node.stop().await.unwrap();
}

// req: P-027
#[tokio::test]
async fn every_ten_seconds_there_is_a_heartbeat_also_while_the_provider_works() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    link.call(0, Arguments::Kill).await;
    let called = calls.recv().await.unwrap();
    for _ in 0..4 {
        node.skip(10);
        let NodeFrame::Heartbeat(heartbeat) = link.next().await else {
            panic!("a heartbeat is due");
        };
        assert_eq!(heartbeat.health.active_operations, 1);
        link.acknowledge().await;
    }
    called.reply(Reply::Nothing);
    assert_eq!(response(link.next().await).error_code, None);
    node.stop().await.unwrap();
}

// req: P-056
// inv: INV-P8, INV-N26
#[tokio::test]
async fn a_budget_that_ends_while_its_operation_runs_is_answered_and_the_work_counts_until_it_ends() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let (first, text) = link.request(0, 9_000, command(None));
    link.send(text).await;
    let called = calls.recv().await.unwrap();
    let (second, text) = link.request(0, 5_000, Arguments::Kill);
    link.send(text).await;
    // Both budgets end: of what runs, and of what waits behind it.
    is_served_beside(&mut link, &mut calls).await;
    node.skip(9);
    let mut codes = Vec::new();
    for _ in 0..2 {
        let answer = response(link.next().await);
        codes.push((answer.id, answer.error_code.unwrap()));
    }
    assert_eq!(codes.len(), 2);
    assert!(
        codes.contains(&(first, "command_unconfirmed".into())),
        "{codes:?}"
    );
    assert!(codes.contains(&(second, "unconfirmed".into())), "{codes:?}");
    node.skip(1);
    let NodeFrame::Heartbeat(heartbeat) = link.next().await else {
        panic!("a heartbeat is due");
    };
    assert_eq!(heartbeat.health.active_operations, 1, "the command goes on");
    called.reply(Reply::Command(output(Vec::new())));
    is_served(&mut link, &mut calls).await;
    node.stop().await.unwrap();
}

/// As [`is_served`], for another allocation.
async fn is_served_beside(link: &mut Link, calls: &mut Calls) {
    link.call(1, Arguments::Info).await;
    calls
        .recv()
        .await
        .unwrap()
        .reply(Reply::Info(running(reference(1))));
    assert_eq!(response(link.next().await).error_code, None);
}

#[tokio::test]
async fn a_core_that_takes_no_byte_for_10_s_loses_the_connection_though_it_goes_on_talking() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted();
    let node = installation.start(provider, 32);
    let (mut link, _) = core.greet().await;
    for lane in 0..16 {
        link.call(lane, command(None)).await;
    }
    // Far more than the sockets buffer between two ends of one host.
    for _ in 0..16 {
        let called = calls.recv().await.unwrap();
        called.reply(Reply::Command(output(vec![b'x'; 1024 * 1024])));
    }
    // The frame of each round restarts the 35 s: silence is no reason here.
    let mut left = None;
    for _ in 0..3 {
        if link.socket.send(Message::Ping(Vec::new().into())).await.is_err() {
            break;
        }
        link.acknowledge().await;
        node.skip(11);
        if let Ok(next) = tokio::time::timeout(Duration::from_secs(20), core.accept()).await {
            left = Some(next);
            break;
        }
    }
    let hello = left.expect("the node holds on").hello().await;
    assert_eq!(hello.health.active_operations, 0);
    drop(link);
    node.stop().await.unwrap();
}

// req: P-026
// inv: INV-P6
#[tokio::test]
async fn an_owner_epoch_outlives_a_kill_right_after_it_was_stored_and_no_lower_one_is_welcome() {
    let (mut core, installation, _calls, node, mut link) = dialed().await;
    link.owner_epoch = OwnerEpoch::try_from(41).unwrap();
    link.welcome().await;
    let stored = async {
        while installation.stored().owner_epoch != 41 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), stored)
        .await
        .unwrap();
    node.kill().await;
    let (provider, mut calls) = scripted();
    let node = installation.start(provider, 8);
    let mut link = core.accept().await;
    link.hello().await;
    link.owner_epoch = OwnerEpoch::try_from(40).unwrap();
    let (_, request) = link.request(0, 60_000, Arguments::Info);
    link.welcome().await;
    link.send(request).await;
    link.closed().await;
    assert!(calls.try_recv().is_err());
    assert_eq!(installation.stored().owner_epoch, 41);
    node.kill().await;
}

// req: P-026
// inv: INV-P6
#[tokio::test]
async fn an_owner_epoch_that_cannot_be_made_durable_accepts_no_request() {
    let (mut core, installation, mut calls, node, mut link) = dialed().await;
    // A folder in the place of the file: nothing can be renamed over it.
    let identity = installation.state_dir.join("identity.json");
    let kept = installation.state_dir.join("kept");
    std::fs::rename(&identity, &kept).unwrap();
    std::fs::create_dir(&identity).unwrap();
    link.owner_epoch = OwnerEpoch::try_from(41).unwrap();
    let (_, request) = link.request(0, 60_000, Arguments::Info);
    link.welcome().await;
    link.send(request).await;
    link.closed().await;
    assert!(calls.try_recv().is_err());
    std::fs::remove_dir(&identity).unwrap();
    std::fs::rename(&kept, &identity).unwrap();
    // The process went on: the next dial finds a Core whose epoch can be stored.
    let mut link = again(&mut core, &node).await;
    link.hello().await;
    link.owner_epoch = OwnerEpoch::try_from(41).unwrap();
    link.welcome().await;
    is_served(&mut link, &mut calls).await;
    assert_eq!(installation.stored().owner_epoch, 41);
    node.stop().await.unwrap();
}
