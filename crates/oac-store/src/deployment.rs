//! The installation's one selection, reset state and suspension policy (core.md section 5).

use oac_model::{Digest, Generation, InstallationId, ProviderKind, Specification, Time};

use crate::{
    ResetClear, StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    /// The single deployment row.
    DeploymentRow in "deployment" {
        installation_id: InstallationId,
        /// `None`: nothing is selected.
        provider: Option<ProviderKind>,
        /// 0 before the first selection; it only grows.
        generation: i64,
        /// What an E2B selection holds besides its specification; `{}` otherwise.
        configuration: serde_json::Value,
        credential_sealed: Option<Vec<u8>>,
        metadata: serde_json::Value,
        idle_seconds: u32,
        retention_seconds: u32,
        reset_clear: Option<ResetClear>,
        reset_requested_at: Option<Time>,
        reset_deadline_at: Option<Time>,
        reset_forced_at: Option<Time>,
        reset_actor: Option<String>,
        reset_source: Option<String>,
    }
}

impl DeploymentRow {
    pub fn resetting(&self) -> bool {
        self.reset_requested_at.is_some()
    }

    /// The target generation, when something is selected.
    pub fn target(&self) -> Option<Generation> {
        self.provider
            .and_then(|_| Generation::try_from(self.generation).ok())
    }
}

/// A selection to be saved as the next generation.
#[derive(Debug, Clone)]
pub struct Selection {
    pub specification: Specification,
    pub configuration: serde_json::Value,
    pub metadata: serde_json::Value,
    pub credential_sealed: Option<Vec<u8>>,
}

/// What the deployment answers as `resources` (core.md section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Unreleased allocations.
    pub allocations: u64,
    /// Unreleased placements without an allocation.
    pub pending: u64,
    /// Both, of generations older than the current one, each once.
    pub previous_generation: u64,
}

impl Read {
    pub async fn deployment(&self) -> Result<DeploymentRow, StoreError> {
        self.one("WHERE id = 1", vec![])
            .await?
            .ok_or_else(|| StoreError::Stored {
                column: "deployment.id".to_owned(),
            })
    }

    /// Counted in one statement.
    pub async fn resource_counts(&self) -> Result<ResourceCounts, StoreError> {
        // Every unreleased allocation has an unreleased placement of the same generation or is a cleanup of its own; the
        // left join counts a placement once, with or without its allocation.
        let sql = "SELECT COUNT(a.id) AS allocations, COUNT(*) - COUNT(a.id) AS pending, \
             CAST(COALESCE(SUM(CASE WHEN p.generation < d.generation THEN 1 ELSE 0 END), 0) AS BIGINT) AS previous \
             FROM deployment d JOIN placements p ON p.released_at IS NULL \
             LEFT JOIN allocations a ON a.placement_id = p.id AND a.released_at IS NULL";
        match self.row(sql, vec![]).await? {
            Some(row) => Ok(ResourceCounts {
                allocations: row.get("allocations")?,
                pending: row.get("pending")?,
                previous_generation: row.get("previous")?,
            }),
            None => Ok(ResourceCounts {
                allocations: 0,
                pending: 0,
                previous_generation: 0,
            }),
        }
    }
}

impl Tx {
    /// Saves a selection under the next generation and returns that number; never one used before (INV-C4). Needs the
    /// exclusive deployment lock.
    pub async fn save_selection(&self, selection: &Selection) -> Result<Generation, StoreError> {
        let canonical = selection.specification.canonical();
        let provider = selection.specification.provider;
        let row = self
            .row(
                "UPDATE deployment SET provider = $1, generation = generation + 1, configuration = $2, metadata = $3, \
                 credential_sealed = $4 WHERE id = 1 RETURNING generation",
                params![
                    provider,
                    selection.configuration,
                    selection.metadata,
                    selection.credential_sealed
                ],
            )
            .await?;
        let Some(row) = row else {
            return Err(StoreError::Stored {
                column: "deployment.id".to_owned(),
            });
        };
        let generation: Generation = row.get("generation")?;
        self.insert(
            &crate::GenerationRow {
                generation,
                provider,
                specification: selection.specification.clone(),
                digest: Digest::of(&canonical),
                canonical,
                created_at: self.now(),
            },
            "",
        )
        .await?;
        Ok(generation)
    }

    /// Stores the suspension policy; the generation stays.
    pub async fn save_suspension(&self, idle_seconds: u32, retention_seconds: u32) -> Result<(), StoreError> {
        self.execute(
            "UPDATE deployment SET idle_seconds = $1, retention_seconds = $2 WHERE id = 1",
            params![idle_seconds, retention_seconds],
        )
        .await
        .map(drop)
    }
}
