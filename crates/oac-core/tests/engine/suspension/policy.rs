//! Whose sandboxes are suspended, and when.

use oac_model::ComputePhase;
use oac_store::{AllocationRow, DeploymentLock};

use super::{
    core_keeping,
    host::{Backend, Node},
    idle,
};
use crate::world::{self, On};

// req: G-178
#[tokio::test]
async fn one_idle_policy_holds_for_every_node_and_session_of_the_deployment() {
    let core = core_keeping(On::Sqlite, 86_400, 86_400).await;
    let backend = Backend::new();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::start(&core, &backend, 1, 2).await);
    }
    let (first, second) = (idle(&core).await, idle(&core).await);
    let placed = |row: AllocationRow| row.node_id;
    assert_ne!(
        placed(world::row(&core, first.1).await),
        placed(world::row(&core, second.1).await)
    );
    for (_, id) in [first, second] {
        assert_eq!(world::row(&core, id).await.compute_phase, ComputePhase::Running);
    }
    // The deployment's is the only one there is: it names neither nodes nor Sessions, and a node takes none.
    let policy = serde_json::json!({ "idle_seconds": 60, "retention_seconds": 86_400 });
    let path = "/core/v1/sandbox/deployment/suspension";
    let saved = core
        .operator(reqwest::Method::PATCH, path, Some(&policy))
        .await
        .expect(200);
    assert_eq!(saved["suspension"], policy);
    for node in &nodes {
        let path = format!("/core/v1/sandbox/nodes/{}", node.id());
        let mut edit = serde_json::json!({ "name": "node", "max_active": 1, "max_retained": 2 });
        edit["idle_seconds"] = 60.into();
        let refused = core.operator(reqwest::Method::PATCH, &path, Some(&edit)).await;
        assert_eq!(refused.status.as_u16(), 400);
    }
    let tx = world::begin(&core).await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    tx.save_suspension(0, 86_400).await.unwrap();
    tx.commit().await.unwrap();
    for (session, id) in [first, second] {
        core.core().pokes.want(session);
        world::eventually("it is suspended", async || {
            world::row(&core, id).await.compute_phase == ComputePhase::Suspended
        })
        .await;
    }
}
