//! Drains (core.md section 15): idle sandboxes are suspended early, retention ends where asked, and one that terminates while a
//! sandbox is on its way to or from its checkpoint spares that and has what is under way answered definitely first.

use std::sync::Arc;

use oac_model::{AllocationState, ComputePhase, TurnId, TurnState};
use oac_store::{CleanupCause, DrainRetained};
use oac_wire::shapes::Operation;

use super::{
    Scene, core, core_keeping, drain,
    host::{Act, Backend, Node},
    is_drained,
};
use crate::world::{self, On};

/// A sandbox whose node died over `operation`, which is asked of it while it goes to or from its checkpoint; the drain's
/// deadline has passed meanwhile.
struct Caught {
    scene: Scene,
    node: Node,
    /// It waits for the restore.
    turn: Option<TurnId>,
}

impl Caught {
    async fn over(
        on: On,
        operation: Operation,
        act: Act,
        phase: ComputePhase,
        retained: DrainRetained,
    ) -> Self {
        let core = core(on).await;
        let backend = Backend::new();
        let node = Node::start(&core, &backend, 1, 2).await;
        backend.plan(operation, &[act]);
        let scene = Scene::begin(core, Arc::clone(&backend)).await;
        let mut turn = None;
        if phase != ComputePhase::Suspending {
            scene.until_phase(ComputePhase::Suspended).await;
            turn = Some(scene.input().await);
        }
        world::eventually("the node died", async || node.is_dead()).await;
        scene.until_phase(phase).await;
        drain(&scene, node.id(), 0, retained).await;
        world::eventually("the drain's deadline has passed", async || {
            let row = scene.core.core().store.single().node(node.id()).await.unwrap();
            row.unwrap().drain_deadline_passed_at.is_some()
        })
        .await;
        assert_eq!(
            scene.slots(node.id()).await,
            (1, 1),
            "nothing is known: both slots are held"
        );
        assert!(scene.row().await.cause.is_none(), "it is spared");
        Self { scene, node, turn }
    }

    async fn turn_state(&self) -> TurnState {
        let turn = self.turn.expect("one waits");
        let read = self.scene.core.core().store.single();
        read.turn(turn).await.unwrap().unwrap().state
    }

    /// The target ended uncounted, its checkpoint is kept, and once the drain is over it is restored.
    async fn returns_and_is_restored(mut self) {
        self.node.connect(&self.scene.core).await;
        world::eventually("the target's end is confirmed", async || {
            let computes = self.scene.computes().await;
            computes.get(1).is_some_and(|target| target.ended_at.is_some())
        })
        .await;
        is_drained(&self.scene, self.node.id()).await;
        assert_eq!(self.scene.backend.count(Operation::KillCompute), 1);
        assert!(!self.turn_state().await.is_terminal(), "it never ran");
        let row = self.scene.row().await;
        assert_eq!((row.state, row.restore_failures), (AllocationState::Running, 0));
        assert!(self.scene.checkpoint().await.unwrap().consumed_at.is_none());
        self.scene.age().await;
        self.scene.until_phase(ComputePhase::Running).await;
        let computes = self.scene.computes().await;
        assert_eq!(computes.len(), 3);
        assert!(computes.iter().all(|compute| compute.failed_at.is_none()));
        self.scene.archive().await;
    }
}

async fn suspending(on: On) {
    let phase = ComputePhase::Suspending;
    let mut caught = Caught::over(on, Operation::Suspend, Act::DieAfter, phase, DrainRetained::Keep).await;
    caught.node.connect(&caught.scene.core).await;
    caught.scene.until_phase(ComputePhase::Suspended).await;
    is_drained(&caught.scene, caught.node.id()).await;
    assert_eq!(caught.scene.slots(caught.node.id()).await, (0, 1));
    assert!(caught.scene.checkpoint().await.is_some());
    caught.scene.wake().await;
    caught.scene.archive().await;
}

// inv: INV-C33, INV-C37
#[tokio::test]
async fn a_drain_that_terminates_spares_what_is_suspending_and_is_over_once_that_is_suspended() {
    suspending(On::Sqlite).await;
}

// inv: INV-C33, INV-C37
#[tokio::test]
async fn pg_a_drain_that_terminates_spares_what_is_suspending_and_is_over_once_that_is_suspended() {
    suspending(On::Postgres).await;
}

// inv: INV-C20, INV-C37, INV-C41
#[tokio::test]
async fn a_drain_that_terminates_returns_what_is_restoring_to_suspended_uncounted_once_its_resume_is_answered()
 {
    let phase = ComputePhase::Restoring;
    let caught = Caught::over(
        On::Sqlite,
        Operation::Resume,
        Act::DieAfter,
        phase,
        DrainRetained::Keep,
    )
    .await;
    caught.returns_and_is_restored().await;
}

// inv: INV-C20, INV-C36, INV-C37, INV-C41
#[tokio::test]
async fn a_drain_that_terminates_returns_what_is_waking_from_its_checkpoint_to_suspended_uncounted() {
    let phase = ComputePhase::Waking;
    let wake = Operation::CommandCompute;
    let caught = Caught::over(On::Sqlite, wake, Act::DieBefore, phase, DrainRetained::Keep).await;
    caught.returns_and_is_restored().await;
}

// inv: INV-C28, INV-C33
#[tokio::test]
async fn a_drain_that_releases_ends_the_retention_of_what_was_restoring_once_it_is_suspended_again() {
    let phase = ComputePhase::Restoring;
    let release = DrainRetained::Release;
    let mut caught = Caught::over(On::Sqlite, Operation::Resume, Act::DieAfter, phase, release).await;
    caught.node.connect(&caught.scene.core).await;
    let released = world::until(&caught.scene.core, caught.scene.id, AllocationState::Released).await;
    assert_eq!(released.cause, Some(CleanupCause::Drain));
    is_drained(&caught.scene, caught.node.id()).await;
    assert!(caught.scene.checkpoint().await.is_none());
    assert!(caught.scene.backend.is_clean(&released.reference()).await);
    assert!(
        !caught.turn_state().await.is_terminal(),
        "it gets another sandbox"
    );
}

#[tokio::test]
async fn a_drain_suspends_idle_sandboxes_early_once_another_node_could_restore_them_and_not_before() {
    let core = core_keeping(On::Sqlite, 86_400, 86_400).await;
    let backend = Backend::new();
    let home = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    world::eventually("it is linked", async || {
        scene.core.core().links.ready(scene.id).is_some()
    })
    .await;
    drain(&scene, home.id(), 3_600, DrainRetained::Keep).await;
    let asked = || scene.backend.count(Operation::Compute) + scene.backend.count(Operation::Info);
    let before = asked();
    scene.core.core().pokes.want(scene.session);
    world::eventually("Core looked", async || {
        asked() > before || !scene.computes().await.is_empty()
    })
    .await;
    assert_eq!(
        scene.backend.count(Operation::Suspend),
        0,
        "nobody could restore it"
    );
    let other = Node::start(&scene.core, &scene.backend, 1, 1).await;
    world::eventually("it is suspended", async || {
        scene.core.core().pokes.want(scene.session);
        scene.row().await.compute_phase == ComputePhase::Suspended
    })
    .await;
    is_drained(&scene, home.id()).await;
    // The drain is over, and its node cordoned, which keeps nobody from going home.
    scene.wake().await;
    assert_eq!(scene.row().await.node_id, Some(home.id()));
    assert_eq!(scene.slots(other.id()).await, (0, 0));
}

// inv: INV-C33
#[tokio::test]
async fn a_drain_that_releases_ends_the_retention_of_what_is_suspended_there_at_its_deadline() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    drain(&scene, node.id(), 0, DrainRetained::Keep).await;
    is_drained(&scene, node.id()).await;
    assert_eq!(
        scene.row().await.compute_phase,
        ComputePhase::Suspended,
        "it is kept"
    );
    drain(&scene, node.id(), 0, DrainRetained::Release).await;
    let released = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert_eq!(released.cause, Some(CleanupCause::Drain));
    is_drained(&scene, node.id()).await;
    assert!(scene.backend.is_clean(&row.reference()).await);
}
