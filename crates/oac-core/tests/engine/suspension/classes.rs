//! Where a checkpoint may be restored: nowhere but on a node of its execution class with its generation ready.

use oac_model::{ComputePhase, Digest, TurnState};
use oac_store::{DeploymentLock, Selection};
use oac_wire::shapes::Operation;

use super::{
    Scene, core,
    host::{Backend, Node},
    selection,
};
use crate::world::{self, On};

/// Core has planned the sandbox once more from the moment on that this was called, and found no node for it.
async fn looks_in_vain(scene: &Scene) {
    let faults = scene.core.core().store.faults();
    // What each plan of a sandbox reads; a second one begins after the first was decided.
    faults.count(&["SELECT operation_id FROM retained_checkpoints"]);
    world::eventually("Core looks for a node", async || {
        scene.core.core().pokes.want(scene.session);
        faults.counted()[0] >= 3
    })
    .await;
    assert_eq!(scene.row().await.compute_phase, ComputePhase::Suspended);
    assert_eq!(scene.backend.asked(Operation::Resume), []);
}

/// Another configuration is deployed: nodes that are added from now on have no other ready.
async fn deploy_another(scene: &Scene) {
    let mut another: Selection = selection();
    another.specification.resources.cpus += 1;
    let tx = world::begin(&scene.core).await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    tx.save_selection(&another).await.unwrap();
    tx.commit().await.unwrap();
    oac_core::placement::refresh_deployment(scene.core.core()).await;
}

async fn waits_for_its_class(on: On) {
    let core = core(on).await;
    let backend = Backend::new();
    let mut home = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend.clone()).await;
    scene.until_phase(ComputePhase::Suspended).await;
    let kept = scene.checkpoint().await.unwrap();

    home.lose(&scene.core).await;
    backend.set_class(home.id(), Some(Digest::of("another class")));
    home.connect(&scene.core).await;
    let turn = scene.input().await;
    looks_in_vain(&scene).await;
    // One of the right class, which serves another generation.
    deploy_another(&scene).await;
    let _elsewhere = Node::start(&scene.core, &backend, 1, 2).await;
    looks_in_vain(&scene).await;
    // The input waits, and the checkpoint is kept as long as it would be without.
    let read = scene.core.core().store.single();
    assert_eq!(read.turn(turn).await.unwrap().unwrap().state, TurnState::Waiting);
    assert_eq!(scene.checkpoint().await, Some(kept.clone()));
    assert_eq!(scene.slots(home.id()).await, (0, 1));

    home.lose(&scene.core).await;
    backend.set_class(home.id(), None);
    home.connect(&scene.core).await;
    scene.core.core().pokes.want(scene.session);
    scene.until_phase(ComputePhase::Running).await;
    assert_eq!(backend.asked(Operation::Resume), [home.id()]);
    assert_eq!(scene.computes().await[1].restored_from, Some(kept.operation_id));
}

// req: G-199, G-200, G-201
#[tokio::test]
async fn a_checkpoint_waits_for_a_node_of_its_class_with_its_generation_ready_though_its_own_node_is_there() {
    waits_for_its_class(On::Sqlite).await;
}

// req: G-199, G-200, G-201
#[tokio::test]
async fn pg_a_checkpoint_waits_for_a_node_of_its_class_with_its_generation_ready_though_its_own_node_is_there()
 {
    waits_for_its_class(On::Postgres).await;
}
