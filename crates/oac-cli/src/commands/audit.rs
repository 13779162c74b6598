//! `oac audit`.

use clap::Args;

use super::Run;
use crate::{
    Failure,
    client::{Document, audit::AuditEntry},
    output::{self, Form},
};

#[derive(Debug, Args)]
pub(super) struct Audit {
    /// How many entries, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Audit {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let entries = run.client.audit(self.limit as usize).await?;
        if run.form == Form::Json {
            return output::documents(entries.into_iter().map(|e| e.json));
        }
        let row = |entry: &Document<AuditEntry>| {
            let entry = &entry.value;
            vec![
                output::cell(&entry.at),
                output::cell(&format!("{} {}", entry.resource_type, entry.action)),
                output::cell(&entry.resource_id),
                output::cell(&entry.actor),
                output::cell(&entry.source),
            ]
        };
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        output::table(&["AT", "ACTION", "RESOURCE", "ACTOR", "SOURCE"], &rows);
        Ok(())
    }
}
