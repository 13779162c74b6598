//! `oac session create|list|show|archive|rm`.

use clap::{Args, Subcommand};
use oac_model::{Network, NetworkAccess, SessionId};

use super::{Run, SessionArgument, copy, exec, forward, id, pair, turns};
use crate::{
    Failure,
    client::sessions::{NewSession, Session as Shown},
    once::{self, Outcome},
    output::{self, Form},
    terminal,
};

#[derive(Debug, Subcommand)]
pub(super) enum Session {
    /// Create a Session; its sandbox starts at once
    Create(Create),
    /// List Sessions
    #[command(visible_alias = "ls")]
    List(List),
    /// Show one Session
    Show(SessionArgument),
    /// Run a command in a Session's sandbox and stream its output
    Exec(exec::Exec),
    /// Print a Turn's output
    Logs(turns::Logs),
    /// List a Session's Turns
    Turns(SessionArgument),
    /// Cancel Turns
    Cancel(turns::Cancel),
    /// Print what happened to a Session
    Events(turns::Events),
    /// Copy files and folders into a sandbox or out of it
    Cp(copy::Copy),
    /// Reach ports of a sandbox from this machine
    PortForward(forward::PortForward),
    /// Archive a Session: cancel what runs and give its sandbox up, for good
    Archive(SessionArgument),
    /// Archive Sessions after asking
    Rm(Remove),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac session create --name build
  oac session create --node-label disk=ssd --metadata ticket=1234
  oac session create --network restricted --allow-domain pypi.org --allow-domain files.pythonhosted.org")]
pub(super) struct Create {
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Require a label of the node; may repeat
    #[arg(long = "node-label", value_name = "K=V", value_parser = pair)]
    node_labels: Vec<(String, String)>,
    /// Metadata to keep with the Session; may repeat
    #[arg(long = "metadata", value_name = "K=V", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// What the sandbox may reach [default: public]
    #[arg(long, value_name = "ACCESS")]
    network: Option<Access>,
    /// With --network restricted: a host name, with its subdomains; may repeat
    #[arg(long = "allow-domain", value_name = "HOST", requires = "network")]
    allowed_domains: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Access {
    /// Nothing
    None,
    /// Only the hosts of --allow-domain
    Restricted,
    /// The public Internet
    Public,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only Sessions in this state
    #[arg(long, conflicts_with = "all")]
    state: Option<State>,
    /// Also archived Sessions
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum State {
    Idle,
    Busy,
    Failed,
    Archived,
}

#[derive(Debug, Args)]
#[command(after_help = "\
What is archived stays archived: running and waiting commands are canceled, the sandbox and its files are \
removed. Turns and their output can be read for a while (`oac session turns`, `oac session logs`).

Examples:
  oac session rm $S
  oac session rm --yes $S $T
  oac session rm --all")]
pub(super) struct Remove {
    /// Session ids
    #[arg(value_name = "S", value_parser = id::<SessionId>, required_unless_present = "all", conflicts_with = "all")]
    sessions: Vec<SessionId>,
    /// Every Session of the Project that is not archived
    #[arg(long)]
    all: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Session {
    pub(super) async fn run(self, run: &Run) -> Result<u8, Failure> {
        match self {
            Self::Exec(exec) => return exec.run(run).await,
            Self::Create(create) => create.run(run).await,
            Self::List(list) => list.run(run).await,
            Self::Show(id) => {
                let session = run.client.session(id.session).await?;
                match run.form {
                    Form::Json => output::json(&session.json),
                    Form::Text => show(&session.value),
                }
                Ok(())
            }
            Self::Logs(logs) => logs.run(run).await,
            Self::Turns(id) => turns::list(run, id.session).await,
            Self::Cancel(cancel) => cancel.run(run).await,
            Self::Events(events) => events.run(run).await,
            Self::Cp(copy) => copy.run(run).await,
            Self::PortForward(forward) => forward.run(run).await,
            Self::Archive(id) => archive(run, id.session).await,
            Self::Rm(remove) => remove.run(run).await,
        }
        .map(|()| 0)
    }
}

impl Create {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let network = self.network.map(|access| Network {
            access: match access {
                Access::None => NetworkAccess::None,
                Access::Restricted => NetworkAccess::Restricted,
                Access::Public => NetworkAccess::Public,
            },
            allowed_domains: self.allowed_domains,
        });
        let new = NewSession {
            name: self.name,
            network,
            node_labels: self.node_labels.into_iter().collect(),
            metadata: self.metadata.into_iter().collect(),
        };
        let key = once::key();
        let slow = |trouble: &Failure| {
            output::complain(&format!("{trouble}; asking again, one Session is created"));
        };
        match once::send(async || run.client.create_session(&new, &key).await, slow).await {
            Outcome::Answered(session) => {
                match run.form {
                    Form::Json => output::json(&session.json),
                    Form::Text => output::line(&session.value.id.to_string()),
                }
                Ok(())
            }
            Outcome::Refused(failure) => Err(failure),
            Outcome::Unknown(failure) => Err(Failure::Unfinished(format!(
                "{failure}; whether the Session was created is unknown: look with `oac session list`"
            ))),
        }
    }
}

impl List {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let state = self.state.map(|state| match state {
            State::Idle => "idle",
            State::Busy => "busy",
            State::Failed => "failed",
            State::Archived => "archived",
        });
        let mut sessions = run.client.sessions(state).await?;
        if state.is_none() && !self.all {
            sessions.retain(|s| s.value.archived_at.is_none());
        }
        if run.form == Form::Json {
            return output::documents(sessions.into_iter().map(|s| s.json));
        }
        let rows: Vec<Vec<String>> = sessions
            .iter()
            .map(|s| &s.value)
            .map(|s| {
                vec![
                    s.id.to_string(),
                    output::optional(s.name.as_deref()),
                    s.state.clone(),
                    s.sandbox.state.clone(),
                    output::optional(s.placement.as_ref().and_then(|p| p.node_id)),
                    s.created_at.clone(),
                ]
            })
            .collect();
        output::table(&["SESSION", "NAME", "STATE", "SANDBOX", "NODE", "CREATED"], &rows);
        Ok(())
    }
}

async fn archive(run: &Run, session: SessionId) -> Result<(), Failure> {
    let session = run.client.archive_session(session).await?;
    match run.form {
        Form::Json => output::json(&session.json),
        Form::Text => output::line(&format!(
            "{} archived; its sandbox is being removed",
            session.value.id
        )),
    }
    Ok(())
}

impl Remove {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        if !self.yes && !terminal::is_interactive() {
            return Err(Failure::Usage(
                "there is no terminal to ask on: add --yes to archive without asking".to_owned(),
            ));
        }
        let mut sessions = Vec::new();
        if self.all {
            let all = run.client.sessions(None).await?;
            sessions.extend(
                all.into_iter()
                    .map(|s| s.value)
                    .filter(|s| s.archived_at.is_none()),
            );
        } else {
            for session in self.sessions {
                sessions.push(run.client.session(session).await?.value);
            }
        }
        if sessions.is_empty() {
            if run.form == Form::Text {
                output::note("The Project has no Session to archive.");
            }
            return Ok(());
        }
        if !self.yes {
            for session in &sessions {
                output::note(&summary(session));
            }
            let what = match sessions.len() {
                1 => "Archive it? Its sandbox and files are removed for good.".to_owned(),
                n => format!("Archive these {n} Sessions? Their sandboxes and files are removed for good."),
            };
            if !terminal::confirm(&what)? {
                return Err(Failure::Unfinished("nothing was archived".to_owned()));
            }
        }
        for session in sessions {
            archive(run, session.id).await?;
        }
        Ok(())
    }
}

fn summary(session: &Shown) -> String {
    let mut line = format!("{}  {}", session.id, session.state);
    if let Some(name) = &session.name {
        line.push_str(&format!("  {}", output::printable(name)));
    }
    match session.turns.queued + session.turns.running {
        0 => {}
        1 => line.push_str("  1 command is unfinished and will be canceled"),
        n => line.push_str(&format!("  {n} commands are unfinished and will be canceled")),
    }
    line
}

fn show(session: &Shown) {
    let placement = session.placement.as_ref();
    let access = match session.network.access {
        NetworkAccess::None => "none".to_owned(),
        NetworkAccess::Public => "public".to_owned(),
        NetworkAccess::Restricted => format!("restricted to {}", session.network.allowed_domains.join(", ")),
    };
    let metadata: Vec<String> = session
        .metadata
        .iter()
        .map(|(k, v)| output::printable(&format!("{k}={v}")))
        .collect();
    output::facts(&[
        ("Session", session.id.to_string()),
        ("Name", output::optional(session.name.as_deref())),
        ("State", session.state.clone()),
        ("Reason", output::optional(session.reason.as_deref())),
        ("Sandbox", session.sandbox.state.clone()),
        ("Diagnostic", output::cell(&session.sandbox.diagnostic)),
        ("Backend", output::optional(placement.map(|p| &p.backend))),
        ("Node", output::optional(placement.and_then(|p| p.node_id))),
        ("Node online", output::optional(placement.map(|p| p.online))),
        ("Generation", output::optional(placement.map(|p| p.generation))),
        ("Network", access),
        ("Metadata", output::cell(&metadata.join(", "))),
        ("Turns queued", session.turns.queued.to_string()),
        ("Turns running", session.turns.running.to_string()),
        ("Created", session.created_at.clone()),
        ("Last activity", session.last_activity_at.clone()),
        ("Archived", output::optional(session.archived_at.as_deref())),
    ]);
}
