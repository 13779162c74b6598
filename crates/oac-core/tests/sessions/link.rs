//! Opening, replacing and ending sandbox links.

use std::time::Duration;

use oac_core::allocations::{self, Cause};
use oac_link::{CloseReason, IntroduceError, LinkEnd, Refusal};
use oac_model::{AllocationId, EnvironmentId, Generation, ProjectId, Secret};
use oac_store::Initialization;
use oac_testkit::log::Log;
use reqwest::Method;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest as _};

use crate::{
    sandbox::{self, exit_code},
    world::World,
};

fn refusal(error: IntroduceError) -> Refusal {
    match error {
        IntroduceError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    }
}

// inv: INV-S11
#[tokio::test]
async fn only_the_credential_of_exactly_its_allocation_and_generation_is_welcomed() {
    let world = World::start().await;
    let placed = world.place().await;
    let other = world.place().await;
    let right = placed.sandbox.hello();
    let with = |change: fn(&mut oac_link::Hello)| {
        let mut hello = right.clone();
        change(&mut hello);
        hello
    };
    let mut hellos = vec![
        with(|h| h.credential = Secret::new("0".repeat(64))),
        with(|h| h.resource.id = AllocationId::random()),
        with(|h| h.resource.tenant_id = ProjectId::random()),
        with(|h| h.resource.environment_id = EnvironmentId::random()),
        with(|h| h.resource.generation = Generation::try_from(9).unwrap()),
    ];
    let mut crossed = right.clone();
    crossed.credential = other.sandbox.hello().credential;
    hellos.push(crossed);
    for hello in hellos {
        let refused = sandbox::connect(&world.core.url, &hello, None)
            .await
            .err()
            .unwrap();
        assert_eq!(refusal(refused), Refusal::CredentialRejected);
        assert!(!world.core.core().links.is_linked(placed.allocation));
    }
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    assert!(!world.core.core().links.is_linked(other.allocation));
}

#[tokio::test]
async fn the_first_ready_link_completes_the_allocations_initialization() {
    let world = World::start().await;
    let placed = world.place().await;
    assert_eq!(
        world.allocation(placed.allocation).await.initialization,
        Initialization::Pending
    );
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    assert_eq!(
        world.allocation(placed.allocation).await.initialization,
        Initialization::Complete
    );
}

// inv: INV-S11
#[tokio::test]
async fn the_newest_connection_is_current_and_the_earlier_one_is_told() {
    let world = World::start().await;
    let placed = world.place().await;
    let first = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let turn = world.submit(placed.session, "true").await;
    placed.sandbox.started(0).await;
    let second = placed.sandbox.connect(&world.core.url).await;
    let end = first.ended().await;
    assert!(
        matches!(end, LinkEnd::ClosedByPeer(Some(CloseReason::Superseded))),
        "{end}"
    );
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    assert_eq!(placed.sandbox.starts(), [turn]);
    second.close().await;
}

// inv: INV-S11
#[tokio::test]
async fn after_revocation_no_stream_opens_and_the_link_ends() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    // Revoked by someone who does not tell the links.
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    allocations::begin_cleanup(&tx, placed.allocation, Cause::Discard)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // The driver is woken for this and may not send it.
    world.submit(placed.session, "late").await;
    let end = tokio::time::timeout(Duration::from_secs(60), connection.ended())
        .await
        .expect("the link ends");
    assert!(
        matches!(end, LinkEnd::ClosedByPeer(Some(CloseReason::Revoked))),
        "{end}"
    );
    assert!(placed.sandbox.puts().is_empty());
    let refused = placed.sandbox.try_connect(&world.core.url).await.err().unwrap();
    assert_eq!(refusal(refused), Refusal::CredentialRejected);
}

/// Its allocation still takes Turns, so the look before each stream is all that keeps this one from the old link.
// inv: INV-S11
#[tokio::test]
async fn a_link_of_an_earlier_generation_carries_no_further_stream() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    let mut row = tx.lock_allocation(placed.allocation).await.unwrap().unwrap();
    row.link_generation = row.link_generation.next().unwrap();
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    world.submit(placed.session, "late").await;
    let end = connection.ended().await;
    assert!(
        matches!(end, LinkEnd::ClosedByPeer(Some(CloseReason::Revoked))),
        "{end}"
    );
    assert!(placed.sandbox.puts().is_empty());
}

// inv: INV-S11
#[tokio::test]
async fn losing_the_installation_ends_every_link() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    world.core.core().links.close_all().await;
    let end = connection.ended().await;
    assert!(
        matches!(end, LinkEnd::ClosedByPeer(Some(CloseReason::EpochChanged))),
        "{end}"
    );
}

type Raw = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn raw(world: &World) -> Raw {
    let url = format!("{}/api/v1/sandbox-link", world.core.url.replacen("http", "ws", 1));
    tokio_tungstenite::connect_async(url.into_client_request().unwrap())
        .await
        .unwrap()
        .0
}

/// The text of the answer; empty when the link is closed without one.
async fn answer(socket: &mut Raw) -> String {
    use futures_util::StreamExt as _;
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return text.to_string(),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            _ => return String::new(),
        }
    }
}

#[tokio::test]
async fn a_first_message_that_is_no_hello_is_closed_and_another_version_is_told() {
    use futures_util::SinkExt as _;
    let world = World::start().await;
    let placed = world.place().await;
    let hello = |padding: usize| {
        let resource = serde_json::to_string(&placed.sandbox.hello().resource).unwrap();
        let credential = placed.sandbox.hello().credential.expose().to_owned();
        format!(
            r#"{{"version":1,"type":"hello","credential":"{credential}","resource":{resource},"runtime_version":"t","instance_id":"11111111-1111-4111-8111-111111111111"{}}}"#,
            " ".repeat(padding)
        )
    };
    for bad in [
        Message::binary(vec![0]),
        Message::text("{}"),
        Message::text(hello(9000)),
        Message::text(hello(0).replace("hello", "welcome")),
        Message::text(hello(0).replace("\"version\":1", "\"version\":1,\"surplus\":1")),
    ] {
        let mut socket = raw(&world).await;
        socket.send(bad).await.unwrap();
        assert_eq!(answer(&mut socket).await, "");
    }
    let mut socket = raw(&world).await;
    socket
        .send(Message::text(hello(0).replace("\"version\":1", "\"version\":2")))
        .await
        .unwrap();
    assert!(answer(&mut socket).await.contains("link_version_unsupported"));
    let mut socket = raw(&world).await;
    socket.send(Message::text(hello(0))).await.unwrap();
    let welcome = answer(&mut socket).await;
    assert!(
        welcome.contains(r#""type":"welcome""#) && welcome.contains(r#""owner_epoch":1"#),
        "{welcome}"
    );
    let plain = world
        .core
        .call(Method::GET, "/api/v1/sandbox-link", None, None)
        .await;
    assert_eq!(plain.status, 400);
}

/// A sandbox may send wrong hellos as fast as it likes: it learns nothing, and the others behind its address link.
#[tokio::test]
async fn after_sixty_refused_hellos_an_address_is_told_nothing_and_the_right_credential_still_links() {
    let world = World::start().await;
    let placed = world.place().await;
    let mut wrong = placed.sandbox.hello();
    wrong.credential = Secret::new("0".repeat(64));
    let refused = async || {
        let refused = sandbox::connect(&world.core.url, &wrong, None).await;
        refusal(refused.err().unwrap())
    };
    for _ in 0..60 {
        assert_eq!(refused().await, Refusal::CredentialRejected);
    }
    assert_eq!(refused().await, Refusal::Busy);
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
}

/// An open WebSocket of the link route, from a loopback address of its own.
async fn raw_from(world: &World, source: [u8; 4]) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    let address = world.core.url.trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let upgrade = "GET /api/v1/sandbox-link HTTP/1.1\r\nHost: core\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    stream
}

#[tokio::test]
async fn at_most_64_links_of_an_address_and_256_of_all_open_at_once() {
    let world = World::start().await;
    let placed = world.place().await;
    let busy = async || refusal(placed.sandbox.try_connect(&world.core.url).await.err().unwrap());
    let mut opening = Vec::new();
    for _ in 0..64 {
        opening.push(raw_from(&world, [127, 0, 0, 1]).await);
    }
    world
        .eventually("no place for this address", async || {
            (busy().await == Refusal::Busy).then_some(())
        })
        .await;
    opening.clear();
    world
        .eventually("room for a link", async || {
            placed.sandbox.try_connect(&world.core.url).await.ok().map(drop)
        })
        .await;
    for host in 2..6 {
        for _ in 0..64 {
            opening.push(raw_from(&world, [127, 0, 0, host]).await);
        }
    }
    assert_eq!(busy().await, Refusal::Busy);
}

// inv: INV-S12, INV-C14
#[tokio::test]
async fn a_link_credential_is_in_no_log_line_error_or_row() {
    // Before Core sets its own: the database's threads log too.
    let log = Log::of_process("trace");
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    connection.cut().await;
    let mut wrong = placed.sandbox.hello();
    wrong.resource.generation = Generation::try_from(9).unwrap();
    let refused = sandbox::connect(&world.core.url, &wrong, None)
        .await
        .err()
        .unwrap();
    world
        .delete(&format!("/v1/sessions/{}", placed.session))
        .await
        .expect(202);
    let credential = placed.sandbox.hello().credential.expose().to_owned();
    let logged = log.take();
    assert!(logged.contains("a sandbox linked"), "the log is looked at");
    assert!(!logged.contains(&credential));
    assert!(!format!("{refused:?} {wrong:?}").contains(&credential));
    let row = format!("{:?}", world.allocation(placed.allocation).await);
    assert!(!row.contains(&credential));
}
