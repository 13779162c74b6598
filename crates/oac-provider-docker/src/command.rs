//! One command in a running sandbox, through the engine's exec.
//!
//! Unlike the other operations a command may run for ever, and an allocation whose command hangs must still be
//! killed. So at its deadline the attach is closed, which ends the native call, and the lane becomes free; the
//! process may go on, which `command_unconfirmed` says and kill ends.

use std::time::{Duration, Instant};

use oac_model::Reference;
use oac_provider::{Cause, Failure, Phase};
use oac_wire::shapes::{Command, CommandResult};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    engine::{Body, EngineError, Session},
    inventory::Container,
    provider::{Inner, cause, unconfirmed},
};

/// What is returned of each stream; the rest is drained.
const STREAM_LIMIT_BYTES: usize = 1024 * 1024;
/// The engine marks an exec as ended shortly after its streams close.
const END_POLLS: u32 = 100;
const END_POLL_INTERVAL: Duration = Duration::from_millis(20);
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExecCreated {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ExecState {
    running: bool,
    exit_code: Option<i64>,
}

/// One stream's kept beginning.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let room = STREAM_LIMIT_BYTES - self.bytes.len();
        self.truncated |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Inner {
    pub(crate) async fn command(
        &self,
        reference: Reference,
        command: Command,
        by: Instant,
    ) -> Result<CommandResult, Failure> {
        let mut session = self.engine.session().await.map_err(unconfirmed)?;
        let exec = self.prepare(reference, &command, &mut session).await?;
        // From here on the command may run.
        match tokio::time::timeout_at(by.into(), run(&mut session, &exec, command)).await {
            Ok(result) => result.map_err(Failure::CommandUnconfirmed),
            Err(_) => Err(Failure::CommandUnconfirmed(Cause::new(
                "the command's deadline passed",
            ))),
        }
    }

    /// Everything before the command can run.
    async fn prepare(
        &self,
        reference: Reference,
        command: &Command,
        session: &mut Session,
    ) -> Result<String, Failure> {
        let receipt = self.receipt(reference).await?;
        let names = self.names(&reference);
        let path = format!("/containers/{}/json", names.container);
        let container = session.get::<Container>(&path).await.map_err(unconfirmed)?;
        let container = container.ok_or(Failure::NotFound)?;
        if !names.own(&container.labels()) {
            let text = "the container's labels are another's";
            return Err(Failure::Ownership(Cause::new(text)));
        }
        if receipt.is_some_and(|r| r.phase() == Phase::Tombstone) {
            let text = "the container was left under a tombstone";
            return Err(Failure::Unconfirmed(Cause::new(text)));
        }
        if !container.is_running() {
            return Err(Failure::RuntimeNotRunning);
        }
        let mut body = json!({
            "User": "1000:1000",
            "Cmd": command.args,
            "AttachStdin": command.stdin.is_some(),
            "AttachStdout": true,
            "AttachStderr": true,
            "Tty": false,
        });
        if !command.directory.is_empty() {
            body["WorkingDir"] = command.directory.clone().into();
        }
        let path = format!("/containers/{}/exec", container.id);
        let created: ExecCreated =
            session
                .post(&path, Body::Json(body))
                .await
                .map_err(|error| match error.status() {
                    Some(404) => Failure::NotFound,
                    Some(409) => Failure::RuntimeNotRunning,
                    Some(400) => Failure::Invalid(cause(error)),
                    _ => unconfirmed(error),
                })?;
        Ok(created.id)
    }
}

/// The command's whole run.
async fn run(session: &mut Session, exec: &str, command: Command) -> Result<CommandResult, Cause> {
    let body = json!({"Detach": false, "Tty": false});
    let stream = session
        .attach(&format!("/exec/{exec}/start"), body)
        .await
        .map_err(cause)?;
    let (reading, writing) = tokio::io::split(stream);
    let stdin = command.stdin.map(|b| b.0);
    let (output, written) = tokio::join!(read_streams(reading), write_stdin(writing, stdin));
    let (stdout, stderr) = output?;
    written?;
    let exit_code = exit_code(session, exec).await?;
    Ok(CommandResult {
        stdout: stdout.bytes.into(),
        stderr: stderr.bytes.into(),
        stdout_truncated: stdout.truncated,
        stderr_truncated: stderr.truncated,
        exit_code,
    })
}

async fn write_stdin(mut stream: impl AsyncWrite + Unpin, bytes: Option<Vec<u8>>) -> Result<(), Cause> {
    let Some(bytes) = bytes else { return Ok(()) };
    let failed = |e: std::io::Error| Cause::new(format!("stdin could not be written: {e}"));
    stream.write_all(&bytes).await.map_err(failed)?;
    // Ends the command's input; the engine closes the process's stdin.
    stream.shutdown().await.map_err(failed)
}

/// Reads the engine's framing: stream number, three zero bytes, length, bytes.
async fn read_streams(mut stream: impl AsyncRead + Unpin) -> Result<(Kept, Kept), Cause> {
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let broken = |e: std::io::Error| Cause::new(format!("the attached stream broke: {e}"));
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let mut header = [0; 8];
        if stream.read(&mut header[..1]).await.map_err(broken)? == 0 {
            return Ok((stdout, stderr));
        }
        stream.read_exact(&mut header[1..]).await.map_err(broken)?;
        let kept = match header[0] {
            STDOUT => &mut stdout,
            STDERR => &mut stderr,
            other => return Err(Cause::new(format!("the attached stream names stream {other}"))),
        };
        let mut left = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        while left > 0 {
            let room = left.min(chunk.len());
            let read = stream.read(&mut chunk[..room]).await.map_err(broken)?;
            if read == 0 {
                return Err(Cause::new("the attached stream ended inside a frame"));
            }
            kept.add(&chunk[..read]);
            left -= read;
        }
    }
}

async fn exit_code(session: &mut Session, exec: &str) -> Result<i64, Cause> {
    let path = format!("/exec/{exec}/json");
    for _ in 0..END_POLLS {
        let state: Option<ExecState> = session.get(&path).await.map_err(|e: EngineError| cause(e))?;
        let state = state.ok_or_else(|| Cause::new("the exec is gone"))?;
        match state {
            ExecState { running: true, .. } => tokio::time::sleep(END_POLL_INTERVAL).await,
            ExecState {
                exit_code: Some(code @ 0..=255),
                ..
            } => return Ok(code),
            _ => return Err(Cause::new("the exec ended without an exit code")),
        }
    }
    Err(Cause::new("the exec still runs although its streams are closed"))
}
