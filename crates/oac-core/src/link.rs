//! The acceptor of sandbox links.

use std::sync::Arc;

use crate::{Core, http::router::Route};

/// The connected sandboxes.
#[derive(Default)]
pub struct Links {}

impl Links {
    /// The allocation's current link.
    pub fn current(&self, _allocation: oac_model::AllocationId) -> Option<()> {
        None
    }

    /// Closes every sandbox connection, before Core stands by or stops.
    pub async fn close_all(&self) {}
}

/// The link's routes.
pub fn routes() -> Vec<Route> {
    Vec::new()
}

/// Starts the links' workers.
pub fn start(_core: &Arc<Core>) {}
