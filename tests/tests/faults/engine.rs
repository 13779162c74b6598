//! The runtime killed, its container restarted, its engine restarted.

use std::{os::unix::fs::PermissionsExt, path::Path};

use oac_testkit::{engine::Engine, private_engine::PrivateEngine, runtime_image::RuntimeImage, wait};
use oac_tests::story::{PATIENCE, Story, gateway};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::limits::{finish, one_sandbox};

/// A private engine with the minimal image and a disk of `size_mib`, and an installation whose nodes use it.
pub(crate) async fn private(size_mib: u32, live_restore: bool) -> (TempDir, PrivateEngine, Story) {
    let folder = tempfile::Builder::new().prefix("oac-engine-").tempdir().unwrap();
    // The node's account goes through it to the socket.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let image = RuntimeImage::of_tests();
    let engine = PrivateEngine::start(folder.path(), size_mib, live_restore)
        .await
        .unwrap_or_else(|e| panic!("{e}"));
    engine
        .load(&image.archive)
        .await
        .unwrap_or_else(|e| panic!("{e}"));
    let client = Engine::connect(&engine.socket()).await.unwrap();
    let story = Story::begin_on(client, None, image, None).await;
    (folder, engine, story)
}

/// What `program` says, without a failure.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program)
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whatever state a failed test leaves its engine in.
#[tokio::test]
async fn docker_a_private_engine_leaves_nothing_behind_and_the_shared_ones_bridge_alone() {
    let gateway = gateway().await.to_string();
    let bridge = || said("ip", &["-o", "addr", "show", "to", &gateway]);
    let shared = bridge();
    assert!(shared.contains(&gateway), "{shared}");
    for killed in [false, true] {
        let folder = tempfile::Builder::new().prefix("oac-engine-").tempdir().unwrap();
        let mut engine = PrivateEngine::start(folder.path(), 500, killed)
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let image = RuntimeImage::of_tests();
        engine
            .load(&image.archive)
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let host = format!("unix://{}", engine.socket().display());
        let docker = |arguments: &[&str]| said("docker", &[&["-H", &host], arguments].concat());
        let network = docker(&["network", "create", "some"]);
        let run = ["run", "--detach", "--network", "some", "--entrypoint", "sleep"];
        let container = docker(&[&run[..], &[&image.tag, "1000"]].concat());
        let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &container]);
        let program = format!("/proc/{pid}/exe");
        assert!(std::fs::read_link(&program).is_ok());
        if killed {
            engine.kill().await;
            assert!(std::fs::read_link(&program).is_ok(), "containers live on");
        }
        assert_eq!(bridge(), shared);
        drop(engine);

        assert_eq!(bridge(), shared);
        assert!(std::fs::read_link(&program).is_err(), "the container lives on");
        let name = folder.path().to_str().unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(name), "{mounts}");
        let links = said("ip", &["-o", "link"]);
        for bridge in [
            format!("br-{}", &network[..12]),
            format!("oac{}", std::process::id()),
        ] {
            assert!(!links.contains(&bridge), "{bridge} in {links}");
        }
        wait::until("every helper has ended", PATIENCE, async || {
            (!Story::every_command_line().contains(name)).then_some(())
        })
        .await
        .unwrap();
    }
}

/// SIGKILL to the first process of the only sandbox, from outside.
async fn kill_runtime(story: &Story) {
    let container = story.containers().await.remove(0);
    let pid = story
        .docker(&["inspect", "--format", "{{.State.Pid}}", &container])
        .await;
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    let program = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).unwrap();
    assert_eq!(program, Path::new("/usr/local/bin/oac-runtime"));
    kill_process(pid, Signal::KILL).unwrap();
}

/// A Turn that runs until something ends it, and one behind it that tells what is left.
async fn running_and_queued(story: &Story, session: &str, n: usize) -> (String, String) {
    let running = story
        .submit(
            session,
            &format!("echo {n} >> started; echo begun; exec sleep 600"),
        )
        .await;
    let path = format!("/v1/sessions/{session}/turns/{running}");
    story
        .until("the command runs", async || {
            story.app("GET", &path, None).await["output_bytes"] == json!(6)
        })
        .await;
    (running, story.submit(session, "cat started").await)
}

/// The running Turn was ended and not repeated, its output is there; the queued one ran afterwards, with the files.
async fn goes_on(story: &Story, session: &str, (running, queued): (String, String), n: usize) -> Value {
    let ended = story.turn_end(session, &running).await;
    assert_eq!(story.output(session, &running).await, "begun\n", "{ended}");
    let next = story.turn_end(session, &queued).await;
    assert_eq!(
        (&next["state"], &next["exit_code"]),
        (&json!("completed"), &json!(0)),
        "{next}"
    );
    let expected: String = (0..=n).map(|n| format!("{n}\n")).collect();
    assert_eq!(
        story.output(session, &queued).await,
        expected,
        "started once each"
    );
    ended
}

// inv: INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn docker_a_killed_runtime_is_restarted_interrupts_its_turn_and_the_session_goes_on() {
    let (story, node, session) = one_sandbox().await;
    let containers = story.containers().await;
    for n in 0..3 {
        let turns = running_and_queued(&story, &session, n).await;
        kill_runtime(&story).await;
        let ended = goes_on(&story, &session, turns, n).await;
        assert_eq!(
            (&ended["state"], &ended["exit_code"]),
            (&json!("interrupted"), &json!(null)),
            "{ended}"
        );
    }
    assert_eq!(story.containers().await, containers, "the same sandbox");
    finish(story, node, &session).await;
}

// inv: INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn docker_a_container_that_the_engine_restarts_ends_its_turn_in_order_and_the_session_goes_on() {
    let (story, node, session) = one_sandbox().await;
    let containers = story.containers().await;
    for n in 0..2 {
        let turns = running_and_queued(&story, &session, n).await;
        story.docker(&["restart", "--time", "30", &containers[0]]).await;
        let ended = goes_on(&story, &session, turns, n).await;
        // Ended by the leaving runtime, as if canceled; or found ended without a word by the next one.
        let state = ended["state"].as_str().unwrap();
        assert!(["canceled", "interrupted"].contains(&state), "{ended}");
    }
    assert_eq!(story.containers().await, containers, "the same sandbox");
    finish(story, node, &session).await;
}

/// Engines that crashed and may not let containers live end what still runs, and some then take it for stopped on
/// purpose. The Session waits for whoever starts it again, and gives nothing up.
async fn start_what_a_crash_stopped(story: &Story, session: &str, queued: &str) {
    let container = story.containers().await.remove(0);
    let state = async || {
        story
            .docker(&["inspect", "--format", "{{.State.Status}}", &container])
            .await
    };
    if state().await.trim() == "exited" {
        let turn = story
            .app("GET", &format!("/v1/sessions/{session}/turns/{queued}"), None)
            .await;
        assert_eq!(turn["ended_at"], json!(null), "{turn}");
        story.docker(&["start", &container]).await;
    }
}

// req: G-237
// inv: INV-S2, INV-S3, INV-S4
#[tokio::test]
async fn docker_a_restarted_engine_brings_the_sandbox_back_and_the_session_goes_on() {
    let (_folder, mut engine, story) = private(500, false).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.run(&session, "true").await;
    let containers = story.containers().await;
    for n in 0..3 {
        let turns = running_and_queued(&story, &session, n).await;
        match n % 2 {
            0 => engine.stop().await,
            _ => engine.kill().await,
        }
        engine.run().await.unwrap_or_else(|e| panic!("{e}"));
        if n % 2 == 1 {
            start_what_a_crash_stopped(&story, &session, &turns.1).await;
        }
        let ended = goes_on(&story, &session, turns, n).await;
        let state = ended["state"].as_str().unwrap();
        assert!(["canceled", "interrupted"].contains(&state), "{ended}");
    }
    assert_eq!(story.containers().await, containers, "the same sandbox");
    finish(story, node, &session).await;
}

// inv: INV-S2, INV-S4
#[tokio::test]
async fn docker_an_engine_that_lets_containers_live_is_restarted_unnoticed_by_a_turn() {
    let (_folder, mut engine, story) = private(500, true).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let turn = story
        .submit(
            &session,
            "echo begun; while [ ! -e go ]; do sleep 0.05; done; seq 50000",
        )
        .await;
    let path = format!("/v1/sessions/{session}/turns/{turn}");
    story
        .until("the command runs", async || {
            story.app("GET", &path, None).await["output_bytes"] == json!(6)
        })
        .await;
    for n in 0..2 {
        match n {
            0 => engine.stop().await,
            _ => engine.kill().await,
        }
        engine.run().await.unwrap_or_else(|e| panic!("{e}"));
    }
    let container = story.containers().await.remove(0);
    story
        .docker(&["exec", &container, "touch", "/workspace/go"])
        .await;
    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(
        (&ended["state"], &ended["exit_code"]),
        (&json!("completed"), &json!(0)),
        "{ended}"
    );
    let expected: String = (1..=50_000).map(|n| format!("{n}\n")).collect();
    assert!(story.output(&session, &turn).await == format!("begun\n{expected}"));
    finish(story, node, &session).await;
}
