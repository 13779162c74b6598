//! `oac session exec`: one command, from its submission to its exit status (sessions.md section 10a).

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Read, Write},
    time::Duration,
};

use clap::Args;
use futures_util::StreamExt;
use oac_wire::B64;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Context, SessionId, session};
use crate::{Failure, client::Key, output, sse};

/// Exit status of everything that is not the command's own end.
pub(super) const ANYTHING_ELSE: u8 = 125;
const TIMED_OUT: u8 = 124;
const COULD_NOT_START: u8 = 126;
const CANCELED: u8 = 130;

/// Largest standard input, in bytes.
const STDIN_BYTES: u64 = 8 * 1024 * 1024;
/// How long the output stream is looked for again after it broke: the first and the longest pause.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

#[derive(Debug, Args)]
pub(super) struct Exec {
    #[command(flatten)]
    session: SessionId,
    /// Working directory in the sandbox [default: /workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Environment variable, as key=value; may repeat
    #[arg(long = "env", value_name = "K=V", value_parser = session::pair)]
    env: Vec<(String, String)>,
    /// Seconds after which the command is killed [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    args: Vec<String>,
}

#[derive(Deserialize)]
struct Output {
    offset: u64,
    stream: String,
    data: B64,
}

#[derive(Deserialize)]
struct End {
    state: String,
    exit_code: Option<i64>,
    signal: Option<i64>,
    reason: Option<String>,
    output_truncated: bool,
}

/// How one connection to the output stream ended.
enum Followed {
    Ended(End),
    Broken,
    Left,
}

impl Exec {
    pub(super) async fn run(self, context: &Context) -> Result<u8, Failure> {
        let body = self.body()?;
        let session = format!("/v1/sessions/{}", self.session.session);
        let created = context
            .client
            .post(Key::Project, &format!("{session}/inputs"), &body)
            .await?;
        let turn = output::cell(&created, "turn.id");
        if turn.parse::<oac_model::TurnId>().is_err() {
            return Err(Failure::Usage(
                "Core's answer holds no Turn: compare the versions of oac and Core".to_owned(),
            ));
        }
        follow_to_the_end(context, &format!("{session}/turns/{turn}")).await
    }

    fn body(&self) -> Result<Value, Failure> {
        let mut body = Map::new();
        body.insert("args".to_owned(), json!(self.args));
        if let Some(cwd) = &self.cwd {
            body.insert("cwd".to_owned(), json!(cwd));
        }
        if !self.env.is_empty() {
            body.insert(
                "env".to_owned(),
                json!(self.env.iter().cloned().collect::<BTreeMap<_, _>>()),
            );
        }
        if let Some(timeout) = self.timeout {
            body.insert("timeout_seconds".to_owned(), json!(timeout));
        }
        let stdin = standard_input()?;
        if !stdin.is_empty() {
            body.insert("stdin".to_owned(), json!(B64(stdin).encode()));
        }
        Ok(Value::Object(body))
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
            "standard input is over 8 MiB: copy it into the sandbox instead".to_owned(),
        ));
    }
    Ok(bytes)
}

async fn follow_to_the_end(context: &Context, turn: &str) -> Result<u8, Failure> {
    let (mut offset, mut canceled, mut pause) = (0, false, RETRY.0);
    loop {
        let before = offset;
        match follow(context, turn, &mut offset, &mut canceled).await {
            Ok(Followed::Ended(end)) => return Ok(status_of(context, &end)),
            Ok(Followed::Left) => {
                output::complain(&format!("left; the command may still run: {turn}"));
                return Ok(ANYTHING_ELSE);
            }
            Ok(Followed::Broken) | Err(Failure::Unreachable { .. }) => {}
            // Core restarts or a standby takes over; the command runs on meanwhile.
            Err(Failure::Refused { status: 503, .. }) => {}
            Err(failure) => return Err(failure),
        }
        pause = if offset == before {
            (pause * 2).min(RETRY.1)
        } else {
            RETRY.0
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = tokio::signal::ctrl_c() => {
                if canceled {
                    output::complain(&format!("left; the command may still run: {turn}"));
                    return Ok(ANYTHING_ELSE);
                }
                cancel(context, turn, &mut canceled).await;
            }
        }
    }
}

/// The first Ctrl-C cancels, the second leaves.
async fn cancel(context: &Context, turn: &str, canceled: &mut bool) {
    *canceled = true;
    output::complain("canceling; press Ctrl-C again to leave the command running");
    if let Err(failure) = context
        .client
        .post(Key::Project, &format!("{turn}/cancel"), &json!({}))
        .await
    {
        output::complain_of(&failure);
    }
}

async fn follow(
    context: &Context,
    turn: &str,
    offset: &mut u64,
    canceled: &mut bool,
) -> Result<Followed, Failure> {
    let path = format!("{turn}/output?offset={offset}");
    let response = context.client.events(Key::Project, &path).await?;
    let mut body = response.bytes_stream();
    let mut reader = sse::Reader::default();
    loop {
        let chunk = tokio::select! {
            chunk = body.next() => chunk,
            _ = tokio::signal::ctrl_c() => {
                if *canceled {
                    return Ok(Followed::Left);
                }
                cancel(context, turn, canceled).await;
                continue;
            }
        };
        let Some(Ok(chunk)) = chunk else {
            return Ok(Followed::Broken);
        };
        let Ok(events) = reader.push(&chunk) else {
            return Ok(Followed::Broken);
        };
        for event in events {
            match event.kind.as_str() {
                "output" => {
                    let Ok(output) = serde_json::from_str::<Output>(&event.data) else {
                        return Ok(Followed::Broken);
                    };
                    if output.offset != *offset {
                        return Ok(Followed::Broken);
                    }
                    *offset += output.data.0.len() as u64;
                    print(context, &event.data, &output);
                }
                "end" => {
                    let Ok(end) = serde_json::from_str::<End>(&event.data) else {
                        return Ok(Followed::Broken);
                    };
                    if context.json {
                        output::line(&event.data);
                    }
                    return Ok(Followed::Ended(end));
                }
                _ => {}
            }
        }
    }
}

fn print(context: &Context, event: &str, output: &Output) {
    if context.json {
        return output::line(event);
    }
    // Bytes as they are, to the stream they came from; a reader that went away ends nothing.
    let written = if output.stream == "stderr" {
        let mut stderr = std::io::stderr().lock();
        stderr.write_all(&output.data.0).and_then(|()| stderr.flush())
    } else {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&output.data.0).and_then(|()| stdout.flush())
    };
    output::written(written);
}

fn status_of(context: &Context, end: &End) -> u8 {
    let reason = end.reason.as_deref().unwrap_or("no reason given");
    let say = |line: String| {
        if !context.json {
            output::complain(&line);
        }
    };
    if end.output_truncated {
        say("the output was longer than Core keeps; its end is missing".to_owned());
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
