//! Operations: each mutation is stored before it is sent, and its outcome after (core.md section 11, INV-C16).

use oac_model::{AllocationId, ConnectionId, NodeId, OperationId, OwnerEpoch, Time};
use sea_orm::Value;

use crate::{
    OperationKind, OperationState, StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    OperationRow in "operations" {
        id: OperationId,
        allocation_id: AllocationId,
        /// The node it is for; `None` in direct mode.
        node_id: Option<NodeId>,
        kind: OperationKind,
        /// What a later reader needs of the argument; never a credential (INV-C14).
        argument: Option<serde_json::Value>,
        state: OperationState,
        /// The epoch that stored the intent.
        owner_epoch: OwnerEpoch,
        /// The connection it was sent on.
        connection_id: Option<ConnectionId>,
        outcome: Option<serde_json::Value>,
        created_at: Time,
        sent_at: Option<Time>,
        ended_at: Option<Time>,
    }
}

#[derive(Debug, Clone)]
pub struct NewOperation {
    pub id: OperationId,
    pub allocation_id: AllocationId,
    pub node_id: Option<NodeId>,
    pub kind: OperationKind,
    /// Never a credential (INV-C14).
    pub argument: Option<serde_json::Value>,
}

impl Read {
    pub async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// The allocation's operation in state intent or sent; at most one.
    pub async fn open_operation(&self, id: AllocationId) -> Result<Option<OperationRow>, StoreError> {
        self.one(
            "WHERE allocation_id = $1 AND state IN ('intent', 'sent')",
            params![id],
        )
        .await
    }

    /// All operations of an allocation, of which there may be ever more, oldest first: for those who look back.
    pub async fn operations(&self, id: AllocationId) -> Result<Vec<OperationRow>, StoreError> {
        self.many(
            "WHERE allocation_id = $1 ORDER BY created_at, sent_at, id",
            params![id],
        )
        .await
    }

    /// Those that can still matter to what is done next, oldest first, however many there were: what is open or unconfirmed,
    /// the latest of each kind, and the latest settled `kill_compute` with each of these arguments.
    pub async fn operations_in_play(
        &self,
        id: AllocationId,
        kills: &[serde_json::Value],
    ) -> Result<Vec<OperationRow>, StoreError> {
        let latest = |which: String| {
            format!(
                "SELECT id FROM (SELECT id FROM operations WHERE allocation_id = $1 AND {which} \
                 ORDER BY created_at DESC, sent_at DESC, id DESC LIMIT 1) AS latest"
            )
        };
        let mut params: Vec<Value> = params![id];
        let mut parts = vec![
            "SELECT id FROM operations WHERE allocation_id = $1 \
             AND state IN ('intent', 'sent', 'unconfirmed')"
                .to_owned(),
        ];
        for kind in OperationKind::ALL {
            parts.push(latest(format!("kind = '{}'", kind.as_str())));
        }
        for argument in kills {
            params.extend(params![argument.clone()]);
            let place = params.len();
            parts.push(latest(format!(
                "kind = 'kill_compute' AND state = 'settled' AND argument = ${place}"
            )));
        }
        let rest = format!(
            "WHERE id IN ({}) ORDER BY created_at, sent_at, id",
            parts.join(" UNION ")
        );
        self.many(&rest, params).await
    }

    /// A page of operations in `state` (intent, sent or unconfirmed), by ascending id after `after`.
    pub async fn operations_in_state(
        &self,
        state: OperationState,
        after: Option<OperationId>,
        limit: u64,
    ) -> Result<Vec<OperationRow>, StoreError> {
        let mut params: Vec<Value> = params![state];
        let mut rest = "WHERE state = $1".to_owned();
        if let Some(id) = after {
            params.extend(params![id]);
            rest += " AND id > $2";
        }
        rest += &format!(" ORDER BY id LIMIT {limit}");
        self.many(&rest, params).await
    }
}

impl Tx {
    /// Stores the intent, under this owner's epoch.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] while another operation of the allocation is open (INV-C16).
    pub async fn insert_intent(&self, new: &NewOperation) -> Result<OperationRow, StoreError> {
        let row = OperationRow {
            id: new.id,
            allocation_id: new.allocation_id,
            node_id: new.node_id,
            kind: new.kind,
            argument: new.argument.clone(),
            state: OperationState::Intent,
            owner_epoch: self.ownership().epoch,
            connection_id: None,
            outcome: None,
            created_at: self.now(),
            sent_at: None,
            ended_at: None,
        };
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// intent → sent, on this connection and under this epoch; false when it is no longer an intent.
    pub async fn mark_sent(
        &self,
        id: OperationId,
        connection_id: Option<ConnectionId>,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE operations SET state = 'sent', sent_at = $1, connection_id = $2, owner_epoch = $3 \
                 WHERE id = $4 AND state = 'intent'",
                params![self.now(), connection_id, self.ownership().epoch, id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// intent → rejected: it was never sent. False when it is no longer an intent.
    pub async fn reject_intent(&self, id: OperationId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE operations SET state = 'rejected', ended_at = $1 WHERE id = $2 AND state = 'intent'",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// intent or sent → rejected, when the sender vouches that its frame never left. False when it is neither.
    pub async fn reject_unsent(&self, id: OperationId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE operations SET state = 'rejected', ended_at = $1 \
                 WHERE id = $2 AND state IN ('intent', 'sent')",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// sent → unconfirmed; false when it is no longer sent.
    pub async fn mark_unconfirmed(&self, id: OperationId) -> Result<bool, StoreError> {
        let sql = "UPDATE operations SET state = 'unconfirmed' WHERE id = $1 AND state = 'sent'";
        Ok(self.execute(sql, params![id]).await? == 1)
    }

    /// sent or unconfirmed → settled, with what settled it; false when it is neither.
    pub async fn settle_operation(
        &self,
        id: OperationId,
        outcome: &serde_json::Value,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE operations SET state = 'settled', outcome = $1, ended_at = $2 \
                 WHERE id = $3 AND state IN ('sent', 'unconfirmed')",
                params![*outcome, self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// What earlier owners left open: their intents become rejected, their sent ones unconfirmed. Returns both counts.
    pub async fn close_operations_of_earlier_owners(&self) -> Result<(u64, u64), StoreError> {
        let epoch = self.ownership().epoch;
        let rejected = self
            .execute(
                "UPDATE operations SET state = 'rejected', ended_at = $1 WHERE state = 'intent' AND owner_epoch < $2",
                params![self.now(), epoch],
            )
            .await?;
        let unconfirmed = self
            .execute(
                "UPDATE operations SET state = 'unconfirmed' WHERE state = 'sent' AND owner_epoch < $1",
                params![epoch],
            )
            .await?;
        Ok((rejected, unconfirmed))
    }
}
