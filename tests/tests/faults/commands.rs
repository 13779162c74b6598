//! Commands that do not behave.

use oac_tests::story::Story;
use serde_json::json;

use crate::limits::one_sandbox;

#[tokio::test]
async fn docker_a_command_that_ignores_being_asked_to_end_is_killed_and_the_next_one_runs() {
    let (story, node, session) = one_sandbox().await;
    let turn = story
        .submit(
            &session,
            "trap '' TERM; echo begun; while :; do sleep 1 || :; done",
        )
        .await;
    let path = format!("/v1/sessions/{session}/turns/{turn}");
    story
        .until("the command runs", async || {
            story.app("GET", &path, None).await["output_bytes"] == json!(6)
        })
        .await;
    let next = story.submit(&session, "pgrep -c bash").await;
    story
        .app("POST", &format!("{path}/cancel"), Some(&json!({})))
        .await;
    story
        .app("POST", &format!("{path}/cancel"), Some(&json!({})))
        .await;
    let ended = story.turn_end(&session, &turn).await;
    assert_eq!(
        (
            &ended["state"],
            &ended["signal"],
            story.output(&session, &turn).await.as_str()
        ),
        (&json!("canceled"), &json!(9), "begun\n"),
        "{ended}"
    );
    story.turn_end(&session, &next).await;
    assert_eq!(
        story.output(&session, &next).await,
        "0\n",
        "nothing of it is left"
    );
    finish(story, node, &session).await;
}

/// What stays in the command's process group ends with it; what has left it lives on, and holds nothing up.
// inv: INV-S20
#[tokio::test]
async fn docker_a_command_that_leaves_processes_behind_ends_and_loses_no_output() {
    let (story, node, session) = one_sandbox().await;
    // Both are in sessions of their own before the command ends.
    let script = "sleep 1001 & setsid sh -c '> /tmp/one; exec sleep 1002' & \
        (setsid sh -c '> /tmp/two; exec sleep 1003' &) ; \
        until [ -e /tmp/one ] && [ -e /tmp/two ]; do sleep 0.01; done; seq 100000; echo last";
    let (turn, output) = story.run(&session, script).await;
    let expected: String = (1..=100_000)
        .map(|n| format!("{n}\n"))
        .chain(["last\n".to_owned()])
        .collect();
    assert_eq!(
        (&turn["state"], &turn["exit_code"]),
        (&json!("completed"), &json!(0))
    );
    assert!(output == expected);
    let (_, left) = story
        .run(&session, "ps -e -o args= | grep -o '^sleep 100[123]' | sort")
        .await;
    assert_eq!(left, "sleep 1002\nsleep 1003\n");
    finish(story, node, &session).await;
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn docker_bytes_come_back_as_they_were_written_wherever_they_are_split() {
    let (story, node, session) = one_sandbox().await;
    // All bytes, then characters of several bytes, written in pieces that end inside them, across record borders.
    let script = r#"for i in $(seq 0 255); do printf "\\x$(printf %x $i)"; done
        for i in $(seq 200); do printf '\xe2\x82'; printf '\xac\xf0\x9f'; sleep 0.002; printf '\x98\x80'; done
        for i in $(seq 20000); do printf '€😀'; done; printf '\xff\xfe\x00\xc3'"#;
    let turn = story.submit(&session, script).await;
    story.turn_end(&session, &turn).await;
    let mut expected: Vec<u8> = (0..=255).collect();
    expected.extend("€😀".repeat(20_200).into_bytes());
    expected.extend([0xff, 0xfe, 0x00, 0xc3]);
    assert!(story.output_bytes(&session, &turn).await == expected);
    // From an offset inside a character too.
    let from = 256 + 2;
    let path = format!("/v1/sessions/{session}/turns/{turn}/output?offset={from}");
    assert!(story.output_of(&path).await == expected[from..]);
    finish(story, node, &session).await;
}

async fn finish(story: Story, node: oac_testkit::installation::Node, session: &str) {
    crate::limits::finish(story, node, session).await;
}
