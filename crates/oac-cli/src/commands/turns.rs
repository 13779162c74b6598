//! `oac session turns|logs|cancel|events`.

use clap::Args;
use oac_model::{SessionId, TurnId};

use super::{Run, SessionArgument, exec, id};
use crate::{
    Failure,
    client::turns::{SessionEvent, StreamPath, Turn},
    follow::{Follow, Told},
    output::{self, Form},
    watch::{Until, Watch},
};

/// Longest command shown in a table, in characters.
const COMMAND_CHARS: usize = 60;
/// Longest reason there.
const REASON_CHARS: usize = 30;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac session logs $S                       the last Turn's output so far
  oac session logs $S --follow              and what comes, to its end
  oac session logs $S $TURN --offset 4096   from byte 4096 on")]
pub(super) struct Logs {
    #[command(flatten)]
    session: SessionArgument,
    /// The Turn, as `exec --detach` and `turns` print it [default: the last one]
    #[arg(value_name = "TURN", value_parser = id::<TurnId>, conflicts_with = "last")]
    turn: Option<TurnId>,
    /// The Session's last Turn
    #[arg(long)]
    last: bool,
    /// Go on until the Turn ends
    #[arg(long, short)]
    follow: bool,
    /// Begin at this byte of the output
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "oac session cancel [OPTIONS] <S> <TURN|--all|--last>",
    after_help = "\
Examples:
  oac session cancel $S $TURN
  oac session cancel $S --last
  oac session cancel $S --all"
)]
pub(super) struct Cancel {
    #[command(flatten)]
    session: SessionArgument,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The Turn to cancel
    #[arg(value_name = "TURN", value_parser = id::<TurnId>)]
    turn: Option<TurnId>,
    /// Every unfinished Turn, the last one first
    #[arg(long)]
    all: bool,
    /// The Session's last Turn
    #[arg(long)]
    last: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac session events $S
  oac session events $S --after 12 --follow
  oac --json session events $S | jq -r .type")]
pub(super) struct Events {
    #[command(flatten)]
    session: SessionArgument,
    /// Only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Go on until the Session is archived
    #[arg(long, short)]
    follow: bool,
}

/// `oac session turns`.
pub(super) async fn list(run: &Run, session: SessionId) -> Result<(), Failure> {
    let turns = run.client.turns(session).await?;
    if run.form == Form::Json {
        return output::documents(turns.into_iter().map(|t| t.json));
    }
    let rows: Vec<Vec<String>> = turns.iter().map(|t| row(&t.value)).collect();
    output::table(&["TURN", "NO", "STATE", "EXIT", "CREATED", "COMMAND"], &rows);
    Ok(())
}

fn row(turn: &Turn) -> Vec<String> {
    vec![
        turn.id.to_string(),
        turn.sequence.to_string(),
        turn.state.clone(),
        shortened(&exec::exit_of(turn), REASON_CHARS),
        turn.created_at.clone(),
        shortened(&output::printable(&turn.input.args.join(" ")), COMMAND_CHARS),
    ]
}

fn shortened(text: &str, longest: usize) -> String {
    let mut short: String = text.chars().take(longest).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

async fn last(run: &Run, session: SessionId) -> Result<TurnId, Failure> {
    let turns = run.client.turns(session).await?;
    turns.last().map(|t| t.value.id).ok_or_else(|| {
        Failure::Unfinished("the Session has no Turn yet: run a command with `oac session exec`".to_owned())
    })
}

impl Logs {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let session = self.session.session;
        let turn = match self.turn {
            // A Turn that is not there, or a Core that is not, is said at once; only what was there is waited for.
            Some(turn) => run.client.turn(session, turn).await?.value.id,
            None => last(run, session).await?,
        };
        let until = if self.follow { Until::End } else { Until::Stored };
        let watch = Watch::new(&run.client, session, turn, run.form);
        let end = tokio::select! {
            end = watch.print(self.offset, until) => end?,
            () = watch.gone.notified() => None,
            () = async { if self.follow { watch.show_waiting().await } else { std::future::pending().await } } => None,
        };
        if let Some(end) = end {
            // What the Turn's own end was is for `exec` and `turns` to say; a cut output is worth a word here.
            if end.output_truncated && run.form == Form::Text {
                watch.say("the output was longer than the 16 MiB that Core keeps; its end is missing");
            }
        }
        Ok(())
    }
}

impl Cancel {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let session = self.session.session;
        let chosen = match (self.which.turn, self.which.last) {
            (Some(turn), _) => vec![turn],
            (None, true) => vec![last(run, session).await?],
            // From the end, so that none starts because the one before it ended.
            (None, false) => run
                .client
                .turns(session)
                .await?
                .iter()
                .rev()
                .filter(|t| !t.value.ended())
                .map(|t| t.value.id)
                .collect(),
        };
        if chosen.is_empty() && run.form == Form::Text {
            output::note("No Turn of the Session is unfinished.");
        }
        for turn in chosen {
            let answer = run.client.cancel_turn(session, turn).await?;
            match run.form {
                Form::Json => output::json(&answer.json),
                Form::Text if answer.value.ended() => {
                    output::line(&format!("{turn} {}", answer.value.state));
                }
                Form::Text => output::line(&format!("{turn} is being canceled")),
            }
        }
        Ok(())
    }
}

impl Events {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let session = self.session.session;
        run.client.session(session).await?;
        let path = StreamPath::events(session);
        let mut follow = Follow::new(&run.client, path, self.after);
        loop {
            let event = match follow.next().await? {
                Told::Event(event) => event,
                Told::CaughtUp if !self.follow => return Ok(()),
                Told::CaughtUp => continue,
                Told::Closed => {
                    // An archived Session has no more events.
                    if run
                        .client
                        .session(session)
                        .await
                        .is_ok_and(|s| s.value.archived_at.is_some())
                    {
                        return Ok(());
                    }
                    continue;
                }
                Told::Lost => {
                    output::complain("the connection to Core is lost; trying again");
                    continue;
                }
            };
            let read: SessionEvent =
                serde_json::from_str(&event.data).map_err(|_| run.client.not_core(200))?;
            match run.form {
                Form::Json => output::line(&event.data),
                Form::Text => output::line(&describe(&read)),
            }
            if output::reader_is_gone() {
                return Ok(());
            }
        }
    }
}

fn describe(event: &SessionEvent) -> String {
    let mut line = format!("{:>5}  {}  {}", event.sequence, event.created_at, event.kind);
    for (name, value) in &event.data {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line.push_str(&format!("  {name}={text}"));
    }
    output::printable(&line)
}
