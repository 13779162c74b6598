//! A new sandbox configuration while everything runs, on a real Docker Engine.

use oac_testkit::installation::Node;
use oac_tests::story::{CPUS, MEMORY_MIB, Story};
use serde_json::Value;

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const LARGER_MIB: u64 = MEMORY_MIB + 64;

async fn rollout(story: &Story) -> Value {
    story.operator("GET", DEPLOYMENT, None).await["rollout"].clone()
}

/// Waits until this many nodes are ready for the target.
async fn until_ready(story: &Story, count: u64) {
    story
        .until("the target is ready", async || {
            rollout(story).await["nodes"]["ready"] == count
        })
        .await;
}

/// The memory of each container of the installation, in MiB, smallest first.
async fn memory(story: &Story) -> Vec<u64> {
    let mut all = Vec::new();
    for container in story.containers().await {
        let arguments = ["inspect", "--format", "{{.HostConfig.Memory}}", &container];
        all.push(story.docker(&arguments).await.trim().parse::<u64>().unwrap() >> 20);
    }
    all.sort_unstable();
    all
}

async fn place(story: &Story, session: &str) -> String {
    let document = story.app("GET", &format!("/v1/sessions/{session}"), None).await;
    document["placement"]["node_id"].as_str().unwrap().to_owned()
}

async fn runs(story: &Story, session: &str) {
    let (status, out, err) = story.exec(session, "echo here").await;
    assert_eq!((status, out.as_str()), (Some(0), "here\n"), "{err}");
}

fn has(node: &Node, record: &str) -> bool {
    node.generation_record(record).exists()
}

// req: G-168, P-081
#[tokio::test]
async fn docker_nodes_take_a_new_size_while_their_sessions_run_and_the_old_one_goes_after_its_last_session() {
    let story = Story::begin(None).await;
    let mut nodes = Vec::new();
    for name in ["one", "two", "three"] {
        nodes.push(story.add_managing_node(name, 2).await);
    }
    let mut old = Vec::new();
    for _ in 0..3 {
        let session = story.new_session().await;
        runs(&story, &session).await;
        old.push(session);
    }
    assert_eq!(memory(&story).await, [MEMORY_MIB; 3]);
    let away = place(&story, &old[2]).await;
    nodes[2].stop().await;

    let selection = story.image.selection();
    let saved = story
        .installation
        .deploy(CPUS, LARGER_MIB, &selection)
        .await
        .unwrap();
    assert_eq!(saved["generation"], 2);
    until_ready(&story, 2).await;
    assert_eq!(rollout(&story).await["previous_generation_sandboxes"], 3);

    // New Sessions land on nodes that are ready, with the new size; the others go on.
    let new = story.new_session().await;
    runs(&story, &new).await;
    assert_ne!(place(&story, &new).await, away);
    assert_eq!(
        memory(&story).await,
        [MEMORY_MIB, MEMORY_MIB, MEMORY_MIB, LARGER_MIB]
    );
    for session in &old[..2] {
        runs(&story, session).await;
    }

    // A node that was away catches up, and its Session is still there.
    let mut third = nodes.pop().unwrap();
    story.installation.start_node(&mut third).await.unwrap();
    nodes.push(third);
    until_ready(&story, 3).await;
    runs(&story, &old[2]).await;
    assert!(
        nodes
            .iter()
            .all(|node| !has(node, "1.collecting") && !has(node, "1.dropped"))
    );

    for session in &old {
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
    }
    story
        .until("every node has given the old generation back", async || {
            nodes.iter().all(|node| has(node, "1.dropped"))
        })
        .await;
    runs(&story, &new).await;
    story.app("DELETE", &format!("/v1/sessions/{new}"), None).await;
    story.until_empty().await;
    let image = story.image.image_id.to_string();
    let found = story
        .docker(&["image", "inspect", "--format", "{{.Id}}", &image])
        .await;
    assert_eq!(found.trim(), image, "the engine keeps its images");
    story.end(nodes).await;
}
