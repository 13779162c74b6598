//! Projects, the tenants.

use oac_model::{ProjectId, Time};

use crate::{
    StoreError, Tx,
    many::pieces,
    row::{Column, params, stored},
    tx::{Rank, Read},
};

stored! {
    ProjectRow in "projects" {
        id: ProjectId,
        name: String,
        created_at: Time,
        deleted_at: Option<Time>,
    }
}

impl Read {
    /// An undeleted Project.
    pub async fn project(&self, id: ProjectId) -> Result<Option<ProjectRow>, StoreError> {
        self.one("WHERE id = $1 AND deleted_at IS NULL", params![id])
            .await
    }

    /// Every undeleted Project, oldest first.
    pub async fn projects(&self) -> Result<Vec<ProjectRow>, StoreError> {
        self.many("WHERE deleted_at IS NULL ORDER BY created_at, id", vec![])
            .await
    }

    /// Unreleased allocations and placements without one, of the Project's Sessions.
    pub async fn project_resources(&self, id: ProjectId) -> Result<(u64, u64), StoreError> {
        let sql = "SELECT COUNT(a.id) AS allocations, COUNT(*) - COUNT(a.id) AS pending FROM sessions s \
             JOIN placements p ON p.environment_id = s.environment_id AND p.released_at IS NULL \
             LEFT JOIN allocations a ON a.placement_id = p.id AND a.released_at IS NULL WHERE s.project_id = $1";
        match self.row(sql, params![id]).await? {
            Some(row) => Ok((row.get("allocations")?, row.get("pending")?)),
            None => Ok((0, 0)),
        }
    }
}

impl Tx {
    pub async fn create_project(&self, name: &str) -> Result<ProjectRow, StoreError> {
        let row = ProjectRow {
            id: ProjectId::random(),
            name: name.to_owned(),
            created_at: self.now(),
            deleted_at: None,
        };
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// Which of these Projects are undeleted, by ascending id. They stay so until this transaction ends: whoever stores what
    /// a Project must not be deleted with asks first, after the nodes it locks and before the Session.
    pub async fn keep_projects(&self, ids: &[ProjectId]) -> Result<Vec<ProjectId>, StoreError> {
        self.take(Rank::Project)?;
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut kept = Vec::with_capacity(ids.len());
        for piece in pieces(&ids) {
            let rest = format!(
                "WHERE id IN ({}) AND deleted_at IS NULL ORDER BY id{}",
                self.dialect.places(piece.len()),
                self.dialect.shared_row_lock()
            );
            let params = piece.iter().map(Column::bind).collect();
            let rows = self.many::<ProjectRow>(&rest, params).await?;
            kept.extend(rows.into_iter().map(|row| row.id));
        }
        Ok(kept)
    }

    /// Marks a Project deleted; its keys open nothing from then on. False when there is none. What is stored of it by then is
    /// seen from here on, and nothing more is by whoever asks [`Self::keep_projects`].
    pub async fn delete_project(&self, id: ProjectId) -> Result<bool, StoreError> {
        self.take(Rank::Project)?;
        let changed = self
            .execute(
                "UPDATE projects SET deleted_at = $1 WHERE id = $2 AND deleted_at IS NULL",
                params![self.now(), id],
            )
            .await?;
        Ok(changed == 1)
    }
}
