//! Core's end of the node connections.
//!
//! It must guarantee that one identity has one connection at a time (INV-P3), that nothing is stored or sent before a
//! matching hello (INV-P4), that presence is committed before welcome and its removal is fenced to its connection
//! (INV-P5), and that no provider mutation leaves without 5 s of lease (INV-C27). The protocol's decisions are those of
//! `oac_peer::core::Connection`; this module moves its bytes, performs its actions in order, and lets the rest of Core
//! call nodes.

mod call;
mod connect;
mod connection;
mod limits;
mod socket;

use std::{collections::HashMap, sync::Arc, time::Duration};

use oac_model::{ConnectionId, Generation, NodeId, ProviderKind};
use oac_peer::core::Reservations;
use oac_telemetry::traces::Tracer;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use utoipa_axum::routes;

pub use call::{CallOutcome, Refusal, Request};

use crate::{
    Core,
    clock::Clock,
    http::{
        auth::Credential,
        router::{Body, Route},
    },
    metrics::Metrics,
    placement::memory::Memory,
    presence::Reports,
};
use connection::Peer;

/// The connected nodes.
pub struct Hub {
    reservations: Mutex<Reservations>,
    live: Mutex<HashMap<NodeId, Arc<Peer>>>,
    /// Raised to close every connection there is.
    closing: watch::Sender<u64>,
    /// A reservation was freed.
    freed: Notify,
    memory: Memory,
    reports: Reports,
    metrics: Metrics,
    traces: Tracer,
    pub(crate) clock: Arc<Clock>,
}

/// How long [`Hub::close_all`] waits for connections to remove their presence.
const CLOSE_ALL_WAIT: Duration = Duration::from_secs(6);

/// A node that is connected now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    pub connection_id: ConnectionId,
}

impl Hub {
    /// Without a node; operations are counted in `metrics` and traced by `traces`.
    pub fn new(metrics: Metrics, traces: Tracer) -> Self {
        Self {
            reservations: Mutex::default(),
            live: Mutex::default(),
            closing: watch::Sender::new(0),
            freed: Notify::new(),
            memory: Memory::default(),
            reports: Reports::default(),
            metrics,
            traces,
            clock: Arc::default(),
        }
    }

    /// Closes every node connection, before Core stands by or stops. While Core still owns the installation their
    /// presence is removed first.
    pub async fn close_all(&self) {
        self.hang_up();
        let emptied = async {
            loop {
                let freed = self.freed.notified();
                if self.reservations.lock().is_empty() {
                    return;
                }
                freed.await;
            }
        };
        if tokio::time::timeout(CLOSE_ALL_WAIT, emptied).await.is_err() {
            tracing::warn!("node connections did not end in time");
        }
    }

    /// Closes every node connection and waits for none.
    pub fn hang_up(&self) {
        self.closing.send_modify(|n| *n += 1);
    }

    /// Reports of nodes that wait for a transaction, those in the one that runs not counted.
    pub fn waiting_reports(&self) -> usize {
        self.reports.waiting()
    }

    /// The node's live connection.
    pub fn connected(&self, node: NodeId) -> Option<Connected> {
        self.live.lock().get(&node).map(|peer| peer.connected())
    }

    /// Whether the node is connected and its provider ready for this generation, as last recorded.
    pub fn is_ready(&self, node: NodeId, generation: Generation) -> bool {
        self.peer(node).is_some_and(|peer| peer.is_ready(generation))
    }

    /// The time by which connections live.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The connected node's backend.
    pub(crate) fn provider(&self, node: NodeId) -> Option<ProviderKind> {
        self.peer(node).map(|peer| peer.provider)
    }

    /// The nodes as placement remembers them.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What the nodes said and the database does not know yet.
    pub(crate) fn reports(&self) -> &Reports {
        &self.reports
    }

    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.live.lock().get(&node).cloned()
    }

    fn remove_live(&self, node: NodeId, connection: ConnectionId) {
        let mut live = self.live.lock();
        if live
            .get(&node)
            .is_some_and(|peer| peer.connected().connection_id == connection)
        {
            live.remove(&node);
        }
    }

    fn free(&self, node: NodeId, connection: ConnectionId) {
        self.reservations.lock().free(node, connection);
        self.freed.notify_waiters();
    }
}

/// The hub's routes.
pub fn routes() -> Vec<Route> {
    vec![
        // Browsers do not speak the protocol; a node is connected once.
        Route::new(Credential::Node, Body::None, routes!(connect::connect)).refuses(&[403, 409]),
    ]
}

/// Starts the hub's workers: none; each connection is a task of its own.
pub fn start(_core: &Arc<Core>) {}
