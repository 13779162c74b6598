//! Room on the disk that is kept for the start and the end of a Turn.
//!
//! A command may fill the disk, and mostly only another command makes room again. Without any, the end of the first
//! could not be recorded, nor the start of the second. So two files beside the Turns take some room in good times. The
//! record of a start, and what is left to write after a process has ended, get it; output of a process that runs does
//! not, it can wait. An end may take the room of a start too: before it is told, nothing else is started. The room is
//! taken again with the first Turn that finds it.

use std::{fs, io, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::fs::FallocateFlags;

use crate::limits;

/// What room is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Start,
    End,
}

impl Room {
    fn name(self) -> &'static str {
        match self {
            Self::Start => ".reserve-start",
            Self::End => ".reserve-end",
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Start => limits::RESERVE_START_BYTES,
            Self::End => limits::RESERVE_END_BYTES,
        }
    }
}

/// Takes the room, unless it is taken or the disk cannot spare it.
pub(super) fn take(root: &Path) {
    for room in [Room::Start, Room::End] {
        take_one(root, room);
    }
}

fn take_one(root: &Path, room: Room) {
    let path = root.join(room.name());
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let Ok(file) = file else { return };
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room.bytes()).is_err() {
        let _ = fs::remove_file(path);
    }
}

/// Gives the room back if `error` says that there is none; whether it did.
pub(super) fn release(root: &Path, room: Room, error: &io::Error) -> bool {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    full && fs::remove_file(root.join(room.name())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_taken_once_and_given_back_only_to_an_error_that_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        take(root);
        take(root);
        for room in [Room::Start, Room::End] {
            let path = root.join(room.name());
            assert_eq!(fs::metadata(&path).unwrap().len(), room.bytes());
            assert!(!release(root, room, &io::ErrorKind::PermissionDenied.into()));
            assert!(path.exists());
            assert!(release(root, room, &io::ErrorKind::StorageFull.into()));
            assert!(!path.exists());
            assert!(!release(root, room, &io::ErrorKind::StorageFull.into()));
        }
    }
}
