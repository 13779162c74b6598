//! `oac-core setup`: this host becomes Core's (core.md section 1): account, directories, configuration, a first Core key,
//! and a service.
//!
//! It checks first and changes nothing when something does not fit. What is there already stays as it is: an account that
//! fits, a configuration, a key. So it can be run again, after a failure or after the program was replaced.

mod unit;

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use oac_model::account::{self, Entry, HOME, Misfit, NAME as ACCOUNT, UID};
use rustix::fs::Mode;

use crate::config::{Config, ConfigError, DEFAULT_PATH, PublicUrl};

/// Where the database and releases are.
const STATE: &str = "/var/lib/oac-core";
const RELEASES: &str = "/var/lib/oac-core/releases";
const SERVICE: &str = "oac-core.service";
const UNIT: &str = "/etc/systemd/system/oac-core.service";
/// How long the service may take to be there.
const START: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// What the first configuration says; nothing of it counts where there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct First {
    /// The origin that nodes and sandboxes reach Core under, such as `http://192.0.2.10:8080`.
    #[arg(long, value_name = "URL")]
    pub public_url: Option<PublicUrl>,
    /// An address and port to listen on; may be given several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("Run this command as root or with sudo.")]
    NotRoot,
    #[error("This host is not run by systemd.")]
    NoSystemd,
    #[error("{0} is missing: install it, then retry.")]
    NoTool(&'static str),
    /// Core's account, which nodes on this host share, cannot be had.
    #[error("{0}: {how}.", how = remedy(.0))]
    Account(Misfit),
    #[error("{path} belongs to another account: run `chown -R {ACCOUNT}: {path}` if it is Core's, then retry.", path = .0.display())]
    Foreign(PathBuf),
    #[error("{} cannot be run by another account: move it, for example to /usr/local/bin.", .0.display())]
    Program(PathBuf),
    #[error("the configuration is not usable")]
    Config(#[from] ConfigError),
    #[error("cannot write {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot run {program}")]
    Run {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{program} failed: {said}")]
    Refused { program: String, said: String },
    #[error("The service did not start. Logs: journalctl -u {SERVICE}")]
    NotStarted,
}

fn remedy(misfit: &Misfit) -> &'static str {
    match misfit {
        Misfit::UidTaken(_) => "Core needs it",
        Misfit::GroupLeft => "remove it, then retry",
        Misfit::Differs(_) => "rename or remove it",
    }
}

type Result<T> = std::result::Result<T, SetupError>;

/// Sets this host up, saying what it does.
pub fn run(first: &First) -> Result<()> {
    let program = std::env::current_exe().map_err(|source| SetupError::Run {
        program: "oac-core".to_owned(),
        source,
    })?;
    let gid = match check(&program, first)? {
        Some(account) => {
            say(&format!("The account {ACCOUNT} is there already and fits."));
            account.gid
        }
        None => {
            create_account()?;
            say(&format!("Created the account {ACCOUNT} (UID {UID})."));
            entry()?.map_or(UID, |entry| entry.gid)
        }
    };
    directory(Path::new(HOME), 0o700, gid)?;
    directory(Path::new(STATE), 0o700, gid)?;
    directory(Path::new(RELEASES), 0o755, gid)?;
    if Path::new(DEFAULT_PATH).exists() {
        say(&format!("{DEFAULT_PATH} is there already and stays as it is."));
    } else {
        write(Path::new(DEFAULT_PATH), unit::configuration(first).as_bytes())?;
        say(&format!("Wrote {DEFAULT_PATH}."));
    }
    let key = first_key(&program, gid)?;
    service(&program, &configuration(first)?.listen)?;
    match key {
        Some(key) => say(&format!("Core key, shown this once: {key}")),
        None => say("There is a Core key already: `oac-core core-key create` makes another one."),
    }
    say(&format!("Status: systemctl status {SERVICE}"));
    say(&format!("Logs: journalctl -u {SERVICE}"));
    Ok(())
}

fn say(line: &str) {
    // Who closed the output wants to know nothing; the work goes on.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Everything that can be wrong with this host, before anything is changed; the account if it is there.
fn check(program: &Path, first: &First) -> Result<Option<Entry>> {
    if !rustix::process::geteuid().is_root() {
        return Err(SetupError::NotRoot);
    }
    if !Path::new("/run/systemd/system").is_dir() {
        return Err(SetupError::NoSystemd);
    }
    for tool in ["getent", "useradd", "systemctl"] {
        if !["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|at| Path::new(at).join(tool).is_file())
        {
            return Err(SetupError::NoTool(tool));
        }
    }
    let found = entry()?;
    for path in [STATE, RELEASES].map(Path::new) {
        if fs::metadata(path).is_ok_and(|found| found.uid() != UID) {
            return Err(SetupError::Foreign(path.to_owned()));
        }
    }
    configuration(first)?;
    // As the account, whose number is known before it exists.
    let mut run = Command::new(program);
    run.arg("--version")
        .uid(UID)
        .gid(UID)
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match run.status() {
        Ok(status) if status.success() => Ok(found),
        _ => Err(SetupError::Program(program.to_owned())),
    }
}

/// The configuration that counts: what is there, else what would be written.
fn configuration(first: &First) -> Result<Config> {
    let path = Path::new(DEFAULT_PATH);
    let read = if path.exists() {
        Config::load(path)
    } else {
        Config::parse(&unit::configuration(first), path)
    };
    Ok(read?)
}

/// The account, if there is one and it fits.
fn entry() -> Result<Option<Entry>> {
    let line = getent("passwd", ACCOUNT)?;
    let entry = line.as_deref().map(Entry::read).transpose();
    let entry = entry.map_err(SetupError::Account)?;
    let owner = getent("passwd", &UID.to_string())?;
    let owner = owner.as_deref().and_then(|line| line.split(':').next());
    let has_group = getent("group", ACCOUNT)?.is_some();
    account::check(entry.as_ref(), owner, has_group, HOME).map_err(SetupError::Account)?;
    Ok(entry)
}

fn create_account() -> Result<()> {
    let nologin = ["/usr/sbin/nologin", "/sbin/nologin"];
    let shell = nologin
        .iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or(&nologin[0]);
    let arguments = account::useradd(HOME, shell);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tool("useradd", &arguments).map(drop)
}

/// One entry of a database of the system, directory services included.
fn getent(database: &str, key: &str) -> Result<Option<String>> {
    let output = output(Command::new("getent").args([database, key]))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((output.status.success() && !text.is_empty()).then_some(text))
}

fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SetupError::Run {
            program: command.get_program().to_string_lossy().into_owned(),
            source,
        })
}

/// Runs a tool of the system to its end; what it printed.
fn tool(program: &str, arguments: &[&str]) -> Result<String> {
    succeeded(Command::new(program).args(arguments))
}

fn succeeded(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(SetupError::Refused {
        program: command.get_program().to_string_lossy().into_owned(),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> SetupError {
    let path = path.to_owned();
    move |source| SetupError::File { path, source }
}

/// A directory of the account; one that is there stays as it is.
fn directory(path: &Path, mode: u32, gid: u32) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir(path).map_err(failed(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed(path))?;
    chown(path, Some(UID), Some(gid)).map_err(failed(path))
}

/// A file of root's that everybody may read, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        fs::create_dir(folder).map_err(failed(folder))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(failed(folder))?;
    }
    let partial = path.with_extension("partial");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&partial)
        .map_err(failed(&partial))?;
    file.set_permissions(fs::Permissions::from_mode(0o644))
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&partial, path))
        .map_err(failed(path))
}

/// A first Core key, made by this program as the account, whose the database is; `None` if there is a key.
fn first_key(program: &Path, gid: u32) -> Result<Option<String>> {
    let as_account = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).uid(UID).gid(gid).current_dir(STATE);
        // What the database engine makes is the account's alone, as it is when the service makes it.
        let before = rustix::process::umask(Mode::from_raw_mode(0o077));
        let said = succeeded(&mut command);
        rustix::process::umask(before);
        said
    };
    // Id, created, revoked or -, name.
    let keys = as_account(&["core-key", "list"])?;
    if keys
        .lines()
        .any(|line| line.split_whitespace().nth(2) == Some("-"))
    {
        return Ok(None);
    }
    let said = as_account(&["core-key", "create", "--name", "setup"])?;
    let key = said
        .split_whitespace()
        .find(|word| word.starts_with(crate::entropy::CORE_KEY_PREFIX));
    Ok(key.map(str::to_owned))
}

/// The service, running this program.
fn service(program: &Path, listen: &[SocketAddr]) -> Result<()> {
    let text = unit::service(program);
    let known = fs::read_to_string(UNIT).is_ok_and(|present| present == text);
    if !known {
        write(Path::new(UNIT), text.as_bytes())?;
        tool("systemctl", &["daemon-reload"])?;
        say(&format!("Wrote {UNIT}."));
    }
    tool("systemctl", &["enable", "--quiet", SERVICE])?;
    tool("systemctl", &[if known { "start" } else { "restart" }, SERVICE])?;
    let end = Instant::now() + START;
    // One that ends at once is active too, for a moment, but listens nowhere.
    let serves = || {
        listen
            .iter()
            .all(|address| TcpStream::connect_timeout(address, LOOK).is_ok())
            && tool("systemctl", &["is-active", SERVICE]).is_ok()
    };
    while !serves() {
        if Instant::now() >= end {
            return Err(SetupError::NotStarted);
        }
        std::thread::park_timeout(LOOK);
    }
    say("The service runs, and starts with this host.");
    Ok(())
}
