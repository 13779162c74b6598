use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{self, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{Directory, FileMode, RecordError, step};

/// How many may hold a lock beside this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Exclusive,
    Shared,
}

/// An flock on an empty private file, held until every copy of the descriptor is closed. It is never unlocked before,
/// so that a child that inherited a copy goes on holding it. The file itself is never removed.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
    device: u64,
    inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{0} is locked: another process of this node runs; stop it first")]
    Busy(std::path::PathBuf),
    #[error("{0} is missing")]
    Missing(std::path::PathBuf),
    #[error(transparent)]
    Record(#[from] RecordError),
}

const OPEN: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

impl Lock {
    /// Takes the lock without waiting, creating the empty file when it is missing.
    pub fn exclusive(dir: &Directory, name: &str) -> Result<Self, LockError> {
        let created = step!(Create {
            path: dir.path().join(name),
            mode: FileMode::Data.bits(),
        });
        let fd = created
            .and_then(|()| {
                let mode = Mode::from_raw_mode(FileMode::Data.bits());
                fs::openat(dir.fd(), name, OPEN | OFlags::CREATE, mode)
            })
            .map_err(|errno| opening(dir, name, errno))?;
        let lock = Self::hold(dir, name, fd, Hold::Exclusive)?;
        dir.sync()?;
        Ok(lock)
    }

    /// Takes the lock of a file that is there, without waiting and without creating it.
    pub fn existing(dir: &Directory, name: &str, hold: Hold) -> Result<Self, LockError> {
        match fs::openat(dir.fd(), name, OPEN, Mode::empty()) {
            Ok(fd) => Self::hold(dir, name, fd, hold),
            Err(Errno::NOENT) => Err(LockError::Missing(dir.path().join(name))),
            Err(errno) => Err(opening(dir, name, errno).into()),
        }
    }

    /// Creates the file, which is not there, and takes its lock; file and name are durable. `Exists` where the name is
    /// taken.
    pub fn create_new(dir: &Directory, name: &str) -> Result<Self, LockError> {
        let mode = Mode::from_raw_mode(FileMode::Data.bits());
        let created = step!(Create {
            path: dir.path().join(name),
            mode: FileMode::Data.bits(),
        });
        let opened = created
            .and_then(|()| fs::openat(dir.fd(), name, OPEN | OFlags::CREATE | OFlags::EXCL, mode))
            .and_then(|fd| fs::fchmod(&fd, mode).map(|()| fd));
        let fd = match opened {
            Ok(fd) => fd,
            Err(Errno::EXIST) => {
                return Err(RecordError::Exists {
                    path: dir.path().join(name),
                }
                .into());
            }
            Err(errno) => return Err(dir.io("creating", name, errno).into()),
        };
        let lock = Self::hold(dir, name, fd, Hold::Exclusive)?;
        step!(SyncFile {
            path: dir.path().join(name),
        })
        .and_then(|()| fs::fsync(&lock.fd))
        .map_err(|errno| dir.io("syncing", name, errno))?;
        dir.sync()?;
        Ok(lock)
    }

    /// A descriptor that a parent handed over, with the lock it holds. Refused where it is not the file of `name`, and
    /// where no such lock came with it: one that is only taken here would prove nothing of the parent.
    pub fn inherited(dir: &Directory, name: &str, fd: OwnedFd, hold: Hold) -> Result<Self, LockError> {
        if !holds(&fd, hold) {
            return Err(dir.refused(name, "came without its lock").into());
        }
        Self::hold(dir, name, fd, hold)
    }

    fn hold(dir: &Directory, name: &str, fd: OwnedFd, hold: Hold) -> Result<Self, LockError> {
        let operation = match hold {
            Hold::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Hold::Shared => FlockOperation::NonBlockingLockShared,
        };
        match fs::flock(&fd, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LockError::Busy(dir.path().join(name))),
            Err(errno) => return Err(dir.io("locking", name, errno).into()),
        }
        let Stat {
            st_dev,
            st_ino,
            st_size,
            ..
        } = dir.verify(&fd, name)?;
        if st_size != 0 {
            return Err(dir.refused(name, "is a lock and not empty").into());
        }
        Ok(Self {
            fd,
            device: st_dev,
            inode: st_ino,
        })
    }

    /// The device of the locked file.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// The inode of the locked file.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the open file behind `fd` holds an flock of at least this kind: what the kernel lists of exactly this
/// descriptor, other holders of the file apart.
fn holds(fd: &OwnedFd, hold: Hold) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    listed.unwrap_or_default().lines().any(|line| {
        let mut words = line.split_whitespace();
        let is_flock = words.next() == Some("lock:") && words.any(|word| word == "FLOCK");
        let mut kinds = words.filter(|word| ["READ", "WRITE"].contains(word));
        is_flock && kinds.any(|kind| kind == "WRITE" || hold == Hold::Shared)
    })
}

fn opening(dir: &Directory, name: &str, errno: Errno) -> RecordError {
    match errno {
        Errno::LOOP => dir.refused(name, "is a symbolic link"),
        errno => dir.io("opening", name, errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> (tempfile::TempDir, Directory) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Directory::create(&temp.path().join("state")).unwrap();
        (temp, dir)
    }

    #[test]
    fn a_held_lock_refuses_a_second_holder_and_ends_with_the_first() {
        let (_temp, dir) = private();
        let first = Lock::exclusive(&dir, "identity.lock").unwrap();
        assert!(matches!(
            Lock::exclusive(&dir, "identity.lock"),
            Err(LockError::Busy(_))
        ));
        drop(first);
        Lock::exclusive(&dir, "identity.lock").unwrap();
    }

    #[test]
    fn shared_holders_stand_beside_each_other_and_keep_an_exclusive_one_out() {
        let (_temp, dir) = private();
        assert!(matches!(
            Lock::existing(&dir, "1.lease", Hold::Shared),
            Err(LockError::Missing(_))
        ));
        let maker = Lock::create_new(&dir, "1.lease").unwrap();
        assert!(matches!(
            Lock::existing(&dir, "1.lease", Hold::Shared),
            Err(LockError::Busy(_))
        ));
        assert!(Lock::create_new(&dir, "1.lease").is_err());
        drop(maker);
        let first = Lock::existing(&dir, "1.lease", Hold::Shared).unwrap();
        let second = Lock::existing(&dir, "1.lease", Hold::Shared).unwrap();
        assert_eq!((first.device(), first.inode()), (second.device(), second.inode()));
        drop(first);
        let busy = Lock::existing(&dir, "1.lease", Hold::Exclusive);
        assert!(matches!(busy, Err(LockError::Busy(_))), "{busy:?}");
        drop(second);
        Lock::existing(&dir, "1.lease", Hold::Exclusive).unwrap();
    }

    #[test]
    fn a_copy_of_the_descriptor_holds_the_lock_and_another_file_is_refused() {
        let (_temp, dir) = private();
        let lock = Lock::exclusive(&dir, "install.lock").unwrap();
        let copy = lock.as_fd().try_clone_to_owned().unwrap();
        drop(lock);
        assert!(matches!(
            Lock::exclusive(&dir, "install.lock"),
            Err(LockError::Busy(_))
        ));
        let inherited = Lock::inherited(&dir, "install.lock", copy, Hold::Exclusive).unwrap();
        let other = inherited.as_fd().try_clone_to_owned().unwrap();
        dir.write("other.lock", b"").unwrap();
        assert!(matches!(
            Lock::inherited(&dir, "other.lock", other, Hold::Exclusive),
            Err(LockError::Record(RecordError::Refused { .. }))
        ));
    }

    #[test]
    fn a_descriptor_without_its_lock_is_not_taken_for_one_that_has_it_and_takes_none() {
        let (_temp, dir) = private();
        drop(Lock::create_new(&dir, "install.lock").unwrap());
        let open = || fs::openat(dir.fd(), "install.lock", OPEN, Mode::empty()).unwrap();
        let inherited = |fd, hold| Lock::inherited(&dir, "install.lock", fd, hold);
        for hold in [Hold::Exclusive, Hold::Shared] {
            let refused = inherited(open(), hold);
            assert!(
                matches!(refused, Err(LockError::Record(RecordError::Refused { .. }))),
                "{refused:?}"
            );
        }
        let shared = Lock::existing(&dir, "install.lock", Hold::Shared).unwrap();
        assert!(inherited(open(), Hold::Shared).is_err(), "another's");
        let copy = || shared.as_fd().try_clone_to_owned().unwrap();
        assert!(inherited(copy(), Hold::Exclusive).is_err(), "a lesser one");
        drop(inherited(copy(), Hold::Shared).unwrap());
    }
}
