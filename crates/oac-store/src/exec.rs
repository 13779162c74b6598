//! Statements and transactions on pooled connections. Whatever a caller or a connection does, the next caller notices
//! nothing of it.
//!
//! - **A caller may go away at any await**: an HTTP client hangs up, a task is aborted. PostgreSQL's driver forgets a
//!   `BEGIN` whose answer nobody awaited, and the connection would be used again inside that transaction. So a task of its
//!   own finishes every begin; if nobody wants the transaction any more it is rolled back. A statement cut short needs
//!   nothing: the pool reads the rest of its answer before it lends the connection again, or closes it.
//! - **A connection may break**: the server restarts, an administrator or a limit ends it. All that rested since are then
//!   probed before they are lent, and what has done nothing yet (a begin, a single read) is tried on another.
//! - **A server may fall silent**: each statement has a limit here too, and a connection without an answer is closed.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sea_orm::{
    ConnAcquireErr, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbErr, ExecResult, QueryResult,
    RuntimeErr, Statement, TransactionOptions, TransactionTrait as _,
};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{StoreError, limits};

/// Where statements go.
#[derive(Debug)]
pub(crate) enum Exec {
    /// Each statement on its own.
    Pool(DatabaseConnection),
    Transaction(Begun),
}

/// An open transaction. Dropped, it is rolled back.
#[derive(Debug)]
pub(crate) struct Begun {
    transaction: DatabaseTransaction,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Exec {
    pub(crate) async fn execute(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        match self {
            Self::Pool(c) => c.execute_raw(statement).await,
            Self::Transaction(c) => c.transaction.execute_raw(statement).await,
        }
    }

    pub(crate) async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        match self {
            Self::Pool(c) => c.execute_unprepared(sql).await,
            Self::Transaction(c) => c.transaction.execute_unprepared(sql).await,
        }
    }

    pub(crate) async fn query_one(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        match self {
            Self::Pool(c) => c.query_one_raw(statement).await,
            Self::Transaction(c) => c.transaction.query_one_raw(statement).await,
        }
    }

    pub(crate) async fn query_all(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        match self {
            Self::Pool(c) => c.query_all_raw(statement).await,
            Self::Transaction(c) => c.transaction.query_all_raw(statement).await,
        }
    }

    pub(crate) async fn commit(self) -> Result<(), DbErr> {
        match self {
            Self::Pool(_) => Ok(()),
            Self::Transaction(c) => c.transaction.commit().await,
        }
    }

    pub(crate) async fn rollback(self) -> Result<(), DbErr> {
        match self {
            Self::Pool(_) => Ok(()),
            Self::Transaction(c) => c.transaction.rollback().await,
        }
    }

    /// How long it may take until a connection has the statement.
    pub(crate) fn acquire(&self) -> Duration {
        match self {
            Self::Pool(_) => limits::ACQUIRE,
            Self::Transaction(_) => Duration::ZERO,
        }
    }

    /// How often a reading statement is tried: a snapshot ends with its connection.
    pub(crate) fn tries(&self) -> Tries {
        Tries {
            left: match self {
                Self::Pool(_) => limits::CONNECTION_TRIES - 1,
                Self::Transaction(_) => 0,
            },
        }
    }
}

/// A pool and the places in it.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) connection: DatabaseConnection,
    /// PostgreSQL: one for each connection, so that the begins nobody waits for any more stay as few. SQLite's driver
    /// undoes such a begin itself.
    pub(crate) slots: Option<Arc<Semaphore>>,
    pub(crate) noticed: Arc<Noticed>,
}

impl Pool {
    pub(crate) async fn begin(&self, options: TransactionOptions) -> Result<Exec, DbErr> {
        let Some(slots) = &self.slots else {
            let transaction = self.connection.begin_with_options(options).await?;
            return Ok(Exec::Transaction(Begun {
                transaction,
                _slot: None,
            }));
        };
        let slot = match timeout(limits::ACQUIRE, slots.clone().acquire_owned()).await {
            Ok(Ok(slot)) => slot,
            Ok(Err(_)) => return Err(DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed)),
            Err(_) => return Err(DbErr::ConnectionAcquire(ConnAcquireErr::Timeout)),
        };
        let (connection, noticed) = (self.connection.clone(), self.noticed.clone());
        let begun = finish(async move {
            let begin = connection.begin_with_options(options);
            let transaction = noticed.limited(limits::ACQUIRE, begin).await?;
            Ok(Exec::Transaction(Begun {
                transaction,
                _slot: Some(slot),
            }))
        });
        match begun.await {
            Ok(result) => result,
            // The runtime ends, and with it everything that could have asked.
            Err(_) => Err(DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed)),
        }
    }
}

/// Runs to its end whether or not anybody still waits for it.
#[expect(
    clippy::disallowed_methods,
    reason = "it ends within the time limits of a begin, and its result is dropped if nobody waits"
)]
fn finish<T: Send + 'static>(
    future: impl Future<Output = Result<T, DbErr>> + Send + 'static,
) -> tokio::task::JoinHandle<Result<T, DbErr>> {
    tokio::spawn(future)
}

fn no_answer() -> DbErr {
    let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "the server did not answer");
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(sqlx::Error::Io(error))))
}

/// Tries of something that has no effect before it succeeds.
#[derive(Debug)]
pub(crate) struct Tries {
    left: u32,
}

impl Tries {
    pub(crate) fn of_begin() -> Self {
        Self {
            left: limits::CONNECTION_TRIES - 1,
        }
    }

    /// Whether to try once more, on another connection.
    pub(crate) fn again<T>(&mut self, result: &Result<T, StoreError>) -> bool {
        let Err(StoreError::Broken { source }) = result else {
            return false;
        };
        let again = self.left > 0;
        if again {
            self.left -= 1;
            tracing::warn!(error = %source, "a connection to the database broke: trying another");
        }
        again
    }
}

/// What was noticed of the server's connections: when one last broke, and when one last gave no answer.
#[derive(Debug)]
pub(crate) struct Noticed {
    /// The longest wait for an answer.
    answer_within: Duration,
    since: Instant,
    /// Milliseconds after `since`, plus one; zero for never.
    broken: AtomicU64,
    silent: AtomicU64,
}

impl Noticed {
    pub(crate) fn new(answer_within: Duration) -> Self {
        Self {
            answer_within,
            since: Instant::now(),
            broken: AtomicU64::new(0),
            silent: AtomicU64::new(0),
        }
    }

    fn mark(&self, at: &AtomicU64) {
        at.store(self.since.elapsed().as_millis() as u64 + 1, Ordering::SeqCst);
    }

    fn ago(&self, at: &AtomicU64) -> Option<Duration> {
        let at = at.load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.since.elapsed().saturating_sub(Duration::from_millis(at)))
    }

    /// Waits for a PostgreSQL server's answer, but not for ever; `more` for what comes before the question.
    pub(crate) async fn limited<T>(
        &self,
        more: Duration,
        statement: impl Future<Output = Result<T, DbErr>>,
    ) -> Result<T, DbErr> {
        let mut statement = pin!(statement);
        timeout(self.answer_within + more, &mut statement)
            .await
            .unwrap_or_else(|_| {
                // Before the statement is dropped and its connection goes back.
                self.mark(&self.silent);
                Err(no_answer())
            })
    }

    pub(crate) fn look<T>(&self, result: Result<T, DbErr>) -> Result<T, StoreError> {
        result.map_err(|error| {
            let error = StoreError::from(error);
            if matches!(error, StoreError::Broken { .. }) {
                self.mark(&self.broken);
            }
            error
        })
    }

    /// Before a connection is lent that rested for `idle_for`. An error makes the pool close it and take another.
    pub(crate) async fn before_lending(
        &self,
        connection: &mut PgConnection,
        idle_for: Duration,
    ) -> Result<bool, sqlx::Error> {
        let suspect = self
            .ago(&self.broken)
            // A millisecond for what the clocks' resolution hides.
            .is_some_and(|ago| ago <= idle_for + Duration::from_millis(1));
        if suspect || idle_for > limits::PROBE_AFTER_IDLE {
            within(limits::PROBE, connection.ping()).await?;
        }
        Ok(true)
    }

    /// Before a connection goes back to rest. One that was given up while it had not answered would hold its place for as
    /// long as the silence lasts, or come back inside the transaction it was asked to begin.
    pub(crate) async fn after_use(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        if self
            .ago(&self.silent)
            .is_some_and(|ago| ago < limits::SILENCE_REMEMBERED)
        {
            within(limits::PROBE, connection.execute("ROLLBACK")).await?;
        }
        Ok(true)
    }
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout(limit, answer).await {
        Ok(result) => result,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}
