//! Deletion by descriptor: every name is opened in the directory that holds it, no link is followed and no mount point
//! crossed. What is kept keeps its parents.

use std::path::{Path, PathBuf};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, open, openat2, statat, unlinkat},
    io::Errno,
};

/// A directory that could not go.
#[derive(Debug, thiserror::Error)]
#[error("{path} could not be deleted")]
pub(crate) struct DeleteError {
    path: PathBuf,
    #[source]
    source: Errno,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The kernel tells a mount, of the same file system too, before anything in it is looked at.
const OWN: ResolveFlags = ResolveFlags::NO_XDEV.union(ResolveFlags::NO_SYMLINKS);

/// Deletes the directory `path` below `home` and what is in it, but what `keeps` names by its path and what is mounted
/// there. The paths of mounts that were kept, that of a directory above it too. A missing directory is success.
///
/// # Errors
/// Also when a link leads to it: whether what is there is the home's is for whoever made the link to say.
pub(crate) fn delete(
    home: &Path,
    path: &Path,
    keeps: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, DeleteError> {
    let failed = |source| DeleteError {
        path: path.to_owned(),
        source,
    };
    let below = path.strip_prefix(home).map_err(|_| failed(Errno::INVAL))?;
    let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
        return Err(failed(Errno::INVAL));
    };
    let parent = match within(home, parent) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(Errno::XDEV) => return Ok(vec![home.join(parent)]),
        Err(errno) => return Err(failed(errno)),
    };
    match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {}
        Ok(_) => return Err(failed(Errno::NOTDIR)),
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    }
    let mut walk = Walk {
        keeps,
        mounts: Vec::new(),
    };
    walk.entry(&parent, name, path)?;
    rustix::fs::fsync(&parent).map_err(failed)?;
    Ok(walk.mounts)
}

/// Deletes the directories in `path` below `home` in which there is nothing.
pub(crate) fn delete_empty(home: &Path, path: &Path) {
    let Some(directory) = path
        .strip_prefix(home)
        .ok()
        .and_then(|below| within(home, below).ok())
    else {
        return;
    };
    for entry in Dir::read_from(&directory).into_iter().flatten().flatten() {
        // Anything else is refused.
        let _ = unlinkat(&directory, entry.file_name(), AtFlags::REMOVEDIR);
    }
}

/// A directory of `home`'s own: behind no link, and on no mount below it.
fn within(home: &Path, below: &Path) -> Result<OwnedFd, Errno> {
    let home = open(home, DIRECTORY, Mode::empty())?;
    if below.as_os_str().is_empty() {
        return Ok(home);
    }
    openat2(&home, below, DIRECTORY, Mode::empty(), OWN)
}

/// Likewise of everything in the directory `home`, which itself stays.
pub(crate) fn empty(home: &Path) -> Result<Vec<PathBuf>, DeleteError> {
    let failed = |source| DeleteError {
        path: home.to_owned(),
        source,
    };
    let directory = open(home, DIRECTORY, Mode::empty()).map_err(failed)?;
    let mut walk = Walk {
        keeps: &|_| false,
        mounts: Vec::new(),
    };
    walk.contents(&directory, home)?;
    rustix::fs::fsync(&directory).map_err(failed)?;
    Ok(walk.mounts)
}

struct Walk<'a> {
    keeps: &'a dyn Fn(&Path) -> bool,
    mounts: Vec<PathBuf>,
}

impl Walk<'_> {
    /// Whether the entry is gone.
    fn entry(&mut self, parent: &OwnedFd, name: &std::ffi::OsStr, path: &Path) -> Result<bool, DeleteError> {
        let failed = |source| DeleteError {
            path: path.to_owned(),
            source,
        };
        if (self.keeps)(path) {
            return Ok(false);
        }
        let stat = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(true),
            Err(errno) => return Err(failed(errno)),
        };
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return match unlinkat(parent, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                // A file that is mounted over.
                Err(Errno::BUSY) => {
                    self.mounts.push(path.to_owned());
                    Ok(false)
                }
                Err(errno) => Err(failed(errno)),
            };
        }
        let directory = match openat2(parent, name, DIRECTORY, Mode::empty(), OWN) {
            Ok(directory) => directory,
            Err(Errno::XDEV) => {
                self.mounts.push(path.to_owned());
                return Ok(false);
            }
            Err(errno) => return Err(failed(errno)),
        };
        if !self.contents(&directory, path)? {
            return Ok(false);
        }
        match unlinkat(parent.as_fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // Mounted over meanwhile.
            Err(Errno::BUSY) => {
                self.mounts.push(path.to_owned());
                Ok(false)
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether the directory is empty then.
    fn contents(&mut self, directory: &OwnedFd, path: &Path) -> Result<bool, DeleteError> {
        let failed = |source| DeleteError {
            path: path.to_owned(),
            source,
        };
        let mut is_empty = true;
        for entry in Dir::read_from(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
            is_empty &= self.entry(directory, name, &path.join(name))?;
        }
        Ok(is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    // inv: INV-I19
    #[test]
    fn nothing_behind_a_link_goes_and_what_is_kept_keeps_its_parents() {
        let temp = tempfile::tempdir().unwrap();
        let outside = temp.path().join("outside");
        fs::create_dir_all(outside.join("deep")).unwrap();
        fs::write(outside.join("deep/file"), "kept").unwrap();
        let root = temp.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("state/checkpoints")).unwrap();
        fs::write(root.join("state/checkpoints/one"), "1").unwrap();
        fs::write(root.join("state/file"), "1").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("a/link")).unwrap();
        std::os::unix::fs::symlink(outside.join("deep/file"), root.join("a/b/link")).unwrap();
        std::os::unix::fs::symlink("/nonexistent", root.join("dangling")).unwrap();
        let kept = root.join("state/checkpoints");
        assert_eq!(
            delete(temp.path(), &root, &|path| path == kept).unwrap(),
            Vec::<PathBuf>::new()
        );
        assert_eq!(fs::read_to_string(outside.join("deep/file")).unwrap(), "kept");
        assert!(kept.join("one").exists() && !root.join("a").exists() && !root.join("state/file").exists());
        delete(temp.path(), &root, &|_| false).unwrap();
        assert!(!root.exists());
        // Again, and through a link in place of the directory.
        delete(temp.path(), &root, &|_| false).unwrap();
        std::os::unix::fs::symlink(&outside, &root).unwrap();
        assert!(delete(temp.path(), &root, &|_| false).is_err());
        assert!(outside.join("deep/file").exists());
        // And through one above it, which nobody says is the home's.
        fs::remove_file(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::create_dir(outside.join("empty")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        assert!(delete(&root, &root.join("link/deep"), &|_| false).is_err());
        delete_empty(&root, &root.join("link"));
        assert!(outside.join("deep/file").exists() && outside.join("empty").exists());
        delete_empty(temp.path(), &outside);
        assert!(outside.join("deep/file").exists() && !outside.join("empty").exists());
        // A home is emptied of its links, and of nothing behind one; it is not one itself.
        empty(&root).unwrap();
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        let link = temp.path().join("home");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        assert!(empty(&link).is_err());
        assert!(outside.join("deep/file").exists());
    }

    // inv: INV-I19
    #[test]
    fn what_is_mounted_keeps_its_bytes_and_its_parents_where_it_is_the_directory_itself_too() {
        let temp = tempfile::tempdir().unwrap();
        let others = temp.path().join("others");
        fs::create_dir(&others).unwrap();
        fs::write(others.join("file"), "kept").unwrap();
        let root = temp.path().join("root");
        let below = root.join("a/mounted");
        fs::create_dir_all(&below).unwrap();
        let run = |program: &str, arguments: &[&Path]| {
            let mut command = std::process::Command::new(program);
            let ended = command.args(arguments).status().unwrap();
            assert!(ended.success(), "{program} {arguments:?}: run as root");
        };
        for (at, again) in [(&below, 1), (&root, 2)] {
            // Of one file system, which no device number tells.
            run("mount", &[Path::new("--bind"), &others, at]);
            let kept = delete(temp.path(), &root, &|_| false);
            run("umount", &[at]);
            assert_eq!(kept.unwrap(), std::slice::from_ref(at), "{again}");
            assert_eq!(fs::read_to_string(others.join("file")).unwrap(), "kept");
        }
        // Above it.
        let above = root.join("above");
        fs::create_dir(&above).unwrap();
        run("mount", &[Path::new("--bind"), &others, &above]);
        let kept = delete(temp.path(), &above.join("file"), &|_| false);
        run("umount", &[&above]);
        assert_eq!(kept.unwrap(), std::slice::from_ref(&above));
        assert_eq!(fs::read_to_string(others.join("file")).unwrap(), "kept");
        delete(temp.path(), &root, &|_| false).unwrap();
        assert!(!root.exists());
    }
}
