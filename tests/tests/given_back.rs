//! A deployment that is reset while its Sessions work, on a real Docker Engine.

use oac_tests::story::{CPUS, MEMORY_MIB, Story};
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// `oac` as its operator runs it: exit status, standard output and error.
async fn oac(story: &Story, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = story.oac().args(arguments).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

async fn remaining(story: &Story) -> Value {
    story.operator("GET", DEPLOYMENT, None).await["reset"]["remaining"].clone()
}

// req: G-181, G-182, G-183, G-184, G-185
// inv: INV-C2, INV-C23, INV-C26
#[tokio::test]
async fn docker_a_deployment_is_reset_across_a_crash_of_core_and_a_host_that_was_away_and_set_up_anew() {
    let mut story = Story::begin(None).await;
    let mut one = story.add_node("one", 2).await;
    let idle = story.new_session().await;
    let (status, _, err) = story.exec(&idle, "echo bytes > /workspace/file").await;
    assert_eq!(status, Some(0), "{err}");
    let busy = story.new_session().await;
    let works = story.submit(&busy, "echo begun; sleep 600").await;
    let turn = format!("/v1/sessions/{busy}/turns/{works}");
    story
        .until("the command runs", async || {
            story.app("GET", &turn, None).await["state"] == "running"
        })
        .await;
    assert_eq!(story.left().await.containers.len(), 2);

    let auto = ["--json", "deployment", "reset", "--yes", "--deadline", "3600"];
    let (status, out, err) = oac(&story, &auto).await;
    assert_eq!(status, Some(0), "{err}");
    let begun: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(begun["reset"]["clear"], "auto");
    story.until_released_but(1).await;
    let shown = story.app("GET", &format!("/v1/sessions/{idle}"), None).await;
    assert!(shown["archived_at"].is_string());
    let left = remaining(&story).await;
    assert_eq!(
        (&left["busy"], &left["cleanup"]),
        (&json!(1), &json!(0)),
        "{left}"
    );
    assert_eq!(story.app("GET", &turn, None).await["state"], "running");
    let (status, answer) = story.try_app("POST", "/v1/sessions", Some(&json!({}))).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("sandbox_reset_in_progress"))
    );

    // The host goes away; what it holds is waited for.
    one.stop().await;
    let (status, _, err) = oac(&story, &["deployment", "reset", "--force", "--yes"]).await;
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(story.turn_end(&busy, &works).await["state"], "canceled");
    story.installation.kill_core().await;
    story.installation.start_core().await.unwrap();
    story
        .until("the reset waits for the host", async || {
            remaining(&story).await["on_offline_nodes"] == 1
        })
        .await;
    let (_, shown, _) = oac(&story, &["deployment", "show"]).await;
    assert!(shown.contains("offline nodes: one (1)"), "{shown}");
    assert_eq!(story.left().await.containers.len(), 1, "nobody cleaned up");

    // It was asked for already: this only waits for it.
    let wait = ["--json", "deployment", "reset", "--force", "--yes", "--wait"];
    let ((status, out, err), started) =
        tokio::join!(oac(&story, &wait), story.installation.start_node(&mut one));
    started.unwrap();
    assert_eq!(status, Some(0), "{err}");
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&done["provider"], &done["generation"]),
        (&Value::Null, &json!(2))
    );
    let left = story.left().await;
    assert!(left.containers.is_empty() && left.volumes.is_empty(), "{left:?}");
    story
        .until("the retired node's program ended", async || {
            one.log().contains("refuses this node's credential")
        })
        .await;
    assert_eq!(one.stop().await, Some(78));

    // The same host serves the next deployment.
    let selection = story.image.selection();
    let anew = story
        .installation
        .deploy(CPUS, MEMORY_MIB, &selection)
        .await
        .unwrap();
    assert_eq!(anew["generation"], json!(3));
    let again = story.add_node("again", 1).await;
    let session = story.new_session().await;
    let (status, out, err) = story.exec(&session, "ls /workspace; echo on").await;
    assert_eq!((status, out.as_str()), (Some(0), "on\n"), "{err}");
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.until_released().await;
    story.end(vec![again]).await;
}
