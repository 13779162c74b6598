//! A reset of the deployment: its rows, what is left to end, and its end (core.md section 14).

use oac_model::{AllocationState, NodeId, OwnerEpoch, SessionId};

use crate::{
    AllocationDiagnostic, AllocationRow, LastTx, ResetClear, ResourceCounts, StoreError, Tx, limits,
    row::{Column, Row, params},
    tx::Read,
};

/// A reset to be stored; it begins, and its deadline counts, from the transaction's time.
#[derive(Debug, Clone)]
pub struct NewReset {
    pub clear: ResetClear,
    /// Of an automatic one.
    pub deadline_seconds: Option<u32>,
    /// Who asked for it and from where, as the audit log spells them.
    pub actor: String,
    pub source: String,
}

/// A Session that is not archived, as a reset sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetSession {
    pub id: SessionId,
    /// It has a running or waiting Turn, or a file is being written to it.
    pub works: bool,
    /// It holds an unreleased placement whose sandbox is not suspended.
    pub has_compute: bool,
}

/// Unreleased allocations, or placements without one, that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceGroup {
    pub node_id: Option<NodeId>,
    /// `None` for placements without an allocation.
    pub state: Option<AllocationState>,
    pub given_up: bool,
    /// Of their Sessions; see [`ResetSession::works`].
    pub works: bool,
    pub resources: u64,
    /// Of these, the ones of generations older than the current one.
    pub older: u64,
}

impl ResourceCounts {
    /// The same numbers as [`Read::resource_counts`] reads.
    pub fn of(groups: &[ResourceGroup]) -> Self {
        let sum = |holds: fn(&ResourceGroup) -> bool| {
            let groups = groups.iter().filter(|group| holds(group));
            groups.map(|group| group.resources).sum()
        };
        Self {
            allocations: sum(|group| group.state.is_some()),
            pending: sum(|group| group.state.is_none()),
            previous_generation: groups.iter().map(|group| group.older).sum(),
        }
    }
}

/// Of the Session `s`. All three states of the index are named, or SQLite would not use it.
const WORKS: &str = "(EXISTS (SELECT 1 FROM turns t WHERE t.session_id = s.id \
        AND t.state IN ('queued', 'waiting', 'running') AND t.state <> 'queued') \
     OR EXISTS (SELECT 1 FROM file_operations f WHERE f.session_id = s.id AND f.kind = 'write'))";

/// Of the Session `s`: a sandbox that is there, or on its way to where it was placed.
const HAS_COMPUTE: &str = "(EXISTS (SELECT 1 FROM placements p WHERE p.environment_id = s.environment_id \
        AND p.released_at IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM allocations a WHERE a.environment_id = s.environment_id \
        AND a.released_at IS NULL AND a.compute_phase = 'suspended'))";

impl ResetSession {
    fn from_row(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get("id")?,
            works: row.get("works")?,
            has_compute: row.get("has_compute")?,
        })
    }
}

impl Read {
    async fn reset_sessions_where(
        &self,
        condition: &str,
        params: Vec<sea_orm::Value>,
        limit: u64,
    ) -> Result<Vec<ResetSession>, StoreError> {
        let sql = format!(
            "SELECT s.id, {WORKS} AS works, {HAS_COMPUTE} AS has_compute \
             FROM sessions s WHERE s.archived_at IS NULL AND {condition} ORDER BY s.id LIMIT {limit}"
        );
        let rows = self.rows(&sql, params).await?;
        rows.iter().map(ResetSession::from_row).collect()
    }

    /// Sessions that are not archived, by ascending id after `after`; with [`ResetClear::Auto`] without those that work
    /// and have compute, of which there may be very many for as long as the deadline allows.
    pub async fn reset_sessions(
        &self,
        clear: ResetClear,
        after: Option<SessionId>,
        limit: u64,
    ) -> Result<Vec<ResetSession>, StoreError> {
        let wanted = match clear {
            ResetClear::Auto => format!("NOT ({WORKS} AND {HAS_COMPUTE})"),
            ResetClear::Force => "TRUE".to_owned(),
        };
        match after {
            Some(id) => {
                let condition = format!("s.id > $1 AND {wanted}");
                self.reset_sessions_where(&condition, params![id], limit).await
            }
            None => self.reset_sessions_where(&wanted, vec![], limit).await,
        }
    }

    /// The Session, unless it is archived. Exact in a transaction that holds its lock.
    pub async fn reset_session(&self, id: SessionId) -> Result<Option<ResetSession>, StoreError> {
        let found = self.reset_sessions_where("s.id = $1", params![id], 1).await?;
        Ok(found.into_iter().next())
    }

    /// How many unreleased allocations, and placements without one, there are; and whether any Session is not archived.
    /// Counted in one statement.
    pub async fn left_of_reset(&self) -> Result<(u64, bool), StoreError> {
        // An unreleased allocation whose placement was released would be a defect, and still no empty deployment.
        let sql = "SELECT (SELECT COUNT(*) FROM placements WHERE released_at IS NULL) \
             + (SELECT COUNT(*) FROM allocations a JOIN placements p ON p.id = a.placement_id \
                WHERE a.released_at IS NULL AND p.released_at IS NOT NULL) AS resources, \
             EXISTS (SELECT 1 FROM sessions WHERE archived_at IS NULL) AS sessions";
        match self.row(sql, vec![]).await? {
            Some(row) => Ok((row.get("resources")?, row.get("sessions")?)),
            None => Err(StoreError::Stored {
                column: "resources".to_owned(),
            }),
        }
    }

    /// Everything unreleased, by what a reset tells apart; one statement.
    pub async fn resource_groups(&self) -> Result<Vec<ResourceGroup>, StoreError> {
        let sql = format!(
            "SELECT g.node_id, g.state, g.given_up, g.works, COUNT(*) AS resources, \
             CAST(SUM(g.older) AS BIGINT) AS older FROM \
             (SELECT p.node_id, a.state, (a.cause IS NOT NULL) AS given_up, {WORKS} AS works, \
              CASE WHEN p.generation < d.generation THEN 1 ELSE 0 END AS older \
              FROM deployment d JOIN placements p ON p.released_at IS NULL \
              LEFT JOIN allocations a ON a.placement_id = p.id AND a.released_at IS NULL \
              LEFT JOIN sessions s ON s.environment_id = p.environment_id) g \
             GROUP BY g.node_id, g.state, g.given_up, g.works"
        );
        let rows = self.rows(&sql, vec![]).await?;
        rows.iter()
            .map(|row| {
                Ok(ResourceGroup {
                    node_id: row.get("node_id")?,
                    state: row.get("state")?,
                    given_up: row.get("given_up")?,
                    works: row.get("works")?,
                    resources: row.get("resources")?,
                    older: row.get("older")?,
                })
            })
            .collect()
    }

    /// Unreleased allocations with one of these diagnostics, by ascending id; at most
    /// [`limits::DIAGNOSED_ALLOCATIONS`].
    pub async fn allocations_with_diagnostics(
        &self,
        diagnostics: &[AllocationDiagnostic],
    ) -> Result<Vec<AllocationRow>, StoreError> {
        let rest = format!(
            "WHERE released_at IS NULL AND diagnostic IN ({}) ORDER BY id LIMIT {}",
            self.dialect.places(diagnostics.len()),
            limits::DIAGNOSED_ALLOCATIONS
        );
        self.many(&rest, diagnostics.iter().map(Column::bind).collect())
            .await
    }
}

/// Each needs the exclusive deployment lock.
impl Tx {
    pub async fn start_reset(&self, reset: &NewReset) -> Result<(), StoreError> {
        let now = self.now();
        let deadline = reset
            .deadline_seconds
            .map(|seconds| now.plus_millis(i64::from(seconds) * 1000));
        let forced = (reset.clear == ResetClear::Force).then_some(now);
        self.execute(
            "UPDATE deployment SET reset_clear = $1, reset_requested_at = $2, reset_deadline_at = $3, \
             reset_forced_at = $4, reset_actor = $5, reset_source = $6 WHERE id = 1",
            params![reset.clear, now, deadline, forced, reset.actor, reset.source],
        )
        .await
        .map(drop)
    }

    /// Nothing is waited for any more.
    pub async fn force_reset(&self) -> Result<(), StoreError> {
        self.execute(
            "UPDATE deployment SET reset_clear = $1, reset_forced_at = $2 \
             WHERE id = 1 AND reset_requested_at IS NOT NULL",
            params![ResetClear::Force, self.now()],
        )
        .await
        .map(drop)
    }

    pub async fn cancel_reset(&self) -> Result<(), StoreError> {
        let sql = "UPDATE deployment SET reset_clear = NULL, reset_requested_at = NULL, reset_deadline_at = NULL, \
             reset_forced_at = NULL, reset_actor = NULL, reset_source = NULL WHERE id = 1";
        self.execute(sql, vec![]).await.map(drop)
    }
}

impl LastTx {
    /// Gives the deployment back: selection, credential, policy and reset are cleared, nodes retired, unused tokens and
    /// all specifications removed, and generation and owner epoch are one higher (INV-C2, INV-C4). Returns the new ones.
    /// Needs the exclusive deployment lock.
    pub async fn complete_reset(&self) -> Result<(i64, OwnerEpoch), StoreError> {
        self.cancel_reset().await?;
        let cleared = self
            .row(
                "UPDATE deployment SET provider = NULL, generation = generation + 1, configuration = '{}', \
                 metadata = '{}', credential_sealed = NULL, idle_seconds = $1, retention_seconds = $2 \
                 WHERE id = 1 RETURNING generation",
                params![limits::DEFAULT_IDLE_SECONDS, limits::DEFAULT_RETENTION_SECONDS],
            )
            .await?;
        self.execute(
            "UPDATE nodes SET retired_at = $1, connection_id = NULL, connection_epoch = NULL \
             WHERE retired_at IS NULL",
            params![self.now()],
        )
        .await?;
        self.owe_no_kills(None).await?;
        self.execute("DELETE FROM enrollment_tokens WHERE consumed_at IS NULL", vec![])
            .await?;
        self.execute("DELETE FROM node_generation_status", vec![]).await?;
        self.execute("DELETE FROM deployment_generations", vec![]).await?;
        let owner = self
            .row(
                "UPDATE core_owner SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch",
                vec![],
            )
            .await?;
        match (cleared, owner) {
            (Some(cleared), Some(owner)) => Ok((cleared.get("generation")?, owner.get("epoch")?)),
            _ => Err(StoreError::Stored {
                column: "deployment.id".to_owned(),
            }),
        }
    }
}
