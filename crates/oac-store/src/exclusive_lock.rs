//! The file lock beside a SQLite database that admits one serving process (core.md section 3). `core-key` and `release`
//! run beside it and do not take it.

use std::{fs::File, os::unix::fs::OpenOptionsExt as _, path::PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::Database;

/// Held for as long as this process may serve; released by the kernel when it ends, however it ends.
#[derive(Debug)]
pub struct ExclusiveLock {
    _file: File,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ExclusiveLockError {
    #[error("another oac-core serves this database ({path} is locked); stop it first")]
    Held { path: PathBuf },
    #[error("cannot lock {path}; check that its directory exists and is writable")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl ExclusiveLock {
    /// Takes the lock of a SQLite database, without waiting; `None` for PostgreSQL, which needs none.
    ///
    /// # Errors
    /// Another process holds it, or the file cannot be opened.
    pub fn take(database: &Database) -> Result<Option<Self>, ExclusiveLockError> {
        let Database::Sqlite(path) = database else {
            return Ok(None);
        };
        // The file's own name: under another one, a link's, a second process would take another lock.
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let mut path = path.into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        // The file is never removed: a second process could lock a name that a third has replaced.
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(source) => return Err(ExclusiveLockError::File { path, source }),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ExclusiveLockError::Held { path }),
            Err(errno) => Err(ExclusiveLockError::File {
                path,
                source: errno.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_database_is_locked_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("core.db"), folder.path().join("link.db"));
        std::fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let first = ExclusiveLock::take(&Database::Sqlite(path.clone())).unwrap();
        let held = ExclusiveLock::take(&Database::Sqlite(link.clone()));
        assert!(matches!(held, Err(ExclusiveLockError::Held { .. })), "{held:?}");
        drop(first);
        let _second = ExclusiveLock::take(&Database::Sqlite(link)).unwrap();
        let held = ExclusiveLock::take(&Database::Sqlite(path));
        assert!(matches!(held, Err(ExclusiveLockError::Held { .. })), "{held:?}");
    }
}
