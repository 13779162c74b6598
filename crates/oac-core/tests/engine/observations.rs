//! What sandboxes and hosts used, observed and kept.

use std::time::Duration;

use oac_model::{AllocationId, AllocationState, SessionId, Time};
use oac_store::{Initialization, NodeSampleRow};
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    node::{Act, Node},
    world::{self, On},
};

const ROUTE: &str = "/core/v1/sandbox/runtime-observations";

async fn shown(core: &TestCore, query: &str) -> Vec<Value> {
    let path = format!("{ROUTE}{query}");
    let answer = core.operator(Method::GET, &path, None).await.expect(200);
    answer["data"].as_array().unwrap().clone()
}

/// A sandbox of its own on `node`, as if its runtime had linked once; the worker looks at it when the node connects.
async fn linked(core: &TestCore, node: &mut Node) -> (SessionId, AllocationId) {
    let (session, allocation) = world::session(core).await.unwrap();
    world::until(core, allocation, AllocationState::Running).await;
    initialize(core, session, allocation).await;
    node.connect(core).await;
    (session, allocation)
}

async fn initialize(core: &TestCore, session: SessionId, allocation: AllocationId) {
    let tx = world::begin(core).await;
    tx.lock_session(session).await.unwrap();
    let mut row = tx.lock_allocation(allocation).await.unwrap().unwrap();
    row.initialization = Initialization::Complete;
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
}

async fn observed(on: On) {
    let core = world::core(on).await;
    // One node at a time has room, so that each holds one sandbox.
    let mut slow = Node::start(&core, 1).await;
    slow.plan(Operation::Observe, &[Act::Swallow]);
    let (_, unanswered) = linked(&core, &mut slow).await;
    let mut stopped = Node::start(&core, 1).await;
    stopped.plan(Operation::Observe, &[Act::Reject]);
    let (_, ended) = linked(&core, &mut stopped).await;
    let mut good = Node::start(&core, 1).await;
    let (session, measured) = linked(&core, &mut good).await;

    let of = |all: &[Value], id: AllocationId| {
        let found = all.iter().find(|one| one["allocation_id"] == json!(id));
        found.cloned().unwrap_or_default()
    };
    world::eventually("two answers are shown", async || {
        let all = shown(&core, "").await;
        of(&all, measured)["status"] == "observed" && of(&all, ended)["status"] == "runtime_not_running"
    })
    .await;
    world::eventually("the slow node was asked", async || {
        slow.count(Operation::Observe) == 1
    })
    .await;
    let all = shown(&core, "").await;
    assert_eq!(all.len(), 3);
    assert_eq!(of(&all, unanswered)["status"], "pending");
    assert_eq!(of(&all, unanswered)["sample"], Value::Null);
    assert_eq!(of(&all, ended)["sample"], Value::Null);
    let expected = json!({
        "allocation_id": measured, "session_id": session, "status": "observed",
        "sample": {
            "observed_at": "2023-11-14T22:13:20Z", "started_at": null, "cpu_usage_seconds_total": 1.5,
            "cpu_capacity_cores": 2.0, "memory_usage_bytes": 1_048_576, "memory_limit_bytes": null,
        },
    });
    assert_eq!(
        shown(&core, &format!("?session_id={session}")).await,
        std::slice::from_ref(&expected)
    );
    assert!(
        shown(&core, &format!("?session_id={}", SessionId::random()))
            .await
            .is_empty()
    );
    for node in [&slow, &stopped, &good] {
        assert_eq!(node.count(Operation::Observe), 1, "reading observes nothing");
    }

    // Without its node the last sample stays, and says so.
    good.kill().await;
    world::eventually("its node is gone", async || {
        let one = shown(&core, &format!("?session_id={session}")).await;
        one[0]["status"] == "node_unavailable" && one[0]["sample"] == expected["sample"]
    })
    .await;
    let row = world::archive(&core, session, measured).await;
    assert_eq!(row.state, AllocationState::CleanupPending);
    assert!(shown(&core, &format!("?session_id={session}")).await.is_empty());
}

#[tokio::test]
async fn a_running_sandbox_shows_its_last_sample_and_one_whose_node_gives_none_says_why() {
    observed(On::Sqlite).await;
}

#[tokio::test]
async fn pg_a_running_sandbox_shows_its_last_sample_and_one_whose_node_gives_none_says_why() {
    observed(On::Postgres).await;
}

#[tokio::test]
async fn samples_that_come_while_one_waits_to_be_stored_share_a_transaction() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 3).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        let (session, allocation) = world::session(&core).await.unwrap();
        world::until(&core, allocation, AllocationState::Running).await;
        all.push((session, allocation));
    }
    for (session, allocation) in &all {
        initialize(&core, *session, *allocation).await;
    }
    // A database with one writer: what is to be stored waits for this.
    let writer = world::begin(&core).await;
    let faults = core.core().store.faults();
    faults.count(&["UPDATE allocations SET sample"]);
    for (session, _) in &all {
        core.core().pokes.want(*session);
    }
    world::eventually("all three are observed", async || {
        core.core().samples.unanswered() == 3
    })
    .await;
    writer.rollback().await.unwrap();
    world::eventually("all three are shown", async || {
        let all = shown(&core, "").await;
        all.iter().all(|one| one["status"] == "observed")
    })
    .await;
    assert_eq!(node.count(Operation::Observe), 3);
    assert_eq!(faults.counted(), [2], "the first one's, and that of the others");
}

#[tokio::test]
async fn a_node_that_answers_no_sample_still_takes_what_ends_a_sandbox() {
    const SANDBOXES: usize = 10;
    let core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, SANDBOXES as u32).await;
    node.plan(Operation::Observe, &[Act::Swallow; SANDBOXES]);
    let mut all = Vec::new();
    for _ in 0..SANDBOXES {
        all.push(world::session(&core).await.unwrap());
    }
    for (_, allocation) in &all {
        world::until(&core, *allocation, AllocationState::Running).await;
    }
    for (session, allocation) in &all {
        initialize(&core, *session, *allocation).await;
    }
    node.connect(&core).await;
    world::eventually("half of the places are taken by samples", async || {
        node.count(Operation::Observe) == 4
    })
    .await;
    let asked: Vec<AllocationId> = {
        let host = node.host.lock();
        let observed = host.requests.iter().filter(|(o, _)| *o == Operation::Observe);
        observed.map(|(_, id)| *id).collect()
    };
    for (session, allocation) in all.iter().filter(|(_, id)| !asked.contains(id)) {
        world::archive(&core, *session, *allocation).await;
        world::until(&core, *allocation, AllocationState::Released).await;
    }
    assert_eq!(node.count(Operation::Observe), 4);
}

async fn kept(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 1).await;
    let now = core.core().store.single().database_time().await.unwrap();
    let day = 24 * 3600 * 1000;
    let at = |age: i64| NodeSampleRow {
        node_id: node.id(),
        observed_at: now.plus_millis(-age),
        cpu_utilization: Some(0.5),
        total_memory_bytes: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
    };
    // More than one transaction removes.
    let old: Vec<NodeSampleRow> = (0..600)
        .map(|second| at(7 * day + 1000 + second * 1000))
        .collect();
    let young = at(7 * day - 3_600_000);
    let tx = world::begin(&core).await;
    tx.insert_node_samples(&old).await.unwrap();
    tx.insert_node_samples(std::slice::from_ref(&young))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    core.core().hub.clock().skip(Duration::from_secs(600));
    let ever = Time::from_millis(0).unwrap();
    world::eventually("old samples are gone", async || {
        let left = core
            .core()
            .store
            .single()
            .node_samples(node.id(), ever)
            .await
            .unwrap();
        left == [young.clone()]
    })
    .await;
}

#[tokio::test]
async fn samples_of_a_host_are_kept_for_seven_days() {
    kept(On::Sqlite).await;
}

#[tokio::test]
async fn pg_samples_of_a_host_are_kept_for_seven_days() {
    kept(On::Postgres).await;
}
