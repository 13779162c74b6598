//! Inputs, Turns, their output and a Session's events.

use std::collections::BTreeMap;

use oac_model::{SessionId, TurnId};
use oac_wire::B64;
use reqwest::{Method, Response, header};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Client, Document, Key, sessions::path};
use crate::Failure;

/// The body of POST `…/inputs`. Its `Debug` shows neither arguments nor environment, which carry secrets.
#[derive(Clone, Serialize)]
pub struct NewInput {
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
}

impl std::fmt::Debug for NewInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewInput")
            .field("args", &self.args.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Submitted {
    pub turn: Turn,
}

/// What of a Turn the commands read.
#[derive(Clone, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub sequence: i64,
    pub state: String,
    pub input: Input,
    pub created_at: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub reason: Option<String>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Turn {
    pub fn ended(&self) -> bool {
        self.ended_at.is_some()
    }
}

#[derive(Clone, Deserialize)]
pub struct Input {
    pub args: Vec<String>,
}

/// The data of an `output` event.
#[derive(Deserialize)]
pub struct Output {
    pub offset: u64,
    pub stream: Stream,
    pub data: B64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The data of an `end` event.
#[derive(Debug, Clone, Deserialize)]
pub struct End {
    pub state: String,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub reason: Option<String>,
    pub output_truncated: bool,
}

/// The data of a Session's event.
#[derive(Debug, Clone, Deserialize)]
pub struct SessionEvent {
    pub sequence: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub data: serde_json::Map<String, serde_json::Value>,
    pub created_at: String,
}

/// Where an event stream is, and what its resume place is called.
#[derive(Debug, Clone)]
pub struct StreamPath {
    path: String,
    place: &'static str,
}

impl StreamPath {
    pub fn output(session: SessionId, turn: TurnId) -> Self {
        Self {
            path: format!("{}/output", turn_path(session, turn)),
            place: "offset",
        }
    }

    pub fn events(session: SessionId) -> Self {
        Self {
            path: format!("{}/events", path(session)),
            place: "after",
        }
    }
}

fn turn_path(session: SessionId, turn: TurnId) -> String {
    format!("{}/turns/{turn}", path(session))
}

impl Client {
    /// `key` makes the request one: repeated, it gives the first answer and starts nothing again.
    pub async fn submit_input(
        &self,
        session: SessionId,
        input: &NewInput,
        key: &str,
    ) -> Result<Document<Submitted>, Failure> {
        let request = self
            .request(Method::POST, Key::Project, &format!("{}/inputs", path(session)))?
            .header("Idempotency-Key", key)
            .json(input);
        self.document(request).await
    }

    /// All Turns, in their order.
    pub async fn turns(&self, session: SessionId) -> Result<Vec<Document<Turn>>, Failure> {
        self.list(Key::Project, &format!("{}/turns", path(session))).await
    }

    pub async fn turn(&self, session: SessionId, turn: TurnId) -> Result<Document<Turn>, Failure> {
        self.get(Key::Project, &turn_path(session, turn)).await
    }

    /// Harmless to repeat.
    pub async fn cancel_turn(&self, session: SessionId, turn: TurnId) -> Result<Document<Turn>, Failure> {
        let path = format!("{}/cancel", turn_path(session, turn));
        self.post(Key::Project, &path, &json!({})).await
    }

    /// An event stream from `from` on; its body goes on until Core or the caller ends it.
    pub async fn stream(&self, stream: &StreamPath, from: u64) -> Result<Response, Failure> {
        let path = format!("{}?{}={from}", stream.path, stream.place);
        let request = self
            .request(Method::GET, Key::Project, &path)?
            .header(header::ACCEPT, "text/event-stream");
        self.send(request).await
    }
}
