//! `/core/v1/sandbox/allocations`.

use oac_model::{AllocationId, NodeId, SessionId};
use serde::Deserialize;
use serde_json::json;

use super::{Client, Document, Key};
use crate::Failure;

/// What of an allocation the commands read.
#[derive(Debug, Deserialize)]
pub struct Allocation {
    pub id: AllocationId,
    pub node_id: Option<NodeId>,
    pub session_id: SessionId,
    pub state: String,
    pub compute_phase: String,
    pub diagnostic: String,
    pub discardable: bool,
}

impl Client {
    /// Every unreleased allocation, of one node or of all.
    pub async fn allocations(&self, node: Option<NodeId>) -> Result<Vec<Document<Allocation>>, Failure> {
        let path = match node {
            Some(node) => format!("/core/v1/sandbox/nodes/{node}/allocations"),
            None => "/core/v1/sandbox/allocations".to_owned(),
        };
        self.list(Key::Core, &path).await
    }

    pub async fn discard_allocation(&self, id: AllocationId) -> Result<Document<Allocation>, Failure> {
        let path = format!("/core/v1/sandbox/allocations/{id}/discard");
        self.post(Key::Core, &path, &json!({ "accept_loss": true })).await
    }
}
