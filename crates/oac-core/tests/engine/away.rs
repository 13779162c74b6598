//! Hosts that are away for long, for good, or come back as somebody else (core.md sections 8, 11 and 13).

use oac_core::placement;
use oac_model::{AllocationId, AllocationState, NodeId};
use oac_store::AllocationDiagnostic;
use oac_testkit::core::{CoreOptions, TestCore};
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::json;

use crate::{
    node::{Node, Receipt},
    world::{self, On},
};

const YEAR_MILLIS: i64 = 366 * 24 * 3600 * 1000;

/// The next Core on the database of `core`, whose clock is a year ahead.
async fn a_year_later(core: &mut TestCore) -> TestCore {
    core.stop().await;
    let options = CoreOptions {
        public_url: Some(core.public_url.clone()),
        clock_offset_millis: YEAR_MILLIS,
        ..CoreOptions::default()
    };
    let later = core.beside(options).await;
    placement::refresh_deployment(later.core()).await;
    later
}

/// Core has looked at what is on `node`, and gave up what it may give up: a place that was only reserved, of a Session that
/// was archived.
async fn until_looked_at(core: &TestCore, node: NodeId) {
    let tx = world::begin(core).await;
    let (session, reserved) = world::reserve(&tx, core.project_id, node).await;
    tx.commit().await.unwrap();
    world::archive(core, session, reserved).await;
    world::until(core, reserved, AllocationState::Released).await;
}

/// Still the node's, with its place.
async fn owned(core: &TestCore, node: NodeId, allocation: AllocationId) {
    let row = world::row(core, allocation).await;
    assert_eq!(
        (row.state, row.node_id, row.cause),
        (AllocationState::Running, Some(node), None)
    );
    let slots = core.core().store.single().slot_counts(Some(node)).await.unwrap();
    assert_eq!((slots.active, slots.retained), (1, 1));
}

async fn diagnostic(core: &TestCore, allocation: AllocationId) -> Option<AllocationDiagnostic> {
    world::row(core, allocation).await.diagnostic
}

async fn remove(core: &TestCore, node: NodeId) -> (u16, String) {
    let path = format!("/core/v1/sandbox/nodes/{node}");
    let answer = core.operator(Method::DELETE, &path, None).await;
    (answer.status.as_u16(), answer.code().to_owned())
}

// req: G-245
// inv: INV-C19
#[tokio::test]
async fn no_time_takes_a_sandbox_from_a_host_that_never_returns() {
    let mut core = world::core(On::Sqlite).await;
    let mut node = Node::start(&core, 2).await;
    let (_, allocation, turn) = world::working(&core).await;
    node.kill().await;
    until_looked_at(&core, node.id()).await;
    owned(&core, node.id(), allocation).await;
    let later = a_year_later(&mut core).await;
    until_looked_at(&later, node.id()).await;
    owned(&later, node.id(), allocation).await;
    let turn = later.core().store.single().turn(turn).await.unwrap().unwrap();
    assert!(!turn.state.is_terminal(), "its Turn has no end either");
    let in_use = (409, "runtime_node_in_use".to_owned());
    assert_eq!(remove(&later, node.id()).await, in_use);
}

// req: G-244
#[tokio::test]
async fn a_missing_sandbox_that_its_node_does_not_confirm_gone_stays_missing_and_owned_however_long() {
    // The returned host finds nothing, and its record of it is lost, or says that it was being made or removed.
    for receipt in [Receipt::None, Receipt::Creating, Receipt::Killing] {
        let mut core = world::core(On::Sqlite).await;
        let mut node = Node::start(&core, 2).await;
        let (_, allocation, _) = world::working(&core).await;
        node.kill().await;
        {
            let mut host = node.host.lock();
            let native = host.natives.get_mut(&allocation).unwrap();
            (native.receipt, native.running, native.volumes) = (receipt, false, false);
        }
        node.connect(&core).await;
        let missing = Some(AllocationDiagnostic::ResourceMissing);
        world::eventually("it is shown as missing", async || {
            diagnostic(&core, allocation).await == missing
        })
        .await;
        let mut later = a_year_later(&mut core).await;
        for _ in 0..2 {
            let before = node.count(Operation::Info);
            node.connect(&later).await;
            world::eventually("the node is asked again", async || {
                node.count(Operation::Info) > before
            })
            .await;
        }
        owned(&later, node.id(), allocation).await;
        assert_eq!(diagnostic(&later, allocation).await, missing);
        assert_eq!(node.count(Operation::Kill), 0);
        later.stop().await;
    }
}

// req: G-249
#[tokio::test]
async fn a_host_that_registers_anew_neither_gets_nor_releases_what_its_earlier_node_owns() {
    let core = world::core(On::Sqlite).await;
    let mut before = Node::start(&core, 2).await;
    let (session, allocation, _) = world::working(&core).await;
    before.kill().await;
    // The same host: its engine, and so its backend's fingerprint and what runs there, is the earlier one's.
    let again = Node::start(&core, 2).await;
    *again.host.lock() = {
        let mut earlier = before.host.lock();
        let (natives, provider_ready) = (earlier.natives.clone(), earlier.provider_ready);
        earlier.requests.clear();
        crate::node::Host {
            natives,
            provider_ready,
            ..Default::default()
        }
    };
    until_looked_at(&core, before.id()).await;
    let (_, fresh) = world::session(&core).await.unwrap();
    let fresh = world::until(&core, fresh, AllocationState::Running).await;
    assert_eq!(fresh.node_id, Some(again.id()));

    owned(&core, before.id(), allocation).await;
    let asked: Vec<_> = again.host.lock().requests.iter().map(|(_, id)| *id).collect();
    assert!(!asked.contains(&allocation), "the new node is not asked about it");
    let in_use = (409, "runtime_node_in_use".to_owned());
    assert_eq!(remove(&core, before.id()).await, in_use);
    let shown = core
        .operator(Method::GET, "/core/v1/sandbox/allocations", None)
        .await
        .expect(200);
    let shown = shown["data"].as_array().unwrap();
    let shown = shown.iter().find(|a| a["id"] == allocation.to_string()).unwrap();
    assert_eq!(
        (&shown["node_id"], &shown["session_id"]),
        (&json!(before.id()), &json!(session))
    );
    // The earlier node's state is restored: it is its owner still.
    before.connect(&core).await;
    world::eventually("the earlier node is asked about it", async || {
        before
            .host
            .lock()
            .requests
            .contains(&(Operation::Info, allocation))
    })
    .await;
    owned(&core, before.id(), allocation).await;
}
