//! `oac-core`: parse, configure, call the library, exit code.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use oac_core::{config, http::error::Chain, run};
use oac_model::CoreKeyId;

/// The control plane of oac.
#[derive(Parser)]
#[command(name = "oac-core", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until told to stop.
    Run(At),
    /// Manage Core keys.
    CoreKey {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Prepare this host for Core.
    Setup,
    /// Manage node files.
    #[command(disable_help_flag = true)]
    Release {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
}

#[derive(Subcommand)]
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

#[derive(clap::Args)]
struct At {
    /// The configuration file.
    #[arg(long, default_value = config::DEFAULT_PATH)]
    config: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
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
        Command::Setup => Err(run::ProgramError::NotBuilt("setup")),
        Command::Release { .. } => Err(run::ProgramError::NotBuilt("release")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oac-core: {}", Chain(&error));
            ExitCode::FAILURE
        }
    }
}
