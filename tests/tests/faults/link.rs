//! The link between sandboxes and Core, cut.

use std::collections::HashSet;

use oac_testkit::{engine::Engine, runtime_image::RuntimeImage};
use oac_tests::story::{Story, gateway};
use oac_wire::B64;
use serde_json::json;

use crate::{cutting::CuttingProxy, random::Random};

const SANDBOXES: usize = 25;
const CUTS_EACH: usize = 4;
/// Through standard input there and as output back: 105 MB in all each way.
const BYTES_EACH: usize = 4_200_000;
/// As much of a connection as may pass before it is cut. Four of these are less than what one sandbox sends.
const BEFORE_CUT: u64 = 1_300_000;

/// Several sandboxes at once, because one waits longer after each cut in a row.
// inv: INV-S2, INV-S4, INV-S5, INV-S6
#[tokio::test]
async fn docker_a_hundred_cuts_at_random_bytes_lose_and_repeat_nothing_of_a_hundred_megabytes() {
    let mut random = Random::seeded();
    let proxy = CuttingProxy::bind(gateway().await, random.clone(), CUTS_EACH, BEFORE_CUT).await;
    let engine = Engine::of_tests().await;
    let story = Story::begin_on(engine, None, RuntimeImage::of_tests(), Some(proxy.address)).await;
    let core = story
        .installation
        .url
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let told = async {
        let node = story.add_node("one", SANDBOXES as u32).await;
        let mut running = Vec::new();
        for _ in 0..SANDBOXES {
            let session = story.new_session().await;
            let bytes = B64(random.bytes(BYTES_EACH));
            let body = json!({
                "args": ["bash", "-c", "echo ran >> /workspace/runs; exec cat"],
                "stdin": bytes.encode(),
            });
            let inputs = format!("/v1/sessions/{session}/inputs");
            let answer = story.app("POST", &inputs, Some(&body)).await;
            let count = story.submit(&session, "cat /workspace/runs").await;
            running.push((
                session,
                answer["turn"]["id"].as_str().unwrap().to_owned(),
                bytes.0,
                count,
            ));
        }
        for (session, turn, bytes, count) in &running {
            let ended = story.turn_end(session, turn).await;
            assert_eq!(
                (&ended["state"], &ended["exit_code"], &ended["output_bytes"]),
                (&json!("completed"), &json!(0), &json!(bytes.len())),
                "{ended}"
            );
            let stored = story.output_bytes(session, turn).await;
            assert!(
                stored == *bytes,
                "the stored bytes of {session} are not the written ones"
            );
            story.turn_end(session, count).await;
            assert_eq!(
                story.output(session, count).await,
                "ran\n",
                "the command ran once"
            );
        }
        for (session, ..) in &running {
            story
                .app("DELETE", &format!("/v1/sessions/{session}"), None)
                .await;
        }
        story.until_empty().await;
        node
    };
    let node = tokio::select! {
        node = told => node,
        () = proxy.serve(core) => unreachable!("the proxy serves as long as it is awaited"),
    };
    let cuts = proxy.cuts();
    let sandboxes: HashSet<_> = cuts.iter().map(|(sandbox, _)| sandbox).collect();
    assert!(
        cuts.len() >= SANDBOXES * CUTS_EACH,
        "{} cuts: {cuts:?}",
        cuts.len()
    );
    assert_eq!(sandboxes.len(), SANDBOXES, "{cuts:?}");
    story.end(vec![node]).await;
}
