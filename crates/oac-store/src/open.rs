//! Connecting to the database and bringing its schema up to date.

use std::{path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use oac_model::Secret;
use sea_orm::{DbBackend, DbErr, SqlxPostgresConnector, SqlxSqliteConnector};
use sqlx::{
    ConnectOptions as _,
    pool::PoolOptions,
    postgres::{PgConnectOptions, PgConnection, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::Semaphore;

use crate::{
    StoreError,
    dialect::Dialect,
    exec::{Noticed, Pool},
    limits, migrate,
};

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// An absolute path.
    Sqlite(PathBuf),
    /// A `postgres://` URL without a password.
    Postgres(String),
}

impl FromStr for Database {
    type Err = OpenError;

    /// The database a `database.url` names.
    fn from_str(text: &str) -> Result<Self, OpenError> {
        let url = url::Url::parse(text).map_err(|_| OpenError::Url)?;
        match url.scheme() {
            "sqlite" => match text.strip_prefix("sqlite://") {
                // Taken literally, as the shell would spell the path.
                Some(path) if path.starts_with('/') && !path.ends_with('/') && url.query().is_none() => {
                    Ok(Self::Sqlite(PathBuf::from(path)))
                }
                _ => Err(OpenError::Url),
            },
            "postgres" | "postgresql" => {
                let in_query = url.query_pairs().any(|(name, _)| name == "password");
                if url.password().is_some() || in_query {
                    return Err(OpenError::PasswordInUrl);
                }
                Ok(Self::Postgres(text.to_owned()))
            }
            _ => Err(OpenError::Url),
        }
    }
}

/// What [`Store::open`] needs to know.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub database: Database,
    /// PostgreSQL's password, from its file.
    pub password: Option<Secret>,
    /// Added to the database's clock; zero outside tests.
    pub clock_offset_millis: i64,
    /// The longest wait for a PostgreSQL server's answer, which ends every statement after 3 s itself: later the server
    /// or the way to it is gone. 5 s outside tests.
    pub answer_within: Duration,
}

impl StoreOptions {
    pub fn new(database: Database) -> Self {
        Self {
            database,
            password: None,
            clock_offset_millis: 0,
            answer_within: limits::ANSWER,
        }
    }
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("database.url must be sqlite:///absolute/path or postgres://user@host/database")]
    Url,
    #[error("database.url holds a password; put it into the file that database.password_file names")]
    PasswordInUrl,
    #[error("cannot create the database file {path}; check that its directory exists and is writable")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot connect to the database; check database.url, the password file and that the server runs")]
    Connect {
        #[source]
        source: DbErr,
    },
    #[error("the database file belongs to another program; name another file in database.url")]
    Foreign,
    #[error(
        "the database's schema is version {found}, this oac-core knows up to {known}; start the newer oac-core"
    )]
    Newer { found: i64, known: i64 },
    #[error("migration {number} failed and was undone; see the cause, then start again")]
    Migration {
        number: i64,
        #[source]
        source: StoreError,
    },
    #[error("the schema's version cannot be read; check the database account's rights")]
    Version {
        #[source]
        source: StoreError,
    },
}

/// An open database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// SQLite: one connection, whose pool is the queue of writers. PostgreSQL: the pool.
    pub(crate) writer: Pool,
    pub(crate) reader: Pool,
    /// For the lease: a connection that no other work can occupy (on SQLite the writer all the same).
    pub(crate) lease: Pool,
    pub(crate) noticed: Arc<Noticed>,
    pub(crate) dialect: Dialect,
    pub(crate) database: Database,
    #[cfg(feature = "faults")]
    pub(crate) faults: std::sync::Arc<crate::faults::Faults>,
}

impl Store {
    /// Connects, and migrates the schema to this version.
    ///
    /// # Errors
    /// One line for the operator each; see [`OpenError`].
    pub async fn open(options: StoreOptions) -> Result<Self, OpenError> {
        let inner = match &options.database {
            Database::Sqlite(path) => open_sqlite(path, &options).await?,
            Database::Postgres(url) => open_postgres(url, &options).await?,
        };
        let store = Self {
            inner: Arc::new(inner),
        };
        migrate::run(&store, migrate::MIGRATIONS).await?;
        Ok(store)
    }

    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Closes every connection; transactions still open end first.
    pub async fn close(&self) {
        // Closing reports nothing that the caller could act on.
        let _ = self.inner.reader.connection.clone().close().await;
        let _ = self.inner.writer.connection.clone().close().await;
        let _ = self.inner.lease.connection.clone().close().await;
    }
}

async fn open_sqlite(path: &std::path::Path, options: &StoreOptions) -> Result<Inner, OpenError> {
    create_private(path).map_err(|source| OpenError::File {
        path: path.to_owned(),
        source,
    })?;
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .pragma("wal_autocheckpoint", limits::SQLITE_WAL_PAGES.to_string())
        .busy_timeout(limits::SQLITE_BUSY)
        .statement_cache_capacity(limits::PREPARED_STATEMENTS)
        .disable_statement_logging();
    // A connection to a file does not grow stale, so it is neither probed nor replaced.
    let pool = |connections: u32| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(limits::ACQUIRE)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
    };
    let failed = |error| OpenError::Connect {
        source: DbErr::Conn(sea_orm::RuntimeErr::SqlxError(Arc::new(error))),
    };
    let writing = connect
        .clone()
        .pragma("cache_size", format!("-{}", limits::SQLITE_WRITER_KIB));
    let writer = connect_first(&pool(1), &writing).await.map_err(failed)?;
    let reader = pool(limits::SQLITE_READERS)
        .connect_with(connect.pragma("query_only", "true"))
        .await
        .map_err(failed)?;
    let noticed = Arc::new(Noticed::new(options.answer_within));
    let pool = |pool| Pool {
        connection: SqlxSqliteConnector::from_sqlx_sqlite_pool(pool),
        slots: None,
        noticed: noticed.clone(),
    };
    let writer = pool(writer);
    Ok(Inner {
        lease: writer.clone(),
        writer,
        reader: pool(reader),
        noticed,
        dialect: Dialect {
            backend: DbBackend::Sqlite,
            clock_offset_millis: options.clock_offset_millis,
        },
        database: options.database.clone(),
        #[cfg(feature = "faults")]
        faults: Default::default(),
    })
}

/// The first connection makes an empty file a WAL one, for which SQLite asks no busy handler: of two processes that start
/// together one is refused at once, and comes again for as long as a writer is waited for.
async fn connect_first(
    pool: &SqlitePoolOptions,
    connect: &SqliteConnectOptions,
) -> Result<sqlx::SqlitePool, sqlx::Error> {
    let end = std::time::Instant::now() + limits::SQLITE_BUSY;
    loop {
        match pool.clone().connect_with(connect.clone()).await {
            Err(error) if is_busy(&error) && std::time::Instant::now() < end => {
                tokio::time::sleep(limits::SQLITE_BUSY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// `SQLITE_BUSY` in any of its extended codes.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == 5)
}

/// Creates the file for its owner alone, before SQLite would create it for everyone to read.
fn create_private(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    opened.map(drop)
}

async fn open_postgres(url: &str, options: &StoreOptions) -> Result<Inner, OpenError> {
    let connect = PgConnectOptions::from_str(url)
        .map_err(|_| OpenError::Url)?
        .application_name("oac-core")
        .statement_cache_capacity(limits::PREPARED_STATEMENTS)
        .options(session_settings())
        // Always set: otherwise the driver would take one from the environment or a password file of the account.
        .password(options.password.as_ref().map_or("", |password| password.expose()))
        .disable_statement_logging();
    let noticed = Arc::new(Noticed::new(options.answer_within));
    let (before, after) = (noticed.clone(), noticed.clone());
    let pool: PgPoolOptions = PoolOptions::new()
        .max_connections(limits::POSTGRES_CONNECTIONS)
        .acquire_timeout(limits::ACQUIRE)
        .idle_timeout(Some(Duration::from_secs(600)))
        .test_before_acquire(false)
        .before_acquire(move |connection: &mut PgConnection, meta| {
            let noticed = before.clone();
            Box::pin(async move { noticed.before_lending(connection, meta.idle_for).await })
        })
        .after_release(move |connection: &mut PgConnection, _| {
            let noticed = after.clone();
            Box::pin(async move { noticed.after_use(connection).await })
        });
    let failed = |error| OpenError::Connect {
        source: DbErr::Conn(sea_orm::RuntimeErr::SqlxError(Arc::new(error))),
    };
    let lease = pool.clone().max_connections(1).connect_lazy_with(connect.clone());
    let all = pool.connect_with(connect).await.map_err(failed)?;
    let pool = |pool, connections: u32| Pool {
        connection: SqlxPostgresConnector::from_sqlx_postgres_pool(pool),
        slots: Some(Arc::new(Semaphore::new(connections as usize))),
        noticed: noticed.clone(),
    };
    let lease = pool(lease, 1);
    let pool = pool(all, limits::POSTGRES_CONNECTIONS);
    Ok(Inner {
        writer: pool.clone(),
        reader: pool,
        lease,
        noticed,
        dialect: Dialect {
            backend: DbBackend::Postgres,
            clock_offset_millis: options.clock_offset_millis,
        },
        database: options.database.clone(),
        #[cfg(feature = "faults")]
        faults: Default::default(),
    })
}

/// So that no dead owner's transaction delays a takeover (core.md section 3). Set with the session's start, before any
/// lock can be held.
fn session_settings() -> Vec<(&'static str, String)> {
    let timeout = limits::POSTGRES_TIMEOUT_MILLIS.to_string();
    let [idle, interval, count] = limits::POSTGRES_KEEPALIVE;
    vec![
        // The owner check reads after it has waited for the lock, and must see what was committed meanwhile.
        ("default_transaction_isolation", "read committed".to_owned()),
        // Statements here take milliseconds, and compiling one by a wrong guess of its rows takes tens of them.
        ("jit", "off".to_owned()),
        // Of notices only what an operator may have to act on.
        ("client_min_messages", "warning".to_owned()),
        ("idle_in_transaction_session_timeout", timeout.clone()),
        ("statement_timeout", timeout.clone()),
        ("lock_timeout", timeout),
        ("tcp_keepalives_idle", idle.to_string()),
        ("tcp_keepalives_interval", interval.to_string()),
        ("tcp_keepalives_count", count.to_string()),
        ("tcp_user_timeout", ((idle + interval * count) * 1000).to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use sqlx::Connection as _;

    use super::*;

    #[test]
    fn only_an_absolute_file_or_a_server_without_password_is_a_database() {
        let sqlite: Database = "sqlite:///var/lib/oac-core/core.db".parse().unwrap();
        assert_eq!(sqlite, Database::Sqlite("/var/lib/oac-core/core.db".into()));
        for server in [
            "postgres://core@db.example/core",
            "postgresql://core@10.0.0.1:5433/core",
        ] {
            let database: Database = server.parse().unwrap();
            assert_eq!(database, Database::Postgres(server.to_owned()));
        }
        for refused in [
            "",
            "core.db",
            "sqlite://relative.db",
            "sqlite::memory:",
            "sqlite:///",
            "sqlite:///a.db?mode=ro",
            "mysql://core@db/core",
        ] {
            assert!(
                matches!(refused.parse::<Database>(), Err(OpenError::Url)),
                "{refused}"
            );
        }
        for secret in [
            "postgres://core:hunter2@db/core",
            "postgres://core@db/core?password=hunter2",
        ] {
            let error = secret.parse::<Database>().unwrap_err();
            assert!(matches!(error, OpenError::PasswordInUrl));
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    /// core.md section 3: no dead owner's transaction delays a takeover. On every connection, that of the lease included.
    #[tokio::test]
    async fn pg_every_session_ends_what_idles_or_waits_for_3_s_and_a_silent_connection_within_10() {
        let database = oac_testkit::postgres::TestDatabase::create().await;
        let options = StoreOptions {
            password: database.password().map(Secret::new),
            ..StoreOptions::new(database.url().parse().unwrap())
        };
        let store = Store::open(options).await.unwrap();
        let settings = "SELECT current_setting('idle_in_transaction_session_timeout') AS idle, \
             current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock, \
             current_setting('jit') AS jit, \
             CAST(current_setting('tcp_keepalives_idle') AS BIGINT) \
             + CAST(current_setting('tcp_keepalives_interval') AS BIGINT) \
             * CAST(current_setting('tcp_keepalives_count') AS BIGINT) AS silent";
        for read in [
            store.single(),
            store.begin_unfenced().await.unwrap(),
            store.begin_lease().await.unwrap(),
        ] {
            let row = read.row(settings, vec![]).await.unwrap().unwrap();
            for name in ["idle", "statement", "lock"] {
                assert_eq!(row.get::<String>(name).unwrap(), "3s", "{name}");
            }
            assert_eq!(row.get::<String>("jit").unwrap(), "off");
            assert!((1..=10).contains(&row.get::<i64>("silent").unwrap()));
        }
        store.close().await;
    }

    #[tokio::test]
    async fn a_file_of_another_program_is_refused_and_gets_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let names = "SELECT group_concat(name) FROM sqlite_master";
        let raw = async |sql: &'static str| -> Option<String> {
            let options = SqliteConnectOptions::new()
                .filename(&path)
                .create_if_missing(true);
            let mut connection = options.connect().await.unwrap();
            let value = sqlx::query_scalar(sql)
                .fetch_optional(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
            value
        };
        raw("CREATE TABLE users (name text)").await;
        let opened = Store::open(StoreOptions::new(Database::Sqlite(path.clone()))).await;
        assert!(matches!(opened, Err(OpenError::Foreign)), "{opened:?}");
        assert_eq!(raw(names).await.as_deref(), Some("users"));
    }
}
