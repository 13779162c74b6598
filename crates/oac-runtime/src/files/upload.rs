//! Writing a file: whole or not at all (INV-S16).
//!
//! The bytes go to a temporary sibling with a random name, `.oac-put-<32 hex digits>`; when all have come and their
//! digest is right it is flushed, renamed over the file, and the directory is flushed. Whatever ends earlier removes the
//! sibling. What a killed runtime leaves is removed by the next one: before a sibling is made, a note with its path is
//! made in `uploads/` beside the bootstrap file, under the sibling's id, and it is removed after the sibling is gone.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use bytes::Bytes;
use oac_link::files::{FileRefusal, PutFile, PutFileAnswer};
use oac_model::Digest;
use rustix::{
    fs::{
        Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, accessat, fchmod, fstat, fstatvfs, fsync,
        linkat, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use sha2::{Digest as _, Sha256};

use super::{
    download::check_kept,
    listing::entry,
    path::{Missing, Place, sync, target},
    refusal::refusal,
};
use crate::activity::Active;

const PREFIX: &str = ".oac-put-";

/// A file that is being written.
pub(super) struct Upload {
    place: Place,
    put: PutFile,
    sibling: Sibling,
    hash: Sha256,
    _active: Active,
}

/// The temporary file; it is removed when this is dropped.
struct Sibling {
    file: fs::File,
    dir: OwnedFd,
    name: String,
    note: PathBuf,
}

impl Drop for Sibling {
    fn drop(&mut self) {
        // After the rename it has this name no more.
        let _ = unlinkat(&self.dir, self.name.as_str(), AtFlags::empty());
        let _ = fs::remove_file(&self.note);
    }
}

impl Upload {
    /// Refuses what can be refused before the first byte, then makes the sibling. Missing directories are made.
    pub(super) fn begin(
        uploads: &Path,
        path: &[u8],
        put: PutFile,
        active: Active,
    ) -> Result<Self, FileRefusal> {
        let place = target(path, Missing::Make)?;
        if let Some(stat) = find(&place)? {
            check_replaced(&place, &stat)?;
            if put.only_new {
                return Err(FileRefusal::Exists);
            }
        }
        check_kept(&place.dir)?;
        let room = fstatvfs(&place.dir).map_err(refusal)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < put.length {
            return Err(FileRefusal::NoSpace);
        }
        let sibling = sibling(uploads, path, &place)?;
        Ok(Self {
            place,
            put,
            sibling,
            hash: Sha256::new(),
            _active: active,
        })
    }

    /// Appends; the caller sees to the length.
    pub(super) fn write(&mut self, batch: &[Bytes]) -> Result<(), FileRefusal> {
        for bytes in batch {
            self.hash.update(bytes);
            self.sibling.file.write_all(bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// All bytes have come: makes them the file. Whether it is new, and what is told of it.
    pub(super) fn finish(self) -> Result<(bool, PutFileAnswer), FileRefusal> {
        let Self {
            place,
            put,
            sibling,
            hash,
            _active,
        } = self;
        let sha256 = Digest::from_bytes(hash.finalize().into());
        if put.digest.is_some_and(|digest| digest != sha256) {
            return Err(FileRefusal::DigestMismatch);
        }
        let replaced = find(&place)?;
        if let Some(stat) = &replaced {
            check_replaced(&place, stat)?;
        }
        // Never with the set-user-id bits, as when any other program writes.
        let kept = replaced.map(|stat| stat.st_mode & 0o777);
        if let Some(mode) = put.mode.or(kept) {
            fchmod(&sibling.file, Mode::from_raw_mode(mode)).map_err(refusal)?;
        }
        fsync(&sibling.file).map_err(refusal)?;
        let created = sibling.become_file(&place.name, put.only_new)?;
        sync(&place.dir, Some(&sibling.file))?;
        let stat = fstat(&sibling.file).map_err(refusal)?;
        let file = entry(&place.name, &stat);
        Ok((created, PutFileAnswer { file, sha256 }))
    }
}

impl Sibling {
    /// In one step of the kernel: whoever opens the name finds the old file or the new one. Whether there was none.
    fn become_file(&self, name: &[u8], only_new: bool) -> Result<bool, FileRefusal> {
        let own = self.name.as_str();
        match renameat_with(&self.dir, own, &self.dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            // A file system that cannot; a second name is refused just as surely.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                match linkat(&self.dir, own, &self.dir, name, AtFlags::empty()) {
                    Ok(()) => return Ok(true),
                    Err(Errno::EXIST) => {}
                    // Neither way: only replacing is left, which says nothing about what was there.
                    Err(_) if !only_new => {}
                    Err(error) => return Err(refusal(error)),
                }
            }
            Err(error) => return Err(refusal(error)),
        }
        if only_new {
            return Err(FileRefusal::Exists);
        }
        renameat(&self.dir, own, &self.dir, name)
            .map(|()| false)
            .map_err(refusal)
    }
}

fn find(place: &Place) -> Result<Option<Stat>, FileRefusal> {
    match statat(&place.dir, place.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

/// A file that its user protected from writing is not replaced, although its directory would allow it.
fn check_replaced(place: &Place, stat: &Stat) -> Result<(), FileRefusal> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileRefusal::IsDirectory),
        _ => return Err(FileRefusal::NotRegular),
    }
    let name = place.name.as_slice();
    accessat(&place.dir, name, Access::WRITE_OK, AtFlags::empty()).map_err(refusal)
}

fn sibling(uploads: &Path, path: &[u8], place: &Place) -> Result<Sibling, FileRefusal> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| FileRefusal::Failed)?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let dir = place.dir.as_fd().try_clone_to_owned().map_err(failed)?;
    let note = uploads.join(&id);
    write_note(uploads, &note, path).map_err(failed)?;
    let name = format!("{PREFIX}{id}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    match openat(&dir, name.as_str(), flags, mode) {
        Ok(file) => Ok(Sibling {
            file: file.into(),
            dir,
            name,
            note,
        }),
        Err(error) => {
            let _ = fs::remove_file(note);
            Err(refusal(error))
        }
    }
}

/// A command may have removed the directory: it lies in the home of all of them.
fn write_note(uploads: &Path, note: &Path, path: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(uploads)?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(note)?;
    file.write_all(path)
}

fn failed(error: io::Error) -> FileRefusal {
    Errno::from_io_error(&error).map_or(FileRefusal::Failed, refusal)
}

/// Removes what a killed runtime left. What cannot be removed now stays for the next start.
pub(super) fn remove_leftovers(uploads: &Path) {
    let Ok(notes) = fs::read_dir(uploads) else { return };
    for note in notes.flatten() {
        let Some(id) = note.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if id.len() != 32 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        let Ok(path) = fs::read(note.path()) else { continue };
        let name = format!("{PREFIX}{id}");
        let removed = match target(&path, Missing::Refuse) {
            Ok(place) => unlinkat(&place.dir, name.as_str(), AtFlags::empty()).map_err(refusal),
            Err(refusal) => Err(refusal),
        };
        match removed {
            Ok(()) | Err(FileRefusal::NotFound | FileRefusal::NotDirectory) => {
                let _ = fs::remove_file(note.path());
            }
            Err(refusal) => {
                crate::report(format_args!("an unfinished upload is not removed: {refusal}"));
            }
        }
    }
}
