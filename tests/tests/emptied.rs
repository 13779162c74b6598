//! A host taken out of service while its Sessions work, on a real Docker Engine.

use oac_tests::story::Story;
use serde_json::{Value, json};

async fn node(story: &Story, name: &str) -> Value {
    let nodes = story.operator("GET", "/core/v1/sandbox/nodes", None).await;
    let mut all = nodes["data"].as_array().unwrap().iter();
    all.find(|node| node["name"] == name).cloned().unwrap()
}

async fn remove(story: &Story, id: &str) -> (u16, String) {
    let path = format!("/core/v1/sandbox/nodes/{id}");
    let key = &story.installation.core_key;
    story
        .installation
        .try_call("DELETE", &path, key, None)
        .await
        .unwrap()
}

// inv: INV-C26, INV-C29
#[tokio::test]
async fn docker_a_node_is_drained_across_a_crash_of_core_its_session_goes_on_elsewhere_and_it_is_removed() {
    let mut story = Story::begin(None).await;
    let mut one = story.add_node("one", 1).await;
    let session = story.new_session().await;
    let (status, _, err) = story.exec(&session, "echo kept > /workspace/file").await;
    assert_eq!(status, Some(0), "{err}");
    let works = story.submit(&session, "echo begun; sleep 600").await;
    let turn = format!("/v1/sessions/{session}/turns/{works}");
    story
        .until("the command runs", async || {
            story.app("GET", &turn, None).await["state"] == "running"
        })
        .await;
    let two = story.add_node("two", 1).await;
    let id = node(&story, "one").await["id"].as_str().unwrap().to_owned();
    let (status, body) = remove(&story, &id).await;
    assert!(
        status == 409 && body.contains("runtime_node_in_use"),
        "{status} {body}"
    );
    let drain = json!({ "deadline_seconds": 60, "idle": "wait", "then": "terminate", "retained": "keep" });
    let path = format!("/core/v1/sandbox/nodes/{id}/drain");
    story.operator("POST", &path, Some(&drain)).await;
    story.installation.kill_core().await;
    story.installation.start_core().await.unwrap();

    let ended = story.turn_end(&session, &works).await;
    assert_eq!(ended["state"], "interrupted");
    story
        .until("the drain is over", async || {
            node(&story, "one").await["drain"].is_null()
        })
        .await;
    assert!(story.containers().await.is_empty(), "nothing is left of it");
    let shown = node(&story, "one").await;
    assert_eq!(
        (&shown["cordoned"], &shown["retained"]),
        (&json!(true), &json!(0))
    );
    let (status, out, err) = story.exec(&session, "ls /workspace; echo on").await;
    assert_eq!((status, out.as_str()), (Some(0), "on\n"), "{err}");
    assert_eq!(node(&story, "two").await["active"], 1);

    assert_eq!(remove(&story, &id).await.0, 204);
    story
        .until("the removed node's program ended", async || {
            one.log().contains("refuses this node's credential")
        })
        .await;
    assert_eq!(one.stop().await, Some(78));
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.until_released().await;
    story.end(vec![two]).await;
}
