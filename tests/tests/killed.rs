//! Nodes and Core killed in the middle of create and of kill, on a real Docker Engine: nothing runs twice and nothing
//! is left.

use oac_testkit::installation::Node;
use oac_tests::story::Story;

/// How far a create or a kill has come, as the engine shows it.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// Core has just answered.
    Accepted,
    /// The first native effect of create is there.
    Volumes,
    Container,
    Running,
}

impl Point {
    const OF_CREATE: [Self; 4] = [Self::Accepted, Self::Volumes, Self::Container, Self::Running];

    async fn reach(self, story: &Story) {
        match self {
            Self::Accepted => {}
            Self::Volumes => {
                story
                    .until("a volume exists", async || !story.left().await.volumes.is_empty())
                    .await;
            }
            Self::Container => {
                story
                    .until("a container exists", async || {
                        !story.left().await.containers.is_empty()
                    })
                    .await;
            }
            Self::Running => {
                story
                    .until("the container runs", async || {
                        story.running_containers().await > 0
                    })
                    .await;
            }
        }
    }
}

/// The Session works, in one container, and goes without a trace.
async fn works_once_and_leaves_nothing(story: &Story, session: &str, point: Point) {
    let (status, out, err) = story.exec(session, "echo alive").await;
    assert_eq!((status, out.as_str()), (Some(0), "alive\n"), "{point:?}: {err}");
    assert_eq!(
        story.containers().await.len(),
        1,
        "{point:?}: one container, not two"
    );
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.until_released().await;
}

// inv: INV-C17, INV-C18, INV-V6
#[tokio::test]
async fn docker_a_node_killed_during_create_leaves_one_sandbox_and_no_trace() {
    let story = Story::begin(None).await;
    let mut node = story.add_node("one", 1).await;
    for point in Point::OF_CREATE {
        let session = story.new_session().await;
        point.reach(&story).await;
        node.kill().await;
        assert!(story.containers().await.len() <= 1, "{point:?}");
        start(&story, &mut node).await;
        if let Point::Running = point {
            works_once_and_leaves_nothing(&story, &session, point).await;
            continue;
        }
        // A create that died half way is only observed, for five minutes; archiving ends it sooner. Its slot is held
        // until the node proved that nothing can come of it any more.
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
        story.until_empty().await;
        story.until_released().await;
    }
    story.end(vec![node]).await;
}

// inv: INV-C18, INV-V9
#[tokio::test]
async fn docker_a_node_killed_during_kill_finishes_it_afterwards() {
    let story = Story::begin(None).await;
    let mut node = story.add_node("one", 1).await;
    for looked in [false, true] {
        let session = story.new_session().await;
        story.exec(&session, "true").await;
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
        if looked {
            story
                .until("the container is going", async || {
                    story.running_containers().await == 0
                })
                .await;
        }
        node.kill().await;
        start(&story, &mut node).await;
        story.until_empty().await;
        story.until_released().await;
    }
    story.end(vec![node]).await;
}

async fn start(story: &Story, node: &mut Node) {
    story.installation.start_node(node).await.unwrap();
}

// inv: INV-C16, INV-C17, INV-C18
#[tokio::test]
async fn docker_core_killed_during_create_creates_once_and_leaks_nothing() {
    let mut story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    for point in Point::OF_CREATE {
        let session = story.new_session().await;
        point.reach(&story).await;
        story.installation.kill_core().await;
        story.installation.start_core().await.unwrap();
        works_once_and_leaves_nothing(&story, &session, point).await;
    }
    story.end(vec![node]).await;
}

// inv: INV-C18
#[tokio::test]
async fn docker_core_killed_during_kill_finishes_it_afterwards() {
    let mut story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story.exec(&session, "true").await;
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.installation.kill_core().await;
    story.installation.start_core().await.unwrap();
    story.until_empty().await;
    story.until_released().await;
    story.end(vec![node]).await;
}
