//! The lock beside an SQLite database that admits one serving process.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    #[error("cannot lock {}: check the folder's owner and mode", path.display())]
    Open {
        path: PathBuf,
        source: rustix::io::Errno,
    },
    #[error("another Core serves this database ({} is locked): stop it first", path.display())]
    Held { path: PathBuf },
}

/// Held as long as this value lives; the kernel drops it with the process.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock of the database at `database`, without waiting.
    pub fn take(database: &Path) -> Result<Self, FileLockError> {
        let mut path = database.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = open(&path, flags, Mode::from_raw_mode(0o600)).map_err(|source| FileLockError::Open {
            path: path.clone(),
            source,
        })?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: fd.into() }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(FileLockError::Held { path }),
            Err(source) => Err(FileLockError::Open { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_serves_an_sqlite_database() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("core.db");
        let first = FileLock::take(&database).unwrap();
        assert!(matches!(
            FileLock::take(&database),
            Err(FileLockError::Held { .. })
        ));
        drop(first);
        FileLock::take(&database).unwrap();
    }
}
