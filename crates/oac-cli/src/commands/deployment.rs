//! `oac deployment show|set`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use oac_model::{ImageDigest, SourceCommit};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use crate::{Failure, client::Key, output};

const PATH: &str = "/core/v1/sandbox/deployment";

#[derive(Debug, Subcommand)]
pub(super) enum Deployment {
    /// Show what sandboxes are made of and how far nodes have followed
    Show,
    /// Save the Docker backend with a sandbox size and a Runtime release
    Set(Set),
}

#[derive(Debug, Args)]
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
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Show => show(context, &context.client.get(Key::Core, PATH).await?),
            Self::Set(set) => set.run(context).await?,
        }
        Ok(())
    }
}

impl Set {
    async fn run(self, context: &Context) -> Result<(), Failure> {
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
        let now = context.client.get(Key::Core, PATH).await?;
        let body = json!({
            "expected_generation": now.get("generation").and_then(Value::as_i64).unwrap_or(0),
            "provider": "docker",
            "resources": { "cpus": self.cpus, "memory_mib": self.memory },
            "runtime": {
                "source_commit": manifest.source_commit,
                "artifacts": {
                    "image_id": manifest.images.runtime.config_digest,
                    "image_manifest_digest": manifest.images.runtime.manifest_digest,
                },
            },
        });
        // Setup is a POST, a change of a present selection a PUT (core.md section 5).
        let saved = match now.get("provider") {
            None | Some(Value::Null) => context.client.post(Key::Core, PATH, &body).await?,
            Some(_) => context.client.put(Key::Core, PATH, &body).await?,
        };
        show(context, &saved);
        Ok(())
    }
}

fn show(context: &Context, deployment: &Value) {
    if context.json {
        return output::json(deployment);
    }
    for (label, path) in [
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
    ] {
        output::line(&format!("{label:<14} {}", output::cell(deployment, path)));
    }
}
