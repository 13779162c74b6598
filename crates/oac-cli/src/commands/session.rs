//! `oac session create|ls|show|archive`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{Context, SessionId, exec};
use crate::{Failure, client::Key, output};

#[derive(Debug, Subcommand)]
pub(super) enum Session {
    /// Create a Session; its sandbox starts at once
    Create(Create),
    /// List Sessions
    Ls(Ls),
    /// Show one Session
    Show(SessionId),
    /// Run a command in a Session's sandbox and stream its output
    Exec(exec::Exec),
    /// Archive a Session: cancel what runs and give its sandbox up, for good
    Archive(SessionId),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Require a node label, as key=value; may repeat
    #[arg(long = "node-label", value_name = "K=V", value_parser = pair)]
    node_labels: Vec<(String, String)>,
    /// Metadata, as key=value; may repeat
    #[arg(long = "metadata", value_name = "K=V", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    /// Only Sessions in this state: idle, busy, failed or archived
    #[arg(long)]
    state: Option<oac_state::State>,
}

/// The states as the command line takes them.
mod oac_state {
    #[derive(Debug, Clone, Copy, clap::ValueEnum)]
    pub(super) enum State {
        Idle,
        Busy,
        Failed,
        Archived,
    }
}

/// `key=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

fn object(pairs: Vec<(String, String)>) -> Value {
    Value::Object(
        pairs
            .into_iter()
            .map(|(k, v)| (k, Value::String(v)))
            .collect::<Map<_, _>>(),
    )
}

impl Session {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        match self {
            Self::Create(create) => {
                let mut body = Map::new();
                if let Some(name) = create.name {
                    body.insert("name".to_owned(), name.into());
                }
                if !create.node_labels.is_empty() {
                    body.insert("node_labels".to_owned(), object(create.node_labels));
                }
                if !create.metadata.is_empty() {
                    body.insert("metadata".to_owned(), object(create.metadata));
                }
                let session = client
                    .post(Key::Project, "/v1/sessions", &Value::Object(body))
                    .await?;
                if context.json {
                    output::json(&session)
                } else {
                    output::line(&output::cell(&session, "id"))
                }
            }
            Self::Ls(ls) => {
                let path = match ls.state {
                    Some(state) => format!("/v1/sessions?state={state:?}").to_lowercase(),
                    None => "/v1/sessions".to_owned(),
                };
                let sessions = client.list(Key::Project, &path).await?;
                if context.json {
                    output::json(&json!({ "data": sessions }));
                } else {
                    let columns = [
                        "id",
                        "name",
                        "state",
                        "sandbox.state",
                        "placement.node_id",
                        "created_at",
                    ];
                    let rows: Vec<Vec<String>> = sessions
                        .iter()
                        .map(|s| columns.iter().map(|c| output::cell(s, c)).collect())
                        .collect();
                    output::table(&["SESSION", "NAME", "STATE", "SANDBOX", "NODE", "CREATED"], &rows);
                }
            }
            Self::Show(id) => {
                let session = client
                    .get(Key::Project, &format!("/v1/sessions/{}", id.session))
                    .await?;
                show(context, &session);
            }
            Self::Archive(id) => {
                let session = client
                    .delete(Key::Project, &format!("/v1/sessions/{}", id.session))
                    .await?;
                if context.json {
                    output::json(&session);
                } else {
                    output::line(&format!("{} archived; its sandbox is being removed", id.session));
                }
            }
            Self::Exec(_) => unreachable!("exec has an exit status of its own and is dispatched before"),
        }
        Ok(())
    }
}

fn show(context: &Context, session: &Value) {
    if context.json {
        return output::json(session);
    }
    for (label, path) in [
        ("Session", "id"),
        ("Name", "name"),
        ("State", "state"),
        ("Reason", "reason"),
        ("Sandbox", "sandbox.state"),
        ("Diagnostic", "sandbox.diagnostic"),
        ("Node", "placement.node_id"),
        ("Node online", "placement.online"),
        ("Generation", "placement.generation"),
        ("Network", "network.access"),
        ("Turns queued", "turns.queued"),
        ("Turns running", "turns.running"),
        ("Created", "created_at"),
        ("Last activity", "last_activity_at"),
        ("Archived", "archived_at"),
    ] {
        output::line(&format!("{label:<14} {}", output::cell(session, path)));
    }
}
