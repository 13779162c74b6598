//! The few places where the two databases differ.

use sea_orm::DbBackend;

/// Which database a store runs on, and the offset of its clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) backend: DbBackend,
    pub(crate) clock_offset_millis: i64,
}

impl Dialect {
    pub(crate) fn is_postgres(self) -> bool {
        self.backend == DbBackend::Postgres
    }

    /// The database's clock as an SQL expression: milliseconds since 1970 plus the offset.
    pub(crate) fn clock(self) -> String {
        let clock = if self.is_postgres() {
            "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
        } else {
            "CAST(ROUND(unixepoch('subsec') * 1000) AS BIGINT)"
        };
        format!("({clock} + ({}))", self.clock_offset_millis)
    }

    /// Suffix that locks the selected rows for writing. Keys stay readable, so a foreign key check of another
    /// transaction does not wait and cannot upset the lock order.
    pub(crate) fn row_lock(self) -> &'static str {
        if self.is_postgres() {
            " FOR NO KEY UPDATE"
        } else {
            ""
        }
    }

    /// As [`Self::row_lock`], of those rows alone that nobody else has locked: the others are not selected.
    pub(crate) fn free_row_lock(self) -> &'static str {
        if self.is_postgres() {
            " FOR NO KEY UPDATE SKIP LOCKED"
        } else {
            ""
        }
    }

    /// The end of a statement that keeps its rows from being written by others, who may read them so too.
    pub(crate) fn shared_row_lock(self) -> &'static str {
        if self.is_postgres() { " FOR SHARE" } else { "" }
    }

    /// The schema text with this dialect's type names.
    pub(crate) fn types(self, ddl: &str) -> String {
        let (uuid, bytes) = if self.is_postgres() {
            ("uuid", "bytea")
        } else {
            ("blob", "blob")
        };
        ddl.replace("{uuid}", uuid).replace("{bytes}", bytes)
    }
}

/// The advisory locks of PostgreSQL, within one class that belongs to oac.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AdvisoryLock {
    Owner = 1,
    Deployment = 2,
    Migration = 3,
}

const CLASS: i32 = 0x006f_6163;

impl AdvisoryLock {
    pub(crate) fn exclusive(self) -> String {
        format!("SELECT pg_advisory_xact_lock({CLASS}, {})", self as i32)
    }

    pub(crate) fn shared(self) -> String {
        format!("SELECT pg_advisory_xact_lock_shared({CLASS}, {})", self as i32)
    }
}
