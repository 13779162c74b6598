//! A sandbox that runs out of memory, disk or process ids.

use std::io::Write;

use oac_testkit::{private_engine::PrivateEngine, wait};
use oac_tests::story::{PATIENCE, Story};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    engine::private,
    limits::{finish, one_sandbox},
};

/// When the sandbox's first process was started; it stays so until the engine restarts it.
async fn started_at(story: &Story) -> String {
    let container = story.containers().await.remove(0);
    story
        .docker(&["inspect", "--format", "{{.State.StartedAt}}", &container])
        .await
}

/// Ids, as this host sees them, of the sandbox's processes with that name.
async fn processes(story: &Story, name: &str) -> Vec<Pid> {
    let container = story.containers().await.remove(0);
    let listed = story.docker(&["top", &container, "-eo", "pid,comm"]).await;
    listed
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .filter(|(_, command)| command.trim() == name)
        .filter_map(|(pid, _)| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

async fn is_alive(story: &Story, session: &str) {
    let (turn, output) = story.run(session, "echo alive; cat note").await;
    assert_eq!(
        (&turn["exit_code"], output.as_str()),
        (&json!(0), "alive\nkept\n"),
        "{turn}"
    );
}

#[tokio::test]
async fn docker_a_command_that_takes_all_memory_is_killed_alone() {
    let (story, node, session) = one_sandbox().await;
    story.run(&session, "echo kept > note").await;
    let started = started_at(&story).await;
    let (turn, _) = story.run(&session, "exec tail /dev/zero").await;
    assert_eq!(
        (&turn["state"], &turn["signal"]),
        (&json!("completed"), &json!(9)),
        "{turn}"
    );
    // Whatever size they and the runtime have, the kernel takes one of these.
    let (_, weights) = story
        .run(&session, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj")
        .await;
    assert_eq!(weights, "500\n0\n");
    let crowd = "for i in $(seq 60); do (x=$(head -c 4000000 /dev/zero | tr '\\0' x); x=$x$x$x; sleep 2) & done; wait";
    let (turn, _) = story.run(&session, crowd).await;
    assert_eq!(turn["state"], json!("completed"), "{turn}");
    is_alive(&story, &session).await;
    assert_eq!(started_at(&story).await, started, "the runtime lives on");
    finish(story, node, &session).await;
}

/// Takes what is left of the engine's disk.
fn fill(engine: &PrivateEngine) -> std::path::PathBuf {
    let rest = engine.data().join("rest");
    let mut file = std::fs::File::create(&rest).unwrap();
    let mut size = 1 << 20;
    while size > 0 {
        if file.write_all(&vec![0; size]).is_err() {
            size /= 2;
        }
    }
    rest
}

// inv: INV-S4, INV-S6
#[tokio::test]
async fn docker_output_without_room_on_the_disk_waits_and_none_of_it_is_lost() {
    let (_folder, engine, story) = private(400, false).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.run(&session, "echo kept > note").await;
    let turn = story
        .submit(
            &session,
            "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq -f '%015.0f' 300000",
        )
        .await;
    let path = format!("/v1/sessions/{session}/turns/{turn}");
    story
        .until("the command runs", async || {
            story.app("GET", &path, None).await["output_bytes"] == json!(6)
        })
        .await;
    let rest = fill(&engine);
    let container = story.containers().await.remove(0);
    let format = "{{range .Mounts}}{{if eq .Destination \"/environment\"}}{{.Source}}{{end}}{{end}}";
    let environment = story.docker(&["inspect", "--format", format, &container]).await;
    // An empty file takes no room.
    std::fs::File::create(format!("{}/workspace/go", environment.trim())).unwrap();
    // It sleeps only when nobody takes what it writes.
    let mut asleep = 0;
    wait::until("the command waits in its write", PATIENCE, async || {
        let writing = processes(&story, "seq").await;
        let stat = writing.first().map(|pid| {
            std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default()
        });
        let sleeps = stat.is_some_and(|stat| stat.contains("(seq) S"));
        asleep = if sleeps { asleep + 1 } else { 0 };
        (asleep >= 20).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(story.app("GET", &path, None).await["state"], json!("running"));
    std::fs::remove_file(rest).unwrap();
    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(
        (&ended["state"], &ended["exit_code"]),
        (&json!("completed"), &json!(0)),
        "{ended}"
    );
    let expected: String = (1..=300_000).map(|n| format!("{n:015}\n")).collect();
    assert!(story.output(&session, &turn).await == format!("begun\n{expected}"));
    is_alive(&story, &session).await;
    finish(story, node, &session).await;
}

#[tokio::test]
async fn docker_a_command_that_fills_the_disk_can_be_followed_by_one_that_frees_it() {
    let (_folder, _engine, story) = private(400, false).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.run(&session, "echo kept > note").await;
    let started = started_at(&story).await;
    let (turn, output) = story.run(&session, "cat /dev/zero > big").await;
    assert_eq!(turn["exit_code"], json!(1), "{turn}");
    assert!(output.contains("No space left on device"), "{output}");
    let (turn, output) = story.run(&session, "rm big; echo freed").await;
    assert_eq!(
        (&turn["state"], output.as_str()),
        (&json!("completed"), "freed\n"),
        "{turn}"
    );
    is_alive(&story, &session).await;
    assert_eq!(started_at(&story).await, started, "the runtime lives on");
    finish(story, node, &session).await;
}

#[tokio::test]
async fn docker_a_sandbox_full_of_processes_stays_linked_and_says_why_a_turn_cannot_start() {
    let (story, node, session) = one_sandbox().await;
    story.run(&session, "echo kept > note").await;
    let started = started_at(&story).await;

    // A bomb in the command's own process group ends with the command.
    let input = json!({
        "args": ["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 600"],
        "timeout_seconds": 3,
    });
    let answer = story
        .app("POST", &format!("/v1/sessions/{session}/inputs"), Some(&input))
        .await;
    let bomb = story
        .turn_end(&session, answer["turn"]["id"].as_str().unwrap())
        .await;
    let state = bomb["state"].as_str().unwrap();
    assert!(["timed_out", "completed"].contains(&state), "{bomb}");
    is_alive(&story, &session).await;

    // Processes that left the group stay, and take every process id there is.
    // Bash waits and tries again, so none is free for some seconds.
    let leave = "for i in $(seq 6); do setsid bash -c 'while :; do sleep 1200 & done' > /dev/null 2>&1 & done; sleep 0.5";
    story.run(&session, leave).await;
    let refused = wait::until("there is no room for a process", PATIENCE, async || {
        let (turn, _) = story.run(&session, "echo alive").await;
        (turn["exit_code"] != json!(0)).then_some(turn)
    })
    .await
    .unwrap();
    let reason = refused["reason"].as_str().unwrap_or_default();
    assert!(
        refused["state"] == "failed" && reason.contains("resource temporarily unavailable"),
        "{refused}"
    );
    let view = story.app("GET", &format!("/v1/sessions/{session}"), None).await;
    assert_eq!(view["sandbox"]["state"], json!("running"), "{view}");

    for pid in [processes(&story, "sleep").await, processes(&story, "bash").await].concat() {
        let _ = kill_process(pid, Signal::KILL);
    }
    story
        .until("there is room again", async || {
            story.run(&session, "echo alive").await.1 == "alive\n"
        })
        .await;
    is_alive(&story, &session).await;
    assert_eq!(started_at(&story).await, started, "the runtime lives on");
    finish(story, node, &session).await;
}
