//! `oac deployment reset|cancel-reset`.

use std::time::Duration;

use clap::Args;
use tokio::time::sleep;

use super::show;
use crate::{
    Failure,
    client::deployment::{Clear, Deployment, Reset as Standing},
    commands::Run,
    output::{self, Form, status::StatusLine},
    terminal,
};

/// How often a reset that is waited for is looked at.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "\
A reset archives every Session, removes their sandboxes, and then retires every node and unused token: afterwards \
another backend can be set up. Sessions that work may finish until the deadline, unless --force is given. Repeating a \
reset keeps its deadline; with --force it becomes a forced one.

Examples:
  oac deployment reset --deadline 3600 --wait
  oac deployment reset --force --yes
  oac deployment cancel-reset")]
pub(in super::super) struct Reset {
    /// Seconds that running work may take: 300 to 86400 [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(300..=86_400))]
    deadline: Option<u32>,
    /// Cancel running work now
    #[arg(long, conflicts_with = "deadline")]
    force: bool,
    /// Return when the reset is complete
    #[arg(long)]
    wait: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Reset {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        if !self.yes && !terminal::is_interactive() {
            return Err(Failure::Usage(
                "there is no terminal to ask on: add --yes to reset without asking".to_owned(),
            ));
        }
        let now = run.client.deployment().await?.value;
        if !self.yes {
            let what = if self.force {
                "Reset the deployment? Running work is canceled now, and all Sessions with their files are removed for good."
            } else {
                "Reset the deployment? All Sessions with their files are removed for good, at the latest at the deadline."
            };
            if !terminal::confirm(what)? {
                return Err(Failure::Unfinished("nothing was reset".to_owned()));
            }
        }
        let clear = if self.force {
            Clear::Force
        } else {
            Clear::Auto {
                deadline_seconds: self.deadline,
            }
        };
        let begun = run.client.reset_deployment(&now, clear).await?;
        if self.wait {
            wait(run, now.generation).await
        } else {
            show(run, &begun.json);
            Ok(())
        }
    }
}

/// Cancels the reset of the deployment as it is now.
pub(super) async fn cancel(run: &Run) -> Result<(), Failure> {
    let now = run.client.deployment().await?.value;
    show(run, &run.client.cancel_reset(&now).await?.json);
    Ok(())
}

/// Until the reset of `generation` has ended. Core may restart meanwhile.
async fn wait(run: &Run, generation: u64) -> Result<(), Failure> {
    let status = StatusLine::new(run.form == Form::Text);
    let mut said = None;
    loop {
        let now = match run.client.deployment().await {
            Ok(now) => now,
            Err(failure) if failure.is_passing() => {
                status.show("waiting: Core does not answer; the reset is not affected, trying again");
                sleep(LOOK).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let Deployment {
            generation: present,
            reset,
            ..
        } = now.value;
        match reset {
            // Its completion is the only thing that changes the generation meanwhile.
            _ if present != generation => {
                status.clear();
                show(run, &now.json);
                return Ok(());
            }
            None => {
                return Err(Failure::Unfinished(
                    "the reset was canceled: what it archived stays archived".to_owned(),
                ));
            }
            Some(reset) => {
                status.show(&format!("waiting: {}", remaining(&reset)));
                if run.form == Form::Text && !status.is_enabled() {
                    let offline = offline(&reset);
                    if said.as_ref() != Some(&offline) && !offline.is_empty() {
                        output::note(&format!("waiting for nodes that are offline: {offline}"));
                    }
                    said = Some(offline);
                }
            }
        }
        sleep(LOOK).await;
    }
}

/// What is left, in one line.
pub(super) fn remaining(reset: &Standing) -> String {
    let left = &reset.remaining;
    let mut line = format!(
        "{} busy, {} idle, {} being removed",
        left.busy, left.idle, left.cleanup
    );
    if left.on_offline_nodes > 0 {
        line.push_str(&format!("; offline nodes: {}", offline(reset)));
    }
    line
}

/// The nodes that have to come back, each with what it holds.
fn offline(reset: &Standing) -> String {
    let nodes = &reset.remaining.offline_nodes;
    let names: Vec<String> = nodes
        .iter()
        .map(|node| format!("{} ({})", output::cell(&node.name), node.resources))
        .collect();
    names.join(", ")
}
