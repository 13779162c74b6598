//! Starting processes and collecting their ends.
//!
//! In Docker the runtime is the first process of its namespace, so every orphan becomes its child: the reaper collects
//! all children and hands the exits of Turns' leaders to those who wait. Nothing else in the program waits for a
//! process. A leader is looked at before it is collected: while it is a zombie its id stays reserved, so what is left
//! of its process group can be killed without hitting another (INV-S20 needs the group ended before its end is told).

use std::{
    collections::HashMap,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use oac_link::service::Run;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, wait, waitid};
use tokio::{
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use crate::limits;

/// How a leader ended: an exit code or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// A started leader of a session and process group of its own.
pub(crate) struct Started {
    pub group: Group,
    pub stdin: Option<pipe::Sender>,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub ended: oneshot::Receiver<Ended>,
}

/// A Turn's process group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

impl Group {
    pub(crate) fn leader(self) -> Pid {
        self.0
    }

    /// Signals whoever is left; nobody being left is fine.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }
}

/// Collects the exits of all children.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reaper {
    leaders: Arc<Mutex<HashMap<Pid, oneshot::Sender<Ended>>>>,
}

impl Reaper {
    /// Collects for ever, woken by the kernel's signal.
    pub(crate) async fn run(self) {
        let Ok(mut children) = signal(SignalKind::child()) else {
            unreachable!("SIGCHLD can be watched");
        };
        loop {
            self.collect();
            children.recv().await;
        }
    }

    /// Collects every child that has ended by now.
    pub(crate) fn collect(&self) {
        let mut leaders = self.leaders.lock().unwrap_or_else(PoisonError::into_inner);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        for leader in leaders.keys() {
            if let Ok(Some(_)) = waitid(WaitId::Pid(*leader), options) {
                Group(*leader).signal(Signal::KILL);
            }
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let ended = Ended {
                code: status.exit_status(),
                signal: status.terminating_signal(),
            };
            if ended.code.is_none() && ended.signal.is_none() {
                continue;
            }
            if let Some(waiting) = leaders.remove(&pid) {
                Group(pid).signal(Signal::KILL);
                let _ = waiting.send(ended);
            }
        }
    }

    /// Whether the group's leader has not ended by now.
    pub(crate) fn is_alive(&self, group: Group) -> bool {
        self.collect();
        self.leaders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&group.0)
    }

    /// Starts `run` in a session of its own. The error says what could not be done, for the Turn's exit record.
    pub(crate) fn start(&self, run: &Run) -> Result<Started, String> {
        crate::turns::check_directory(&run.cwd)?;
        let plumbing = |error: io::Error| format!("no pipes: {}", crate::turns::why(&error));
        let (stdout, child_stdout) = io::pipe().map_err(plumbing)?;
        let (stderr, child_stderr) = io::pipe().map_err(plumbing)?;
        let (child_stdin, stdin) = if run.stdin.0.is_empty() {
            (Stdio::null(), None)
        } else {
            let (reader, writer) = io::pipe().map_err(plumbing)?;
            (Stdio::from(OwnedFd::from(reader)), Some(writer))
        };
        let mut command = Command::new(&run.args[0]);
        command
            .args(&run.args[1..])
            .current_dir(&run.cwd)
            .env_clear()
            .envs(limits::BASE_ENV)
            .envs(&run.env)
            .stdin(child_stdin)
            .stdout(OwnedFd::from(child_stdout))
            .stderr(OwnedFd::from(child_stderr));
        apart_from_the_runtime(&mut command);
        // Held while the standard library may itself collect a child whose program could not be executed.
        let mut leaders = self.leaders.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn().map_err(|error| {
            format!(
                "{} cannot be executed: {}",
                run.args[0],
                crate::turns::why(&error)
            )
        })?;
        // The child's ends of the pipes must be the child's alone, or they never end.
        drop(command);
        let pid = Pid::from_child(&child);
        let (sender, ended) = oneshot::channel();
        leaders.insert(pid, sender);
        drop(leaders);
        let started = || -> io::Result<Started> {
            Ok(Started {
                group: Group(pid),
                stdin: stdin
                    .map(OwnedFd::from)
                    .map(pipe::Sender::from_owned_fd)
                    .transpose()?,
                stdout: pipe::Receiver::from_owned_fd(stdout.into())?,
                stderr: pipe::Receiver::from_owned_fd(stderr.into())?,
                ended,
            })
        };
        started().map_err(|error| {
            Group(pid).signal(Signal::KILL);
            plumbing(error)
        })
    }
}

#[allow(
    unsafe_code,
    reason = "the standard library offers no safe way to a session of one's own and a weight of one's own"
)]
fn apart_from_the_runtime(command: &mut Command) {
    // SAFETY: these are bare system calls, which are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            // Before the runtime, whose end would take every Turn's output with it. As good as without where it fails.
            let weight = open(c"/proc/self/oom_score_adj", OFlags::WRONLY, Mode::empty());
            let _ = weight.and_then(|file| rustix::io::write(&file, limits::OUT_OF_MEMORY_WEIGHT.as_bytes()));
            Ok(())
        });
    }
}
