//! `oac` on a running installation.

use std::{os::unix::fs::PermissionsExt, process::Stdio};

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

    let nodes = oac(&story, &["node", "list"]).await.1;
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
    let listed = json(&story, &["session", "list"]).await;
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

#[tokio::test]
async fn docker_files_and_folders_go_both_ways_whole_with_modes_and_without_links() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let here = tempfile::tempdir().unwrap();
    let app = here.path().join("app");
    std::fs::create_dir_all(app.join("deep/empty")).unwrap();
    std::fs::write(app.join("run.sh"), "#!/bin/sh\necho \"ran in ${PWD##*/}\"\n").unwrap();
    std::fs::set_permissions(app.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n ^ (n >> 7)) as u8).collect();
    std::fs::write(app.join("deep/large"), &large).unwrap();
    std::fs::write(app.join("deep/odd name\nß"), "odd").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", app.join("link")).unwrap();

    let (status, _, err) = oac(
        &story,
        &[
            "session",
            "cp",
            &app.display().to_string(),
            &format!("{session}:"),
        ],
    )
    .await;
    assert_eq!(status, Some(0), "{err}");
    assert!(
        err.contains("a symbolic link") && err.contains("an empty folder"),
        "{err}"
    );
    let (status, out, err) = story
        .exec(
            &session,
            "cd app && ./run.sh && stat -c %a run.sh && ln -s /etc/passwd out && chmod 4755 run.sh && wc -c < deep/large && ls deep | wc -l",
        )
        .await;
    assert_eq!(
        (status, out.as_str()),
        (Some(0), "ran in app\n755\n5000000\n3\n"),
        "{err}"
    );

    let back = here.path().join("back");
    let (status, _, err) = oac(
        &story,
        &[
            "session",
            "cp",
            &format!("{session}:app"),
            &back.display().to_string(),
        ],
    )
    .await;
    assert_eq!(status, Some(0), "{err}");
    assert!(err.contains("out: a symbolic link"), "{err}");
    assert_eq!(std::fs::read(back.join("deep/large")).unwrap(), large);
    assert_eq!(
        std::fs::read_to_string(back.join("deep/odd name\nß")).unwrap(),
        "odd"
    );
    assert!(std::fs::symlink_metadata(back.join("out")).is_err());
    let mode = std::fs::metadata(back.join("run.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);

    // Through pipes, and what is not there.
    let mut child = story
        .oac()
        .args(["session", "cp", "-", &format!("{session}:/tmp/typed")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xfftyped").await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let copy = ["session", "cp", &format!("{session}:/tmp/typed"), "-"];
    let output = story.oac().args(copy).output().await.unwrap();
    assert_eq!(output.stdout, b"\xfftyped");
    let (status, _, err) = oac(&story, &["session", "cp", &format!("{session}:no/such"), "-"]).await;
    assert_eq!((status, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("not_found_error"), "{err}");

    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

const SERVER: &str = r#"
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8000, Listen => 5, ReuseAddr => 1) or die;
print "listening\n"; $| = 1; STDOUT->flush();
while (my $client = $listener->accept) {
    my $line = <$client>;
    while (my $header = <$client>) { last if $header =~ /^\r?\n/; }
    my ($path) = $line =~ m{^GET (\S+)};
    print $client "HTTP/1.1 200 OK\r\nContent-Length: " . length($path) . "\r\nConnection: close\r\n\r\n$path";
    close $client;
}
"#;

#[tokio::test]
async fn docker_a_port_of_the_sandbox_is_reached_from_here() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let mut server = story
        .oac()
        .args(["session", "exec", &session, "--", "perl", "-e", SERVER])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("listening"));
    let mut forward = story
        .oac()
        .args(["--json", "session", "port-forward", &session, "0:8000", "0:9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let mut urls = Vec::new();
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        urls.push(line["url"].as_str().unwrap().to_owned());
    }
    let answer = reqwest::get(format!("{}/a//b?c=%2F", urls[0])).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "/a//b?c=%2F");
    let refused = reqwest::get(&urls[1]).await.unwrap();
    assert_eq!(refused.status(), 502);
    let mut told = BufReader::new(forward.stderr.take().unwrap()).lines();
    let told = told.next_line().await.unwrap().unwrap();
    assert!(told.contains("port 9"), "{told}");
    for child in [&forward, &server] {
        kill_process(Pid::from_raw(child.id().unwrap() as i32).unwrap(), Signal::INT).unwrap();
    }
    assert_eq!(forward.wait().await.unwrap().code(), Some(0));
    assert_eq!(server.wait().await.unwrap().code(), Some(130));
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn docker_a_detached_command_is_followed_over_a_restart_of_core_canceled_and_removed() {
    let mut story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let script = "for i in $(seq 40); do echo line $i; sleep 0.1; done";
    let detached = [
        "session", "exec", &session, "--detach", "--", "bash", "-c", script,
    ];
    let turn = oac(&story, &detached).await.1.trim().to_owned();
    let mut follower = story
        .oac()
        .args(["session", "logs", &session, &turn, "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut read = vec![lines.next_line().await.unwrap().unwrap()];
    story.installation.kill_core().await;
    story.installation.start_core().await.unwrap();
    while let Some(line) = lines.next_line().await.unwrap() {
        read.push(line);
    }
    let expected: Vec<String> = (1..=40).map(|n| format!("line {n}")).collect();
    assert_eq!(read, expected);
    assert_eq!(follower.wait().await.unwrap().code(), Some(0));
    let (_, out, _) = oac(&story, &["session", "logs", &session, "--offset", "303"]).await;
    assert_eq!(out, "line 40\n");

    let long = oac(
        &story,
        &["session", "exec", &session, "--detach", "--", "sleep", "600"],
    )
    .await;
    let queued = oac(&story, &["session", "exec", &session, "--detach", "--", "true"]).await;
    assert_eq!(
        oac(&story, &["session", "cancel", &session, "--all"]).await.0,
        Some(0)
    );
    for turn in [long.1.trim(), queued.1.trim()] {
        assert_eq!(story.turn_end(&session, turn).await["state"], "canceled");
    }
    let (_, turns, _) = oac(&story, &["session", "turns", &session]).await;
    assert_eq!(turns.matches("canceled").count(), 2, "{turns}");
    let events = json_lines(&story, &["session", "events", &session]).await;
    let ended = events.iter().filter(|e| e["type"] == "turn.ended").count();
    assert_eq!((&events[0]["type"], ended), (&Value::from("session.created"), 3));

    let (status, _, err) = oac(&story, &["session", "rm", &session]).await;
    assert_eq!(status, Some(2), "{err}");
    assert_eq!(oac(&story, &["session", "rm", "--yes", "--all"]).await.0, Some(0));
    let listed = json(&story, &["session", "list"]).await;
    assert_eq!(listed["data"], serde_json::json!([]));
    let events = json_lines(&story, &["session", "events", &session, "--follow"]).await;
    assert!(events.iter().any(|e| e["type"] == "session.archived"));
    story.until_empty().await;
    story.end(vec![node]).await;
}

async fn json_lines(story: &Story, arguments: &[&str]) -> Vec<Value> {
    let (status, out, err) = oac(story, &[&["--json"], arguments].concat()).await;
    assert_eq!(status, Some(0), "{arguments:?}: {err}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
