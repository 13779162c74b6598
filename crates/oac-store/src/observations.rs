//! What running allocations were last seen to use.

use std::collections::HashSet;

use oac_model::{AllocationId, NodeId, SessionId, Time};

use crate::{
    ObservationStatus, StoreError, Tx,
    many::pieces,
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

/// What an observation of a running allocation gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub allocation_id: AllocationId,
    /// The sample; or why there is none, and then the last one stays.
    pub sample: Result<serde_json::Value, ObservationStatus>,
}

impl Tx {
    /// Keeps what observations gave, no two of one allocation. It is not part of the lifecycle and leaves the revision alone.
    /// Of an allocation that is released, or that another transaction holds now, nothing is kept: it is observed again.
    pub async fn save_observations(&self, seen: &[Seen]) -> Result<(), StoreError> {
        let ids: Vec<AllocationId> = seen.iter().map(|one| one.allocation_id).collect();
        let free: HashSet<AllocationId> = self.lock_free_allocations(&ids).await?.into_iter().collect();
        let seen: Vec<&Seen> = seen
            .iter()
            .filter(|one| free.contains(&one.allocation_id))
            .collect();
        for piece in pieces(&seen) {
            let sql = format!(
                "UPDATE allocations SET sample = COALESCE(v.column2, sample), \
                 sampled_at = CASE WHEN v.column2 IS NULL THEN sampled_at ELSE ${} END, observation = v.column3 \
                 FROM (VALUES {}) AS v WHERE allocations.id = v.column1",
                piece.len() * 3 + 1,
                self.dialect.rows_of_places(piece.len(), 3),
            );
            let mut values = Vec::with_capacity(piece.len() * 3 + 1);
            for one in piece {
                let (sample, status) = match &one.sample {
                    Ok(sample) => (Some(sample.clone()), ObservationStatus::Observed),
                    Err(why) => (None, *why),
                };
                values.extend(params![one.allocation_id, sample, status]);
            }
            values.extend(params![self.now()]);
            self.execute(&sql, values).await?;
        }
        Ok(())
    }
}
