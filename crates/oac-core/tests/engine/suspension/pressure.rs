//! Idle sandboxes that are suspended early, because a demand fits nowhere.

use std::sync::Arc;

use oac_core::placement::PlaceError;
use oac_lifecycle::placement::Answer;
use oac_model::{AllocationId, AllocationState, ComputePhase, SessionId};
use oac_store::Initialization;
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::json;

use super::{
    Scene, core_keeping,
    host::{Act, Backend, Node, Quiet},
};
use crate::world::{self, On};

const A_DAY: u32 = 86_400;

async fn refused(core: &TestCore) {
    let placed = world::session(core).await;
    assert!(
        matches!(placed, Err(PlaceError::Refused(Answer::Unavailable))),
        "there is no room"
    );
}

async fn phase(core: &TestCore, id: AllocationId) -> ComputePhase {
    world::row(core, id).await.compute_phase
}

/// An idle Session whose sandbox is linked.
async fn idle(core: TestCore, backend: Arc<Backend>) -> Scene {
    let scene = Scene::begin(core, backend).await;
    world::eventually("its runtime linked", async || {
        let row = scene.row().await;
        row.initialization == Initialization::Complete && scene.core.core().links.ready(scene.id).is_some()
    })
    .await;
    scene
}

/// One more beside the scene's; the scene is the new one's then.
async fn another(scene: Scene) -> (Scene, (SessionId, AllocationId)) {
    let earlier = (scene.session, scene.id);
    (idle(scene.core, scene.backend).await, earlier)
}

async fn room_is_made(on: On) {
    // Nothing is idle for long enough by itself.
    let core = core_keeping(on, A_DAY, A_DAY).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 2, 4).await;
    let scene = idle(core, backend).await;
    let (scene, (_, older)) = another(scene).await;
    let (core, newer) = (&scene.core, scene.id);
    let before = core
        .core()
        .store
        .single()
        .unarchived_sessions(None, 100)
        .await
        .unwrap();
    refused(core).await;
    let after = core
        .core()
        .store
        .single()
        .unarchived_sessions(None, 100)
        .await
        .unwrap();
    assert_eq!(before, after, "a refusal leaves nothing");
    world::eventually("the one that was idle longest is suspended", async || {
        phase(core, older).await == ComputePhase::Suspended
    })
    .await;
    assert_eq!(scene.slots(node.id()).await, (1, 2));
    let (_, placed) = world::session(core).await.unwrap();
    world::until(core, placed, AllocationState::Running).await;
    assert_eq!(
        phase(core, newer).await,
        ComputePhase::Running,
        "one was asked for"
    );
    assert_eq!(scene.backend.count(Operation::Suspend), 1);
    // The one that was placed is used for the first time: it is not idle.
    refused(core).await;
    scene.until_phase(ComputePhase::Suspended).await;
    assert_eq!(phase(core, placed).await, ComputePhase::Running);
}

#[tokio::test]
async fn a_demand_that_fits_nowhere_has_the_longest_idle_sandbox_suspended_early_and_fits_when_it_comes_again()
 {
    room_is_made(On::Sqlite).await;
}

#[tokio::test]
async fn pg_a_demand_that_fits_nowhere_has_the_longest_idle_sandbox_suspended_early_and_fits_when_it_comes_again()
 {
    room_is_made(On::Postgres).await;
}

#[tokio::test]
async fn a_demand_that_is_refused_again_and_again_has_one_sandbox_suspended_at_a_time() {
    let core = core_keeping(On::Sqlite, A_DAY, A_DAY).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 3, 6).await;
    let labels = json!({ "labels": { "zone": "a" } });
    let path = format!("/core/v1/sandbox/nodes/{}/labels", node.id());
    core.operator(Method::PUT, &path, Some(&labels)).await.expect(200);
    let scene = idle(core, backend).await;
    let (scene, (_, oldest)) = another(scene).await;
    let (scene, (_, older)) = another(scene).await;
    let (core, newest) = (&scene.core, scene.id);
    // Its suspension goes on and on.
    scene.backend.plan(Operation::Suspend, &[Act::Ignore]);
    refused(core).await;
    world::eventually("the oldest is being suspended", async || {
        phase(core, oldest).await == ComputePhase::Suspending
    })
    .await;
    for _ in 0..5 {
        refused(core).await;
    }
    // Whoever wants something else is another demand.
    let elsewhere = json!({ "node_labels": { "zone": "a" } });
    let answer = core
        .application(Method::POST, "/v1/sessions", Some(&elsewhere))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "runtime_node_unavailable")
    );
    world::eventually("one more is suspended", async || {
        phase(core, older).await == ComputePhase::Suspended
    })
    .await;
    assert_eq!(phase(core, oldest).await, ComputePhase::Suspending);
    assert_eq!(phase(core, newest).await, ComputePhase::Running);
}

#[tokio::test]
async fn a_suspended_sandbox_that_is_wanted_again_has_an_idle_one_at_its_node_suspended_early() {
    let core = core_keeping(On::Sqlite, A_DAY, A_DAY).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    let first = idle(core, backend).await;
    refused(&first.core).await;
    first.until_phase(ComputePhase::Suspended).await;
    let (second, (session, id)) = another(first).await;
    assert_eq!(second.row().await.compute_phase, ComputePhase::Running);
    let waiting = second.id;
    let first = Scene {
        session,
        id,
        ..second
    };
    first.wake().await;
    assert_eq!(first.row().await.compute_phase, ComputePhase::Running);
    assert_eq!(phase(&first.core, waiting).await, ComputePhase::Suspended);
}

#[tokio::test]
async fn sandboxes_that_were_never_used_do_not_hide_an_idle_one_from_a_demand_that_fits_nowhere() {
    let core = core_keeping(On::Sqlite, A_DAY, A_DAY).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 10, 20).await;
    for _ in 0..9 {
        let (_, id) = world::session(&core).await.unwrap();
        world::until(&core, id, AllocationState::Running).await;
        world::eventually("its runtime linked", async || {
            core.core().links.ready(id).is_some()
        })
        .await;
    }
    let scene = idle(core, backend).await;
    refused(&scene.core).await;
    scene.until_phase(ComputePhase::Suspended).await;
}

#[tokio::test]
async fn a_sandbox_whose_early_suspension_failed_is_not_chosen_again_before_another() {
    let core = core_keeping(On::Sqlite, A_DAY, A_DAY).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 2, 4).await;
    let scene = idle(core, backend).await;
    let (scene, (_, oldest)) = another(scene).await;
    scene.backend.set_quiet(oldest, Quiet::Silent);
    let asked = || {
        scene
            .backend
            .runtime_asked(oldest)
            .iter()
            .filter(|what| *what == "POST /v1/quiesce")
            .count()
    };
    refused(&scene.core).await;
    world::eventually("the oldest is asked to be quiet", async || asked() == 1).await;
    world::eventually("it is not, and goes on", async || {
        phase(&scene.core, oldest).await == ComputePhase::Running
            && scene.core.core().links.ready(oldest).is_some()
    })
    .await;
    refused(&scene.core).await;
    scene.until_phase(ComputePhase::Suspended).await;
    assert_eq!(asked(), 1);
}
