//! What a read or write of the store can answer besides rows.

use oac_model::{AllocationId, Generation, OwnerEpoch};
use sea_orm::{DbErr, RuntimeErr, SqlErr};

/// Failure of a read or write. Whatever it is, a transaction that answered it must not be committed; dropping it rolls
/// back.
#[derive(Debug, Clone, thiserror::Error)]
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
    /// The connection broke before anything was stored: the same step may be tried again.
    #[error("the connection to the database broke and nothing was stored; try again")]
    Broken {
        #[source]
        source: DbErr,
    },
    /// The connection broke while the database was asked to make a step durable: only reading tells whether it did.
    #[error("the database did not say whether the step was stored; look before it is repeated")]
    Unknown {
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
        matches!(
            self,
            Self::Busy { .. } | Self::Broken { .. } | Self::Revision { .. }
        )
    }

    /// The same failure as an answer to a commit.
    pub(crate) fn of_commit(self) -> Self {
        match self {
            Self::Broken { source } | Self::Database { source } => Self::Unknown { source },
            other => other,
        }
    }
}

impl From<DbErr> for StoreError {
    fn from(source: DbErr) -> Self {
        if matches!(source.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) {
            return Self::Duplicate { source };
        }
        match fault(&source) {
            Fault::Busy => Self::Busy { source },
            Fault::Connection => Self::Broken { source },
            Fault::Other => Self::Database { source },
        }
    }
}

/// Whose fault an error is.
enum Fault {
    Busy,
    Connection,
    Other,
}

fn fault(error: &DbErr) -> Fault {
    let error = match error {
        DbErr::ConnectionAcquire(_) => return Fault::Busy,
        DbErr::Exec(RuntimeErr::SqlxError(e))
        | DbErr::Query(RuntimeErr::SqlxError(e))
        | DbErr::Conn(RuntimeErr::SqlxError(e)) => e,
        _ => return Fault::Other,
    };
    match &**error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Fault::Busy,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::BeginFailed
        | sqlx::Error::WorkerCrashed => Fault::Connection,
        sqlx::Error::Database(e) => e.code().as_deref().map_or(Fault::Other, fault_of_code),
        _ => Fault::Other,
    }
}

fn fault_of_code(code: &str) -> Fault {
    match code {
        // PostgreSQL: serialization failure, deadlock, lock not available, statement or idle transaction ended by its
        // limit. SQLite: busy or locked.
        "40001" | "40P01" | "55P03" | "57014" | "25P03" | "5" | "6" | "261" | "262" | "517" => Fault::Busy,
        // PostgreSQL: shutdown by an administrator or after a crash, not yet started, ended idle, no connection left.
        "57P01" | "57P02" | "57P03" | "57P05" | "53300" => Fault::Connection,
        // Connection exceptions.
        code if code.len() == 5 && code.starts_with("08") => Fault::Connection,
        _ => Fault::Other,
    }
}
