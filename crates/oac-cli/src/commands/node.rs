//! `oac node list`.

use clap::Subcommand;

use super::Run;
use crate::{
    Failure,
    client::nodes::Node as Shown,
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Node {
    /// List nodes
    #[command(visible_alias = "ls")]
    List,
}

impl Node {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let Self::List = self;
        let nodes = run.client.nodes().await?;
        if run.form == Form::Json {
            output::json(&nodes.json);
            return Ok(());
        }
        let rows: Vec<Vec<String>> = nodes.value.data.iter().map(row).collect();
        output::table(&["NODE", "NAME", "STATUS", "SANDBOXES", "LAST SEEN"], &rows);
        Ok(())
    }
}

fn row(node: &Shown) -> Vec<String> {
    let status = match (node.online, node.provider_ready) {
        (false, _) => "offline".to_owned(),
        (true, true) => "ready".to_owned(),
        (true, false) => format!("not ready ({})", output::optional(node.diagnostic.as_deref())),
    };
    vec![
        node.id.to_string(),
        output::cell(&node.name),
        status,
        format!("{}/{}", node.active, node.max_active),
        output::optional(node.last_seen_at.as_deref()),
    ]
}
