//! Private record files (node.md section 3): opened without following links and only when they are what they should
//! be; written beside their name, synced, and renamed, so that a reader finds the old or the new bytes, whole.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};

/// How a record is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Fails with `AlreadyExists` when the name is taken.
    New,
    Replace,
}

const MODE: Mode = Mode::from_raw_mode(0o600);

/// The directory of records. Not a symbolic link.
pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// The bytes of `name`, or `None` where there is no such name. A name that denotes anything but one private regular
/// file of at most `limit` bytes is an error.
pub(crate) fn read(directory: &File, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse("not a regular file");
    }
    if stat.st_mode & 0o7777 != 0o600 {
        return refuse("mode is not 0600");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse("owned by another account");
    }
    if stat.st_nlink != 1 {
        return refuse("has several links");
    }
    let named = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if (named.st_dev, named.st_ino) != (stat.st_dev, stat.st_ino) {
        return refuse("the name denotes another file");
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return refuse("too large");
    }
    Ok(Some(bytes))
}

/// Writes `bytes` durably under `name`. The caller is the only writer of this name.
pub(crate) fn write(directory: &File, name: &str, bytes: &[u8], publish: Publish) -> io::Result<()> {
    let partial = format!(".{name}.partial");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    let fd = match rustix::fs::openat(directory, &partial, flags, MODE) {
        // A leftover of a killed writer; never read.
        Err(rustix::io::Errno::EXIST) => {
            rustix::fs::unlinkat(directory, &partial, AtFlags::empty())?;
            rustix::fs::openat(directory, &partial, flags, MODE)?
        }
        other => other?,
    };
    let mut file = File::from(fd);
    // The umask may have taken bits away.
    rustix::fs::fchmod(&file, MODE)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let flags = match publish {
        Publish::New => RenameFlags::NOREPLACE,
        Publish::Replace => RenameFlags::empty(),
    };
    if let Err(error) = rustix::fs::renameat_with(directory, &partial, directory, name, flags) {
        let _ = rustix::fs::unlinkat(directory, &partial, AtFlags::empty());
        return Err(error.into());
    }
    directory.sync_all()
}

/// Removes `name` durably.
pub(crate) fn remove(directory: &File, name: &str) -> io::Result<()> {
    rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
    directory.sync_all()
}
