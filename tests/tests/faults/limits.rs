//! Many Turns in one Session.

use oac_testkit::{installation::Node, wait};
use oac_tests::story::{PATIENCE, Story};
use serde_json::{Value, json};

/// A story with one node and one Session, whose sandbox runs.
pub(crate) async fn one_sandbox() -> (Story, Node, String) {
    let story = Story::begin(None).await;
    let node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    story
        .session_until(&session, "the sandbox runs", |session| {
            session["sandbox"]["state"] == "running"
        })
        .await;
    (story, node, session)
}

pub(crate) async fn finish(story: Story, node: Node, session: &str) {
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.end(vec![node]).await;
}

fn shell(script: &str) -> Value {
    json!({ "args": ["bash", "-c", script] })
}

/// The ids of all Turns of a Session, in order.
async fn turns(story: &Story, session: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = story
            .app(
                "GET",
                &format!("/v1/sessions/{session}/turns?limit=100{cursor}"),
                None,
            )
            .await;
        all.extend(page["data"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    all.sort_by_key(|turn| turn["sequence"].as_i64());
    all
}

// inv: INV-S1, INV-S2
#[tokio::test]
async fn docker_a_thousand_quick_turns_of_a_session_run_once_each_in_order() {
    let (story, node, session) = one_sandbox().await;
    let inputs = format!("/v1/sessions/{session}/inputs");
    for n in 0..1000 {
        let input = shell(&format!("echo {n} >> ran; echo {n}"));
        wait::until("there is room in the queue", PATIENCE, async || {
            let (status, answer) = story.try_app("POST", &inputs, Some(&input)).await;
            assert!(
                status == 202 || answer["error"]["code"] == "turn_queue_full",
                "{status}: {answer}"
            );
            (status == 202).then_some(())
        })
        .await
        .unwrap();
    }
    let all = turns(&story, &session).await;
    assert_eq!(all.len(), 1000);
    story.turn_end(&session, all[999]["id"].as_str().unwrap()).await;
    for (n, turn) in turns(&story, &session).await.iter().enumerate() {
        assert_eq!(
            (&turn["state"], &turn["exit_code"], &turn["sequence"]),
            (&json!("completed"), &json!(0), &json!(n + 1))
        );
        if n % 100 == 99 {
            let id = turn["id"].as_str().unwrap();
            assert_eq!(story.output(&session, id).await, format!("{n}\n"));
        }
    }
    let (_, ran) = story
        .run(&session, "cat ran; ls /home/runtime/turns | wc -l")
        .await;
    let ran: Vec<&str> = ran.lines().collect();
    let expected: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(ran[..1000], expected[..]);
    let records: usize = ran[1000].parse().unwrap();
    assert!(records < 10, "{records} records of Turns are kept in the sandbox");
    finish(story, node, &session).await;
}

// inv: INV-S1, INV-S9
#[tokio::test]
async fn docker_a_sixty_fifth_unfinished_turn_is_refused_without_a_trace() {
    let (story, node, session) = one_sandbox().await;
    let inputs = format!("/v1/sessions/{session}/inputs");
    let first = story
        .submit(&session, "while [ ! -e go ]; do sleep 0.05; done")
        .await;
    let body = json!({ "args": ["bash", "-c", "touch go"] });
    for n in 1..64 {
        story.submit(&session, &format!("echo {n}")).await;
    }
    for _ in 0..3 {
        let (status, answer) = story.try_app("POST", &inputs, Some(&body)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (429, &json!("turn_queue_full"))
        );
    }
    assert_eq!(turns(&story, &session).await.len(), 64);
    // A place that becomes free is given again, once.
    let second = turns(&story, &session).await[1]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let cancel = format!("/v1/sessions/{session}/turns/{second}/cancel");
    let canceled = story.app("POST", &cancel, Some(&json!({}))).await;
    assert_eq!(canceled["state"], "canceled");
    story.submit(&session, "echo 64").await;
    let (status, _) = story.try_app("POST", &inputs, Some(&body)).await;
    assert_eq!(status, 429);
    let cancel = format!("/v1/sessions/{session}/turns/{first}/cancel");
    story.app("POST", &cancel, Some(&json!({}))).await;
    let all = turns(&story, &session).await;
    let last = all[64]["id"].as_str().unwrap();
    story.turn_end(&session, last).await;
    let all = turns(&story, &session).await;
    let states: Vec<&str> = all.iter().filter_map(|turn| turn["state"].as_str()).collect();
    assert_eq!((all.len(), states[0], states[1]), (65, "canceled", "canceled"));
    assert!(
        states[2..].iter().all(|state| *state == "completed"),
        "{states:?}"
    );
    assert_eq!(story.output(&session, last).await, "64\n");
    let (listed, _) = story.run(&session, "ls go").await;
    assert_ne!(listed["exit_code"], json!(0), "what was refused ran");
    finish(story, node, &session).await;
}
