//! A release directory that somebody else wrote: opened without following links, believed in nothing.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, FileType, Mode, OFlags, Stat},
    io::Errno,
};

/// Held open, so that its path cannot be exchanged.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn fault(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// It was read and is not what it should be. Any other error says nothing about what is there, and may pass.
pub(crate) fn is_fault(error: &io::Error) -> bool {
    error.raw_os_error().is_none()
}

fn readable(errno: Errno) -> io::Error {
    match errno {
        Errno::LOOP => fault("it is a symbolic link"),
        Errno::NOTDIR => fault("it is not a directory"),
        errno => errno.into(),
    }
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let fd = fs::open(path, OPEN | OFlags::DIRECTORY, Mode::empty()).map_err(readable)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The directory `name` in this one; `None` when there is none.
    pub(crate) fn enter(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Self>> {
        let name = name.as_ref();
        match fs::openat(&self.fd, name, OPEN | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(Self {
                fd,
                path: self.path.join(name),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(readable(errno)),
        }
    }

    /// The regular file `name`; `None` when there is none.
    pub(crate) fn file(&self, name: &str) -> io::Result<Option<(File, Stat)>> {
        // Not held up by a pipe that somebody put there.
        let fd = match fs::openat(&self.fd, name, OPEN | OFlags::NONBLOCK, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(readable(errno)),
        };
        let stat = fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(fault("it is not a regular file"));
        }
        Ok(Some((File::from(fd), stat)))
    }

    /// The bytes of a file of at most `limit` bytes; `None` when there is none.
    pub(crate) fn read(&self, name: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let Some((file, _)) = self.file(name)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(fault("it has more bytes than it may have"));
        }
        Ok(Some(bytes))
    }

    /// Everything in it, sorted. A name may be no text.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}
