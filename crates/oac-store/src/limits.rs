//! Every bound of this crate.

use std::time::Duration;

/// The suspension policy of a deployment that nobody changed (core.md section 5).
pub const DEFAULT_IDLE_SECONDS: u32 = 300;
pub const DEFAULT_RETENTION_SECONDS: u32 = 86_400;
/// Allocations with one diagnostic that are listed.
pub const DIAGNOSED_ALLOCATIONS: u64 = 1000;
/// Generations deleted in one collection pass (core.md section 6).
pub const COLLECTED_GENERATIONS: u64 = 32;
/// Events kept for a Session (sessions.md section 2).
pub const EVENTS_KEPT: i64 = 10_000;
/// How long an idempotency record answers (sessions.md section 2).
pub const IDEMPOTENCY_MILLIS: i64 = 24 * 3600 * 1000;
/// Rows removed by one call of a pruning function.
pub const PRUNE_BATCH: u64 = 500;
/// Console sessions of one Core key; a further sign-in ends the one that was not used for longest.
pub const CONSOLE_SESSIONS: u64 = 100;
/// A console session ends after so long without use (console.md section 1).
pub const CONSOLE_IDLE_MILLIS: i64 = 12 * 3600 * 1000;
/// A console session ends so long after its sign-in.
pub const CONSOLE_LIFE_MILLIS: i64 = 7 * 24 * 3600 * 1000;
/// The use of a console session is stored at most this often, so that a page that polls does not write.
pub const CONSOLE_USE_MILLIS: i64 = 60 * 1000;
/// Rows that one statement names.
pub const ROWS_PER_STATEMENT: usize = 256;

/// A lock or statement of an owner's PostgreSQL session, and its idleness within a transaction (core.md section 3).
pub(crate) const POSTGRES_TIMEOUT_MILLIS: u64 = 3000;
/// Seconds of silence, between probes, and probes, before the server drops a dead client: 10 s together.
pub(crate) const POSTGRES_KEEPALIVE: [u64; 3] = [4, 2, 3];
pub(crate) const POSTGRES_CONNECTIONS: u32 = 24;
pub(crate) const SQLITE_READERS: u32 = 8;
/// Another process (a key command beside a serving Core) holds the SQLite writer at most this long.
pub(crate) const SQLITE_BUSY: Duration = Duration::from_secs(5);
/// KiB of pages that the writing connection to SQLite keeps. Rows have random keys: with the library's 2 MiB the inner
/// pages of a large database's indexes are read from the file again in every transaction.
pub(crate) const SQLITE_WRITER_KIB: u32 = 64 * 1024;
/// Pages of the write-ahead log (4 KiB each) after which it is copied into the database. The same page, changed by many
/// transactions, is then copied once; a restart after a kill reads at most these 32 MiB.
pub(crate) const SQLITE_WAL_PAGES: u32 = 8_000;
/// Between two tries of the first connection, which SQLite refuses at once instead.
pub(crate) const SQLITE_BUSY_PAUSE: Duration = Duration::from_millis(20);
/// The longest wait for a free connection.
pub(crate) const ACQUIRE: Duration = Duration::from_secs(10);
/// The longest wait for an answer of a PostgreSQL server.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// The longest wait for the answer to a probe of a connection.
pub(crate) const PROBE: Duration = Duration::from_secs(2);
/// For so long after an answer that did not come is a connection probed before it goes back to the pool.
pub(crate) const SILENCE_REMEMBERED: Duration = Duration::from_secs(60);
/// Tries of what has no effect before it succeeds, each on another connection, when connections break.
pub(crate) const CONNECTION_TRIES: u32 = 3;
/// An idle pooled connection is probed before its next use after this time.
pub(crate) const PROBE_AFTER_IDLE: Duration = Duration::from_secs(5);
/// Distinct statements a connection keeps prepared.
pub(crate) const PREPARED_STATEMENTS: usize = 256;
/// How long a migration waits for another process's.
pub(crate) const MIGRATION_WAIT_MILLIS: u64 = 60_000;
