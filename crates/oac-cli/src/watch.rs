//! A Turn's output, printed as it arrives, from any offset to its end (or to what is stored now).

use std::cell::Cell;

use oac_model::{SessionId, TurnId};
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    Failure,
    client::{
        Client,
        turns::{End, Output, Stream, StreamPath},
    },
    follow::{Follow, Told},
    output::{
        self, Form,
        status::StatusLine,
        streams::{Reader, Streams},
    },
};

/// After this long without output the status line says what is waited for, and looks again this often; less and less
/// often while nothing is waited for but the command itself.
const QUIET: Duration = Duration::from_millis(1500);
const QUIETEST: Duration = Duration::from_secs(20);

/// One Turn that is looked at.
pub struct Watch<'a> {
    pub client: &'a Client,
    pub session: SessionId,
    pub turn: TurnId,
    pub form: Form,
    status: StatusLine,
    heard: Cell<Instant>,
    /// Told once nobody reads the output any more.
    pub gone: Notify,
}

/// How far to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    End,
    /// What Core has stored now.
    Stored,
}

impl<'a> Watch<'a> {
    pub fn new(client: &'a Client, session: SessionId, turn: TurnId, form: Form) -> Self {
        Self {
            client,
            session,
            turn,
            form,
            status: StatusLine::new(form == Form::Text),
            heard: Cell::new(Instant::now()),
            gone: Notify::new(),
        }
    }

    /// Prints from byte `from` on. The end, if the Turn has one by then.
    pub async fn print(&self, from: u64, until: Until) -> Result<Option<End>, Failure> {
        let mut follow = Follow::new(self.client, StreamPath::output(self.session, self.turn), from);
        let mut streams = Streams::default();
        let mut expected = from;
        loop {
            let event = match follow.next().await? {
                Told::Event(event) => event,
                Told::CaughtUp if until == Until::Stored => return Ok(None),
                Told::CaughtUp | Told::Closed => continue,
                Told::Lost => {
                    self.say("the connection to Core is lost; the command is not affected, trying again");
                    continue;
                }
            };
            self.heard.set(Instant::now());
            match event.kind.as_str() {
                "output" => match serde_json::from_str::<Output>(&event.data) {
                    Ok(output) if output.offset == expected => {
                        expected += output.data.0.len() as u64;
                        self.status.clear();
                        self.write(&mut streams, &event, &output).await;
                    }
                    // Not what was asked for: from the last good place again.
                    _ => follow.back_to(expected)?,
                },
                "end" => {
                    let end: End =
                        serde_json::from_str(&event.data).map_err(|_| self.client.not_core(200))?;
                    self.status.clear();
                    if self.form == Form::Json {
                        let line = typed("end", &event.data);
                        streams.write(Stream::Stdout, line.as_bytes()).await;
                    }
                    return Ok(Some(end));
                }
                _ => {}
            }
        }
    }

    async fn write(&self, streams: &mut Streams, event: &crate::sse::Event, output: &Output) {
        let (stream, reader) = match self.form {
            Form::Json => {
                let line = typed("output", &event.data);
                (
                    Stream::Stdout,
                    streams.write(Stream::Stdout, line.as_bytes()).await,
                )
            }
            Form::Text => (output.stream, streams.write(output.stream, &output.data.0).await),
        };
        if stream == Stream::Stdout && reader == Reader::Gone {
            self.gone.notify_one();
        }
        self.heard.set(Instant::now());
    }

    /// A line beside the output.
    pub fn say(&self, line: &str) {
        self.status.clear();
        output::complain(line);
    }

    /// While nothing arrives, says on a terminal what is waited for. Never ends.
    pub async fn show_waiting(&self) {
        if !self.status.is_enabled() {
            return std::future::pending().await;
        }
        let (mut looked, mut pause) = (Instant::now(), QUIET);
        loop {
            sleep_until((self.heard.get() + QUIET).max(looked + pause)).await;
            if self.heard.get().elapsed() < QUIET {
                continue;
            }
            looked = Instant::now();
            let turn = self.client.turn(self.session, self.turn).await;
            let session = self.client.session(self.session).await;
            // Trouble is the reader's to tell.
            let (Ok(turn), Ok(session)) = (turn, session) else {
                continue;
            };
            match waiting_for(&turn.value.state, &session.value.sandbox.state) {
                Some(text) => {
                    pause = QUIET;
                    self.status.show(text);
                }
                None => {
                    pause = (pause * 2).min(QUIETEST);
                    self.status.clear();
                }
            }
        }
    }
}

/// What a Turn waits for; nothing while it runs in a sandbox that is reached.
fn waiting_for(turn: &str, sandbox: &str) -> Option<&'static str> {
    Some(match (turn, sandbox) {
        ("queued", _) => "waiting: an earlier command of this Session runs",
        (_, "none") => "waiting: a sandbox is to be created",
        (_, "starting") => "waiting: the sandbox is starting",
        (_, "waking") => "waiting: the sandbox is waking",
        (_, "suspending" | "suspended") => "waiting: the sandbox is suspended and will be woken",
        (_, "cleaning") => "waiting: the former sandbox is being removed",
        (_, "disconnected") => "waiting: the sandbox is not connected to Core now",
        (_, "missing") => "waiting: the sandbox is missing; Core makes sure before it gives it up",
        ("waiting", _) => "waiting: the sandbox takes the command next",
        _ => return None,
    })
}

/// Core's data with its `type`, as a line for programs.
fn typed(kind: &str, data: &str) -> String {
    let mut value: Value = serde_json::from_str(data).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.insert("type".to_owned(), kind.into());
    }
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_runs_where_it_is_reached_waits_for_nothing() {
        assert_eq!(waiting_for("running", "running"), None);
        for (turn, sandbox) in [
            ("queued", "running"),
            ("waiting", "starting"),
            ("running", "missing"),
            ("running", "disconnected"),
        ] {
            assert!(waiting_for(turn, sandbox).is_some(), "{turn} {sandbox}");
        }
    }

    #[test]
    fn a_line_for_programs_says_what_it_is() {
        let line = typed("output", r#"{"offset":0,"stream":"stdout","data":"eA=="}"#);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["type"], &value["offset"]), (&"output".into(), &0.into()));
    }
}
