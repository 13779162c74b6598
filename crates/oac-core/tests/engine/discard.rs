//! What operators give up.

use futures_util::future::join_all;
use oac_model::{AllocationId, AllocationState, TurnState};
use oac_store::{AllocationDiagnostic, CleanupCause, EventKind};
use oac_testkit::core::{Answer, TestCore};
use reqwest::Method;
use serde_json::json;

use crate::{
    create::linked_without_an_answer,
    node::{Node, Receipt},
    world::{self, On},
};

async fn discard(core: &TestCore, id: AllocationId) -> Answer {
    let path = format!("/core/v1/sandbox/allocations/{id}/discard");
    core.operator(Method::POST, &path, Some(&json!({ "accept_loss": true })))
        .await
}

async fn discardable(core: &TestCore, id: AllocationId) -> bool {
    let list = core
        .operator(Method::GET, "/core/v1/sandbox/allocations", None)
        .await
        .expect(200);
    let all = list["data"].as_array().unwrap();
    let shown = all.iter().find(|a| a["id"] == id.to_string()).unwrap();
    shown["discardable"].as_bool().unwrap()
}

fn refused(answer: &Answer) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_not_discardable"),
        "{}",
        answer.body
    );
}

async fn missing(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (session, allocation, sent) = world::working(&core).await;
    let waits = world::input(&core, session).await;
    assert!(!discardable(&core, allocation).await, "it runs");
    refused(&discard(&core, allocation).await);
    let path = format!("/core/v1/sandbox/allocations/{allocation}/discard");
    let former = json!({ "former_computes": true });
    refused(&core.operator(Method::POST, &path, Some(&former)).await);

    // The node lost its records: it finds nothing, which proves nothing.
    node.kill().await;
    {
        let mut host = node.host.lock();
        let native = host.natives.get_mut(&allocation).unwrap();
        (native.receipt, native.running, native.volumes) = (Receipt::None, false, false);
    }
    node.connect(&core).await;
    let missing = async || {
        let row = world::row(&core, allocation).await;
        row.diagnostic == Some(AllocationDiagnostic::ResourceMissing)
    };
    world::eventually("it is shown as missing", missing).await;
    assert!(discardable(&core, allocation).await);
    // Away, the node can neither be asked nor clean up.
    node.kill().await;
    world::eventually("the node is offline", async || {
        !discardable(&core, allocation).await
    })
    .await;
    refused(&discard(&core, allocation).await);
    node.connect(&core).await;
    world::eventually("it is discardable again", async || {
        discardable(&core, allocation).await
    })
    .await;

    let answers = join_all((0..5).map(|_| discard(&core, allocation))).await;
    let done: Vec<_> = answers.iter().filter(|a| a.status.as_u16() == 200).collect();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].body["state"], "cleanup_pending");
    assert_eq!(done[0].body["discardable"], false);
    let read = core.core().store.single();
    assert_eq!(
        read.turn(sent).await.unwrap().unwrap().state,
        TurnState::Interrupted
    );
    assert!(!read.turn(waits).await.unwrap().unwrap().state.is_terminal());
    let row = world::until(&core, allocation, AllocationState::Released).await;
    assert_eq!(row.cause, Some(CleanupCause::Discard));
    assert_eq!(
        discard(&core, allocation).await.status.as_u16(),
        404,
        "what is released is no more"
    );
    let log = read.audit_log(None, 1000).await.unwrap();
    let told: Vec<_> = log.iter().filter(|e| e.action == "discard").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].resource_id, allocation.to_string());
    assert_eq!(told[0].actor, format!("core_key:{}", core.core_key_id));

    world::eventually("the Session has another sandbox", async || {
        read.latest_allocation(session).await.unwrap().unwrap().id != allocation
    })
    .await;
    let events = read.events_after(session, 0, 100).await.unwrap();
    let reset = events.iter().find(|e| e.kind == EventKind::EnvironmentReset);
    assert_eq!(reset.unwrap().data["reason"], "discarded");
}

// inv: INV-C31
// req: G-238
#[tokio::test]
async fn a_missing_sandbox_is_given_up_by_one_discard_with_one_audit_entry_and_its_session_goes_on() {
    missing(On::Sqlite).await;
}

// inv: INV-C31
#[tokio::test]
async fn pg_a_missing_sandbox_is_given_up_by_one_discard_with_one_audit_entry_and_its_session_goes_on() {
    missing(On::Postgres).await;
}

#[tokio::test]
async fn a_discard_says_that_the_loss_is_accepted_or_is_none() {
    let core = world::core(On::Sqlite).await;
    let path = format!("/core/v1/sandbox/allocations/{}/discard", AllocationId::random());
    for (body, status) in [
        (json!({ "accept_loss": false }), 400),
        (json!({}), 400),
        (json!({ "accept_loss": true }), 404),
    ] {
        let answer = core.operator(Method::POST, &path, Some(&body)).await;
        assert_eq!(answer.status.as_u16(), status, "{body}");
    }
}

/// As after a step back to an earlier version.
#[tokio::test]
async fn pg_an_allocation_that_cannot_be_read_keeps_no_other_from_being_planned() {
    let core = world::core(On::Postgres).await;
    let _node = Node::start(&core, 2).await;
    let (_, odd) = world::session(&core).await.unwrap();
    world::until(&core, odd, AllocationState::Running).await;
    let sql = format!(
        "UPDATE allocations SET state = 'cleanup_pending', initialization = 'odd' WHERE id = '{odd}'"
    );
    core.execute(&sql).await;
    let (session, id) = world::session(&core).await.unwrap();
    world::until(&core, id, AllocationState::Running).await;
    world::archive(&core, session, id).await;
    world::until(&core, id, AllocationState::Released).await;
}

/// Nothing but a person's word ends what linked and has no settled create.
async fn missing_before_its_create_was_answered(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (_, allocation) = linked_without_an_answer(&core, &node).await;
    refused(&discard(&core, allocation).await);
    node.kill().await;
    {
        let mut host = node.host.lock();
        let native = host.natives.get_mut(&allocation).unwrap();
        (native.receipt, native.running, native.volumes) = (Receipt::None, false, false);
    }
    node.connect(&core).await;
    world::eventually("it is shown as missing", async || {
        let row = world::row(&core, allocation).await;
        row.diagnostic == Some(AllocationDiagnostic::ResourceMissing)
    })
    .await;
    assert_eq!(
        world::row(&core, allocation).await.state,
        AllocationState::Creating
    );
    assert!(discardable(&core, allocation).await);
    assert_eq!(discard(&core, allocation).await.status.as_u16(), 200);
    world::until(&core, allocation, AllocationState::Released).await;
    let row = world::row(&core, allocation).await;
    assert_eq!(row.cause, Some(CleanupCause::Discard));
}

// inv: INV-C30, INV-C37
#[tokio::test]
async fn what_linked_before_its_create_was_answered_and_is_missing_is_given_up_by_an_operator() {
    missing_before_its_create_was_answered(On::Sqlite).await;
}

// inv: INV-C30, INV-C37
#[tokio::test]
async fn pg_what_linked_before_its_create_was_answered_and_is_missing_is_given_up_by_an_operator() {
    missing_before_its_create_was_answered(On::Postgres).await;
}

/// What ended within one boot is kept, also where Core learns of its create from its end.
async fn ended_before_its_create_was_answered(on: On) {
    let core = world::core(on).await;
    let mut node = Node::start(&core, 1).await;
    let (_, allocation) = linked_without_an_answer(&core, &node).await;
    node.kill().await;
    {
        let mut host = node.host.lock();
        let native = host.natives.get_mut(&allocation).unwrap();
        (native.receipt, native.running, native.ended) = (Receipt::Settled, false, true);
    }
    node.connect(&core).await;
    world::until(&core, allocation, AllocationState::Running).await;
    world::eventually("it is shown as missing", async || {
        let row = world::row(&core, allocation).await;
        row.diagnostic == Some(AllocationDiagnostic::ResourceMissing)
    })
    .await;
    assert!(discardable(&core, allocation).await);
}

// inv: INV-C37
#[tokio::test]
async fn what_linked_and_ended_before_its_create_was_answered_keeps_its_files() {
    ended_before_its_create_was_answered(On::Sqlite).await;
}

// inv: INV-C37
#[tokio::test]
async fn pg_what_linked_and_ended_before_its_create_was_answered_keeps_its_files() {
    ended_before_its_create_was_answered(On::Postgres).await;
}
