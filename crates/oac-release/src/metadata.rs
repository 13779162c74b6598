//! A release's metadata as one thing: `manifest.json` and the `SHA256SUMS` that agree with it (releases.md section 2).
//! Pure.

use std::collections::BTreeMap;

use oac_model::{Digest, SourceCommit};

use crate::{
    limits,
    manifest::{Manifest, ManifestError, is_filename},
};

/// `manifest.json` in a release directory and in URLs.
pub const MANIFEST: &str = "manifest.json";
/// `SHA256SUMS` in a release directory and in URLs.
pub const SUMS: &str = "SHA256SUMS";
/// The folder of the files in a release directory and in URLs.
pub const ARTIFACTS: &str = "artifacts";

/// Both metadata files of a release, valid and agreeing with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    sums_bytes: Vec<u8>,
}

/// Why two files are not the metadata of a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("SHA256SUMS is not lines of a digest, two spaces and a name, sorted by name")]
    Sums,
    #[error("SHA256SUMS has another digest of {0} than is true")]
    Disagrees(String),
    #[error("SHA256SUMS does not list exactly the files of manifest.json and itself")]
    Files,
}

impl Metadata {
    pub fn parse(manifest_bytes: Vec<u8>, sums_bytes: Vec<u8>) -> Result<Self, MetadataError> {
        let sums = parse_sums(&sums_bytes).ok_or(MetadataError::Sums)?;
        // The line first: what the sums do not vouch for is not read.
        if sums.get(MANIFEST) != Some(&Digest::of(&manifest_bytes)) {
            return Err(MetadataError::Disagrees(MANIFEST.to_owned()));
        }
        let manifest = Manifest::parse(&manifest_bytes)?;
        if sums.len() != manifest.artifacts().len() + 1 {
            return Err(MetadataError::Files);
        }
        for artifact in manifest.artifacts() {
            match sums.get(artifact.filename.as_str()) {
                Some(digest) if *digest == artifact.sha256 => {}
                Some(_) => return Err(MetadataError::Disagrees(artifact.filename.clone())),
                None => return Err(MetadataError::Files),
            }
        }
        Ok(Self {
            manifest,
            manifest_bytes,
            sums_bytes,
        })
    }

    /// The metadata of a manifest that was made here.
    pub fn of(manifest: Manifest) -> Self {
        let manifest_bytes = manifest.encode();
        let digest = Digest::of(&manifest_bytes);
        let files = manifest.artifacts().iter();
        let mut lines: BTreeMap<&str, Digest> = files.map(|a| (a.filename.as_str(), a.sha256)).collect();
        lines.insert(MANIFEST, digest);
        let sums: String = lines
            .iter()
            .map(|(name, digest)| format!("{digest}  {name}\n"))
            .collect();
        Self {
            manifest,
            manifest_bytes,
            sums_bytes: sums.into_bytes(),
        }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn source_commit(&self) -> SourceCommit {
        self.manifest.source_commit()
    }

    /// `manifest.json`, whole.
    pub fn manifest_bytes(&self) -> &[u8] {
        &self.manifest_bytes
    }

    /// `SHA256SUMS`, whole.
    pub fn sums_bytes(&self) -> &[u8] {
        &self.sums_bytes
    }

    pub fn manifest_sha256(&self) -> Digest {
        Digest::of(&self.manifest_bytes)
    }
}

/// Names and digests; `None` for any text but the one exact form.
fn parse_sums(bytes: &[u8]) -> Option<BTreeMap<&str, Digest>> {
    if bytes.len() > limits::METADATA_BYTES {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut sums = BTreeMap::new();
    let mut before = "";
    for line in text.split('\n') {
        let (digest, name) = line.split_once("  ")?;
        if !is_filename(name) || name <= before {
            return None;
        }
        sums.insert(name, digest.parse().ok()?);
        before = name;
    }
    Some(sums)
}
