//! Sandboxes, operations and placements as Prometheus sees them.

use std::time::Duration;

use oac_model::AllocationState;
use oac_testkit::{core::TestCore, scrape::Scrape};
use oac_wire::shapes::Operation;

use crate::{
    node::{Act, Node},
    world::{self, On},
};

async fn fresh(core: &TestCore) -> Scrape {
    core.core().hub.clock().skip(Duration::from_secs(5));
    core.scrape().await
}

async fn counted(on: On) {
    let core = world::core(on).await;
    let refused = world::session(&core).await;
    assert!(refused.is_err(), "there is no node yet");
    let node = Node::start(&core, 2).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    world::input(&core, session).await;
    let scrape = fresh(&core).await;
    let value = |name: &str, labels: &[(&str, &str)]| scrape.value(name, labels);
    assert_eq!(
        value("oac_core_placements_total", &[("answer", "unavailable")]),
        Some(1.0)
    );
    assert_eq!(
        value("oac_core_placements_total", &[("answer", "node")]),
        Some(1.0)
    );
    let running = [("state", "running"), ("phase", "disabled")];
    assert_eq!(value("oac_core_allocations", &running), Some(1.0));
    assert_eq!(value("oac_core_turns", &[("state", "waiting")]), Some(1.0));
    assert_eq!(value("oac_core_turns", &[("state", "running")]), Some(0.0));
    let id = node.id().to_string();
    for (kind, slots) in [("active", 1.0), ("retained", 1.0), ("max_active", 2.0)] {
        assert_eq!(
            value("oac_core_node_slots", &[("node", &id), ("kind", kind)]),
            Some(slots)
        );
    }
    assert_eq!(value("oac_core_nodes", &[("status", "ready")]), Some(1.0));
    assert_eq!(value("oac_core_nodes", &[("status", "offline")]), Some(0.0));
    assert_eq!(value("oac_core_rollout_nodes", &[("state", "ready")]), Some(1.0));
    let created = [("operation", "create"), ("outcome", "ok")];
    assert_eq!(value("oac_core_operations_total", &created), Some(1.0));
    assert_eq!(
        value("oac_core_operation_seconds_count", &[("operation", "create")]),
        Some(1.0)
    );
    assert_eq!(value("oac_core_cleanup_oldest_seconds", &[]), Some(0.0));
    assert!(!scrape.0.contains(&session.to_string()) && !scrape.0.contains(&allocation.to_string()));

    // Its kill is answered by nobody, so that its cleanup stays and ages.
    node.plan(Operation::Kill, &[Act::Swallow; 8]);
    world::archive(&core, session, allocation).await;
    world::eventually("its cleanup ages", async || {
        let scrape = fresh(&core).await;
        let cleaning = [("state", "cleanup_pending"), ("phase", "disabled")];
        scrape.value("oac_core_allocations", &cleaning) == Some(1.0)
            && scrape.value("oac_core_allocations", &running).is_none()
            && scrape
                .value("oac_core_cleanup_oldest_seconds", &[])
                .is_some_and(|age| age > 0.0)
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_is_counted_through_its_life_under_names_that_stay_few() {
    counted(On::Sqlite).await;
}

#[tokio::test]
async fn pg_a_sandbox_is_counted_through_its_life_under_names_that_stay_few() {
    counted(On::Postgres).await;
}
