//! What answers badly or never costs itself time, and nobody else.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use oac_lifecycle::limits;
use oac_model::{AllocationId, AllocationState, ComputePhase};
use oac_store::OperationKind;
use oac_wire::shapes::Operation;

use super::{
    Scene, core, core_keeping,
    host::{Act, Backend, Node, Quiet},
};
use crate::world::{self, On};

fn quiesces(backend: &Backend, id: AllocationId) -> usize {
    let asked = backend.runtime_asked(id);
    asked.iter().filter(|what| *what == "POST /v1/quiesce").count()
}

/// A Session whose runtime answers so when it is to be quiet.
async fn answering(
    core: oac_testkit::core::TestCore,
    backend: std::sync::Arc<Backend>,
    quiet: Quiet,
) -> Scene {
    let (session, id) = world::session(&core).await.unwrap();
    let turn = world::input(&core, session).await;
    world::until(&core, id, AllocationState::Running).await;
    backend.set_quiet(id, quiet);
    let scene = Scene {
        core,
        backend,
        session,
        id,
    };
    scene.end(turn).await;
    scene
}

// inv: INV-C20
#[tokio::test]
async fn runtimes_that_never_answer_the_word_to_be_quiet_hold_up_no_other_sandbox_of_their_node_and_are_woken()
 {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 16, 16).await;
    let mut scene = answering(core, backend, Quiet::Silent).await;
    let mut silent = vec![scene.id];
    for _ in 1..8 {
        scene = answering(scene.core, scene.backend, Quiet::Silent).await;
        silent.push(scene.id);
    }
    world::eventually("each was asked", async || {
        silent.iter().all(|id| quiesces(&scene.backend, *id) > 0)
    })
    .await;
    let (_, id) = world::session(&scene.core).await.unwrap();
    world::until(&scene.core, id, AllocationState::Running).await;
    for id in &silent {
        // Its link ended, and the wake command brought it back.
        scene.id = *id;
        scene.until_phase(ComputePhase::Running).await;
        world::eventually("it is linked again", async || {
            scene.core.core().links.ready(*id).is_some()
        })
        .await;
    }
    assert!(scene.backend.count(Operation::CommandCompute) >= silent.len());
    assert_eq!(scene.backend.count(Operation::Suspend), 0, "none was quiet");
    assert_eq!(scene.slots(node.id()).await, (9, 9));
}

// The time between two attempts is measured where Core stored them.
#[tokio::test]
async fn a_capture_that_always_fails_is_not_repeated_at_once() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    backend.captures_fail.store(true, Ordering::SeqCst);
    let scene = Scene::begin(core, backend).await;
    let suspends = async || {
        let mut all = world::operations(&scene.core, scene.id).await;
        all.retain(|op| op.kind == OperationKind::Suspend && op.ended_at.is_some());
        all
    };
    world::eventually("a second attempt", async || suspends().await.len() == 2).await;
    let all = suspends().await;
    let between = all[1].created_at.millis() - all[0].ended_at.unwrap().millis();
    assert!(between >= limits::CLEANUP_BACKOFF_FIRST, "{between}");
    scene.backend.captures_fail.store(false, Ordering::SeqCst);
    scene.until_phase(ComputePhase::Suspended).await;
}

#[tokio::test]
async fn an_answer_that_names_no_compute_is_not_asked_for_again_at_once() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 1, 2).await;
    backend.anonymous.store(true, Ordering::SeqCst);
    let scene = Scene::begin(core, backend).await;
    let asked = || {
        let requests = scene.backend.requests.lock();
        let computes = requests.iter().filter(|(_, what, _)| *what == Operation::Compute);
        computes.map(|(_, _, at)| *at).collect::<Vec<Instant>>()
    };
    world::eventually("it is asked again", async || asked().len() >= 2).await;
    let between = asked()[1].duration_since(asked()[0]);
    let least = Duration::from_millis(limits::OBSERVE_UNRESOLVED.unsigned_abs());
    assert!(between >= least, "{between:?}");
    scene.backend.anonymous.store(false, Ordering::SeqCst);
    scene.until_phase(ComputePhase::Suspended).await;
}

// inv: INV-C38
#[tokio::test]
async fn a_kill_of_a_former_compute_counts_at_its_own_node_and_passes_by_a_home_that_answers_nothing() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let mut former = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    former.lose(&scene.core).await;
    let home = Node::start(&scene.core, &scene.backend, 9, 9).await;
    scene.wake().await;
    assert_eq!(scene.row().await.node_id, Some(home.id()));
    world::eventually("nothing else is to do at home", async || {
        scene.checkpoint().await.is_none()
    })
    .await;
    let creates = scene.backend.count(Operation::Create);
    scene.backend.plan(Operation::Create, &[Act::Ignore; 8]);
    for _ in 0..8 {
        world::session(&scene.core).await.unwrap();
    }
    world::eventually("home answers nothing", async || {
        scene.backend.count(Operation::Create) == creates + 8
    })
    .await;
    former.connect(&scene.core).await;
    scene.until_source_ended().await;
}

#[tokio::test]
async fn a_restore_passes_over_a_home_that_does_not_take_it() {
    let core = core(On::Sqlite).await;
    let backend = Backend::new();
    let home = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    let other = Node::start(&scene.core, &scene.backend, 1, 1).await;
    scene.backend.refuse(home.id(), Operation::NewCompute);
    scene.wake().await;
    assert_eq!(scene.row().await.node_id, Some(other.id()));
    assert_eq!(
        scene.backend.asked(Operation::NewCompute),
        [home.id(), other.id()]
    );
    scene.archive().await;
}

/// There may be very many sandboxes at it.
#[tokio::test]
async fn at_a_node_that_answers_no_sample_sandboxes_that_find_no_place_for_theirs_are_not_planned_over_and_over()
 {
    let core = core_keeping(On::Sqlite, 86_400, 86_400).await;
    let backend = Backend::new();
    let _node = Node::start(&core, &backend, 9, 9).await;
    backend.plan(Operation::Observe, &[Act::Ignore; 16]);
    let mut scene = Scene::begin(core, backend).await;
    for _ in 1..9 {
        scene = Scene::begin(scene.core, scene.backend).await;
    }
    // Half of its places are left to what moves sandboxes.
    world::eventually("samples take their places", async || {
        scene.backend.count(Operation::Observe) >= 4
    })
    .await;
    let faults = scene.core.core().store.faults();
    world::eventually("a second in which none is planned", async || {
        faults.count(&["FROM computes"]);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            scene.core.core().pokes.allocations.notify_one();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        faults.counted()[0] == 0
    })
    .await;
}
