//! `/core/v1/sandbox/nodes`.

use std::collections::BTreeMap;

use oac_model::{EnrollmentId, NodeId, Secret, Time};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Client, Document, Key};
use crate::Failure;

const PATH: &str = "/core/v1/sandbox/nodes";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const INDEX: &str = "/api/v1/sandbox-node/install/index.json";

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
    pub rollout: Rollout,
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

/// How far a node has followed the deployment.
#[derive(Debug, Deserialize)]
pub struct Rollout {
    pub diagnostic: Option<String>,
}

/// An enrollment token with the command that carries it.
#[derive(Debug, Deserialize)]
pub struct Enrollment {
    pub enrollment_id: EnrollmentId,
    pub expires_at: Time,
    pub command: Option<Secret>,
}

#[derive(Debug, Deserialize)]
pub struct CleanupCommands {
    pub command: String,
    pub forced_command: String,
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
    /// A token for one node, with the limits it starts with; without any, those that Core recommends.
    pub async fn enrollment_token(&self, limits: Option<Capacity>) -> Result<Document<Enrollment>, Failure> {
        let body = match limits {
            None => json!({ "recommended": true }),
            Some(limits) => {
                json!({ "max_active": limits.max_active, "max_retained": limits.max_retained })
            }
        };
        self.post(Key::Core, TOKENS, &body).await
    }

    /// Revokes a token that was not used.
    pub async fn revoke_enrollment_token(&self, id: EnrollmentId) -> Result<(), Failure> {
        self.remove(Key::Core, &format!("{TOKENS}/{id}")).await
    }

    /// The node that an enrollment made, once it did.
    pub async fn enrolled_node(&self, id: EnrollmentId) -> Result<Option<Document<Node>>, Failure> {
        let list: Document<Nodes> = self.get(Key::Core, &format!("{PATH}?enrollment_id={id}")).await?;
        let json = list.json["data"][0].clone();
        Ok(list
            .value
            .data
            .into_iter()
            .next()
            .map(|value| Document { json, value }))
    }

    pub async fn cleanup_commands(&self) -> Result<Document<CleanupCommands>, Failure> {
        self.get(Key::Core, "/core/v1/sandbox/cleanup-commands").await
    }

    /// Whether this Core serves a node installer at all.
    pub async fn serves_installer(&self) -> Result<bool, Failure> {
        let index: Result<Document<Value>, Failure> = self.get(Key::Core, INDEX).await;
        match index {
            Ok(index) => Ok(!index.json["installer"].is_null()),
            // Without a current release.
            Err(Failure::Refused { status: 404, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

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
