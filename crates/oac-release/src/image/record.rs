//! What a built image is called, for whoever loads or selects it.

use std::path::{Path, PathBuf};

use oac_model::{ImageDigest, SourceCommit};
use serde::Serialize;
use serde_json::json;

use super::BuiltImage;

/// One line of JSON that `oac-release-build` prints.
#[derive(Debug, Serialize)]
pub struct ImageRecord {
    pub tag: String,
    pub source_commit: SourceCommit,
    pub image_id: ImageDigest,
    pub image_manifest_digest: ImageDigest,
    pub archive: PathBuf,
    pub manifest: PathBuf,
}

/// Writes the part of a release manifest that a deployment selection follows from: commit, image identities and the
/// image artifact (releases.md section 2). A release holds more artifacts; this is a working tree's.
pub fn write_manifest(built: &BuiltImage, commit: SourceCommit, out: &Path) -> std::io::Result<PathBuf> {
    let filename = built
        .archive
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let manifest = json!({
        "format": 1,
        "platform": "linux/amd64",
        "source_commit": commit,
        "images": { "runtime": {
            "config_digest": built.config_digest,
            "manifest_digest": built.manifest_digest,
        } },
        "artifacts": { "images/runtime.tar.gz": {
            "filename": filename,
            "role": "image",
            "provider": "both",
            "size": built.size_bytes,
            "sha256": built.sha256,
            "unpacked_size": built.unpacked_size_bytes,
            "unpacked_sha256": built.unpacked_sha256,
        } },
    });
    let path = out.join("manifest.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&manifest)?)?;
    Ok(path)
}
