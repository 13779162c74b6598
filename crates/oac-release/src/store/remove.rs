//! `oac-core release remove`: the only deletion.

use std::{collections::BTreeSet, fs::File, path::Path};

use oac_model::SourceCommit;

use super::{
    Shelf, StoreError, disk,
    publish::{claim, hidden_of, partial_of},
};
use crate::folder::Folder;

/// A release that has lost its name and is still whole. Whether a generation selects it is asked twice: before, so that
/// one that is needed is never gone for a moment; and after, since a generation may have been saved in between. Dropped
/// undecided, or killed, it gets its name back from the next one who publishes or removes.
#[must_use = "finish it, or give it its name back"]
pub struct Removal {
    shelf: Folder,
    commit: SourceCommit,
    _lock: File,
}

impl Removal {
    /// Takes the name of the release of `commit` away. `selected` are the commits that kept generations select.
    pub fn begin(
        release_dir: &Path,
        commit: SourceCommit,
        selected: &BTreeSet<SourceCommit>,
    ) -> Result<Self, StoreError> {
        let (shelf, lock) = claim(release_dir)?;
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
        disk::rename(&shelf, &name, &hidden_of(&name), false)?;
        disk::sync(&shelf)?;
        Ok(Self {
            shelf,
            commit,
            _lock: lock,
        })
    }

    /// Deletes it, unless what is `selected` now says that it is needed after all.
    pub fn finish(self, selected: &BTreeSet<SourceCommit>) -> Result<(), StoreError> {
        if selected.contains(&self.commit) {
            let commit = self.commit;
            self.undo()?;
            return Err(StoreError::Selected(commit));
        }
        let (shelf, name) = (&self.shelf, self.commit.to_string());
        let partial = partial_of(&name);
        disk::remove(shelf, &partial)?;
        // From here on it may be gone in part, and never gets its name back.
        disk::rename(shelf, &hidden_of(&name), &partial, false)?;
        disk::sync(shelf)?;
        disk::remove(shelf, &partial)?;
        disk::sync(shelf)
    }

    /// Gives it its name back.
    pub fn undo(self) -> Result<(), StoreError> {
        let name = self.commit.to_string();
        disk::rename(&self.shelf, &hidden_of(&name), &name, false)?;
        disk::sync(&self.shelf)
    }
}
