//! What a command needs of this machine: packages, a Docker Engine, a PostgreSQL server, cargo tools. Each is used
//! when present; otherwise it is announced, installed or started, and what was started is stopped again.

pub(crate) mod checkout;
pub(crate) mod docker;
pub(crate) mod lock;
pub(crate) mod packages;
pub(crate) mod postgres;
pub(crate) mod runtime_image;
pub(crate) mod services;
pub(crate) mod test_hosts;
pub(crate) mod tools;
pub(crate) mod vendor;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// Where things live that make a later run faster: tools, image layers, the private engine's data. Outside the
/// checkout; may be deleted at any time between runs.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) if PathBuf::from(&folder).is_absolute() => PathBuf::from(folder),
        _ => {
            PathBuf::from(std::env::var_os("HOME").context("HOME is not set: it says where the cache goes")?)
                .join(".cache")
        }
    };
    let folder = base.join("oac");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}
