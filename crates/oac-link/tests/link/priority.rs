//! What a call waits for behind large transfers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    service::service_fn,
};
use oac_link::{Opening, Socket, StreamClass, empty, introduce, limits};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};

use crate::pair::{hello, welcome};

/// A status of 32 frames.
const ANSWER_BYTES: usize = 512 << 10;
/// Bytes that the wire between the ends holds at most, in each of its three parts.
const WIRE_BYTES: usize = 16 << 10;

#[tokio::test]
async fn a_status_does_not_take_turns_with_the_files_that_saturate_the_link() {
    let passed = Arc::new(AtomicU64::new(0));
    let (core, mut core_wire) = tokio::io::duplex(WIRE_BYTES);
    let (mut sandbox_wire, sandbox) = tokio::io::duplex(WIRE_BYTES);
    let mut tasks = JoinSet::new();
    let count = passed.clone();
    tasks.spawn(async move {
        let (mut from_core, mut to_core) = tokio::io::split(&mut core_wire);
        let (mut from_sandbox, mut to_sandbox) = tokio::io::split(&mut sandbox_wire);
        let down = async {
            let mut buffer = vec![0; WIRE_BYTES];
            while let Ok(n @ 1..) = from_sandbox.read(&mut buffer).await {
                count.fetch_add(n as u64, Ordering::SeqCst);
                if to_core.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(down, tokio::io::copy(&mut from_core, &mut to_sandbox)).0
    });
    let config = WebSocketConfig::default()
        .max_message_size(Some(limits::MESSAGE_BYTES))
        .max_frame_size(Some(limits::MESSAGE_BYTES));
    let (core, sandbox) = tokio::join!(
        WebSocketStream::from_raw_socket(core, Role::Server, Some(config)),
        WebSocketStream::from_raw_socket(sandbox, Role::Client, Some(config)),
    );
    let said = hello();
    let mut opening = Opening::new(Socket::from_tungstenite(core));
    let (sandbox, (client, driver)) =
        tokio::join!(introduce(Socket::from_tungstenite(sandbox), &said), async {
            opening.hello().await.unwrap();
            opening.welcome(welcome()).await.unwrap()
        });
    let (_ask, asked) = tokio::sync::mpsc::channel(1);
    // How much had passed when the status was answered.
    let answered = Arc::new(AtomicU64::new(0));
    let (seen, total) = (answered.clone(), passed.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let body = if request.uri().path() == "/v1/status" {
            seen.store(total.load(Ordering::SeqCst), Ordering::SeqCst);
            Full::new(Bytes::from(vec![b' '; ANSWER_BYTES])).boxed_unsync()
        } else {
            let piece = Bytes::from(vec![7; 256 << 10]);
            let endless =
                futures_util::stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(piece.clone())));
            StreamBody::new(endless.boxed()).boxed_unsync()
        };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    tasks.spawn(async move { drop(driver.run().await) });
    tasks.spawn(async move { drop(sandbox.unwrap().1.serve(service, asked).await) });

    let bulk = limits::STREAMS - limits::RESERVED_STREAMS;
    let moved = Arc::new(AtomicU64::new(0));
    for n in 0..bulk {
        let request = Request::get(format!("/v1/files?path={n}")).body(empty()).unwrap();
        let answer = client.request(StreamClass::Bulk, request).await.unwrap();
        let moved = moved.clone();
        tasks.spawn(async move {
            let mut body = answer.into_body();
            while let Some(Ok(frame)) = body.frame().await {
                moved.fetch_add(frame.into_data().unwrap().len() as u64, Ordering::SeqCst);
            }
        });
    }
    for round in 0..4 {
        let before = moved.load(Ordering::SeqCst);
        while moved.load(Ordering::SeqCst) < before + (256 << 10) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let request = Request::get("/v1/status").body(empty()).unwrap();
        let answer = client.request(StreamClass::Control, request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), ANSWER_BYTES);
        let waited = passed.load(Ordering::SeqCst) - answered.load(Ordering::SeqCst);
        // Taking turns with 48 streams, each frame of it would wait for 48 others: 24 MiB.
        let bound = (ANSWER_BYTES + (4 << 20)) as u64;
        assert!(
            waited <= bound,
            "round {round}: {waited} bytes went until the answer had arrived, {bound} may"
        );
    }
}
