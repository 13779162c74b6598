//! Suspended sandboxes, and ones whose wake or restore keeps failing, that are given up: by a reset or by an operator.

use oac_model::{AllocationState, ComputePhase, TurnState};
use oac_provider::suite::{Arrange, Damage};
use oac_store::{AllocationDiagnostic, CleanupCause};
use oac_testkit::core::Answer;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Scene, core,
    host::{Backend, Node},
};
use crate::{
    reset,
    world::{self, On},
};

impl Scene {
    async fn discard(&self) -> Answer {
        let path = format!("/core/v1/sandbox/allocations/{}/discard", self.id);
        let accept = json!({ "accept_loss": true });
        self.core.operator(Method::POST, &path, Some(&accept)).await
    }

    /// Whether the list of allocations shows it as discardable.
    async fn is_discardable(&self) -> bool {
        let path = "/core/v1/sandbox/allocations";
        let list = self.core.operator(Method::GET, path, None).await.expect(200);
        let all = list["data"].as_array().unwrap();
        let shown = all.iter().find(|a| a["id"] == self.id.to_string()).unwrap();
        shown["discardable"].as_bool().unwrap()
    }

    async fn is_archived(&self) -> bool {
        let read = self.core.core().store.single();
        let session = read.session(self.session).await.unwrap().unwrap();
        session.archived_at.is_some()
    }

    async fn turn_state(&self, turn: oac_model::TurnId) -> TurnState {
        let turn = self.core.core().store.single().turn(turn).await.unwrap();
        turn.unwrap().state
    }

    async fn without(&self, node: &mut Node) {
        node.kill().await;
        world::eventually("the node is away", async || {
            self.core.core().hub.connected(node.id()).is_none()
        })
        .await;
    }
}

async fn waits_for_a_restore(on: On) {
    let core = core(on).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    scene.without(&mut node).await;
    let waits = scene.input().await;
    reset::reset(&scene.core, "auto").await;
    world::eventually("its Session is archived", async || scene.is_archived().await).await;
    assert_eq!(scene.turn_state(waits).await, TurnState::Canceled);
    node.connect(&scene.core).await;
    let released = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert_eq!(released.cause, Some(CleanupCause::Reset));
    assert!(scene.backend.is_clean(&row.reference()).await);
    reset::completed(&scene.core).await;
}

// inv: INV-C23
#[tokio::test]
async fn an_automatic_reset_archives_a_suspended_session_at_once_though_a_turn_waits_for_its_restore() {
    waits_for_a_restore(On::Sqlite).await;
}

// inv: INV-C23
#[tokio::test]
async fn pg_an_automatic_reset_archives_a_suspended_session_at_once_though_a_turn_waits_for_its_restore() {
    waits_for_a_restore(On::Postgres).await;
}

// inv: INV-C31
#[tokio::test]
async fn a_sandbox_whose_restore_keeps_failing_is_given_up_by_a_discard_and_its_turn_gets_another() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    assert!(!scene.is_discardable().await, "it sleeps");
    assert_eq!(scene.discard().await.status.as_u16(), 409);
    let damage = Arrange::Damage(row.reference(), Damage::Digest);
    scene.backend.arrange(damage).await;
    let waits = scene.input().await;
    world::eventually("the third failure", async || {
        if scene.row().await.restore_failures < 3 {
            // Time that Core would wait is taken away.
            scene.age().await;
        }
        scene.row().await.diagnostic == Some(AllocationDiagnostic::ComputeUnconfirmed)
    })
    .await;
    // Its node need not be asked.
    scene.without(&mut node).await;
    assert!(scene.is_discardable().await);
    let given_up = scene.discard().await.expect(200);
    assert_eq!(
        (&given_up["state"], &given_up["discardable"]),
        (&json!("cleanup_pending"), &json!(false))
    );
    assert!(!scene.turn_state(waits).await.is_terminal(), "it never ran");
    node.connect(&scene.core).await;
    let released = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert_eq!(released.cause, Some(CleanupCause::Discard));
    assert!(scene.checkpoint().await.is_none());
    assert!(scene.backend.is_clean(&row.reference()).await);
    let read = scene.core.core().store.single();
    world::eventually("the Session has another sandbox", async || {
        read.latest_allocation(scene.session).await.unwrap().unwrap().id != scene.id
    })
    .await;
}

fn discardable(view: &Value) -> &Value {
    &view["reset"]["remaining"]["discardable"]
}

// inv: INV-C31
#[tokio::test]
async fn a_reset_lists_what_the_allocations_show_as_discardable_also_a_wake_that_keeps_failing() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    scene.wake().await;
    world::eventually("its checkpoint is deleted", async || {
        scene.checkpoint().await.is_none()
    })
    .await;
    scene.without(&mut node).await;
    let begun = reset::reset(&scene.core, "auto").await;
    assert_eq!(discardable(&begun), &json!([]));
    // What Core stores once a wake without a checkpoint has failed for ten minutes.
    let tx = world::begin(&scene.core).await;
    tx.lock_session(scene.session).await.unwrap();
    let mut row = tx.lock_allocation(scene.id).await.unwrap().unwrap();
    row.compute_phase = ComputePhase::Waking;
    row.diagnostic = Some(AllocationDiagnostic::ComputeUnconfirmed);
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
    assert!(scene.is_discardable().await);
    let shown = reset::view(&scene.core).await;
    assert_eq!(
        discardable(&shown),
        &json!([{ "allocation_id": scene.id, "session_id": scene.session }])
    );
    assert!(!scene.is_archived().await, "its Turn may still end");
    scene.discard().await.expect(200);
    assert_eq!(discardable(&reset::view(&scene.core).await), &json!([]));
    node.connect(&scene.core).await;
    let released = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert_eq!(released.cause, Some(CleanupCause::Discard));
    reset::completed(&scene.core).await;
}
