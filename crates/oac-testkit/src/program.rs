//! Programs started for a test or a demo: their log in a file, ended with them whatever happens.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::wait;

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

/// A running program. Dropping it kills it.
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot start {name}")]
    Start {
        name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{name} ended with {status}; its last lines:\n{tail}")]
    Ended {
        name: String,
        status: String,
        tail: String,
    },
    #[error("{name} failed its work; its last lines:\n{tail}")]
    Late {
        name: String,
        tail: String,
        #[source]
        source: wait::InVain,
    },
}

/// The folder with this build's programs: next to the running test or demo.
pub fn built_programs() -> PathBuf {
    if let Some(folder) = std::env::var_os("OAC_TEST_PROGRAMS") {
        return folder.into();
    }
    let mut folder = std::env::current_exe().unwrap_or_default();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    folder
}

/// Whether a program ends with whoever started it, also when that one is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// SIGKILL when the thread that started it ends: no test leaves a process behind.
    Bound,
    /// It may be left running on purpose.
    Free,
}

/// The command that runs `program` so.
pub fn tied(program: &Path, tie: Tie) -> Command {
    match tie {
        Tie::Free => Command::new(program),
        Tie::Bound => {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
    }
}

impl Program {
    /// Starts `command`; both its outputs go to `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, ProgramError> {
        let failed = |source| ProgramError::Start {
            name: name.to_owned(),
            source,
        };
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(failed)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone().map_err(failed)?))
            .stderr(Stdio::from(file))
            // A Ctrl-C on the terminal is for whoever started the program, who ends it in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Looks until `look` gives a value; fails at once when the program ends, and with its log when time runs out.
    pub async fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T, ProgramError> {
        let (child, mut ended) = (&mut self.child, None);
        let found = wait::until(what, limit, async || {
            if let Some(value) = look().await {
                return Some(Some(value));
            }
            ended = child.try_wait().ok().flatten();
            ended.is_some().then_some(None)
        })
        .await;
        let (name, tail) = (self.name.clone(), self.tail());
        match (found, ended) {
            (Ok(Some(value)), _) => Ok(value),
            (Ok(None), status) => Err(ProgramError::Ended {
                name,
                status: status.map_or_else(|| "an unknown status".to_owned(), |s| s.to_string()),
                tail,
            }),
            (Err(source), _) => Err(ProgramError::Late { name, tail, source }),
        }
    }

    fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Everything the program wrote so far.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGTERM, and SIGKILL when it does not end; the exit status.
    pub async fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        match tokio::time::timeout(GRACE, self.child.wait()).await {
            Ok(status) => status.ok()?.code(),
            Err(_) => {
                let _ = self.child.kill().await;
                None
            }
        }
    }

    /// SIGKILL, and the end awaited.
    pub async fn kill(mut self) {
        let _ = self.child.kill().await;
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Stops it where it is, until [`Self::thaw`]: nothing of it moves, and everything of it stays open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits for the program's own end.
    pub async fn ended(mut self) -> Option<i32> {
        self.child.wait().await.ok()?.code()
    }
}
