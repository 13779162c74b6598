use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags, RenameFlags, Stat},
    io::Errno,
    process::geteuid,
};

use crate::{Partial, step};

/// A record or its directory is not what node.md section 3 demands, or the disk failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{path} {fault}; restore it from the installation or remove it by hand after inspection")]
    Refused { path: PathBuf, fault: &'static str },
    #[error("{path} exists with other content; it is written once and never changed")]
    Differs { path: PathBuf },
    #[error("{path} already exists")]
    Exists { path: PathBuf },
    #[error("{action} {path} failed")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// The two modes of private files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// 0600.
    Data,
    /// 0700.
    Program,
}

impl FileMode {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Data => 0o600,
            Self::Program => 0o700,
        }
    }

    fn wrong(self) -> &'static str {
        match self {
            Self::Data => "is not mode 0600",
            Self::Program => "is not mode 0700",
        }
    }
}

/// A private directory (0700, owner the effective user), held open so that its path cannot be exchanged.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

const PRIVATE_DIRECTORY: u32 = 0o700;
const MODE_BITS: u32 = 0o7777;
/// How often a reader opens a record whose name comes to denote another file meanwhile. Each time a writer made a new
/// file durable, so that a reader falls behind this often only where something replaces the record without end.
const OPENINGS: usize = 100;
const REPLACED: &str = "was replaced while it was opened";
const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Directory {
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let fd = fs::open(path, OPEN_DIRECTORY, Mode::empty())
            .map_err(|errno| io("opening the directory", path, errno))?;
        Self::private(fd, path.to_owned())
    }

    fn private(fd: OwnedFd, path: PathBuf) -> Result<Self, RecordError> {
        let stat = fs::fstat(&fd).map_err(|errno| io("inspecting the directory", &path, errno))?;
        let fault = if stat.st_uid != geteuid().as_raw() {
            Some("belongs to another user")
        } else if stat.st_mode & MODE_BITS != PRIVATE_DIRECTORY {
            Some("is not mode 0700")
        } else {
            None
        };
        match fault {
            Some(fault) => Err(RecordError::Refused { path, fault }),
            None => Ok(Self { fd, path }),
        }
    }

    /// Opens the directory, creating its last component when it is missing.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let made = step!(MakeDirectory {
            path: path.to_owned()
        })
        .and_then(|()| fs::mkdir(path, Mode::from_raw_mode(PRIVATE_DIRECTORY)));
        let present = match made {
            Ok(()) => false,
            Err(Errno::EXIST) => true,
            Err(errno) => return Err(io("creating the directory", path, errno)),
        };
        // Also for one that is present: its maker may have been killed before its name was durable.
        if let Some(parent) = path.parent() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let synced = step!(SyncDirectory {
                path: parent.to_owned()
            })
            .and_then(|()| fs::open(parent, flags, Mode::empty()))
            .and_then(fs::fsync);
            match synced {
                // Whoever may not read the parent did not make this directory either.
                Err(Errno::ACCESS) if present => {}
                synced => synced.map_err(|errno| io("syncing the directory", parent, errno))?,
            }
        }
        Self::open(path)
    }

    /// The private directory `name` in this one; `None` when there is none.
    pub fn enter(&self, name: &str) -> Result<Option<Self>, RecordError> {
        match fs::openat(&self.fd, name, OPEN_DIRECTORY, Mode::empty()) {
            Ok(fd) => Self::private(fd, self.path.join(name)).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(self.refused(name, "is not a directory")),
            Err(errno) => Err(self.io("opening the directory", name, errno)),
        }
    }

    /// The same directory, held open once more.
    pub fn again(&self) -> Result<Self, RecordError> {
        let fd = self.fd.try_clone();
        Ok(Self {
            fd: fd.map_err(|source| self.std_io("opening the directory", ".", source))?,
            path: self.path.clone(),
        })
    }

    /// As [`Self::enter`], creating it when it is missing.
    pub fn make(&self, name: &str) -> Result<Self, RecordError> {
        let made = step!(MakeDirectory {
            path: self.path.join(name)
        })
        .and_then(|()| fs::mkdirat(&self.fd, name, Mode::from_raw_mode(PRIVATE_DIRECTORY)));
        match made {
            Ok(()) | Err(Errno::EXIST) => self.sync()?,
            Err(errno) => return Err(self.io("creating the directory", name, errno)),
        }
        match self.enter(name)? {
            Some(directory) => Ok(directory),
            None => Err(self.refused(name, "vanished after it was made")),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes every earlier rename and unlink in the directory durable; before a decision rests on them.
    pub fn sync(&self) -> Result<(), RecordError> {
        step!(SyncDirectory {
            path: self.path.clone()
        })
        .and_then(|()| fs::fsync(&self.fd))
        .map_err(|errno| io("syncing the directory", &self.path, errno))
    }

    /// The names in the directory that are UTF-8, sorted; no file of ours has another.
    pub fn names(&self) -> Result<Vec<String>, RecordError> {
        let failed = |errno| io("listing the directory", &self.path, errno);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        names.sort();
        Ok(names)
    }

    /// The bytes of a record of at most `limit` bytes; `None` when there is none. The reader need not hold the lock of
    /// the record's writers: a record replaced while it is opened is opened again.
    pub fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>, RecordError> {
        let Some((file, stat)) = self.open_file(name, FileMode::Data)? else {
            return Ok(None);
        };
        if stat.st_size > limit as i64 {
            return Err(self.refused(name, "is larger than its limit"));
        }
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| self.std_io("reading", name, source))?;
        if bytes.len() > limit {
            return Err(self.refused(name, "is larger than its limit"));
        }
        Ok(Some(bytes))
    }

    /// A private file for reading, with what `fstat` says of it; `None` when there is none.
    pub fn open_file(&self, name: &str, mode: FileMode) -> Result<Option<(File, Stat)>, RecordError> {
        for _ in 0..OPENINGS {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let fd = match fs::openat(&self.fd, name, flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP) => return Err(self.refused(name, "is a symbolic link")),
                Err(errno) => return Err(self.io("opening", name, errno)),
            };
            if let Some(stat) = self.inspect(&fd, name, mode)? {
                return Ok(Some((File::from(fd), stat)));
            }
        }
        Err(self.refused(name, REPLACED))
    }

    /// Replaces the record. The caller holds the lock that serializes its writers.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        self.written(name, bytes)?.replace()
    }

    /// Makes a record that is not there; `Exists` where the name is taken, by whatever.
    pub fn create_new(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        self.written(name, bytes)?.publish()
    }

    /// Publishes a write-once record: identical bytes succeed, different ones refuse.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        match self.create_new(name, bytes) {
            Err(RecordError::Exists { .. }) => match self.read(name, bytes.len())? {
                Some(present) if present == bytes => self.sync(),
                _ => Err(RecordError::Differs {
                    path: self.path.join(name),
                }),
            },
            done => done,
        }
    }

    /// Removes a file durably; a missing one is success.
    pub fn remove(&self, name: &str) -> Result<(), RecordError> {
        self.unlink(name)?;
        self.sync()
    }

    /// Removes an empty directory durably; a missing one is success.
    pub fn remove_directory(&self, name: &str) -> Result<(), RecordError> {
        let removed = step!(RemoveDirectory {
            path: self.path.join(name)
        })
        .and_then(|()| fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => self.sync(),
            Err(errno) => Err(self.io("removing the directory", name, errno)),
        }
    }

    pub(crate) fn unlink(&self, name: &str) -> Result<(), RecordError> {
        let removed = step!(Unlink {
            path: self.path.join(name)
        })
        .and_then(|()| fs::unlinkat(&self.fd, name, AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.io("removing", name, errno)),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
        step!(Rename {
            from: self.path.join(from),
            to: self.path.join(to),
            replaces: !flags.contains(RenameFlags::NOREPLACE),
        })?;
        fs::renameat_with(&self.fd, from, &self.fd, to, flags)
    }

    fn written<'a>(&'a self, name: &'a str, bytes: &[u8]) -> Result<Partial<'a>, RecordError> {
        let mut partial = Partial::begin(self, name, FileMode::Data)?;
        partial.append(bytes)?;
        Ok(partial)
    }

    /// The checks after opening: what was opened is private, and the name still denotes it.
    pub(crate) fn verify(&self, fd: &impl AsFd, name: &str) -> Result<Stat, RecordError> {
        self.inspect(fd, name, FileMode::Data)?
            .ok_or_else(|| self.refused(name, REPLACED))
    }

    /// As [`Self::verify`], with `None` for a private file that the name does not denote any more. A file that was
    /// renamed over has no link left, or has one while the name already denotes its successor.
    pub(crate) fn inspect(
        &self,
        fd: &impl AsFd,
        name: &str,
        mode: FileMode,
    ) -> Result<Option<Stat>, RecordError> {
        let stat = fs::fstat(fd).map_err(|errno| self.io("inspecting", name, errno))?;
        let fault = if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile {
            Some("is not a regular file")
        } else if stat.st_uid != geteuid().as_raw() {
            Some("belongs to another user")
        } else if stat.st_mode & MODE_BITS != mode.bits() {
            Some(mode.wrong())
        } else if stat.st_nlink > 1 {
            Some("has more than one link")
        } else {
            None
        };
        if let Some(fault) = fault {
            return Err(self.refused(name, fault));
        }
        let named = match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => named,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.io("inspecting", name, errno)),
        };
        let same = (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino);
        Ok((same && stat.st_nlink == 1).then_some(stat))
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn refused(&self, name: &str, fault: &'static str) -> RecordError {
        RecordError::Refused {
            path: self.path.join(name),
            fault,
        }
    }

    pub(crate) fn io(&self, action: &'static str, name: &str, errno: Errno) -> RecordError {
        io(action, &self.path.join(name), errno)
    }

    pub(crate) fn std_io(&self, action: &'static str, name: &str, source: std::io::Error) -> RecordError {
        RecordError::Io {
            action,
            path: self.path.join(name),
            source,
        }
    }
}

fn io(action: &'static str, path: &Path, errno: Errno) -> RecordError {
    RecordError::Io {
        action,
        path: path.to_owned(),
        source: errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn private() -> (tempfile::TempDir, Directory) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Directory::create(&temp.path().join("state")).unwrap();
        (temp, dir)
    }

    fn listing(dir: &Directory) -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|e| {
                (
                    e.file_name().into_string().unwrap(),
                    std::fs::read(e.path()).unwrap_or_default(),
                )
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_written_record_is_private_and_read_back_whole() {
        let (_temp, dir) = private();
        assert_eq!(dir.read("r.json", 8).unwrap(), None);
        dir.write("r.json", b"one").unwrap();
        std::fs::write(dir.path().join(".r.json.partial"), b"left by a killed writer").unwrap();
        dir.write("r.json", b"two").unwrap();
        assert_eq!(dir.read("r.json", 8).unwrap().unwrap(), b"two");
        assert_eq!(listing(&dir), [("r.json".into(), b"two".to_vec())]);
        let mode = std::fs::metadata(dir.path().join("r.json"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        dir.remove("r.json").unwrap();
        dir.remove("r.json").unwrap();
        assert_eq!(dir.read("r.json", 8).unwrap(), None);
    }

    #[test]
    fn a_write_once_record_accepts_only_its_own_bytes() {
        let (_temp, dir) = private();
        dir.publish("g.json", b"one").unwrap();
        dir.publish("g.json", b"one").unwrap();
        for other in [b"two".as_slice(), b"on", b"one "] {
            let refused = dir.publish("g.json", other);
            assert!(
                matches!(
                    refused,
                    Err(RecordError::Differs { .. } | RecordError::Refused { .. })
                ),
                "{refused:?}"
            );
        }
        assert!(matches!(
            dir.create_new("g.json", b"one"),
            Err(RecordError::Exists { .. })
        ));
        assert_eq!(listing(&dir), [("g.json".into(), b"one".to_vec())]);
    }

    // inv: INV-N3
    #[test]
    fn a_record_that_is_not_a_private_single_regular_file_is_refused_and_nothing_changes() {
        let (temp, dir) = private();
        let at = |name: &str| dir.path().join(name);
        let outside = temp.path().join("outside");
        std::fs::write(&outside, b"x").unwrap();
        std::fs::set_permissions(&outside, PermissionsExt::from_mode(0o600)).unwrap();
        symlink(&outside, at("symlink")).unwrap();
        std::fs::hard_link(&outside, at("hardlink")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::from_raw_mode(0o600)).unwrap();
        std::fs::write(at("open"), b"x").unwrap();
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o644)).unwrap();
        dir.write("large", &[b'x'; 9]).unwrap();
        let mut names = vec!["symlink", "hardlink", "directory", "fifo", "open", "large"];
        if geteuid().is_root() {
            dir.write("foreign", b"x").unwrap();
            std::os::unix::fs::chown(at("foreign"), Some(65532), None).unwrap();
            names.push("foreign");
        }
        let inspect = |name: &str| {
            let meta = std::fs::symlink_metadata(at(name)).unwrap();
            (
                std::os::unix::fs::MetadataExt::ino(&meta),
                meta.permissions().mode(),
                meta.len(),
            )
        };
        let before: Vec<_> = names.iter().map(|name| inspect(name)).collect();
        for name in &names {
            let answer = dir.read(name, 8);
            assert!(
                matches!(answer, Err(RecordError::Refused { .. })),
                "{name}: {answer:?}"
            );
        }
        assert_eq!(names.iter().map(|name| inspect(name)).collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_reader_without_the_lock_finds_the_old_or_the_new_record_while_it_is_replaced() {
        let (_temp, dir) = private();
        dir.write("r.json", &[b'0'; 64]).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0_u64;
                while !done.load(std::sync::atomic::Ordering::Acquire) || reads == 0 {
                    let bytes = dir.read("r.json", 64)?.expect("a record is always there");
                    assert!(bytes.len() == 64 && bytes.iter().all(|byte| *byte == bytes[0]));
                    reads += 1;
                }
                Ok::<u64, RecordError>(reads)
            });
            for turn in 0..3_000_u32 {
                // Replaced as `write` does, without waiting for the disk: the reader meets many more replacements.
                let partial = dir.path().join(".r.json.partial");
                std::fs::write(&partial, [b'0' + (turn % 10) as u8; 64]).unwrap();
                std::fs::set_permissions(&partial, PermissionsExt::from_mode(FileMode::Data.bits())).unwrap();
                std::fs::rename(&partial, dir.path().join("r.json")).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
            reader.join().unwrap().unwrap();
        });
    }

    // inv: INV-N3
    #[test]
    fn a_directory_others_may_enter_is_refused() {
        let (temp, dir) = private();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o750)).unwrap();
        assert!(matches!(
            Directory::open(dir.path()),
            Err(RecordError::Refused { .. })
        ));
        assert!(matches!(
            Directory::create(dir.path()),
            Err(RecordError::Refused { .. })
        ));
        let link = temp.path().join("link");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        symlink(dir.path(), &link).unwrap();
        assert!(Directory::open(&link).is_err());
        assert!(Directory::open(dir.path()).is_ok());
    }
}
