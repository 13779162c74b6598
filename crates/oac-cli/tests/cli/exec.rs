//! `oac session exec` against a scripted Core.

use std::process::Stdio;

use axum::http::Method;
use oac_wire::B64;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::{
    program::{Oac, Said},
    script::{
        SESSION, Script, TURN, answer, broken, end, events, events_open, record, refuse, session_path, turn,
        turn_path, usual,
    },
};

const COMMAND: [&str; 4] = ["--", "printf", "%s", "x"];

/// A Core whose output stream has one body per connection.
async fn streams(bodies: &[String]) -> Script {
    let bodies = bodies.to_vec();
    Script::start(move |asked, before| {
        let body = bodies.get(before).cloned().unwrap_or_default();
        async move { usual(&asked).unwrap_or_else(|| events(body)) }
    })
    .await
}

/// `oac session exec` with `stdin` and `extra` arguments before `--`.
async fn exec(script: &Script, stdin: &str, extra: &[&str]) -> Said {
    let arguments = [&["session", "exec", SESSION], extra, &COMMAND].concat();
    Oac::of(&script.url).run_with(stdin.as_bytes(), &arguments).await
}

fn input(script: &Script) -> Value {
    script
        .asked()
        .iter()
        .find(|a| a.is(Method::POST, &session_path("/inputs")))
        .unwrap()
        .json()
}

fn offsets(script: &Script) -> Vec<String> {
    script
        .asked()
        .iter()
        .filter(|a| a.is(Method::GET, &turn_path("/output")))
        .map(|a| a.target.split('?').nth(1).unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn output_goes_to_its_own_stream_and_the_exit_status_is_the_commands() {
    let script = streams(&[record(0, "stdout", "out\n")
        + &record(4, "stderr", "err\n")
        + &end(json!({"state":"completed","exit_code":7}))])
    .await;
    let said = exec(
        &script,
        "typed",
        &["--cwd", "/tmp", "--env", "A=1", "--timeout", "9"],
    )
    .await
    .expect(7);
    assert_eq!((&*said.out, &*said.err), ("out\n", "err\n"));
    let expected = json!({
        "args": ["printf", "%s", "x"], "cwd": "/tmp", "env": {"A": "1"}, "timeout_seconds": 9,
        "stdin": B64(b"typed".to_vec()).encode(),
    });
    assert_eq!(input(&script), expected);
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_where_it_broke_and_no_byte_is_printed_twice() {
    let torn = record(0, "stdout", "one ");
    let script = streams(&[
        torn.clone() + &record(4, "stdout", "lost")[..20],
        String::new(),
        // A stream that repeats what it was not asked for is not believed.
        torn,
        record(4, "stdout", "two") + &end(json!({"state":"completed","exit_code":0})),
    ])
    .await;
    let said = exec(&script, "", &[]).await.expect(0);
    assert_eq!(said.out, "one two");
    assert_eq!(offsets(&script), ["offset=0", "offset=4", "offset=4", "offset=4"]);
    assert_eq!(input(&script).get("stdin"), None);
}

#[tokio::test]
async fn a_core_that_is_away_for_a_while_is_waited_for() {
    let script = Script::start(|asked, before| async move {
        if let Some(usual) = usual(&asked) {
            return usual;
        }
        match before {
            0 => broken(record(0, "stdout", "one ")),
            1 => refuse(503, "core_standby"),
            2 => axum::response::IntoResponse::into_response((
                axum::http::StatusCode::BAD_GATEWAY,
                "<html>the proxy's own page</html>",
            )),
            _ => events(record(4, "stdout", "two") + &end(json!({"state":"completed","exit_code":3}))),
        }
    })
    .await;
    let said = exec(&script, "", &[]).await.expect(3);
    assert_eq!((&*said.out, &*said.err), ("one two", ""));
}

#[tokio::test]
async fn every_end_has_its_exit_status() {
    for (members, status) in [
        (json!({"state":"completed","exit_code":0}), 0),
        (json!({"state":"completed","exit_code":255}), 255),
        (json!({"state":"completed","signal":9}), 137),
        (json!({"state":"timed_out"}), 124),
        (json!({"state":"failed","reason":"missing"}), 126),
        (json!({"state":"canceled"}), 130),
        (json!({"state":"interrupted","reason":"compute_lost"}), 125),
        (json!({"state":"unheard_of"}), 125),
    ] {
        let script = streams(&[end(members.clone())]).await;
        let said = exec(&script, "", &[]).await.expect(status);
        let told = said.err.lines().count();
        let expected = usize::from(!matches!(status, 0 | 130 | 137 | 255));
        assert_eq!(told, expected, "{members}: {said:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_to_the_submission_is_asked_for_by_the_same_key() {
    let script = Script::start(|asked, before| async move {
        if asked.is(Method::POST, &session_path("/inputs")) && before < 3 {
            return match before {
                0 => broken(""),
                1 => refuse(500, "internal"),
                // The first one is still being answered.
                _ => refuse(409, "idempotency_conflict"),
            };
        }
        usual(&asked).unwrap_or_else(|| events(end(json!({"state":"completed","exit_code":0}))))
    })
    .await;
    exec(&script, "", &[]).await.expect(0);
    let submitted = script.until(Method::POST, &session_path("/inputs"), 4).await;
    let keys: Vec<_> = submitted
        .iter()
        .map(|a| a.header("idempotency-key").unwrap())
        .collect();
    assert!(
        keys.len() == 4 && keys.iter().all(|key| *key == keys[0]),
        "{keys:?}"
    );
    assert!(submitted.iter().all(|a| a.body == submitted[0].body));
    exec(&script, "", &[]).await;
    let last = script.asked();
    let other = last
        .iter()
        .rfind(|a| a.is(Method::POST, &session_path("/inputs")));
    assert_ne!(other.unwrap().header("idempotency-key"), Some(keys[0]));
}

#[tokio::test]
async fn a_refusal_is_one_line_with_its_code_and_is_not_repeated() {
    for (status, code) in [
        (429, "turn_queue_full"),
        (409, "session_archived"),
        (503, "runtime_node_unavailable"),
        (404, "not_found_error"),
        (409, "idempotency_conflict"),
    ] {
        let script = Script::start(move |_, _| async move { refuse(status, code) }).await;
        let said = exec(&script, "", &[]).await.expect(125);
        assert_eq!(
            said.err,
            format!("oac: The script says no: mend it. ({code})\n"),
            "{code}"
        );
        assert_eq!(script.asked().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_turn_that_can_no_longer_be_read_is_one_line_that_says_how_to_look_again() {
    let script =
        Script::start(
            |asked, _| async move { usual(&asked).unwrap_or_else(|| refuse(404, "not_found_error")) },
        )
        .await;
    let said = exec(&script, "", &[]).await.expect(125);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert!(
        said.err
            .contains(&format!("oac session logs {SESSION} {TURN} --follow")),
        "{said:?}"
    );
}

#[tokio::test]
async fn what_programs_read_says_what_each_line_is() {
    let script =
        streams(&[record(0, "stdout", "out") + &end(json!({"state":"completed","exit_code":0}))]).await;
    let lines = exec(&script, "", &["--json"]).await.expect(0).lines();
    let kinds: Vec<_> = lines.iter().map(|l| l["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["turn", "output", "end"]);
    assert_eq!(lines[0]["turn"]["id"], TURN);
    assert_eq!(
        (&lines[1]["offset"], &lines[1]["stream"], &lines[1]["data"]),
        (&json!(0), &json!("stdout"), &json!("b3V0"))
    );
    assert_eq!(lines[2]["exit_code"], 0);

    let script = Script::start(|_, _| async { refuse(409, "session_archived") }).await;
    let said = exec(&script, "", &["--json"]).await.expect(125);
    let error: Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&json!("session_archived"), &json!(409))
    );
    assert_eq!(said.out, "");
}

#[tokio::test]
async fn a_detached_command_is_submitted_and_named() {
    let script = streams(&[]).await;
    let said = exec(&script, "", &["--detach"]).await.expect(0);
    assert_eq!((said.out, said.err), (format!("{TURN}\n"), String::new()));
    assert_eq!(offsets(&script).len(), 0);
    let said = exec(&script, "", &["--detach", "--json"]).await.expect(0);
    assert_eq!(said.json()["turn"]["id"], TURN);
}

#[tokio::test]
async fn a_standard_input_over_its_limit_is_refused_before_anything_is_submitted() {
    let script = streams(&[end(json!({"state":"completed","exit_code":0}))]).await;
    let limit = 8 << 20;
    let said = exec(&script, &"x".repeat(limit + 1), &[]).await.expect(125);
    assert_eq!(
        (said.err.lines().count(), script.asked().len()),
        (1, 0),
        "{said:?}"
    );
    assert!(said.err.contains("oac session cp"), "{said:?}");
    exec(&script, &"x".repeat(limit), &[]).await.expect(0);
}

#[tokio::test]
async fn a_standard_input_that_never_ends_holds_nothing_up_when_it_is_not_wanted() {
    let script = streams(&[end(json!({"state":"completed","exit_code":0}))]).await;
    let oac = Oac::of(&script.url);
    let arguments = [&["session", "exec", SESSION, "-n"], &COMMAND[..]].concat();
    let mut child = oac.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    drop(held);
    assert_eq!(input(&script).get("stdin"), None);
}

#[tokio::test]
async fn the_first_ctrl_c_cancels_and_the_second_leaves() {
    let script = Script::start(|asked, _| async move {
        usual(&asked).unwrap_or_else(|| events_open(record(0, "stdout", "ready\n")))
    })
    .await;
    let oac = Oac::of(&script.url);
    let arguments = [&["session", "exec", SESSION], &COMMAND[..]].concat();
    let mut child = oac.command(&arguments).spawn().unwrap();
    let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    kill_process(pid, Signal::INT).unwrap();
    script.until(Method::POST, &turn_path("/cancel"), 1).await;
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(125));
    let mut err = String::new();
    child.stderr.unwrap().read_to_string(&mut err).await.unwrap();
    let told: Vec<_> = err.lines().collect();
    assert!(
        told.len() == 2 && told[0].contains("again to leave") && told[1].contains(TURN),
        "{err}"
    );
    let canceled = script.asked();
    let canceled = canceled
        .iter()
        .filter(|a| a.is(Method::POST, &turn_path("/cancel")));
    assert_eq!(canceled.count(), 1);
}

#[tokio::test]
async fn a_ctrl_c_before_the_answer_cancels_what_core_took() {
    let (release, held) = tokio::sync::watch::channel(false);
    let script = Script::start(move |asked, _| {
        let mut held = held.clone();
        async move {
            if asked.is(Method::POST, &session_path("/inputs")) {
                held.wait_for(|released| *released).await.unwrap();
            }
            if asked.is(Method::GET, &turn_path("/output")) {
                return events(end(json!({"state":"canceled"})));
            }
            usual(&asked).unwrap()
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let arguments = [&["session", "exec", SESSION, "--detach"], &COMMAND[..]].concat();
    let mut child = oac.command(&arguments).spawn().unwrap();
    script.until(Method::POST, &session_path("/inputs"), 1).await;
    let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    kill_process(pid, Signal::INT).unwrap();
    assert!(told.next_line().await.unwrap().unwrap().contains("canceling"));
    release.send(true).unwrap();
    script.until(Method::POST, &turn_path("/cancel"), 1).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn a_cancel_is_heard_while_the_output_is_not_read() {
    // More than any pipe holds.
    let flood: String = (0..64)
        .map(|n| record(n * 32_768, "stdout", &"x".repeat(32_768)))
        .collect();
    let script = Script::start(move |asked, _| {
        let flood = flood.clone();
        async move { usual(&asked).unwrap_or_else(|| events_open(flood)) }
    })
    .await;
    let oac = Oac::of(&script.url);
    let arguments = [&["session", "exec", SESSION], &COMMAND[..]].concat();
    let mut child = oac.command(&arguments).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // It prints, and then nobody reads on.
    stdout.read_exact(&mut [0]).await.unwrap();
    let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    script.until(Method::POST, &turn_path("/cancel"), 1).await;
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(125));
}

#[tokio::test]
async fn a_command_whose_output_nobody_reads_is_canceled_as_a_local_one_would_end() {
    let (canceled, seen) = tokio::sync::watch::channel(false);
    let canceled = std::sync::Arc::new(canceled);
    let script = Script::start(move |asked, _| {
        let (canceled, mut seen) = (canceled.clone(), seen.clone());
        async move {
            if asked.is(Method::POST, &turn_path("/cancel")) {
                canceled.send_replace(true);
            }
            if let Some(usual) = usual(&asked) {
                return usual;
            }
            use futures_util::StreamExt;
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(record(0, "stdout", "y\n"))]);
            let last = futures_util::stream::once(async move {
                seen.wait_for(|seen| *seen).await.unwrap();
                Ok(end(json!({"state":"canceled"})))
            });
            axum::response::Response::new(axum::body::Body::from_stream(first.chain(last)))
        }
    })
    .await;
    let oac = Oac::of(&script.url);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = [&["session", "exec", SESSION], &COMMAND[..]].concat();
    let status = oac.command(&arguments).stdout(writer).status().await.unwrap();
    assert_eq!(status.code(), Some(130));
}

#[tokio::test]
async fn output_that_cannot_be_written_is_no_success_and_a_reader_that_left_is() {
    let script = streams(&vec![
        record(0, "stdout", "out\n")
            + &end(json!({"state":"completed","exit_code":0}));
        2
    ])
    .await;
    let oac = Oac::of(&script.url);
    let arguments = [&["session", "exec", SESSION], &COMMAND[..]].concat();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = oac
        .command(&arguments)
        .stdout(Stdio::from(full))
        .spawn()
        .unwrap()
        .wait_with_output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(
        says.contains("No space left") && says.lines().count() == 1,
        "{says}"
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = oac.command(&arguments).stdout(writer).status().await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn help_that_cannot_be_written_is_no_success() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = Oac::unconfigured()
        .command(&["--help"])
        .stdout(full)
        .status()
        .await
        .unwrap();
    assert_eq!(status.code(), Some(1));
}

#[tokio::test]
async fn a_missing_configuration_is_one_line_and_125() {
    let oac = Oac::unconfigured();
    let arguments = [&["session", "exec", SESSION], &COMMAND[..]].concat();
    let said = oac.run(&arguments).await.expect(125);
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert!(said.err.contains("oac login"), "{said:?}");
}

#[tokio::test]
async fn arguments_that_exec_does_not_take_are_no_commands_end() {
    let oac = Oac::unconfigured();
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
        oac.run(arguments).await.expect(status);
    }
}

#[tokio::test]
async fn no_key_is_in_what_is_printed_whatever_fails() {
    let script = Script::start(|asked, _| async move {
        if asked.target.contains("/inputs") {
            return answer(
                401,
                json!({ "error": { "message": "No such key.", "code": "invalid_api_key" } }),
            );
        }
        answer(200, turn(json!({})))
    })
    .await;
    let oac = Oac::with(&format!(
        "url = \"{}\"\nproject_key = \"oac_key_sesame\"\n",
        script.url
    ));
    for arguments in [
        &["session", "exec", SESSION, "--", "true"][..],
        &["--json", "session", "exec", SESSION, "--", "true"],
        &["context", "show"],
        &["--json", "context", "list"],
        &["session", "show", SESSION],
        &["node", "list"],
    ] {
        let said = oac.run(arguments).await;
        assert!(!format!("{said:?}").contains("sesame"), "{said:?}");
    }
    let asked = script.asked();
    assert_eq!(asked[0].header("authorization"), Some("Bearer oac_key_sesame"));
    assert!(!asked.iter().any(|a| a.target.contains("sesame")));
}
