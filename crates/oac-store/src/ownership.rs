//! The owner lease: which Core acts, under which epoch, until when (core.md section 3).

use std::time::Duration;

use oac_model::{OwnerEpoch, Time};
use uuid::Uuid;

use crate::{
    ExclusiveLock, Store, StoreError,
    dialect::AdvisoryLock,
    row::{Row, params},
    tx::Read,
};

/// Names one run of one Core process; no later run has the same. Only its own doing raises the epoch while it holds the
/// lease: the completion of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(Uuid);

impl Holder {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// What an owner shows at each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    pub holder: Holder,
    pub epoch: OwnerEpoch,
}

/// The lease as it is stored, and the database's clock at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRow {
    pub holder: Option<Holder>,
    /// `None` before the first Core ever served.
    pub epoch: Option<OwnerEpoch>,
    pub expires_at: Time,
    pub now: Time,
}

impl OwnerRow {
    pub fn is(&self, ownership: &Ownership) -> bool {
        self.holder == Some(ownership.holder) && self.epoch == Some(ownership.epoch)
    }

    pub fn expired(&self) -> bool {
        self.expires_at <= self.now
    }

    fn from_row(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            holder: row.get::<Option<Uuid>>("holder")?.map(Holder),
            epoch: OwnerEpoch::try_from(row.get::<i64>("epoch")?).ok(),
            expires_at: row.get("expires_at")?,
            now: row.get("now")?,
        })
    }
}

/// When the lease may be taken.
#[derive(Debug, Clone, Copy)]
pub enum Claim<'a> {
    /// Only once it has expired.
    WhenExpired,
    /// At once: the exclusive lock of a SQLite database proves that no other Core runs.
    AtOnce(&'a ExclusiveLock),
}

impl Read {
    /// The lease as it is now.
    pub async fn owner(&self) -> Result<OwnerRow, StoreError> {
        let sql = format!(
            "SELECT holder, epoch, expires_at, {} AS now FROM core_owner WHERE id = 1",
            self.dialect.clock()
        );
        match self.row(&sql, vec![]).await? {
            Some(row) => OwnerRow::from_row(&row),
            None => Err(StoreError::Stored {
                column: "core_owner.id".to_owned(),
            }),
        }
    }
}

impl Store {
    /// Takes the lease for `holder` with the next epoch (INV-C2); `None` while another Core's has not expired.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while transactions of the former owner have not ended; ask again.
    pub async fn acquire_ownership(
        &self,
        holder: Holder,
        lease: Duration,
        claim: Claim<'_>,
    ) -> Result<Option<Ownership>, StoreError> {
        let at_once = matches!(claim, Claim::AtOnce(_));
        // A waiting exclusive lock would hold up the owner's own transactions: ask only for a lease that looks free.
        if !at_once && !self.single().owner().await?.expired() {
            return Ok(None);
        }
        let tx = self.begin_lease().await?;
        if tx.dialect.is_postgres() {
            tx.execute(&AdvisoryLock::Owner.exclusive(), vec![]).await?;
        }
        let clock = tx.dialect.clock();
        let free = if at_once {
            "TRUE".to_owned()
        } else {
            format!("expires_at <= {clock}")
        };
        let sql = format!(
            "UPDATE core_owner SET holder = $1, epoch = epoch + 1, expires_at = {clock} + $2 \
             WHERE id = 1 AND {free} RETURNING epoch"
        );
        let row = tx.row(&sql, params![holder.0, millis(lease)]).await?;
        let Some(row) = row else { return Ok(None) };
        let epoch = row.get("epoch")?;
        tx.commit_unfenced().await?;
        Ok(Some(Ownership { holder, epoch }))
    }

    /// Prolongs the lease to `lease` from now and returns it as it is: under a later epoch when this holder has begun one.
    /// `None` when another Core has taken it. It waits for no owner transaction but one that begins an epoch.
    pub async fn renew_ownership(
        &self,
        holder: Holder,
        lease: Duration,
    ) -> Result<Option<Ownership>, StoreError> {
        self.set_expiry(holder, lease).await
    }

    /// Expires the lease at once, for a clean stop; harmless when another Core has taken it.
    pub async fn release_ownership(&self, holder: Holder) -> Result<(), StoreError> {
        self.set_expiry(holder, Duration::ZERO).await.map(drop)
    }

    async fn set_expiry(&self, holder: Holder, lease: Duration) -> Result<Option<Ownership>, StoreError> {
        let tx = self.begin_lease().await?;
        let sql = format!(
            "UPDATE core_owner SET expires_at = {} + $1 WHERE id = 1 AND holder = $2 RETURNING epoch",
            tx.dialect.clock()
        );
        let row = tx.row(&sql, params![millis(lease), holder.0]).await?;
        let Some(row) = row else { return Ok(None) };
        let epoch = row.get("epoch")?;
        tx.commit_unfenced().await?;
        Ok(Some(Ownership { holder, epoch }))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
