//! `oac-core release remove`: the only deletion.

use std::{collections::BTreeSet, path::Path};

use oac_model::SourceCommit;

use super::{Shelf, StoreError, disk};
use crate::folder::Folder;

/// Takes the release of `commit` away: from the moment it has lost its name, whole. `selected` are the commits that kept
/// generations select.
pub fn remove(
    release_dir: &Path,
    commit: SourceCommit,
    selected: &BTreeSet<SourceCommit>,
) -> Result<(), StoreError> {
    let shelf = Folder::open(release_dir).map_err(disk::failed(release_dir.to_owned()))?;
    let _lock = disk::lock(&shelf)?;
    let name = commit.to_string();
    let there = shelf
        .enter(&name)
        .map_err(disk::failed(shelf.path().join(&name)))?;
    if there.is_none() {
        return Err(StoreError::Unknown(commit));
    }
    if Shelf::current_of(release_dir)? == Some(commit) {
        return Err(StoreError::Current(commit));
    }
    if selected.contains(&commit) {
        return Err(StoreError::Selected(commit));
    }
    let partial = format!(".{name}.partial");
    disk::remove(&shelf, &partial)?;
    disk::rename(&shelf, &name, &partial, false)?;
    disk::sync(&shelf)?;
    disk::remove(&shelf, &partial)?;
    disk::sync(&shelf)
}
