//! A few lines of HTTP over unix sockets, for both sides of the tap.

use std::{convert::Infallible, future::Future, io, path::Path};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

pub(crate) type Answer = Response<Full<Bytes>>;

/// Serves `handle` on `socket` until the runtime ends; a value sent to the result ends all connections. An error closes the connection without an answer.
pub(crate) fn serve<F, R, E>(socket: &Path, handle: F) -> watch::Sender<()>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Answer, E>> + Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    let listener = UnixListener::bind(socket).unwrap();
    let cut = watch::Sender::new(());
    let cuts = cut.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handle = handle.clone();
            let mut cut = cuts.subscribe();
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(&handle))
                    .with_upgrades();
                tokio::select! {
                    _ = connection => {}
                    _ = cut.changed() => {}
                }
            });
        }
    });
    cut
}

/// Sends one request on a connection of its own; the response, not yet read.
pub(crate) async fn send(socket: &Path, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(io::Error::other)
}

/// Calls the engine directly, beside the provider under test.
pub(crate) async fn call(
    socket: &Path,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let bytes = body.map(|b| b.to_string()).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(format!("/v1.41{path}"))
        .header("host", "docker")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(bytes)))
        .unwrap();
    let response = send(socket, request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

pub(crate) fn answer(status: u16, body: Value) -> Answer {
    Response::builder()
        .status(status)
        .header("api-version", "1.41")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

pub(crate) fn refuse(status: u16, message: &str) -> Answer {
    answer(status, serde_json::json!({ "message": message }))
}

pub(crate) async fn collect(body: Incoming) -> Bytes {
    body.collect().await.map(|b| b.to_bytes()).unwrap_or_default()
}

/// `/v1.41/a/b?q` as (`/a/b`, `q`).
pub(crate) fn split(uri: &http::Uri) -> (String, String) {
    let path = uri.path();
    let path = match path.strip_prefix("/v").and_then(|p| p.split_once('/')) {
        Some((version, rest)) if version.starts_with(|c: char| c.is_ascii_digit()) => format!("/{rest}"),
        _ => path.to_owned(),
    };
    (path, uri.query().unwrap_or_default().to_owned())
}

pub(crate) fn query(query: &str, key: &str) -> Option<String> {
    let value = query
        .split('&')
        .find_map(|p| p.strip_prefix(&format!("{key}=")))?;
    Some(
        percent_encoding::percent_decode_str(value)
            .decode_utf8()
            .unwrap()
            .into_owned(),
    )
}

pub(crate) type Never = Infallible;
