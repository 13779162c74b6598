//! Names and places (node.md section 2).

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use oac_model::{Digest, Generation, InstallationId, SourceCommit};

use crate::limits;

pub const INSTALL_LOCK: &str = "install.lock";
pub const INSTALLATION: &str = "installation.json";
pub const REGISTERED: &str = "registered.json";
pub const ENROLLED_CONFIGURATION: &str = "provider.json";
pub const PREPARATION: &str = "preparation.json";
pub const RUNTIME_ARTIFACTS: &str = "runtime-artifacts.json";
pub const PROGRAM: &str = "program.json";
pub const RELEASES: &str = "releases";
pub const MANIFEST: &str = "manifest.json";
pub const CHECKPOINT_STORE: &str = "checkpoint-store.json";
/// In a microsandbox store.
pub const STORE_OWNER: &str = "oac-installation.json";
/// In a microsandbox store: one lock for each allocation.
pub const STORE_LOCKS: &str = "oac-locks";
/// The longest path of a microsandbox store: its sockets' paths are bounded by the kernel.
pub const STORE_PATH_BYTES: usize = 48;

/// The root of one installation on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(PathBuf);

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn state(&self) -> PathBuf {
        self.0.join("state/node")
    }

    pub fn generations(&self) -> PathBuf {
        self.state().join("generations")
    }

    pub fn release(&self, source: SourceCommit) -> PathBuf {
        self.0.join(RELEASES).join(source.to_string())
    }
}

/// The store's name below `.oac/m`: 12 hex digits of SHA-256 of the installation, and of runtime and firmware where a
/// later generation's differ from the first store's.
pub fn store_name(installation: InstallationId, other: Option<(Digest, Digest)>) -> String {
    let text = match other {
        None => installation.to_string(),
        Some((runtime, firmware)) => format!("{installation}:{runtime}:{firmware}"),
    };
    let mut name = Digest::of(text).to_string();
    name.truncate(12);
    name
}

/// The files of one generation in `state/node/generations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Configuration,
    Preparing,
    Collecting,
    Dropped,
    Lease,
    LeaseIdentity,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Configuration,
        Self::Preparing,
        Self::Collecting,
        Self::Dropped,
        Self::Lease,
        Self::LeaseIdentity,
    ];

    fn suffix(self) -> &'static str {
        match self {
            Self::Configuration => "json",
            Self::Preparing => "preparing",
            Self::Collecting => "collecting",
            Self::Dropped => "dropped",
            Self::Lease => "lease",
            Self::LeaseIdentity => "lease-identity",
        }
    }

    pub fn limit_bytes(self) -> usize {
        match self {
            Self::Configuration | Self::Preparing => limits::CONFIGURATION_BYTES,
            Self::Collecting | Self::Dropped | Self::LeaseIdentity => limits::JOURNAL_BYTES,
            Self::Lease => 0,
        }
    }
}

/// A file's name: the generation in decimal, a dot, the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Generation, pub Kind);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1.suffix())
    }
}

/// Text that names no generation file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a generation in decimal without leading zeros, a dot, and the kind of its file")]
pub struct ParseNameError;

impl FromStr for Name {
    type Err = ParseNameError;
    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        let (number, suffix) = text.split_once('.').ok_or(ParseNameError)?;
        let generation = number
            .parse()
            .ok()
            .and_then(|n: i64| Generation::try_from(n).ok())
            .ok_or(ParseNameError)?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.suffix() == suffix);
        let name = Self(generation, kind.ok_or(ParseNameError)?);
        // One generation has one spelling: no leading zeros, no sign.
        (name.to_string() == text).then_some(name).ok_or(ParseNameError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_has_one_spelling_and_a_file_one_name() {
        for kind in Kind::ALL {
            for n in [1, 10, i64::MAX] {
                let name = Name(Generation::try_from(n).unwrap(), kind);
                assert_eq!(name.to_string().parse(), Ok(name));
            }
        }
        let foreign = [
            "01.json",
            "+1.json",
            "0.json",
            "-1.json",
            "1.JSON",
            "1",
            ".json",
            "1.json.partial",
            ".1.json.partial",
            "9223372036854775808.json",
            " 1.json",
            "1.lease-identity ",
        ];
        for text in foreign {
            assert_eq!(text.parse::<Name>(), Err(ParseNameError), "{text}");
        }
    }

    #[test]
    fn stores_of_other_runtimes_have_other_names() {
        let installation = "11111111-1111-4111-8111-111111111111".parse().unwrap();
        let (a, b) = (Digest::of("a"), Digest::of("b"));
        let first = store_name(installation, None);
        assert_eq!(first, Digest::of(installation.to_string()).to_string()[..12]);
        let names = [
            first,
            store_name(installation, Some((a, b))),
            store_name(installation, Some((b, a))),
        ];
        assert!(names.iter().all(|name| name.len() == 12));
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
    }
}
