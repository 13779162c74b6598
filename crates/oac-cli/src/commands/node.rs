//! `oac node ls`.

use clap::Subcommand;
use serde_json::Value;

use super::Context;
use crate::{Failure, client::Key, output};

#[derive(Debug, Subcommand)]
pub(super) enum Node {
    /// List nodes
    Ls,
}

impl Node {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let nodes = context.client.get(Key::Core, "/core/v1/sandbox/nodes").await?;
        if context.json {
            output::json(&nodes);
            return Ok(());
        }
        let rows: Vec<Vec<String>> = nodes
            .get("data")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|node| {
                let online = node.get("online").and_then(Value::as_bool) == Some(true);
                let ready = node.get("provider_ready").and_then(Value::as_bool) == Some(true);
                let status = match (online, ready) {
                    (false, _) => "offline".to_owned(),
                    (true, true) => "ready".to_owned(),
                    (true, false) => format!("not ready ({})", output::cell(node, "diagnostic")),
                };
                vec![
                    output::cell(node, "id"),
                    output::cell(node, "name"),
                    status,
                    format!(
                        "{}/{}",
                        output::cell(node, "active"),
                        output::cell(node, "max_active")
                    ),
                    output::cell(node, "last_seen_at"),
                ]
            })
            .collect();
        output::table(&["NODE", "NAME", "STATUS", "SANDBOXES", "LAST SEEN"], &rows);
        Ok(())
    }
}
