//! `oac node add|list|show|history|edit|label|cordon|uncordon|drain|rm|cleanup-command`.

mod add;

use std::collections::BTreeMap;

use clap::{Args, Subcommand, ValueEnum};
use oac_model::NodeId;

use super::{Run, id};
use crate::{
    Failure,
    client::{
        Document,
        nodes::{Capacity, Node as Shown, NodeDrain, NodeEdit, Point},
    },
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Node {
    /// Print the command that makes a host a node, and follow the node until it is ready
    Add(add::Add),
    /// List nodes
    #[command(visible_alias = "ls")]
    List,
    /// Show one node
    Show(NodeArgument),
    /// Show how busy a node's host was
    History(History),
    /// Change a node's name and limits; what runs is not stopped
    Edit(Edit),
    /// Set and remove labels; what is placed is not moved
    Label(Label),
    /// Place nothing new on a node; what runs there runs on
    Cordon(NodeArgument),
    /// Place new sandboxes on a cordoned node again
    Uncordon(NodeArgument),
    /// Empty a node by a deadline, or cancel that
    Drain(Drain),
    /// Remove a node that holds nothing, for good
    Rm(NodeArgument),
    /// Print the command that gives a host back
    CleanupCommand(CleanupCommand),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Paste it on a host whose node was removed, or that never became one. It removes the node's service, files and records.")]
pub(super) struct CleanupCommand {
    /// For a host whose node enrolled with an address that is gone: it does not ask Core whether the node was removed
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct NodeArgument {
    /// Node id, as `oac node list` shows it
    #[arg(value_name = "NODE", value_parser = id::<NodeId>)]
    node: NodeId,
}

#[derive(Debug, Args)]
pub(super) struct History {
    #[command(flatten)]
    node: NodeArgument,
    /// How far back
    #[arg(long, value_name = "RANGE", default_value = "1h", value_parser = ["1h", "6h", "24h"])]
    range: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is not given stays as it is. A limit below what runs stops nothing: nothing new is placed until there is room.

Examples:
  oac node edit $N --name rack-7
  oac node edit $N --max-active 8
  oac node edit $N --recommended")]
pub(super) struct Edit {
    #[command(flatten)]
    node: NodeArgument,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Sandboxes at once; for Docker the other limit follows
    #[arg(long, value_name = "N", conflicts_with = "recommended")]
    max_active: Option<u64>,
    /// Running and suspended sandboxes together; for Docker the same as --max-active
    #[arg(long, value_name = "N", conflicts_with = "recommended")]
    max_retained: Option<u64>,
    /// The limits that Core recommends for the host
    #[arg(long)]
    recommended: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac node label $N zone=a disk=ssd       sets two labels and keeps the others
  oac node label $N disk-                 removes one")]
pub(super) struct Label {
    #[command(flatten)]
    node: NodeArgument,
    /// KEY=VALUE sets a label, KEY- removes it
    #[arg(value_name = "LABEL", required = true, value_parser = change)]
    changes: Vec<Change>,
}

/// One label to be set, or with `None` removed.
type Change = (String, Option<String>);

fn change(text: &str) -> Result<Change, String> {
    match (text.split_once('='), text.strip_suffix('-')) {
        (Some((key, value)), _) if !key.is_empty() => Ok((key.to_owned(), Some(value.to_owned()))),
        (None, Some(key)) if !key.is_empty() => Ok((key.to_owned(), None)),
        _ => Err("expected KEY=VALUE, or KEY- to remove".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The node takes nothing new from now on. Sandboxes run on until the deadline; what still runs then is ended. The drain is \
over when nothing is left, and the node stays cordoned: remove it, or `oac node uncordon` it. `oac node show` tells how \
far it came.

Examples:
  oac node drain $N                                      an hour, then the Sessions that remain are archived
  oac node drain $N --deadline 600 --then terminate      ten minutes, then commands are interrupted; Sessions stay
  oac node drain $N --cancel                             nothing is undone; the node stays cordoned")]
pub(super) struct Drain {
    #[command(flatten)]
    node: NodeArgument,
    /// From now until what still runs is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(60..=604_800))]
    deadline: u32,
    /// Before the deadline, with a backend that suspends
    #[arg(long, value_enum, default_value_t = Idle::Suspend)]
    idle: Idle,
    /// At the deadline
    #[arg(long, value_enum, default_value_t = Then::Archive)]
    then: Then,
    /// Suspended sandboxes
    #[arg(long, value_enum, default_value_t = Retained::Keep)]
    retained: Retained,
    /// Cancel the drain
    #[arg(long, conflicts_with_all = ["deadline", "idle", "then", "retained"])]
    cancel: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Idle {
    /// Suspend idle sandboxes
    Suspend,
    /// Let them run until the deadline
    Wait,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Then {
    /// Archive the Sessions of what still runs
    Archive,
    /// Remove the sandboxes and keep the Sessions
    Terminate,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Retained {
    /// Stay on the node
    Keep,
    /// Are removed at the deadline
    Release,
}

impl Node {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let client = &run.client;
        let changed = match self {
            Self::Add(add) => return add.run(run).await,
            Self::List => return list(run).await,
            Self::CleanupCommand(cleanup) => return cleanup.run(run).await,
            Self::Show(NodeArgument { node }) => client.node(node).await?,
            Self::History(history) => return history.run(run).await,
            Self::Edit(edit) => edit.run(run).await?,
            Self::Label(label) => label.run(run).await?,
            Self::Cordon(NodeArgument { node }) => client.cordon_node(node, true).await?,
            Self::Uncordon(NodeArgument { node }) => client.cordon_node(node, false).await?,
            Self::Drain(drain) => drain.run(run).await?,
            Self::Rm(NodeArgument { node }) => {
                client.remove_node(node).await?;
                if run.form == Form::Text {
                    output::note("The host is given back with the command of `oac node cleanup-command`.");
                }
                return Ok(());
            }
        };
        match run.form {
            Form::Json => output::json(&changed.json),
            Form::Text => show(&changed.value),
        }
        Ok(())
    }
}

async fn list(run: &Run) -> Result<(), Failure> {
    let nodes = run.client.nodes().await?;
    if run.form == Form::Json {
        output::json(&nodes.json);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = nodes.value.data.iter().map(row).collect();
    output::table(&["NODE", "NAME", "STATUS", "SANDBOXES", "LAST SEEN"], &rows);
    Ok(())
}

impl Edit {
    async fn run(self, run: &Run) -> Result<Document<Shown>, Failure> {
        let Self {
            node: NodeArgument { node },
            name,
            max_active,
            max_retained,
            recommended,
        } = self;
        if name.is_none() && max_active.is_none() && max_retained.is_none() && !recommended {
            return Err(Failure::Usage(
                "nothing to change: give --name, --max-active, --max-retained or --recommended".to_owned(),
            ));
        }
        let now = run.client.node(node).await?.value;
        let limits = if recommended {
            now.recommended.ok_or_else(|| {
                Failure::Usage(format!(
                    "Core has no recommendation for {node}: it is offline, or its host is too small for one sandbox"
                ))
            })?
        } else {
            limits(&now, max_active, max_retained)
        };
        let edit = NodeEdit {
            name: name.unwrap_or(now.name),
            max_active: limits.max_active,
            max_retained: limits.max_retained,
        };
        run.client.edit_node(node, &edit).await
    }
}

impl CleanupCommand {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let commands = run.client.cleanup_commands().await?;
        match run.form {
            Form::Json => output::json(&commands.json),
            Form::Text => output::line(if self.force {
                &commands.value.forced_command
            } else {
                &commands.value.command
            }),
        }
        Ok(())
    }
}

/// On Docker nothing is suspended, so one limit is both.
fn limits(now: &Shown, max_active: Option<u64>, max_retained: Option<u64>) -> Capacity {
    let docker = now.provider == "docker";
    let other = |given: Option<u64>| given.filter(|_| docker);
    Capacity {
        max_active: max_active.or(other(max_retained)).unwrap_or(now.max_active),
        max_retained: max_retained.or(other(max_active)).unwrap_or(now.max_retained),
    }
}

impl Label {
    async fn run(self, run: &Run) -> Result<Document<Shown>, Failure> {
        let NodeArgument { node } = self.node;
        let mut labels = run.client.node(node).await?.value.labels;
        for (key, value) in self.changes {
            match value {
                Some(value) => drop(labels.insert(key, value)),
                None => drop(labels.remove(&key)),
            }
        }
        run.client.set_node_labels(node, &labels).await
    }
}

impl History {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let shown = run.client.node_history(self.node.node, &self.range).await?;
        if run.form == Form::Json {
            output::json(&shown.json);
            return Ok(());
        }
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let row = |point: &Point| {
            vec![
                output::cell(&point.start),
                output::optional(
                    point
                        .cpu_utilization_max
                        .map(|cpu| format!("{:.0} %", cpu * 100.0)),
                ),
                output::optional(point.memory_used_bytes_max.map(gib)),
                output::optional(point.available_disk_bytes_min.map(gib)),
            ]
        };
        let rows: Vec<Vec<String>> = shown.value.history.points.iter().map(row).collect();
        output::table(&["FROM", "CPU MAX", "MEMORY MAX", "DISK FREE MIN"], &rows);
        Ok(())
    }
}

impl Drain {
    async fn run(self, run: &Run) -> Result<Document<Shown>, Failure> {
        let NodeArgument { node } = self.node;
        if self.cancel {
            return run.client.cancel_drain(node).await;
        }
        let drain = NodeDrain {
            deadline_seconds: self.deadline,
            idle: match self.idle {
                Idle::Suspend => "suspend",
                Idle::Wait => "wait",
            },
            then: match self.then {
                Then::Archive => "archive",
                Then::Terminate => "terminate",
            },
            retained: match self.retained {
                Retained::Keep => "keep",
                Retained::Release => "release",
            },
        };
        run.client.drain_node(node, &drain).await
    }
}

/// Whether it serves, and what an operator did about it.
fn status(node: &Shown) -> String {
    let mut status = match (node.online, node.provider_ready) {
        (false, _) => "offline".to_owned(),
        (true, true) => "ready".to_owned(),
        (true, false) => format!("not ready ({})", output::optional(node.diagnostic.as_deref())),
    };
    match (&node.drain, node.cordoned) {
        (Some(_), _) => status.push_str(", draining"),
        (None, true) => status.push_str(", cordoned"),
        (None, false) => {}
    }
    status
}

fn row(node: &Shown) -> Vec<String> {
    vec![
        node.id.to_string(),
        output::cell(&node.name),
        status(node),
        format!("{}/{}", node.active, node.max_active),
        output::optional(node.last_seen_at.as_deref()),
    ]
}

fn show(node: &Shown) {
    let pairs = |labels: &BTreeMap<String, String>| {
        let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        output::cell(&pairs.join(" "))
    };
    let limits = |capacity: Capacity| {
        format!(
            "{} active, {} retained",
            capacity.max_active, capacity.max_retained
        )
    };
    let drain = node.drain.as_ref().map(|drain| {
        let then = output::optional(drain.then.as_deref());
        match &drain.deadline_passed_at {
            Some(at) => format!("deadline passed {at} ({then})"),
            None => format!(
                "until {}, then {then}",
                output::optional(drain.deadline_at.as_deref())
            ),
        }
    });
    output::facts(&[
        ("Node", node.id.to_string()),
        ("Name", output::cell(&node.name)),
        ("Status", status(node)),
        ("Active", format!("{} of {}", node.active, node.max_active)),
        ("Retained", format!("{} of {}", node.retained, node.max_retained)),
        ("Recommended", output::optional(node.recommended.map(limits))),
        ("Labels", pairs(&node.labels)),
        ("Drain", output::optional(drain)),
        ("Last seen", output::optional(node.last_seen_at.as_deref())),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_set_by_an_equals_sign_and_removed_by_a_dash_at_the_end() {
        let set = |k: &str, v: &str| Ok((k.to_owned(), Some(v.to_owned())));
        assert_eq!(change("zone=a"), set("zone", "a"));
        assert_eq!(change("zone="), set("zone", ""));
        assert_eq!(change("zone=a-"), set("zone", "a-"));
        assert_eq!(change("disk-"), Ok(("disk".to_owned(), None)));
        for text in ["", "-", "=a", "zone"] {
            assert!(change(text).is_err(), "{text}");
        }
    }
}
