//! `oac deployment show|set|reset|cancel-reset|suspension`.

mod reset;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use oac_model::{ImageDigest, SourceCommit};
use serde::Deserialize;
use serde_json::Value;

use super::Run;
use crate::{
    Failure,
    client::deployment::{Reset, Selection},
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Deployment {
    /// Show what sandboxes are made of and how far nodes have followed
    Show,
    /// Save the Docker backend with a sandbox size and a Runtime release
    Set(Set),
    /// Give everything back, so that another backend can be set up
    Reset(reset::Reset),
    /// Cancel a reset; what it archived stays archived
    CancelReset,
    /// Save when idle sandboxes are suspended (microsandbox alone)
    Suspension(Suspension),
}

#[derive(Debug, Args)]
pub(super) struct Suspension {
    /// Suspend a sandbox that was idle for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(60..=86_400))]
    idle: u32,
    /// Keep a suspended sandbox for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(3_600..=2_592_000))]
    retention: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  oac deployment set --runtime dist/manifest.json --cpus 2 --memory 2048")]
pub(super) struct Set {
    /// Manifest of the Runtime release: manifest.json of a release directory
    #[arg(long, value_name = "manifest.json")]
    runtime: PathBuf,
    /// CPUs of one sandbox
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// Memory of one sandbox, in MiB
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(512..=1_048_576))]
    memory: u64,
}

/// What this command needs of a release manifest (releases.md section 2).
#[derive(Deserialize)]
struct Manifest {
    source_commit: SourceCommit,
    images: Images,
}

#[derive(Deserialize)]
struct Images {
    runtime: Image,
}

#[derive(Deserialize)]
struct Image {
    config_digest: ImageDigest,
    manifest_digest: ImageDigest,
}

impl Deployment {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        match self {
            Self::Show => show(run, &run.client.deployment().await?.json),
            Self::Set(set) => set.run(run).await?,
            Self::Reset(reset) => reset.run(run).await?,
            Self::CancelReset => reset::cancel(run).await?,
            Self::Suspension(Suspension { idle, retention }) => {
                show(run, &run.client.save_suspension(idle, retention).await?.json);
            }
        }
        Ok(())
    }
}

impl Set {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let text = match std::fs::read(&self.runtime) {
            Ok(text) => text,
            Err(source) => {
                return Err(Failure::File {
                    path: self.runtime,
                    source,
                });
            }
        };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|_| {
            Failure::Usage(format!(
                "{} is no release manifest: name its manifest.json",
                self.runtime.display()
            ))
        })?;
        let now = run.client.deployment().await?.value;
        let selection = Selection {
            cpus: self.cpus,
            memory_mib: self.memory,
            source_commit: manifest.source_commit,
            image_id: manifest.images.runtime.config_digest,
            image_manifest_digest: manifest.images.runtime.manifest_digest,
        };
        show(run, &run.client.save_deployment(&now, &selection).await?.json);
        Ok(())
    }
}

fn show(run: &Run, deployment: &Value) {
    if run.form == Form::Json {
        return output::json(deployment);
    }
    let facts = [
        ("Installation", "installation_id"),
        ("Provider", "provider"),
        ("Generation", "generation"),
        ("CPUs", "specification.resources.cpus"),
        ("Memory (MiB)", "specification.resources.memory_mib"),
        ("Runtime", "specification.runtime.source_commit"),
        ("Digest", "specification_digest"),
        ("Core URL", "core_url"),
        ("Sandboxes", "resources.allocations"),
        ("Pending", "resources.pending"),
        ("Rollout", "rollout.state"),
        ("Nodes ready", "rollout.nodes.ready"),
        ("Nodes unknown", "rollout.nodes.unknown"),
        ("Idle (s)", "suspension.idle_seconds"),
        ("Retention (s)", "suspension.retention_seconds"),
    ]
    .map(|(label, path)| (label, output::member(deployment, path)));
    let mut facts = facts.to_vec();
    let reset = serde_json::from_value::<Option<Reset>>(deployment["reset"].clone());
    match reset.ok().flatten() {
        None => facts.push(("Reset", "-".to_owned())),
        Some(reset) => facts.extend(of_reset(&reset)),
    }
    output::facts(&facts);
}

/// How far a reset is, and what it waits for.
fn of_reset(reset: &Reset) -> Vec<(&'static str, String)> {
    let how = match (&reset.forced_at, &reset.deadline_at) {
        (Some(at), _) => format!("forced {}", output::cell(at)),
        (None, Some(at)) => format!("{}, forced at {}", output::cell(&reset.clear), output::cell(at)),
        (None, None) => output::cell(&reset.clear),
    };
    let mut facts = vec![("Reset", how), ("Remaining", reset::remaining(reset))];
    let discardable = reset.remaining.discardable.iter();
    facts.extend(discardable.map(|one| ("Discardable", one.allocation_id.to_string())));
    facts
}
