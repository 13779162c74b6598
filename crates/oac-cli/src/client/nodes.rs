//! `/core/v1/sandbox/nodes`.

use oac_model::NodeId;
use serde::Deserialize;

use super::{Client, Document, Key};
use crate::Failure;

#[derive(Debug, Deserialize)]
pub struct Nodes {
    pub data: Vec<Node>,
}

/// What of a node the commands read.
#[derive(Debug, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub online: bool,
    pub provider_ready: bool,
    pub diagnostic: Option<String>,
    pub active: u64,
    pub max_active: u64,
    pub last_seen_at: Option<String>,
}

impl Client {
    pub async fn nodes(&self) -> Result<Document<Nodes>, Failure> {
        self.get(Key::Core, "/core/v1/sandbox/nodes").await
    }
}
