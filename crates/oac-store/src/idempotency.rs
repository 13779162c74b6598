//! Stored answers to requests with an Idempotency-Key, kept 24 h (sessions.md section 2).

use std::collections::HashSet;

use oac_model::{Digest, ProjectId, Time};
use sea_orm::Value;

use crate::{
    StoreError, Tx, limits,
    many::pieces,
    row::{Stored as _, params, stored},
    tx::Read,
};

stored! {
    IdempotencyRow in "idempotency_records" {
        project_id: ProjectId,
        /// The route and its object, as the caller spells it.
        scope: String,
        key: String,
        body_digest: Digest,
        /// Status and body of the answer.
        response: serde_json::Value,
        created_at: Time,
    }
}

impl Read {
    /// The stored answer, if it is younger than 24 h at `now`.
    pub async fn idempotency_record(
        &self,
        project_id: ProjectId,
        scope: &str,
        key: &str,
        now: Time,
    ) -> Result<Option<IdempotencyRow>, StoreError> {
        let oldest = now.plus_millis(-limits::IDEMPOTENCY_MILLIS);
        self.one(
            "WHERE project_id = $1 AND scope = $2 AND key = $3 AND created_at > $4",
            params![project_id, scope.to_owned(), key.to_owned(), oldest],
        )
        .await
    }
}

impl Tx {
    /// Stores an answer; false when another request with the same key was first (wait included): then roll back and
    /// replay that answer.
    pub async fn insert_idempotency_record(
        &self,
        project_id: ProjectId,
        scope: &str,
        key: &str,
        body_digest: Digest,
        response: &serde_json::Value,
    ) -> Result<bool, StoreError> {
        let record = IdempotencyRow {
            project_id,
            scope: scope.to_owned(),
            key: key.to_owned(),
            body_digest,
            response: response.clone(),
            created_at: self.now(),
        };
        Ok(self.insert_idempotency_records(&[record]).await? == [true])
    }

    /// Stores answers, no two of one key, and says of each whether its request was the first with that key (wait
    /// included). Of another nothing was stored: leave it out, and replay the first one's answer.
    pub async fn insert_idempotency_records(
        &self,
        records: &[IdempotencyRow],
    ) -> Result<Vec<bool>, StoreError> {
        let oldest = self.now().plus_millis(-limits::IDEMPOTENCY_MILLIS);
        let mut stored: HashSet<(ProjectId, String, String)> = HashSet::new();
        for piece in pieces(records) {
            let columns = IdempotencyRow::COLUMNS.len();
            let sql = format!(
                "INSERT INTO idempotency_records ({}) VALUES {} ON CONFLICT (project_id, scope, key) DO UPDATE SET \
                 body_digest = excluded.body_digest, response = excluded.response, created_at = excluded.created_at \
                 WHERE idempotency_records.created_at <= ${} RETURNING project_id, scope, key",
                IdempotencyRow::list(""),
                self.dialect.rows_of_places(piece.len(), columns),
                piece.len() * columns + 1
            );
            let mut values: Vec<Value> = piece.iter().flat_map(|record| record.values()).collect();
            values.extend(params![oldest]);
            for row in self.rows(&sql, values).await? {
                stored.insert((row.get("project_id")?, row.get("scope")?, row.get("key")?));
            }
        }
        let first = |r: &IdempotencyRow| stored.contains(&(r.project_id, r.scope.clone(), r.key.clone()));
        Ok(records.iter().map(first).collect())
    }

    /// Removes a batch of records older than 24 h; returns how many.
    pub async fn prune_idempotency_records(&self) -> Result<u64, StoreError> {
        let oldest = self.now().plus_millis(-limits::IDEMPOTENCY_MILLIS);
        let sql = format!(
            "DELETE FROM idempotency_records WHERE (project_id, scope, key) IN (SELECT project_id, scope, key \
             FROM idempotency_records WHERE created_at <= $1 ORDER BY created_at LIMIT {})",
            limits::PRUNE_BATCH
        );
        self.execute(&sql, params![oldest]).await
    }
}
