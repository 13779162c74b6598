//! `/core/v1/audit`.

use serde::Deserialize;

use super::{Client, Document, Key, Page, query};
use crate::Failure;

/// Rows of the largest page that Core gives.
const PAGE: usize = 100;

#[derive(Debug, Deserialize)]
pub struct AuditEntry {
    pub at: String,
    pub actor: String,
    pub source: String,
    pub resource_type: String,
    pub resource_id: String,
    pub action: String,
}

impl Client {
    /// The newest `count` entries, newest first.
    pub async fn audit(&self, count: usize) -> Result<Vec<Document<AuditEntry>>, Failure> {
        let mut entries = Vec::new();
        let mut cursor = String::new();
        while entries.len() < count {
            let limit = PAGE.min(count - entries.len());
            let path = format!("/core/v1/audit?limit={limit}{cursor}");
            let page: Document<Page> = self.get(Key::Core, &path).await?;
            for json in page.value.data {
                entries.push(Document {
                    value: AuditEntry::deserialize(&json).map_err(|_| self.not_core(200))?,
                    json,
                });
            }
            match page.value.next {
                Some(next) => cursor = format!("&cursor={}", query(&next)),
                None => break,
            }
        }
        Ok(entries)
    }
}
