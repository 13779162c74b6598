//! `/core/v1/sandbox/nodes`.

use std::collections::BTreeMap;

use oac_model::NodeId;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Client, Document, Key};
use crate::Failure;

const PATH: &str = "/core/v1/sandbox/nodes";

#[derive(Debug, Deserialize)]
pub struct Nodes {
    pub data: Vec<Node>,
}

/// What of a node the commands read.
#[derive(Debug, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub provider: String,
    pub online: bool,
    pub provider_ready: bool,
    pub diagnostic: Option<String>,
    pub active: u64,
    pub retained: u64,
    pub max_active: u64,
    pub max_retained: u64,
    pub recommended: Option<Capacity>,
    pub labels: BTreeMap<String, String>,
    pub cordoned: bool,
    pub drain: Option<Drain>,
    pub last_seen_at: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Capacity {
    pub max_active: u64,
    pub max_retained: u64,
}

#[derive(Debug, Deserialize)]
pub struct Drain {
    pub deadline_at: Option<String>,
    pub deadline_passed_at: Option<String>,
    pub then: Option<String>,
}

/// How a node's host was used.
#[derive(Debug, Deserialize)]
pub struct History {
    pub history: Points,
}

#[derive(Debug, Deserialize)]
pub struct Points {
    pub points: Vec<Point>,
}

/// The extremes of some minutes.
#[derive(Debug, Deserialize)]
pub struct Point {
    pub start: String,
    pub cpu_utilization_max: Option<f64>,
    pub memory_used_bytes_max: Option<u64>,
    pub available_disk_bytes_min: Option<u64>,
}

/// All that PATCH takes.
#[derive(Debug, Serialize)]
pub struct NodeEdit {
    pub name: String,
    pub max_active: u64,
    pub max_retained: u64,
}

/// All that a drain takes.
#[derive(Debug, Serialize)]
pub struct NodeDrain {
    pub deadline_seconds: u32,
    pub idle: &'static str,
    pub then: &'static str,
    pub retained: &'static str,
}

impl Client {
    pub async fn nodes(&self) -> Result<Document<Nodes>, Failure> {
        self.get(Key::Core, PATH).await
    }

    pub async fn node(&self, id: NodeId) -> Result<Document<Node>, Failure> {
        self.get(Key::Core, &format!("{PATH}/{id}")).await
    }

    /// The node with its history over `range`.
    pub async fn node_history(&self, id: NodeId, range: &str) -> Result<Document<History>, Failure> {
        self.get(Key::Core, &format!("{PATH}/{id}?range={range}")).await
    }

    pub async fn edit_node(&self, id: NodeId, edit: &NodeEdit) -> Result<Document<Node>, Failure> {
        let request = self.request(Method::PATCH, Key::Core, &format!("{PATH}/{id}"))?;
        self.document(request.json(edit)).await
    }

    pub async fn set_node_labels(
        &self,
        id: NodeId,
        labels: &BTreeMap<String, String>,
    ) -> Result<Document<Node>, Failure> {
        let path = format!("{PATH}/{id}/labels");
        self.put(Key::Core, &path, &json!({ "labels": labels })).await
    }

    pub async fn cordon_node(&self, id: NodeId, cordon: bool) -> Result<Document<Node>, Failure> {
        let action = if cordon { "cordon" } else { "uncordon" };
        self.post(Key::Core, &format!("{PATH}/{id}/{action}"), &json!({}))
            .await
    }

    pub async fn drain_node(&self, id: NodeId, drain: &NodeDrain) -> Result<Document<Node>, Failure> {
        self.post(Key::Core, &format!("{PATH}/{id}/drain"), &json!(drain))
            .await
    }

    pub async fn cancel_drain(&self, id: NodeId) -> Result<Document<Node>, Failure> {
        let request = self.request(Method::DELETE, Key::Core, &format!("{PATH}/{id}/drain"))?;
        self.document(request).await
    }

    pub async fn remove_node(&self, id: NodeId) -> Result<(), Failure> {
        self.remove(Key::Core, &format!("{PATH}/{id}")).await
    }
}
