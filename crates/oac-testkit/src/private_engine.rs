//! A Docker Engine of a test's own, which it may kill, restart and starve: its data on a small disk, its containers
//! and networks beside those of the shared engine and unknown to it.
//!
//! It sets up no packet filter, so that it cannot disturb the shared engine's; its containers therefore reach this host
//! and nothing else. It has a default bridge of its own: told to have none, or restarted with address pools of
//! its own, dockerd removes that of another engine; told nothing, it gives that one another address.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Pid, Signal, kill_process},
};
use tokio::process::Command;

use crate::{
    engine::{Engine, EngineError},
    program::{Program, ProgramError, Tie, tied},
    wait,
};

/// How long the engine may take to answer.
const START: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum PrivateEngineError {
    #[error("cannot prepare {path}", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Late(#[from] wait::InVain),
    #[error("cannot make a bridge for the private engine: {said}")]
    Bridge { said: String },
    #[error("the private engine does not load {archive}: {said}", archive = archive.display())]
    Load { archive: PathBuf, said: String },
}

type Result<T> = std::result::Result<T, PrivateEngineError>;

/// A dockerd and its disk. Dropped, the engine is ended and the disk goes.
pub struct PrivateEngine {
    folder: PathBuf,
    live_restore: bool,
    run: Option<Program>,
}

impl PrivateEngine {
    /// Starts one below `folder`, with a disk (in memory) of `size_mib`.
    pub async fn start(folder: &Path, size_mib: u32, live_restore: bool) -> Result<Self> {
        let at = |source| PrivateEngineError::File {
            path: folder.to_owned(),
            source,
        };
        let data = folder.join("data");
        std::fs::create_dir_all(&data).map_err(at)?;
        let size = std::ffi::CString::new(format!("size={size_mib}m")).unwrap_or_default();
        mount(
            "oac-test",
            &data,
            "tmpfs",
            MountFlags::empty(),
            Some(size.as_c_str()),
        )
        .map_err(|e| at(e.into()))?;
        let mut engine = Self {
            folder: folder.to_owned(),
            live_restore,
            run: None,
        };
        engine.make_bridge().await?;
        engine.run().await?;
        Ok(engine)
    }

    /// Unique among what lives: so is the process id.
    fn bridge() -> String {
        format!("oac{}", std::process::id())
    }

    async fn make_bridge(&self) -> Result<()> {
        let bridge = Self::bridge();
        let address = format!("10.214.{}.1/24", std::process::id() % 250);
        for arguments in [
            &["link", "add", &bridge, "type", "bridge"][..],
            &["addr", "add", &address, "dev", &bridge],
            &["link", "set", &bridge, "up"],
        ] {
            let output = Command::new("ip").args(arguments).output().await;
            let output = output.map_err(|source| PrivateEngineError::File {
                path: "ip".into(),
                source,
            })?;
            if !output.status.success() {
                return Err(PrivateEngineError::Bridge {
                    said: String::from_utf8_lossy(&output.stderr).into_owned(),
                });
            }
        }
        Ok(())
    }

    /// Starts the engine (again) and waits until it answers.
    pub async fn run(&mut self) -> Result<()> {
        self.forget_ended_containerd().await?;
        let mut command = tied(Path::new("dockerd"), Tie::Bound);
        command
            .arg("--data-root")
            .arg(self.data())
            .arg("--exec-root")
            .arg(self.folder.join("exec"))
            .arg("--pidfile")
            .arg(self.folder.join("dockerd.pid"))
            .arg("--host")
            .arg(format!("unix://{}", self.socket().display()))
            .args(["--iptables=false", "--ip-forward=false"])
            .arg(format!("--bridge={}", Self::bridge()))
            .arg(format!("--live-restore={}", self.live_restore));
        let mut program = Program::start("dockerd", command, &self.folder.join("dockerd.log"))?;
        let socket = self.socket();
        program
            .until("the private engine answers", START, async || {
                Engine::connect(&socket).await.ok().map(|_| ())
            })
            .await?;
        self.run = Some(program);
        Ok(())
    }

    /// The engine takes the containerd of a killed one for alive while it is not collected, which on some machines it
    /// never is.
    async fn forget_ended_containerd(&self) -> Result<()> {
        let file = self.folder.join("exec/containerd/containerd.pid");
        let Ok(pid) = std::fs::read_to_string(&file) else {
            return Ok(());
        };
        let program = PathBuf::from(format!("/proc/{}/exe", pid.trim()));
        wait::until("the former containerd ended", START, async || {
            std::fs::read_link(&program).is_err().then_some(())
        })
        .await?;
        std::fs::remove_file(&file).map_err(|source| PrivateEngineError::File { path: file, source })
    }

    /// Loads an image from its archive.
    pub async fn load(&self, archive: &Path) -> Result<()> {
        let output = Command::new("docker")
            .arg("-H")
            .arg(format!("unix://{}", self.socket().display()))
            .args(["load", "--quiet", "--input"])
            .arg(archive)
            .output()
            .await
            .map_err(|source| PrivateEngineError::File {
                path: archive.to_owned(),
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        Err(PrivateEngineError::Load {
            archive: archive.to_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("docker.sock")
    }

    /// The engine's data, on its own disk.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// SIGTERM, as a restart of its service does first.
    pub async fn stop(&mut self) {
        if let Some(run) = self.run.take() {
            run.stop().await;
        }
    }

    /// SIGKILL, as a crash would.
    pub async fn kill(&mut self) {
        if let Some(run) = self.run.take() {
            run.kill().await;
        }
    }
}

impl Drop for PrivateEngine {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            // Containers of an engine that is only killed would live on.
            let socket = format!("unix://{}", self.socket().display());
            quietly(
                "timeout",
                &[
                    "60",
                    "sh",
                    "-c",
                    &format!("docker -H {socket} ps -aq | xargs -r docker -H {socket} rm -f"),
                ],
            );
            run.signal(Signal::TERM);
            let program = PathBuf::from(format!("/proc/{}/exe", run.pid().unwrap_or_default()));
            let end = std::time::Instant::now() + Duration::from_secs(20);
            // A process that ended but was not waited for has no program any more.
            while std::fs::read_link(&program).is_ok() && std::time::Instant::now() < end {
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        self.run = None;
        self.end_what_is_left();
        let _ = unmount(self.data(), UnmountFlags::DETACH);
    }
}

impl PrivateEngine {
    /// After an engine that could not be asked any more: its containers, its helpers, which all name its folder, and its
    /// bridges.
    fn end_what_is_left(&self) {
        let kill = |pid: &str| {
            if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        };
        let containers = std::fs::read_dir(self.folder.join("exec/runtime-runc/moby"));
        for container in containers.into_iter().flatten().flatten() {
            let state = std::fs::read_to_string(container.path().join("state.json")).unwrap_or_default();
            let first = state.split("\"init_process_pid\":").nth(1);
            kill(first.and_then(|rest| rest.split(',').next()).unwrap_or_default());
        }
        let name = self.folder.to_string_lossy().into_owned();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains(&name) {
                kill(&process.file_name().to_string_lossy());
            }
        }
        for mounted in std::fs::read_dir(self.folder.join("exec/netns"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let _ = unmount(mounted.path(), UnmountFlags::DETACH);
        }
        quietly("ip", &["link", "del", &Self::bridge()]);
        let networks = std::fs::read(self.data().join("network/files/local-kv.db")).unwrap_or_default();
        for named in String::from_utf8_lossy(&networks)
            .split("\"BridgeName\":\"")
            .skip(1)
        {
            let bridge = named.split('"').next().unwrap_or_default();
            if bridge.starts_with("br-") {
                quietly("ip", &["link", "del", bridge]);
            }
        }
    }
}

fn quietly(program: &str, arguments: &[&str]) {
    let _ = std::process::Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
