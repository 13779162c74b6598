//! Core keys and Project API keys. Only digests are stored; a key is found by its digest and then compared in constant
//! time (core.md section 1).

use oac_model::{CoreKeyId, Digest, ProjectId, ProjectKeyId, Secret, Time};

use crate::{
    Store, StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    CoreKeyRow in "core_keys" {
        id: CoreKeyId,
        digest: Digest,
        name: String,
        created_at: Time,
        revoked_at: Option<Time>,
    }
}

stored! {
    ProjectKeyRow in "project_keys" {
        id: ProjectKeyId,
        project_id: ProjectId,
        digest: Digest,
        name: String,
        created_at: Time,
        revoked_at: Option<Time>,
    }
}

impl Read {
    /// The unrevoked Core key that `secret` is.
    pub async fn authenticate_core_key(&self, secret: &Secret) -> Result<Option<CoreKeyRow>, StoreError> {
        let digest = secret.digest();
        let row: Option<CoreKeyRow> = self
            .one("WHERE digest = $1 AND revoked_at IS NULL", params![digest])
            .await?;
        Ok(row.filter(|row| row.digest.matches(&digest)))
    }

    /// The unrevoked key of an undeleted Project that `secret` is.
    pub async fn authenticate_project_key(
        &self,
        secret: &Secret,
    ) -> Result<Option<ProjectKeyRow>, StoreError> {
        let digest = secret.digest();
        let row: Option<ProjectKeyRow> = self
            .one(
                "WHERE digest = $1 AND revoked_at IS NULL AND EXISTS \
                 (SELECT 1 FROM projects p WHERE p.id = project_keys.project_id AND p.deleted_at IS NULL)",
                params![digest],
            )
            .await?;
        Ok(row.filter(|row| row.digest.matches(&digest)))
    }

    /// Every Core key, oldest first, revoked ones included.
    pub async fn core_keys(&self) -> Result<Vec<CoreKeyRow>, StoreError> {
        self.many("ORDER BY created_at, id", vec![]).await
    }

    /// A Project's keys, oldest first, revoked ones included.
    pub async fn project_keys(&self, project_id: ProjectId) -> Result<Vec<ProjectKeyRow>, StoreError> {
        self.many(
            "WHERE project_id = $1 ORDER BY created_at, id",
            params![project_id],
        )
        .await
    }
}

impl Store {
    /// Adds a Core key. The command line does this beside a serving Core, so no epoch fences it.
    pub async fn create_core_key(&self, name: &str, digest: Digest) -> Result<CoreKeyRow, StoreError> {
        let tx = self.begin_unfenced().await?;
        let row = CoreKeyRow {
            id: CoreKeyId::random(),
            digest,
            name: name.to_owned(),
            created_at: tx.database_time().await?,
            revoked_at: None,
        };
        tx.insert(&row, "").await?;
        tx.commit_unfenced().await?;
        Ok(row)
    }

    /// False when there is no such unrevoked key. Its console sessions end with it.
    pub async fn revoke_core_key(&self, id: CoreKeyId) -> Result<bool, StoreError> {
        let tx = self.begin_unfenced().await?;
        let now = tx.database_time().await?;
        let changed = tx
            .execute(
                "UPDATE core_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at IS NULL",
                params![now, id],
            )
            .await?;
        tx.execute("DELETE FROM console_sessions WHERE core_key_id = $1", params![id])
            .await?;
        tx.commit_unfenced().await?;
        Ok(changed == 1)
    }
}

impl Tx {
    pub async fn create_project_key(
        &self,
        project_id: ProjectId,
        name: &str,
        digest: Digest,
    ) -> Result<ProjectKeyRow, StoreError> {
        let row = ProjectKeyRow {
            id: ProjectKeyId::random(),
            project_id,
            digest,
            name: name.to_owned(),
            created_at: self.now(),
            revoked_at: None,
        };
        self.insert(&row, "").await?;
        Ok(row)
    }

    /// False when the Project has no such unrevoked key.
    pub async fn revoke_project_key(
        &self,
        project_id: ProjectId,
        id: ProjectKeyId,
    ) -> Result<bool, StoreError> {
        let changed = self
            .execute(
                "UPDATE project_keys SET revoked_at = $1 WHERE id = $2 AND project_id = $3 AND revoked_at IS NULL",
                params![self.now(), id, project_id],
            )
            .await?;
        Ok(changed == 1)
    }
}
