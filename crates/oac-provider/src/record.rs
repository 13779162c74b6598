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

/// How often a reader opens a record whose name comes to denote another file meanwhile.
const OPENINGS: usize = 100;

/// The bytes of `name`, or `None` where there is no such name. A name that denotes anything but one private regular
/// file of at most `limit` bytes is an error. A record replaced while it is opened is opened again: a list reads the
/// receipts of allocations whose operations go on.
pub(crate) fn read(directory: &File, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
    for _ in 0..OPENINGS {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return refused("not a regular file");
        }
        if stat.st_mode & 0o7777 != 0o600 {
            return refused("mode is not 0600");
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return refused("owned by another account");
        }
        if stat.st_nlink > 1 {
            return refused("has several links");
        }
        let named = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => named,
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        // A file that was renamed over has no link left, or has one while the name denotes its successor.
        if (named.st_dev, named.st_ino) != (stat.st_dev, stat.st_ino) || stat.st_nlink == 0 {
            continue;
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return refused("too large");
        }
        return Ok(Some(bytes));
    }
    refused("replaced again and again while it was opened")
}

fn refused<T>(what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()))
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

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[test]
    fn a_reader_finds_the_old_or_the_new_record_while_it_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let directory = open_directory(temp.path()).unwrap();
        write(&directory, "r.json", &[b'0'; 64], Publish::New).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut read_once = false;
                while !done.load(Ordering::Acquire) || !read_once {
                    let bytes = read(&directory, "r.json", 64)?.expect("a record is always there");
                    assert!(bytes.len() == 64 && bytes.iter().all(|byte| *byte == bytes[0]));
                    read_once = true;
                }
                Ok::<(), io::Error>(())
            });
            for turn in 0..3_000_u32 {
                // Replaced as `write` does, without waiting for the disk: the reader meets many more replacements.
                let partial = temp.path().join(".r.json.partial");
                std::fs::write(&partial, [b'0' + (turn % 10) as u8; 64]).unwrap();
                std::fs::set_permissions(&partial, PermissionsExt::from_mode(0o600)).unwrap();
                std::fs::rename(&partial, temp.path().join("r.json")).unwrap();
            }
            done.store(true, Ordering::Release);
            reader.join().unwrap().unwrap();
        });
    }
}
