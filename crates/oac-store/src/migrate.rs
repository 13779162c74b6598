//! The schema's versions, as a numbered list that is only ever added to.

use oac_model::InstallationId;

use crate::{
    OpenError, Store, StoreError,
    dialect::AdvisoryLock,
    limits,
    row::{Row, params},
    tx::Read,
};

/// One step of the schema. Its text is SQL of both dialects with `{uuid}` and `{bytes}` for their type names.
pub(crate) struct Migration {
    pub(crate) number: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
    /// Whether it also writes the deployment row with a fresh installation id.
    pub(crate) creates_installation: bool,
}

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "initial",
        sql: include_str!("schema/0001_initial.sql"),
        creates_installation: true,
    },
    Migration {
        number: 2,
        name: "drain deadline",
        sql: include_str!("schema/0002_drain_deadline.sql"),
        creates_installation: false,
    },
    Migration {
        number: 3,
        name: "unarchived sessions",
        sql: include_str!("schema/0003_unarchived_sessions.sql"),
        creates_installation: false,
    },
    Migration {
        number: 4,
        name: "observation",
        sql: include_str!("schema/0004_observation.sql"),
        creates_installation: false,
    },
    Migration {
        number: 5,
        name: "operations in play",
        sql: include_str!("schema/0005_operations_in_play.sql"),
        creates_installation: false,
    },
    Migration {
        number: 6,
        name: "kill owed",
        sql: include_str!("schema/0006_kill_owed.sql"),
        creates_installation: false,
    },
    Migration {
        number: 7,
        name: "suspended allocations",
        sql: include_str!("schema/0007_suspended_allocations.sql"),
        creates_installation: false,
    },
];

/// Brings the schema to the last of `migrations`. Each is one transaction, so a failed one leaves the one before.
pub(crate) async fn run(store: &Store, migrations: &[Migration]) -> Result<(), OpenError> {
    if is_foreign(store)
        .await
        .map_err(|source| OpenError::Version { source })?
    {
        return Err(OpenError::Foreign);
    }
    let known = migrations.last().map_or(0, |m| m.number);
    let found = version(store)
        .await
        .map_err(|source| OpenError::Version { source })?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    for migration in migrations.iter().filter(|m| m.number > found) {
        apply(store, migration)
            .await
            .map_err(|source| OpenError::Migration {
                number: migration.number,
                source,
            })?;
    }
    Ok(())
}

/// Whether a SQLite file holds tables and none of them is Core's: the file of another program, named by mistake. A
/// PostgreSQL database may be shared.
async fn is_foreign(store: &Store) -> Result<bool, StoreError> {
    if store.inner.dialect.is_postgres() {
        return Ok(false);
    }
    let sql = "SELECT COUNT(*) AS tables, COUNT(CASE WHEN name = 'schema_migrations' THEN 1 END) AS own \
        FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let tx = store.begin_unfenced().await?;
    let Some(row) = tx.row(sql, vec![]).await? else {
        return Ok(false);
    };
    Ok(row.get::<i64>("tables")? > 0 && row.get::<i64>("own")? == 0)
}

/// Number of the last migration applied; 0 for an empty database.
async fn version(store: &Store) -> Result<i64, StoreError> {
    let tx = store.begin_unfenced().await?.without_limit();
    lock(&tx).await?;
    tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations \
         (number bigint PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)",
        vec![],
    )
    .await?;
    let version = last(&tx).await?;
    tx.commit_unfenced().await?;
    Ok(version)
}

async fn last(tx: &Read) -> Result<i64, StoreError> {
    let sql = "SELECT COALESCE(MAX(number), 0) AS number FROM schema_migrations";
    let row: Option<Row> = tx.row(sql, vec![]).await?;
    row.map_or(Ok(0), |row| row.get("number"))
}

/// Processes that start together migrate one after the other.
async fn lock(tx: &Read) -> Result<(), StoreError> {
    if tx.dialect.is_postgres() {
        let wait = limits::MIGRATION_WAIT_MILLIS;
        tx.execute(&format!("SET LOCAL lock_timeout = {wait}"), vec![])
            .await?;
        tx.execute("SET LOCAL statement_timeout = 0", vec![]).await?;
        tx.execute(&AdvisoryLock::Migration.exclusive(), vec![]).await?;
    }
    Ok(())
}

async fn apply(store: &Store, migration: &Migration) -> Result<(), StoreError> {
    let tx = store.begin_unfenced().await?.without_limit();
    lock(&tx).await?;
    if last(&tx).await? >= migration.number {
        return tx.commit_unfenced().await;
    }
    let sql: String = migration
        .sql
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .flat_map(|line| [line, "\n"])
        .collect();
    for statement in tx.dialect.types(&sql).split(';') {
        if !statement.trim().is_empty() {
            tx.execute_unprepared(statement).await?;
        }
    }
    if migration.creates_installation {
        tx.execute(
            "INSERT INTO deployment (id, installation_id, generation, configuration, metadata, idle_seconds, \
             retention_seconds) VALUES (1, $1, 0, '{}', '{}', $2, $3)",
            params![
                InstallationId::random(),
                limits::DEFAULT_IDLE_SECONDS,
                limits::DEFAULT_RETENTION_SECONDS
            ],
        )
        .await?;
    }
    let sql = format!(
        "INSERT INTO schema_migrations (number, name, applied_at) VALUES ($1, $2, {})",
        tx.dialect.clock()
    );
    tx.execute(&sql, params![migration.number, migration.name.to_owned()])
        .await?;
    tx.commit_unfenced().await
}
