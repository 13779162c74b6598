//! The commands and their arguments.

mod admin;
mod allocation;
mod audit;
mod context;
mod copy;
mod deployment;
mod exec;
mod forward;
mod login;
mod manual;
mod node;
mod session;
mod turns;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, Parser, Subcommand};

use crate::{
    Failure,
    client::Client,
    config::{self, Config, Name},
    output::{self, Form},
};

const EXAMPLES: &str = "\
Begin with:
  oac login                                     where Core is, and your keys
  S=$(oac session create --name work)           a Session with a sandbox of its own
  oac session exec $S -- uname -a               a command in it
  oac session cp ./src $S:src                   files into it
  oac session port-forward $S 8080:8000         a port of it on this machine
  oac session rm $S                             and away with it

Exit status: 0 done; 1 refused or failed, with one line saying why; 2 wrong arguments. \
`oac session exec` has its own, see its help.";

/// Run commands in sandboxes on your own hosts, and operate the hosts
#[derive(Debug, Parser)]
#[command(name = "oac", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Configuration file [default: ~/.config/oac/config.toml]
    #[arg(long, global = true, value_name = "F", help_heading = "Global options")]
    config: Option<PathBuf>,
    /// The installation to talk to [default: the current context]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    context: Option<Name>,
    /// Print one JSON document, or one per line for streams
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the configuration: Core's address and your keys, asked for on the terminal
    Login(login::Login),
    /// The installations that the configuration knows
    #[command(subcommand)]
    Context(context::Context),
    /// Sessions, and the commands, files and ports in them
    #[command(subcommand)]
    Session(session::Session),
    /// Hosts that run sandboxes
    #[command(subcommand)]
    Node(node::Node),
    /// What nodes hold for Sessions
    #[command(subcommand)]
    Allocation(allocation::Allocation),
    /// What sandboxes are made of
    #[command(subcommand)]
    Deployment(deployment::Deployment),
    /// Projects and their keys
    #[command(subcommand)]
    Admin(admin::Admin),
    /// Who changed what: the newest entries of the audit log
    Audit(audit::Audit),
    /// Print a script that completes `oac` in a shell
    Completions(manual::Completions),
    /// Print the manual page, or write all of them
    Man(manual::Man),
}

/// What every command that talks to Core gets.
struct Run {
    client: Client,
    form: Form,
    /// The configuration file, and the context in use.
    config: PathBuf,
    context: Name,
}

impl Run {
    fn begin(path: &Path, context: Option<&Name>, form: Form) -> Result<Self, Failure> {
        let config = Config::load(path)?;
        let (context, entry) = config.entry(context)?;
        Ok(Self {
            client: Client::new(context.clone(), entry.clone())?,
            form,
            config: path.to_owned(),
            context,
        })
    }
}

#[derive(Debug, Clone, Copy, Args)]
struct SessionArgument {
    /// Session id, as `oac session list` shows it
    #[arg(value_name = "S", value_parser = id::<oac_model::SessionId>)]
    session: oac_model::SessionId,
}

/// An id in an argument. A name in its place is the usual mistake.
fn id<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "give the id, as `create` and `list` print it, not a name".to_owned())
}

/// `key=value`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

impl Cli {
    /// Reads the program's arguments. What does not end in a command is printed, and is an exit status.
    pub fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, u8> {
        let arguments: Vec<OsString> = arguments.collect();
        Self::try_parse_from(&arguments).map_err(|error| {
            output::written(error.print());
            if !error.use_stderr() && output::complain_of_loss() {
                return 1;
            }
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
        let form = if self.json { Form::Json } else { Form::Text };
        let done = self.dispatch(form).await;
        if done.is_ok() && output::complain_of_loss() {
            return if exec { exec::ANYTHING_ELSE } else { 1 };
        }
        match done {
            Ok(status) => status,
            Err(failure) => {
                output::failed(form, &failure);
                // sessions.md section 10a: only the command's own end gives another status.
                if exec {
                    exec::ANYTHING_ELSE
                } else {
                    failure.exit_status()
                }
            }
        }
    }

    async fn dispatch(self, form: Form) -> Result<u8, Failure> {
        let path = || self.config.clone().map_or_else(config::default_path, Ok);
        let run = || Run::begin(&path()?, self.context.as_ref(), form);
        match self.command {
            Command::Login(login) => login.run(&path()?, self.context, form).await,
            Command::Context(context) => context.run(&path()?, self.context, form),
            Command::Session(session) => return session.run(&run()?).await,
            Command::Node(node) => node.run(&run()?).await,
            Command::Allocation(allocation) => allocation.run(&run()?).await,
            Command::Deployment(deployment) => deployment.run(&run()?).await,
            Command::Admin(admin) => admin.run(&run()?).await,
            Command::Audit(audit) => audit.run(&run()?).await,
            Command::Completions(completions) => {
                completions.run();
                Ok(())
            }
            Command::Man(man) => man.run(),
        }
        .map(|()| 0)
    }
}
