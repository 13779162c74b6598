//! Listening and serving connections.
//!
//! Core accepts connections itself instead of leaving that to the framework, so that each is a task with a policy: on
//! shutdown a connection finishes the request it is answering, for at most [`LAST_ANSWER`], and is then dropped.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{Router, extract::Request};
use hyper::{
    body::Incoming,
    rt::{Sleep, Timer},
    server::conn::http1,
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::{
    Core,
    clock::Clock,
    config::TrustedProxies,
    http::stall::{Urgency, Watched},
    task::{Kind, Tasks},
};

/// How long a request may still be answered after Core was told to stop.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// How long a client may take for its part of TLS.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// How long a client may take to send a request's head, counted from the answer before it: longer than the 60 s for which
/// proxies usually keep an idle connection, so that none sends a request into a connection that Core is closing.
const HEAD_WAIT: Duration = Duration::from_secs(75);
/// What one connection buffers of an answer that its client does not read, and the largest head of a request.
const BUFFER_BYTES: usize = 64 * 1024;
/// Connections served at once; further ones wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Connections that wait to be accepted, as far as the kernel allows.
const BACKLOG: u32 = 4096;
/// Pause after a failed accept, which means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from, as far as trusted proxies tell, in its extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: check that the address is this host's and that nothing else listens there"
)]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Binds every address, and that alone: `[::]` is every IPv6 address and no IPv4 one, so that both families can be named
/// with one port. Port 0 takes a free port.
pub async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ListenError> {
    addresses
        .iter()
        .map(|&address| listen(address).map_err(|source| ListenError { address, source }))
        .collect()
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            socket
        }
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How a connection is served; the same for all.
#[derive(Clone)]
struct Edge {
    router: Router,
    tls: Option<TlsAcceptor>,
    trusted: TrustedProxies,
    clock: Arc<Clock>,
    tasks: Tasks,
}

/// Serves `router` on `listeners` until Core stops, by TLS with `tls`.
pub fn serve(core: &Arc<Core>, listeners: Vec<TcpListener>, router: Router, tls: Option<TlsAcceptor>) {
    let edge = Edge {
        router,
        tls,
        trusted: core.config.trusted_proxies.clone(),
        clock: core.hub.clock.clone(),
        tasks: core.tasks.clone(),
    };
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    for listener in listeners {
        let (edge, slots) = (edge.clone(), slots.clone());
        core.tasks.spawn(Kind::Worker, "listener", async move {
            loop {
                let Ok(slot) = slots.clone().acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let tasks = edge.tasks.clone();
                        let connection = edge.clone().connection(stream, peer.ip());
                        tasks.spawn(Kind::Finish, "http connection", async move {
                            connection.await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(event = "accept_failed", %error, "accepting a connection failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }
}

impl Edge {
    async fn connection(self, stream: TcpStream, peer: IpAddr) {
        // Answers are small and a caller waits for each.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.http(stream, peer).await;
        };
        let stopping = self.tasks.stopping();
        // Whoever does not speak TLS, or too slowly, is no event worth a line.
        let shaken = tokio::select! {
            shaken = tls.accept(stream) => shaken.ok(),
            () = self.clock.pass(HANDSHAKE_WAIT) => None,
            () = stopping.cancelled() => None,
        };
        if let Some(stream) = shaken {
            self.http(stream, peer).await;
        }
    }

    async fn http(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: IpAddr) {
        let trusted = self.trusted.clone();
        let urgency = Urgency::default();
        let stream = Watched::new(stream, urgency.clone(), self.clock.clone());
        let service = self
            .router
            .clone()
            .map_request(move |mut request: Request<Incoming>| {
                let client = trusted.client(peer, request.headers());
                request.extensions_mut().insert(Peer(client));
                request.extensions_mut().insert(urgency.clone());
                request.map(axum::body::Body::new)
            });
        let connection = http1::Builder::new()
            .timer(HeadTimer(self.clock.clone()))
            .header_read_timeout(HEAD_WAIT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
            .with_upgrades();
        tokio::pin!(connection);
        let stopping = self.tasks.stopping();
        tokio::select! {
            // A client that went away is no event worth a line.
            _ = &mut connection => {}
            () = stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
            }
        }
    }
}

/// The HTTP library's limits by Core's clock.
#[derive(Clone)]
struct HeadTimer(Arc<Clock>);

impl Timer for HeadTimer {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Sleep>> {
        let clock = self.0.clone();
        Box::pin(Sleeping(Box::pin(async move { clock.pass(time).await })))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

struct Sleeping(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl Sleep for Sleeping {}

impl Future for Sleeping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
