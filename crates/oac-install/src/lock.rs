//! The host's lock: one run at a time (installer.md section 13).

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
};

use crate::{
    descend::{moment, stopped},
    display::Display,
    hint::Hint,
    host::Host,
};

const AT_MOST: Duration = Duration::from_secs(600);

/// Held for as long as the descriptor is open; no child keeps it.
pub(crate) fn take(host: &Host, display: &mut Display) -> Result<OwnedFd, Hint> {
    let path = host.lock();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |errno: Errno| Hint::failed("The host's lock could not be taken", &errno);
    let lock = open(&path, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
    let end = Instant::now() + AT_MOST;
    let mut has_said = false;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        stopped()?;
        if !has_said {
            display.line("Waiting for another run on this host.");
            has_said = true;
        }
        if Instant::now() >= end {
            return Err(Hint::HostBusy);
        }
        moment(&mut []);
    }
}
