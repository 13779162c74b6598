//! Certificates of a test authority: two, for `core.test`, `localhost`, `127.0.0.1`, `::1` and `fd00::1`, with their keys.

use std::{
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// The authority's own certificate, as a CA file.
pub const AUTHORITY: &str = include_str!("../tls/authority.pem");

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub certificate: &'static str,
    pub key: &'static str,
}

pub const FIRST: Pair = Pair {
    certificate: include_str!("../tls/first.pem"),
    key: include_str!("../tls/first.key.pem"),
};
pub const SECOND: Pair = Pair {
    certificate: include_str!("../tls/second.pem"),
    key: include_str!("../tls/second.key.pem"),
};

/// Files that a Core is given.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// In `folder`, holding `pair`.
    pub fn write(folder: &Path, pair: Pair) -> io::Result<Self> {
        let files = Self {
            certificate: folder.join("core.pem"),
            key: folder.join("core.key.pem"),
        };
        files.replace_certificate(pair.certificate)?;
        files.replace_key(pair.key)?;
        Ok(files)
    }

    pub fn replace_certificate(&self, text: &str) -> io::Result<()> {
        replace(&self.certificate, text, 0o644)
    }

    pub fn replace_key(&self, text: &str) -> io::Result<()> {
        replace(&self.key, text, 0o600)
    }
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(new, path)
}
