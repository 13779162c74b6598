//! A private PostgreSQL server on a free port, gone again with its data at the end.
//!
//! It listens on loopback alone, with a password made for the run: without one, any account of the machine could run
//! programs as the server's account.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

const START_ATTEMPTS: usize = 3;

/// A server that accepts connections; stopped when dropped unless it was there before.
pub(crate) struct Server {
    url: String,
    started: Option<Started>,
}

struct Started {
    programs: PathBuf,
    account: Option<Account>,
    folder: tempfile::TempDir,
}

/// The account that the server runs as; PostgreSQL refuses root.
#[derive(Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Server {
    /// What `OAC_TEST_POSTGRES` takes: a URL with the right to create databases.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// The folder of the newest installed server's programs.
pub(crate) fn programs() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    installed
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<u32>().ok()?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(_, folder)| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file())
        .max()
        .map(|(_, folder)| folder)
}

/// Uses the server named by `OAC_TEST_POSTGRES` if that is set, else starts one whose data need not reach the disk.
pub(crate) fn ensure_postgres() -> Result<Server> {
    ensure("-c fsync=off")
}

/// The same with writes as durable as in operation, for measuring.
pub(crate) fn ensure_durable() -> Result<Server> {
    ensure("")
}

fn ensure(settings: &str) -> Result<Server> {
    if let Ok(url) = std::env::var("OAC_TEST_POSTGRES")
        && !url.is_empty()
    {
        println!("    using the PostgreSQL server that OAC_TEST_POSTGRES names");
        return Ok(Server { url, started: None });
    }
    start(settings)
}

fn start(settings: &str) -> Result<Server> {
    super::packages::ensure_packages(&[super::packages::POSTGRES])?;
    let programs = programs().context("PostgreSQL's programs are missing from /usr/lib/postgresql")?;
    let account = if process::is_root() {
        Some(account("postgres")?)
    } else {
        None
    };
    let folder = tempfile::Builder::new()
        .prefix("oac-postgres-")
        .tempdir()
        .context("cannot create a folder for PostgreSQL")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))?;
    if let Some(account) = account {
        chown(folder.path(), Some(account.uid), Some(account.gid))
            .context("cannot give PostgreSQL its folder")?;
    }
    let started = Started {
        programs,
        account,
        folder,
    };
    let password = password()?;
    let password_file = started.folder.path().join("password");
    std::fs::write(&password_file, format!("{password}\n"))?;
    if let Some(account) = account {
        chown(&password_file, Some(account.uid), Some(account.gid))?;
    }
    let data = started.data();
    process::capture(
        started
            .command("initdb")
            .arg("--pgdata")
            .arg(&data)
            .arg("--pwfile")
            .arg(&password_file)
            .args([
                "--username=oac",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ]),
    )
    .context("PostgreSQL cannot create a database folder")?;
    std::fs::remove_file(&password_file)?;
    let mut attempt = 1;
    let port = loop {
        match serve(&started, settings) {
            Ok(port) => break port,
            // Someone else may have taken the port between its choice and its use.
            Err(_) if attempt < START_ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    };
    println!("    PostgreSQL is up on 127.0.0.1:{port}");
    Ok(Server {
        url: format!("postgres://oac:{password}@127.0.0.1:{port}/postgres"),
        started: Some(started),
    })
}

/// Starts the server on a port that was free a moment ago and waits until it takes connections.
fn serve(started: &Started, settings: &str) -> Result<u16> {
    let port = free_port()?;
    let folder = started.folder.path();
    // Tests open many pools at once.
    let options = format!(
        "-p {port} -c listen_addresses=127.0.0.1 -k {} -c max_connections=400 {settings}",
        folder.display()
    );
    let log = folder.join("log");
    let mut start = started.command("pg_ctl");
    start
        .args(["start", "--wait", "--timeout=60", "--pgdata"])
        .arg(started.data());
    start.arg("--log").arg(&log).arg("-o").arg(options);
    if !process::succeeds(&mut start) {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        bail!(
            "PostgreSQL did not start: {}",
            text.lines().last().unwrap_or("no message")
        );
    }
    Ok(port)
}

impl Started {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path());
        if let Some(account) = self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(started) = self.started.take() else {
            return;
        };
        // Not through `process`: this must also run after an interruption. `immediate` because the data goes too.
        let stopped = started
            .command("pg_ctl")
            .args([
                "stop",
                "--silent",
                "--wait",
                "--timeout=30",
                "--mode=immediate",
                "--pgdata",
            ])
            .arg(started.data())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!(
                "warning: cannot stop PostgreSQL in {}",
                started.folder.path().display()
            );
        }
    }
}

fn account(name: &str) -> Result<Account> {
    find_account(&crate::workspace::read(Path::new("/etc/passwd"))?, name)
        .with_context(|| format!("there is no account `{name}`: reinstall the package postgresql"))
}

fn find_account(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            [found, _, uid, gid, ..] if *found == name => Some(Account {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            }),
            _ => None,
        }
    })
}

fn password() -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A port that was free a moment ago. The server binds it itself, so there is no way to hold it for it.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\npostgresql:x:7:8::/:/bin/sh\npostgres:x:104:112::/var/lib:/bin/bash\n";
        let account = find_account(passwd, "postgres").map(|account| (account.uid, account.gid));
        assert_eq!(account, Some((104, 112)));
        assert!(find_account(passwd, "postgre").is_none());
    }

    #[test]
    fn pg_a_started_server_takes_connections_with_its_password_only_and_leaves_nothing() {
        let server = start("-c fsync=off").expect("a server");
        let once = |url: &str, statement: &str| {
            let program = programs().expect("programs").join("psql");
            process::capture(Command::new(program).args(["--no-password", "-Atc", statement, url]))
        };
        assert!(once(server.url(), "create database x").is_ok());
        assert_eq!(once(server.url(), "select 1").ok().as_deref(), Some("1\n"));
        let (before, after) = server.url().split_once('@').expect("a password");
        let without = format!("{}@{after}", before.rsplit_once(':').expect("a password").0);
        assert!(once(&without, "select 1").is_err(), "{without}");
        let folder = server
            .started
            .as_ref()
            .expect("started")
            .folder
            .path()
            .to_path_buf();
        let url = server.url().to_owned();
        drop(server);
        assert!(once(&url, "select 1").is_err());
        assert!(!folder.exists());
    }
}
