//! Placements: an Environment's claim on a node's slots (core.md sections 7 and 8).

use oac_model::{EnvironmentId, Generation, NodeId, PlacementId, Time};

use crate::{
    StoreError, Tx,
    many::pieces,
    row::{Stored as _, params, stored},
    tx::Read,
};

stored! {
    PlacementRow in "placements" {
        id: PlacementId,
        environment_id: EnvironmentId,
        /// `None` in direct mode.
        node_id: Option<NodeId>,
        generation: Generation,
        created_at: Time,
        released_at: Option<Time>,
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewPlacement {
    pub id: PlacementId,
    pub environment_id: EnvironmentId,
    pub node_id: Option<NodeId>,
    pub generation: Generation,
}

impl NewPlacement {
    /// As a transaction of that time stores it.
    pub fn row(&self, now: Time) -> PlacementRow {
        PlacementRow {
            id: self.id,
            environment_id: self.environment_id,
            node_id: self.node_id,
            generation: self.generation,
            created_at: now,
            released_at: None,
        }
    }
}

/// Slots taken: every unreleased placement is retained, and active too unless its allocation is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotCounts {
    pub active: u64,
    pub retained: u64,
}

impl SlotCounts {
    /// What [`Self::from_row`] reads, of the placements `p` that the rest of the statement chooses and groups by node. Of
    /// each placement an index entry is read and nothing else: the suspended ones, which are few or none, have an index of
    /// their own, and an allocation is where its placement is.
    pub(crate) const SELECTED: &str = "COUNT(*) AS retained, COUNT(*) - (SELECT COUNT(*) FROM allocations a \
         WHERE a.node_id = p.node_id AND a.compute_phase = 'suspended' AND a.released_at IS NULL) AS active \
         FROM placements p";

    pub(crate) fn from_row(row: &crate::row::Row) -> Result<Self, StoreError> {
        Ok(Self {
            active: row.get("active")?,
            retained: row.get("retained")?,
        })
    }
}

impl Read {
    pub async fn placement(&self, id: PlacementId) -> Result<Option<PlacementRow>, StoreError> {
        self.one("WHERE id = $1", params![id]).await
    }

    /// The Environment's unreleased placement (INV-C12: at most one).
    pub async fn unreleased_placement(&self, id: EnvironmentId) -> Result<Option<PlacementRow>, StoreError> {
        self.one("WHERE environment_id = $1 AND released_at IS NULL", params![id])
            .await
    }

    /// Slots taken on a node, or with `None` in direct mode. Exact within a transaction that holds the node's lock.
    pub async fn slot_counts(&self, node_id: Option<NodeId>) -> Result<SlotCounts, StoreError> {
        let (on, params) = match node_id {
            Some(id) => ("p.node_id = $1", params![id]),
            None => ("p.node_id IS NULL", vec![]),
        };
        let sql = format!(
            "SELECT {} WHERE {on} AND p.released_at IS NULL GROUP BY p.node_id",
            SlotCounts::SELECTED
        );
        let row = self.row(&sql, params).await?;
        row.as_ref()
            .map_or(Ok(SlotCounts::default()), SlotCounts::from_row)
    }

    /// Unreleased placements without any allocation, by ascending id after `after`.
    pub async fn placements_without_allocation(
        &self,
        after: Option<PlacementId>,
        limit: u64,
    ) -> Result<Vec<PlacementRow>, StoreError> {
        let pending = "released_at IS NULL AND NOT EXISTS \
             (SELECT 1 FROM allocations a WHERE a.placement_id = placements.id)";
        match after {
            Some(id) => {
                let rest = format!("WHERE {pending} AND id > $1 ORDER BY id LIMIT {limit}");
                self.many(&rest, params![id]).await
            }
            None => {
                let rest = format!("WHERE {pending} ORDER BY id LIMIT {limit}");
                self.many(&rest, vec![]).await
            }
        }
    }
}

impl Tx {
    /// Stores a placement. The caller holds the shared deployment lock and the node's, and has rechecked counts there.
    ///
    /// # Errors
    /// As [`Self::insert_placements`].
    pub async fn insert_placement(&self, placement: &NewPlacement) -> Result<PlacementRow, StoreError> {
        let row = placement.row(self.now());
        self.insert_placements(std::slice::from_ref(&row)).await?;
        Ok(row)
    }

    /// Stores placements. The caller holds the shared deployment lock and the nodes', and has rechecked counts there.
    ///
    /// # Errors
    /// [`StoreError::NoSuchGeneration`] (INV-C4); [`StoreError::Duplicate`] when an Environment has an unreleased one.
    pub async fn insert_placements(&self, placements: &[PlacementRow]) -> Result<(), StoreError> {
        for piece in pieces(placements) {
            let sql = format!(
                "INSERT INTO placements ({}) SELECT v.* FROM (VALUES {}) AS v WHERE EXISTS \
                 (SELECT 1 FROM deployment_generations g WHERE g.generation = v.column4)",
                PlacementRow::list(""),
                self.dialect
                    .rows_of_places(piece.len(), PlacementRow::COLUMNS.len())
            );
            let values = piece.iter().flat_map(|row| row.values()).collect();
            if self.execute(&sql, values).await? != piece.len() as u64 {
                return Err(self.missing_generation(piece).await?);
            }
        }
        Ok(())
    }

    async fn missing_generation(&self, placements: &[PlacementRow]) -> Result<StoreError, StoreError> {
        for row in placements {
            if self.generation(row.generation).await?.is_none() {
                return Ok(StoreError::NoSuchGeneration {
                    generation: row.generation,
                });
            }
        }
        Ok(StoreError::Stored {
            column: "placements.generation".to_owned(),
        })
    }

    /// Moves a placement to another node, for a restore there.
    pub async fn move_placement(&self, id: PlacementId, node_id: NodeId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE placements SET node_id = $1 WHERE id = $2 AND released_at IS NULL",
                params![node_id, id],
            )
            .await?;
        Ok(changed == 1)
    }

    /// Frees the placement's slots; false when it was released already.
    pub async fn release_placement(&self, id: PlacementId) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE placements SET released_at = $1 WHERE id = $2 AND released_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }
}
