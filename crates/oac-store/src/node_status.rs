//! What nodes report about generations, and their measurements over time.

use oac_model::{ConnectionId, DiagnosticCode, Digest, Generation, NodeId, OwnerEpoch, Time};

use crate::{
    GenerationState, StoreError, Tx, limits,
    row::{params, stored},
    tx::Read,
};

stored! {
    /// A node's last report about one generation. It counts only from the current connection and epoch.
    GenerationStatusRow in "node_generation_status" {
        node_id: NodeId,
        generation: Generation,
        digest: Digest,
        state: GenerationState,
        diagnostic: Option<DiagnosticCode>,
        connection_id: ConnectionId,
        owner_epoch: OwnerEpoch,
    }
}

stored! {
    /// One measurement, kept 7 days.
    NodeSampleRow in "node_samples" {
        node_id: NodeId,
        observed_at: Time,
        cpu_utilization: Option<f64>,
        total_memory_bytes: Option<u64>,
        available_memory_bytes: Option<u64>,
        available_disk_bytes: Option<u64>,
    }
}

impl Read {
    /// A node's reports, newest generation first.
    pub async fn generation_statuses(&self, node_id: NodeId) -> Result<Vec<GenerationStatusRow>, StoreError> {
        self.many("WHERE node_id = $1 ORDER BY generation DESC", params![node_id])
            .await
    }

    /// Every node's report about `generation`.
    pub async fn statuses_of_generation(
        &self,
        generation: Generation,
    ) -> Result<Vec<GenerationStatusRow>, StoreError> {
        self.many("WHERE generation = $1", params![generation]).await
    }

    /// What connected nodes said under their current connection about `target` and about their own pin.
    pub async fn standing_generation_statuses(
        &self,
        target: Option<Generation>,
    ) -> Result<Vec<GenerationStatusRow>, StoreError> {
        self.many(
            "WHERE EXISTS (SELECT 1 FROM nodes n WHERE n.id = node_generation_status.node_id \
             AND n.connection_id = node_generation_status.connection_id AND (node_generation_status.generation = $1 \
             OR node_generation_status.generation = n.serving_generation))",
            params![target],
        )
        .await
    }

    /// A node's samples from `since` on, oldest first.
    pub async fn node_samples(&self, node_id: NodeId, since: Time) -> Result<Vec<NodeSampleRow>, StoreError> {
        self.many(
            "WHERE node_id = $1 AND observed_at >= $2 ORDER BY observed_at",
            params![node_id, since],
        )
        .await
    }
}

impl Tx {
    pub async fn delete_generation_status(
        &self,
        node_id: NodeId,
        generation: Generation,
    ) -> Result<(), StoreError> {
        self.execute(
            "DELETE FROM node_generation_status WHERE node_id = $1 AND generation = $2",
            params![node_id, generation],
        )
        .await
        .map(drop)
    }

    /// Adds samples; where a node has one of the same time, that is kept as it was.
    pub async fn insert_node_samples(&self, samples: &[NodeSampleRow]) -> Result<(), StoreError> {
        self.insert_all(samples, "ON CONFLICT (node_id, observed_at) DO NOTHING")
            .await
    }

    /// Removes a batch of samples from before `before`; returns how many.
    pub async fn prune_node_samples(&self, before: Time) -> Result<u64, StoreError> {
        let sql = format!(
            "DELETE FROM node_samples WHERE (node_id, observed_at) IN (SELECT node_id, observed_at FROM node_samples \
             WHERE observed_at < $1 ORDER BY observed_at LIMIT {})",
            limits::PRUNE_BATCH
        );
        self.execute(&sql, params![before]).await
    }
}
