//! Descriptors that a child process is given under a fixed number: the lock is the open file, so whoever holds a copy
//! of the descriptor holds the lock, whatever becomes of its parent.
//!
//! The standard library reports a failed exec through a descriptor of its own in the child, which may have any free
//! number. Ours must not take its place: then a failed start would look like a success, and the report would be
//! written into the lock's file. So the numbers are kept occupied here, and the child looks again before it takes one.

use std::{
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{Mode, OFlags},
    io::{Errno, FdFlags},
    process::{Pid, Signal},
};

/// A number under which a child finds a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// The generation's shared lease of a helper; `install.lock` of a child of the node and its native processes.
    Three,
    /// The allocation's lock of a helper.
    Four,
}

impl Number {
    fn raw(self) -> RawFd {
        match self {
            Self::Three => 3,
            Self::Four => 4,
        }
    }

    fn taken(self) -> &'static AtomicBool {
        static TAKEN: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
        match self {
            Self::Three => &TAKEN[0],
            Self::Four => &TAKEN[1],
        }
    }
}

/// Above every number that is given away.
const ABOVE: RawFd = 10;

/// Occupies whichever of the numbers are free, from now to the end of this process. A program that starts helpers calls
/// it first, while nothing else has them; each handing over does again.
pub fn reserve() {
    static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    while let Ok(fd) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        if fd.as_raw_fd() > Number::Four.raw() {
            break;
        }
        reserved.push(fd);
    }
}

/// What has the number now.
#[allow(
    unsafe_code,
    reason = "a number that somebody else may own can only be borrowed raw"
)]
fn identity_of(number: Number) -> Option<(u64, u64)> {
    // SAFETY: borrowed for one call, which reports a closed descriptor as an error.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(number.raw()) }).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Has `command` start with a copy of `fd` as descriptor `number`, which it keeps when it executes another program.
/// The copy made here lives as long as `command`: drop it after the start. A start that fails with `EBUSY` met another
/// file under the number, which this process opened meanwhile; it can be repeated.
#[allow(
    unsafe_code,
    reason = "the standard library offers no safe way to give a child a descriptor under a number"
)]
pub fn hand_over(command: &mut Command, fd: BorrowedFd<'_>, number: Number) -> io::Result<()> {
    reserve();
    let before = identity_of(number);
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, ABOVE)?;
    // SAFETY: the closure makes bare system calls alone, which are async-signal-safe and allocate nothing. The number
    // is borrowed and replaced without being closed by anybody else: the child has one thread.
    unsafe {
        command.pre_exec(move || {
            let target = BorrowedFd::borrow_raw(number.raw());
            // What came since may be the standard library's own.
            if let Ok(stat) = rustix::fs::fstat(target)
                && before != Some((stat.st_dev, stat.st_ino))
            {
                return Err(Errno::BUSY.into());
            }
            let mut place = std::mem::ManuallyDrop::new(OwnedFd::from_raw_fd(number.raw()));
            rustix::io::dup2(&copy, &mut place)?;
            Ok(())
        });
    }
    Ok(())
}

/// Has the kernel kill the child when the thread that starts it ends: a preparer or collector must not outlive the
/// node. What it started may still; therefore the inherited lock.
pub fn die_with_parent(command: &mut Command) {
    die_with(command, rustix::process::getpid());
}

#[allow(
    unsafe_code,
    reason = "the standard library offers no safe way to a parent-death signal"
)]
fn die_with(command: &mut Command, parent: Pid) {
    // SAFETY: two bare system calls, which are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that ended before the call sends nothing any more.
            if rustix::process::getppid() != Some(parent) {
                return Err(Errno::SRCH.into());
            }
            Ok(())
        });
    }
}

/// Takes the descriptor that the parent handed over; once. It is close-on-exec from now on, so that what this process
/// starts holds it only where it is handed over again.
#[allow(
    unsafe_code,
    reason = "a descriptor that came with the process has no owner until somebody takes it"
)]
pub fn take(number: Number) -> io::Result<OwnedFd> {
    if number.taken().swap(true, Ordering::AcqRel) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: borrowed for one call, which reports a closed descriptor as an error.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number.raw()) })?;
    if flags.contains(FdFlags::CLOEXEC) {
        // It came with no exec: it was opened by this process and belongs to somebody.
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: it is open and inherited, and the mark above gives it to one caller alone.
    let fd = unsafe { OwnedFd::from_raw_fd(number.raw()) };
    rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_whose_parent_ended_before_it_was_tied_to_it_does_not_start() {
        let mut command = Command::new("/bin/true");
        die_with_parent(&mut command);
        assert!(command.status().unwrap().success());
        let mut orphan = Command::new("/bin/true");
        die_with(&mut orphan, Pid::INIT);
        let error = orphan.status().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::SRCH.raw_os_error()));
    }
}
