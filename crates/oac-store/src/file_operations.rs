//! What keeps a Session from being idle beside its Turns: files and ports of its sandbox in use (sessions.md sections 1
//! and 4).
//!
//! A row stands for all transfers, or all port streams, that one Session has open, and exists from before the first one
//! begins until after the last one ended. Suspension and reset read it under the Session's lock.

use oac_model::{FileOperationId, SessionId, Time};

use crate::{
    FileOperationKind, FileOperationState, StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    FileOperationRow in "file_operations" {
        id: FileOperationId,
        session_id: SessionId,
        kind: FileOperationKind,
        state: FileOperationState,
        created_at: Time,
    }
}

impl Read {
    /// What the Session has open.
    pub async fn file_operations(&self, session_id: SessionId) -> Result<Vec<FileOperationRow>, StoreError> {
        self.many(
            "WHERE session_id = $1 ORDER BY created_at, id",
            params![session_id],
        )
        .await
    }
}

impl Tx {
    /// Something of this kind begins. Needs the Session's lock.
    pub async fn begin_file_operation(
        &self,
        session_id: SessionId,
        kind: FileOperationKind,
    ) -> Result<FileOperationRow, StoreError> {
        let row = FileOperationRow {
            id: FileOperationId::random(),
            session_id,
            kind,
            state: FileOperationState::Open,
            created_at: self.now(),
        };
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// It has ended; false when it was removed before.
    pub async fn end_file_operation(&self, id: FileOperationId) -> Result<bool, StoreError> {
        let removed = self
            .execute("DELETE FROM file_operations WHERE id = $1", params![id])
            .await?;
        Ok(removed == 1)
    }

    /// A new owner: whatever an earlier one had open ended with its connections. Returns how many there were.
    pub async fn end_all_file_operations(&self) -> Result<u64, StoreError> {
        self.execute("DELETE FROM file_operations", vec![]).await
    }
}
