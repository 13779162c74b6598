//! The command line: what each command does and exits with.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use oac_model::{CoreKeyId, SourceCommit};

use crate::{config, http::error::Chain, run, setup};

/// The control plane of oac.
#[derive(Debug, Parser)]
#[command(name = "oac-core", version)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until told to stop.
    Run(At),
    /// Manage Core keys.
    CoreKey {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Prepare this host for Core: account, directories, configuration, a first Core key and the service.
    Setup(setup::First),
    /// Manage the releases that nodes are made from.
    Release {
        #[command(subcommand)]
        command: ReleaseCommand,
    },
}

#[derive(Debug, Subcommand)]
enum ReleaseCommand {
    /// Publish a release, or add the files that a published one lacks. Nothing published is ever changed.
    Publish {
        #[command(flatten)]
        at: At,
        /// The release directory: manifest.json, SHA256SUMS and artifacts.
        dir: PathBuf,
        /// Leave the current release the current one.
        #[arg(long)]
        keep_current: bool,
    },
    /// List releases: what is held of each, which is current, which generations select it.
    List(At),
    /// Remove a release that is neither current nor selected by a generation that is kept.
    Remove {
        #[command(flatten)]
        at: At,
        /// The commit that `list` shows.
        commit: SourceCommit,
    },
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Create a Core key and print it once.
    Create {
        #[command(flatten)]
        at: At,
        /// What the key is for.
        #[arg(long, default_value = "core key")]
        name: String,
    },
    /// List Core keys: id, when it was created, when it was revoked or -, and what it is for.
    List(At),
    /// Revoke a Core key.
    Revoke {
        #[command(flatten)]
        at: At,
        /// The id that `create` printed and `list` shows.
        id: CoreKeyId,
    },
}

#[derive(Debug, clap::Args)]
struct At {
    /// The configuration file.
    #[arg(long, default_value = config::DEFAULT_PATH)]
    config: PathBuf,
}

/// Does what the arguments say. Exit status 1 for a failure, told in one line, and 2 for wrong arguments.
pub async fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Run(at) => run::program(&at.config).await,
        Command::CoreKey {
            command: KeyCommand::Create { at, name },
        } => run::create_core_key(&at.config, &name).await,
        Command::CoreKey {
            command: KeyCommand::List(at),
        } => run::list_core_keys(&at.config).await,
        Command::CoreKey {
            command: KeyCommand::Revoke { at, id },
        } => run::revoke_core_key(&at.config, id).await,
        Command::Setup(first) => setup::run(&first).map_err(run::ProgramError::Setup),
        Command::Release { command } => match command {
            ReleaseCommand::Publish {
                at,
                dir,
                keep_current,
            } => run::publish_release(&at.config, &dir, keep_current),
            ReleaseCommand::List(at) => run::list_releases(&at.config).await,
            ReleaseCommand::Remove { at, commit } => run::remove_release(&at.config, commit).await,
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if oac_telemetry::log::is_json() {
                tracing::error!(event = "program_failed", error = %Chain(&error), "oac-core ends");
            } else {
                eprintln!("oac-core: {}", Chain(&error));
            }
            ExitCode::FAILURE
        }
    }
}
