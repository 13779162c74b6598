//! Computes: the incarnations of an allocation's sandbox (core.md sections 2 and 12).

use oac_model::{AllocationId, NodeId, OperationId, Time};

use crate::{
    StoreError, Tx,
    many::pieces,
    row::{Column, params, stored},
    tx::Read,
};

stored! {
    ComputeRow in "computes" {
        allocation_id: AllocationId,
        /// 0 first, one more for each restore.
        generation: i64,
        node_id: Option<NodeId>,
        name: String,
        native_id: Option<String>,
        /// The checkpoint, by the operation that made it.
        restored_from: Option<OperationId>,
        /// It counted as a failed restore target.
        failed_at: Option<Time>,
        ended_at: Option<Time>,
        /// An operator discarded it while its node was away, and the node did not confirm its end since.
        kill_owed: bool,
    }
}

/// Of a compute: what it was restored from is still named with it.
const IS_NAMED: &str = "(ended_at IS NULL OR kill_owed)";

/// Of a checkpoint: there is such a compute.
const NAMED_WITH: &str = "EXISTS (SELECT 1 FROM computes named \
     WHERE named.allocation_id = retained_checkpoints.allocation_id \
     AND named.restored_from = retained_checkpoints.operation_id \
     AND (named.ended_at IS NULL OR named.kill_owed))";

impl Read {
    /// Newest first.
    pub async fn computes(&self, allocation_id: AllocationId) -> Result<Vec<ComputeRow>, StoreError> {
        self.many(
            "WHERE allocation_id = $1 ORDER BY generation DESC",
            params![allocation_id],
        )
        .await
    }

    /// Those that can still matter to what is done next, oldest first, however many there were: those not ended or with a
    /// kill owed, the newest, and the targets of the checkpoint that is not deleted.
    pub async fn computes_in_play(&self, allocation_id: AllocationId) -> Result<Vec<ComputeRow>, StoreError> {
        self.many(
            "WHERE allocation_id = $1 AND (ended_at IS NULL OR kill_owed \
             OR generation = (SELECT MAX(newest.generation) FROM computes newest WHERE newest.allocation_id = $1) \
             OR restored_from IN (SELECT kept.operation_id FROM retained_checkpoints kept \
             WHERE kept.allocation_id = $1 AND kept.deleted_at IS NULL)) ORDER BY generation",
            params![allocation_id],
        )
        .await
    }

    /// Of these allocations, the other nodes that computes without `ended_at` name.
    pub async fn computes_elsewhere(
        &self,
        allocations: &[AllocationId],
    ) -> Result<Vec<(AllocationId, NodeId)>, StoreError> {
        let mut found = Vec::new();
        for piece in pieces(allocations) {
            let sql = format!(
                "SELECT DISTINCT c.allocation_id, c.node_id FROM computes c \
                 JOIN allocations a ON a.id = c.allocation_id \
                 WHERE c.ended_at IS NULL AND c.node_id <> a.node_id AND a.released_at IS NULL AND a.id IN ({})",
                self.dialect.places(piece.len())
            );
            let values = piece.iter().map(Column::bind).collect();
            for row in self.rows(&sql, values).await? {
                found.push((row.get("allocation_id")?, row.get("node_id")?));
            }
        }
        Ok(found)
    }

    /// The newest one of an allocation.
    pub async fn newest_compute(&self, id: AllocationId) -> Result<Option<ComputeRow>, StoreError> {
        self.one(
            "WHERE allocation_id = $1 ORDER BY generation DESC LIMIT 1",
            params![id],
        )
        .await
    }

    /// Computes without `ended_at` that name the node (INV-C29).
    pub async fn open_computes_of_node(&self, node_id: NodeId) -> Result<Vec<ComputeRow>, StoreError> {
        self.many("WHERE node_id = $1 AND ended_at IS NULL", params![node_id])
            .await
    }
}

impl Tx {
    pub async fn insert_compute(&self, compute: &ComputeRow) -> Result<(), StoreError> {
        self.insert(compute, "").await.map(drop)
    }

    pub async fn set_compute_native_id(
        &self,
        allocation_id: AllocationId,
        generation: i64,
        native_id: &str,
    ) -> Result<(), StoreError> {
        self.execute(
            "UPDATE computes SET native_id = $1 WHERE allocation_id = $2 AND generation = $3",
            params![native_id.to_owned(), allocation_id, generation],
        )
        .await
        .map(drop)
    }

    /// Marks a compute ended, with no kill owed; false when it was. A deleted checkpoint that only it still had to be named
    /// with loses its bytes.
    pub async fn end_compute(
        &self,
        allocation_id: AllocationId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                &format!(
                    "UPDATE computes SET ended_at = COALESCE(ended_at, $1), kill_owed = FALSE \
                     WHERE allocation_id = $2 AND generation = $3 AND {IS_NAMED}"
                ),
                params![self.now(), allocation_id, generation],
            )
            .await?;
        self.execute(
            &format!(
                "UPDATE retained_checkpoints SET data = $1 WHERE operation_id = \
                 (SELECT restored_from FROM computes WHERE allocation_id = $2 AND generation = $3) \
                 AND deleted_at IS NOT NULL AND NOT {NAMED_WITH}"
            ),
            params![Vec::<u8>::new(), allocation_id, generation],
        )
        .await?;
        Ok(changed == 1)
    }

    /// Marks a compute ended at an operator's word, its kill owed; false when it was ended.
    pub async fn discard_compute(
        &self,
        allocation_id: AllocationId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE computes SET ended_at = $1, kill_owed = TRUE \
                 WHERE allocation_id = $2 AND generation = $3 AND ended_at IS NULL",
                params![self.now(), allocation_id, generation],
            )
            .await?;
        Ok(changed == 1)
    }

    /// No kill is owed at this node any more, or at any without one: it comes never again. Its checkpoints lose their bytes as
    /// in [`Self::end_compute`].
    pub(crate) async fn owe_no_kills(&self, node: Option<NodeId>) -> Result<(), StoreError> {
        let (of_node, values) = match node {
            Some(node) => ("AND node_id = $1", params![node]),
            None => ("", vec![]),
        };
        let sql = format!(
            "UPDATE computes SET kill_owed = FALSE WHERE kill_owed {of_node} RETURNING restored_from"
        );
        for row in self.rows(&sql, values).await? {
            let Some(kept) = row.get::<Option<OperationId>>("restored_from")? else {
                continue;
            };
            self.forget_bytes(kept).await?;
        }
        Ok(())
    }

    /// A deleted checkpoint that no compute is named with any more loses its bytes.
    pub(crate) async fn forget_bytes(&self, checkpoint: OperationId) -> Result<(), StoreError> {
        let sql = format!(
            "UPDATE retained_checkpoints SET data = $1 WHERE operation_id = $2 AND deleted_at IS NOT NULL \
             AND NOT {NAMED_WITH}"
        );
        self.execute(&sql, params![Vec::<u8>::new(), checkpoint])
            .await
            .map(drop)
    }

    /// Marks a restore target as counted among the failures; false when it was.
    pub async fn fail_compute(
        &self,
        allocation_id: AllocationId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE computes SET failed_at = $1 WHERE allocation_id = $2 AND generation = $3 \
                 AND failed_at IS NULL",
                params![self.now(), allocation_id, generation],
            )
            .await?;
        Ok(changed == 1)
    }
}
