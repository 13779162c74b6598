//! What a collector of traces gets from Core.

use oac_core::placement;
use oac_model::AllocationState;
use oac_store::Side;
use oac_testkit::{
    collector::{Collector, Sent},
    core::{CoreOptions, TestCore},
};
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::json;

use crate::{
    admissions,
    node::{Act, Node},
    world,
};

async fn traced(collector: &Collector) -> TestCore {
    let options = CoreOptions {
        collector: Some(collector.address),
        ..CoreOptions::default()
    };
    let core = TestCore::with(options).await;
    core.deploy(1, 512).await;
    placement::refresh_deployment(core.core()).await;
    core
}

fn named<'a>(spans: &'a [Sent], name: &str) -> Vec<&'a Sent> {
    spans.iter().filter(|sent| sent.span.name == name).collect()
}

#[tokio::test]
async fn a_request_its_placement_and_the_calls_for_its_sandbox_are_joined_and_name_no_secret() {
    let collector = Collector::start().await;
    let mut core = traced(&collector).await;
    let node = Node::start(&core, 1).await;
    node.plan(Operation::Create, &[Act::Reject]);
    let body = json!({ "metadata": { "note": "a text of the application's own" } });
    let made = core
        .application(Method::POST, "/v1/sessions", Some(&body))
        .await
        .expect(201);
    let rejected = named_after_placement(&core, &made).await;
    world::until(&core, rejected, AllocationState::Released).await;
    // Another one is placed by Core itself.
    world::eventually("the second sandbox runs", async || {
        node.count(Operation::Create) == 2
    })
    .await;
    let refused = core.application(Method::POST, "/v1/sessions", Some(&body)).await;
    assert_eq!(refused.status.as_u16(), 503, "the node is full");
    assert_eq!(
        core.application(Method::GET, "/v1/no-such-path?secret=in-a-query", None)
            .await
            .status
            .as_u16(),
        404
    );
    let credentials: Vec<_> = node.host.lock().credentials.values().cloned().collect();
    // What ended is sent before Core has stopped.
    core.stop().await;

    let spans = collector.spans();
    let asked = named(&spans, "POST /v1/sessions");
    assert_eq!(asked.len(), 2);
    let status = |sent: &Sent| sent.text("http.response.status_code").unwrap();
    assert_eq!([status(asked[0]), status(asked[1])], ["201", "503"]);
    let placements = named(&spans, "placement new");
    let within = |parent: &Sent| {
        let mut found = placements
            .iter()
            .filter(|sent| sent.span.parent_span_id == parent.span.span_id);
        let one = found.next().unwrap();
        assert!(found.next().is_none());
        assert_eq!(one.span.trace_id, parent.span.trace_id);
        *one
    };
    let placed = within(asked[0]);
    assert_eq!(placed.text("oac.answer").as_deref(), Some("node"));
    assert_eq!(placed.text("oac.allocation_id"), Some(rejected.to_string()));
    let turned_away = within(asked[1]);
    assert_eq!(turned_away.text("oac.answer").as_deref(), Some("unavailable"));
    assert_eq!(turned_away.text("oac.allocation_id"), None);
    assert!(turned_away.span.status.is_some() && placed.span.status.is_none());

    let creates = named(&spans, "call create");
    assert_eq!(creates.len(), 2);
    assert_eq!(creates[0].text("oac.outcome").as_deref(), Some("refused"));
    assert_eq!(creates[1].text("oac.outcome").as_deref(), Some("ok"));
    for create in &creates {
        // Linked to the placement of its own sandbox: the request's, and Core's own, which is part of nothing.
        let of = create.text("oac.allocation_id");
        let origin = placements
            .iter()
            .find(|sent| sent.text("oac.allocation_id") == of);
        let origin = origin.unwrap();
        assert_eq!(create.span.links.len(), 1);
        assert_eq!(create.span.links[0].span_id, origin.span.span_id);
        assert_eq!(create.span.links[0].trace_id, origin.span.trace_id);
        assert_eq!(create.text("oac.node_id"), Some(node.id().to_string()));
        let request = create.text("oac.request_id").unwrap();
        assert_eq!(hex(&create.span.trace_id), request.replace('-', ""));
    }
    assert_eq!(named(&spans, "GET none").len(), 1);

    assert!(
        collector.has(made["id"].as_str().unwrap()),
        "what came can be searched"
    );
    let mut secrets: Vec<_> = credentials.iter().map(|secret| secret.expose()).collect();
    secrets.extend([
        core.core_key.expose(),
        core.project_key.expose(),
        node.enrolled.credential.expose(),
        "a text of the application's own",
        "in-a-query",
    ]);
    assert!(secrets.len() > 5);
    for secret in secrets {
        assert!(!collector.has(secret), "{secret}");
    }
}

#[tokio::test]
async fn sessions_that_share_a_transaction_have_each_a_placement_of_its_own_to_which_that_is_linked() {
    let collector = Collector::start().await;
    let mut core = traced(&collector).await;
    let _node = Node::start(&core, 3).await;
    let hold = core.core().store.faults().hold_next(Side::Before);
    let mut asked = vec![admissions::ask(&core, "first", json!({}))];
    hold.reached().await;
    asked.extend(["second", "third"].map(|key| admissions::ask(&core, key, json!({}))));
    admissions::until_waiting(&core, 2).await;
    drop(hold);
    let mut sessions = Vec::new();
    for answer in asked {
        let session = answer.await.unwrap().expect(201);
        sessions.push(session["id"].as_str().unwrap().to_owned());
    }
    core.stop().await;

    let spans = collector.spans();
    let transactions = named(&spans, "transaction admissions");
    let links: Vec<_> = transactions.iter().map(|sent| &sent.span.links).collect();
    assert_eq!(links.iter().map(|links| links.len()).collect::<Vec<_>>(), [1, 2]);
    let (requests, placements) = (named(&spans, "POST /v1/sessions"), named(&spans, "placement new"));
    let mut placed = Vec::new();
    for link in links.into_iter().flatten() {
        let found = placements
            .iter()
            .find(|sent| sent.span.span_id == link.span_id && sent.span.trace_id == link.trace_id);
        let placement = found.unwrap();
        let request = requests
            .iter()
            .find(|sent| sent.span.span_id == placement.span.parent_span_id);
        assert_eq!(request.unwrap().span.trace_id, placement.span.trace_id);
        placed.push(placement.text("oac.session_id").unwrap());
    }
    placed.sort_unstable();
    sessions.sort_unstable();
    assert_eq!(placed, sessions, "each once");
    assert_eq!((requests.len(), placements.len()), (3, 3));
}

/// The allocation of the Session's first placement.
async fn named_after_placement(core: &TestCore, session: &serde_json::Value) -> oac_model::AllocationId {
    let id = session["id"].as_str().unwrap().parse().unwrap();
    let read = core.core().store.single();
    read.latest_allocation(id).await.unwrap().unwrap().id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_collector_that_never_answers_delays_nothing_and_what_it_does_not_take_is_counted() {
    let collector = Collector::frozen().await;
    let mut core = traced(&collector).await;
    // More than the queue and the task that empties it hold.
    for _ in 0..2 * oac_telemetry::traces::QUEUE {
        drop(core.core().traces.asked(["GET", "none"]));
    }
    let path = "/v1/sessions";
    for _ in 0..100 {
        core.application(Method::GET, path, None).await.expect(200);
    }
    let labels = [("outcome", "overflowed")];
    let overflowed = core.scrape().await.value("oac_core_trace_spans_total", &labels);
    assert!(overflowed > Some(0.0), "{overflowed:?}");
    core.stop().await;
}

/// A collector that is not there, or answers nobody, keeps no standby from owning what a stopped Core leaves to it.
#[tokio::test]
async fn pg_a_core_gives_up_its_lease_before_it_sends_its_last_spans() {
    let collector = Collector::frozen().await;
    let options = CoreOptions {
        collector: Some(collector.address),
        postgres: true,
        ..CoreOptions::default()
    };
    let mut core = TestCore::with(options).await;
    let standby = CoreOptions {
        postgres: true,
        standby: true,
        ..CoreOptions::default()
    };
    let standby = core.beside(standby).await;
    let read = standby.core().store.single();
    let former = read.owner().await.unwrap();
    assert!(!former.expired());
    core.application(Method::GET, "/v1/sessions", None)
        .await
        .expect(200);
    world::eventually("spans are on their way", async || collector.connections() > 0).await;
    let before = collector.connections();
    let last_words = async {
        world::eventually("the last spans are on their way", async || {
            collector.connections() > before
        })
        .await;
        read.owner().await.unwrap()
    };
    let (then, ()) = tokio::join!(last_words, core.stop());
    assert!(then.expired() || then.holder != former.holder, "{then:?}");
}
