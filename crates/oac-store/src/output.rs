//! A Turn's output: records numbered by a common byte offset from 0 (sessions.md section 3).

use oac_model::{Time, TurnId};

use crate::{
    OutputStream, StoreError, Tx, limits,
    row::{params, stored},
    tx::Read,
};

stored! {
    OutputRow in "turn_output" {
        turn_id: TurnId,
        /// Offset of the first byte.
        start_offset: u64,
        stream: OutputStream,
        bytes: Vec<u8>,
    }
}

/// Bytes of one stream, in the order read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    pub stream: OutputStream,
    pub bytes: Vec<u8>,
}

impl Read {
    /// At most `limit` records from the one that holds byte `offset` on; the first may begin before it, and the caller
    /// cuts. Empty when nothing is stored from there on.
    pub async fn output_from(
        &self,
        turn_id: TurnId,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<OutputRow>, StoreError> {
        let rest = format!(
            "WHERE turn_id = $1 AND start_offset >= COALESCE((SELECT MAX(o.start_offset) FROM turn_output o \
             WHERE o.turn_id = $1 AND o.start_offset <= $2), 0) ORDER BY start_offset LIMIT {limit}"
        );
        let mut rows: Vec<OutputRow> = self.many(&rest, params![turn_id, offset]).await?;
        rows.retain(|row| row.start_offset + row.bytes.len() as u64 > offset);
        Ok(rows)
    }
}

impl Tx {
    /// Appends what the runtime offered from offset `at` on: `chunks` are stored, then `dropped` further bytes are only
    /// counted (the caller keeps the bound of 16 MiB stored). Batch and new offset are one write (INV-S4, INV-S5). False,
    /// and nothing is stored, when the Turn is terminal or does not stand at `at`, or when bytes were dropped before.
    pub async fn append_output(
        &self,
        turn_id: TurnId,
        at: u64,
        chunks: &[OutputChunk],
        dropped: u64,
    ) -> Result<bool, StoreError> {
        let stored: u64 = chunks.iter().map(|c| c.bytes.len() as u64).sum();
        // Stored bytes are a gapless prefix: nothing is stored behind a dropped byte.
        let changed = self
            .execute(
                "UPDATE turns SET output_stored = output_stored + $1, output_bytes = output_bytes + $2, \
                 output_truncated = (output_truncated OR $3) WHERE id = $4 AND output_bytes = $5 \
                 AND ($1 = 0 OR output_stored = output_bytes) AND state IN ('queued', 'waiting', 'running')",
                params![stored, stored + dropped, dropped > 0, turn_id, at],
            )
            .await?;
        if changed != 1 {
            return Ok(false);
        }
        let mut start_offset = at;
        for chunk in chunks.iter().filter(|c| !c.bytes.is_empty()) {
            self.insert(
                &OutputRow {
                    turn_id,
                    start_offset,
                    stream: chunk.stream,
                    bytes: chunk.bytes.clone(),
                },
                "",
            )
            .await?;
            start_offset += chunk.bytes.len() as u64;
        }
        Ok(true)
    }

    /// Remembers what was acknowledged to the runtime; it only grows.
    pub async fn record_acked(&self, turn_id: TurnId, offset: u64) -> Result<(), StoreError> {
        let sql = "UPDATE turns SET acked = $1 WHERE id = $2 AND acked < $1";
        self.execute(sql, params![offset, turn_id]).await.map(drop)
    }

    /// Removes a batch of output records of Turns that ended from `since` on and before `before`; returns how many. An
    /// ended Turn gets no more output, so a time up to which everything was removed need not be looked at again.
    pub async fn prune_output(&self, since: Time, before: Time) -> Result<u64, StoreError> {
        let sql = format!(
            "DELETE FROM turn_output WHERE (turn_id, start_offset) IN (SELECT o.turn_id, o.start_offset \
             FROM turns t JOIN turn_output o ON o.turn_id = t.id \
             WHERE t.ended_at >= $1 AND t.ended_at < $2 LIMIT {})",
            limits::PRUNE_BATCH
        );
        self.execute(&sql, params![since, before]).await
    }
}
