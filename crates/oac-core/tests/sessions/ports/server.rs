//! Servers as they run in sandboxes.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

pub(super) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// A server that ends with the test.
pub(super) struct Server {
    pub port: u16,
    _tasks: JoinSet<()>,
}

pub(super) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A server of whole HTTP/1.1.
pub(super) async fn http<F, R>(answer: F) -> Server
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    each(move |stream| {
        let answer = answer.clone();
        async move {
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        }
    })
    .await
}

/// A server that does `with` to every connection.
pub(super) async fn each<F, R>(with: F) -> Server
where
    F: Fn(TcpStream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (listener, port) = listen().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(with(stream));
            while connections.try_join_next().is_some() {}
        }
    });
    Server { port, _tasks: tasks }
}

/// Answers every request with what it was: method, target, headers and body.
pub(super) async fn mirror() -> Server {
    http(|request| async move {
        let (parts, body) = request.into_parts();
        let headers: Vec<_> = parts
            .headers
            .iter()
            .map(|(name, value)| {
                (
                    name.as_str().to_owned(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        let body = body.collect().await.unwrap().to_bytes();
        let seen = json!({
            "method": parts.method.as_str(),
            "target": parts.uri.to_string(),
            "headers": headers,
            "body": String::from_utf8_lossy(&body),
        });
        Response::new(full(seen.to_string()))
    })
    .await
}

/// What a server read, byte for byte, connection after connection.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<Vec<u8>>>>);

impl Heard {
    pub(super) fn texts(&self) -> Vec<String> {
        self.0
            .lock()
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }
}

/// Reads one head, notes everything until the other side ends or resets, and answers the head with `answer` and its end.
pub(super) async fn scripted(answer: impl Into<Vec<u8>>) -> (Server, Heard) {
    let (heard, answer) = (Heard::default(), Arc::new(answer.into()));
    let noted = heard.clone();
    let server = each(move |mut stream| {
        let (heard, answer) = (noted.clone(), answer.clone());
        async move {
            let at = {
                let mut all = heard.0.lock();
                all.push(Vec::new());
                all.len() - 1
            };
            read_head(&mut stream, |bytes| heard.0.lock()[at].extend_from_slice(bytes)).await;
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
            let mut rest = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut rest).await {
                heard.0.lock()[at].extend_from_slice(&rest[..n]);
            }
        }
    })
    .await;
    (server, heard)
}

/// Reads to the end of a head.
pub(super) async fn read_head(stream: &mut TcpStream, mut note: impl FnMut(&[u8])) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => {
                note(&byte);
                seen.extend_from_slice(&byte);
            }
            _ => return,
        }
    }
}
