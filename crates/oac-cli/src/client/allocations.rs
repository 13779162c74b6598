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
    pub former_computes: Vec<NodeId>,
}

#[derive(Debug, Deserialize)]
pub struct Observations {
    pub data: Vec<Observation>,
}

/// What a running sandbox was last seen to use.
#[derive(Debug, Deserialize)]
pub struct Observation {
    pub allocation_id: AllocationId,
    pub session_id: SessionId,
    pub status: String,
    pub sample: Option<Sample>,
}

#[derive(Debug, Deserialize)]
pub struct Sample {
    pub observed_at: String,
    pub cpu_usage_seconds_total: Option<f64>,
    pub cpu_capacity_cores: Option<f64>,
    pub cpu_utilization_ratio: Option<f64>,
    pub memory_usage_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub disk_usage_bytes: Option<u64>,
}

impl Client {
    /// What running sandboxes use, those of one Session or all.
    pub async fn observations(&self, session: Option<SessionId>) -> Result<Document<Observations>, Failure> {
        let mut path = "/core/v1/sandbox/runtime-observations".to_owned();
        if let Some(session) = session {
            path += &format!("?session_id={session}");
        }
        self.get(Key::Core, &path).await
    }

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
    pub async fn discard_former_computes(&self, id: AllocationId) -> Result<Document<Allocation>, Failure> {
        let path = format!("/core/v1/sandbox/allocations/{id}/discard");
        self.post(Key::Core, &path, &json!({ "former_computes": true }))
            .await
    }
}
