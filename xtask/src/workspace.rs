//! This checkout: where it is, what packages and files it has. Nothing here depends on version control, so an
//! unpacked source archive is checked the same way as a clone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        here.parent().map_or(here.clone(), Path::to_path_buf)
    })
}

/// What `cargo metadata` says of the workspace's own packages.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

impl Metadata {
    /// Whether `package` has the program `name`: what a later part of the work adds.
    pub(crate) fn has_program(&self, package: &str, name: &str) -> bool {
        self.has_target(package, name, "bin")
    }

    pub(crate) fn has_test(&self, package: &str, name: &str) -> bool {
        self.has_target(package, name, "test")
    }

    fn has_target(&self, package: &str, name: &str, kind: &str) -> bool {
        let is = |target: &Target| target.name == name && target.kind.iter().any(|found| found == kind);
        self.packages
            .iter()
            .any(|found| found.name == package && found.targets.iter().any(is))
    }
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for an ordinary dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// Read once per run; no build and no network is involved.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut cargo = crate::process::cargo();
    cargo
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit());
    let text = crate::process::capture(&mut cargo)?;
    serde_json::from_str(&text).context("`cargo metadata` gave something unexpected")
}

/// The workspace's files by path relative to the root, apart from build output, installed packages and version
/// control.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let name = entry.file_name();
            if kind.is_dir() {
                if !["target", "node_modules", ".git", "dist", "embedded"]
                    .iter()
                    .any(|skipped| name == *skipped)
                {
                    folders.push(path);
                }
            } else if kind.is_file() {
                found.push(path.strip_prefix(root)?.to_path_buf());
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// `path` as people read it: relative to the root, with forward slashes.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Packages by name.
pub(crate) fn by_name(metadata: &Metadata) -> BTreeMap<&str, &Package> {
    metadata
        .packages
        .iter()
        .map(|package| (package.name.as_str(), package))
        .collect()
}
