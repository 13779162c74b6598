//! The files of a release on this host: verified before anything is fetched, fetched only where missing, never changed.

use std::{
    collections::BTreeSet,
    io::{self, Read, Seek},
};

use oac_model::{Digest, SourceCommit};
use oac_records::{Directory, FileMode, Partial, RecordError};
use sha2::{Digest as _, Sha256};

use crate::{
    layout,
    limits::{self, CHUNK_BYTES},
    outside::{Artifact, Cause, Release, Supply, SupplyError},
    store::Store,
};

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error(transparent)]
    File(#[from] RecordError),
    #[error("{0} could not be read")]
    Read(String, #[source] io::Error),
    /// Nothing was fetched.
    #[error("{0} has other bytes than the selected release; remove it by hand after inspection")]
    Conflict(String),
    #[error("{needed} bytes are needed and {free} are free; make room")]
    Space { needed: u64, free: u64 },
    #[error(transparent)]
    Supply(#[from] SupplyError),
    #[error("{0} arrived with another size or digest than its manifest states")]
    Arrived(String),
    #[error("{0} is none of a release's files; it is kept, and everything with it")]
    Foreign(String),
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
            return Err(PayloadError::Conflict(layout::MANIFEST.to_owned()));
        }
        let mut missing = Vec::new();
        for artifact in &release.artifacts {
            let found = match &existing {
                Some(directory) => digest_of(directory, &artifact.key, artifact.mode)?,
                None => None,
            };
            match found {
                None => missing.push(artifact.clone()),
                Some(found) if found == (artifact.size_bytes, artifact.sha256) => {}
                Some(_) => return Err(PayloadError::Conflict(artifact.key.clone())),
            }
        }
        Ok(missing)
    }

    /// Fetches `missing`, after asking for room for all of it.
    pub(crate) fn fetch(
        &self,
        release: &Release,
        missing: &[&Artifact],
        supply: &mut dyn Supply,
    ) -> Result<(), PayloadError> {
        let directory = self.made()?;
        if self.source.is_some() {
            directory.publish(layout::MANIFEST, &release.manifest)?;
        }
        let needed = missing.iter().map(|artifact| artifact.size_bytes).sum();
        let disk = rustix::fs::statvfs(directory.path());
        let disk =
            disk.map_err(|errno| PayloadError::Read("the disk's free space".to_owned(), errno.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < needed {
            return Err(PayloadError::Space { needed, free });
        }
        for artifact in missing {
            let (parents, name) = split(&artifact.key);
            let mut place = self.made()?;
            for parent in parents {
                place = place.make(parent)?;
            }
            fetch_one(&place, name, artifact, supply)?;
        }
        Ok(())
    }

    /// Takes an artifact away, durably; a missing one is success.
    pub(crate) fn remove(&self, key: &str) -> Result<(), RecordError> {
        let Some(directory) = self.existing()? else {
            return Ok(());
        };
        let (parents, name) = split(key);
        match walk(&directory, &parents)? {
            Some(parent) => parent.remove(name),
            None => Ok(()),
        }
    }
}

/// The size and digest of a private file below `directory`; `None` when there is none.
pub(crate) fn digest_of(
    directory: &Directory,
    key: &str,
    mode: FileMode,
) -> Result<Option<(u64, Digest)>, PayloadError> {
    let (parents, name) = split(key);
    let Some(place) = walk(directory, &parents)? else {
        return Ok(None);
    };
    let Some((mut file, _)) = place.open_file(name, mode)? else {
        return Ok(None);
    };
    let (size, hash) = hash(&mut file).map_err(|source| PayloadError::Read(key.to_owned(), source))?;
    Ok(Some((size, Digest::from_bytes(hash.finalize().into()))))
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
        let (parents, name) = split(key.trim_end_matches('/'));
        let Some(place) = walk(directory, &parents)? else {
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
        if let Some(place) = walk(directory, &names)? {
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

fn fetch_one(
    place: &Directory,
    name: &str,
    artifact: &Artifact,
    supply: &mut dyn Supply,
) -> Result<(), PayloadError> {
    let mut partial = Partial::resume(place, name, artifact.mode)?;
    let failed = |source| PayloadError::Read(artifact.key.clone(), source);
    let (mut size, mut digest) = hash(partial.file()).map_err(failed)?;
    if size > artifact.size_bytes {
        partial = Partial::begin(place, name, artifact.mode)?;
        (size, digest) = (0, Sha256::new());
    }
    if size < artifact.size_bytes {
        let from = size;
        let mut sink = |bytes: &[u8]| {
            size += bytes.len() as u64;
            if size > artifact.size_bytes {
                return Err(Cause::from("more bytes than the manifest states"));
            }
            digest.update(bytes);
            partial.append(bytes).map_err(Cause::from)
        };
        supply.fetch(artifact, from, &mut sink)?;
    }
    if (size, Digest::from_bytes(digest.finalize().into())) != (artifact.size_bytes, artifact.sha256) {
        partial.discard()?;
        return Err(PayloadError::Arrived(artifact.key.clone()));
    }
    Ok(partial.publish()?)
}

fn hash(file: &mut std::fs::File) -> io::Result<(u64, Sha256)> {
    file.rewind()?;
    let (mut size, mut digest) = (0, Sha256::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((size, digest)),
            n => {
                size += n as u64;
                digest.update(&chunk[..n]);
            }
        }
    }
}

/// The directory below `directory` at `parents`; `None` where one of them is missing.
fn walk(directory: &Directory, parents: &[&str]) -> Result<Option<Directory>, RecordError> {
    let mut place = directory.again()?;
    for parent in parents {
        match place.enter(parent)? {
            Some(next) => place = next,
            None => return Ok(None),
        }
    }
    Ok(Some(place))
}

fn split(key: &str) -> (Vec<&str>, &str) {
    let mut parents: Vec<&str> = key.split('/').collect();
    let name = parents.pop().unwrap_or_default();
    (parents, name)
}
