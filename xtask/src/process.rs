//! Running other programs: one place that starts a child, waits for it and ends it when this run is interrupted.
//!
//! An interrupted run must still stop the services it started. So a signal does not end this process: it is noted,
//! passed on to the child that is being waited for, and every later child is refused; the command then returns an
//! error through the ordinary path and the service guards are dropped.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The child being waited for; 0 when there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Notes SIGINT and SIGTERM from now on. A terminal sends SIGINT to the child itself; SIGTERM is passed on here.
pub(crate) fn watch_signals() -> Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                INTERRUPTED.store(true, Ordering::SeqCst);
                if signal == SIGTERM
                    && let Some(child) = Pid::from_raw(CHILD.load(Ordering::SeqCst))
                {
                    let _ = kill_process(child, Signal::TERM);
                }
            }
        })
        .context("cannot watch for signals")?;
    Ok(())
}

/// Fails once the run was interrupted.
pub(crate) fn go_on() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// A cargo command for this workspace, without the variables that the outer cargo set for this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO" {
            command.env_remove(&name);
        }
    }
    command.current_dir(crate::workspace::root());
    command
}

/// `cargo build`, which shows its progress to a person and says nothing to a log.
pub(crate) fn cargo_build() -> Command {
    let mut command = cargo();
    command.arg("build");
    if !std::io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    command
}

/// Runs to the end with this program's own output streams; anything but success is an error naming the program.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = finish(command.stdin(Stdio::null()))?.status;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs to the end and gives what it wrote to standard output; on failure the error carries its last line of
/// standard error.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = finish(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("no message")
            .trim();
        bail!("`{}` failed ({}): {last}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a program wrote to both of its streams, and whether it succeeded.
pub(crate) struct Output {
    pub(crate) text: String,
    pub(crate) success: bool,
}

/// Runs to the end and gives everything it wrote, whatever its exit status.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    let output = finish(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    Ok(Output {
        text,
        success: output.status.success(),
    })
}

/// Runs to the end and gives its standard output; its standard error is this program's.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = finish(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs silently to the end; true when it succeeded, false when it failed or does not exist.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    finish(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )
    .is_ok_and(|output| output.status.success())
}

fn finish(command: &mut Command) -> Result<std::process::Output> {
    go_on()?;
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    CHILD.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
    let output = child.wait_with_output();
    CHILD.store(0, Ordering::SeqCst);
    let output = output.with_context(|| format!("cannot wait for `{name}`"))?;
    go_on()?;
    Ok(output)
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    if text.len() > 160 {
        let cut = text
            .char_indices()
            .take_while(|(at, _)| *at < 160)
            .last()
            .map_or(0, |(at, _)| at);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Asks `ready` every 200 ms until it answers something or `limit` has passed; `None` then.
pub(crate) fn until<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<Option<T>> {
    let start = Instant::now();
    loop {
        go_on()?;
        if let Some(found) = ready() {
            return Ok(Some(found));
        }
        if start.elapsed() > limit {
            return Ok(None);
        }
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

/// Where `program` is, on PATH or where administration programs live.
pub(crate) fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `program` as root: as it is for root, through sudo for others.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    if which("sudo").is_none() {
        bail!("`{program}` must run as root and sudo is not installed: run this command as root");
    }
    let mut command = Command::new("sudo");
    if !std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        command.arg("--non-interactive");
    }
    command.arg(program);
    Ok(command)
}
