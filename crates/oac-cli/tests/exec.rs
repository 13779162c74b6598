//! `oac session exec` against a scripted Core.

use std::{
    process::{Output, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{RawQuery, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use oac_wire::B64;
use serde_json::{Value, json};

const SESSION: &str = "11111111-1111-4111-8111-111111111111";
const TURN: &str = "22222222-2222-4222-8222-222222222222";

#[derive(Clone, Default)]
struct Script {
    /// One body per connection to the output stream.
    streams: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
    input: Arc<Mutex<Value>>,
}

fn record(offset: u64, stream: &str, text: &str) -> String {
    let data = json!({ "offset": offset, "stream": stream, "data": B64(text.into()).encode() });
    format!(
        "event: output\nid: {}\ndata: {data}\n\n",
        offset + text.len() as u64
    )
}

fn end(members: Value) -> String {
    let mut data = json!({ "exit_code": null, "signal": null, "reason": null, "output_bytes": 0, "output_truncated": false });
    data.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    format!("event: end\ndata: {data}\n\n")
}

async fn input(State(script): State<Script>, body: Bytes) -> Response {
    *script.input.lock().unwrap() = serde_json::from_slice(&body).unwrap();
    (
        StatusCode::ACCEPTED,
        axum::Json(json!({ "input": {}, "turn": { "id": TURN } })),
    )
        .into_response()
}

async fn output(State(script): State<Script>, RawQuery(query): RawQuery) -> Response {
    script.asked.lock().unwrap().push(query.unwrap_or_default());
    let mut streams = script.streams.lock().unwrap();
    let body = if streams.is_empty() {
        String::new()
    } else {
        streams.remove(0)
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from(body)).into_response()
}

/// Runs `oac session exec` against `script`, with `stdin` and `extra` arguments before `--`.
async fn exec(script: &Script, stdin: &str, extra: &[&str]) -> Output {
    exec_to(Stdio::piped(), script, stdin, extra).await
}

async fn exec_to(stdout: Stdio, script: &Script, stdin: &str, extra: &[&str]) -> Output {
    let app = Router::new()
        .route(&format!("/v1/sessions/{SESSION}/inputs"), post(input))
        .route(
            &format!("/v1/sessions/{SESSION}/turns/{TURN}/output"),
            get(output),
        )
        .with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = axum::serve(listener, app).into_future();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let config = oac_cli::config::Config {
        url,
        core_key: None,
        project_key: Some(oac_model::Secret::new("oac_key_0")),
    };
    config.save(&path).unwrap();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_oac"))
        .arg("--config")
        .arg(&path)
        .args(["session", "exec", SESSION])
        .args(extra)
        .args(["--", "printf", "%s", "x"])
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut pipe, stdin.as_bytes())
        .await
        .unwrap();
    drop(pipe);
    tokio::select! {
        output = child.wait_with_output() => output.unwrap(),
        _ = server => panic!("the server ended"),
    }
}

fn script(streams: &[String]) -> Script {
    Script {
        streams: Arc::new(Mutex::new(streams.to_vec())),
        ..Script::default()
    }
}

#[tokio::test]
async fn output_goes_to_its_own_stream_and_the_exit_status_is_the_commands() {
    let script = script(&[record(0, "stdout", "out\n")
        + &record(4, "stderr", "err\n")
        + &end(json!({"state":"completed","exit_code":7}))]);
    let output = exec(
        &script,
        "typed",
        &["--cwd", "/tmp", "--env", "A=1", "--timeout", "9"],
    )
    .await;
    assert_eq!(
        (output.status.code(), &*output.stdout, &*output.stderr),
        (Some(7), &b"out\n"[..], &b"err\n"[..])
    );
    let expected = json!({
        "args": ["printf", "%s", "x"], "cwd": "/tmp", "env": {"A": "1"}, "timeout_seconds": 9,
        "stdin": B64(b"typed".to_vec()).encode(),
    });
    assert_eq!(*script.input.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_broke_and_no_byte_is_printed_twice() {
    let torn = record(0, "stdout", "one ");
    let script = script(&[
        torn.clone() + &record(4, "stdout", "lost")[..20],
        String::new(),
        record(4, "stdout", "two") + &end(json!({"state":"completed","exit_code":0})),
    ]);
    let output = exec(&script, "", &[]).await;
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(0), &b"one two"[..])
    );
    assert_eq!(
        *script.asked.lock().unwrap(),
        ["offset=0", "offset=4", "offset=4"]
    );
    assert_eq!(script.input.lock().unwrap().get("stdin"), None);
}

#[tokio::test]
async fn every_end_has_its_exit_status() {
    for (members, status) in [
        (json!({"state":"completed","exit_code":0}), 0),
        (json!({"state":"completed","signal":9}), 137),
        (json!({"state":"timed_out"}), 124),
        (json!({"state":"failed","reason":"missing"}), 126),
        (json!({"state":"canceled"}), 130),
        (json!({"state":"interrupted","reason":"compute_lost"}), 125),
        (json!({"state":"unheard_of"}), 125),
    ] {
        let output = exec(&script(&[end(members.clone())]), "", &[]).await;
        assert_eq!(output.status.code(), Some(status), "{members}");
        let explained = matches!(status, 0 | 130 | 137) || !output.stderr.is_empty();
        assert!(explained, "{members}");
    }
}

#[tokio::test]
async fn a_missing_configuration_is_one_line_and_125() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_oac"))
        .args([
            "--config",
            "/nonexistent/config.toml",
            "session",
            "exec",
            SESSION,
            "--",
            "true",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), text.lines().count()),
        (Some(125), 1),
        "{text}"
    );
    assert!(text.contains("oac login"), "{text}");
}

#[tokio::test]
async fn output_that_cannot_be_written_is_no_success_and_a_reader_that_left_is() {
    let streams = [record(0, "stdout", "out\n") + &end(json!({"state":"completed","exit_code":0}))];
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = exec_to(full.into(), &script(&streams), "", &[]).await;
    assert_eq!(output.status.code(), Some(125));
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(
        says.contains("No space left") && says.lines().count() == 1,
        "{says}"
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = exec_to(writer.into(), &script(&streams), "", &[]).await;
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn arguments_that_exec_does_not_take_are_no_commands_end() {
    for (arguments, status) in [
        (&["session", "exec", "no-id", "--", "true"][..], 125),
        (&["session", "exec", SESSION], 125),
        (
            &[
                "--json",
                "session",
                "exec",
                SESSION,
                "--timeout",
                "-1",
                "--",
                "true",
            ],
            125,
        ),
        (&["session", "exec", "--help"], 0),
        (&["session", "rm", "--", "session", "exec"], 2),
        (&["bogus"], 2),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_oac"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
    }
}
