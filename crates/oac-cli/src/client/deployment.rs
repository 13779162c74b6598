//! `/core/v1/sandbox/deployment`.

use oac_model::{AllocationId, ImageDigest, SourceCommit};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Client, Document, Key};
use crate::Failure;

const PATH: &str = "/core/v1/sandbox/deployment";

/// What of the safe deployment the commands read beside printing it.
#[derive(Debug, Deserialize)]
pub struct Deployment {
    pub generation: u64,
    pub provider: Option<String>,
    pub reset: Option<Reset>,
}

/// A reset that stands.
#[derive(Debug, Deserialize)]
pub struct Reset {
    pub clear: String,
    pub deadline_at: Option<String>,
    pub forced_at: Option<String>,
    pub remaining: Remaining,
}

/// What a reset has not ended yet.
#[derive(Debug, Deserialize)]
pub struct Remaining {
    pub busy: u64,
    pub idle: u64,
    pub cleanup: u64,
    pub discardable: Vec<Discardable>,
    pub on_offline_nodes: u64,
    pub offline_nodes: Vec<OfflineNode>,
}

#[derive(Debug, Deserialize)]
pub struct Discardable {
    pub allocation_id: AllocationId,
}

#[derive(Debug, Deserialize)]
pub struct OfflineNode {
    pub name: String,
    pub resources: u64,
}

/// How a reset treats work that still runs.
#[derive(Debug, Clone, Copy)]
pub enum Clear {
    /// It may finish until a deadline; Core has a default.
    Auto {
        deadline_seconds: Option<u32>,
    },
    Force,
}

/// A Docker selection.
#[derive(Debug)]
pub struct Selection {
    pub cpus: u32,
    pub memory_mib: u64,
    pub source_commit: SourceCommit,
    pub image_id: ImageDigest,
    pub image_manifest_digest: ImageDigest,
}

impl Client {
    pub async fn deployment(&self) -> Result<Document<Deployment>, Failure> {
        self.get(Key::Core, PATH).await
    }

    /// Saves a selection in place of `present`, and of nothing that came after it.
    pub async fn save_deployment(
        &self,
        present: &Deployment,
        selection: &Selection,
    ) -> Result<Document<Value>, Failure> {
        let body = json!({
            "expected_generation": present.generation,
            "provider": "docker",
            "resources": { "cpus": selection.cpus, "memory_mib": selection.memory_mib },
            "runtime": {
                "source_commit": selection.source_commit,
                "artifacts": {
                    "image_id": selection.image_id,
                    "image_manifest_digest": selection.image_manifest_digest,
                },
            },
        });
        // Setup is a POST, a change of a present selection a PUT (core.md section 5).
        match present.provider {
            None => self.post(Key::Core, PATH, &body).await,
            Some(_) => self.put(Key::Core, PATH, &body).await,
        }
    }

    /// Resets `present`, and nothing that came after it.
    pub async fn reset_deployment(
        &self,
        present: &Deployment,
        clear: Clear,
    ) -> Result<Document<Value>, Failure> {
        let mut body = json!({ "expected_generation": present.generation });
        match clear {
            Clear::Force => body["clear"] = json!("force"),
            Clear::Auto { deadline_seconds } => {
                body["clear"] = json!("auto");
                if let Some(seconds) = deadline_seconds {
                    body["deadline_seconds"] = json!(seconds);
                }
            }
        }
        self.post(Key::Core, &format!("{PATH}/reset"), &body).await
    }

    /// Cancels the reset of `present`.
    pub async fn cancel_reset(&self, present: &Deployment) -> Result<Document<Value>, Failure> {
        let path = format!("{PATH}/reset?expected_generation={}", present.generation);
        self.document(self.request(Method::DELETE, Key::Core, &path)?)
            .await
    }

    /// Saves when idle sandboxes are suspended and for how long they are kept, in seconds.
    pub async fn save_suspension(&self, idle: u32, retention: u32) -> Result<Document<Value>, Failure> {
        let body = json!({ "idle_seconds": idle, "retention_seconds": retention });
        let request = self.request(Method::PATCH, Key::Core, &format!("{PATH}/suspension"))?;
        self.document(request.json(&body)).await
    }
}
