//! A release's files on a node (installer.md section 8, node.md section 7): verified before the first missing byte is
//! fetched, fetched only where missing, never changed.
//!
//! A file comes as `.<name>.partial` beside its place and gets its name only when size and SHA-256 are right: under its
//! name it is complete and true, whatever was interrupted or sent. What arrived of it survives a failure, and the next
//! run hashes and continues it; what turned out wrong goes.

use std::{
    fs::File,
    io::{self, Read, Seek},
};

use flate2::read::MultiGzDecoder;
use oac_model::{Digest, SourceCommit};
use oac_records::{Directory, FileMode, Partial, RecordError};
use sha2::{Digest as _, Sha256};

use crate::{
    limits::CHUNK_BYTES,
    manifest::{Artifact, Unpacked},
    progress::{Event, Progress},
    source::{Cause, ReadError, Sink, Source},
};

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error(transparent)]
    File(#[from] RecordError),
    #[error("{0} could not be read")]
    Read(String, #[source] io::Error),
    /// Nothing was fetched.
    #[error("{0} has other bytes than the release; remove it by hand after inspection")]
    Conflict(String),
    #[error("not enough free disk: {needed} bytes are needed and {free} are free; make room")]
    Space { needed: u64, free: u64 },
    #[error("{0} failed its checksum: run the command again")]
    Checksum(String),
    #[error(transparent)]
    Source(#[from] ReadError),
}

/// Verifies every file that is here below `root`, and says which are missing. One conflict refuses all. The installer
/// is never placed.
pub fn missing<'a>(
    root: &Directory,
    artifacts: impl IntoIterator<Item = &'a Artifact>,
    progress: &mut dyn Progress,
) -> Result<Vec<&'a Artifact>, PayloadError> {
    let mut missing = Vec::new();
    for artifact in artifacts {
        let Some(mode) = artifact.role.mode() else {
            continue;
        };
        match digest_of(root, &artifact.key, mode)? {
            None => missing.push(artifact),
            Some(found) if found == (artifact.size_bytes, artifact.sha256) => {
                progress.tell(Event::Present { artifact });
            }
            Some(_) => return Err(PayloadError::Conflict(artifact.key.clone())),
        }
    }
    Ok(missing)
}

/// Fetches `missing` files of the release of `commit` to their places below `root`, after making sure of the room.
pub fn fetch(
    root: &Directory,
    source: &mut (impl Source + ?Sized),
    commit: SourceCommit,
    missing: &[&Artifact],
    progress: &mut dyn Progress,
) -> Result<(), PayloadError> {
    let free = free_bytes(root)?;
    fetch_within(free, root, source, commit, missing, progress)
}

/// As [`fetch`], where so many bytes of the disk are `free`. What is here of an interrupted transfer needs none.
fn fetch_within(
    free: u64,
    root: &Directory,
    source: &mut (impl Source + ?Sized),
    commit: SourceCommit,
    missing: &[&Artifact],
    progress: &mut dyn Progress,
) -> Result<(), PayloadError> {
    let mut places = Vec::with_capacity(missing.len());
    for artifact in missing {
        let Some(mode) = artifact.role.mode() else {
            continue;
        };
        let (parents, name) = split(&artifact.key);
        let mut place = root.again()?;
        for parent in parents {
            place = place.make(parent)?;
        }
        places.push((place, name, mode, *artifact));
    }
    let mut needed = 0;
    for (place, name, mode, artifact) in &places {
        let kept = Partial::resume(place, name, *mode)?.size_bytes();
        needed += artifact.size_bytes.saturating_sub(kept);
    }
    if free < needed {
        return Err(PayloadError::Space { needed, free });
    }
    for (place, name, mode, artifact) in &places {
        fetch_one(place, name, *mode, source, commit, artifact, progress)?;
    }
    Ok(())
}

fn free_bytes(root: &Directory) -> Result<u64, PayloadError> {
    let disk = rustix::fs::statvfs(root.path());
    let disk = disk.map_err(|errno| PayloadError::Read("the disk's free space".to_owned(), errno.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What of a file is here, and its digest so far.
struct Arriving<'a, 'p> {
    directory: &'a Directory,
    name: &'a str,
    mode: FileMode,
    /// Always there between two calls.
    partial: Option<Partial<'a>>,
    digest: Sha256,
    size: u64,
    artifact: &'a Artifact,
    progress: &'p mut dyn Progress,
}

impl Arriving<'_, '_> {
    fn begin_again(&mut self) -> Result<(), RecordError> {
        self.partial = Some(Partial::begin(self.directory, self.name, self.mode)?);
        self.digest = Sha256::new();
        self.size = 0;
        Ok(())
    }
}

impl Sink for Arriving<'_, '_> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        let Some(partial) = &mut self.partial else {
            return Err("the file is not open".into());
        };
        if self.size + bytes.len() as u64 > self.artifact.size_bytes {
            return Err("more bytes than the manifest states".into());
        }
        partial.append(bytes)?;
        self.digest.update(bytes);
        self.size += bytes.len() as u64;
        self.progress.tell(Event::Arrived { total: self.size });
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Cause> {
        self.begin_again()?;
        self.progress.tell(Event::Restarted);
        Ok(())
    }
}

fn fetch_one(
    place: &Directory,
    name: &str,
    mode: FileMode,
    source: &mut (impl Source + ?Sized),
    commit: SourceCommit,
    artifact: &Artifact,
    progress: &mut dyn Progress,
) -> Result<(), PayloadError> {
    let failed = |source| PayloadError::Read(artifact.key.clone(), source);
    let mut partial = Partial::resume(place, name, mode)?;
    let (size, digest) = hash(partial.file()).map_err(failed)?;
    let mut arriving = Arriving {
        directory: place,
        name,
        mode,
        partial: Some(partial),
        digest,
        size,
        artifact,
        progress,
    };
    if arriving.size > artifact.size_bytes {
        arriving.begin_again()?;
    }
    let from = arriving.size;
    arriving.progress.tell(Event::Begun { artifact, from });
    if from < artifact.size_bytes {
        match source.artifact(commit, artifact, from, &mut arriving) {
            Ok(()) => {}
            Err(ReadError::Sink(cause)) if is_disk_full(cause.as_ref()) => {
                let needed = artifact.size_bytes - arriving.size.min(artifact.size_bytes);
                let free = free_bytes(place)?;
                return Err(PayloadError::Space { needed, free });
            }
            Err(error) => return Err(error.into()),
        }
    }
    let found = (
        arriving.size,
        Digest::from_bytes(arriving.digest.finalize().into()),
    );
    let Some(partial) = arriving.partial.take() else {
        return Err(PayloadError::Checksum(name.to_owned()));
    };
    if found != (artifact.size_bytes, artifact.sha256) {
        partial.discard()?;
        return Err(PayloadError::Checksum(artifact.filename.clone()));
    }
    partial.publish()?;
    arriving.progress.tell(Event::Finished);
    Ok(())
}

fn is_disk_full(cause: &(dyn std::error::Error + 'static)) -> bool {
    let Some(RecordError::Io { source, .. }) = cause.downcast_ref() else {
        return false;
    };
    matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Unpacks the image's archive `name` beside itself as `to`, whose size and digest are checked before it has its name.
pub fn unpack(directory: &Directory, name: &str, to: &str, unpacked: Unpacked) -> Result<(), PayloadError> {
    let failed = |source| PayloadError::Read(name.to_owned(), source);
    let Some((archive, _)) = directory.open_file(name, FileMode::Data)? else {
        return Err(failed(io::ErrorKind::NotFound.into()));
    };
    let mut partial = Partial::begin(directory, to, FileMode::Data)?;
    // One byte more than it may have, so that a longer one is seen as such and no further.
    let mut stream = MultiGzDecoder::new(archive).take(unpacked.size_bytes + 1);
    let (mut size, mut digest) = (0, Sha256::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    let whole = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break true,
            Ok(n) => {
                partial.append(&chunk[..n])?;
                digest.update(&chunk[..n]);
                size += n as u64;
            }
            Err(_) => break false,
        }
    };
    let found = (size, Digest::from_bytes(digest.finalize().into()));
    if !whole || found != (unpacked.size_bytes, unpacked.sha256) {
        partial.discard()?;
        return Err(PayloadError::Checksum(name.to_owned()));
    }
    Ok(partial.publish()?)
}

/// The size and digest of a private file below `directory`; `None` when there is none.
pub fn digest_of(
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

/// Of a whole file.
pub(crate) fn hash(file: &mut File) -> io::Result<(u64, Sha256)> {
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
pub fn walk(directory: &Directory, parents: &[&str]) -> Result<Option<Directory>, RecordError> {
    let mut place = directory.again()?;
    for parent in parents {
        match place.enter(parent)? {
            Some(next) => place = next,
            None => return Ok(None),
        }
    }
    Ok(Some(place))
}

/// The directories of a file's destination, and its name.
pub fn split(key: &str) -> (Vec<&str>, &str) {
    let mut parents: Vec<&str> = key.split('/').collect();
    let name = parents.pop().unwrap_or_default();
    (parents, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        layout::{self, Row},
        progress::Silent,
    };

    /// Gives what is asked for.
    struct Whole(Vec<u8>);

    impl Source for Whole {
        fn metadata(&mut self, commit: SourceCommit) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
            Err(ReadError::NoRelease(commit))
        }

        fn artifact(
            &mut self,
            _: SourceCommit,
            _: &Artifact,
            from: u64,
            sink: &mut dyn Sink,
        ) -> Result<(), ReadError> {
            let from = usize::try_from(from).unwrap();
            sink.append(&self.0[from..]).map_err(ReadError::Sink)
        }
    }

    #[test]
    fn room_is_asked_for_what_has_not_arrived_yet() {
        let bytes = vec![7; 1000];
        let artifact = |row: &Row, commit| Artifact {
            key: row.key.to_owned(),
            filename: row.filename(commit),
            role: row.role,
            provider: row.provider,
            size_bytes: 1000,
            sha256: Digest::of(&bytes),
            unpacked: None,
        };
        let commit: SourceCommit = "a".repeat(40).parse().unwrap();
        let files = [&layout::NODE, &layout::SECCOMP].map(|row| artifact(row, commit));
        let missing: Vec<&Artifact> = files.iter().collect();
        let temp = tempfile::tempdir().unwrap();
        let root = Directory::create(&temp.path().join("root")).unwrap();
        let place = root.make("bin").unwrap();
        let mut partial = Partial::begin(&place, "oac-node", FileMode::Program).unwrap();
        partial.append(&bytes[..400]).unwrap();
        drop(partial);
        let mut source = Whole(bytes.clone());
        let mut fetch = |free| fetch_within(free, &root, &mut source, commit, &missing, &mut Silent);
        let refused = fetch(1599);
        assert!(
            matches!(
                refused,
                Err(PayloadError::Space {
                    needed: 1600,
                    free: 1599
                })
            ),
            "{refused:?}"
        );
        fetch(1600).unwrap();
        assert_eq!(
            super::missing(&root, &files, &mut Silent).unwrap(),
            Vec::<&Artifact>::new()
        );
    }
}
