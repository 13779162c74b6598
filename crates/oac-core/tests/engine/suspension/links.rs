//! Running sandboxes that can be suspended, as long as they run: their links, and what is read of them.

use std::sync::Arc;

use oac_model::{ComputePhase, TurnId};
use oac_store::Initialization;
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::Value;

use super::{
    Scene, core,
    host::{Backend, Node},
};
use crate::world::{self, On};

/// A Session with a Turn, in a sandbox that linked.
async fn busy(core: TestCore, backend: Arc<Backend>) -> (Scene, TurnId) {
    let (session, id) = world::session(&core).await.unwrap();
    let turn = world::input(&core, session).await;
    let scene = Scene {
        core,
        backend,
        session,
        id,
    };
    world::eventually("its runtime linked", async || {
        scene.row().await.initialization == Initialization::Complete
    })
    .await;
    (scene, turn)
}

// inv: INV-S11
#[tokio::test]
async fn an_idle_sandbox_whose_link_is_open_and_not_ready_is_neither_looked_at_nor_suspended_until_it_is() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 1, 2).await;
    let (scene, turn) = busy(core, backend).await;
    scene.backend.relink(scene.id, true).await;
    let links = &scene.core.core().links;
    world::eventually("its link is open", async || {
        links.is_linked(scene.id) && links.ready(scene.id).is_none()
    })
    .await;
    scene.end(turn).await;
    // What is suspended after it shows that this one was planned since.
    let (first, id, session) = (scene.id, scene.id, scene.session);
    let other = Node::start(&scene.core, &scene.backend, 1, 2).await;
    let later = Scene::begin(scene.core, scene.backend).await;
    later.until_phase(ComputePhase::Suspended).await;
    assert_eq!(later.backend.asked(Operation::Compute), [other.id()]);
    let scene = Scene { id, session, ..later };
    assert_eq!(scene.row().await.compute_phase, ComputePhase::Running);

    scene.backend.relink(first, false).await;
    scene.until_phase(ComputePhase::Suspended).await;
    assert_eq!(scene.backend.asked(Operation::Compute), [other.id(), node.id()]);
}

async fn status(scene: &Scene) -> Option<Value> {
    let path = "/core/v1/sandbox/runtime-observations";
    let shown = scene.core.operator(Method::GET, path, None).await.expect(200);
    let all = shown["data"].as_array().unwrap();
    let of = all
        .iter()
        .find(|one| one["allocation_id"] == scene.id.to_string());
    of.map(|one| one["status"].clone())
}

#[tokio::test]
async fn what_a_sandbox_that_can_be_suspended_uses_is_read_while_it_runs_by_the_name_of_its_compute() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    let (scene, turn) = busy(core, backend).await;
    world::eventually("it is measured", async || {
        status(&scene).await == Some("observed".into())
    })
    .await;
    let before = scene.backend.count(Operation::Observe);
    scene.end(turn).await;
    scene.until_phase(ComputePhase::Suspended).await;
    assert_eq!(status(&scene).await, None, "nothing runs");
    scene.wake().await;
    assert_eq!(status(&scene).await, Some("observed".into()));
    assert_eq!(
        scene.backend.count(Operation::Observe),
        before,
        "read now and then, not at every step"
    );
}
