//! The commands and their arguments.

mod admin;
mod deployment;
mod exec;
mod login;
mod node;
mod session;

use std::{ffi::OsString, path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand};

use crate::{Failure, client::Client, config, output};

/// Run commands in sandboxes on your own hosts, and operate the hosts.
#[derive(Debug, Parser)]
#[command(name = "oac", version, about, arg_required_else_help = true)]
pub struct Cli {
    /// Configuration file [default: ~/.config/oac/config.toml]
    #[arg(long, global = true, value_name = "F")]
    config: Option<PathBuf>,
    /// Print one JSON document, or one per line for streams
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the configuration: Core's address and your keys, asked for on the terminal
    Login(login::Login),
    /// Sessions and the commands in them
    #[command(subcommand)]
    Session(session::Session),
    /// Hosts that run sandboxes
    #[command(subcommand)]
    Node(node::Node),
    /// What sandboxes are made of
    #[command(subcommand)]
    Deployment(deployment::Deployment),
    /// Projects and their keys
    #[command(subcommand)]
    Admin(admin::Admin),
}

/// What every command gets.
struct Context {
    client: Client,
    json: bool,
}

#[derive(Debug, Args)]
struct SessionId {
    /// Session id, as `oac session ls` shows it
    #[arg(value_name = "S", value_parser = id::<oac_model::SessionId>)]
    session: oac_model::SessionId,
}

/// An id in an argument. A name in its place is the usual mistake.
fn id<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "give the id, as `create` and `ls` print it, not a name".to_owned())
}

impl Cli {
    /// Reads the program's arguments. What does not end in a command is printed, and is an exit status.
    pub fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, u8> {
        let arguments: Vec<OsString> = arguments.collect();
        Self::try_parse_from(&arguments).map_err(|error| {
            output::written(error.print());
            let mut words = arguments.iter().take_while(|a| *a != "--");
            let exec = words.any(|a| a == "session") && words.any(|a| a == "exec");
            if exec && error.use_stderr() {
                exec::ANYTHING_ELSE
            } else {
                u8::try_from(error.exit_code()).unwrap_or(exec::ANYTHING_ELSE)
            }
        })
    }

    /// Runs the command and returns the exit status.
    pub async fn run(self) -> u8 {
        let exec = matches!(self.command, Command::Session(session::Session::Exec(_)));
        let done = self.dispatch().await;
        if done.is_ok()
            && let Some(why) = output::lost()
        {
            output::complain(&format!(
                "what was printed could not all be written ({why}): make room where it goes to"
            ));
            return if exec { exec::ANYTHING_ELSE } else { 1 };
        }
        match done {
            Ok(status) => status,
            Err(failure) => {
                output::complain_of(&failure);
                // sessions.md section 10a: only the command's own end gives another status.
                if exec {
                    exec::ANYTHING_ELSE
                } else {
                    failure.exit_status()
                }
            }
        }
    }

    async fn dispatch(self) -> Result<u8, Failure> {
        let path = match self.config {
            Some(path) => path,
            None => config::default_path()?,
        };
        let json = self.json;
        let context = || {
            Ok::<_, Failure>(Context {
                client: Client::new(config::Config::load(&path)?)?,
                json,
            })
        };
        match self.command {
            Command::Login(login) => login.run(&path).map(|()| 0),
            Command::Session(session::Session::Exec(exec)) => exec.run(&context()?).await,
            Command::Session(session) => session.run(&context()?).await.map(|()| 0),
            Command::Node(node) => node.run(&context()?).await.map(|()| 0),
            Command::Deployment(deployment) => deployment.run(&context()?).await.map(|()| 0),
            Command::Admin(admin) => admin.run(&context()?).await.map(|()| 0),
        }
    }
}
