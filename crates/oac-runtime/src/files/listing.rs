//! Listing a directory.

use std::{collections::BinaryHeap, mem::MaybeUninit};

use oac_link::files::{FileEntry, FileList, FileRefusal, FileType, is_cursor};
use rustix::{
    fs::{self, AtFlags, Mode, OFlags, RawDir, Stat, openat, statat},
    io::Errno,
};

use super::{
    path::{Missing, place},
    refusal::refusal,
};

/// One page: the names behind the cursor's in byte order, 1000 at most. A directory of any size takes the memory of a
/// page. The cursor is the last name itself, so what appears or vanishes meanwhile moves nothing.
pub(super) fn list(path: &[u8], cursor: Option<&str>) -> Result<FileList, FileRefusal> {
    let after = cursor.map(decode).transpose()?;
    let place = place(path, Missing::Refuse)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(&place.dir, place.name.as_slice(), flags, Mode::empty()).map_err(refusal)?;
    let mut page = BinaryHeap::new();
    let mut more = false;
    let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
    let mut entries = RawDir::new(&dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(refusal)?;
        let name = entry.file_name().to_bytes();
        let is_behind = after.as_ref().is_none_or(|after| name > after.as_slice());
        if matches!(name, b"." | b"..") || !is_behind {
            continue;
        }
        if page.len() < oac_link::limits::LIST_ENTRIES {
            page.push(name.to_vec());
            continue;
        }
        more = true;
        if let Some(mut last) = page.peek_mut()
            && name < last.as_slice()
        {
            *last = name.to_vec();
        }
    }
    let names = page.into_sorted_vec();
    let next = names.last().filter(|_| more).map(|name| encode(name));
    let mut data = Vec::with_capacity(names.len());
    for name in names {
        match statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => data.push(entry(&name, &stat)),
            // Removed meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(refusal(error)),
        }
    }
    Ok(FileList {
        data,
        next: next.into(),
    })
}

/// What is told of a file.
pub(super) fn entry(name: &[u8], stat: &Stat) -> FileEntry {
    FileEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: match fs::FileType::from_raw_mode(stat.st_mode) {
            fs::FileType::RegularFile => FileType::File,
            fs::FileType::Directory => FileType::Directory,
            fs::FileType::Symlink => FileType::Symlink,
            _ => FileType::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: mode(stat),
        modified_ms: modified_ms(stat),
    }
}

pub(super) fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

pub(super) fn modified_ms(stat: &Stat) -> i64 {
    stat.st_mtime
        .saturating_mul(1000)
        .saturating_add(stat.st_mtime_nsec as i64 / 1_000_000)
}

/// Another text once the file's bytes, or anything else of it, have changed.
pub(super) fn version(stat: &Stat) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}-{:x}",
        stat.st_ino, stat.st_size, stat.st_mtime, stat.st_ctime, stat.st_ctime_nsec
    )
}

fn encode(name: &[u8]) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(cursor: &str) -> Result<Vec<u8>, FileRefusal> {
    let digits = cursor.as_bytes();
    if !is_cursor(cursor) || !digits.len().is_multiple_of(2) {
        return Err(FileRefusal::BadCursor);
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let digit = |b: u8| char::from(b).to_digit(16);
            Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
        })
        .collect::<Option<_>>()
        .ok_or(FileRefusal::BadCursor)
}
