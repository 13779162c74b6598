//! Changes of a release directory, each announced before it is made.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    path::PathBuf,
};

use oac_model::Digest;
use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags},
    io::Errno,
};
use sha2::{Digest as _, Sha256};

use super::{LOCK, StoreError};
use crate::{folder::Folder, limits::CHUNK_BYTES};

#[cfg(feature = "steps")]
macro_rules! step {
    ($step:ident $body:tt) => {
        oac_records::steps::announce(oac_records::steps::Step::$step $body)
    };
}
#[cfg(not(feature = "steps"))]
macro_rules! step {
    ($step:ident $body:tt) => {
        Ok::<(), rustix::io::Errno>(())
    };
}

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const FILE: Mode = Mode::from_raw_mode(0o444);

pub(super) fn failed(path: PathBuf) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::File { path, source }
}

fn at(folder: &Folder, name: impl AsRef<OsStr>) -> impl FnOnce(Errno) -> StoreError {
    let path = folder.path().join(name.as_ref());
    move |errno| StoreError::File {
        path,
        source: errno.into(),
    }
}

/// Held until it is dropped. Whoever is killed holds it no longer.
pub(super) fn lock(folder: &Folder) -> Result<File, StoreError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(folder.fd(), LOCK, flags, Mode::from_raw_mode(0o600)).map_err(at(folder, LOCK))?;
    match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(File::from(fd)),
        Err(Errno::WOULDBLOCK) => Err(StoreError::Busy),
        Err(errno) => Err(at(folder, LOCK)(errno)),
    }
}

pub(super) fn make(folder: &Folder, name: &str) -> Result<Folder, StoreError> {
    step!(MakeDirectory {
        path: folder.path().join(name)
    })
    .and_then(|()| fs::mkdirat(folder.fd(), name, DIRECTORY))
    .map_err(at(folder, name))?;
    let made = folder.enter(name).map_err(failed(folder.path().join(name)))?;
    let made = made.ok_or_else(|| at(folder, name)(Errno::NOENT))?;
    // The umask may have taken bits away.
    fs::fchmod(made.fd(), DIRECTORY).map_err(at(folder, name))?;
    Ok(made)
}

/// Makes the names in the directory durable.
pub(super) fn sync(folder: &Folder) -> Result<(), StoreError> {
    step!(SyncDirectory {
        path: folder.path().to_owned()
    })
    .and_then(|()| fs::fsync(folder.fd()))
    .map_err(at(folder, "."))
}

/// A new durable file of what `bytes` gives, and its size and digest.
pub(super) fn copy(folder: &Folder, name: &str, bytes: &mut dyn Read) -> Result<(u64, Digest), StoreError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = || folder.path().join(name);
    let fd = step!(Create {
        path: path(),
        mode: FILE.as_raw_mode()
    })
    .and_then(|()| fs::openat(folder.fd(), name, flags, FILE))
    .and_then(|fd| fs::fchmod(&fd, FILE).map(|()| fd))
    .map_err(at(folder, name))?;
    let mut file = File::from(fd);
    let (mut size, mut digest) = (0, Sha256::new());
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let n = bytes.read(&mut chunk).map_err(failed(path()))?;
        if n == 0 {
            break;
        }
        step!(Append {
            path: path(),
            bytes: Vec::new()
        })
        .map_err(at(folder, name))?;
        file.write_all(&chunk[..n]).map_err(failed(path()))?;
        digest.update(&chunk[..n]);
        size += n as u64;
    }
    step!(SyncFile { path: path() })
        .and_then(|()| fs::fsync(&file))
        .map_err(at(folder, name))?;
    Ok((size, Digest::from_bytes(digest.finalize().into())))
}

/// Gives a file or directory its name, which must not be taken unless it `replaces`.
pub(super) fn rename(folder: &Folder, from: &str, to: &str, replaces: bool) -> Result<(), StoreError> {
    let flags = if replaces {
        RenameFlags::empty()
    } else {
        RenameFlags::NOREPLACE
    };
    step!(Rename {
        from: folder.path().join(from),
        to: folder.path().join(to),
        replaces,
    })
    .and_then(|()| fs::renameat_with(folder.fd(), from, folder.fd(), to, flags))
    .map_err(at(folder, to))
}

/// Removes a file, link or tree; a missing one is success.
pub(super) fn remove(folder: &Folder, name: impl AsRef<OsStr>) -> Result<(), StoreError> {
    let name = name.as_ref();
    let unlinked = step!(Unlink {
        path: folder.path().join(name)
    })
    .and_then(|()| fs::unlinkat(folder.fd(), name, AtFlags::empty()));
    match unlinked {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(at(folder, name)(errno)),
    }
    let inner = folder.enter(name).map_err(failed(folder.path().join(name)))?;
    if let Some(inner) = inner {
        for entry in inner.names().map_err(failed(inner.path().to_owned()))? {
            remove(&inner, &entry)?;
        }
    }
    step!(RemoveDirectory {
        path: folder.path().join(name)
    })
    .and_then(|()| fs::unlinkat(folder.fd(), name, AtFlags::REMOVEDIR))
    .map_err(at(folder, name))
}
