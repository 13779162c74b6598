//! `oac` on a running installation.

use std::process::Stdio;

use oac_tests::story::{CPUS, MEMORY_MIB, Story};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

async fn oac(story: &Story, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = story.oac().args(arguments).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

async fn json(story: &Story, arguments: &[&str]) -> Value {
    let (status, out, err) = oac(story, &[&["--json"], arguments].concat()).await;
    assert_eq!(status, Some(0), "{arguments:?}: {err}");
    assert_eq!(out.lines().count(), 1, "one document on one line: {out}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test]
async fn docker_the_command_line_sets_a_deployment_and_handles_sessions() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let (cpus, memory) = (CPUS.to_string(), MEMORY_MIB.to_string());
    let manifest = story.image.manifest.display().to_string();
    let set = [
        "deployment",
        "set",
        "--runtime",
        &manifest,
        "--cpus",
        &cpus,
        "--memory",
        &memory,
    ];
    let before = json(&story, &["deployment", "show"]).await;
    let after = json(&story, &set).await;
    assert_eq!(
        after["specification"], before["specification"],
        "the manifest names the deployed image"
    );
    assert_eq!(
        after["generation"], before["generation"],
        "an identical selection changes nothing"
    );

    let nodes = oac(&story, &["node", "ls"]).await.1;
    assert!(
        nodes
            .lines()
            .nth(1)
            .is_some_and(|l| l.contains("one") && l.contains("ready")),
        "{nodes}"
    );

    let session = json(&story, &["session", "create", "--name", "work"]).await;
    let id = session["id"].as_str().unwrap().to_owned();
    let (status, out, _) = oac(&story, &["session", "exec", &id, "--", "echo", "hello"]).await;
    assert_eq!((status, out.as_str()), (Some(0), "hello\n"));
    let listed = json(&story, &["session", "ls"]).await;
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][0]["name"]),
        (&session["id"], &Value::from("work"))
    );
    let shown = oac(&story, &["session", "show", &id]).await.1;
    assert!(shown.contains("running") && shown.contains(&id), "{shown}");

    assert_eq!(oac(&story, &["session", "archive", &id]).await.0, Some(0));
    assert_eq!(json(&story, &["session", "show", &id]).await["state"], "archived");
    let (status, _, err) = oac(&story, &["session", "exec", &id, "--", "true"]).await;
    assert_eq!((status, err.lines().count()), (Some(125), 1), "{err}");
    story.until_empty().await;
    story.end(vec![node]).await;
}

#[tokio::test]
async fn docker_exec_ends_as_its_command_did() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    for (arguments, expected) in [
        (&["--", "bash", "-c", "exit 41"][..], 41),
        (&["--", "bash", "-c", "kill -KILL $$"], 128 + 9),
        (&["--timeout", "1", "--", "sleep", "60"], 124),
        (&["--", "no-such-program"], 126),
        (&["--cwd", "/no/such/folder", "--", "true"], 126),
    ] {
        let (status, _, err) = oac(
            &story,
            &[&["session", "exec", session.as_str()], arguments].concat(),
        )
        .await;
        assert_eq!(status, Some(expected), "{arguments:?}: {err}");
    }

    let mut child = story
        .oac()
        .args(["session", "exec", &session, "--", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&vec![b'x'; 3_000_000]).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3000000");

    let script = "trap 'echo asked to end; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let mut child = story
        .oac()
        .args(["session", "exec", &session, "--", "bash", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("asked to end"));
    // It ended by itself in answer to SIGTERM; the runtime records that it was canceled.
    assert_eq!(child.wait().await.unwrap().code(), Some(130));

    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}
