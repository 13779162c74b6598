//! Computes at nodes that will never return: what operators give up of them, and what becomes of it when such a node does
//! return.

use futures_util::{StreamExt as _, future, stream};
use oac_model::{AllocationState, ComputePhase};
use oac_store::Side;
use oac_testkit::core::Answer;
use oac_wire::shapes::Operation;
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
    async fn ask_discard(&self, body: Value) -> Answer {
        let path = format!("/core/v1/sandbox/allocations/{}/discard", self.id);
        self.core.operator(Method::POST, &path, Some(&body)).await
    }

    async fn discard_former(&self) -> Answer {
        self.ask_discard(json!({ "former_computes": true })).await
    }

    /// The allocation as it is listed.
    async fn listed(&self) -> Value {
        let path = "/core/v1/sandbox/allocations";
        let list = self.core.operator(Method::GET, path, None).await.expect(200);
        let all = list["data"].as_array().unwrap();
        let shown = all.iter().find(|a| a["id"] == self.id.to_string());
        shown.unwrap().clone()
    }

    /// What its discards were told with, oldest first.
    async fn discards(&self) -> Vec<Value> {
        let log = self
            .core
            .core()
            .store
            .single()
            .audit_log(None, 1000)
            .await
            .unwrap();
        let of = log.into_iter().rev().filter(|entry| entry.action == "discard");
        of.map(|entry| {
            assert_eq!(entry.resource_id, self.id.to_string());
            assert_eq!(entry.resource_type, "allocation");
            entry.details
        })
        .collect()
    }

    /// Of each compute, oldest first: whether it counts as ended, and whether its kill is owed.
    async fn ends(&self) -> Vec<(bool, bool)> {
        let computes = self.computes().await;
        computes
            .iter()
            .map(|c| (c.ended_at.is_some(), c.kill_owed))
            .collect()
    }

    async fn until_no_kill_is_owed(&self) {
        world::eventually("its kill is confirmed", async || {
            self.ends().await.iter().all(|(_, owed)| !owed)
        })
        .await;
    }

    /// The Session's only Turn is over.
    async fn rest(&self) {
        let read = self.core.core().store.single();
        for turn in read.unfinished_turns(self.session).await.unwrap() {
            self.end(turn.id).await;
        }
    }

    /// It is given up, and everything of it is removed but what its home holds, which is away.
    async fn until_only_its_home_is_waited_for(&self) {
        world::eventually("the cleanup waits for nothing else", async || {
            self.listed().await["discardable"] == true
        })
        .await;
    }
}

#[track_caller]
fn refused(answer: &Answer) {
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (409, "sandbox_not_discardable"),
        "{}",
        answer.body
    );
}

/// A sandbox that moved to another node while its home was away, and its home still is.
async fn moved(on: On) -> (Scene, Node, Node) {
    let core = core(on).await;
    let backend = Backend::new();
    let mut home = Node::start(&core, &backend, 1, 2).await;
    let scene = Scene::begin(core, backend).await;
    scene.until_phase(ComputePhase::Suspended).await;
    refused(&scene.discard_former().await);
    home.lose(&scene.core).await;
    let other = Node::start(&scene.core, &scene.backend, 1, 2).await;
    scene.wake().await;
    world::eventually("the checkpoint is deleted", async || {
        scene.checkpoint().await.is_none()
    })
    .await;
    (scene, home, other)
}

async fn forgotten(on: On) {
    let (scene, mut home, other) = moved(on).await;
    assert_eq!(scene.row().await.node_id, Some(other.id()));
    let before = scene.listed().await;
    assert_eq!(before["former_computes"], json!([home.id()]));
    assert_eq!(before["discardable"], false, "the sandbox itself is well");
    refused(&scene.ask_discard(json!({ "accept_loss": true })).await);
    for body in [
        json!({}),
        json!({ "former_computes": false }),
        json!({ "former_computes": null }),
        json!({ "former_computes": true, "accept_loss": true }),
        json!({ "former_computes": [home.id()] }),
    ] {
        assert_eq!(
            scene.ask_discard(body.clone()).await.status.as_u16(),
            400,
            "{body}"
        );
    }
    assert_eq!(scene.ends().await, [(false, false), (false, false)]);

    // A repeated request, its answer having been lost, is one discard.
    for _ in 0..2 {
        let after = scene.discard_former().await.expect(200);
        assert_eq!(after["former_computes"], json!([]));
        assert_eq!(
            (&after["state"], &after["discardable"]),
            (&json!("running"), &json!(false))
        );
        assert_eq!(scene.ends().await, [(true, true), (false, false)]);
    }
    let told = json!({ "session_id": scene.session, "node_id": other.id(), "former_computes": [home.id()] });
    assert_eq!(scene.discards().await, std::slice::from_ref(&told));
    assert_eq!(scene.backend.asked(Operation::KillCompute), []);

    // It was to never return, and does.
    home.connect(&scene.core).await;
    scene.until_no_kill_is_owed().await;
    assert_eq!(scene.backend.asked(Operation::KillCompute), [home.id()]);
    refused(&scene.discard_former().await);
    assert_eq!(
        scene.row().await.compute_phase,
        ComputePhase::Running,
        "it went on"
    );
    assert_eq!(scene.discards().await, [told]);
    scene.archive().await;
}

// inv: INV-C15, INV-C31, INV-C38, INV-C39
#[tokio::test]
async fn former_computes_are_discarded_once_at_nodes_that_are_away_and_killed_all_the_same_when_those_return()
{
    forgotten(On::Sqlite).await;
}

// inv: INV-C15, INV-C31, INV-C38, INV-C39
#[tokio::test]
async fn pg_former_computes_are_discarded_once_at_nodes_that_are_away_and_killed_all_the_same_when_those_return()
 {
    forgotten(On::Postgres).await;
}

#[tokio::test]
async fn a_former_compute_whose_node_is_there_is_killed_and_not_discarded() {
    let (scene, mut home, _other) = moved(On::Sqlite).await;
    // Its node is there, and does not do it.
    scene.backend.refuse(home.id(), Operation::KillCompute);
    home.connect(&scene.core).await;
    world::eventually("it is to be killed", async || {
        scene.backend.count(Operation::KillCompute) > 0
    })
    .await;
    assert_eq!(scene.listed().await["former_computes"], json!([]));
    refused(&scene.discard_former().await);
    assert_eq!(scene.ends().await, [(false, false), (false, false)]);
    assert_eq!(scene.discards().await, Vec::<Value>::new());
}

async fn awaited_by_a_reset(on: On) {
    let (scene, home, _other) = moved(on).await;
    reset::reset(&scene.core, "force").await;
    let given_up = world::until(&scene.core, scene.id, AllocationState::CleanupPending).await;
    scene.until_only_its_home_is_waited_for().await;
    assert_eq!(scene.listed().await["former_computes"], json!([home.id()]));
    let view = reset::view(&scene.core).await;
    assert_eq!(
        view["reset"]["remaining"]["discardable"],
        json!([{ "allocation_id": scene.id, "session_id": scene.session }])
    );
    assert_eq!(view["reset"]["remaining"]["cleanup"], 1);
    let after = scene
        .ask_discard(json!({ "accept_loss": true }))
        .await
        .expect(200);
    assert_eq!(after["discardable"], false);
    reset::completed(&scene.core).await;
    let released = world::row(&scene.core, scene.id).await;
    assert_eq!(
        (released.state, released.cause),
        (AllocationState::Released, given_up.cause)
    );
    assert_eq!(scene.discards().await.len(), 1);
    assert_eq!(
        scene.ends().await,
        [(true, false), (true, false)],
        "its node is retired and will not be there to be asked"
    );
    assert!(!scene.backend.asked(Operation::KillCompute).contains(&home.id()));
}

// inv: INV-C23, INV-C28, INV-C31
#[tokio::test]
async fn a_reset_that_waits_for_a_former_compute_alone_lists_it_and_is_complete_once_that_is_discarded() {
    awaited_by_a_reset(On::Sqlite).await;
}

// inv: INV-C23, INV-C28, INV-C31
#[tokio::test]
async fn pg_a_reset_that_waits_for_a_former_compute_alone_lists_it_and_is_complete_once_that_is_discarded() {
    awaited_by_a_reset(On::Postgres).await;
}

async fn owed_after_the_release(on: On) {
    let (mut scene, mut home, mut other) = moved(on).await;
    world::archive(&scene.core, scene.session, scene.id).await;
    scene.until_only_its_home_is_waited_for().await;
    scene.discard_former().await.expect(200);
    let released = world::until(&scene.core, scene.id, AllocationState::Released).await;
    assert_eq!(scene.ends().await, [(true, true), (true, false)]);
    assert_eq!(scene.discard_former().await.status.as_u16(), 404);
    // Another Core finds in the rows alone what is owed.
    other.kill().await;
    scene.core.stop().await;
    scene.core = world::next_core(&scene.core).await;
    home.connect(&scene.core).await;
    scene.until_no_kill_is_owed().await;
    let asked = scene.backend.asked(Operation::KillCompute);
    assert_eq!(asked.iter().filter(|node| **node == home.id()).count(), 1);
    let row = scene.row().await;
    assert_eq!(
        (row.state, row.released_at, row.revision),
        (released.state, released.released_at, released.revision),
        "nothing else happens to it any more"
    );
}

// inv: INV-C39
#[tokio::test]
async fn what_was_discarded_is_killed_when_its_node_returns_though_the_sandbox_is_released_and_core_another()
{
    owed_after_the_release(On::Sqlite).await;
}

// inv: INV-C39
#[tokio::test]
async fn pg_what_was_discarded_is_killed_when_its_node_returns_though_the_sandbox_is_released_and_core_another()
 {
    owed_after_the_release(On::Postgres).await;
}

// inv: INV-C38
#[tokio::test]
async fn a_node_that_returns_kills_what_was_discarded_before_anything_is_restored_there() {
    let (scene, mut home, mut other) = moved(On::Sqlite).await;
    scene.discard_former().await.expect(200);
    scene.rest().await;
    scene.until_phase(ComputePhase::Suspended).await;
    other.lose(&scene.core).await;
    scene.input().await;
    home.connect(&scene.core).await;
    world::eventually("it is restored at home", async || {
        let row = scene.row().await;
        row.node_id == Some(home.id()) && row.compute_phase == ComputePhase::Running
    })
    .await;
    let requests = scene.backend.requests.lock().clone();
    let first = |operation| {
        requests
            .iter()
            .rposition(|(node, asked, _)| (*node, *asked) == (home.id(), operation))
    };
    let (killed, restored) = (first(Operation::KillCompute), first(Operation::Resume));
    assert!(killed.is_some() && killed < restored, "{killed:?} {restored:?}");
}

// inv: INV-C29
#[tokio::test]
async fn a_node_is_removed_once_its_former_computes_are_discarded_and_nothing_is_owed_there() {
    let (scene, home, _other) = moved(On::Sqlite).await;
    let path = format!("/core/v1/sandbox/nodes/{}", home.id());
    let remove = async || scene.core.operator(Method::DELETE, &path, None).await;
    let refused = remove().await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "runtime_node_in_use")
    );
    scene.discard_former().await.expect(200);
    remove().await.expect(204);
    assert_eq!(scene.ends().await, [(true, false), (false, false)]);
    scene.archive().await;
}

/// A node that never returns may leave very many of them.
#[tokio::test]
async fn a_cleanup_that_waits_for_a_former_compute_is_not_planned_again_with_every_poke() {
    let (scene, mut home, _other) = moved(On::Sqlite).await;
    world::archive(&scene.core, scene.session, scene.id).await;
    scene.until_only_its_home_is_waited_for().await;
    // A pass asks for each of three states, and for one more page where there was one.
    const PASS: u64 = 4;
    let faults = scene.core.core().store.faults();
    world::eventually("a pass that does not plan it", async || {
        faults.count(&["WHERE released_at IS NULL AND state = $1", "FROM computes"]);
        world::eventually("a whole pass", async || {
            scene.core.core().pokes.allocations.notify_one();
            faults.counted()[0] >= 2 * PASS
        })
        .await;
        faults.counted()[1] == 0
    })
    .await;
    // It is when its node comes.
    home.connect(&scene.core).await;
    world::until(&scene.core, scene.id, AllocationState::Released).await;
}

/// Lived at once: they mostly wait.
const LIVES: usize = 3;

/// A reset waits for a former compute, and Core dies at its `n`th commit from the discard on; whether it died.
async fn dies(on: On, n: u64, side: Side) -> bool {
    let (mut scene, _home, mut other) = moved(on).await;
    reset::reset(&scene.core, "force").await;
    scene.until_only_its_home_is_waited_for().await;
    let faults = scene.core.core().store.faults().clone();
    faults.die_at(n, side);
    // It may be dead before it answers.
    let _ = scene.discard_former().await;
    world::eventually("the reset is complete, or its Core dead", async || {
        let row = scene.core.core().store.single().deployment().await;
        faults.is_dead() || row.is_ok_and(|row| row.provider.is_none())
    })
    .await;
    faults.spare();
    let died = faults.is_dead();
    if died {
        other.kill().await;
        scene.core.stop().await;
        scene.core = world::next_core(&scene.core).await;
        let row = world::row(&scene.core, scene.id).await;
        if row.released_at.is_none() {
            other.connect(&scene.core).await;
        }
        // Who got no answer asks again.
        let answer = scene.discard_former().await;
        assert!(matches!(answer.status.as_u16(), 200 | 404), "{}", answer.body);
    }
    reset::completed(&scene.core).await;
    assert_eq!(scene.discards().await.len(), 1, "dead at commit {n}, {side:?}");
    assert_eq!(scene.ends().await, [(true, false), (true, false)]);
    died
}

async fn killed_at_any_commit(on: On, side: Side) {
    let lives = stream::iter(1..).map(|n| dies(on, n, side)).buffered(LIVES);
    let deaths = lives.take_while(|died| future::ready(*died)).count().await;
    assert!(deaths >= 2, "only {deaths} commits to die at");
}

// inv: INV-C15, INV-C23, INV-C31
#[tokio::test]
async fn a_core_killed_before_any_commit_after_a_discard_is_followed_by_one_that_completes_the_reset() {
    killed_at_any_commit(On::Sqlite, Side::Before).await;
}

// inv: INV-C15, INV-C23, INV-C31
#[tokio::test]
async fn a_core_killed_after_any_commit_after_a_discard_is_followed_by_one_that_completes_the_reset() {
    killed_at_any_commit(On::Sqlite, Side::After).await;
}

// inv: INV-C15, INV-C23, INV-C31
#[tokio::test]
async fn pg_a_core_killed_before_any_commit_after_a_discard_is_followed_by_one_that_completes_the_reset() {
    killed_at_any_commit(On::Postgres, Side::Before).await;
}

// inv: INV-C15, INV-C23, INV-C31
#[tokio::test]
async fn pg_a_core_killed_after_any_commit_after_a_discard_is_followed_by_one_that_completes_the_reset() {
    killed_at_any_commit(On::Postgres, Side::After).await;
}
