use futures_util::{SinkExt, StreamExt};
use oac_link::{LinkEnd, Opening, Socket};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::pair::{Native, hello, link, sockets, welcome};

/// A welcomed Core end and the bare WebSocket of a runtime that says nothing by itself.
pub(crate) async fn core_and_bare_peer() -> (oac_link::LinkClient, oac_link::LinkDriver, Native) {
    let (core, mut sandbox) = sockets().await;
    let said = serde_json::json!({
        "version": 1, "type": "hello", "credential": "ab".repeat(32), "resource": hello().resource,
        "runtime_version": "1", "instance_id": hello().instance_id,
    });
    sandbox.send(Message::text(said.to_string())).await.unwrap();
    let mut opening = Opening::new(Socket::from_tungstenite(core));
    opening.hello().await.unwrap();
    let (client, driver) = opening.welcome(welcome()).await.unwrap();
    sandbox.next().await.unwrap().unwrap();
    (client, driver, sandbox)
}

#[tokio::test(start_paused = true)]
async fn a_link_without_any_message_closes_after_45_s() {
    let (_client, driver, _silent) = core_and_bare_peer().await;
    let start = Instant::now();
    let end = driver.run().await;
    assert!(matches!(end, LinkEnd::Silent), "{end}");
    assert_eq!(start.elapsed().as_secs(), 45);
}

#[tokio::test(start_paused = true)]
async fn a_side_pings_every_15_s() {
    let (_client, driver, mut peer) = core_and_bare_peer().await;
    let start = Instant::now();
    let heard = async {
        let mut at = Vec::new();
        while at.len() < 4 {
            if let Message::Ping(_) = peer.next().await.unwrap().unwrap() {
                at.push(start.elapsed().as_secs());
            }
        }
        at
    };
    tokio::select! {
        at = heard => assert_eq!(at, [15, 30, 45, 60]),
        end = driver.run() => panic!("{end}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_link_of_two_living_ends_stays_open() {
    let mut link = link(|_| hyper::Response::default()).await;
    tokio::select! {
        _ = link.core_end.join_next() => panic!("Core's end closed"),
        _ = link.sandbox_end.join_next() => panic!("the sandbox's end closed"),
        () = tokio::time::sleep(std::time::Duration::from_secs(600)) => {}
    }
    assert!(link.client.is_open());
}
