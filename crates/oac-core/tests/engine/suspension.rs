//! Sandboxes that are suspended when nobody needs them and restored when somebody does (core.md section 12), with a
//! provider that keeps checkpoints behind the nodes.

mod classes;
mod draining;
mod former;
mod given_up;
mod host;
mod links;
mod pace;
mod policy;
mod pressure;
mod unanswered;

use std::sync::Arc;

use oac_core::allocations::{self, Cause};
use oac_model::{AllocationId, AllocationState, ComputePhase, NodeId, SessionId, TurnId, TurnState};
use oac_provider::suite::{Arrange, Damage};
use oac_store::{
    AllocationRow, CheckpointRow, CleanupCause, ComputeRow, DeploymentLock, DrainIdle, DrainRetained,
    DrainThen, EventKind, NewDrain, Selection, SlotCounts,
};
use oac_testkit::core::TestCore;
use oac_wire::shapes::Operation;

use crate::world::{self, On};
use host::{Act, Backend, Node, Quiet};

struct Scene {
    core: TestCore,
    backend: Arc<Backend>,
    session: SessionId,
    id: AllocationId,
}

/// A Core whose deployment keeps checkpoints; idle sandboxes are suspended at once.
async fn core(on: On) -> TestCore {
    core_keeping(on, 0, 86_400).await
}

/// The same; sandboxes are idle for so long before, and checkpoints are kept for so long.
async fn core_keeping(on: On, idle_seconds: u32, retention_seconds: u32) -> TestCore {
    let core = match on {
        On::Sqlite => TestCore::start().await,
        On::Postgres => TestCore::start_postgres().await,
    };
    let tx = world::begin(&core).await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    tx.save_selection(&selection()).await.unwrap();
    tx.save_suspension(idle_seconds, retention_seconds).await.unwrap();
    tx.commit().await.unwrap();
    oac_core::placement::refresh_deployment(core.core()).await;
    core
}

/// No release of such a backend can be selected through its route yet.
pub fn selection() -> Selection {
    let specification = serde_json::json!({
        "provider": "microsandbox",
        "resources": { "cpus": 1, "memory_mib": 512, "root_disk_mib": 1024, "environment_disk_mib": 1024 },
        "runtime": {
            "source_commit": "1".repeat(40),
            "artifacts": {
                "firmware_sha256": "ab".repeat(32),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", "cd".repeat(32)),
                "runtime_sha256": "ef".repeat(32),
            },
        },
    });
    Selection {
        specification: serde_json::from_value(specification).unwrap(),
        configuration: serde_json::json!({}),
        metadata: serde_json::json!({}),
        credential_sealed: None,
    }
}

/// A Session on a node, with a Turn that ended.
async fn idle(core: &TestCore) -> (SessionId, AllocationId) {
    let (session, id) = world::session(core).await.unwrap();
    let turn = world::input(core, session).await;
    world::until(core, id, AllocationState::Running).await;
    end(core, session, turn).await;
    (session, id)
}

/// The Turn ends, and the Session is idle.
async fn end(core: &TestCore, session: SessionId, turn: TurnId) {
    let tx = world::begin(core).await;
    tx.lock_session(session).await.unwrap();
    let mut row = tx.turn(turn).await.unwrap().unwrap();
    row.state = TurnState::Completed;
    row.ended_at = Some(tx.now());
    tx.save_turn(&row).await.unwrap();
    tx.set_session_state(session, oac_model::SessionState::Idle, None)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    core.core().pokes.want(session);
}

impl Scene {
    /// A Session on `node`, with a Turn that ended: it is suspended soon.
    async fn begin(core: TestCore, backend: Arc<Backend>) -> Self {
        let (session, id) = idle(&core).await;
        Self {
            core,
            backend,
            session,
            id,
        }
    }

    async fn end(&self, turn: TurnId) {
        end(&self.core, self.session, turn).await;
    }

    async fn input(&self) -> oac_model::TurnId {
        let turn = world::input(&self.core, self.session).await;
        self.core.core().pokes.want(self.session);
        turn
    }

    async fn row(&self) -> AllocationRow {
        world::row(&self.core, self.id).await
    }

    async fn until_phase(&self, phase: ComputePhase) -> AllocationRow {
        world::eventually(&format!("phase {phase}"), async || {
            self.row().await.compute_phase == phase
        })
        .await;
        self.row().await
    }

    /// The phase has lasted 100 s longer.
    async fn age(&self) {
        let tx = world::begin(&self.core).await;
        tx.lock_session(self.session).await.unwrap();
        let mut row = tx.lock_allocation(self.id).await.unwrap().unwrap();
        row.compute_phase_changed_at = row.compute_phase_changed_at.plus_millis(-100_000);
        tx.save_allocation(&mut row).await.unwrap();
        tx.commit().await.unwrap();
        self.core.core().pokes.want(self.session);
    }

    async fn until_source_ended(&self) {
        world::eventually("the source's end is confirmed", async || {
            self.computes().await[0].ended_at.is_some()
        })
        .await;
    }

    async fn computes(&self) -> Vec<ComputeRow> {
        let mut computes = self.core.core().store.single().computes(self.id).await.unwrap();
        computes.reverse();
        computes
    }

    async fn checkpoint(&self) -> Option<CheckpointRow> {
        self.core
            .core()
            .store
            .single()
            .undeleted_checkpoint(self.id)
            .await
            .unwrap()
    }

    async fn slots(&self, node: NodeId) -> (u64, u64) {
        let SlotCounts { active, retained } = self
            .core
            .core()
            .store
            .single()
            .slot_counts(Some(node))
            .await
            .unwrap();
        (active, retained)
    }

    /// A Turn is queued, and reaches the runtime.
    async fn wake(&self) {
        let dispatched = || {
            let asked = self.backend.runtime_asked(self.id);
            let puts = asked.iter().filter(|what| what.starts_with("PUT /v1/turns/"));
            puts.count()
        };
        let before = dispatched();
        self.input().await;
        world::eventually("the Turn reaches the runtime", async || dispatched() > before).await;
    }

    async fn archive(&self) -> AllocationRow {
        let row = self.row().await;
        world::archive(&self.core, self.session, self.id).await;
        let released = world::until(&self.core, self.id, AllocationState::Released).await;
        assert!(
            self.computes()
                .await
                .iter()
                .all(|compute| compute.ended_at.is_some())
        );
        assert!(self.checkpoint().await.is_none());
        assert!(self.backend.is_clean(&row.reference()).await);
        released
    }
}

async fn suspended_and_woken(on: On) {
    let core = core(on).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    assert_eq!(row.state, AllocationState::Running);
    assert_eq!(scene.slots(node.id()).await, (0, 1), "the active slot is free");
    let kept = scene.checkpoint().await.unwrap();
    assert!(kept.consumed_at.is_none());
    let retained = kept.retention_deadline.millis() - row.compute_phase_changed_at.millis();
    assert!((86_300_000..=86_400_000).contains(&retained), "{retained}");
    assert!(!scene.core.core().links.is_linked(scene.id));
    let generation = row.link_generation;

    scene.wake().await;
    let row = scene.row().await;
    assert_eq!(row.compute_phase, ComputePhase::Running);
    assert_eq!(row.link_generation, generation, "the credential is the same");
    assert_eq!(scene.slots(node.id()).await, (1, 1));
    world::eventually(
        "the checkpoint is deleted and the source's end confirmed",
        async || scene.checkpoint().await.is_none() && scene.computes().await[0].ended_at.is_some(),
    )
    .await;
    let computes = scene.computes().await;
    assert_eq!(computes.len(), 2);
    assert_eq!(computes[1].restored_from, Some(kept.operation_id));
    assert!(computes[1].ended_at.is_none() && computes[1].failed_at.is_none());
    let asked = scene.backend.runtime_asked(scene.id);
    assert_eq!(asked.iter().filter(|what| *what == "POST /v1/quiesce").count(), 1);
    assert_eq!(scene.backend.count(Operation::Create), 1);
    scene.archive().await;
}

// inv: INV-C20, INV-C21, INV-C28, INV-C35
#[tokio::test]
async fn an_idle_sandbox_is_suspended_frees_its_active_slot_and_is_restored_for_the_next_input() {
    suspended_and_woken(On::Sqlite).await;
}

// inv: INV-C20, INV-C21, INV-C28, INV-C35
#[tokio::test]
async fn pg_an_idle_sandbox_is_suspended_frees_its_active_slot_and_is_restored_for_the_next_input() {
    suspended_and_woken(On::Postgres).await;
}

async fn restored_elsewhere(on: On) {
    let core = core(on).await;
    let backend = Backend::new();
    let mut home = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    home.lose(&scene.core).await;
    let other = Node::start(&scene.core, &scene.backend, 1, 1).await;
    scene.wake().await;
    assert_eq!(scene.row().await.node_id, Some(other.id()));
    assert_eq!(scene.slots(home.id()).await, (0, 0));
    assert_eq!(scene.slots(other.id()).await, (1, 1));
    world::eventually("the checkpoint is deleted", async || {
        scene.checkpoint().await.is_none()
    })
    .await;
    // The source's kill_compute waits for its node, and keeps nothing else waiting.
    assert!(scene.computes().await[0].ended_at.is_none());
    home.connect(&scene.core).await;
    scene.until_source_ended().await;
    assert_eq!(scene.backend.asked(Operation::KillCompute), [home.id()]);
    scene.archive().await;
}

// inv: INV-C38, INV-C39
// req: G-246
#[tokio::test]
async fn a_checkpoint_moves_to_another_node_while_its_own_is_away_and_the_source_is_killed_when_that_returns()
{
    restored_elsewhere(On::Sqlite).await;
}

// inv: INV-C38, INV-C39
#[tokio::test]
async fn pg_a_checkpoint_moves_to_another_node_while_its_own_is_away_and_the_source_is_killed_when_that_returns()
 {
    restored_elsewhere(On::Postgres).await;
}

// inv: INV-C34
#[tokio::test]
async fn a_node_killed_after_it_suspended_or_restored_is_only_reconciled_when_it_returns() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    backend.plan(Operation::Suspend, &[Act::DieAfter]);
    let scene = Scene::begin(core, backend).await;
    world::eventually("the node died", async || node.is_dead()).await;
    assert_eq!(scene.row().await.compute_phase, ComputePhase::Suspending);
    assert_eq!(
        scene.slots(node.id()).await,
        (1, 1),
        "nothing is known: both slots are held"
    );
    node.connect(&scene.core).await;
    scene.until_phase(ComputePhase::Suspended).await;

    scene.backend.plan(Operation::Resume, &[Act::DieAfter]);
    scene.input().await;
    world::eventually("the node died", async || node.is_dead()).await;
    assert_eq!(scene.row().await.compute_phase, ComputePhase::Restoring);
    node.connect(&scene.core).await;
    scene.until_phase(ComputePhase::Running).await;
    assert_eq!(scene.computes().await.len(), 2, "one target");
    scene.archive().await;
}

// inv: INV-C41
#[tokio::test]
async fn a_checkpoint_that_does_not_verify_is_refused_three_times_stays_and_waits_for_an_operator() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    scene
        .backend
        .arrange(Arrange::Damage(row.reference(), Damage::Digest))
        .await;
    scene.input().await;
    world::eventually("the third failure", async || {
        if scene.row().await.restore_failures < 3 {
            // Time that Core would wait is taken away.
            scene.age().await;
        }
        scene
            .row()
            .await
            .diagnostic
            .is_some_and(|d| d.as_str() == "compute_unconfirmed")
    })
    .await;
    let row = scene.row().await;
    assert_eq!(
        (row.restore_failures, row.compute_phase),
        (3, ComputePhase::Suspended)
    );
    assert!(
        scene.checkpoint().await.is_some(),
        "no attempt ends its retention"
    );
    let computes = scene.computes().await;
    assert_eq!(computes.len(), 4);
    let refused = |c: &&ComputeRow| c.failed_at.is_some() && c.ended_at.is_some();
    assert_eq!(computes.iter().filter(refused).count(), 3);
    scene.archive().await;
}

// inv: INV-C41
#[tokio::test]
async fn a_restore_whose_request_was_lost_is_observed_its_target_killed_and_nothing_counted() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    scene.backend.plan(Operation::Resume, &[Act::DieBefore]);
    scene.input().await;
    world::eventually("the node died", async || node.is_dead()).await;
    node.connect(&scene.core).await;
    world::eventually("the target's end is confirmed", async || {
        scene
            .computes()
            .await
            .get(1)
            .is_some_and(|target| target.ended_at.is_some())
    })
    .await;
    scene.age().await;
    scene.until_phase(ComputePhase::Running).await;
    let computes = scene.computes().await;
    assert_eq!(computes.len(), 3);
    assert!(computes.iter().all(|compute| compute.failed_at.is_none()));
    scene.archive().await;
}

// inv: INV-C33, INV-S18
#[tokio::test]
async fn at_the_end_of_its_retention_a_suspended_sandbox_is_cleaned_up_and_a_waiting_input_gets_a_new_one() {
    let core = core_keeping(On::Sqlite, 0, 5).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    let row = scene.until_phase(ComputePhase::Suspended).await;
    // Nothing can be restored: the node comes back with its deadline over.
    node.lose(&scene.core).await;
    world::input(&scene.core, scene.session).await;
    let given_up = world::until(&scene.core, scene.id, AllocationState::CleanupPending).await;
    assert_eq!(given_up.cause, Some(CleanupCause::RetentionEnd));
    assert_eq!(
        scene.slots(node.id()).await,
        (0, 1),
        "entering cleanup takes no slot"
    );
    node.connect(&scene.core).await;
    world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert!(scene.backend.is_clean(&row.reference()).await);
    let read = scene.core.core().store.single();
    world::eventually("another allocation", async || {
        read.latest_allocation(scene.session).await.unwrap().unwrap().id != scene.id
    })
    .await;
    let events = read.events_after(scene.session, 0, 100).await.unwrap();
    let reset = events
        .iter()
        .find(|e| e.kind == EventKind::EnvironmentReset)
        .unwrap();
    assert_eq!(reset.data["reason"], "suspension_expired");
}

#[tokio::test]
async fn a_runtime_that_refuses_to_be_quiesced_goes_on_and_is_asked_again_later() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    let (session, id) = world::session(&core).await.unwrap();
    let turn = world::input(&core, session).await;
    world::until(&core, id, AllocationState::Running).await;
    backend.set_quiet(id, Quiet::Busy);
    let scene = Scene {
        core,
        backend,
        session,
        id,
    };
    scene.end(turn).await;
    world::eventually("it was asked", async || {
        scene
            .backend
            .runtime_asked(id)
            .iter()
            .any(|what| what == "POST /v1/quiesce")
    })
    .await;
    world::eventually("it goes on", async || {
        scene.row().await.compute_phase == ComputePhase::Running
    })
    .await;
    assert_eq!(scene.backend.count(Operation::Suspend), 0);
    scene.backend.set_quiet(id, Quiet::Yes);
    scene.core.core().pokes.want(session);
    scene.until_phase(ComputePhase::Suspended).await;
}

// inv: INV-C28, INV-C40
#[tokio::test]
async fn what_is_archived_while_its_suspend_is_open_is_cleaned_up_once_that_is_reconciled() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut node = Node::start(&core, &backend, 1, 2).await;
    backend.plan(Operation::Suspend, &[Act::DieAfter]);
    let scene = Scene::begin(core, backend).await;
    world::eventually("the node died", async || node.is_dead()).await;
    let tx = world::begin(&scene.core).await;
    tx.lock_session(scene.session).await.unwrap();
    let given_up = allocations::begin_cleanup(&tx, scene.id, Cause::Archive)
        .await
        .unwrap();
    tx.archive_session(scene.session).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        given_up.row.state,
        AllocationState::Running,
        "it waits for the suspend"
    );
    assert_eq!(given_up.row.cause, Some(CleanupCause::Archive));
    node.connect(&scene.core).await;
    let row = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert!(scene.backend.is_clean(&row.reference()).await);
}

#[tokio::test]
async fn a_docker_sandbox_is_never_suspended_however_idle_it_is() {
    let core = world::core(On::Sqlite).await;
    let tx = world::begin(&core).await;
    tx.save_suspension(0, 86_400).await.unwrap();
    tx.commit().await.unwrap();
    let node = crate::node::Node::start(&core, 1).await;
    let (session, id) = world::session(&core).await.unwrap();
    let row = world::until(&core, id, AllocationState::Running).await;
    assert_eq!(row.compute_phase, ComputePhase::Disabled);
    core.core().pokes.want(session);
    world::archive(&core, session, id).await;
    world::until(&core, id, AllocationState::Released).await;
    for operation in [
        Operation::Initial,
        Operation::Compute,
        Operation::Suspend,
        Operation::KillCompute,
    ] {
        assert_eq!(node.count(operation), 0, "{operation:?}");
    }
}

/// Drains the scene's node.
async fn drain(scene: &Scene, node: NodeId, deadline_seconds: u32, retained: DrainRetained) {
    let tx = world::begin(&scene.core).await;
    tx.lock_node(node).await.unwrap();
    let drain = NewDrain {
        deadline_seconds,
        idle: DrainIdle::Suspend,
        then: DrainThen::Terminate,
        retained,
        source: "192.0.2.9".to_owned(),
    };
    tx.start_drain(node, &drain).await.unwrap();
    tx.commit().await.unwrap();
    scene.core.core().pokes.drains.notify_one();
    scene.core.core().pokes.want(scene.session);
}

async fn is_drained(scene: &Scene, node: NodeId) {
    world::eventually("the drain is over", async || {
        let row = scene
            .core
            .core()
            .store
            .single()
            .node(node)
            .await
            .unwrap()
            .unwrap();
        row.drain_requested_at.is_none()
    })
    .await;
}
