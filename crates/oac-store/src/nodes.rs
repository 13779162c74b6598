//! Nodes: identity, limits, presence and latest health (core.md sections 8 to 10).

use oac_model::{
    BootId, ConnectionId, DiagnosticCode, Digest, EnrollmentId, Generation, InstallationId, NodeId,
    OwnerEpoch, ProviderKind, Secret, StoreId, Time,
};

use crate::{
    DrainIdle, DrainRetained, DrainThen, NodeLimits, SlotCounts, StoreError, Tx,
    row::{Labels, Stored as _, params, stored},
    tx::Read,
};

stored! {
    NodeRow in "nodes" {
        id: NodeId,
        installation_id: InstallationId,
        name: String,
        credential_digest: Digest,
        provider: ProviderKind,
        backend_fingerprint: Digest,
        enrolled_generation: Generation,
        enrolled_digest: Digest,
        core_url: String,
        /// `None` before the first hello.
        generation_management: Option<bool>,
        max_active: u32,
        max_retained: u32,
        limits: NodeLimits,
        labels: Labels,
        /// The pin.
        serving_generation: Option<Generation>,
        cordoned_at: Option<Time>,
        drain_requested_at: Option<Time>,
        drain_deadline_at: Option<Time>,
        /// The deadline was declared passed, and audited.
        drain_deadline_passed_at: Option<Time>,
        drain_idle: Option<DrainIdle>,
        drain_then: Option<DrainThen>,
        drain_retained: Option<DrainRetained>,
        drain_source: Option<String>,
        connection_id: Option<ConnectionId>,
        connection_epoch: Option<OwnerEpoch>,
        last_seen_at: Option<Time>,
        provider_ready: bool,
        diagnostic: Option<DiagnosticCode>,
        observed_at: Option<Time>,
        active_operations: Option<u32>,
        cpu_utilization: Option<f64>,
        effective_cpu_cores: Option<f64>,
        cpu_count: Option<u64>,
        total_memory_bytes: Option<u64>,
        available_memory_bytes: Option<u64>,
        available_disk_bytes: Option<u64>,
        execution_class: Option<Digest>,
        checkpoint_store: Option<StoreId>,
        boot_id: Option<BootId>,
        enrollment_id: Option<EnrollmentId>,
        created_at: Time,
        retired_at: Option<Time>,
    }
}

impl NodeRow {
    /// Connected under `epoch`, with a heartbeat less than `window_millis` before `now` (45 s: core.md section 10).
    pub fn online(&self, epoch: OwnerEpoch, now: Time, window_millis: i64) -> bool {
        self.connection_id.is_some()
            && self.connection_epoch == Some(epoch)
            && self
                .last_seen_at
                .is_some_and(|seen| now.millis() - seen.millis() < window_millis)
    }
}

/// A drain to be stored; it begins, and its deadline counts, from the transaction's time.
#[derive(Debug, Clone)]
pub struct NewDrain {
    pub deadline_seconds: u32,
    pub idle: DrainIdle,
    pub then: DrainThen,
    pub retained: DrainRetained,
    /// Where it was asked for, as the audit log spells it.
    pub source: String,
}

/// What enrollment stores.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub id: NodeId,
    pub installation_id: InstallationId,
    pub name: String,
    pub credential_digest: Digest,
    pub provider: ProviderKind,
    pub backend_fingerprint: Digest,
    pub enrolled_generation: Generation,
    pub enrolled_digest: Digest,
    pub core_url: String,
    pub max_active: u32,
    pub max_retained: u32,
    pub limits: NodeLimits,
    pub enrollment_id: Option<EnrollmentId>,
}

/// What a hello or heartbeat reports, statuses aside.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeHealth {
    pub provider_ready: bool,
    pub diagnostic: Option<DiagnosticCode>,
    pub observed_at: Option<Time>,
    pub active_operations: u32,
    pub cpu_utilization: Option<f64>,
    pub effective_cpu_cores: Option<f64>,
    pub cpu_count: Option<u64>,
    pub total_memory_bytes: Option<u64>,
    pub available_memory_bytes: Option<u64>,
    pub available_disk_bytes: Option<u64>,
    pub execution_class: Option<Digest>,
    pub checkpoint_store: Option<StoreId>,
    pub boot_id: Option<BootId>,
}

/// What a node holds (core.md sections 8 and 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    pub slots: SlotCounts,
    /// Placements without a running sandbox: no allocation yet, reserved or creating.
    pub reserved: u64,
    /// Allocations in state running whose sandbox is not suspended.
    pub running: u64,
    pub cleanup_pending: u64,
    /// Allocations with a diagnostic.
    pub issues: u64,
}

const COUNTS: &str = "COUNT(p.id) AS retained, \
     CAST(COALESCE(SUM(CASE WHEN p.id IS NULL OR a.compute_phase = 'suspended' THEN 0 ELSE 1 END), 0) AS BIGINT) \
        AS active, \
     CAST(COALESCE(SUM(CASE WHEN p.id IS NOT NULL AND (a.id IS NULL OR a.state IN ('reserved', 'creating')) \
        THEN 1 ELSE 0 END), 0) AS BIGINT) AS reserved, \
     CAST(COALESCE(SUM(CASE WHEN a.state = 'running' AND a.compute_phase <> 'suspended' THEN 1 ELSE 0 END), 0) \
        AS BIGINT) AS running, \
     CAST(COALESCE(SUM(CASE WHEN a.state = 'cleanup_pending' THEN 1 ELSE 0 END), 0) AS BIGINT) AS cleanup_pending, \
     COUNT(a.diagnostic) AS issues";

impl NodeCounts {
    fn from_row(row: &crate::row::Row) -> Result<Self, StoreError> {
        Ok(Self {
            slots: SlotCounts {
                active: row.get("active")?,
                retained: row.get("retained")?,
            },
            reserved: row.get("reserved")?,
            running: row.get("running")?,
            cleanup_pending: row.get("cleanup_pending")?,
            issues: row.get("issues")?,
        })
    }
}

impl Read {
    /// The node, retired or not.
    pub async fn node(&self, id: NodeId) -> Result<Option<NodeRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// The node `id`, not retired, whose credential is `secret`; found by id, then compared in constant time.
    pub async fn authenticate_node(
        &self,
        id: NodeId,
        secret: &Secret,
    ) -> Result<Option<NodeRow>, StoreError> {
        let row: Option<NodeRow> = self
            .one("WHERE id = $1 AND retired_at IS NULL", params![id])
            .await?;
        Ok(row.filter(|row| row.credential_digest.matches(&secret.digest())))
    }

    /// The node, not retired, whose credential is `secret`, where the request does not name the node.
    pub async fn node_by_credential(&self, secret: &Secret) -> Result<Option<NodeRow>, StoreError> {
        let digest = secret.digest();
        let row: Option<NodeRow> = self
            .one(
                "WHERE credential_digest = $1 AND retired_at IS NULL",
                params![digest],
            )
            .await?;
        Ok(row.filter(|row| row.credential_digest.matches(&digest)))
    }

    /// Every node that is not retired, oldest first.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.many("WHERE retired_at IS NULL ORDER BY created_at, id", vec![])
            .await
    }

    /// Every node that is being drained, by ascending id.
    pub async fn draining_nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        self.many(
            "WHERE drain_requested_at IS NOT NULL AND retired_at IS NULL ORDER BY id",
            vec![],
        )
        .await
    }

    /// Every node that is not retired, oldest first, with what it holds; one statement.
    pub async fn nodes_with_counts(&self) -> Result<Vec<(NodeRow, NodeCounts)>, StoreError> {
        let sql = format!(
            "SELECT {}, c.* FROM nodes n JOIN (SELECT m.id AS counted_id, {COUNTS} FROM nodes m \
             LEFT JOIN placements p ON p.node_id = m.id AND p.released_at IS NULL \
             LEFT JOIN allocations a ON a.placement_id = p.id WHERE m.retired_at IS NULL GROUP BY m.id) c \
             ON c.counted_id = n.id ORDER BY n.created_at, n.id",
            NodeRow::list("n.")
        );
        let rows = self.rows(&sql, vec![]).await?;
        rows.iter()
            .map(|row| Ok((NodeRow::from_row(row)?, NodeCounts::from_row(row)?)))
            .collect()
    }

    /// What one node holds.
    pub async fn node_counts(&self, id: NodeId) -> Result<NodeCounts, StoreError> {
        let sql = format!(
            "SELECT {COUNTS} FROM placements p LEFT JOIN allocations a ON a.placement_id = p.id \
             WHERE p.node_id = $1 AND p.released_at IS NULL"
        );
        let row = self.row(&sql, params![id]).await?;
        row.as_ref()
            .map_or(Ok(NodeCounts::default()), NodeCounts::from_row)
    }

    /// The distinct origins that nodes were enrolled with, retired ones included.
    pub async fn enrolled_core_urls(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT DISTINCT core_url FROM nodes ORDER BY core_url";
        self.rows(sql, vec![])
            .await?
            .iter()
            .map(|row| row.get("core_url"))
            .collect()
    }
}

impl Tx {
    pub async fn insert_node(&self, node: &NewNode) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO nodes (id, installation_id, name, credential_digest, provider, backend_fingerprint, \
             enrolled_generation, enrolled_digest, core_url, max_active, max_retained, limits, labels, \
             provider_ready, enrollment_id, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '{}', FALSE, $13, $14)",
            params![
                node.id,
                node.installation_id,
                node.name,
                node.credential_digest,
                node.provider,
                node.backend_fingerprint,
                node.enrolled_generation,
                node.enrolled_digest,
                node.core_url,
                node.max_active,
                node.max_retained,
                node.limits,
                node.enrollment_id,
                self.now(),
            ],
        )
        .await
        .map(drop)
    }

    /// Moves the pin; the caller has checked that it may (INV-C7).
    pub async fn set_serving_generation(&self, id: NodeId, generation: Generation) -> Result<(), StoreError> {
        self.execute(
            "UPDATE nodes SET serving_generation = $1 WHERE id = $2",
            params![generation, id],
        )
        .await
        .map(drop)
    }

    pub async fn set_node_limits(
        &self,
        id: NodeId,
        limits: NodeLimits,
        max_active: u32,
        max_retained: u32,
    ) -> Result<(), StoreError> {
        self.execute(
            "UPDATE nodes SET limits = $1, max_active = $2, max_retained = $3 WHERE id = $4",
            params![limits, max_active, max_retained, id],
        )
        .await
        .map(drop)
    }

    pub async fn set_node_name(&self, id: NodeId, name: &str) -> Result<(), StoreError> {
        let sql = "UPDATE nodes SET name = $1 WHERE id = $2";
        self.execute(sql, params![name.to_owned(), id]).await.map(drop)
    }

    pub async fn set_node_labels(&self, id: NodeId, labels: &Labels) -> Result<(), StoreError> {
        let sql = "UPDATE nodes SET labels = $1 WHERE id = $2";
        self.execute(sql, params![*labels, id]).await.map(drop)
    }

    /// Cordons at this transaction's time, or takes the cordon away.
    pub async fn set_node_cordoned(&self, id: NodeId, cordoned: bool) -> Result<(), StoreError> {
        let at = cordoned.then_some(self.now());
        let sql = "UPDATE nodes SET cordoned_at = $1 WHERE id = $2";
        self.execute(sql, params![at, id]).await.map(drop)
    }

    /// Begins a drain, which cordons: a cordon that stands keeps its time.
    pub async fn start_drain(&self, id: NodeId, drain: &NewDrain) -> Result<(), StoreError> {
        let deadline = self.now().plus_millis(i64::from(drain.deadline_seconds) * 1_000);
        self.execute(
            "UPDATE nodes SET cordoned_at = COALESCE(cordoned_at, $1), drain_requested_at = $1, \
             drain_deadline_at = $2, drain_deadline_passed_at = NULL, drain_idle = $3, drain_then = $4, \
             drain_retained = $5, drain_source = $6 WHERE id = $7",
            params![
                self.now(),
                deadline,
                drain.idle,
                drain.then,
                drain.retained,
                drain.source,
                id,
            ],
        )
        .await
        .map(drop)
    }

    /// Declares the drain's deadline passed.
    pub async fn pass_drain_deadline(&self, id: NodeId) -> Result<(), StoreError> {
        let sql = "UPDATE nodes SET drain_deadline_passed_at = $1 WHERE id = $2";
        self.execute(sql, params![self.now(), id]).await.map(drop)
    }

    /// Ends a drain, done or canceled; the cordon stays.
    pub async fn end_drain(&self, id: NodeId) -> Result<(), StoreError> {
        let sql = "UPDATE nodes SET drain_requested_at = NULL, drain_deadline_at = NULL, \
             drain_deadline_passed_at = NULL, drain_idle = NULL, drain_then = NULL, drain_retained = NULL, \
             drain_source = NULL WHERE id = $1";
        self.execute(sql, params![id]).await.map(drop)
    }

    /// Ends the identity: its credential opens nothing from then on, its connection is forgotten, and no kill is owed there.
    pub async fn retire_node(&self, id: NodeId) -> Result<bool, StoreError> {
        self.owe_no_kills(Some(id)).await?;
        let changed = self
            .execute(
                "UPDATE nodes SET retired_at = $1, connection_id = NULL, connection_epoch = NULL \
                 WHERE id = $2 AND retired_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }
}
