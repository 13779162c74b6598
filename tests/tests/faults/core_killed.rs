//! Core ended by SIGKILL at random moments while it dispatches, stores output and settles.

use std::time::Duration;

use oac_tests::story::Story;
use serde_json::json;

use crate::random::Random;

const SESSIONS: usize = 8;
const TURNS_EACH: usize = 60;
/// More only take longer: after each, a sandbox waits twice as long before it links again.
const KILLS: usize = 6;

// inv: INV-S1, INV-S2, INV-S3, INV-S4, INV-S5, INV-S9
#[tokio::test]
async fn docker_core_killed_at_random_moments_starts_every_turn_once_in_order_and_keeps_its_output() {
    let mut random = Random::seeded();
    let mut story = Story::begin(None).await;
    let node = story.add_node("one", SESSIONS as u32).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = story.new_session().await;
        let mut turns = Vec::new();
        for n in 0..TURNS_EACH {
            // Some end at once, some write much, some take their time.
            let lines = [1, 1, 40, 4000][random.between(0, 4) as usize];
            let pause = ["", "", "sleep 0.05;"][random.between(0, 3) as usize];
            let script = format!("echo {n} >> /workspace/ran; {pause} seq -f '{n} %.0f' {lines}");
            let expected: String = (1..=lines).map(|line| format!("{n} {line}\n")).collect();
            turns.push((story.submit(&session, &script).await, expected));
        }
        sessions.push((session, turns));
    }
    for _ in 0..KILLS {
        let before = ended(&story, &sessions).await;
        let some = random.between(0, 40) as usize;
        // Not always while something happens: the last kills may come when all is done.
        story
            .until("some Turns ended", async || {
                let now = ended(&story, &sessions).await;
                now > before + some || now == SESSIONS * TURNS_EACH
            })
            .await;
        tokio::time::sleep(Duration::from_micros(random.between(0, 100_000))).await;
        story.installation.kill_core().await;
        story.installation.start_core().await.unwrap();
    }
    for (session, turns) in &sessions {
        for (turn, expected) in turns {
            let ended = story.turn_end(session, turn).await;
            assert_eq!(
                (&ended["state"], &ended["exit_code"]),
                (&json!("completed"), &json!(0)),
                "{ended}"
            );
            assert!(
                story.output(session, turn).await == *expected,
                "the output of {ended}"
            );
        }
        let (_, ran) = story.run(session, "cat /workspace/ran").await;
        let expected: String = (0..TURNS_EACH).map(|n| format!("{n}\n")).collect();
        assert_eq!(ran, expected, "each once, in order");
        story
            .app("DELETE", &format!("/v1/sessions/{session}"), None)
            .await;
    }
    story.until_empty().await;
    story.end(vec![node]).await;
}

/// How many Turns ended.
async fn ended(story: &Story, sessions: &[(String, Vec<(String, String)>)]) -> usize {
    let mut sum = 0;
    for (session, turns) in sessions {
        let document = story.app("GET", &format!("/v1/sessions/{session}"), None).await;
        let count = |name: &str| document["turns"][name].as_u64().unwrap_or_default() as usize;
        // What is next while its sandbox is away counts as neither.
        let busy = usize::from(document["state"] == "busy" && count("running") == 0);
        sum += turns
            .len()
            .saturating_sub(count("queued") + count("running") + busy);
    }
    sum
}
