//! The audit log: each entry is stored with the write it tells of (core.md section 16, INV-C15).

use oac_model::{AuditId, Time};

use crate::{
    StoreError, Tx,
    row::{params, stored},
    tx::Read,
};

stored! {
    AuditRow in "audit_log" {
        id: AuditId,
        at: Time,
        /// Who acted, such as the Core key's id.
        actor: String,
        /// From where, such as a network address.
        source: String,
        resource_type: String,
        resource_id: String,
        action: String,
        details: serde_json::Value,
    }
}

/// One action to be recorded; never with a credential in it (INV-C14).
#[derive(Debug, Clone)]
pub struct AuditEntry<'a> {
    pub actor: &'a str,
    pub source: &'a str,
    pub resource_type: &'a str,
    pub resource_id: String,
    pub action: &'a str,
    pub details: serde_json::Value,
}

impl Read {
    /// Newest first, after the row (at, id) that ended the page before.
    pub async fn audit_log(
        &self,
        after: Option<(Time, AuditId)>,
        limit: u64,
    ) -> Result<Vec<AuditRow>, StoreError> {
        match after {
            Some((at, id)) => {
                let rest = format!("WHERE (at, id) < ($1, $2) ORDER BY at DESC, id DESC LIMIT {limit}");
                self.many(&rest, params![at, id]).await
            }
            None => {
                let rest = format!("ORDER BY at DESC, id DESC LIMIT {limit}");
                self.many(&rest, vec![]).await
            }
        }
    }
}

impl Tx {
    pub async fn audit(&self, entry: &AuditEntry<'_>) -> Result<AuditRow, StoreError> {
        let row = AuditRow {
            id: AuditId::random(),
            at: self.now(),
            actor: entry.actor.to_owned(),
            source: entry.source.to_owned(),
            resource_type: entry.resource_type.to_owned(),
            resource_id: entry.resource_id.clone(),
            action: entry.action.to_owned(),
            details: entry.details.clone(),
        };
        self.insert(&row, "").await?;
        Ok(row)
    }
}
