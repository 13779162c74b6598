//! GET `/metrics` on a listener of its own.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// The media type of Prometheus' text format.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
/// Connections at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// From accepting a connection to its end; each serves one request.
const CONNECTION_WAIT: Duration = Duration::from_secs(30);
/// The head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// Pause after a failed accept, which means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers scrapes on `listener` with what `text` gives, until it is dropped. All connections are served by the one task
/// that awaits it, so that scrapes never take more than one core.
pub async fn serve<F, T>(listener: TcpListener, text: F) -> Infallible
where
    F: Fn() -> T,
    T: Future<Output = String>,
{
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => open.push(connection(stream, &text)),
                Err(error) => {
                    tracing::warn!(%error, "accepting a scrape failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}

async fn connection<F, T>(stream: TcpStream, text: &F)
where
    F: Fn() -> T,
    T: Future<Output = String>,
{
    let answer = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics") => {
                let mut answer = Response::new(Full::new(Bytes::from(text().await)));
                answer.headers_mut().insert(CONTENT_TYPE, TEXT);
                answer
            }
            (_, "/metrics") => empty(StatusCode::METHOD_NOT_ALLOWED),
            _ => empty(StatusCode::NOT_FOUND),
        })
    });
    let served = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    // A scraper that went away or is too slow is no event worth a line.
    let _ = tokio::time::timeout(CONNECTION_WAIT, served).await;
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn ask(address: std::net::SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(format!("{head} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn one_path_is_answered_while_others_hang_on_their_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = async {
            let mut silent = Vec::new();
            for _ in 1..CONNECTIONS {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let answer = ask(address, "GET /metrics").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(
                answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                "{answer}"
            );
            assert!(answer.ends_with("\r\n\r\nup 1\n"), "{answer}");
            let head = ask(address, "HEAD /metrics").await;
            assert!(
                head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
                "{head}"
            );
            assert!(ask(address, "POST /metrics").await.starts_with("HTTP/1.1 405"));
            assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404"));
        };
        tokio::select! {
            never = serve(listener, async || "up 1\n".to_owned()) => match never {},
            () = asking => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_every_connection_in_silence_gives_it_back_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = async {
            let mut silent = Vec::new();
            for _ in 0..2 * CONNECTIONS {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            assert!(ask(address, "GET /metrics").await.ends_with("up 1\n"));
        };
        tokio::select! {
            never = serve(listener, async || "up 1\n".to_owned()) => match never {},
            () = asking => {}
        }
    }
}
