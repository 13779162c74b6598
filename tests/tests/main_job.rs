//! The main job, end to end, on a real Docker Engine with real programs.

use oac_tests::story::Story;
use serde_json::{Value, json};

// req: G-004, G-005, G-006, G-017, G-129
#[tokio::test]
async fn docker_a_session_runs_commands_in_a_sandbox_on_a_node_and_leaves_nothing() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 2).await;

    let session = story.new_session().await;
    let (status, out, err) = story.exec(&session, "echo out; echo err >&2; exit 3").await;
    assert_eq!((status, out.as_str(), err.as_str()), (Some(3), "out\n", "err\n"));
    let running = story.app("GET", &format!("/v1/sessions/{session}"), None).await;
    assert_eq!(running["sandbox"]["state"], "running");
    assert_eq!(running["placement"]["online"], true);
    assert_eq!(story.containers().await.len(), 1, "the sandbox is one container");

    // /workspace is a link to the volume, which `pwd` resolves.
    let written = story.exec(&session, "pwd; id -u; echo kept > note").await;
    assert_eq!(written.1, "/environment/workspace\n1000\n");
    assert_eq!(story.exec(&session, "cat /workspace/note").await.1, "kept\n");

    let archived = story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    assert_eq!(archived["state"], "archived");
    story.until_empty().await;
    story.until_released().await;
    let nodes = story.operator("GET", "/core/v1/sandbox/nodes", None).await;
    assert_eq!(
        (&nodes["data"][0]["active"], &nodes["data"][0]["retained"]),
        (&json!(0), &json!(0))
    );
    let (status, answer) = story
        .try_app(
            "POST",
            &format!("/v1/sessions/{session}/inputs"),
            Some(&json!({"args":["true"]})),
        )
        .await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &json!("session_archived"))
    );
    story.end(vec![node]).await;
}

// req: G-004
// inv: INV-C10, INV-C11
#[tokio::test]
async fn docker_two_nodes_share_sessions_and_a_full_installation_refuses_without_a_trace() {
    let story = Story::begin(None).await;
    let nodes = vec![story.add_node("one", 1).await, story.add_node("two", 1).await];
    let (first, second) = (story.new_session().await, story.new_session().await);
    let (status, answer) = story.try_app("POST", "/v1/sessions", Some(&json!({}))).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("runtime_node_unavailable"))
    );
    let all = story.app("GET", "/v1/sessions", None).await;
    assert_eq!(
        all["data"].as_array().unwrap().len(),
        2,
        "a refused Session leaves no row"
    );

    let mut places = Vec::new();
    for session in [&first, &second] {
        assert_eq!(story.exec(session, "echo here").await.1, "here\n");
        let document = story.app("GET", &format!("/v1/sessions/{session}"), None).await;
        places.push(document["placement"]["node_id"].as_str().unwrap().to_owned());
    }
    assert_ne!(places[0], places[1]);

    story.app("DELETE", &format!("/v1/sessions/{first}"), None).await;
    story.until_released_but(1).await;
    let third = story.new_session().await;
    assert_eq!(story.exec(&third, "echo again").await.1, "again\n");
    for session in [&second, &third] {
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
    }
    story.until_empty().await;
    story.end(nodes).await;
}

// inv: INV-S8
#[tokio::test]
async fn docker_a_container_removed_by_hand_is_noticed_and_the_next_input_gets_a_new_one() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.exec(&session, "echo gone > note").await;
    let turn = story.submit(&session, "echo started; exec sleep 3600").await;
    let started = format!("/v1/sessions/{session}/turns/{turn}");
    story
        .until("the command runs", async || {
            story.app("GET", &started, None).await["state"] == "running"
        })
        .await;
    let containers = story.containers().await;
    story.docker(&["rm", "-f", &containers[0]]).await;

    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(ended["state"], "interrupted");
    let (status, out, err) = story.exec(&session, "ls -A /workspace").await;
    assert_eq!((status, out.as_str()), (Some(0), ""), "{err}");
    let kinds = story.event_kinds(&session).await;
    assert!(kinds.contains(&"environment.reset".to_owned()), "{kinds:?}");
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

// inv: INV-S12, INV-V18
#[tokio::test]
async fn docker_the_link_credential_is_nowhere_but_in_the_bootstrap_file() {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.exec(&session, "true").await;
    let container = story.containers().await.remove(0);
    // Not through Core, which would rightly store the command's output.
    let inside = async |command: &[&str]| story.docker(&[&["exec", &container], command].concat()).await;
    let bootstrap: Value =
        serde_json::from_str(&inside(&["cat", "/home/runtime/bootstrap.json"]).await).unwrap();
    let credential = bootstrap["credential"].as_str().unwrap();
    assert_eq!(credential.len(), 64);
    let environment = inside(&["cat", "/proc/1/environ", "/proc/1/cmdline"]).await;
    for (place, text) in [
        (
            "the container's description",
            story.docker(&["inspect", &container]).await,
        ),
        ("the container's log", story.engine.log_of(&container).await),
        ("the runtime's environment and arguments", environment),
        ("Core's log", story.installation.core_log()),
        ("the node's log", node.log()),
        ("the processes' arguments", Story::every_command_line()),
    ] {
        assert!(!text.contains(credential), "{place} holds the credential");
    }
    for name in ["core.db", "core.db-wal"] {
        let bytes = std::fs::read(story.folder().join(name)).unwrap_or_default();
        let found = bytes
            .windows(credential.len())
            .any(|w| w == credential.as_bytes());
        assert!(!found, "{name} holds the credential");
    }
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

// inv: INV-S2, INV-S9
#[tokio::test]
async fn docker_core_killed_while_a_command_runs_loses_and_repeats_no_output() {
    let mut story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let turn = story
        .submit(
            &session,
            "echo x >> /workspace/runs; for i in $(seq 2000); do echo line $i; done; sleep 2; echo end",
        )
        .await;
    let path = format!("/v1/sessions/{session}/turns/{turn}");
    story
        .until("output arrives", async || {
            story.app("GET", &path, None).await["output_bytes"].as_i64() > Some(0)
        })
        .await;
    story.installation.kill_core().await;
    story.installation.start_core().await.unwrap();
    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(
        (&ended["state"], &ended["exit_code"]),
        (&json!("completed"), &json!(0))
    );
    let expected: String = (1..=2000)
        .map(|i| format!("line {i}\n"))
        .chain(["end\n".to_owned()])
        .collect();
    assert_eq!(story.output(&session, &turn).await, expected);
    assert_eq!(
        story.exec(&session, "cat /workspace/runs").await.1,
        "x\n",
        "the command ran once"
    );
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}
