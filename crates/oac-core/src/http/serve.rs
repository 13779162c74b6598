//! Listening and serving connections.
//!
//! Core accepts connections itself instead of leaving that to the framework, so that each is a task with a policy: on
//! shutdown a connection finishes the request it is answering, for at most [`LAST_ANSWER`], and is then dropped.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::Request};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use crate::{
    Core,
    task::{Kind, Tasks},
};

/// How long a request may still be answered after Core was told to stop.
const LAST_ANSWER: Duration = Duration::from_secs(2);
/// How long a client may take to send a request's head.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// What one connection buffers of an answer that its client does not read, and the largest head of a request.
const BUFFER_BYTES: usize = 64 * 1024;
/// Connections served at once; further ones wait in the kernel's queue.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Pause after a failed accept, which means that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from, in its extensions.
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

/// Binds every address; port 0 takes a free port.
pub async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for &address in addresses {
        listeners.push(
            TcpListener::bind(address)
                .await
                .map_err(|source| ListenError { address, source })?,
        );
    }
    Ok(listeners)
}

/// Serves `router` on `listeners` until Core stops.
pub fn serve(core: &Arc<Core>, listeners: Vec<TcpListener>, router: Router) {
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    for listener in listeners {
        let (tasks, router, slots) = (core.tasks.clone(), router.clone(), slots.clone());
        core.tasks.spawn(Kind::Worker, "listener", async move {
            loop {
                let Ok(slot) = slots.clone().acquire_owned().await else {
                    return;
                };
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let (router, stopping) = (router.clone(), tasks.clone());
                        tasks.spawn(Kind::Finish, "http connection", async move {
                            connection(stream, peer, router, stopping).await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accepting a connection failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, tasks: Tasks) {
    // Answers are small and a caller waits for each.
    let _ = stream.set_nodelay(true);
    let service = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip().to_canonical()));
        request.map(axum::body::Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades();
    tokio::pin!(connection);
    let stopping = tasks.stopping();
    tokio::select! {
        // A client that went away is no event worth a line.
        _ = &mut connection => {}
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
        }
    }
}
