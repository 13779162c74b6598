//! Reading a regular file.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use hyper::body::Frame;
use oac_link::files::FileRefusal;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat},
    io::{Errno, pread},
};

use super::{
    Threads,
    path::{Missing, place},
    refusal::refusal,
};
use crate::{activity::Active, limits};

/// File systems whose files the kernel makes up while they are read: their sizes say nothing, and some never end.
const MADE_UP: [u32; 9] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
];

/// Refuses a file or a directory of a file system that keeps nothing.
pub(super) fn check_kept(open: &OwnedFd) -> Result<(), FileRefusal> {
    let system = fstatfs(open).map_err(refusal)?;
    match MADE_UP.contains(&(system.f_type as u32)) {
        true => Err(FileRefusal::NotRegular),
        false => Ok(()),
    }
}

/// An open regular file as it was when it was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub file: File,
    pub stat: Stat,
}

/// Opens a regular file, and nothing else: what is not regular is found out without opening it, so a FIFO does not wait
/// and a device does nothing.
pub(super) fn open(path: &[u8]) -> Result<Opened, FileRefusal> {
    let place = place(path, Missing::Refuse)?;
    let name = place.name.as_slice();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = openat(&place.dir, name, flags, Mode::empty()).map_err(refusal)?;
    let stat = fstat(&handle).map_err(refusal)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileRefusal::IsDirectory),
        _ => return Err(FileRefusal::NotRegular),
    }
    if place.is_directory {
        return Err(FileRefusal::NotDirectory);
    }
    check_kept(&handle)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let through = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let opened: OwnedFd = match openat(CWD, through, flags, Mode::empty()) {
        // No /proc here.
        Err(Errno::NOENT) => openat(&place.dir, name, flags, Mode::empty()),
        opened => opened,
    }
    .map_err(refusal)?;
    let stat = fstat(&opened).map_err(refusal)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FileRefusal::NotRegular);
    }
    Ok(Opened {
        file: opened.into(),
        stat,
    })
}

/// `left` bytes from `offset` on. A file that has become shorter ends the body with an error, never early.
pub(super) fn stream(
    file: File,
    offset: u64,
    left: u64,
    threads: Threads,
    active: Active,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
    let state = (Arc::new(file), offset, left, threads, active);
    stream::unfold(Some(state), |state| async move {
        let (file, offset, left, threads, active) = state?;
        if left == 0 {
            return None;
        }
        let reading = file.clone();
        let length = left.min(limits::FILE_CHUNK_BYTES as u64) as usize;
        let read = threads.run(move || read(&reading, offset, length)).await;
        match read {
            Ok(bytes) if bytes.is_empty() => {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter");
                Some((Err(error), None))
            }
            Ok(bytes) => {
                let (offset, left) = (offset + bytes.len() as u64, left - bytes.len() as u64);
                let state = Some((file, offset, left, threads, active));
                Some((Ok(Frame::data(bytes)), state))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
}

fn read(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = BytesMut::zeroed(length);
    let mut filled = 0;
    while filled < length {
        match pread(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            // What was read is told first; the error comes again.
            Err(_) if filled > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.freeze())
}
