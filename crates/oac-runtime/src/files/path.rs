//! From a path to an open directory and a name in it.
//!
//! Paths mean what they mean to a command of the sandbox: relative ones begin at `/workspace`, links are followed, `..`
//! is the parent of wherever a link led. The kernel resolves them with this program's own rights; nothing is compared
//! as text. A path is opened piece by piece, since the kernel takes 4095 bytes at a time and a name here may have 4096
//! below the workspace.

use std::{fs::File, os::fd::OwnedFd};

use oac_link::files::FileRefusal;
use rustix::{
    fs::{CWD, Mode, OFlags, fsync, mkdirat, openat, readlinkat, syncfs},
    io::Errno,
};

use super::refusal::refusal;

const WORKSPACE: &[u8] = b"/workspace";
/// What the kernel follows in one path.
const LINKS: usize = 40;
/// Bytes opened at once.
const PIECE: usize = 2048;

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct Place {
    pub dir: OwnedFd,
    /// `.` for the directory itself, else one component.
    pub name: Vec<u8>,
    /// The path ended in a slash, so only a directory is meant.
    pub is_directory: bool,
}

/// Whether missing directories are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Refuse,
    Make,
}

/// The place that `path` names; a link in its last component is not followed.
pub(super) fn place(path: &[u8], missing: Missing) -> Result<Place, FileRefusal> {
    if path.is_empty() || path.len() > oac_link::limits::PATH_BYTES || path.contains(&0) {
        return Err(FileRefusal::BadPath);
    }
    if path.starts_with(b"/") {
        return inside(None, path, missing);
    }
    let workspace = walk(open(None, b"/")?, WORKSPACE, missing)?;
    inside(Some(workspace), path, missing)
}

/// The place where writing to `path` writes: links in the last component are followed, also to what does not exist yet.
pub(super) fn target(path: &[u8], missing: Missing) -> Result<Place, FileRefusal> {
    let mut place = place(path, missing)?;
    for _ in 0..LINKS {
        if place.is_directory || place.name == b"." {
            return Err(FileRefusal::IsDirectory);
        }
        let link = match readlinkat(&place.dir, place.name.as_slice(), Vec::new()) {
            Ok(link) => link.into_bytes(),
            Err(Errno::INVAL | Errno::NOENT) => return Ok(place),
            Err(error) => return Err(refusal(error)),
        };
        place = if link.starts_with(b"/") {
            inside(None, &link, missing)?
        } else {
            inside(Some(place.dir), &link, missing)?
        };
    }
    Err(FileRefusal::LinkLoop)
}

/// `path` below an open directory, or from the root.
fn inside(from: Option<OwnedFd>, path: &[u8], missing: Missing) -> Result<Place, FileRefusal> {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    let (bare, is_directory) = (&path[..end], end < path.len());
    let start = bare.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (parent, name) = bare.split_at(start);
    let from = match from {
        Some(from) => from,
        None => open(None, b"/")?,
    };
    Ok(match name {
        b"" | b"." | b".." => Place {
            dir: walk(from, bare, missing)?,
            name: b".".to_vec(),
            is_directory: true,
        },
        name => Place {
            dir: walk(from, parent, missing)?,
            name: name.to_vec(),
            is_directory,
        },
    })
}

/// The directory `path` below `from`; slashes at its beginning say nothing.
fn walk(from: OwnedFd, path: &[u8], missing: Missing) -> Result<OwnedFd, FileRefusal> {
    match pieces(&from, path) {
        Err(FileRefusal::NotFound) if missing == Missing::Make => make(from, path),
        Ok(None) => Ok(from),
        Ok(Some(dir)) => Ok(dir),
        Err(refusal) => Err(refusal),
    }
}

fn pieces(from: &OwnedFd, path: &[u8]) -> Result<Option<OwnedFd>, FileRefusal> {
    let mut dir: Option<OwnedFd> = None;
    let mut rest = skip_slashes(path);
    while !rest.is_empty() {
        let length = if rest.len() <= PIECE {
            rest.len()
        } else {
            // A component longer than a piece is longer than any name.
            rest[..PIECE]
                .iter()
                .rposition(|b| *b == b'/')
                .ok_or(FileRefusal::NameTooLong)?
        };
        let (piece, behind) = rest.split_at(length);
        dir = Some(open(Some(dir.as_ref().unwrap_or(from)), piece)?);
        rest = skip_slashes(behind);
    }
    Ok(dir)
}

/// Like [`pieces`], one component at a time, each made if it is missing and durable in its parent.
fn make(mut dir: OwnedFd, path: &[u8]) -> Result<OwnedFd, FileRefusal> {
    for component in path.split(|b| *b == b'/').filter(|c| !c.is_empty()) {
        dir = match open(Some(&dir), component) {
            Err(FileRefusal::NotFound) => {
                match mkdirat(&dir, component, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                    Ok(()) => sync(&dir, None)?,
                    // Another one was faster, or it is a link to nothing.
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(refusal(error)),
                }
                open(Some(&dir), component)?
            }
            opened => opened?,
        };
    }
    Ok(dir)
}

fn skip_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    &path[start..]
}

fn open(from: Option<&OwnedFd>, path: &[u8]) -> Result<OwnedFd, FileRefusal> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match from {
        Some(from) => openat(from, path, flags, Mode::empty()),
        None => openat(CWD, path, flags, Mode::empty()),
    };
    opened.map_err(refusal)
}

/// Makes what was made, renamed or removed in a directory durable. One that may not be read cannot be flushed by itself;
/// then the file system of `inside`, an open file of it, is flushed.
pub(super) fn sync(dir: &OwnedFd, inside: Option<&File>) -> Result<(), FileRefusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = match (openat(dir, c".", flags, Mode::empty()), inside) {
        (Ok(readable), _) => fsync(readable),
        (Err(Errno::ACCESS), Some(file)) => syncfs(file),
        (Err(Errno::ACCESS), None) => Ok(()),
        (Err(error), _) => Err(error),
    };
    match synced {
        // A file system without flushing has nothing to flush.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        synced => synced.map_err(refusal),
    }
}
