//! What Core may serve: read from the directory again and again, hashed once.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use oac_model::{Digest, ProviderKind, SourceCommit};
use oac_wire::{Nullable, strict};
use rustix::fs::Stat;
use sha2::Digest as _;

use super::{CURRENT, Current, StoreError, disk};
use crate::{
    folder::{Folder, is_fault},
    index::{Index, InstallerFile, Providers},
    layout::Role,
    limits,
    manifest::Artifact,
    metadata::{ARTIFACTS, MANIFEST, Metadata, SUMS},
    payload,
};

/// Which bytes a name denotes: another file, or a change of this one, has another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, i64),
}

impl FileKey {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// Whether the bytes of a file are the ones of a digest. Both are the key: one file may have names in two releases, of
/// which one is right about it.
pub type Verdicts = HashMap<(FileKey, Digest), bool>;

/// What is known of a file that metadata names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// Not there.
    Missing,
    /// There in its size, not hashed yet.
    Unread(FileKey),
    /// There, and its bytes are right.
    Held(FileKey),
    /// There, and wrong: it counts as missing.
    Wrong,
}

impl Holding {
    /// The file that may be served.
    pub fn key(self) -> Option<FileKey> {
        match self {
            Self::Unread(key) | Self::Held(key) => Some(key),
            Self::Missing | Self::Wrong => None,
        }
    }
}

/// One published release.
#[derive(Debug, Clone)]
pub struct Shelved {
    pub metadata: Arc<Metadata>,
    /// In the order of the manifest's artifacts.
    pub files: Vec<Holding>,
}

/// Something in the directory that is not what it should be, and is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShelfProblem {
    pub path: PathBuf,
    pub fault: String,
}

/// The releases of a directory as they were read.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    directory: PathBuf,
    releases: BTreeMap<SourceCommit, Shelved>,
    current: Option<SourceCommit>,
    pub problems: Vec<ShelfProblem>,
}

impl Shelf {
    /// Reads the directory. `verdicts` are of files hashed before; `before` is what was read before: the metadata of a
    /// release that was served stays what it was, and so does everything that cannot be read now.
    pub fn read(directory: &Path, before: &Self, verdicts: &Verdicts) -> io::Result<Self> {
        let mut shelf = Self {
            directory: directory.to_owned(),
            ..Self::default()
        };
        let folder = Folder::open(directory)?;
        for name in folder.names()? {
            // A name that is no text is none of a release.
            let named = name
                .to_str()
                .and_then(|name| Some((name, name.parse::<SourceCommit>().ok()?)));
            let Some((name, commit)) = named else { continue };
            let known = before.releases.get(&commit);
            match read_release(&folder, name, commit, known, verdicts) {
                Ok(release) => {
                    let artifacts = release.metadata.manifest().artifacts().iter();
                    let wrong = artifacts
                        .zip(&release.files)
                        .filter(|(_, h)| **h == Holding::Wrong);
                    let wrong = wrong.map(|(artifact, _)| ShelfProblem {
                        path: directory.join(name).join(ARTIFACTS).join(&artifact.filename),
                        fault: "has other bytes than the manifest states".to_owned(),
                    });
                    shelf.problems.extend(wrong);
                    shelf.releases.insert(commit, release);
                }
                Err(error) => {
                    let kept = known.filter(|_| !is_fault(&error)).cloned();
                    shelf.releases.extend(kept.map(|release| (commit, release)));
                    shelf.problems.push(ShelfProblem {
                        path: directory.join(name),
                        fault: error.to_string(),
                    });
                }
            }
        }
        let current = read_current(&folder).unwrap_or_else(|error| {
            shelf.problems.push(ShelfProblem {
                path: directory.join(CURRENT),
                fault: error.to_string(),
            });
            before.current.filter(|_| !is_fault(&error))
        });
        shelf.current = current.filter(|commit| shelf.releases.contains_key(commit));
        Ok(shelf)
    }

    pub(super) fn current_of(directory: &Path) -> Result<Option<SourceCommit>, StoreError> {
        let folder = Folder::open(directory).map_err(disk::failed(directory.to_owned()))?;
        read_current(&folder).map_err(disk::failed(directory.join(CURRENT)))
    }

    pub fn current(&self) -> Option<SourceCommit> {
        self.current
    }

    pub fn releases(&self) -> impl Iterator<Item = (SourceCommit, &Shelved)> {
        self.releases.iter().map(|(commit, release)| (*commit, release))
    }

    pub fn release(&self, commit: SourceCommit) -> Option<&Shelved> {
        self.releases.get(&commit)
    }

    /// Opens a file that may be served. `None` when it is no longer the file that was looked at.
    pub fn open(&self, commit: SourceCommit, filename: &str) -> io::Result<Option<(File, &Artifact)>> {
        let Some(release) = self.releases.get(&commit) else {
            return Ok(None);
        };
        let Some((artifact, key)) = release.servable(filename) else {
            return Ok(None);
        };
        let opened = open(&self.directory, commit, &artifact.filename)?;
        let same = opened.filter(|(_, stat)| FileKey::of(stat) == key);
        Ok(same.map(|(file, _)| (file, artifact)))
    }

    /// The files that nobody hashed yet.
    pub fn unread(&self) -> impl Iterator<Item = (SourceCommit, Artifact, FileKey)> {
        self.releases.iter().flat_map(|(commit, release)| {
            let files = release.metadata.manifest().artifacts().iter().zip(&release.files);
            files.filter_map(|(artifact, holding)| match holding {
                Holding::Unread(key) => Some((*commit, artifact.clone(), *key)),
                _ => None,
            })
        })
    }

    /// `index.json`; `None` without a current release. `redirects` says whether what is not held is found elsewhere.
    pub fn index(&self, redirects: bool) -> Option<Index> {
        let release = self.releases.get(&self.current?)?;
        let manifest = release.metadata.manifest();
        let held = |artifact: &Artifact| release.servable(&artifact.filename).is_some();
        let complete = |provider: ProviderKind| {
            let mut needed = manifest
                .artifacts()
                .iter()
                .filter(|a| a.provider.serves(provider));
            manifest.runtime_files(provider).is_some()
                && needed.all(|a| held(a) || (redirects && a.role != Role::Installer))
        };
        let mut installers = manifest.artifacts().iter().filter(|a| a.role == Role::Installer);
        let installer = installers.next().filter(|a| held(a)).map(|a| InstallerFile {
            filename: a.filename.clone(),
            size: a.size_bytes,
            sha256: a.sha256,
        });
        Some(Index {
            format: 1,
            source_commit: manifest.source_commit(),
            manifest_sha256: release.metadata.manifest_sha256(),
            installer: Nullable(installer),
            providers: Providers {
                docker: complete(ProviderKind::Docker),
                microsandbox: complete(ProviderKind::Microsandbox),
            },
            releases: self.releases.keys().copied().collect(),
        })
    }
}

impl Shelved {
    /// Its bytes were hashed and are what the manifest states.
    pub fn is_held(&self, filename: &str) -> bool {
        let mut files = self.metadata.manifest().artifacts().iter().zip(&self.files);
        files.any(|(artifact, holding)| artifact.filename == filename && matches!(holding, Holding::Held(_)))
    }

    fn servable(&self, filename: &str) -> Option<(&Artifact, FileKey)> {
        let files = self.metadata.manifest().artifacts().iter().zip(&self.files);
        let (artifact, holding) = files.into_iter().find(|(a, _)| a.filename == filename)?;
        Some((artifact, holding.key()?))
    }
}

/// Hashes a file of a release, and says whether its bytes are right. `None` when it is no longer the file of `key`.
pub fn verify(
    directory: &Path,
    commit: SourceCommit,
    artifact: &Artifact,
    key: FileKey,
) -> io::Result<Option<bool>> {
    let Some((mut file, stat)) = open(directory, commit, &artifact.filename)? else {
        return Ok(None);
    };
    if FileKey::of(&stat) != key {
        return Ok(None);
    }
    let (size, digest) = payload::hash(&mut file)?;
    let found = (size, Digest::from_bytes(digest.finalize().into()));
    Ok(Some(found == (artifact.size_bytes, artifact.sha256)))
}

/// A file by names that valid metadata gave.
fn open(directory: &Path, commit: SourceCommit, filename: &str) -> io::Result<Option<(File, Stat)>> {
    let Some(release) = Folder::open(directory)?.enter(commit.to_string())? else {
        return Ok(None);
    };
    match release.enter(ARTIFACTS)? {
        Some(artifacts) => artifacts.file(filename),
        None => Ok(None),
    }
}

fn read_release(
    folder: &Folder,
    name: &str,
    commit: SourceCommit,
    known: Option<&Shelved>,
    verdicts: &Verdicts,
) -> io::Result<Shelved> {
    let gone = || io::Error::other("it is gone");
    let release = folder.enter(name)?.ok_or_else(gone)?;
    let metadata = match known {
        Some(known) => known.metadata.clone(),
        None => {
            let read = |name: &str| {
                let bytes = release.read(name, limits::METADATA_BYTES)?;
                bytes.ok_or_else(|| io::Error::other(format!("{name} is missing")))
            };
            let metadata = Metadata::parse(read(MANIFEST)?, read(SUMS)?);
            let metadata = metadata.map_err(|error| io::Error::other(error.to_string()))?;
            if metadata.source_commit() != commit {
                return Err(io::Error::other("it holds the release of another commit"));
            }
            Arc::new(metadata)
        }
    };
    let folder = release.enter(ARTIFACTS)?;
    let before = |at: usize| known.and_then(|known| known.files.get(at)).copied();
    let holding = |(at, artifact): (usize, &Artifact)| {
        let Some(folder) = &folder else {
            return Holding::Missing;
        };
        match folder.file(&artifact.filename) {
            Ok(None) => Holding::Missing,
            Ok(Some((_, stat))) if stat.st_size.unsigned_abs() == artifact.size_bytes => {
                let key = FileKey::of(&stat);
                match verdicts.get(&(key, artifact.sha256)) {
                    None => Holding::Unread(key),
                    Some(true) => Holding::Held(key),
                    Some(false) => Holding::Wrong,
                }
            }
            // Another size, a link, a directory.
            Ok(Some(_)) => Holding::Wrong,
            Err(error) if is_fault(&error) => Holding::Wrong,
            Err(_) => before(at).unwrap_or(Holding::Missing),
        }
    };
    let artifacts = metadata.manifest().artifacts().iter();
    let files = artifacts.enumerate().map(holding).collect();
    Ok(Shelved { metadata, files })
}

fn read_current(folder: &Folder) -> io::Result<Option<SourceCommit>> {
    let Some(bytes) = folder.read(CURRENT, limits::METADATA_BYTES)? else {
        return Ok(None);
    };
    let current: Current = strict::from_slice(&bytes).map_err(io::Error::other)?;
    if current.format != 1 {
        return Err(io::Error::other("its format is not 1"));
    }
    Ok(Some(current.source_commit))
}
