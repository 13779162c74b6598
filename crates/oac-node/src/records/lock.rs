use std::os::fd::OwnedFd;

use rustix::{
    fs::{self, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{Directory, RecordError, dir::PRIVATE_FILE};

/// An exclusive flock held until dropped. The file itself is never removed.
#[derive(Debug)]
pub struct Lock {
    _fd: OwnedFd,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{0} is locked: another process of this node runs; stop it first")]
    Busy(std::path::PathBuf),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Lock {
    /// Takes the lock without waiting, creating the empty file when it is missing.
    pub fn exclusive(dir: &Directory, name: &str) -> Result<Self, LockError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd =
            fs::openat(dir.fd(), name, flags, Mode::from_raw_mode(PRIVATE_FILE)).map_err(
                |errno| match errno {
                    Errno::LOOP => dir.refused(name, "is a symbolic link"),
                    errno => dir.io("opening", name, errno),
                },
            )?;
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LockError::Busy(dir.path().join(name))),
            Err(errno) => return Err(dir.io("locking", name, errno).into()),
        }
        dir.verify(&fd, name)?;
        dir.sync()?;
        Ok(Self { _fd: fd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_refuses_a_second_holder_and_ends_with_the_first() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Directory::create(&temp.path().join("state")).unwrap();
        let first = Lock::exclusive(&dir, "identity.lock").unwrap();
        assert!(matches!(
            Lock::exclusive(&dir, "identity.lock"),
            Err(LockError::Busy(_))
        ));
        drop(first);
        Lock::exclusive(&dir, "identity.lock").unwrap();
    }
}
