//! The numbered facts about a Session (sessions.md section 3).

use oac_model::{SessionId, Time};

use crate::{
    EventKind, StoreError, Tx, limits,
    row::{params, stored},
    tx::Read,
};

stored! {
    EventRow in "session_events" {
        session_id: SessionId,
        sequence: i64,
        kind: EventKind,
        data: serde_json::Value,
        created_at: Time,
    }
}

impl Read {
    /// Events after sequence `after`, in order.
    pub async fn events_after(
        &self,
        session_id: SessionId,
        after: i64,
        limit: u64,
    ) -> Result<Vec<EventRow>, StoreError> {
        let rest = format!("WHERE session_id = $1 AND sequence > $2 ORDER BY sequence LIMIT {limit}");
        self.many(&rest, params![session_id, after]).await
    }
}

impl Tx {
    /// Appends an event with the Session's next sequence, and keeps the latest 10,000. It writes the Session's row: take
    /// the Session's lock first wherever an allocation is locked or written in the same transaction.
    pub async fn append_event(
        &self,
        session_id: SessionId,
        kind: EventKind,
        data: &serde_json::Value,
    ) -> Result<i64, StoreError> {
        let sequence: i64 = self
            .row(
                "UPDATE sessions SET last_event = last_event + 1 WHERE id = $1 RETURNING last_event",
                params![session_id],
            )
            .await?
            .ok_or_else(|| StoreError::Stored {
                column: "sessions.id".to_owned(),
            })?
            .get("last_event")?;
        self.insert(
            &EventRow {
                session_id,
                sequence,
                kind,
                data: data.clone(),
                created_at: self.now(),
            },
            "",
        )
        .await?;
        if sequence > limits::EVENTS_KEPT {
            self.execute(
                "DELETE FROM session_events WHERE session_id = $1 AND sequence <= $2",
                params![session_id, sequence - limits::EVENTS_KEPT],
            )
            .await?;
        }
        Ok(sequence)
    }
}
