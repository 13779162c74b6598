//! Allocations (core.md sections 2 and 11). Which transition is right is oac-lifecycle's business; here a write only
//! proves that nobody else wrote in between.

use oac_model::{
    AllocationId, AllocationState, ComputePhase, Digest, EnvironmentId, Generation, NodeId, PlacementId,
    ProjectId, Reference, SessionId, Time,
};
use sea_orm::Value;

use crate::{
    AllocationDiagnostic, CleanupCause, Initialization, ObservationStatus, StoreError, Tx, limits,
    many::pieces,
    row::{Stored as _, params, stored},
    tx::Read,
};

stored! {
    AllocationRow in "allocations" {
        id: AllocationId,
        placement_id: PlacementId,
        /// The Project.
        tenant_id: ProjectId,
        session_id: SessionId,
        environment_id: EnvironmentId,
        /// `None` in direct mode.
        node_id: Option<NodeId>,
        deployment_generation: Generation,
        state: AllocationState,
        state_changed_at: Time,
        compute_phase: ComputePhase,
        compute_phase_changed_at: Time,
        initialization: Initialization,
        /// From 1; revoking increases it.
        link_generation: Generation,
        /// SHA-256 of the link credential; `None` when no link may open.
        link_digest: Option<Digest>,
        provider_id: Option<String>,
        bootstrap_complete: bool,
        create_settled: bool,
        restore_failures: u32,
        cause: Option<CleanupCause>,
        diagnostic: Option<AllocationDiagnostic>,
        /// The last sample and when it was taken.
        sample: Option<serde_json::Value>,
        sampled_at: Option<Time>,
        /// What became of the latest observation; `None` before the first.
        observation: Option<ObservationStatus>,
        /// Compared and increased by each write.
        revision: i64,
        created_at: Time,
        released_at: Option<Time>,
    }
}

impl AllocationRow {
    pub fn reference(&self) -> Reference {
        Reference {
            tenant_id: self.tenant_id,
            environment_id: self.environment_id,
            allocation_id: self.id,
        }
    }
}

/// An allocation to be stored in state reserved, phase disabled, link generation 1 without a credential.
#[derive(Debug, Clone, Copy)]
pub struct NewAllocation {
    pub id: AllocationId,
    pub placement_id: PlacementId,
    pub tenant_id: ProjectId,
    pub session_id: SessionId,
    pub environment_id: EnvironmentId,
    pub node_id: Option<NodeId>,
    pub deployment_generation: Generation,
}

impl NewAllocation {
    /// As a transaction of that time stores it.
    pub fn row(&self, now: Time) -> AllocationRow {
        AllocationRow {
            id: self.id,
            placement_id: self.placement_id,
            tenant_id: self.tenant_id,
            session_id: self.session_id,
            environment_id: self.environment_id,
            node_id: self.node_id,
            deployment_generation: self.deployment_generation,
            state: AllocationState::Reserved,
            state_changed_at: now,
            compute_phase: ComputePhase::Disabled,
            compute_phase_changed_at: now,
            initialization: Initialization::Pending,
            link_generation: Generation::FIRST,
            link_digest: None,
            provider_id: None,
            bootstrap_complete: false,
            create_settled: false,
            restore_failures: 0,
            cause: None,
            diagnostic: None,
            sample: None,
            sampled_at: None,
            observation: None,
            revision: 1,
            created_at: now,
            released_at: None,
        }
    }
}

/// Unreleased allocations that look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationCount {
    pub state: AllocationState,
    pub compute_phase: ComputePhase,
    pub diagnostic: Option<AllocationDiagnostic>,
    pub count: u64,
    /// When the first of them came into this state.
    pub oldest: Time,
}

/// Rows by ascending id, as far as this version can read them.
#[derive(Debug, Default)]
pub struct AllocationPage {
    pub rows: Vec<AllocationRow>,
    /// Those that it cannot, with the reason.
    pub unreadable: Vec<(AllocationId, StoreError)>,
}

impl AllocationPage {
    /// Where the next page begins; `None` after the last.
    pub fn last(&self) -> Option<AllocationId> {
        let read = self.rows.last().map(|row| row.id);
        read.max(self.unreadable.last().map(|(id, _)| *id))
    }

    /// All of them.
    ///
    /// # Errors
    /// The first reason why one cannot be read.
    pub fn whole(self) -> Result<Vec<AllocationRow>, StoreError> {
        match self.unreadable.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(self.rows),
        }
    }
}

impl Read {
    /// How many unreleased allocations there are of each state, phase and diagnostic.
    pub async fn allocation_counts(&self) -> Result<Vec<AllocationCount>, StoreError> {
        let sql = "SELECT state, compute_phase, diagnostic, COUNT(*) AS count, MIN(state_changed_at) AS oldest \
             FROM allocations WHERE released_at IS NULL GROUP BY state, compute_phase, diagnostic";
        let count = |row: &crate::row::Row| {
            Ok(AllocationCount {
                state: row.get("state")?,
                compute_phase: row.get("compute_phase")?,
                diagnostic: row.get("diagnostic")?,
                count: row.get("count")?,
                oldest: row.get("oldest")?,
            })
        };
        self.rows(sql, vec![]).await?.iter().map(count).collect()
    }

    pub async fn allocation(&self, id: AllocationId) -> Result<Option<AllocationRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// Those of these allocations that there are, by ascending id.
    pub async fn allocations(&self, ids: &[AllocationId]) -> Result<AllocationPage, StoreError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let mut all = AllocationPage::default();
        for piece in pieces(&ids) {
            let among = format!("id IN ({})", self.dialect.places(piece.len()));
            let values = piece.iter().map(crate::row::Column::bind).collect();
            let page = self.readable(&among, values, None, piece.len() as u64).await?;
            all.rows.extend(page.rows);
            all.unreadable.extend(page.unreadable);
        }
        Ok(all)
    }

    pub async fn allocation_of_placement(
        &self,
        id: PlacementId,
    ) -> Result<Option<AllocationRow>, StoreError> {
        self.one("WHERE placement_id = $1", params![id]).await
    }

    /// The Environment's unreleased allocation (INV-C12: at most one).
    pub async fn unreleased_allocation(
        &self,
        id: EnvironmentId,
    ) -> Result<Option<AllocationRow>, StoreError> {
        self.one("WHERE environment_id = $1 AND released_at IS NULL", params![id])
            .await
    }

    /// The Session's newest allocation, released or not.
    pub async fn latest_allocation(&self, id: SessionId) -> Result<Option<AllocationRow>, StoreError> {
        self.one(
            "WHERE session_id = $1 ORDER BY created_at DESC, id DESC LIMIT 1",
            params![id],
        )
        .await
    }

    /// Of these allocations, those whose link may stay open, with their link generation.
    pub async fn linkable_allocations(
        &self,
        ids: &[AllocationId],
    ) -> Result<Vec<(AllocationId, Generation)>, StoreError> {
        let mut linkable = Vec::new();
        for ids in pieces(ids) {
            let sql = format!(
                "SELECT id, link_generation FROM allocations WHERE state IN ('creating', 'running') AND id IN ({})",
                self.dialect.places(ids.len())
            );
            let values = ids.iter().map(crate::row::Column::bind).collect();
            for row in self.rows(&sql, values).await? {
                linkable.push((row.get("id")?, row.get("link_generation")?));
            }
        }
        Ok(linkable)
    }

    /// The link generation and phase of an allocation whose link may stay open.
    pub async fn linkable_allocation(
        &self,
        id: AllocationId,
    ) -> Result<Option<(Generation, ComputePhase)>, StoreError> {
        let rows = self
            .rows(
                "SELECT link_generation, compute_phase FROM allocations \
                 WHERE state IN ('creating', 'running') AND id = $1",
                params![id],
            )
            .await?;
        let row = rows.into_iter().next();
        row.map(|row| Ok((row.get("link_generation")?, row.get("compute_phase")?)))
            .transpose()
    }

    /// A page of unreleased allocations in `state`, by ascending id after `after`.
    pub async fn allocations_in_state(
        &self,
        state: AllocationState,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<AllocationPage, StoreError> {
        self.readable("released_at IS NULL AND state = $1", params![state], after, limit)
            .await
    }

    /// A page of all unreleased allocations, by ascending id after `after`.
    pub async fn unreleased_allocations(
        &self,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<AllocationPage, StoreError> {
        self.readable("released_at IS NULL", vec![], after, limit).await
    }

    /// A page of a node's unreleased allocations, by ascending id after `after`.
    pub async fn allocations_of_node(
        &self,
        node_id: NodeId,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<AllocationPage, StoreError> {
        let of_node = "released_at IS NULL AND node_id = $1";
        self.readable(of_node, params![node_id], after, limit).await
    }

    /// A page of released allocations for which a kill is owed, by ascending id after `after`.
    pub async fn allocations_owing_kills(
        &self,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<AllocationPage, StoreError> {
        let owing = "released_at IS NOT NULL AND id IN (SELECT allocation_id FROM computes WHERE kill_owed)";
        self.readable(owing, vec![], after, limit).await
    }

    /// A node's running allocations that nothing but the time keeps from being suspended, as `oac_lifecycle` decides it
    /// (`suspension::may_suspend`), the one whose Session was still for longest first, then by id; at most `limit`.
    pub async fn still_allocations(
        &self,
        node_id: NodeId,
        limit: u64,
    ) -> Result<Vec<AllocationRow>, StoreError> {
        let rest = format!(
            "WHERE node_id = $1 AND released_at IS NULL AND state = 'running' AND compute_phase = 'running' \
             AND cause IS NULL AND initialization = 'complete' \
             AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = allocations.session_id AND s.last_turn > 0) \
             AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = allocations.session_id \
                AND t.state IN ('queued', 'waiting', 'running')) \
             AND NOT EXISTS (SELECT 1 FROM file_operations f WHERE f.session_id = allocations.session_id) \
             AND NOT EXISTS (SELECT 1 FROM retained_checkpoints k WHERE k.allocation_id = allocations.id \
                AND k.deleted_at IS NULL) \
             ORDER BY (SELECT s.last_activity_at FROM sessions s WHERE s.id = allocations.session_id), id \
             LIMIT {limit}"
        );
        self.many(&rest, params![node_id]).await
    }

    /// Unreleased allocations that are being cleaned up, without a checkpoint and with computes without `ended_at` at other
    /// nodes alone, by ascending id; at most [`limits::DIAGNOSED_ALLOCATIONS`].
    pub async fn cleanups_elsewhere(&self) -> Result<Vec<AllocationRow>, StoreError> {
        let elsewhere = "released_at IS NULL AND state = 'cleanup_pending' \
             AND EXISTS (SELECT 1 FROM computes c WHERE c.allocation_id = allocations.id AND c.ended_at IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM computes c WHERE c.allocation_id = allocations.id \
                AND c.ended_at IS NULL AND c.node_id = allocations.node_id) \
             AND NOT EXISTS (SELECT 1 FROM retained_checkpoints k WHERE k.allocation_id = allocations.id \
                AND k.deleted_at IS NULL)";
        self.page_where(elsewhere, vec![], None, limits::DIAGNOSED_ALLOCATIONS)
            .await
    }

    async fn page_where(
        &self,
        condition: &str,
        params: Vec<Value>,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<Vec<AllocationRow>, StoreError> {
        self.readable(condition, params, after, limit).await?.whole()
    }

    async fn readable(
        &self,
        condition: &str,
        mut params: Vec<Value>,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<AllocationPage, StoreError> {
        let columns = AllocationRow::list("");
        let mut sql = format!("SELECT {columns} FROM allocations WHERE {condition}");
        if let Some(id) = after {
            params.extend(params![id]);
            sql += &format!(" AND id > ${}", params.len());
        }
        sql += &format!(" ORDER BY id LIMIT {limit}");
        let mut page = AllocationPage::default();
        for row in self.rows(&sql, params).await? {
            match AllocationRow::from_row(&row) {
                Ok(row) => page.rows.push(row),
                Err(error) => page.unreadable.push((row.get("id")?, error)),
            }
        }
        Ok(page)
    }
}

impl Tx {
    /// # Errors
    /// [`StoreError::Duplicate`] when the placement or the Environment has one (INV-C12).
    pub async fn insert_allocation(&self, new: &NewAllocation) -> Result<AllocationRow, StoreError> {
        let row = new.row(self.now());
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// Stores allocations as [`NewAllocation::row`] made them.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] when a placement or an Environment has one (INV-C12).
    pub async fn insert_allocations(&self, rows: &[AllocationRow]) -> Result<(), StoreError> {
        self.insert_all(rows, "").await
    }

    /// Writes every mutable member of `row` if the stored revision is still `row.revision`, and raises both. Setting
    /// `state_changed_at`, `compute_phase_changed_at` and `released_at` is the caller's.
    ///
    /// # Errors
    /// [`StoreError::Revision`]: it changed meanwhile; nothing was written.
    pub async fn save_allocation(&self, row: &mut AllocationRow) -> Result<(), StoreError> {
        let changed = self
            .execute(
                "UPDATE allocations SET node_id = $1, state = $2, state_changed_at = $3, compute_phase = $4, \
                 compute_phase_changed_at = $5, initialization = $6, link_generation = $7, link_digest = $8, \
                 provider_id = $9, bootstrap_complete = $10, create_settled = $11, restore_failures = $12, \
                 cause = $13, diagnostic = $14, released_at = $15, revision = revision + 1 \
                 WHERE id = $16 AND revision = $17",
                params![
                    row.node_id,
                    row.state,
                    row.state_changed_at,
                    row.compute_phase,
                    row.compute_phase_changed_at,
                    row.initialization,
                    row.link_generation,
                    row.link_digest,
                    row.provider_id,
                    row.bootstrap_complete,
                    row.create_settled,
                    row.restore_failures,
                    row.cause,
                    row.diagnostic,
                    row.released_at,
                    row.id,
                    row.revision,
                ],
            )
            .await?;
        if changed != 1 {
            return Err(StoreError::Revision {
                allocation_id: row.id,
            });
        }
        row.revision += 1;
        Ok(())
    }
}
