//! `index.json`: what a console offers (releases.md section 6). Pure.

use oac_model::{Digest, ProviderKind, SourceCommit};
use oac_wire::{
    Nullable,
    strict::{self, StrictError},
};
use serde::{Deserialize, Serialize};

/// The current release in short, and which others are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    /// 1.
    pub format: u32,
    pub source_commit: SourceCommit,
    pub manifest_sha256: Digest,
    /// `null` while Core does not hold it.
    pub installer: Nullable<InstallerFile>,
    pub providers: Providers,
    /// Every published release, the current one included.
    pub releases: Vec<SourceCommit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstallerFile {
    pub filename: String,
    pub size: u64,
    pub sha256: Digest,
}

/// Whether each file that a backend's nodes need can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Providers {
    pub docker: bool,
    pub microsandbox: bool,
}

impl Providers {
    /// Whether every file that nodes of `provider` need can be fetched.
    pub fn serve(self, provider: ProviderKind) -> bool {
        match provider {
            ProviderKind::Docker => self.docker,
            ProviderKind::Microsandbox => self.microsandbox,
            ProviderKind::E2b => false,
        }
    }
}

impl Index {
    pub fn parse(bytes: &[u8]) -> Result<Self, StrictError> {
        strict::from_slice(bytes)
    }
}
