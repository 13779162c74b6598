//! What the benchmarks do with both sides.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use oac_tests::story::Story;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

/// A Session whose sandbox runs.
pub(crate) struct Running {
    pub session: String,
    pub container: String,
}

impl Running {
    pub(crate) async fn new(story: &Story) -> Result<Self> {
        let session = story.new_session().await;
        let turn = story.submit(&session, "hostname").await;
        let read = read_output(story, &session, &turn).await?;
        let container = String::from_utf8_lossy(&read.first).trim().to_owned();
        ensure!(!container.is_empty(), "the sandbox has no name");
        Ok(Self { session, container })
    }
}

/// Ends the Sessions, and waits until nothing of them is left.
pub(crate) async fn end(story: &Story, sessions: &[String]) {
    for session in sessions {
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
    }
    story.until_empty().await;
    story.until_released().await;
}

async fn follow(story: &Story, session: &str, turn: &str) -> Result<reqwest::Response> {
    let path = format!(
        "{}/v1/sessions/{session}/turns/{turn}/output?offset=0",
        story.installation.url
    );
    let request = story.installation.http().get(path);
    Ok(request.bearer_auth(story.key.expose()).send().await?)
}

/// An output stream, read to its end.
pub(crate) struct Read {
    pub bytes: u64,
    /// The first record's.
    pub first: Vec<u8>,
    /// The data of the `end` event.
    pub end: Value,
}

/// Reads a Turn's output as an application does, decoding each record.
pub(crate) async fn read_output(story: &Story, session: &str, turn: &str) -> Result<Read> {
    let mut response = follow(story, session, turn).await?;
    let mut read = Read {
        bytes: 0,
        first: Vec::new(),
        end: Value::Null,
    };
    let mut buffer = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        buffer.extend_from_slice(&chunk);
        let mut at = 0;
        while let Some(length) = buffer[at..].iter().position(|b| *b == b'\n') {
            let line = &buffer[at..at + length];
            at += length + 1;
            let Some(data) = line.strip_prefix(b"data: ") else {
                continue;
            };
            let data: Value = serde_json::from_slice(data)?;
            let Some(record) = data["data"].as_str() else {
                read.end = data;
                return Ok(read);
            };
            let bytes = oac_wire::B64::decode(record.as_bytes())
                .context("a record is no base64")?
                .0;
            read.bytes += bytes.len() as u64;
            if read.first.is_empty() {
                read.first = bytes;
            }
        }
        buffer.drain(..at);
    }
    bail!("the output stream ended without an end")
}

/// Submits a command and reads its output stream up to the first output.
pub(crate) async fn first_output(story: &Story, session: &str) -> Result<()> {
    let turn = story.submit(session, "echo hello").await;
    let mut response = follow(story, session, &turn).await?;
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await? {
        text.push_str(&String::from_utf8_lossy(&chunk));
        if text.contains("event: output") {
            return Ok(());
        }
        ensure!(
            !text.contains("event: end"),
            "the command ended without output: {text}"
        );
    }
    bail!("the output stream ended early: {text}")
}

/// Runs docker's own command line; the time to its first output byte.
pub(crate) async fn timed_docker(story: &Story, arguments: &[&str]) -> Result<Duration> {
    let started = Instant::now();
    let mut child = docker(story, arguments)?;
    let mut stdout = child.stdout.take().context("docker has no output")?;
    let mut first = [0; 1];
    ensure!(
        stdout.read(&mut first).await? == 1,
        "docker {arguments:?} printed nothing"
    );
    let elapsed = started.elapsed();
    child.wait().await?;
    Ok(elapsed)
}

/// Runs docker's own command line; the bytes it printed.
pub(crate) async fn read_docker(story: &Story, arguments: &[&str]) -> Result<u64> {
    let mut child = docker(story, arguments)?;
    let mut stdout = child.stdout.take().context("docker has no output")?;
    let (mut buffer, mut bytes) = (vec![0; 256 << 10], 0);
    loop {
        match stdout.read(&mut buffer).await? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    ensure!(child.wait().await?.success(), "docker {arguments:?} failed");
    Ok(bytes)
}

fn docker(story: &Story, arguments: &[&str]) -> Result<tokio::process::Child> {
    tokio::process::Command::new("docker")
        .args(arguments)
        .env("DOCKER_HOST", story.engine.host())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run docker")
}
