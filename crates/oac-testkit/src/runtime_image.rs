//! The Runtime images of this checkout, as `cargo xtask` built and loaded them into the engine.

use std::path::PathBuf;

use oac_model::{ImageDigest, SourceCommit};
use serde::Deserialize;
use serde_json::{Value, json};

/// The JSON file that `OAC_TEST_RUNTIME_IMAGE` names.
pub const VARIABLE: &str = "OAC_TEST_RUNTIME_IMAGE";

/// Likewise for the full image.
pub const FULL_VARIABLE: &str = "OAC_TEST_FULL_RUNTIME_IMAGE";

/// Identities and files of one built image.
#[derive(Debug, Clone, Deserialize)]
pub struct RuntimeImage {
    /// `oac-runtime:<commit>-minimal-dirty` for the minimal image of a working tree.
    pub tag: String,
    pub source_commit: SourceCommit,
    /// The config digest, by which the classic image store knows the image.
    pub image_id: ImageDigest,
    /// The manifest digest, by which the containerd store knows it.
    pub image_manifest_digest: ImageDigest,
    /// The archive it was loaded from.
    pub archive: PathBuf,
    /// `manifest.json`, as `oac deployment set --runtime` takes it.
    pub manifest: PathBuf,
    /// Whether this run loaded it into the engine, which did not hold it before.
    pub loaded: bool,
}

impl RuntimeImage {
    /// The minimal image that the environment names.
    pub fn of_tests() -> Self {
        Self::named_by(VARIABLE)
    }

    /// The full image that the environment names.
    pub fn full_of_tests() -> Self {
        Self::named_by(FULL_VARIABLE)
    }

    fn named_by(variable: &str) -> Self {
        let Some(path) = std::env::var_os(variable) else {
            panic!("{variable} is not set: run through cargo xtask test");
        };
        let path = PathBuf::from(path);
        let text = std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{} is no image record: {e}", path.display()))
    }

    /// `runtime` of a deployment selection.
    pub fn selection(&self) -> Value {
        json!({
            "source_commit": self.source_commit,
            "artifacts": { "image_id": self.image_id, "image_manifest_digest": self.image_manifest_digest },
        })
    }
}
