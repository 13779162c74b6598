//! A peer that breaks the protocol below HTTP, freezes, or floods: its own link ends, nothing grows, nothing waits for
//! ever.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{SinkExt, StreamExt};
use oac_link::{LinkEnd, Socket, StreamClass, empty, introduce, limits};
use tokio::{task::JoinSet, time::Instant};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    keepalive::core_and_bare_peer,
    pair::{Native, end, hello, sockets, welcome},
};

const DATA: u8 = 0;
const WINDOW: u8 = 1;
const PING: u8 = 2;
const GO_AWAY: u8 = 3;
const SYN: u16 = 1;
const RST: u16 = 8;
/// The first stream that Core opens.
const OPENED: u32 = 1;

fn frame(version: u8, kind: u8, flags: u16, stream: u32, length: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![version, kind];
    frame.extend(flags.to_be_bytes());
    frame.extend(stream.to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

fn data(stream: u32, bytes: usize) -> Vec<u8> {
    frame(0, DATA, 0, stream, bytes as u32, &vec![b'x'; bytes])
}

async fn send(peer: &mut Native, bytes: &[u8]) {
    for part in bytes.chunks(limits::MESSAGE_BYTES) {
        // The other end may close before it has heard all.
        if peer.send(Message::binary(part.to_vec())).await.is_err() {
            return;
        }
    }
}

/// Core's end with one request under way, and the bare WebSocket of its peer.
async fn core_with_a_request() -> (JoinSet<LinkEnd>, JoinSet<()>, Native) {
    let (client, driver, mut peer) = core_and_bare_peer().await;
    let (mut core, mut request) = (JoinSet::new(), JoinSet::new());
    core.spawn(driver.run());
    request.spawn(async move {
        let get = http::Request::get("/v1/status").body(empty()).unwrap();
        let answer = client.request(StreamClass::Control, get).await;
        assert!(answer.is_err(), "the link's end ends its streams");
    });
    while !matches!(peer.next().await, Some(Ok(Message::Binary(_)))) {}
    (core, request, peer)
}

// inv: INV-S13
#[tokio::test]
async fn every_breach_of_the_stream_protocol_ends_the_link_at_once() {
    let overflow = limits::WINDOW_BYTES + 1;
    let breaches = [
        ("a stream of the runtime's", frame(0, WINDOW, SYN, 2, 0, b"")),
        (
            "a stream of the runtime's with data",
            frame(0, DATA, SYN, 4, 1, b"x"),
        ),
        (
            "a stream under one of Core's numbers",
            frame(0, DATA, SYN, 7, 0, b""),
        ),
        (
            "the number of an open stream",
            frame(0, DATA, SYN, OPENED, 0, b""),
        ),
        (
            "more than the window",
            [data(OPENED, 200_000), data(OPENED, overflow - 200_000)].concat(),
        ),
        (
            "a frame beyond every limit",
            frame(0, DATA, 0, OPENED, 2 << 20, b""),
        ),
        ("a length of 32 bits", frame(0, DATA, 0, OPENED, u32::MAX, b"")),
        (
            "credit beyond 32 bits",
            [
                frame(0, WINDOW, 0, OPENED, u32::MAX, b""),
                frame(0, WINDOW, 0, OPENED, u32::MAX, b""),
            ]
            .concat(),
        ),
        ("another version", frame(1, DATA, 0, OPENED, 0, b"")),
        ("an unknown type", frame(0, 9, 0, OPENED, 0, b"")),
        ("text where frames belong", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
    ];
    for (what, bytes) in breaches {
        let (mut core, mut request, mut peer) = core_with_a_request().await;
        send(&mut peer, &bytes).await;
        let end = end(&mut core).await;
        assert!(matches!(end, LinkEnd::Violation(_)), "{what}: {end}");
        request.join_next().await.unwrap().unwrap();
    }
    let (mut core, _request, mut peer) = core_with_a_request().await;
    send(&mut peer, &frame(0, GO_AWAY, 0, 0, 0, b"")).await;
    let end = end(&mut core).await;
    assert!(matches!(end, LinkEnd::ClosedByPeer(None)), "a farewell: {end}");
}

#[tokio::test(start_paused = true)]
async fn what_concerns_no_open_stream_is_ignored_however_much_of_it_there_is() {
    let (mut core, mut request, mut peer) = core_with_a_request().await;
    for n in 0..200_u32 {
        let mut flood = Vec::new();
        for stream in 0..1000 {
            flood.extend(frame(0, DATA, RST, 1001 + 2 * (stream + n), 0, b""));
            flood.extend(frame(0, WINDOW, 0, 1001 + 2 * stream, 1, b""));
        }
        flood.extend(data(999, 10_000));
        send(&mut peer, &flood).await;
        peer.send(Message::Ping(Vec::new().into())).await.unwrap();
    }
    assert!(core.try_join_next().is_none(), "the link lives");
    // And its stream is answered.
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    send(&mut peer, &frame(0, DATA, 0, OPENED, answer.len() as u32, answer)).await;
    let answered = request.join_next().await.unwrap();
    assert!(answered.is_err_and(|e| e.is_panic()), "the request succeeded");
}

/// Frozen while this side has more to say than the connection holds, and while an answer to one of the peer's pings waits
/// to leave, for which the multiplexer stops reading.
#[tokio::test(start_paused = true)]
async fn a_frozen_peer_is_noticed_after_45_s_even_when_nothing_can_be_sent_to_it() {
    let (client, driver, mut peer) = core_and_bare_peer().await;
    let mut core = JoinSet::new();
    core.spawn(driver.run());
    let mut requests = JoinSet::new();
    // More than the connection of this test holds, over streams whose windows are not yet used up.
    for _ in 0..40 {
        let client = client.clone();
        requests.spawn(async move {
            let body = oac_link::full(vec![b'x'; 200_000]);
            let put = http::Request::put("/v1/files").body(body).unwrap();
            client.request(StreamClass::Bulk, put).await.is_err()
        });
    }
    // The clock stands still until nothing can move any more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for n in 0..100 {
        send(&mut peer, &frame(0, PING, SYN, 0, n, b"")).await;
    }
    let start = Instant::now();
    let end = end(&mut core).await;
    assert!(matches!(end, LinkEnd::Silent), "{end}");
    assert!(
        (45..=60).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    while let Some(failed) = requests.join_next().await {
        assert!(failed.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_core_is_noticed_by_the_sandbox_after_45_s() {
    let (mut core, sandbox) = sockets().await;
    let answer = serde_json::json!({
        "version": 1, "type": "welcome", "connection_id": welcome().connection_id, "owner_epoch": 1,
    });
    let said = hello();
    let (introduced, ()) = tokio::join!(introduce(Socket::from_tungstenite(sandbox), &said), async {
        core.next().await.unwrap().unwrap();
        core.send(Message::text(answer.to_string())).await.unwrap();
    });
    let (_, server) = introduced.unwrap();
    let (_ask, asked) = tokio::sync::mpsc::channel(1);
    let service = hyper::service::service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(hyper::Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
    });
    let start = Instant::now();
    let end = server.serve(service, asked).await;
    assert!(matches!(end, LinkEnd::Silent), "{end}");
    assert_eq!(start.elapsed().as_secs(), 45);
}

/// Messages without a pause, on a runtime with one thread: the other task of the thread goes on meanwhile.
#[tokio::test]
async fn a_flood_holds_up_no_other_task_of_its_thread() {
    let (mut core, _request, mut peer) = core_with_a_request().await;
    let flood = frame(0, WINDOW, 0, 1001, 1, b"").repeat(20_000);
    let turns = Arc::new(AtomicU64::new(0));
    let counter = turns.clone();
    let mut other = JoinSet::new();
    other.spawn(std::future::poll_fn(move |cx| {
        counter.fetch_add(1, Ordering::Relaxed);
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    }));
    let before = turns.load(Ordering::Relaxed);
    for _ in 0..20 {
        send(&mut peer, &flood).await;
    }
    assert!(core.try_join_next().is_none());
    let turns = turns.load(Ordering::Relaxed) - before;
    assert!(turns > 20 * 20_000 / 1000, "{turns} turns of the other task");
}
