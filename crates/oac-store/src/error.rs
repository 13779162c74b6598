//! What a read or write of the store can answer besides rows.

use oac_model::{AllocationId, Generation, OwnerEpoch};
use sea_orm::{DbErr, RuntimeErr, SqlErr};

/// Failure of a read or write. Whatever it is, a transaction that answered it must not be committed; dropping it rolls
/// back.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another Core owns the installation now; nothing was changed (INV-C1).
    #[error("this Core no longer owns the installation (epoch {epoch}); it must stand by")]
    NotOwner { epoch: OwnerEpoch },
    /// The allocation was written by someone else since it was read.
    #[error("allocation {allocation_id} changed meanwhile; read it again")]
    Revision { allocation_id: AllocationId },
    /// A placement named a generation without a row (INV-C4).
    #[error("generation {generation} does not exist; place again")]
    NoSuchGeneration { generation: Generation },
    /// A unique rule of the schema refused the row.
    #[error("a row that must be unique exists already; the write was refused")]
    Duplicate {
        #[source]
        source: DbErr,
    },
    /// A lock was asked for after a later one of the lock order: a defect of the caller.
    #[error("lock {asked} was asked for after {held}; take locks in the order of core.md section 2")]
    LockOrder { asked: &'static str, held: &'static str },
    /// A stored value is not one this version understands.
    #[error("column {column} holds a value this version cannot read; a newer oac-core may have written it")]
    Stored { column: String },
    /// A lock or connection was not to be had in time, or a deadlock was broken: the same step may be tried again.
    #[error("the database was too busy; try again")]
    Busy {
        #[source]
        source: DbErr,
    },
    #[error("the database did not answer as it should; look at its log and its disk")]
    Database {
        #[source]
        source: DbErr,
    },
}

impl StoreError {
    /// Whether the whole step may be tried again unchanged.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Revision { .. })
    }
}

impl From<DbErr> for StoreError {
    fn from(source: DbErr) -> Self {
        if matches!(source.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) {
            return Self::Duplicate { source };
        }
        if is_busy(&source) {
            return Self::Busy { source };
        }
        Self::Database { source }
    }
}

/// PostgreSQL: serialization failure, deadlock, lock not available, statement or idle transaction ended by its limit.
/// SQLite: busy or locked.
fn is_busy(error: &DbErr) -> bool {
    match error {
        DbErr::ConnectionAcquire(_) => true,
        DbErr::Exec(RuntimeErr::SqlxError(e))
        | DbErr::Query(RuntimeErr::SqlxError(e))
        | DbErr::Conn(RuntimeErr::SqlxError(e)) => match e.as_database_error() {
            Some(e) => matches!(
                e.code().as_deref(),
                Some("40001" | "40P01" | "55P03" | "57014" | "25P03" | "5" | "6" | "261" | "262" | "517")
            ),
            None => matches!(**e, sqlx::Error::PoolTimedOut),
        },
        _ => false,
    }
}
