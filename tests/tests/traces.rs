//! Traces across Core, a node and its backend, with real programs and a real Docker Engine.

use oac_testkit::{
    collector::{Collector, Sent},
    wait,
};
use oac_tests::story::{PATIENCE, Story};
use serde_json::json;

/// The span's number of its kind as OTLP writes them.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;

fn found<'a>(spans: &'a [Sent], program: &str, name: &str) -> Option<&'a Sent> {
    spans
        .iter()
        .find(|sent| sent.program == program && sent.span.name == name)
}

#[tokio::test]
async fn docker_a_session_is_followed_from_its_request_to_the_backend_and_no_credential_leaves() {
    let collector = Collector::start().await;
    let mut story = Story::begin(None).await;
    story.installation.trace_to(collector.address).await.unwrap();
    let node = story.add_node("one", 1).await;
    let secret_in_a_command = "a-text-of-the-applications-own";
    let session = story.new_session().await;
    let (status, ..) = story.exec(&session, &format!("echo {secret_in_a_command}")).await;
    assert_eq!(status, Some(0));
    // What the sandbox holds, taken while there is one: its link's credential.
    let sandbox = story.containers().await.remove(0);
    let bootstrap = ["exec", &sandbox, "cat", "/home/runtime/bootstrap.json"];
    let bootstrap = story.docker(&bootstrap).await;
    let link: serde_json::Value = serde_json::from_str(&bootstrap).unwrap();
    let link = link["credential"].as_str().unwrap().to_owned();
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_released().await;

    let spans = wait::until("every span was sent", PATIENCE, async || {
        let spans = collector.spans();
        let done = found(&spans, "oac-node", "docker create").is_some()
            && found(&spans, "oac-node", "operation create").is_some()
            && found(&spans, "oac-core", "call create").is_some()
            && found(&spans, "oac-core", "call kill").is_some()
            && found(&spans, "oac-node", "docker kill").is_some();
        done.then_some(spans)
    })
    .await
    .unwrap();
    let span = |program, name| found(&spans, program, name).unwrap_or_else(|| panic!("no {name}"));
    let asked = span("oac-core", "POST /v1/sessions");
    let placement = span("oac-core", "placement new");
    let call = span("oac-core", "call create");
    let operation = span("oac-node", "operation create");
    let backend = span("oac-node", "docker create");

    // The request and what it stored are one trace.
    assert!(asked.span.parent_span_id.is_empty());
    assert_eq!(placement.span.trace_id, asked.span.trace_id);
    assert_eq!(placement.span.parent_span_id, asked.span.span_id);
    assert_eq!(asked.text("http.response.status_code").as_deref(), Some("201"));
    assert_eq!(placement.text("oac.session_id"), Some(session.clone()));
    // The call is another one, which a link joins to it.
    assert_ne!(call.span.trace_id, asked.span.trace_id);
    assert_eq!(call.span.links.len(), 1);
    assert_eq!(call.span.links[0].trace_id, placement.span.trace_id);
    assert_eq!(call.span.links[0].span_id, placement.span.span_id);
    // Both of its ends and the backend's work are in it.
    assert_eq!(operation.span.trace_id, call.span.trace_id);
    assert_eq!(operation.span.parent_span_id, call.span.span_id);
    assert_eq!(backend.span.trace_id, call.span.trace_id);
    assert_eq!(backend.span.parent_span_id, operation.span.span_id);
    assert_eq!(
        [call.span.kind, operation.span.kind, backend.span.kind],
        [CLIENT, SERVER, CLIENT]
    );
    assert_eq!(call.text("oac.outcome").as_deref(), Some("ok"));
    assert_eq!(backend.text("oac.answer").as_deref(), Some("ok"));
    let allocation = placement.text("oac.allocation_id");
    assert!(allocation.is_some());
    for sent in [call, operation] {
        assert_eq!(sent.text("oac.allocation_id"), allocation);
    }
    assert_eq!(call.text("oac.request_id"), operation.text("oac.request_id"));
    for sent in &spans {
        assert!(sent.span.end_time_unix_nano >= sent.span.start_time_unix_nano);
    }
    // The request took less than what it caused: a worker does that.
    assert!(call.span.start_time_unix_nano >= placement.span.start_time_unix_nano);

    assert!(collector.has(&session), "what was sent can be searched");
    for secret in [
        story.key.expose(),
        story.installation.core_key.expose(),
        &link,
        secret_in_a_command,
    ] {
        assert!(!collector.has(secret));
    }
    story.end(vec![node]).await;
}

#[tokio::test]
async fn docker_a_collector_that_never_answers_delays_no_work_and_no_end() {
    let collector = Collector::frozen().await;
    let mut story = Story::begin(None).await;
    story.installation.trace_to(collector.address).await.unwrap();
    let mut node = story.add_node("one", 1).await;
    let session = story.new_session().await;
    for n in 0..3 {
        let (status, out, _) = story.exec(&session, &format!("echo {n}")).await;
        assert_eq!((status, out), (Some(0), format!("{n}\n")));
    }
    story
        .app("DELETE", &format!("/v1/sessions/{session}"), None)
        .await;
    story.until_empty().await;
    story.until_released().await;
    assert_eq!(
        story.operator("GET", "/core/v1/sandbox/nodes", None).await["data"][0]["active"],
        json!(0)
    );
    assert_eq!(node.stop().await, Some(0));
    assert_eq!(story.installation.stop_core().await, Some(0));
    story.installation.start_core().await.unwrap();
    story.installation.start_node(&mut node).await.unwrap();
    story.end(vec![node]).await;
}
