//! The limits of one connection, with its clock moved forward instead of waited for, and two Cores on one database.

use std::time::Duration;

use futures_util::SinkExt as _;
use oac_model::{NodeId, Time};
use oac_store::NodeRow;
use oac_testkit::core::{CoreOptions, TestCore, send as http};
use oac_wire::{
    B64, CoreFrame, NodeFrame,
    frames::{Arguments, Health},
    shapes::Command,
};
use reqwest::Method;
use tokio_tungstenite::tungstenite::Message;

use crate::{
    calls,
    node::{self, Node, dial, greet, health, hello, receive, send},
    world::{self, On},
};

async fn stored(core: &TestCore, id: NodeId) -> NodeRow {
    core.core().store.single().node(id).await.unwrap().unwrap()
}

fn skip(core: &TestCore, seconds: u64) {
    core.core().hub.clock().skip(Duration::from_secs(seconds));
}

async fn acknowledged(greeted: &mut node::Greeted) {
    let beat = node::heartbeat(greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    assert!(matches!(
        receive(&mut greeted.socket).await,
        Some(CoreFrame::HeartbeatAck(_))
    ));
}

// req: P-030
// inv: INV-P21
#[tokio::test]
async fn thirty_five_seconds_without_a_frame_close_the_connection_however_many_pings_come() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    for _ in 0..3 {
        // Each frame restarts the 35 s.
        skip(&core, 34);
        acknowledged(&mut greeted).await;
    }
    for _ in 0..7 {
        greeted
            .socket
            .send(Message::Ping(Vec::new().into()))
            .await
            .unwrap();
        skip(&core, 5);
    }
    assert_eq!(receive(&mut greeted.socket).await, None);
    world::eventually("presence is removed", async || {
        stored(&core, node.id()).await.connection_id.is_none()
    })
    .await;
}

// req: P-019
// inv: INV-P4
#[tokio::test]
async fn a_node_that_says_no_hello_within_15_s_is_cut_off_and_may_dial_again() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut silent = dial(&core, &node.enrolled).await.unwrap();
    // The upgrade is over before the clock of the hello starts.
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 409);
    skip_until_closed(&core, &mut silent, 15).await;
    let row = stored(&core, node.id()).await;
    assert_eq!((row.connection_id, row.last_seen_at), (None, None));
    world::eventually("the identity is free", async || {
        dial(&core, &node.enrolled).await.is_ok()
    })
    .await;
}

/// The connection's task may still be about to start: time passes again until it noticed.
async fn skip_until_closed(core: &TestCore, socket: &mut node::Socket, seconds: u64) {
    loop {
        skip(core, seconds);
        let wait = Duration::from_millis(200);
        if let Ok(ended) = tokio::time::timeout(wait, receive(socket)).await {
            assert_eq!(ended, None);
            return;
        }
    }
}

async fn freed(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 1).await;
    let first = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    // The removal of its presence waits for the node's row.
    let tx = world::begin(&core).await;
    tx.lock_node(node.id()).await.unwrap();
    drop(first);
    world::eventually("the connection is closing", async || {
        core.core().hub.connected(node.id()).is_none()
    })
    .await;
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 409);
    assert!(stored(&core, node.id()).await.connection_id.is_some());
    let mut second = Err(tokio_tungstenite::tungstenite::http::StatusCode::CONFLICT);
    world::eventually("the identity is free after 5 s all the same", async || {
        skip(&core, 5);
        second = dial(&core, &node.enrolled).await;
        second.is_ok()
    })
    .await;
    tx.rollback().await.unwrap();
    // The second is recorded, whenever the first's removal runs.
    let mut second = second.unwrap();
    let greeting = NodeFrame::Hello(Box::new(hello(&node.enrolled, &health(true))));
    send(&mut second, &greeting).await;
    let Some(CoreFrame::Welcome(welcome)) = receive(&mut second).await else {
        panic!("no welcome")
    };
    let mut second = node::Greeted {
        socket: second,
        welcome,
    };
    acknowledged(&mut second).await;
    let row = stored(&core, node.id()).await;
    assert_eq!(row.connection_id, Some(second.welcome.connection_id));
}

// req: P-018
// inv: INV-P3, INV-P5
#[tokio::test]
async fn an_identity_is_free_5_s_after_its_connection_ended_and_the_late_removal_erases_no_other_presence() {
    freed(On::Sqlite).await;
}

// inv: INV-P3, INV-P5
#[tokio::test]
async fn pg_an_identity_is_free_5_s_after_its_connection_ended_and_the_late_removal_erases_no_other_presence()
{
    freed(On::Postgres).await;
}

#[tokio::test]
async fn a_node_that_takes_no_byte_for_10_s_loses_its_connection_though_it_goes_on_talking() {
    taking_nothing(world::core(On::Sqlite).await).await;
}

#[tokio::test]
async fn a_node_that_takes_no_byte_for_10_s_under_tls_loses_its_connection_too() {
    let folder = tempfile::tempdir().unwrap();
    taking_nothing(world::core_under_tls(folder.path()).await).await;
}

async fn taking_nothing(core: TestCore) {
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    // More than any socket buffer holds, and nobody reads it.
    let command = Command {
        args: vec!["true".to_owned()],
        directory: String::new(),
        stdin: Some(B64(vec![7; 40 << 20])),
    };
    let mut request = calls::request(&core, &node, Arguments::Command(command)).await;
    request.wait = Duration::from_secs(100);
    let call = core.core().hub.call(&core.core().owner, request);
    let talk = async {
        let mut second = 0;
        while core.core().hub.connected(node.id()).is_some() {
            second += 1;
            let said = Time::from_millis(1_700_000_000_000 + second).unwrap();
            let beat = Health {
                observed_at: said,
                ..health(true)
            };
            let beat = node::heartbeat(&greeted, beat);
            if greeted
                .socket
                .send(Message::text(beat.encode().unwrap()))
                .await
                .is_err()
            {
                break;
            }
            world::eventually("the heartbeat is recorded, or the connection ended", async || {
                stored(&core, node.id()).await.observed_at == Some(said)
                    || core.core().hub.connected(node.id()).is_none()
            })
            .await;
            skip(&core, 11);
        }
    };
    let (outcome, ()) = tokio::join!(call, talk);
    assert_eq!(outcome, oac_core::hub::CallOutcome::Uncertain);
}

async fn two_cores() {
    let mut first = world::core(On::Postgres).await;
    let node = Node::enroll(&first, 1).await;
    let options = CoreOptions {
        public_url: Some(first.public_url.clone()),
        standby: true,
        ..CoreOptions::default()
    };
    let second = first.beside(options).await;
    let mut greeted = greet(&first, &node.enrolled, &health(true)).await.unwrap();
    let path = format!("/api/v1/sandbox-node/connect?node_id={}", node.id());
    let standby = http(
        second
            .request(Method::GET, &path)
            .bearer_auth(node.enrolled.credential.expose()),
    )
    .await;
    assert_eq!(standby.status.as_u16(), 503);
    assert!(standby.headers.contains_key("retry-after"));
    let epoch = greeted.welcome.owner_epoch;
    first.stop().await;
    assert_eq!(
        receive(&mut greeted.socket).await,
        None,
        "no connection outlives its owner"
    );
    second.core().owner.owned().await;
    let mut again = Err(tokio_tungstenite::tungstenite::http::StatusCode::CONFLICT);
    world::eventually("the next owner takes the node", async || {
        again = dial(&second, &node.enrolled).await;
        again.is_ok()
    })
    .await;
    let mut socket = again.unwrap();
    let greeting = NodeFrame::Hello(Box::new(hello(&node.enrolled, &health(true))));
    send(&mut socket, &greeting).await;
    let Some(CoreFrame::Welcome(welcome)) = receive(&mut socket).await else {
        panic!("no welcome")
    };
    assert!(welcome.owner_epoch > epoch);
    let row = stored(&second, node.id()).await;
    assert_eq!(row.connection_id, Some(welcome.connection_id));
    assert_eq!(row.connection_epoch, Some(welcome.owner_epoch));
}

// req: P-024, P-026
// inv: INV-P5
#[tokio::test]
async fn pg_a_standby_takes_no_node_and_the_next_owner_takes_it_under_a_higher_epoch() {
    two_cores().await;
}

// inv: INV-P5, INV-C27
// req: P-028
#[tokio::test]
async fn pg_a_heartbeat_under_an_epoch_that_another_core_has_taken_records_nothing_and_closes() {
    let core = world::core(On::Postgres).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let before = stored(&core, node.id()).await;
    // Another Core took over, and this one has not noticed yet.
    core.execute("UPDATE core_owner SET epoch = epoch + 1").await;
    let beat = node::heartbeat(&greeted, health(false));
    send(&mut greeted.socket, &beat).await;
    assert_eq!(receive(&mut greeted.socket).await, None);
    let after = stored(&core, node.id()).await;
    assert_eq!(
        (after.provider_ready, after.last_seen_at, after.connection_id),
        (true, before.last_seen_at, before.connection_id),
        "presence belongs to the next owner"
    );
    let request = calls::request(&core, &node, Arguments::Info).await;
    assert_eq!(
        core.core().hub.call(&core.core().owner, request).await,
        oac_core::hub::CallOutcome::Unavailable
    );
}

// inv: INV-P5
#[tokio::test]
async fn pg_a_removal_of_presence_that_fails_is_tried_again_until_it_is_done() {
    let core = world::core(On::Postgres).await;
    let node = Node::enroll(&core, 1).await;
    let greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let away = "ALTER TABLE node_generation_status RENAME TO node_generation_status_away";
    core.execute(away).await;
    drop(greeted);
    world::eventually("the connection is closing", async || {
        core.core().hub.connected(node.id()).is_none()
    })
    .await;
    // The identity is free all the same; the removal goes on failing.
    world::eventually("the identity is free", async || {
        skip(&core, 5);
        dial(&core, &node.enrolled).await.is_ok()
    })
    .await;
    assert!(stored(&core, node.id()).await.connection_id.is_some());
    let back = "ALTER TABLE node_generation_status_away RENAME TO node_generation_status";
    core.execute(back).await;
    world::eventually("presence is removed", async || {
        stored(&core, node.id()).await.connection_id.is_none()
    })
    .await;
}
