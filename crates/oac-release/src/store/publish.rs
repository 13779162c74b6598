//! `oac-core release publish`.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Seek},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use oac_model::{Digest, SourceCommit};
use sha2::Digest as _;

use super::{CURRENT, Current, StoreError, archive, disk};
use crate::{
    folder::Folder,
    layout::Role,
    limits,
    manifest::Artifact,
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
    payload,
};

/// What a publication added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub source_commit: SourceCommit,
    /// Whether the release was not there before.
    pub is_new: bool,
    /// Names of the files that were added.
    pub added: Vec<String>,
    pub is_current: bool,
}

type Fault = fn(PathBuf, &'static str) -> StoreError;

const INVALID: Fault = |path, fault| StoreError::Invalid { path, fault };
const CONFLICT: Fault = |path, fault| StoreError::Conflict { path, fault };

/// Publishes the release in `from` to `release_dir`, and makes it the current one unless `keep_current`. Fails before
/// any change when the input is not valid or conflicts with what is published.
pub fn publish(release_dir: &Path, from: &Path, keep_current: bool) -> Result<Published, StoreError> {
    let (shelf, _lock) = claim(release_dir)?;
    let (input, metadata, offered) = read(from)?;
    let commit = metadata.source_commit();
    let name = commit.to_string();
    let published = shelf
        .enter(&name)
        .map_err(|_| CONFLICT(shelf.path().join(&name), "is not a directory"))?;
    let held = match &published {
        None => BTreeSet::new(),
        Some(published) => {
            let present = read_metadata(published, CONFLICT)?;
            if (present.manifest_bytes(), present.sums_bytes())
                != (metadata.manifest_bytes(), metadata.sums_bytes())
            {
                return Err(CONFLICT(published.path().to_owned(), "has other metadata"));
            }
            verify(published, &metadata, CONFLICT)?
        }
    };
    let installer = metadata
        .manifest()
        .artifacts()
        .iter()
        .find(|a| a.role == Role::Installer);
    if installer
        .is_none_or(|installer| !offered.contains(&installer.filename) && !held.contains(&installer.filename))
    {
        return Err(INVALID(
            input.path().join(ARTIFACTS),
            "the installer is neither here nor published",
        ));
    }
    let adding: Vec<&Artifact> = metadata
        .manifest()
        .artifacts()
        .iter()
        .filter(|a| offered.contains(&a.filename) && !held.contains(&a.filename))
        .collect();

    // Everything is checked: from here on something changes.
    forget_leftovers(&shelf)?;
    let added = match &published {
        None => add_release(&shelf, &input, &metadata, &adding),
        Some(published) => add_files(published, &input, &adding),
    };
    if added.is_err() {
        // What fills the disk must not go on filling it; what cannot be removed now the next publisher removes.
        let _ = forget_leftovers(&shelf);
    }
    added?;
    // Also for what a killed publisher renamed and did not make durable.
    disk::sync(&shelf)?;
    if !keep_current {
        set_current(&shelf, commit)?;
    }
    Ok(Published {
        source_commit: commit,
        is_new: published.is_none(),
        added: adding.iter().map(|artifact| artifact.filename.clone()).collect(),
        is_current: !keep_current,
    })
}

/// Whether the release in `from` could be published, as far as it can be said without what is published already.
pub fn check(from: &Path) -> Result<Metadata, StoreError> {
    read(from).map(|(_, metadata, _)| metadata)
}

/// A release that is offered, with the names of the files that are there, each verified.
fn read(from: &Path) -> Result<(Folder, Metadata, BTreeSet<String>), StoreError> {
    let input = Folder::open(from).map_err(disk::failed(from.to_owned()))?;
    let metadata = read_metadata(&input, INVALID)?;
    let offered = verify(&input, &metadata, INVALID)?;
    check_image(&input, &metadata, &offered)?;
    Ok((input, metadata, offered))
}

fn read_metadata(folder: &Folder, fault: Fault) -> Result<Metadata, StoreError> {
    let read = |name: &str| {
        let path = || folder.path().join(name);
        let bytes = folder
            .read(name, limits::METADATA_BYTES)
            .map_err(disk::failed(path()))?;
        bytes.ok_or_else(|| fault(path(), "is missing"))
    };
    Metadata::parse(read(MANIFEST)?, read(SUMS)?).map_err(|source| StoreError::Metadata {
        path: folder.path().to_owned(),
        source,
    })
}

/// The names of the files of a release that are in `folder`, each verified. Anything that the metadata does not name, a
/// link and a wrong type is a fault. Partial files of a killed publisher are nothing.
fn verify(folder: &Folder, metadata: &Metadata, fault: Fault) -> Result<BTreeSet<String>, StoreError> {
    for name in names(folder)? {
        if ![MANIFEST, SUMS, ARTIFACTS].iter().any(|own| name == *own) {
            return Err(fault(folder.path().join(name), "belongs to no release"));
        }
    }
    let mut found = BTreeSet::new();
    let path = folder.path().join(ARTIFACTS);
    let entered = folder.enter(ARTIFACTS);
    let Some(artifacts) = entered.map_err(|_| fault(path.clone(), "is not a directory"))? else {
        return Ok(found);
    };
    for name in names(&artifacts)? {
        let path = artifacts.path().join(&name);
        if is_leftover(&name) {
            continue;
        }
        let named = name.to_str().and_then(|name| metadata.manifest().named(name));
        let Some(artifact) = named else {
            return Err(fault(path, "is not named by the manifest"));
        };
        let opened = artifacts.file(&artifact.filename);
        let opened = opened.map_err(|_| fault(path.clone(), "is a link or not a regular file"))?;
        let Some((mut file, _)) = opened else { continue };
        let (size, digest) = payload::hash(&mut file).map_err(disk::failed(path.clone()))?;
        if (size, Digest::from_bytes(digest.finalize().into())) != (artifact.size_bytes, artifact.sha256) {
            return Err(fault(path, "has other bytes than the manifest states"));
        }
        found.insert(artifact.filename.clone());
    }
    Ok(found)
}

fn check_image(input: &Folder, metadata: &Metadata, offered: &BTreeSet<String>) -> Result<(), StoreError> {
    let manifest = metadata.manifest();
    for artifact in manifest
        .artifacts()
        .iter()
        .filter(|a| offered.contains(&a.filename))
    {
        let Some(unpacked) = artifact.unpacked else {
            continue;
        };
        let path = input.path().join(ARTIFACTS).join(&artifact.filename);
        let file = open(input, artifact)?;
        archive::check(file, metadata.source_commit(), manifest.image(), unpacked)
            .map_err(|fault| INVALID(path, fault))?;
    }
    Ok(())
}

fn open(release: &Folder, artifact: &Artifact) -> Result<File, StoreError> {
    let name = &artifact.filename;
    let path = release.path().join(ARTIFACTS).join(name);
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let artifacts = release
        .enter(ARTIFACTS)
        .and_then(|found| found.ok_or_else(missing));
    let file = artifacts.and_then(|artifacts| artifacts.file(name)?.ok_or_else(missing));
    let (mut file, _) = file.map_err(disk::failed(path.clone()))?;
    file.rewind().map_err(disk::failed(path))?;
    Ok(file)
}

fn names(folder: &Folder) -> Result<Vec<OsString>, StoreError> {
    folder.names().map_err(disk::failed(folder.path().to_owned()))
}

pub(super) fn partial_of(name: &str) -> String {
    format!(".{name}.partial")
}

fn is_leftover(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".partial")
}

/// What a release is called from the moment a remover took its name until it is certain that nobody needs it.
pub(super) fn hidden_of(name: &str) -> String {
    format!(".{name}.removed")
}

/// The release that has this hidden name.
fn hidden(name: &OsStr) -> Option<SourceCommit> {
    name.to_str()?
        .strip_prefix('.')?
        .strip_suffix(".removed")?
        .parse()
        .ok()
}

/// Opens the directory for the one who changes it: locked, and with every release that a killed remover had not decided
/// about under its name again.
pub(super) fn claim(release_dir: &Path) -> Result<(Folder, File), StoreError> {
    let shelf = Folder::open(release_dir).map_err(disk::failed(release_dir.to_owned()))?;
    let lock = disk::lock(&shelf)?;
    for name in names(&shelf)? {
        if let Some(commit) = hidden(&name) {
            let commit = commit.to_string();
            disk::rename(&shelf, &hidden_of(&commit), &commit, false)?;
        }
    }
    Ok((shelf, lock))
}

fn is_commit(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.parse::<SourceCommit>().is_ok())
}

/// What killed publishers left, in the directory and in each release.
fn forget_leftovers(shelf: &Folder) -> Result<(), StoreError> {
    for name in names(shelf)? {
        if is_leftover(&name) {
            disk::remove(shelf, &name)?;
        } else if is_commit(&name)
            && let Ok(Some(release)) = shelf.enter(&name)
            && let Ok(Some(artifacts)) = release.enter(ARTIFACTS)
        {
            for inner in names(&artifacts)?.iter().filter(|name| is_leftover(name)) {
                disk::remove(&artifacts, inner)?;
            }
        }
    }
    Ok(())
}

/// Copies a file that was verified, and sees that it is still what it was.
fn copy(to: &Folder, name: &str, input: &Folder, artifact: &Artifact) -> Result<(), StoreError> {
    let copied = disk::copy(to, name, &mut open(input, artifact)?)?;
    if copied != (artifact.size_bytes, artifact.sha256) {
        let path = input.path().join(ARTIFACTS).join(&artifact.filename);
        return Err(INVALID(path, "changed while it was published"));
    }
    Ok(())
}

fn add_release(
    shelf: &Folder,
    input: &Folder,
    metadata: &Metadata,
    adding: &[&Artifact],
) -> Result<(), StoreError> {
    let name = metadata.source_commit().to_string();
    let partial = partial_of(&name);
    let release = disk::make(shelf, &partial)?;
    disk::copy(&release, MANIFEST, &mut metadata.manifest_bytes())?;
    disk::copy(&release, SUMS, &mut metadata.sums_bytes())?;
    let artifacts = disk::make(&release, ARTIFACTS)?;
    for artifact in adding {
        copy(&artifacts, &artifact.filename, input, artifact)?;
    }
    disk::sync(&artifacts)?;
    disk::sync(&release)?;
    disk::rename(shelf, &partial, &name, false)
}

fn add_files(release: &Folder, input: &Folder, adding: &[&Artifact]) -> Result<(), StoreError> {
    let path = release.path().join(ARTIFACTS);
    let artifacts = release.enter(ARTIFACTS).map_err(disk::failed(path))?;
    let artifacts = match artifacts {
        Some(artifacts) => artifacts,
        None => disk::make(release, ARTIFACTS)?,
    };
    for artifact in adding {
        copy(&artifacts, &partial_of(&artifact.filename), input, artifact)?;
    }
    for artifact in adding {
        disk::rename(
            &artifacts,
            &partial_of(&artifact.filename),
            &artifact.filename,
            false,
        )?;
    }
    disk::sync(&artifacts)?;
    disk::sync(release)
}

fn set_current(shelf: &Folder, source_commit: SourceCommit) -> Result<(), StoreError> {
    let current = Current {
        format: 1,
        source_commit,
    };
    let bytes =
        serde_json::to_vec(&current).unwrap_or_else(|error| unreachable!("a commit is plain data: {error}"));
    let partial = partial_of(CURRENT);
    disk::remove(shelf, &partial)?;
    disk::copy(shelf, &partial, &mut bytes.as_slice())?;
    disk::rename(shelf, &partial, CURRENT, true)?;
    disk::sync(shelf)
}
