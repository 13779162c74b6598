//! `oac deployment show|set`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use oac_model::{ImageDigest, SourceCommit};
use serde::Deserialize;
use serde_json::Value;

use super::Run;
use crate::{
    Failure,
    client::deployment::Selection,
    output::{self, Form},
};

#[derive(Debug, Subcommand)]
pub(super) enum Deployment {
    /// Show what sandboxes are made of and how far nodes have followed
    Show,
    /// Save the Docker backend with a sandbox size and a Runtime release
    Set(Set),
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
        ("Reset", "reset.clear"),
    ]
    .map(|(label, path)| (label, output::member(deployment, path)));
    output::facts(&facts);
}
