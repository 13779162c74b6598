//! Computes: the incarnations of an allocation's sandbox (core.md sections 2 and 12).

use oac_model::{AllocationId, NodeId, OperationId, Time};

use crate::{
    StoreError, Tx,
    row::{params, stored},
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
    }
}

impl Read {
    /// Newest first.
    pub async fn computes(&self, allocation_id: AllocationId) -> Result<Vec<ComputeRow>, StoreError> {
        self.many(
            "WHERE allocation_id = $1 ORDER BY generation DESC",
            params![allocation_id],
        )
        .await
    }

    /// Those that can still matter to what is done next, oldest first, however many there were: those not ended, the newest,
    /// and the targets of the checkpoint that is not deleted.
    pub async fn computes_in_play(&self, allocation_id: AllocationId) -> Result<Vec<ComputeRow>, StoreError> {
        self.many(
            "WHERE allocation_id = $1 AND (ended_at IS NULL \
             OR generation = (SELECT MAX(newest.generation) FROM computes newest WHERE newest.allocation_id = $1) \
             OR restored_from IN (SELECT kept.operation_id FROM retained_checkpoints kept \
             WHERE kept.allocation_id = $1 AND kept.deleted_at IS NULL)) ORDER BY generation",
            params![allocation_id],
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

    /// Marks a compute ended; false when it was. A deleted checkpoint that only it still had to be named with loses its
    /// bytes.
    pub async fn end_compute(
        &self,
        allocation_id: AllocationId,
        generation: i64,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE computes SET ended_at = $1 WHERE allocation_id = $2 AND generation = $3 AND ended_at IS NULL",
                params![self.now(), allocation_id, generation],
            )
            .await?;
        self.execute(
            "UPDATE retained_checkpoints SET data = $1 WHERE operation_id = \
             (SELECT restored_from FROM computes WHERE allocation_id = $2 AND generation = $3) \
             AND deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM computes other \
             WHERE other.allocation_id = $2 AND other.restored_from = retained_checkpoints.operation_id \
             AND other.ended_at IS NULL)",
            params![Vec::<u8>::new(), allocation_id, generation],
        )
        .await?;
        Ok(changed == 1)
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
