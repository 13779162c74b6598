//! Retained checkpoints (core.md section 12): at most one undeleted per allocation.

use oac_model::{AllocationId, Digest, OperationId, StoreId, Time};

use crate::{
    StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    CheckpointRow in "retained_checkpoints" {
        /// The suspend that made it.
        operation_id: OperationId,
        allocation_id: AllocationId,
        source_generation: i64,
        source_name: String,
        source_id: String,
        store_id: StoreId,
        execution_class: Digest,
        digest: Digest,
        size_bytes: u64,
        /// Opaque, at most 64 KiB; returned byte for byte. Empty once the checkpoint is deleted and every compute restored
        /// from it has ended, with no kill owed.
        data: Vec<u8>,
        retention_deadline: Time,
        consumed_at: Option<Time>,
        deleted_at: Option<Time>,
    }
}

impl Read {
    pub async fn undeleted_checkpoint(&self, id: AllocationId) -> Result<Option<CheckpointRow>, StoreError> {
        self.one("WHERE allocation_id = $1 AND deleted_at IS NULL", params![id])
            .await
    }
}

impl Read {
    /// Those that can still matter to what is done next, however many there were: the one that is not deleted, and those
    /// that a compute not ended, or with a kill owed, was restored from and is named with.
    pub async fn checkpoints_in_play(&self, id: AllocationId) -> Result<Vec<CheckpointRow>, StoreError> {
        self.many(
            "WHERE operation_id IN (SELECT operation_id FROM retained_checkpoints \
             WHERE allocation_id = $1 AND deleted_at IS NULL UNION \
             SELECT restored_from FROM computes \
             WHERE allocation_id = $1 AND (ended_at IS NULL OR kill_owed) AND restored_from IS NOT NULL)",
            params![id],
        )
        .await
    }

    /// Deleted or not.
    pub async fn checkpoint(&self, id: OperationId) -> Result<Option<CheckpointRow>, StoreError> {
        self.one("WHERE operation_id = $1", params![id]).await
    }

    /// Whether the checkpoint was marked consumed, deleted since or not.
    pub async fn is_checkpoint_consumed(&self, id: OperationId) -> Result<bool, StoreError> {
        let checkpoint = self.checkpoint(id).await?;
        Ok(checkpoint.is_some_and(|checkpoint| checkpoint.consumed_at.is_some()))
    }
}

impl Tx {
    pub async fn insert_checkpoint(&self, checkpoint: &CheckpointRow) -> Result<(), StoreError> {
        self.insert(checkpoint, "").await.map(drop)
    }

    /// Marks a checkpoint consumed; false when it was (INV-C21).
    pub async fn consume_checkpoint(&self, id: OperationId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE retained_checkpoints SET consumed_at = $1 WHERE operation_id = $2 AND consumed_at IS NULL \
                 AND deleted_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Marks a checkpoint deleted; false when it was. Its bytes stay while a compute is named with them.
    pub async fn delete_checkpoint(&self, id: OperationId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE retained_checkpoints SET deleted_at = $1 WHERE operation_id = $2 AND deleted_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        self.forget_bytes(id).await?;
        Ok(changed == 1)
    }
}
