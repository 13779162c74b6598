//! What nodes report, stored for many at once: their transactions are shared (protocol.md section 6).

use std::collections::HashMap;

use oac_model::{ConnectionId, NodeId, OwnerEpoch, Time};

use crate::{
    GenerationStatusRow, NodeHealth, NodeRow, SlotCounts, StoreError, Tx,
    many::pieces,
    row::{Column, params},
    tx::Read,
};

/// What one connection of a node says: its hello or a heartbeat, statuses aside.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    pub node_id: NodeId,
    pub connection_id: ConnectionId,
    /// Of a hello, whether the node manages generations; `None` of a heartbeat.
    pub hello: Option<bool>,
    pub health: NodeHealth,
}

impl NodeReport {
    /// The row as [`Tx::record_reports`] leaves it.
    pub fn applied_to(&self, before: &NodeRow, epoch: OwnerEpoch, now: Time) -> NodeRow {
        let health = &self.health;
        NodeRow {
            connection_id: Some(self.connection_id),
            connection_epoch: Some(epoch),
            generation_management: self.hello.or(before.generation_management),
            last_seen_at: Some(now),
            provider_ready: health.provider_ready,
            diagnostic: health.diagnostic,
            observed_at: health.observed_at,
            active_operations: Some(health.active_operations),
            cpu_utilization: health.cpu_utilization,
            effective_cpu_cores: health.effective_cpu_cores,
            cpu_count: health.cpu_count,
            total_memory_bytes: health.total_memory_bytes,
            available_memory_bytes: health.available_memory_bytes,
            available_disk_bytes: health.available_disk_bytes,
            execution_class: health.execution_class,
            checkpoint_store: health.checkpoint_store,
            boot_id: health.boot_id,
            ..before.clone()
        }
    }
}

/// Columns of one report's row of values in [`Tx::record_reports`].
const COLUMNS: usize = 16;

impl Read {
    /// These nodes' reports about generations.
    pub async fn generation_statuses_of(
        &self,
        nodes: &[NodeId],
    ) -> Result<HashMap<NodeId, Vec<GenerationStatusRow>>, StoreError> {
        let mut statuses: HashMap<NodeId, Vec<GenerationStatusRow>> = HashMap::new();
        for piece in pieces(nodes) {
            let rest = format!("WHERE node_id IN ({})", self.dialect.places(piece.len()));
            let rows: Vec<GenerationStatusRow> = self.many(&rest, bound(piece)).await?;
            for row in rows {
                statuses.entry(row.node_id).or_default().push(row);
            }
        }
        Ok(statuses)
    }

    /// Slots taken on these nodes; a node without any is left out. Exact within a transaction that holds their locks.
    pub async fn slot_counts_of(&self, nodes: &[NodeId]) -> Result<HashMap<NodeId, SlotCounts>, StoreError> {
        let mut counts = HashMap::new();
        for piece in pieces(nodes) {
            let sql = format!(
                "SELECT p.node_id, {} WHERE p.node_id IN ({}) AND p.released_at IS NULL GROUP BY p.node_id",
                SlotCounts::SELECTED,
                self.dialect.places(piece.len())
            );
            for row in self.rows(&sql, bound(piece)).await? {
                counts.insert(row.get("node_id")?, SlotCounts::from_row(&row)?);
            }
        }
        Ok(counts)
    }
}

impl Tx {
    /// Records presence and health. A hello replaces whatever connection was recorded; a heartbeat counts only for the
    /// recorded connection, under this epoch; nothing counts of a retired node. Returns how many counted.
    pub async fn record_reports(&self, reports: &[NodeReport]) -> Result<u64, StoreError> {
        let mut recorded = 0;
        for piece in pieces(reports) {
            let rows = self.dialect.rows_of_places(piece.len(), COLUMNS);
            // Behind those of the rows.
            let (epoch, now) = (piece.len() * COLUMNS + 1, piece.len() * COLUMNS + 2);
            let sql = format!(
                "UPDATE nodes SET connection_epoch = ${epoch}, last_seen_at = ${now}, connection_id = v.column2, \
                 generation_management = COALESCE(v.column3, nodes.generation_management), \
                 provider_ready = v.column4, diagnostic = v.column5, observed_at = v.column6, \
                 active_operations = v.column7, cpu_utilization = v.column8, effective_cpu_cores = v.column9, \
                 cpu_count = v.column10, total_memory_bytes = v.column11, available_memory_bytes = v.column12, \
                 available_disk_bytes = v.column13, execution_class = v.column14, checkpoint_store = v.column15, \
                 boot_id = v.column16 \
                 FROM (VALUES {rows}) AS v WHERE nodes.id = v.column1 AND nodes.retired_at IS NULL \
                 AND (v.column3 IS NOT NULL OR (nodes.connection_id = v.column2 \
                 AND nodes.connection_epoch = ${epoch}))"
            );
            let mut values = Vec::with_capacity(now);
            for report in piece {
                let health = &report.health;
                values.extend(params![
                    report.node_id,
                    report.connection_id,
                    report.hello,
                    health.provider_ready,
                    health.diagnostic,
                    health.observed_at,
                    health.active_operations,
                    health.cpu_utilization,
                    health.effective_cpu_cores,
                    health.cpu_count,
                    health.total_memory_bytes,
                    health.available_memory_bytes,
                    health.available_disk_bytes,
                    health.execution_class,
                    health.checkpoint_store,
                    health.boot_id,
                ]);
            }
            values.extend(params![self.ownership().epoch, self.now()]);
            recorded += self.execute(&sql, values).await?;
        }
        Ok(recorded)
    }

    /// Forgets these connections where they are still the recorded ones, and returns how many were. `last_seen_at` and
    /// health stay.
    pub async fn clear_presence(&self, connections: &[(NodeId, ConnectionId)]) -> Result<u64, StoreError> {
        let mut cleared = 0;
        for piece in pieces(connections) {
            let sql = format!(
                "UPDATE nodes SET connection_id = NULL, connection_epoch = NULL FROM (VALUES {}) AS v \
                 WHERE nodes.id = v.column1 AND nodes.connection_id = v.column2",
                self.dialect.rows_of_places(piece.len(), 2)
            );
            let values = piece
                .iter()
                .flat_map(|(node, connection)| params![*node, *connection])
                .collect();
            cleared += self.execute(&sql, values).await?;
        }
        Ok(cleared)
    }

    /// Stores reports about generations, each in place of its node's earlier one about the same.
    pub async fn save_generation_statuses(&self, statuses: &[GenerationStatusRow]) -> Result<(), StoreError> {
        self.insert_all(
            statuses,
            "ON CONFLICT (node_id, generation) DO UPDATE SET digest = excluded.digest, state = excluded.state, \
             diagnostic = excluded.diagnostic, connection_id = excluded.connection_id, \
             owner_epoch = excluded.owner_epoch",
        )
        .await
    }

    /// Forgets whatever these nodes said of generations.
    pub async fn forget_generation_statuses(&self, nodes: &[NodeId]) -> Result<(), StoreError> {
        for piece in pieces(nodes) {
            let sql = format!(
                "DELETE FROM node_generation_status WHERE node_id IN ({})",
                self.dialect.places(piece.len())
            );
            self.execute(&sql, bound(piece)).await?;
        }
        Ok(())
    }
}

fn bound(nodes: &[NodeId]) -> Vec<sea_orm::Value> {
    nodes.iter().map(Column::bind).collect()
}
