//! `oac session port-forward`: ports of a sandbox as HTTP servers on this machine's loopback address.
//!
//! Core's port route is a proxy for HTTP and its upgrades (WebSocket among them), so this is one too, and no tunnel for
//! other protocols. It adds the Project key, which never reaches the sandbox, and so must not be lent out: only requests
//! whose Host is this machine's are passed on, since a page of a stranger's may name a host that resolves to 127.0.0.1;
//! and no path leads from a port to Core's other routes.

mod headers;
mod host;

use std::{
    cell::RefCell, collections::HashSet, convert::Infallible, future::Future, net::SocketAddr, pin::Pin,
    rc::Rc,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream::FuturesUnordered};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Frame, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use oac_model::SessionId;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{Failure, client::Client, output};

/// Connections at once of all ports.
const CONNECTIONS: usize = 256;
/// The pause after a connection that could not be accepted.
const ACCEPT_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);
/// Different lines about problems; the same is told once.
const PROBLEMS: usize = 100;

type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One port of the sandbox and the listener that stands for it.
pub struct Forward {
    listener: TcpListener,
    local: SocketAddr,
    port: u16,
}

impl Forward {
    /// Listens on `127.0.0.1:local`; 0 picks a free port.
    pub async fn listen(local: u16, port: u16) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::Unfinished(format!(
                "cannot listen on 127.0.0.1:{local} ({error}): choose another port, or 0 for a free one"
            ))
        };
        let listener = TcpListener::bind(("127.0.0.1", local)).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            local,
            port,
        })
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The sandbox's port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Serves every port; ends only by being dropped.
pub async fn serve(client: &Client, session: SessionId, forwards: &[Forward]) {
    let problems = Problems::default();
    // What an answer leaves to be done after it: the bytes of an upgraded connection.
    let (later, mut asked) = mpsc::channel::<Work>(CONNECTIONS);
    let mut work = FuturesUnordered::<Pin<Box<dyn Future<Output = ()> + '_>>>::new();
    loop {
        tokio::select! {
            (stream, port) = accept(forwards), if work.len() < CONNECTIONS => {
                let gate = Gate { client, session, port, problems: problems.clone(), later: later.clone() };
                work.push(Box::pin(connection(stream, gate)));
            }
            Some(tunnel) = asked.recv() => work.push(tunnel),
            Some(()) = work.next() => {}
        }
    }
}

async fn accept(forwards: &[Forward]) -> (TcpStream, u16) {
    loop {
        let mut waiting: FuturesUnordered<_> = forwards
            .iter()
            .map(|f| async move { (f.listener.accept().await, f.port) })
            .collect();
        match waiting.next().await {
            Some((Ok((stream, _)), port)) => return (stream, port),
            // Out of file descriptors, most likely; the connections that end make room.
            Some((Err(_), _)) => tokio::time::sleep(ACCEPT_AGAIN).await,
            None => std::future::pending().await,
        }
    }
}

async fn connection(stream: TcpStream, gate: Gate<'_>) {
    let service = service_fn(|request| {
        let gate = &gate;
        async move { Ok::<_, Infallible>(gate.answer(request).await) }
    });
    // A broken connection is its own end's affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

/// What requests of one connection pass through.
struct Gate<'a> {
    client: &'a Client,
    session: SessionId,
    port: u16,
    problems: Problems,
    later: mpsc::Sender<Work>,
}

impl Gate<'_> {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<AnswerBody> {
        if request.method() == Method::CONNECT || !host::is_own(&request) {
            self.problems.tell(
                "refused a request that was not made to localhost or 127.0.0.1: a web page may have tried to reach the sandbox",
            );
            return refusal(
                StatusCode::MISDIRECTED_REQUEST,
                "This address serves http://localhost and http://127.0.0.1 alone.\n",
            );
        }
        let prefix = self.prefix();
        let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
        // Pages that heed X-Forwarded-Prefix name Core's path.
        let target = match target.strip_prefix(&prefix) {
            Some("") => "/",
            Some(rest) if rest.starts_with(['/', '?']) => rest,
            _ => target,
        };
        let Ok(url) = self.client.port_url(self.session, self.port, target) else {
            return refusal(StatusCode::BAD_REQUEST, "The path holds . or .. as a segment.\n");
        };
        if request.headers().contains_key(header::AUTHORIZATION) {
            self.problems.tell(
                "the Authorization header of requests is not passed on: Core takes that header for the Project key",
            );
        }
        let method = request.method().clone();
        let upgrade = headers::upgrade(request.headers());
        let passed = headers::to_core(request.headers(), upgrade.as_ref());
        let theirs = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let answer = self
            .client
            .to_port(method.clone(), url, passed, body(request.into_body()))
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                self.problems.tell(&failure.to_string());
                return refusal(StatusCode::BAD_GATEWAY, "oac cannot reach Core.\n");
            }
        };
        let status = answer.status();
        if matches!(status.as_u16(), 401 | 429 | 502..=504) {
            self.problems.tell(&format!(
                "{method} to port {} was answered {status}{}",
                self.port,
                hint(status)
            ));
        }
        let mut response = Response::builder().status(status);
        if let Some(headers) = response.headers_mut() {
            *headers = headers::from_core(answer.headers(), self.client.url(), &prefix, status);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(theirs) = theirs {
                let tunnel: Work = Box::pin(async move {
                    if let (Ok(theirs), Ok(mut core)) = tokio::join!(theirs, answer.upgrade()) {
                        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(theirs), &mut core).await;
                    }
                });
                if self.later.send(tunnel).await.is_ok() {
                    return built(response, empty());
                }
            }
            return refusal(StatusCode::BAD_GATEWAY, "An upgrade that was not asked for.\n");
        }
        let stream = answer
            .bytes_stream()
            .map_ok(Frame::data)
            .map_err(|error| error.without_url().into());
        built(response, StreamBody::new(stream).boxed_unsync())
    }

    fn prefix(&self) -> String {
        format!("/v1/sessions/{}/ports/{}", self.session, self.port)
    }
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => ": the Project key is no longer valid, run `oac login`",
        502 => ": is anything listening on that port in the sandbox?",
        503 => ": the sandbox cannot be reached now",
        _ => "",
    }
}

fn body(incoming: Incoming) -> reqwest::Body {
    if incoming.is_end_stream() {
        return reqwest::Body::default();
    }
    let data =
        BodyStream::new(incoming).try_filter_map(|frame| std::future::ready(Ok(frame.into_data().ok())));
    reqwest::Body::wrap_stream(data)
}

fn empty() -> AnswerBody {
    Full::default()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

fn refusal(status: StatusCode, text: &'static str) -> Response<AnswerBody> {
    let body = Full::new(Bytes::from_static(text.as_bytes()))
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    built(
        Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, "text/plain"),
        body,
    )
}

fn built(response: hyper::http::response::Builder, body: AnswerBody) -> Response<AnswerBody> {
    response.body(body).unwrap_or_else(|_| {
        let mut broken = Response::new(empty());
        *broken.status_mut() = StatusCode::BAD_GATEWAY;
        broken
    })
}

/// Lines about what went wrong, each once.
#[derive(Clone, Default)]
struct Problems(Rc<RefCell<HashSet<String>>>);

impl Problems {
    fn tell(&self, line: &str) {
        let mut told = self.0.borrow_mut();
        if told.len() < PROBLEMS && told.insert(line.to_owned()) {
            output::complain(&output::printable(line));
        }
    }
}
