//! Many readers of one output.

use std::time::Duration;

use oac_tests::story::Story;
use oac_wire::B64;
use serde_json::{Value, json};

use crate::limits::{finish, one_sandbox};

const READERS: usize = 32;

/// A started reader of an output stream.
struct Reader {
    response: reqwest::Response,
    text: Vec<u8>,
}

impl Reader {
    async fn open(story: &Story, path: &str) -> Self {
        // A connection of its own, which no other reader's slowness holds up.
        let response = reqwest::Client::new()
            .get(format!("{}{path}", story.installation.url))
            .bearer_auth(story.key.expose())
            .send()
            .await
            .unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        let text = Vec::new();
        Self { response, text }
    }

    /// Reads to the end, with a pause after each piece: the bytes, whose offsets must follow on each other.
    async fn read(mut self, pause: Duration, from: u64) -> Vec<u8> {
        while let Some(chunk) = self.response.chunk().await.unwrap() {
            self.text.extend_from_slice(&chunk);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        let mut bytes = Vec::new();
        let mut ended = false;
        for line in self.text.split(|b| *b == b'\n') {
            let Some(data) = line.strip_prefix(b"data:") else {
                continue;
            };
            let record: Value = serde_json::from_slice(data).unwrap();
            assert!(!ended, "{record} after the end");
            match record["data"].as_str() {
                Some(data) => {
                    assert_eq!(record["offset"], json!(from + bytes.len() as u64));
                    bytes.extend(B64::decode(data.as_bytes()).unwrap().0);
                }
                None => ended = true,
            }
        }
        assert!(ended, "the stream had no end record");
        bytes
    }
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn docker_thirty_two_readers_of_one_output_get_all_of_it_and_a_stuck_one_holds_up_nobody() {
    let (story, node, session) = one_sandbox().await;
    let script = "while [ ! -e go ]; do sleep 0.05; done; for i in $(seq 40); do seq -f \"$i %.0f\" 8000; sleep 0.05; done";
    let turn = story.submit(&session, script).await;
    let expected: Vec<u8> = (1..=40)
        .flat_map(|i| (1..=8000).map(move |n| format!("{i} {n}\n")))
        .flat_map(String::into_bytes)
        .collect();
    let path = |offset: usize| format!("/v1/sessions/{session}/turns/{turn}/output?offset={offset}");

    let stuck = Reader::open(&story, &path(0)).await;
    let mut reading = tokio::task::JoinSet::new();
    for n in 1..READERS {
        let from = if n % 4 == 0 { n * 1001 } else { 0 };
        let reader = Reader::open(&story, &path(from)).await;
        let pause = Duration::from_millis([0, 1, 5, 20][n % 4]);
        reading.spawn(async move { (from, reader.read(pause, from as u64).await) });
    }
    let (status, answer) = story.try_app("GET", &path(0), None).await;
    assert_eq!(status, 429, "one more than are allowed: {answer}");

    let container = story.containers().await.remove(0);
    story
        .docker(&["exec", &container, "touch", "/workspace/go"])
        .await;
    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(
        (&ended["state"], &ended["output_bytes"]),
        (&json!("completed"), &json!(expected.len()))
    );
    while let Some(read) = reading.join_next().await {
        let (from, bytes) = read.unwrap();
        assert!(bytes == expected[from..], "a reader from {from} got other bytes");
    }
    // It has read nothing so far, and nobody waited for it.
    assert_eq!(story.run(&session, "echo next").await.1, "next\n");
    assert!(stuck.read(Duration::ZERO, 0).await == expected);
    finish(story, node, &session).await;
}
