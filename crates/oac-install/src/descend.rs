//! The way down from root: a child that has a terminal, a capability and a group of root's no more, and does what root
//! may not be trusted with (installer.md section 7). It is forked and executes nothing anew, since the account may not
//! read the installer; therefore this process has one thread until it forks.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process_group, waitpid},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    display::Display,
    hint::Hint,
    report::{LINE_BYTES, Report, Reporter, read},
};

/// Who a child is.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The device's, if it needs one.
    pub(crate) device_gid: Option<u32>,
    /// Its working directory; `/` before there is a home.
    pub(crate) home: PathBuf,
    /// Its whole environment.
    pub(crate) environment: Vec<(String, String)>,
}

/// The child's end of its parent's result pipe.
pub(crate) type Told = Reporter<File>;

/// The signal that asked this run to end; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
#[cfg(feature = "points")]
static IS_CHILD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
/// How long a child's group has to end by itself.
const GRACE: Duration = Duration::from_secs(5);
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// The result pipe in the child; above the numbers that processes of the node are handed.
const RESULT: RawFd = 10;
const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// Whether this process is one.
#[cfg(feature = "points")]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::SeqCst)
}

/// A line that is no report.
#[cfg(feature = "points")]
#[allow(unsafe_code, reason = "the child's result pipe by its number")]
pub(crate) fn tell_root(line: &[u8]) {
    // SAFETY: open from the descent to the end of this process.
    let pipe = unsafe { std::os::fd::BorrowedFd::borrow_raw(RESULT) };
    let _ = rustix::io::write(pipe, line);
}

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::SeqCst);
}

#[allow(unsafe_code, reason = "no safe crate here sets a handler")]
fn handle(handler: libc::sighandler_t) {
    for signal in ENDING {
        // SAFETY: the handler stores into an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, handler) };
    }
}

/// From now on a signal that asks for the end is noted, and what root does is finished first.
pub(crate) fn note_signals() {
    handle(note as *const () as libc::sighandler_t);
}

/// The hint of a run that was asked to end.
pub(crate) fn stopped() -> Result<(), Hint> {
    match SIGNAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        signal => Err(Hint::Stopped { signal }),
    }
}

/// Waits for a moment, or until something can be read.
pub(crate) fn moment(fds: &mut [PollFd<'_>]) {
    // Interrupted by a signal it returns early, which is as good.
    let _ = poll(fds, Some(&TICK));
}

fn failed(what: &'static str) -> impl Fn(rustix::io::Errno) -> Hint {
    move |errno| Hint::failed(what, &errno)
}

/// Does `work` as `who` in a child and gives what came of it. What the child reports is shown, its output relayed.
#[allow(unsafe_code, reason = "the standard library does not fork")]
pub(crate) fn within<T: Serialize + DeserializeOwned>(
    who: &Who,
    display: &mut Display,
    work: impl FnOnce(&Told) -> Result<T, Hint>,
) -> Result<T, Hint> {
    stopped()?;
    let pipes = failed("no pipe could be made");
    let (result, child_result) = pipe_with(PipeFlags::CLOEXEC).map_err(&pipes)?;
    let (output, child_output) = pipe_with(PipeFlags::CLOEXEC).map_err(&pipes)?;
    let _ = io::stdout().flush();
    let root = getpid();
    // SAFETY: this process has one thread, so that the child is a whole copy of it.
    match unsafe { libc::fork() } {
        0 => {
            drop((result, output));
            child(who, root, child_result, child_output, work)
        }
        pid => {
            drop((child_result, child_output));
            let pid = Pid::from_raw(pid).filter(|_| pid > 0);
            let pid =
                pid.ok_or_else(|| Hint::failed("no child could be started", &io::Error::last_os_error()))?;
            follow(pid, result, output, display)
        }
    }
}

/// Never comes back to what its parent was about to do.
#[allow(unsafe_code, reason = "the end of a fork")]
fn child<T: Serialize>(
    who: &Who,
    root: Pid,
    result: OwnedFd,
    output: OwnedFd,
    work: impl FnOnce(&Told) -> Result<T, Hint>,
) -> ! {
    #[cfg(feature = "points")]
    IS_CHILD.store(true, Ordering::SeqCst);
    let done = catch_unwind(AssertUnwindSafe(|| match descend(who, root, result, output) {
        Ok(file) => {
            let told = Reporter::new(file);
            let done = work(&told);
            let report = match &done {
                Ok(value) => document(true, value),
                Err(hint) => document(false, hint),
            };
            told.send(&report);
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "rights could not be given up: {error}");
        }
    }));
    // SAFETY: ends this process without running what the parent registered for its end.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

fn document(ok: bool, value: &impl Serialize) -> Report {
    let document = serde_json::to_string(value).unwrap_or_default();
    Report::Result { ok, document }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives up being root. The order is the design's: after the identity has changed nothing can be taken back.
#[allow(
    unsafe_code,
    reason = "identity, descriptors and environment of a process of one thread"
)]
fn descend(who: &Who, root: Pid, given: OwnedFd, output: OwnedFd) -> io::Result<File> {
    handle(libc::SIG_DFL);
    rustix::process::setsid()?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    let groups: Vec<libc::gid_t> = [Some(who.gid), who.device_gid].into_iter().flatten().collect();
    // SAFETY: bare system calls on numbers that this process owns; every object of the parent that owned a descriptor
    // is never dropped here, since the child ends by _exit.
    let file = unsafe {
        for (fd, number) in [(&null, 0), (&output, 1), (&output, 2), (&given, RESULT)] {
            if libc::dup2(fd.as_raw_fd(), number) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        libc::fcntl(RESULT, libc::F_SETFD, libc::FD_CLOEXEC);
        let result = libc::c_long::from(RESULT);
        for (from, to) in [(3, result - 1), (result + 1, libc::c_long::from(u32::MAX))] {
            let flags: libc::c_long = 0;
            checked(libc::syscall(libc::SYS_close_range, from, to, flags) as libc::c_int)?;
        }
        std::mem::forget((null, output, given));
        checked(libc::setgroups(groups.len(), groups.as_ptr()))?;
        checked(libc::setresgid(who.gid, who.gid, who.gid))?;
        checked(libc::setresuid(who.uid, who.uid, who.uid))?;
        /// Joins a new session keyring.
        const JOIN: libc::c_long = 1;
        const NO_NAME: libc::c_long = 0;
        if libc::syscall(libc::SYS_keyctl, JOIN, NO_NAME) < 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENOSYS) {
                return Err(error);
            }
        }
        rustix::thread::set_no_new_privs(true)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
        for name in names {
            std::env::remove_var(name);
        }
        for (name, value) in &who.environment {
            std::env::set_var(name, value);
        }
        File::from_raw_fd(RESULT)
    };
    if getppid() != Some(root) {
        return Err(io::Error::other("the parent has ended"));
    }
    rustix::process::umask(Mode::from_raw_mode(0o077));
    std::env::set_current_dir(&who.home).or_else(|_| std::env::set_current_dir("/"))?;
    Ok(file)
}

/// Shows what the child says until it ends.
fn follow<T: DeserializeOwned>(
    pid: Pid,
    result: OwnedFd,
    output: OwnedFd,
    display: &mut Display,
) -> Result<T, Hint> {
    for fd in [&result, &output] {
        rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).map_err(failed("a pipe could not be set up"))?;
    }
    let (mut result, mut output) = (Some(File::from(result)), Some(File::from(output)));
    let mut lines = Vec::new();
    let mut last = None;
    let mut ends: Option<Instant> = None;
    while result.is_some() || output.is_some() {
        let mut fds: Vec<PollFd<'_>> = [&result, &output]
            .into_iter()
            .flatten()
            .map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN))
            .collect();
        moment(&mut fds);
        drop(fds);
        drain(&mut output, |bytes| display.relay(bytes));
        drain(&mut result, |bytes| {
            for byte in bytes {
                match byte {
                    b'\n' => {
                        match read(&lines) {
                            Some(Report::Result { ok, document }) => last = Some((ok, document)),
                            Some(report) => display.told(&report),
                            None => crate::points::heed(&lines),
                        }
                        lines.clear();
                    }
                    // What is too long is no report.
                    byte if lines.len() <= LINE_BYTES => lines.push(*byte),
                    _ => {}
                }
            }
        });
        if stopped().is_err() {
            let now = Instant::now();
            match ends {
                None => {
                    ends = Some(now + GRACE);
                    let _ = kill_process_group(pid, Signal::TERM);
                }
                Some(end) if now >= end => {
                    let _ = kill_process_group(pid, Signal::KILL);
                }
                Some(_) => {}
            }
        }
    }
    // What the child started and left behind goes with it; while it is not waited for, its group has no other.
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    match last {
        Some((true, document)) => serde_json::from_str(&document)
            .map_err(|error| Hint::failed("the part of this run as oac-node answered wrongly", &error)),
        Some((false, document)) => Err(serde_json::from_str(&document).unwrap_or_else(|error| {
            Hint::failed("the part of this run as oac-node answered wrongly", &error)
        })),
        None => {
            stopped()?;
            Err(Hint::Failed {
                what: "The part of this run as oac-node ended early".to_owned(),
            })
        }
    }
}

/// Reads what is there; `None` in place of a file that is at its end.
fn drain(file: &mut Option<File>, mut take: impl FnMut(&[u8])) {
    let Some(open) = file else { return };
    let mut bytes = [0; 4096];
    loop {
        match open.read(&mut bytes) {
            Ok(0) => {
                *file = None;
                return;
            }
            Ok(count) => take(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
