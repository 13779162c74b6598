//! Files stay small enough to be read at one sitting.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Most files are under 300 lines; at 600 think; over this split.
const LIMIT: usize = 1000;
const SHOWN: usize = 5;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut sizes: Vec<(usize, &PathBuf)> = Vec::new();
    for file in files {
        let written =
            |extension: &std::ffi::OsStr| ["rs", "ts", "tsx", "sh"].iter().any(|known| extension == *known);
        if file.extension().is_some_and(written) {
            sizes.push((crate::workspace::read(&root.join(file))?.lines().count(), file));
        }
    }
    sizes.sort_by(|a, b| b.cmp(a));
    let largest: Vec<String> = sizes
        .iter()
        .take(SHOWN)
        .map(|(lines, file)| format!("{} {lines}", file.display()))
        .collect();
    println!("    largest files: {}", largest.join(", "));
    let over = sizes.iter().take_while(|(lines, _)| *lines > LIMIT);
    Ok(over
        .map(|(lines, file)| format!("{} has {lines} lines: split it below {LIMIT}", file.display()))
        .collect())
}
