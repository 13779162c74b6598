//! Snapshot reads and owner transactions.

use std::{ops::Deref, sync::Arc, time::Duration};

use oac_model::{AllocationId, NodeId, SessionId, Time};
use parking_lot::Mutex;
use sea_orm::{AccessMode, IsolationLevel, SqliteTransactionMode, Statement, TransactionOptions, Value};

use crate::{
    AllocationRow, NodeRow, Ownership, SessionRow, Store, StoreError,
    dialect::{AdvisoryLock, Dialect},
    exec::{Exec, Noticed, Pool, Tries},
    many::pieces,
    row::{Column, Row, Stored},
};

/// Something to read from: a snapshot, or (through [`Tx`]) an owner transaction. The reading functions are grouped by
/// subject in the other modules of this crate.
#[derive(Debug)]
pub struct Read {
    exec: Exec,
    pub(crate) dialect: Dialect,
    noticed: Arc<Noticed>,
    /// Whether an answer is waited for only so long.
    limited: bool,
    /// None on the lease's own connection.
    #[cfg(feature = "faults")]
    faults: Option<Arc<crate::faults::Faults>>,
}

/// Which deployment lock a transaction takes (core.md section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeploymentLock {
    /// Enrollment, placement, restore, pin promotion, retention answers.
    Shared,
    /// Selection writes, reset, suspension policy, generation collection.
    Exclusive,
}

/// A transaction of the current owner. Dropped without [`Tx::commit`], it changes nothing.
#[derive(Debug)]
pub struct Tx {
    read: Read,
    now: Time,
    ownership: Ownership,
    held: Mutex<Rank>,
}

/// The last transaction of an epoch: none of that epoch is open beside it, and it may begin the next one, in which the
/// same holder goes on ([`LastTx::complete_reset`]).
#[derive(Debug)]
pub struct LastTx(Tx);

/// The last lock taken, in the order of core.md section 2; Projects come between nodes and Sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Owner,
    Deployment,
    Node(NodeId),
    Project,
    Session,
    Allocation,
}

impl Rank {
    fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Deployment => "deployment",
            Self::Node(_) => "node",
            Self::Project => "project",
            Self::Session => "session",
            Self::Allocation => "allocation",
        }
    }
}

impl Store {
    /// A consistent snapshot of everything committed; it never waits for a writer. Hold it briefly: PostgreSQL ends a
    /// transaction that idles for 3 s.
    ///
    /// # Errors
    /// [`StoreError::Busy`] without a free connection, [`StoreError::Broken`], [`StoreError::Database`].
    pub async fn read(&self) -> Result<Read, StoreError> {
        let postgres = self.inner.dialect.is_postgres();
        let options = TransactionOptions {
            isolation_level: postgres.then_some(IsolationLevel::RepeatableRead),
            access_mode: postgres.then_some(AccessMode::ReadOnly),
            sqlite_transaction_mode: (!postgres).then_some(SqliteTransactionMode::Deferred),
        };
        self.begin_on(&self.inner.reader, options).await
    }

    /// For a single read: each statement sees what is committed when it starts, and no transaction is opened. A statement
    /// whose connection broke is repeated on another.
    pub fn single(&self) -> Read {
        self.handle(Exec::Pool(self.inner.reader.connection.clone()))
    }

    /// A transaction of the Core that holds `ownership`. Holder and epoch are checked under the shared owner lock, which
    /// it keeps until it ends (INV-C1).
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] when another Core took over; then nothing else may be done.
    pub async fn begin(&self, ownership: &Ownership) -> Result<Tx, StoreError> {
        self.begin_under(ownership, &AdvisoryLock::Owner.shared()).await
    }

    /// As [`Self::begin`], once every other transaction of the epoch has ended, and with none beside it until it ends.
    ///
    /// # Errors
    /// As [`Self::begin`]; [`StoreError::Busy`] when the others do not end in time.
    pub async fn begin_last(&self, ownership: &Ownership) -> Result<LastTx, StoreError> {
        let tx = self
            .begin_under(ownership, &AdvisoryLock::Owner.exclusive())
            .await?;
        Ok(LastTx(tx))
    }

    async fn begin_under(&self, ownership: &Ownership, lock: &str) -> Result<Tx, StoreError> {
        let mut tries = Tries::of_begin();
        loop {
            let begun = self.begin_once(ownership, lock).await;
            if !tries.again(&begun) {
                return begun;
            }
        }
    }

    async fn begin_once(&self, ownership: &Ownership, lock: &str) -> Result<Tx, StoreError> {
        let read = self.begin_unfenced().await?;
        // SQLite has one writer.
        if read.dialect.is_postgres() {
            read.execute(lock, vec![]).await?;
        }
        let owner = read.owner().await?;
        if !owner.is(ownership) {
            return Err(StoreError::NotOwner {
                epoch: ownership.epoch,
            });
        }
        Ok(Tx {
            read,
            now: owner.now,
            ownership: *ownership,
            held: Mutex::new(Rank::Owner),
        })
    }

    /// A writing transaction that no epoch fences: for migrations and Core keys.
    pub(crate) async fn begin_unfenced(&self) -> Result<Read, StoreError> {
        self.begin_on(&self.inner.writer, self.writing()).await
    }

    /// One for the lease itself.
    pub(crate) async fn begin_lease(&self) -> Result<Read, StoreError> {
        #[allow(unused_mut, reason = "changed with the feature alone")]
        let mut lease = self.begin_on(&self.inner.lease, self.writing()).await?;
        #[cfg(feature = "faults")]
        {
            lease.faults = None;
        }
        Ok(lease)
    }

    fn writing(&self) -> TransactionOptions {
        TransactionOptions {
            isolation_level: None,
            access_mode: None,
            sqlite_transaction_mode: (!self.inner.dialect.is_postgres())
                .then_some(SqliteTransactionMode::Immediate),
        }
    }

    async fn begin_on(&self, pool: &Pool, options: TransactionOptions) -> Result<Read, StoreError> {
        let mut tries = Tries::of_begin();
        loop {
            let begun = self.inner.noticed.look(pool.begin(options).await);
            if !tries.again(&begun) {
                return begun.map(|exec| self.handle(exec));
            }
        }
    }

    fn handle(&self, exec: Exec) -> Read {
        Read {
            exec,
            dialect: self.inner.dialect,
            noticed: self.inner.noticed.clone(),
            #[cfg(feature = "faults")]
            faults: Some(self.inner.faults.clone()),
            limited: self.inner.dialect.is_postgres(),
        }
    }
}

impl Read {
    fn statement(&self, sql: &str, params: Vec<Value>) -> Statement {
        #[cfg(feature = "faults")]
        if let Some(faults) = &self.faults {
            faults.asked(sql);
        }
        Statement::from_sql_and_values(self.dialect.backend, sql, params)
    }

    /// For statements that may take their time.
    pub(crate) fn without_limit(mut self) -> Self {
        self.limited = false;
        self
    }

    /// Waits for a statement; on PostgreSQL not for ever.
    async fn answer<T>(
        &self,
        statement: impl Future<Output = Result<T, sea_orm::DbErr>>,
    ) -> Result<T, StoreError> {
        #[cfg(feature = "faults")]
        if let Some(faults) = &self.faults {
            faults.alive()?;
        }
        let answer = if self.limited {
            self.noticed.limited(self.exec.acquire(), statement).await
        } else {
            statement.await
        };
        self.noticed.look(answer)
    }

    /// Rows changed by a writing statement.
    pub(crate) async fn execute(&self, sql: &str, params: Vec<Value>) -> Result<u64, StoreError> {
        let statement = self.statement(sql, params);
        let result = self.answer(self.exec.execute(statement)).await?;
        Ok(result.rows_affected())
    }

    /// A statement of the schema.
    pub(crate) async fn execute_unprepared(&self, sql: &str) -> Result<(), StoreError> {
        self.noticed
            .look(self.exec.execute_unprepared(sql).await)
            .map(drop)
    }

    pub(crate) async fn row(&self, sql: &str, params: Vec<Value>) -> Result<Option<Row>, StoreError> {
        let statement = self.statement(sql, params);
        let mut tries = self.exec.tries();
        loop {
            let row = self.answer(self.exec.query_one(statement.clone())).await;
            if !tries.again(&row) {
                return Ok(row?.map(Row));
            }
        }
    }

    pub(crate) async fn rows(&self, sql: &str, params: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(sql, params);
        let mut tries = self.exec.tries();
        loop {
            let rows = self.answer(self.exec.query_all(statement.clone())).await;
            if !tries.again(&rows) {
                return Ok(rows?.into_iter().map(Row).collect());
            }
        }
    }

    /// The table's one row that `rest` (`WHERE …`) names.
    pub(crate) async fn one<T: Stored>(
        &self,
        rest: &str,
        params: Vec<Value>,
    ) -> Result<Option<T>, StoreError> {
        let sql = format!("SELECT {} FROM {} {rest}", T::list(""), T::TABLE);
        let row = self.row(&sql, params).await?;
        row.as_ref().map(T::from_row).transpose()
    }

    /// The table's rows that `rest` (`WHERE … ORDER BY … LIMIT …`) names.
    pub(crate) async fn many<T: Stored>(&self, rest: &str, params: Vec<Value>) -> Result<Vec<T>, StoreError> {
        let sql = format!("SELECT {} FROM {} {rest}", T::list(""), T::TABLE);
        self.rows(&sql, params).await?.iter().map(T::from_row).collect()
    }

    /// Inserts a whole row; `rest` may hold an `ON CONFLICT` clause. True if a row was inserted.
    pub(crate) async fn insert<T: Stored>(&self, row: &T, rest: &str) -> Result<bool, StoreError> {
        let places: Vec<String> = (1..=T::COLUMNS.len()).map(|n| format!("${n}")).collect();
        let sql = format!(
            "INSERT INTO {} ({}) VALUES ({}) {rest}",
            T::TABLE,
            T::list(""),
            places.join(", ")
        );
        Ok(self.execute(&sql, row.values()).await? == 1)
    }

    /// Splits off the statement that ends a transaction.
    async fn end<F: Future<Output = Result<(), sea_orm::DbErr>>>(
        self,
        end: impl FnOnce(Exec) -> F,
    ) -> Result<(), StoreError> {
        let answer = if self.limited {
            self.noticed.limited(Duration::ZERO, end(self.exec)).await
        } else {
            end(self.exec).await
        };
        self.noticed.look(answer)
    }

    pub(crate) async fn commit_unfenced(self) -> Result<(), StoreError> {
        self.end(Exec::commit).await.map_err(StoreError::of_commit)
    }

    /// The database's clock now, offset included.
    pub async fn database_time(&self) -> Result<Time, StoreError> {
        let sql = format!("SELECT {} AS now", self.dialect.clock());
        match self.row(&sql, vec![]).await? {
            Some(row) => row.get("now"),
            None => Err(StoreError::Stored {
                column: "now".to_owned(),
            }),
        }
    }
}

impl Deref for LastTx {
    type Target = Tx;
    fn deref(&self) -> &Tx {
        &self.0
    }
}

impl LastTx {
    /// As [`Tx::commit`].
    ///
    /// # Errors
    /// As [`Tx::commit`].
    pub async fn commit(self) -> Result<(), StoreError> {
        self.0.commit().await
    }
}

impl Deref for Tx {
    type Target = Read;
    fn deref(&self) -> &Read {
        &self.read
    }
}

impl Tx {
    /// The database's clock when this transaction began, offset included.
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Makes everything this transaction wrote durable.
    ///
    /// # Errors
    /// After [`StoreError::Unknown`] the outcome is unknown and must be read; after any other nothing was stored.
    pub async fn commit(self) -> Result<(), StoreError> {
        #[cfg(feature = "faults")]
        if let Some(faults) = self.read.faults.clone() {
            faults.before_commit().await?;
            self.read.commit_unfenced().await?;
            return faults.after_commit().await;
        }
        self.read.commit_unfenced().await
    }

    /// Undoes everything at once; dropping does the same a little later.
    pub async fn rollback(self) -> Result<(), StoreError> {
        self.read.end(Exec::rollback).await
    }

    pub async fn lock_deployment(&self, lock: DeploymentLock) -> Result<(), StoreError> {
        self.take(Rank::Deployment)?;
        if self.dialect.is_postgres() {
            let sql = match lock {
                DeploymentLock::Shared => AdvisoryLock::Deployment.shared(),
                DeploymentLock::Exclusive => AdvisoryLock::Deployment.exclusive(),
            };
            self.execute(&sql, vec![]).await?;
        }
        Ok(())
    }

    /// Locks a node's row and returns it as it is now, retired ones included. Several nodes: by ascending id.
    pub async fn lock_node(&self, id: NodeId) -> Result<Option<NodeRow>, StoreError> {
        self.take(Rank::Node(id))?;
        self.lock_row("id = $1", id).await
    }

    /// Locks these nodes' rows and returns those there are, retired ones included; both by ascending id.
    pub async fn lock_nodes(&self, ids: &[NodeId]) -> Result<Vec<NodeRow>, StoreError> {
        self.lock_nodes_with(self.dialect.row_lock(), ids).await
    }

    /// As [`Self::lock_nodes`], but of those rows alone that no other transaction holds now: a node whose row is left out is
    /// left for later, and none waits for it. SQLite has one writer, so there all are free.
    pub async fn lock_free_nodes(&self, ids: &[NodeId]) -> Result<Vec<NodeRow>, StoreError> {
        self.lock_nodes_with(self.dialect.free_row_lock(), ids).await
    }

    async fn lock_nodes_with(&self, lock: &str, ids: &[NodeId]) -> Result<Vec<NodeRow>, StoreError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        for id in &ids {
            self.take(Rank::Node(*id))?;
        }
        let mut rows = Vec::with_capacity(ids.len());
        for piece in pieces(&ids) {
            // A statement locks its rows in the order in which it returns them.
            let rest = format!(
                "WHERE id IN ({}) ORDER BY id{lock}",
                self.dialect.places(piece.len()),
            );
            let params = piece.iter().map(Column::bind).collect();
            rows.extend(self.many::<NodeRow>(&rest, params).await?);
        }
        Ok(rows)
    }

    pub async fn lock_session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.take(Rank::Session)?;
        self.lock_row("id = $1", id).await
    }

    /// Locks those of these allocations that are unreleased and that no other transaction holds now, and names them, by
    /// ascending id.
    pub async fn lock_free_allocations(&self, ids: &[AllocationId]) -> Result<Vec<AllocationId>, StoreError> {
        self.take(Rank::Allocation)?;
        let mut free = Vec::with_capacity(ids.len());
        for piece in pieces(ids) {
            let sql = format!(
                "SELECT id FROM allocations WHERE id IN ({}) AND released_at IS NULL ORDER BY id{}",
                self.dialect.places(piece.len()),
                self.dialect.free_row_lock()
            );
            let rows = self.rows(&sql, piece.iter().map(Column::bind).collect()).await?;
            for row in &rows {
                free.push(row.get("id")?);
            }
        }
        Ok(free)
    }

    pub async fn lock_allocation(&self, id: AllocationId) -> Result<Option<AllocationRow>, StoreError> {
        self.take(Rank::Allocation)?;
        self.lock_row("id = $1", id).await
    }

    async fn lock_row<T: Stored, I: Column>(&self, condition: &str, id: I) -> Result<Option<T>, StoreError> {
        let rest = format!("WHERE {condition}{}", self.dialect.row_lock());
        self.one(&rest, vec![id.bind()]).await
    }

    pub(crate) fn take(&self, asked: Rank) -> Result<(), StoreError> {
        let mut held = self.held.lock();
        if asked < *held {
            return Err(StoreError::LockOrder {
                asked: asked.name(),
                held: held.name(),
            });
        }
        *held = asked;
        Ok(())
    }
}
