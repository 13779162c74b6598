//! `oac allocation list|usage|discard`.

use clap::{Args, Subcommand};
use oac_model::{AllocationId, NodeId, SessionId};

use super::{Run, id};
use crate::{
    Failure,
    client::{
        Document,
        allocations::{Allocation as Shown, Observation, Sample},
    },
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Allocation {
    /// List what nodes hold: running sandboxes, those to come and those being removed
    #[command(visible_alias = "ls")]
    List(List),
    /// Show what running sandboxes use, as last observed: about every 30 seconds
    Usage(Usage),
    /// Give up a sandbox that ended or is missing, or what one left at hosts that never return
    Discard(Discard),
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only of this node
    #[arg(long, value_name = "NODE", value_parser = id::<NodeId>)]
    node: Option<NodeId>,
}

#[derive(Debug, Args)]
pub(super) struct Usage {
    /// Only of this Session
    #[arg(long, value_name = "SESSION", value_parser = id::<SessionId>)]
    session: Option<SessionId>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Only a sandbox that `oac allocation list` shows as discardable can be given up: its node is online and says that it ended \
or is missing, or its wake or restore keeps failing. Its running command ends as interrupted, its files are lost, and the Session's next input gets a new \
sandbox.

With --former-computes the sandbox goes on, and nothing waits any more for what it left at the nodes in its former_computes: \
nodes that are offline and will never return. Should one return all the same, it is told to kill that.")]
pub(super) struct Discard {
    /// Allocation id, as `oac allocation list` shows it
    #[arg(value_name = "ALLOCATION", value_parser = id::<AllocationId>)]
    allocation: AllocationId,
    #[command(flatten)]
    loss: Loss,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Loss {
    /// Say that you accept the loss of the sandbox
    #[arg(long)]
    accept_loss: bool,
    /// Say that the nodes where it left something never return
    #[arg(long)]
    former_computes: bool,
}

impl Allocation {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        match self {
            Self::List(List { node }) => {
                let shown = run.client.allocations(node).await?;
                if run.form == Form::Json {
                    return output::documents(shown.into_iter().map(|a| a.json));
                }
                table(&shown);
            }
            Self::Usage(Usage { session }) => {
                let shown = run.client.observations(session).await?;
                match run.form {
                    Form::Json => output::json(&shown.json),
                    Form::Text => usage(&shown.value.data),
                }
            }
            Self::Discard(Discard { allocation, loss }) => {
                let shown = if loss.former_computes {
                    run.client.discard_former_computes(allocation).await?
                } else {
                    run.client.discard_allocation(allocation).await?
                };
                match run.form {
                    Form::Json => output::json(&shown.json),
                    Form::Text => table(&[shown]),
                }
            }
        }
        Ok(())
    }
}

fn table(shown: &[Document<Shown>]) {
    let row = |a: &Document<Shown>| {
        let a = &a.value;
        let phase = Some(a.compute_phase.as_str()).filter(|phase| *phase != "disabled");
        vec![
            a.id.to_string(),
            a.session_id.to_string(),
            output::optional(a.node_id),
            phase.map_or_else(
                || output::cell(&a.state),
                |phase| output::cell(&format!("{} ({phase})", a.state)),
            ),
            output::cell(&a.diagnostic),
            match (a.discardable, a.former_computes.is_empty()) {
                (true, _) => "discardable",
                (false, false) => "former computes",
                (false, true) => "-",
            }
            .to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    output::table(
        &["ALLOCATION", "SESSION", "NODE", "STATE", "DIAGNOSTIC", "DISCARD"],
        &rows,
    );
}

fn usage(observed: &[Observation]) {
    let row = |observation: &Observation| {
        let sample = observation.sample.as_ref();
        vec![
            observation.allocation_id.to_string(),
            observation.session_id.to_string(),
            output::cell(&observation.status),
            output::optional(sample.and_then(cpu)),
            output::optional(sample.and_then(|s| of(s.memory_usage_bytes, s.memory_limit_bytes))),
            output::optional(sample.and_then(|s| s.disk_usage_bytes.map(mib))),
            sample.map_or_else(|| "-".to_owned(), |s| output::cell(&s.observed_at)),
        ]
    };
    let rows: Vec<Vec<String>> = observed.iter().map(row).collect();
    output::table(
        &[
            "ALLOCATION",
            "SESSION",
            "STATUS",
            "CPU",
            "MEMORY",
            "DISK",
            "OBSERVED",
        ],
        &rows,
    );
}

/// How busy it is where its backend says so, else how many seconds it computed so far; of so many cores.
fn cpu(sample: &Sample) -> Option<String> {
    let used = match (sample.cpu_utilization_ratio, sample.cpu_usage_seconds_total) {
        (Some(ratio), _) => format!("{:.0} %", ratio * 100.0),
        (None, Some(seconds)) => format!("{seconds:.1} s"),
        (None, None) => return None,
    };
    Some(match sample.cpu_capacity_cores {
        Some(cores) => format!("{used} of {cores}"),
        None => used,
    })
}

fn of(used: Option<u64>, limit: Option<u64>) -> Option<String> {
    let used = mib(used?);
    Some(match limit {
        Some(limit) => format!("{used} of {}", mib(limit)),
        None => used,
    })
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
