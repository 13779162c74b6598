//! Suspends that are given up before the runtime was parked, because the database did not answer a commit: the sandbox goes
//! on, though its link was open all the time.

use oac_model::{ComputePhase, SessionId};
use oac_store::{DeploymentLock, Initialization, OperationKind, OperationState, Side};

use super::{
    Scene, core_keeping,
    host::{Backend, Node, Quiet},
};
use crate::world::{self, On};

/// A runtime that is linked, with nothing to do, and answers so when it is to be quiet; then it is idle for long enough, and
/// an answer is lost: of the next commit after a statement with this text.
async fn given_up(text: &'static str, side: Side, quiet: Quiet) -> (Scene, Node) {
    let core = core_keeping(On::Sqlite, 86_400, 86_400).await;
    let backend = Backend::new();
    let node = Node::start(&core, &backend, 1, 2).await;
    let (session, id): (SessionId, _) = world::session(&core).await.unwrap();
    let turn = world::input(&core, session).await;
    let scene = Scene {
        core,
        backend,
        session,
        id,
    };
    world::eventually("its runtime linked", async || {
        scene.row().await.initialization == Initialization::Complete
            && scene.core.core().links.ready(id).is_some()
    })
    .await;
    scene.end(turn).await;
    // The driver of another link has no Turn to try again: it waits, and looks at nothing.
    let links = &scene.core.core().links;
    let before = links.current(id).unwrap().connection_id();
    scene.backend.relink(id, false).await;
    world::eventually("it is linked anew", async || {
        links.ready(id).is_some_and(|link| link.connection_id() != before)
    })
    .await;
    scene.backend.set_quiet(id, quiet);
    scene.core.core().store.faults().lose(text, side);
    let tx = world::begin(&scene.core).await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    tx.save_suspension(0, 86_400).await.unwrap();
    tx.commit().await.unwrap();
    scene.core.core().pokes.want(session);
    world::eventually("an answer is lost", async || {
        scene.core.core().store.faults().has_lost()
    })
    .await;
    (scene, node)
}

/// It goes on, and is suspended by a suspend of its own.
async fn goes_on(scene: &Scene) {
    scene.backend.set_quiet(scene.id, Quiet::Yes);
    scene.until_phase(ComputePhase::Suspended).await;
    let mut suspends = world::operations(&scene.core, scene.id).await;
    suspends.retain(|op| op.kind == OperationKind::Suspend);
    assert_eq!(suspends[0].state, OperationState::Rejected);
    assert!(suspends.len() > 1);
}

// inv: INV-C30
#[tokio::test]
async fn a_sandbox_goes_on_whose_suspend_was_begun_by_a_commit_that_was_not_answered() {
    let (scene, _node) = given_up("INSERT INTO operations", Side::After, Quiet::Yes).await;
    goes_on(&scene).await;
}

// inv: INV-C30
#[tokio::test]
async fn a_sandbox_goes_on_whose_runtime_refused_to_be_quiet_and_that_could_not_be_stored() {
    let (scene, _node) = given_up("SET state = 'rejected'", Side::Before, Quiet::Busy).await;
    goes_on(&scene).await;
}
