//! `oac session exec`: one command, from its submission to its exit status (sessions.md section 10a).

use std::{
    cell::Cell,
    collections::BTreeMap,
    io::{IsTerminal, Read},
    time::Duration,
};

use clap::Args;
use oac_model::{SessionId, TurnId};
use oac_wire::B64;

use super::{Run, SessionArgument, pair};
use crate::{
    Failure,
    client::turns::{End, NewInput, Turn},
    interrupt::Interrupts,
    once::{self, Outcome},
    output::{self, Form},
    watch::{Until, Watch},
};

/// Exit status of everything that is not the command's own end.
pub(super) const ANYTHING_ELSE: u8 = 125;
const TIMED_OUT: u8 = 124;
const COULD_NOT_START: u8 = 126;
const CANCELED: u8 = 130;

/// Largest standard input, in bytes.
const STDIN_BYTES: u64 = 8 * 1024 * 1024;

/// The pause before a cancellation is asked for again. It ends with the Turn's output: at its end, when that is given up,
/// or by the second Ctrl-C.
const CANCEL_AGAIN: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  oac session exec $S -- make test
  oac session exec $S --cwd /workspace/app --env CI=1 -- npm test
  oac session exec $S -- tar -xf - < sources.tar
  oac session exec $S -- bash -c 'grep -r TODO . | wc -l'
  oac session exec $S --detach -- ./long-job

Exit status: the command's own; 128 + signal when a signal ended it; 124 at its time limit; 126 when it could not \
be started; 130 when it was canceled; 125 for anything else, with one line saying what to do.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Exec {
    #[command(flatten)]
    session: SessionArgument,
    /// Working directory in the sandbox [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Environment variable of the command; may repeat
    #[arg(long = "env", value_name = "K=V", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Seconds after which the command is killed [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: Option<u32>,
    /// Give the command no standard input; do not read this one's
    #[arg(long, short = 'n')]
    no_stdin: bool,
    /// Submit the command, print its Turn's id and return
    #[arg(long)]
    detach: bool,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    args: Vec<String>,
}

impl Exec {
    pub(super) async fn run(self, run: &Run) -> Result<u8, Failure> {
        let input = self.input()?;
        // From here on Ctrl-C must not end the program between the submission and its answer.
        let mut interrupts = Interrupts::listen()?;
        let session = self.session.session;
        let submitting = Submitting { run, session };
        let Some((turn, interrupted)) = submitting.submit(&input, &mut interrupts).await? else {
            return Ok(ANYTHING_ELSE);
        };
        if self.detach {
            if run.form == Form::Text {
                output::line(&turn.to_string());
            }
            if interrupted {
                run.client.cancel_turn(session, turn).await?;
                return Ok(CANCELED);
            }
            return Ok(0);
        }
        attend(run, session, turn, interrupts, interrupted).await
    }

    fn input(&self) -> Result<NewInput, Failure> {
        let stdin = if self.no_stdin {
            Vec::new()
        } else {
            standard_input()?
        };
        Ok(NewInput {
            args: self.args.clone(),
            cwd: self.cwd.clone(),
            env: self.env.iter().cloned().collect::<BTreeMap<_, _>>(),
            stdin: (!stdin.is_empty()).then(|| B64(stdin).encode()),
            timeout_seconds: self.timeout,
        })
    }
}

/// A non-terminal standard input, to its end.
fn standard_input() -> Result<Vec<u8>, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    stdin
        .lock()
        .take(STDIN_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| Failure::File {
            path: "standard input".into(),
            source,
        })?;
    if bytes.len() as u64 > STDIN_BYTES {
        return Err(Failure::Usage(
            "standard input is over 8 MiB: copy it into the sandbox with `oac session cp` instead".to_owned(),
        ));
    }
    Ok(bytes)
}

struct Submitting<'a> {
    run: &'a Run,
    session: SessionId,
}

impl Submitting<'_> {
    /// The Turn, and whether Ctrl-C came meanwhile; nothing after a second Ctrl-C.
    async fn submit(
        &self,
        input: &NewInput,
        interrupts: &mut Interrupts,
    ) -> Result<Option<(TurnId, bool)>, Failure> {
        let key = once::key();
        let slow = |trouble: &Failure| {
            output::complain(&format!(
                "{trouble}; asking again whether Core took the command, which runs at most once"
            ));
        };
        let send = async || self.run.client.submit_input(self.session, input, &key).await;
        let answer = once::send(send, slow);
        tokio::pin!(answer);
        let mut interrupted = false;
        let outcome = loop {
            tokio::select! {
                outcome = &mut answer => break outcome,
                () = interrupts.next() => {
                    if interrupted {
                        output::complain(&format!("left; {}", self.look()));
                        return Ok(None);
                    }
                    interrupted = true;
                    output::complain("canceling once Core has answered; press Ctrl-C again to leave");
                }
            }
        };
        match outcome {
            Outcome::Answered(submitted) => {
                if self.run.form == Form::Json {
                    let turn = submitted.json.get("turn").cloned().unwrap_or_default();
                    output::json(&serde_json::json!({ "type": "turn", "turn": turn }));
                }
                Ok(Some((submitted.value.turn.id, interrupted)))
            }
            Outcome::Refused(failure) => Err(failure),
            Outcome::Unknown(failure) => Err(Failure::Unfinished(format!("{failure}; {}", self.look()))),
        }
    }

    fn look(&self) -> String {
        format!(
            "whether Core took the command is unknown: look with `oac session turns {}` before running it again",
            self.session
        )
    }
}

/// Follows the Turn to its end. The first Ctrl-C cancels it, the second leaves it.
async fn attend(
    run: &Run,
    session: SessionId,
    turn: TurnId,
    mut interrupts: Interrupts,
    interrupted: bool,
) -> Result<u8, Failure> {
    let watch = Watch::new(&run.client, session, turn, run.form);
    let interrupted = Cell::new(interrupted);
    let control = async {
        if !interrupted.get() {
            tokio::select! {
                () = interrupts.next() => {
                    watch.say("canceling; press Ctrl-C again to leave the command running");
                }
                // Nobody reads the output any more: what would end a local command by SIGPIPE.
                () = watch.gone.notified() => {}
            }
        }
        tokio::select! {
            () = cancel(&watch) => {}
            () = interrupts.next() => {}
        }
    };
    let ended = tokio::select! {
        ended = watch.print(0, Until::End) => ended,
        () = watch.show_waiting() => Ok(None),
        () = control => Ok(None),
    };
    match ended {
        Ok(Some(end)) => Ok(status_of(run.form, &end)),
        Ok(None) => {
            watch.say(&format!(
                "left; the command may still run: {}",
                again(session, turn)
            ));
            Ok(ANYTHING_ELSE)
        }
        Err(failure) => Err(Failure::Unfinished(format!(
            "{failure}; the command may still run: {}",
            again(session, turn)
        ))),
    }
}

fn again(session: SessionId, turn: TurnId) -> String {
    format!(
        "look with `oac session logs {session} {turn} --follow`, end it with `oac session cancel {session} {turn}`"
    )
}

/// Asks Core to cancel the Turn until it heard, and then never ends: the Turn's end is told by its output.
async fn cancel(watch: &Watch<'_>) {
    loop {
        match watch.client.cancel_turn(watch.session, watch.turn).await {
            Ok(_) => break,
            Err(failure) if failure.is_passing() => tokio::time::sleep(CANCEL_AGAIN).await,
            Err(failure) => {
                watch.say(&failure.to_string());
                break;
            }
        }
    }
    std::future::pending().await
}

/// How a Turn's end is told: the exit status, and for people one line where it is not the command's own.
pub(super) fn status_of(form: Form, end: &End) -> u8 {
    let reason = end.reason.as_deref().unwrap_or("no reason given");
    let say = |line: String| {
        if form == Form::Text {
            output::complain(&output::printable(&line));
        }
    };
    if end.output_truncated {
        say("the output was longer than the 16 MiB that Core keeps; its end is missing".to_owned());
    }
    match (end.state.as_str(), end.exit_code, end.signal) {
        ("completed", Some(code), _) => u8::try_from(code).unwrap_or(ANYTHING_ELSE),
        ("completed", None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(ANYTHING_ELSE),
        ("timed_out", ..) => {
            say("the command ran into its time limit and was killed: raise --timeout".to_owned());
            TIMED_OUT
        }
        ("failed", ..) => {
            say(format!(
                "the command could not start ({reason}): check its name and --cwd"
            ));
            COULD_NOT_START
        }
        ("canceled", ..) => CANCELED,
        ("interrupted", ..) => {
            say(format!(
                "the sandbox was lost while the command ran ({reason}): look at its effects before running it again"
            ));
            ANYTHING_ELSE
        }
        (state, ..) => {
            say(format!(
                "the command ended as {state} ({reason}): compare the versions of oac and Core"
            ));
            ANYTHING_ELSE
        }
    }
}

/// How a Turn ended, in a word or two for a table.
pub(super) fn exit_of(turn: &Turn) -> String {
    match (turn.exit_code, turn.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        // `canceled` because it was `canceled` says nothing more.
        (None, None) => output::optional(turn.reason.as_deref().filter(|reason| *reason != turn.state)),
    }
}
