//! `manifest.json`: what a release of one commit holds (releases.md section 2). Pure.
//!
//! A [`Manifest`] exists only by [`Manifest::parse`], so that whoever holds one holds a valid one: publisher, Core and
//! reader refuse the same texts. A key is one of [`crate::layout::ROWS`] and nothing else: keys become paths below a
//! node's root, where its identity and its records are too, and a name that merely looks like a path must not reach
//! them. A further file is a further format.

use std::collections::BTreeMap;

use oac_model::{Artifacts, Digest, ImageDigest, ProviderKind, RuntimeRelease, SourceCommit, Specification};
use oac_wire::strict::{self, StrictError};
use serde::{Deserialize, Serialize};

use crate::{
    layout::{self, For, Role, Row},
    limits,
};

const FORMAT: u32 = 1;
const PLATFORM: &str = "linux/amd64";
/// What microsandbox calls the image; its manifest digest follows.
const MICROSANDBOX_IMAGE: &str = "oac-runtime@";

/// What a release of one commit holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    source_commit: SourceCommit,
    image: Image,
    artifacts: Vec<Artifact>,
}

/// The two names of the Runtime image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// By which Docker's classic image store knows it.
    pub config_digest: ImageDigest,
    /// By which Docker's containerd store and microsandbox know it.
    pub manifest_digest: ImageDigest,
}

/// One file of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its destination below the payload root of a node.
    pub key: String,
    /// Its name in a release directory and in URLs.
    pub filename: String,
    pub role: Role,
    pub provider: For,
    pub size_bytes: u64,
    pub sha256: Digest,
    /// Of an image's archive.
    pub unpacked: Option<Unpacked>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    pub size_bytes: u64,
    pub sha256: Digest,
}

/// Why a manifest is none. Names the place, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("manifest.json has more than 1 MiB")]
    Large,
    #[error("manifest.json: {0}")]
    Json(StrictError),
    #[error("manifest.json: {member} {rule}")]
    Rule { member: String, rule: &'static str },
}

/// A release that is not the one a specification selects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the specification selects no Runtime")]
    NoRuntime,
    #[error("the release lacks a file that {} needs", .0.as_str())]
    Incomplete(ProviderKind),
    #[error("the release differs from the specification in {0}")]
    Differs(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    platform: String,
    source_commit: SourceCommit,
    images: Images,
    artifacts: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Images {
    runtime: Image,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    filename: String,
    role: Role,
    provider: For,
    size: u64,
    sha256: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unpacked_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unpacked_sha256: Option<Digest>,
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > limits::METADATA_BYTES {
            return Err(ManifestError::Large);
        }
        let text: Text = strict::from_slice(bytes).map_err(ManifestError::Json)?;
        Self::checked(text)
    }

    /// The manifest of these files, to be written. The same files give the same bytes, whatever their order.
    pub fn of(
        source_commit: SourceCommit,
        image: Image,
        artifacts: Vec<Artifact>,
    ) -> Result<Self, ManifestError> {
        let count = artifacts.len();
        let entries: BTreeMap<String, Entry> = artifacts.into_iter().map(Artifact::into_entry).collect();
        if entries.len() != count {
            return Err(rule("artifacts", "name one destination twice"));
        }
        Self::checked(Text {
            format: FORMAT,
            platform: PLATFORM.to_owned(),
            source_commit,
            images: Images { runtime: image },
            artifacts: entries,
        })
    }

    /// The text of [`Self::of`]'s manifest: readable, members and keys in order.
    pub fn encode(&self) -> Vec<u8> {
        let text = Text {
            format: FORMAT,
            platform: PLATFORM.to_owned(),
            source_commit: self.source_commit,
            images: Images { runtime: self.image },
            artifacts: self.artifacts.iter().cloned().map(Artifact::into_entry).collect(),
        };
        let mut bytes = serde_json::to_vec_pretty(&text)
            .unwrap_or_else(|error| unreachable!("a manifest is plain data: {error}"));
        bytes.push(b'\n');
        bytes
    }

    fn checked(text: Text) -> Result<Self, ManifestError> {
        if text.format != FORMAT {
            return Err(rule("format", "is not 1: a newer program may read this release"));
        }
        if text.platform != PLATFORM {
            return Err(rule("platform", "is not linux/amd64"));
        }
        if !(1..=limits::ARTIFACTS).contains(&text.artifacts.len()) {
            return Err(rule("artifacts", "has no or too many entries"));
        }
        let commit = text.source_commit.to_string();
        let mut artifacts = Vec::with_capacity(text.artifacts.len());
        for (key, entry) in text.artifacts {
            artifacts.push(Artifact::checked(key, entry, &commit)?);
        }
        let manifest = Self {
            source_commit: text.source_commit,
            image: text.images.runtime,
            artifacts,
        };
        manifest.check_whole()?;
        Ok(manifest)
    }

    fn check_whole(&self) -> Result<(), ManifestError> {
        let mut names: Vec<&str> = self.artifacts.iter().map(|a| a.filename.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(rule("artifacts", "name one file twice"));
        }
        for row in layout::ROWS {
            let count = self.artifacts.iter().filter(|a| row.is(&a.key)).count();
            let needed = matches!(row.role, Role::Node | Role::Installer);
            if count > 1 || (needed && count == 0) {
                return Err(rule(row.key, "must stand once"));
            }
        }
        Ok(())
    }

    pub fn source_commit(&self) -> SourceCommit {
        self.source_commit
    }

    pub fn image(&self) -> Image {
        self.image
    }

    /// Ordered by key.
    pub fn artifacts(&self) -> &[Artifact] {
        &self.artifacts
    }

    /// The file of a row of the table.
    pub fn file(&self, row: &Row) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| row.is(&artifact.key))
    }

    pub fn named(&self, filename: &str) -> Option<&Artifact> {
        self.artifacts
            .iter()
            .find(|artifact| artifact.filename == filename)
    }

    /// What a node of `provider` is made of beside its program: image, native files, policy. `None` where the release
    /// lacks one of them, and for a backend without nodes.
    pub fn runtime_files(&self, provider: ProviderKind) -> Option<Vec<&Artifact>> {
        let rows: &[Row] = match provider {
            ProviderKind::Docker => &[layout::IMAGE, layout::SECCOMP],
            ProviderKind::Microsandbox => &[layout::IMAGE, layout::HELPER, layout::MSB, layout::FIRMWARE],
            ProviderKind::E2b => return None,
        };
        rows.iter().map(|row| self.file(row)).collect()
    }

    /// The `runtime` of a specification that selects this release.
    pub fn runtime(&self, provider: ProviderKind) -> Option<RuntimeRelease> {
        self.runtime_files(provider)?;
        let artifacts = match provider {
            ProviderKind::Docker => Artifacts {
                image_id: Some(self.image.config_digest),
                image_manifest_digest: Some(self.image.manifest_digest),
                ..Artifacts::default()
            },
            ProviderKind::Microsandbox => Artifacts {
                microsandbox_ref: Some(format!("{MICROSANDBOX_IMAGE}{}", self.image.manifest_digest)),
                runtime_sha256: Some(self.file(&layout::MSB)?.sha256),
                firmware_sha256: Some(self.file(&layout::FIRMWARE)?.sha256),
                ..Artifacts::default()
            },
            ProviderKind::E2b => return None,
        };
        Some(RuntimeRelease {
            source_commit: self.source_commit,
            artifacts,
        })
    }

    /// Whether this is the release that `specification` selects.
    pub fn matches(&self, specification: &Specification) -> Result<(), Mismatch> {
        let selected = specification.runtime.as_ref().ok_or(Mismatch::NoRuntime)?;
        let provider = specification.provider;
        if selected.source_commit != self.source_commit {
            return Err(Mismatch::Differs("source_commit"));
        }
        let own = self
            .runtime(provider)
            .ok_or(Mismatch::Incomplete(provider))?
            .artifacts;
        let wanted = &selected.artifacts;
        let members = [
            (own.image_id == wanted.image_id, "image_id"),
            (
                own.image_manifest_digest == wanted.image_manifest_digest,
                "image_manifest_digest",
            ),
            (
                own.microsandbox_ref == wanted.microsandbox_ref,
                "microsandbox_ref",
            ),
            (own.runtime_sha256 == wanted.runtime_sha256, "runtime_sha256"),
            (own.firmware_sha256 == wanted.firmware_sha256, "firmware_sha256"),
        ];
        match members.into_iter().find(|(equal, _)| !equal) {
            Some((_, member)) => Err(Mismatch::Differs(member)),
            None => Ok(()),
        }
    }
}

impl Artifact {
    fn checked(key: String, entry: Entry, commit: &str) -> Result<Self, ManifestError> {
        let Some(row) = Row::of(&key).filter(|_| is_key(&key)) else {
            return Err(rule("artifacts", "names a destination that no release has"));
        };
        let at = |member: &str| format!("{}.{member}", row.key);
        let size = 1..=limits::ARTIFACT_BYTES;
        let unpacked = match (entry.unpacked_size, entry.unpacked_sha256) {
            (Some(size_bytes), Some(sha256)) => Some(Unpacked { size_bytes, sha256 }),
            (None, None) => None,
            _ => return Err(rule(at("unpacked_size"), "and unpacked_sha256 come together")),
        };
        let checks = [
            (is_filename(&entry.filename), "filename", "is no name of a file"),
            (
                entry.filename.contains(commit),
                "filename",
                "does not hold the commit",
            ),
            (entry.role == row.role, "role", "is not this file's"),
            (entry.provider == row.provider, "provider", "is not this file's"),
            (size.contains(&entry.size), "size", "is not from 1 byte to 16 GiB"),
            (
                row.role != Role::Installer || entry.size <= limits::INSTALLER_BYTES,
                "size",
                "is more than the 64 MiB that a node's host takes",
            ),
            (
                unpacked.is_some() == (row.role == Role::Image),
                "unpacked_size",
                "belongs to an image, which needs it",
            ),
            (
                unpacked.is_none_or(|unpacked| size.contains(&unpacked.size_bytes)),
                "unpacked_size",
                "is not from 1 byte to 16 GiB",
            ),
        ];
        if let Some((_, member, broken)) = checks.into_iter().find(|(holds, ..)| !holds) {
            return Err(rule(at(member), broken));
        }
        Ok(Self {
            key,
            filename: entry.filename,
            role: entry.role,
            provider: entry.provider,
            size_bytes: entry.size,
            sha256: entry.sha256,
            unpacked,
        })
    }

    fn into_entry(self) -> (String, Entry) {
        let entry = Entry {
            filename: self.filename,
            role: self.role,
            provider: self.provider,
            size: self.size_bytes,
            sha256: self.sha256,
            unpacked_size: self.unpacked.map(|unpacked| unpacked.size_bytes),
            unpacked_sha256: self.unpacked.map(|unpacked| unpacked.sha256),
        };
        (self.key, entry)
    }
}

fn rule(member: impl Into<String>, rule: &'static str) -> ManifestError {
    ManifestError::Rule {
        member: member.into(),
        rule,
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_key(key: &str) -> bool {
    key.len() <= limits::KEY_BYTES && key.split('/').all(is_name)
}

/// Of an artifact, in a release directory and in URLs.
pub(crate) fn is_filename(name: &str) -> bool {
    name.len() <= limits::FILENAME_BYTES && is_name(name)
}
