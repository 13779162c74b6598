//! A private PostgreSQL server, and a fresh database in it for each test.
//!
//! `cargo xtask test` starts one [`PrivateServer`] and names it to the tests in `OAC_TEST_POSTGRES`; each test takes a
//! [`TestDatabase`] of its own.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
    time::Duration,
};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

/// The URL of a server in which tests may create databases.
pub const VARIABLE: &str = "OAC_TEST_POSTGRES";

const READY: &str = "database system is ready to accept connections";
const START_LIMIT: Duration = Duration::from_secs(60);
/// A port that was free may be taken before the server binds it.
const ATTEMPTS: usize = 5;

/// Whether commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As in production; for benchmarks.
    Real,
    /// `fsync = off`: fast, and no test cuts the power.
    Fast,
}

/// Why no server could be started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("PostgreSQL's programs were not found; install the package postgresql")]
    NotInstalled,
    #[error(
        "PostgreSQL does not run as root and there is no account postgres; install the package postgresql"
    )]
    NoAccount,
    #[error("{what} failed; {detail}")]
    Failed { what: &'static str, detail: String },
    #[error("{what} failed")]
    Io {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
}

/// A server of our own on 127.0.0.1, with its data in a temporary directory. It ends with this value, and with the
/// terminal's Ctrl-C.
#[derive(Debug)]
pub struct PrivateServer {
    child: Child,
    port: u16,
    directory: TempDir,
    durability: Durability,
}

/// The account to run as, when this process is root.
#[derive(Debug, Clone, Copy)]
struct Account {
    uid: u32,
    gid: u32,
}

impl PrivateServer {
    /// Creates a cluster and starts it; returns when it accepts connections.
    ///
    /// # Errors
    /// The programs or the account are missing, or the server ends instead of serving.
    pub fn start(durability: Durability) -> Result<Self, ServerError> {
        let programs = programs().ok_or(ServerError::NotInstalled)?;
        let account = account()?;
        let directory = tempfile::Builder::new()
            .prefix("oac-postgres-")
            .tempdir()
            .map_err(|source| ServerError::Io {
                what: "creating a temporary directory",
                source,
            })?;
        if let Some(account) = account {
            chown(directory.path(), Some(account.uid), Some(account.gid)).map_err(|source| {
                ServerError::Io {
                    what: "giving the directory to the account postgres",
                    source,
                }
            })?;
        }
        create_cluster(&programs, account, directory.path())?;
        let mut last = ServerError::NotInstalled;
        for _ in 0..ATTEMPTS {
            let port = free_port()?;
            match launch(&programs, account, directory.path(), port, durability) {
                Ok(child) => {
                    return Ok(Self {
                        child,
                        port,
                        directory,
                        durability,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// For `OAC_TEST_POSTGRES`: the maintenance database, as a superuser without password.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Stops it as a crash would, every connection with it, and starts it again on the same data, which it recovers.
    /// Without [`Durability::Real`] the last commits may be gone.
    ///
    /// # Errors
    /// It does not serve again.
    pub fn crash_and_start(&mut self) -> Result<(), ServerError> {
        let programs = programs().ok_or(ServerError::NotInstalled)?;
        let io = |what| move |source| ServerError::Io { what, source };
        // SIGQUIT ends its processes, too, and waits for them; nothing is written any more.
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-QUIT", &pid]).status();
        told.map_err(io("stopping postgres"))?;
        self.child.wait().map_err(io("stopping postgres"))?;
        let directory = self.directory.path();
        self.child = launch(&programs, account()?, directory, self.port, self.durability)?;
        Ok(())
    }

    /// What the server wrote.
    pub fn log_path(&self) -> PathBuf {
        log_path(self.directory.path())
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // Its data is thrown away, so nothing has to be shut down in order. Children end with their parent.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

/// The directory that holds `initdb` and `postgres`: the newest of the distribution's, else one on the search path.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let path = std::env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .map(|(_, directory)| directory)
        .chain(std::env::split_paths(&path))
        .find(|directory| directory.join("initdb").exists() && directory.join("postgres").exists())
}

/// `None` when this process is not root and can run the server itself.
fn account() -> Result<Option<Account>, ServerError> {
    let uid = std::fs::metadata("/proc/self")
        .map(|m| std::os::unix::fs::MetadataExt::uid(&m))
        .map_err(|source| ServerError::Io {
            what: "reading /proc/self",
            source,
        })?;
    if uid != 0 {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    accounts
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some("postgres")).then_some(())?;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(Account { uid, gid })
        })
        .map(Some)
        .ok_or(ServerError::NoAccount)
}

fn command(program: PathBuf, account: Option<Account>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env_clear()
        .env("LC_ALL", "C.UTF-8");
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

fn create_cluster(programs: &Path, account: Option<Account>, directory: &Path) -> Result<(), ServerError> {
    let output = command(programs.join("initdb"), account, directory)
        .args([
            "--auth=trust",
            "--no-sync",
            "--username=postgres",
            "--encoding=UTF8",
            "--pgdata=data",
        ])
        .output()
        .map_err(|source| ServerError::Io {
            what: "starting initdb",
            source,
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(ServerError::Failed {
        what: "initdb",
        detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn free_port() -> Result<u16, ServerError> {
    crate::port::unused(Ipv4Addr::LOCALHOST.into()).map_err(|source| ServerError::Io {
        what: "finding a free port",
        source,
    })
}

fn launch(
    programs: &Path,
    account: Option<Account>,
    directory: &Path,
    port: u16,
    durability: Durability,
) -> Result<Child, ServerError> {
    let io = |what| move |source| ServerError::Io { what, source };
    let mut command = command(programs.join("postgres"), account, directory);
    command.args(["-D", "data", "-h", "127.0.0.1", "-k", "", "-p"]);
    command.arg(port.to_string());
    command.args(["-c", "max_connections=500", "-c", "log_min_messages=log"]);
    if durability == Durability::Fast {
        command.args([
            "-c",
            "fsync=off",
            "-c",
            "synchronous_commit=off",
            "-c",
            "full_page_writes=off",
        ]);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io("starting postgres"))?;
    let Some(stderr) = child.stderr.take() else {
        unreachable!("stderr was piped");
    };
    let mut log = File::options();
    let log = log.create(true).append(true).open(log_path(directory));
    let mut log = log.map_err(io("creating the server's log"))?;
    let (ready, readiness) = sync_channel(1);
    std::thread::spawn(move || {
        let mut tail = Vec::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = writeln!(log, "{line}");
            if line.contains(READY) {
                let _ = ready.try_send(Ok(()));
            } else if tail.len() < 20 {
                tail.push(line);
            }
        }
        // The server has ended; whoever still waits learns what it said.
        let _ = ready.try_send(Err(tail.join(" / ")));
    });
    let failure = match readiness.recv_timeout(START_LIMIT) {
        Ok(Ok(())) => return Ok(child),
        Ok(Err(said)) => said,
        Err(_) => format!("not ready after {} s", START_LIMIT.as_secs()),
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(ServerError::Failed {
        what: "starting postgres",
        detail: failure,
    })
}

/// A database of one test's own; dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Creates an empty database on the server that `OAC_TEST_POSTGRES` names.
    ///
    /// # Panics
    /// When there is no such server: the test must fail rather than be skipped.
    pub async fn create() -> Self {
        let server = std::env::var(VARIABLE).unwrap_or_else(|_| {
            panic!("{VARIABLE} is not set; run through cargo xtask test");
        });
        let name = format!("oac_test_{}", uuid::Uuid::new_v4().simple());
        let database = Self { server, name };
        run(&database.server, &format!("CREATE DATABASE {}", database.name))
            .await
            .unwrap_or_else(|error| panic!("cannot create a test database: {error}"));
        database
    }

    /// The URL of this database, without the server's password: as a configuration names it.
    pub fn url(&self) -> String {
        let (before, _) = self.server.rsplit_once('/').unwrap_or((&self.server, ""));
        match split_password(before) {
            Some((user, _, host)) => format!("{user}@{host}/{}", self.name),
            None => format!("{before}/{}", self.name),
        }
    }

    /// The password of the server's account, if it has one.
    pub fn password(&self) -> Option<&str> {
        split_password(&self.server).map(|(_, password, _)| password)
    }

    /// The URL for a stranger's own connection, password and all.
    pub fn url_with_password(&self) -> String {
        let (before, _) = self.server.rsplit_once('/').unwrap_or((&self.server, ""));
        format!("{before}/{}", self.name)
    }

    /// Runs one statement beside whatever the test does, as a stranger's connection would.
    pub async fn execute(&self, sql: &str) {
        run(&self.url_with_password(), sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// `scheme://user`, password and the rest of `scheme://user:password@rest`.
fn split_password(url: &str) -> Option<(&str, &str, &str)> {
    let (before, host) = url.split_once('@')?;
    let (user, password) = before.rsplit_once(':')?;
    // Without a password the last colon is the scheme's.
    (!password.starts_with("//")).then_some((user, password, host))
}

async fn run(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(AssertSqlSafe(sql.to_owned())).await?;
    connection.close().await
}

/// Bounded: a connection that the test left in the middle of its log-in, which this drop keeps from going on, would hold
/// the server's `DROP DATABASE` until the server gives that connection up.
async fn drop_database(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute("SET statement_timeout = '2s'").await?;
    connection.execute(AssertSqlSafe(sql.to_owned())).await?;
    connection.close().await
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, sql) = (
            self.server.clone(),
            format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
        );
        // A drop cannot wait on the test's own runtime. What fails here is thrown away with the server.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let _ = runtime.block_on(drop_database(&server, &sql));
            }
        });
        let _ = dropper.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_from_its_password_only_where_it_has_one() {
        assert_eq!(
            split_password("postgres://a:b@h:1/d"),
            Some(("postgres://a", "b", "h:1/d"))
        );
        assert_eq!(split_password("postgres://a@h:1/d"), None);
        assert_eq!(split_password("postgres://h:1/d"), None);
    }

    #[tokio::test]
    async fn pg_each_test_database_is_empty_and_its_own() {
        let (a, b) = (TestDatabase::create().await, TestDatabase::create().await);
        a.execute("CREATE TABLE t (x bigint)").await;
        b.execute("CREATE TABLE t (x bigint)").await;
        assert_ne!(a.url(), b.url());
    }
}
