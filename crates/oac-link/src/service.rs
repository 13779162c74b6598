//! What Core and the runtime say to each other in the runtime's service (sessions.md section 7).

use std::collections::BTreeMap;

use oac_model::{BootId, Digest, InstanceId, OperationId, TurnId};
use oac_wire::{B64, Nullable};
use serde::{Deserialize, Serialize};

/// `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    pub runtime_version: String,
    pub instance_id: InstanceId,
    pub boot_id: BootId,
    pub parked: bool,
    /// Every Turn that has a record; ended ones until their final acknowledgement.
    pub turns: Vec<StatusTurn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusTurn {
    pub turn_id: TurnId,
    pub state: RunState,
    /// Bytes written durably.
    pub offset: u64,
    /// Bytes acknowledged, and perhaps discarded.
    pub acked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    Ended,
}

/// What a Turn runs; its digest is the Turn's identity beside its id. Member order is that of the canonical text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// 1..1024 strings without NUL, the first nonempty; executed without a shell.
    pub args: Vec<String>,
    /// Absolute.
    pub cwd: String,
    /// Added to the base environment, over which it prevails.
    pub env: BTreeMap<String, String>,
    pub stdin: B64,
    /// Counted from process start; at least 1.
    pub timeout_ms: u64,
}

impl Run {
    /// SHA-256 of the compact JSON of args, cwd, env (sorted), stdin, timeout_ms.
    pub fn digest(&self) -> Digest {
        Digest::of(crate::json::encode(self))
    }
}

/// `PUT /v1/turns/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutTurnRequest {
    pub digest: Digest,
    pub args: Vec<String>,
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    pub stdin: B64,
    pub timeout_ms: u64,
}

impl PutTurnRequest {
    pub fn new(run: Run) -> Self {
        Self {
            digest: run.digest(),
            args: run.args,
            cwd: run.cwd,
            env: run.env,
            stdin: run.stdin,
            timeout_ms: run.timeout_ms,
        }
    }

    /// The digest as stated, and what it should be the digest of.
    pub fn into_parts(self) -> (Digest, Run) {
        let run = Run {
            args: self.args,
            cwd: self.cwd,
            env: self.env,
            stdin: self.stdin,
            timeout_ms: self.timeout_ms,
        };
        (self.digest, run)
    }
}

/// Answer 201 or 200 to `PUT /v1/turns/{id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutTurnAnswer {
    pub instance_id: InstanceId,
}

/// `GET /v1/turns/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnRecord {
    pub state: RunState,
    pub offset: u64,
    /// Null while running.
    pub exit: Nullable<Exit>,
}

/// How a Turn ended in the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// The exit code, of a process that exited.
    pub code: Nullable<i32>,
    /// The signal's number, of a process that was killed.
    pub signal: Nullable<i32>,
    /// Ended by the runtime at its limit.
    pub timed_out: bool,
    /// Ended by the runtime on request.
    pub canceled: bool,
    /// Why the process could not be started, or [`Exit::RUNTIME_RESTARTED`].
    pub error: Nullable<String>,
}

impl Exit {
    /// The `error` of a Turn whose runtime ended before it.
    pub const RUNTIME_RESTARTED: &str = "runtime_restarted";

    /// An end without a process.
    pub fn failed(error: impl Into<String>) -> Self {
        Self {
            code: Nullable(None),
            signal: Nullable(None),
            timed_out: false,
            canceled: false,
            error: Nullable(Some(error.into())),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStreamName {
    Stdout,
    Stderr,
}

impl OutputStreamName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line of `GET /v1/turns/{id}/output`: either `stream` and `data`, or `exit` as the last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputLine {
    /// Of the first byte of `data`, or behind the last byte of all.
    pub offset: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<OutputStreamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<B64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// `POST /v1/turns/{id}/ack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    pub offset: u64,
    /// The Turn is settled: its log is removed and its id stays known as ended.
    #[serde(rename = "final")]
    pub is_final: bool,
}

/// `POST /v1/turns/{id}/cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// From SIGTERM to SIGKILL.
    pub grace_ms: u64,
}

/// `POST /v1/quiesce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuiesceRequest {
    /// The suspend operation, which a wake names again.
    pub suspend_id: OperationId,
}

/// Answer 200 to `POST /v1/quiesce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuiesceAnswer {
    /// Always true: nothing begins any more, and everything written is on disk.
    pub quiesced: bool,
}

/// Every error answer of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorAnswer {
    pub code: String,
    pub message: String,
}

/// The codes of [`ErrorAnswer`] that a caller acts on.
pub mod codes {
    /// 400, 413: the request is malformed or too large.
    pub const INVALID: &str = "invalid";
    /// 404: no record of that Turn, or no such path.
    pub const NOT_FOUND: &str = "not_found";
    /// 409: the id is known with another digest.
    pub const DIGEST_DIFFERS: &str = "digest_differs";
    /// 409: another Turn is running.
    pub const TURN_RUNNING: &str = "turn_running";
    /// 409: the Turn ended and its end was acknowledged.
    pub const TURN_ENDED: &str = "turn_ended";
    /// 416: below the acknowledged or above the written offset.
    pub const OFFSET_OUT_OF_RANGE: &str = "offset_out_of_range";
    /// 500: the sandbox's disk failed; nothing was started.
    pub const STORAGE_FAILED: &str = "storage_failed";
    /// 502: nothing listens on the port.
    pub const PORT_REFUSED: &str = "port_refused";
    /// 502: the port does not accept connections in time.
    pub const PORT_TIMED_OUT: &str = "port_timed_out";
    /// 503: too many of that are open. 409: something is under way.
    pub const BUSY: &str = "busy";
    /// 501: not built yet.
    pub const NOT_SUPPORTED: &str = "not_supported";
    /// 503: the runtime is shutting down.
    pub const STOPPING: &str = "stopping";
}
