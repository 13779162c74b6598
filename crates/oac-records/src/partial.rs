use std::{fs::File, io::Write};

use rustix::{
    fs::{self, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::{Directory, FileMode, RecordError, step};

/// A file under way to its name. Dropped before it is published it stays, and is never read under its final name.
#[derive(Debug)]
pub struct Partial<'a> {
    directory: &'a Directory,
    name: &'a str,
    partial: String,
    file: File,
    size_bytes: u64,
}

impl<'a> Partial<'a> {
    /// An empty file; a leftover of a killed writer goes. The caller is the only writer of `name`.
    pub fn begin(directory: &'a Directory, name: &'a str, mode: FileMode) -> Result<Self, RecordError> {
        let partial = partial_of(name);
        directory.unlink(&partial)?;
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC;
        let bits = Mode::from_raw_mode(mode.bits());
        let created = step!(Create {
            path: directory.path().join(&partial),
            mode: mode.bits(),
        });
        let fd = created
            .and_then(|()| fs::openat(directory.fd(), partial.as_str(), flags, bits))
            // The umask may have taken bits away; the mode is exact.
            .and_then(|fd| fs::fchmod(&fd, bits).map(|()| fd))
            .map_err(|errno| directory.io("creating", &partial, errno))?;
        Ok(Self {
            directory,
            name,
            partial,
            file: File::from(fd),
            size_bytes: 0,
        })
    }

    /// The leftover of an interrupted download, to be continued behind its [`Self::size_bytes`]; an empty file where
    /// there is none, or where what is there breaks a file rule.
    pub fn resume(directory: &'a Directory, name: &'a str, mode: FileMode) -> Result<Self, RecordError> {
        let partial = partial_of(name);
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(fd) = fs::openat(directory.fd(), partial.as_str(), flags, Mode::empty()) else {
            return Self::begin(directory, name, mode);
        };
        match directory.inspect(&fd, &partial, mode) {
            Ok(Some(stat)) => Ok(Self {
                directory,
                name,
                partial,
                file: File::from(fd),
                size_bytes: stat.st_size.unsigned_abs(),
            }),
            Ok(None) | Err(RecordError::Refused { .. }) => Self::begin(directory, name, mode),
            Err(error) => Err(error),
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What was written so far, to be hashed; reading moves the file's position, which appending does not heed.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        step!(Append {
            path: self.directory.path().join(&self.partial),
            bytes: bytes.to_vec(),
        })
        .map_err(std::io::Error::from)
        .and_then(|()| self.file.write_all(bytes))
        .map_err(|source| self.directory.std_io("writing", &self.partial, source))?;
        self.size_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Takes the file away, as when its bytes turned out wrong.
    pub fn discard(self) -> Result<(), RecordError> {
        self.directory.unlink(&self.partial)
    }

    /// Makes it the file of its name, durably; `Exists` where the name is taken.
    pub fn publish(self) -> Result<(), RecordError> {
        self.sync()?;
        match self
            .directory
            .rename(&self.partial, self.name, RenameFlags::NOREPLACE)
        {
            Ok(()) => self.directory.sync(),
            Err(Errno::EXIST) => {
                self.directory.remove(&self.partial)?;
                Err(RecordError::Exists {
                    path: self.directory.path().join(self.name),
                })
            }
            Err(errno) => Err(self.directory.io("publishing", self.name, errno)),
        }
    }

    /// As [`Self::publish`], in the place of what has the name.
    pub(crate) fn replace(self) -> Result<(), RecordError> {
        self.sync()?;
        self.directory
            .rename(&self.partial, self.name, RenameFlags::empty())
            .map_err(|errno| self.directory.io("renaming", self.name, errno))?;
        self.directory.sync()
    }

    fn sync(&self) -> Result<(), RecordError> {
        step!(SyncFile {
            path: self.directory.path().join(&self.partial),
        })
        .and_then(|()| fs::fsync(&self.file))
        .map_err(|errno| self.directory.io("syncing", &self.partial, errno))
    }
}

fn partial_of(name: &str) -> String {
    format!(".{name}.partial")
}
