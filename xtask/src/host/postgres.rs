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
    let port = free_port()?;
    // Tests open many pools at once.
    let options = format!(
        "-p {port} -c listen_addresses=127.0.0.1 -k {} -c max_connections=400 {settings}",
        started.folder.path().display()
    );
    let log = started.folder.path().join("log");
    process::succeeds(
        started
            .command("pg_ctl")
            .args(["start", "--wait", "--timeout=60", "--pgdata"])
            .arg(&data)
            .arg("--log")
            .arg(&log)
            .arg("-o")
            .arg(options),
    )
    .then_some(())
    .with_context(|| {
        format!(
            "PostgreSQL did not start: {}",
            std::fs::read_to_string(&log)
                .unwrap_or_default()
                .lines()
                .last()
                .unwrap_or("no message")
        )
    })?;
    println!("    PostgreSQL is up on 127.0.0.1:{port}");
    Ok(Server {
        url: format!("postgres://oac:{password}@127.0.0.1:{port}/postgres"),
        started: Some(started),
    })
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
    let port = listener.local_addr()?.port();
    if port == 0 {
        bail!("cannot find a free port");
    }
    Ok(port)
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
}
