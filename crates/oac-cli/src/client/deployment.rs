//! `/core/v1/sandbox/deployment`.

use oac_model::{ImageDigest, SourceCommit};
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
}
