//! Which files a release may hold, and what each is: the table of releases.md section 2.

use oac_model::{ProviderKind, SourceCommit};
use oac_records::FileMode;
use serde::{Deserialize, Serialize};

/// Where a Core serves what hosts become nodes with, one folder for each commit (releases.md section 6).
pub const RELEASES: &str = "/api/v1/sandbox-node/install/releases";

/// What a file of a release is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Node,
    Installer,
    Runtime,
    Policy,
    Image,
}

impl Role {
    /// The mode of the file on a node; `None` for the installer, which is not placed.
    pub fn mode(self) -> Option<FileMode> {
        match self {
            Self::Node | Self::Runtime => Some(FileMode::Program),
            Self::Policy | Self::Image => Some(FileMode::Data),
            Self::Installer => None,
        }
    }
}

/// Which backend's nodes need a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum For {
    Docker,
    Microsandbox,
    Both,
}

impl For {
    pub fn serves(self, provider: ProviderKind) -> bool {
        match self {
            Self::Docker => provider == ProviderKind::Docker,
            Self::Microsandbox => provider == ProviderKind::Microsandbox,
            Self::Both => matches!(provider, ProviderKind::Docker | ProviderKind::Microsandbox),
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The destination below the payload root, or its beginning.
    pub key: &'static str,
    /// Whether a version follows the key.
    pub versioned: bool,
    /// Follows `oac-<commit>-linux-amd64-` in the file's name.
    pub suffix: &'static str,
    pub role: Role,
    pub provider: For,
}

const fn row(key: &'static str, suffix: &'static str, role: Role, provider: For) -> Row {
    Row {
        key,
        versioned: false,
        suffix,
        role,
        provider,
    }
}

pub const NODE: Row = row("bin/oac-node", "node", Role::Node, For::Both);
pub const INSTALLER: Row = row("bin/oac-node-install", "node-install", Role::Installer, For::Both);
pub const HELPER: Row = row(
    "native/bin/oac-microsandbox-helper",
    "microsandbox-helper",
    Role::Runtime,
    For::Microsandbox,
);
pub const MSB: Row = row("native/microsandbox/msb", "msb", Role::Runtime, For::Microsandbox);
pub const FIRMWARE: Row = Row {
    versioned: true,
    ..row(
        "native/microsandbox/libkrunfw.so.",
        "libkrunfw",
        Role::Runtime,
        For::Microsandbox,
    )
};
pub const SECCOMP: Row = row("runtime/seccomp.json", "seccomp.json", Role::Policy, For::Docker);
pub const IMAGE: Row = row("images/runtime.tar.gz", "runtime.tar.gz", Role::Image, For::Both);

/// Every file that a release of this format may hold.
pub const ROWS: [Row; 7] = [NODE, INSTALLER, HELPER, MSB, FIRMWARE, SECCOMP, IMAGE];

impl Row {
    /// Whether `key` is this file's destination.
    pub fn is(&self, key: &str) -> bool {
        match key.strip_prefix(self.key) {
            Some(version) => version.is_empty() != self.versioned && !version.contains('/'),
            None => false,
        }
    }

    /// The file's name in a release of `commit`.
    pub fn filename(&self, commit: SourceCommit) -> String {
        format!("oac-{commit}-linux-amd64-{}", self.suffix)
    }

    pub(crate) fn of(key: &str) -> Option<&'static Self> {
        const { &ROWS }.iter().find(|row| row.is(key))
    }
}
