//! Hosts for tests: systemd, sudo, a Docker Engine and a journal of their own, booted in two seconds, each with an address
//! that it and this machine reach each other under.
//!
//! A host is a systemd-nspawn container on an overlay over one cached root ([`root`]); a shell script of its own
//! (`keeper.sh`) keeps it. The script holds everything that a host needs of this machine and gives all of it back when
//! its standard input ends, so nothing is left either when the test is killed. It needs root.
//!
//! What differs from a machine: there is one kernel, so no sysctl outside the host's namespaces, no module, no clock of
//! its own; a reboot boots the same disk again.

mod peers;
mod picture;
pub mod root;
mod user;
mod watch;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

pub use self::{
    peers::Peers,
    picture::{Change, NOISE, Noise, Picture},
    user::{Shell, Sudo, User},
    watch::{Seen, Watch},
};
use crate::wait;

const KEEPER: &str = include_str!("host/keeper.sh");
const ENTER: &str = include_str!("host/enter.sh");
/// What of memory a host may use.
const MEMORY_BYTES: u64 = 3 << 30;
/// How long anything on a host may take before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{} is not set: run through cargo xtask test", root::VARIABLE)]
    NoRoot,
    #[error("cannot start {program}")]
    Start {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("the test host failed: {0}")]
    Failed(String),
    #[error("`{script}` ended with {status:?} on the host: {said}")]
    Refused {
        script: String,
        status: Option<i32>,
        said: String,
    },
    #[error(transparent)]
    Late(#[from] wait::InVain),
}

pub(crate) type Result<T> = std::result::Result<T, HostError>;

/// A running host. Dropped, it is switched off and everything of it goes.
pub struct Host {
    name: String,
    number: String,
    leader: String,
    folder: PathBuf,
    keeper: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// How a command on a host ended.
#[derive(Debug, Clone)]
pub struct Ran {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Itself, if the command succeeded.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.ended(0)
    }

    /// Itself, if it ended with `status`.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn ended(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// Everything it said.
    pub fn said(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

impl From<std::process::Output> for Ran {
    fn from(output: std::process::Output) -> Self {
        Self {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Host {
    /// Boots a host of that name, and waits until it is up, its engine included.
    pub async fn boot(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = PathBuf::from(std::env::var_os(root::VARIABLE).ok_or(HostError::NoRoot)?);
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = root.with_file_name("running").join(unique);
        let mut keeper = Command::new("unshare");
        keeper
            .args([
                "--mount",
                "--propagation",
                "private",
                "--",
                "bash",
                "-c",
                KEEPER,
                "keeper",
            ])
            .args([&root, &folder])
            .args([name, &MEMORY_BYTES.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // What ends the test by its group must leave the keeper to clean up.
            .process_group(0);
        let mut keeper = keeper.spawn().map_err(|source| HostError::Start {
            program: "unshare",
            source,
        })?;
        let (Some(requests), Some(answers)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            unreachable!("both are piped");
        };
        let mut host = Self {
            name: name.to_owned(),
            number: String::new(),
            leader: String::new(),
            folder,
            keeper,
            requests,
            answers: BufReader::new(answers).lines(),
        };
        host.number = host.answer("net").await?;
        host.switch_on().await?;
        Ok(host)
    }

    async fn ask(&mut self, request: &str, expected: &str) -> Result<String> {
        let line = format!("{request}\n");
        // A keeper that ended says why.
        let _ = self.requests.write_all(line.as_bytes()).await;
        self.answer(expected).await
    }

    async fn answer(&mut self, expected: &str) -> Result<String> {
        let line = self.answers.next_line().await.ok().flatten().unwrap_or_default();
        match line.split_once(' ').unwrap_or((&line, "")) {
            (word, rest) if word == expected => Ok(rest.to_owned()),
            _ => Err(HostError::Failed(line)),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host's address.
    pub fn address(&self) -> std::net::Ipv4Addr {
        self.numbered(2)
    }

    /// This machine's address, as the host reaches it. It stays while the host is off.
    pub fn outside(&self) -> std::net::Ipv4Addr {
        self.numbered(1)
    }

    fn numbered(&self, last: u8) -> std::net::Ipv4Addr {
        std::net::Ipv4Addr::new(10, 77, self.number.parse().unwrap_or_default(), last)
    }

    /// Where this machine keeps what the host wrote.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The host's files, seen from outside, while it is up.
    pub fn files(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.leader))
    }

    /// A command inside, as root, with an empty environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-c", ENTER, "enter", &self.number, &self.leader])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a shell script as root, whatever becomes of it.
    pub async fn run(&self, script: &str) -> Result<Ran> {
        let output = self.command(&["sh", "-c", script]).output().await;
        output.map(Ran::from).map_err(|source| HostError::Start {
            program: "bash",
            source,
        })
    }

    /// Runs a shell script as root; what it printed. Anything but success is an error.
    pub async fn output(&self, script: &str) -> Result<String> {
        let ran = self.run(script).await?;
        if ran.status == Some(0) {
            return Ok(ran.out);
        }
        Err(HostError::Refused {
            script: script.to_owned(),
            status: ran.status,
            said: ran.said(),
        })
    }

    /// Waits until a shell script succeeds.
    pub async fn until(&self, what: &str, script: &str) -> Result<()> {
        let holds = async || (self.run(script).await.ok()?.status == Some(0)).then_some(());
        wait::until(what, PATIENCE, holds).await?;
        Ok(())
    }

    /// Copies a file of this machine to `path`, which gets root as its owner and `mode`, such as `0755`.
    pub async fn put(&self, file: &Path, path: &str, mode: &str) -> Result<()> {
        let source = std::fs::File::open(file).map_err(|source| HostError::Start {
            program: "a copy",
            source,
        })?;
        let script = format!("install -D -m {mode} /dev/stdin '{path}'");
        let output = self.command(&["sh", "-c", &script]).stdin(source).output().await;
        let ran = output.map(Ran::from).map_err(|source| HostError::Start {
            program: "bash",
            source,
        })?;
        match ran.status {
            Some(0) => Ok(()),
            status => Err(HostError::Refused {
                script,
                status,
                said: ran.err,
            }),
        }
    }

    /// What a unit wrote to the journal since the host's first boot.
    pub async fn journal(&self, unit: &str) -> Result<String> {
        self.output(&format!("journalctl --no-pager --output=cat --unit '{unit}'"))
            .await
    }

    /// The main process of a running unit.
    pub async fn main_process(&self, unit: &str) -> Result<u32> {
        let text = self
            .output(&format!("systemctl show --property MainPID --value '{unit}'"))
            .await?;
        Ok(text.trim().parse().unwrap_or_default())
    }

    /// What the host is now, to be compared with what it is later.
    pub async fn picture(&self) -> Result<Picture> {
        Ok(Picture::parse(&self.output(picture::SCRIPT).await?))
    }

    /// Shuts the host down and boots it again.
    pub async fn reboot(&mut self) -> Result<()> {
        self.ask("off", "off").await?;
        self.switch_on().await
    }

    /// Boots the host again after its power failed: nothing on it was told.
    pub async fn crash(&mut self) -> Result<()> {
        self.ask("crash", "off").await?;
        self.switch_on().await
    }

    async fn switch_on(&mut self) -> Result<()> {
        self.leader = self.ask("boot", "up").await?;
        self.until("the host's engine answers", "docker version").await
    }

    /// Switches the host off and waits until nothing of it is left.
    pub async fn end(mut self) -> Result<()> {
        let _ = self.requests.shutdown().await;
        drop(self.requests);
        let status = self.keeper.wait().await;
        match (status, self.folder.exists()) {
            (Ok(_), false) => Ok(()),
            (status, _) => Err(HostError::Failed(format!(
                "{status:?}, left behind: {}",
                self.folder.display()
            ))),
        }
    }
}
