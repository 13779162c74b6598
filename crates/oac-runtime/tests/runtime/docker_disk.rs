//! A sandbox whose disk is full.

use std::io::Write;

use oac_link::{PutTurn, service::PutTurnRequest};
use oac_model::TurnId;

use crate::{
    acceptor::{Acceptor, begin, run, shell, told, until},
    engine::{Container, Network, run_image},
};

// inv: INV-S4, INV-S6
#[tokio::test]
async fn a_log_without_room_waits_for_acknowledgements_and_loses_nothing() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let container = Container::start_with_small_disk(&run_image().id.to_string(), &network, &host, "10m");
    let (client, _) = acceptor.link().await;
    let lines = 1 << 20; // 16 MiB
    let turn = begin(&client, shell(&format!("seq -f '%015.0f' 1 {lines}"))).await;
    until("the log has no room", async || {
        container.logs().contains("cannot be written")
    })
    .await;
    let told = told(&client, turn, 0).await;
    let expected: Vec<u8> = (1..=lines)
        .flat_map(|n| format!("{n:015}\n").into_bytes())
        .collect();
    assert!(told.all == expected);
    assert_eq!(told.exit().code.0, Some(0));
}

#[tokio::test]
async fn a_full_disk_refuses_a_turn_without_starting_it_and_can_be_freed() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let container = Container::start_with_small_disk(&run_image().id.to_string(), &network, &host, "1m");
    let (client, _) = acceptor.link().await;
    // Filled from outside, so that no Turn's own records stand in between.
    let rest = format!("/proc/{}/root/small/rest", container.inspect("{{.State.Pid}}"));
    let mut file = std::fs::File::create(&rest).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let turn = TurnId::random();
    let request = PutTurnRequest::new(run(&["true"]));
    client.put_turn(turn, &request).await.unwrap_err();
    assert_eq!(client.turn(turn).await.unwrap(), None);
    std::fs::remove_file(rest).unwrap();
    drop(file);
    let put = client.put_turn(turn, &request).await.unwrap();
    assert!(matches!(put, PutTurn::Started { .. }), "{put:?}");
}
