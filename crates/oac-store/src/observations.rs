//! What running allocations were last seen to use.

use oac_model::{AllocationId, NodeId, SessionId, Time};

use crate::{
    ObservationStatus, StoreError, Tx,
    row::{Column as _, Row, params},
    tx::Read,
};

/// What is known of the use of a running allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedAllocation {
    pub id: AllocationId,
    pub session_id: SessionId,
    pub node_id: Option<NodeId>,
    pub sample: Option<serde_json::Value>,
    pub sampled_at: Option<Time>,
    pub observation: Option<ObservationStatus>,
}

impl Read {
    /// Allocations whose sandbox runs, of one Session or all, by ascending id after `after`.
    pub async fn observed_allocations(
        &self,
        session_id: Option<SessionId>,
        after: Option<AllocationId>,
        limit: u64,
    ) -> Result<Vec<ObservedAllocation>, StoreError> {
        let mut values = Vec::new();
        let mut also = String::new();
        for (column, value) in [
            ("session_id =", session_id.map(|id| id.bind())),
            ("id >", after.map(|id| id.bind())),
        ] {
            if let Some(value) = value {
                values.push(value);
                also += &format!(" AND {column} ${}", values.len());
            }
        }
        let sql = format!(
            "SELECT id, session_id, node_id, sample, sampled_at, observation FROM allocations WHERE released_at IS NULL \
             AND state = 'running' AND compute_phase <> 'suspended'{also} ORDER BY id LIMIT {limit}"
        );
        let observed = |row: &Row| {
            Ok(ObservedAllocation {
                id: row.get("id")?,
                session_id: row.get("session_id")?,
                node_id: row.get("node_id")?,
                sample: row.get("sample")?,
                sampled_at: row.get("sampled_at")?,
                observation: row.get("observation")?,
            })
        };
        self.rows(&sql, values).await?.iter().map(observed).collect()
    }
}

impl Tx {
    /// Keeps the sample that an observation of an unreleased allocation gave. It is not part of the lifecycle and leaves
    /// the revision alone.
    pub async fn save_sample(&self, id: AllocationId, sample: &serde_json::Value) -> Result<(), StoreError> {
        self.execute(
            "UPDATE allocations SET sample = $1, sampled_at = $2, observation = $3 WHERE id = $4 AND released_at IS NULL",
            params![*sample, self.now(), ObservationStatus::Observed, id],
        )
        .await
        .map(drop)
    }

    /// Keeps why an observation gave no sample; the last sample stays.
    pub async fn save_missed_sample(
        &self,
        id: AllocationId,
        why: ObservationStatus,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE allocations SET observation = $1 WHERE id = $2 AND released_at IS NULL";
        self.execute(sql, params![why, id]).await.map(drop)
    }
}
