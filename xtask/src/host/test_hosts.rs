//! The root file system that hosts of tests boot from: built by a program of the crate that boots them, kept in the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::process;

const BUILDER: &str = "oac-test-host-root";

/// The root, built if the cache lacks it, which takes about two minutes.
pub(crate) fn ensure_root(programs: &Path) -> Result<PathBuf> {
    let cache = super::cache()?.join("hosts");
    if !cache.exists() {
        println!(
            "    building the root file system of test hosts from Debian packages into {}",
            cache.display()
        );
    }
    let builder = programs.join(BUILDER);
    let mut command = process::as_root(&builder.to_string_lossy())?;
    let text = process::output_of(command.arg(&cache))
        .context("the root file system of test hosts cannot be built")?;
    Ok(PathBuf::from(text.trim()))
}
