//! Core's end of the node connections.

use std::sync::Arc;

use crate::{Core, http::router::Route};

/// The connected nodes.
#[derive(Default)]
pub struct Hub {}

impl Hub {
    /// Closes every node connection, before Core stands by or stops.
    pub async fn close_all(&self) {}
}

/// The hub's routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}

/// Starts the hub's workers.
pub fn start(_core: &Arc<Core>) {}
