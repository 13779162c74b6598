//! The file itself: nobody else's, readable by nobody else, and replaced in one step.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::Failure;

/// Larger files are not configurations.
const FILE_BYTES: u64 = 1024 * 1024;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.to_owned();
    move |source| Failure::File {
        path: path.clone(),
        source,
    }
}

/// The file's text, if there is such a file. What is looked at is what is read, whoever renames meanwhile.
pub(super) fn read(path: &Path) -> Result<Option<String>, Failure> {
    let bad = |reason: &str| Failure::BadConfig {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let opened = OpenOptions::new()
        .read(true)
        // A pipe in its place must not hold the command up.
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(path)(e)),
    };
    let metadata = file.metadata().map_err(failed(path))?;
    if !metadata.is_file() {
        return Err(bad("it is no file"));
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(Failure::ForeignConfig {
            path: path.to_owned(),
            owner: metadata.uid(),
            own,
        });
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::LooseConfig {
            path: path.to_owned(),
        });
    }
    let mut text = String::new();
    match file.take(FILE_BYTES + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 > FILE_BYTES => Err(bad("it is too large")),
        Ok(_) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::InvalidData => Err(bad("it is not UTF-8")),
        Err(e) => Err(failed(path)(e)),
    }
}

/// The right to replace the file, held until dropped.
pub(super) struct Place {
    path: PathBuf,
    folder: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the folder if it is missing and waits for others who edit. A link is followed, so that it stays one.
    pub(super) fn take(path: &Path) -> Result<Self, Failure> {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed(&folder))?;
        let lock = File::open(&folder).map_err(failed(&folder))?;
        flock(lock.as_fd(), FlockOperation::LockExclusive).map_err(|e| failed(&folder)(e.into()))?;
        Ok(Self {
            path,
            folder,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Mode 0600 from its first byte on, durable before it takes the old one's place.
    pub(super) fn replace(&self, text: &str) -> Result<(), Failure> {
        let failed = failed(&self.path);
        let mut file = tempfile::Builder::new()
            .prefix(".config.toml.")
            .tempfile_in(&self.folder)
            .map_err(|source| Failure::beside(&self.path, source))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.as_file().sync_all())
            .map_err(&failed)?;
        file.persist(&self.path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_command_that_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        Place::take(&path).unwrap().replace("url = \"http://h\"").unwrap();
        assert!(read(&path).unwrap().is_some());
        for mode in [0o640, 0o604, 0o620, 0o644, 0o700 | 0o001] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, Failure::LooseConfig { .. }), "{mode:o}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_and_keeps_its_rights() {
        let folder = tempfile::tempdir().unwrap();
        let before = std::fs::metadata(folder.path()).unwrap().permissions();
        assert!(matches!(read(folder.path()), Err(Failure::BadConfig { .. })));
        assert_eq!(std::fs::metadata(folder.path()).unwrap().permissions(), before);
    }

    #[test]
    fn a_link_to_the_file_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("real.toml"), folder.path().join("config.toml"));
        Place::take(&target).unwrap().replace("a").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        Place::take(&link).unwrap().replace("b").unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "b");
    }
}
