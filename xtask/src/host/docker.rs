//! A Docker Engine: the running one, or a private one for the length of this run.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process;

const SOCKET: &str = "/var/run/docker.sock";
const START_LIMIT: Duration = Duration::from_secs(60);

/// An engine that answers. One that this run started is stopped, by process id, when this is dropped.
pub(crate) struct Engine {
    socket: PathBuf,
    started: Option<Started>,
}

struct Started {
    child: Child,
    pid_file: PathBuf,
}

impl Engine {
    /// `unix:///…`, the form that `OAC_TEST_DOCKER` and `provider.json` take.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Leaves a started engine running and gives its process id, for `demo --keep`.
    pub(crate) fn keep(mut self) -> Option<u32> {
        self.started.take().map(|started| started.child.id())
    }
}

/// Uses the engine that answers on the standard socket; starts one when none does.
pub(crate) fn ensure_docker() -> Result<Engine> {
    super::packages::ensure_packages(&[super::packages::DOCKER])?;
    let socket = PathBuf::from(SOCKET);
    match version(&socket) {
        Ok(version) => {
            println!("    using the running Docker Engine {version} on {SOCKET}");
            return Ok(Engine {
                socket,
                started: None,
            });
        }
        Err(error) if error.to_string().contains("permission denied") => bail!(
            "this account may not use the Docker Engine: add it to the group `docker` and log in again, or run this as root"
        ),
        Err(_) => {}
    }
    start(socket)
}

fn version(socket: &Path) -> Result<String> {
    let mut docker = Command::new(process::which("docker").context("the program `docker` is missing")?);
    docker.env_remove("DOCKER_HOST").env_remove("DOCKER_CONTEXT");
    docker
        .arg("-H")
        .arg(format!("unix://{}", socket.display()))
        .args(["version", "--format", "{{.Server.Version}}"]);
    Ok(process::capture(&mut docker)?.trim().to_owned())
}

fn start(socket: PathBuf) -> Result<Engine> {
    let home = super::cache()?.join("docker");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let log = home.join("dockerd.log");
    let pid_file = home.join("dockerd.pid");
    println!(
        "    no Docker Engine answers on {SOCKET}: starting dockerd for this run, data in {}",
        home.join("data").display()
    );
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut dockerd = process::as_root("dockerd")?;
    dockerd
        .arg("--data-root")
        .arg(home.join("data"))
        .arg("--pidfile")
        .arg(&pid_file);
    dockerd.arg("-H").arg(format!("unix://{}", socket.display()));
    // A group of its own: Ctrl-C must reach the tests first and the engine only when they are done with it.
    dockerd
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let child = dockerd.spawn().context("cannot start dockerd")?;
    let mut engine = Engine {
        socket,
        started: Some(Started { child, pid_file }),
    };
    let answer = process::until(START_LIMIT, || {
        if let Some(started) = engine.started.as_mut()
            && let Ok(Some(status)) = started.child.try_wait()
        {
            return Some(Err(status));
        }
        version(&engine.socket).ok().map(Ok)
    })?;
    match answer {
        Some(Ok(version)) => {
            println!("    Docker Engine {version} is up");
            Ok(engine)
        }
        Some(Err(status)) => bail!("dockerd ended at once ({status}): {}", last_line(&log)),
        None => bail!(
            "dockerd did not answer within {} s: {}",
            START_LIMIT.as_secs(),
            last_line(&log)
        ),
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message")
        .trim()
        .to_owned();
    format!("{line} (all of it in {})", log.display())
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(mut started) = self.started.take() else {
            return;
        };
        if started.child.try_wait().ok().flatten().is_some() {
            return;
        }
        // Through sudo the child is sudo; the engine's own id is in its pid file.
        let pid = std::fs::read_to_string(&started.pid_file)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        let pid = pid.unwrap_or_else(|| started.child.id()).to_string();
        // The shell's own `kill`: a bare machine has no program of that name.
        let asked = process::as_root("sh")
            .and_then(|mut shell| Ok(shell.args(["-c", "kill -TERM \"$0\"", &pid]).status()?));
        if asked.is_ok_and(|status| status.success()) {
            let _ = started.child.wait();
            println!("    stopped the Docker Engine that this run started");
        } else {
            eprintln!("warning: cannot stop dockerd: run `sudo kill {pid}`");
        }
    }
}
