//! The files of a release on this host: where they are, and how they go. How they come is [`oac_release::payload`].

use std::collections::BTreeSet;

use oac_model::SourceCommit;
use oac_records::{Directory, FileMode, RecordError};
use oac_release::{
    manifest::Artifact,
    payload,
    progress::Silent,
    source::{ReadError, Source},
};

use crate::{
    layout, limits,
    outside::{Release, SupplyError},
    store::Store,
};

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error(transparent)]
    File(#[from] RecordError),
    #[error(transparent)]
    Release(#[from] payload::PayloadError),
    #[error(transparent)]
    Supply(#[from] SupplyError),
    #[error("{0} is none of a release's files; it is kept, and everything with it")]
    Foreign(String),
}

impl PayloadError {
    /// Whether the release is at fault, or what is here of it, and not Core or this host's disk.
    pub(crate) fn is_of_artifact(&self) -> bool {
        use payload::PayloadError as Release;
        match self {
            Self::Supply(SupplyError::Transfer(_)) => true,
            Self::Supply(SupplyError::Core(_)) | Self::Foreign(_) => false,
            Self::File(error) | Self::Release(Release::File(error)) => {
                matches!(error, RecordError::Refused { .. } | RecordError::Differs { .. })
            }
            // A full disk is no failure of the transfer (P-181).
            Self::Release(Release::Source(error)) => !matches!(error, ReadError::Sink(_)),
            Self::Release(Release::Conflict(_) | Release::Checksum(_)) => true,
            Self::Release(Release::Read(..) | Release::Space { .. }) => false,
        }
    }
}

/// Where the files of a release are: the root itself for the enrolled generation, else `releases/<commit>`.
#[derive(Debug)]
pub(crate) struct Payload<'a> {
    store: &'a Store,
    /// `None` for the enrolled generation's.
    source: Option<SourceCommit>,
}

impl<'a> Payload<'a> {
    pub(crate) fn of(store: &'a Store, enrolled: bool, source: SourceCommit) -> Self {
        Self {
            store,
            source: (!enrolled).then_some(source),
        }
    }

    /// Makes durable what a killed predecessor renamed or removed.
    pub(crate) fn sync(&self) -> Result<(), RecordError> {
        let Some(source) = self.source else {
            return Ok(());
        };
        let Some(releases) = self.store.root().enter(layout::RELEASES)? else {
            return Ok(());
        };
        releases.sync()?;
        match releases.enter(&source.to_string())? {
            Some(directory) => sync_tree(&directory, 0),
            None => Ok(()),
        }
    }

    fn existing(&self) -> Result<Option<Directory>, RecordError> {
        match self.source {
            None => self.store.root().again().map(Some),
            Some(source) => match self.store.root().enter(layout::RELEASES)? {
                Some(releases) => releases.enter(&source.to_string()),
                None => Ok(None),
            },
        }
    }

    fn made(&self) -> Result<Directory, RecordError> {
        match self.source {
            None => self.store.root().again(),
            Some(source) => self
                .store
                .root()
                .make(layout::RELEASES)?
                .make(&source.to_string()),
        }
    }

    /// Verifies every file of the release that is here, and says which are missing. One conflict refuses all.
    pub(crate) fn verify(&self, release: &Release) -> Result<Vec<Artifact>, PayloadError> {
        let existing = self.existing()?;
        if self.source.is_some()
            && let Some(directory) = &existing
            && let Some(bytes) = directory.read(layout::MANIFEST, limits::MANIFEST_BYTES)?
            && bytes != release.manifest
        {
            return Err(payload::PayloadError::Conflict(layout::MANIFEST.to_owned()).into());
        }
        match &existing {
            None => Ok(release.artifacts.clone()),
            Some(directory) => {
                let missing = payload::missing(directory, &release.artifacts, &mut Silent)?;
                Ok(missing.into_iter().cloned().collect())
            }
        }
    }

    /// Fetches `missing`, after asking for room for all of it.
    pub(crate) fn fetch(
        &self,
        release: &Release,
        missing: &[&Artifact],
        source: &mut dyn Source,
    ) -> Result<(), PayloadError> {
        let directory = self.made()?;
        if self.source.is_some() {
            directory.publish(layout::MANIFEST, &release.manifest)?;
        }
        Ok(payload::fetch(
            &directory,
            source,
            release.source_commit,
            missing,
            &mut Silent,
        )?)
    }

    /// Takes an artifact away, durably; a missing one is success.
    pub(crate) fn remove(&self, key: &str) -> Result<(), RecordError> {
        let Some(directory) = self.existing()? else {
            return Ok(());
        };
        let (parents, name) = payload::split(key);
        match payload::walk(&directory, &parents)? {
            Some(parent) => parent.remove(name),
            None => Ok(()),
        }
    }
}

/// Every file and directory of a release, deepest first, none of which is anything but private and ours. Decided before
/// the first is removed, so that a foreign one keeps them all.
pub(crate) fn survey(directory: &Directory) -> Result<Vec<String>, PayloadError> {
    let mut keys = Vec::new();
    survey_into(directory, "", 0, &mut keys)?;
    Ok(keys)
}

fn survey_into(
    directory: &Directory,
    prefix: &str,
    depth: usize,
    keys: &mut Vec<String>,
) -> Result<(), PayloadError> {
    for name in directory.names()? {
        let key = format!("{prefix}{name}");
        if depth > limits::RELEASE_DEPTH {
            return Err(PayloadError::Foreign(key));
        }
        let data = directory.open_file(&name, FileMode::Data);
        if data.is_ok() || directory.open_file(&name, FileMode::Program).is_ok() {
            keys.push(key);
            continue;
        }
        match directory.enter(&name) {
            Ok(Some(inner)) => {
                survey_into(&inner, &format!("{key}/"), depth + 1, keys)?;
                keys.push(format!("{key}/"));
            }
            _ => return Err(PayloadError::Foreign(key)),
        }
    }
    Ok(())
}

/// Removes what [`survey`] found, each parent synced.
pub(crate) fn remove_tree(directory: &Directory, keys: &[String]) -> Result<(), RecordError> {
    for key in keys {
        let (parents, name) = payload::split(key.trim_end_matches('/'));
        let Some(place) = payload::walk(directory, &parents)? else {
            continue;
        };
        if key.ends_with('/') {
            place.remove_directory(name)?;
        } else {
            place.remove(name)?;
        }
    }
    Ok(())
}

/// Makes durable what became of the names of `keys` below `directory`, whether they are there or not: each directory on
/// the way to one, as far as it exists.
pub(crate) fn sync_names<'a>(
    directory: &Directory,
    keys: impl IntoIterator<Item = &'a str>,
) -> Result<(), RecordError> {
    let mut parents = BTreeSet::new();
    for key in keys {
        parents.insert("");
        parents.extend(key.match_indices('/').map(|(end, _)| &key[..end]));
    }
    for parent in parents {
        let names: Vec<&str> = parent.split('/').filter(|name| !name.is_empty()).collect();
        if let Some(place) = payload::walk(directory, &names)? {
            place.sync()?;
        }
    }
    Ok(())
}

fn sync_tree(directory: &Directory, depth: usize) -> Result<(), RecordError> {
    directory.sync()?;
    for name in directory.names()? {
        if depth < limits::RELEASE_DEPTH
            && let Ok(Some(inner)) = directory.enter(&name)
        {
            sync_tree(&inner, depth + 1)?;
        }
    }
    Ok(())
}
