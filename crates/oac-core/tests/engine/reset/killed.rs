//! Cores that are killed over a reset.

use futures_util::{StreamExt as _, future, stream};
use oac_model::{AllocationId, AllocationState, NodeId, SessionId, TurnId, TurnState};
use oac_store::Side;
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::json;

use super::{RESET, archives_told, completed, lines, reset, told, view};
use crate::{
    node::Node,
    world::{self, On},
};

/// The reset is asked for again if nobody remembers that it was.
async fn go_on(core: &TestCore, clear: &str) {
    let shown = view(core).await;
    if shown["reset"].is_null() && !shown["provider"].is_null() {
        reset(core, clear).await;
    }
}

/// The Turn ends, unless it did, or Core is dead; an automatic reset waits for that.
async fn end_if_alive(core: &TestCore, session: SessionId, turn: TurnId) {
    let ended: Result<(), oac_store::StoreError> = async {
        let Ok(tx) = core.core().begin().await else {
            return Ok(());
        };
        tx.lock_session(session).await?;
        let row = tx.turn(turn).await?.filter(|row| row.ended_at.is_none());
        let Some(mut row) = row else { return Ok(()) };
        (row.state, row.ended_at) = (TurnState::Completed, Some(tx.now()));
        tx.save_turn(&row).await?;
        tx.commit().await
    }
    .await;
    assert!(ended.is_ok() || core.core().store.faults().is_dead(), "{ended:?}");
    core.core().pokes.resets.notify_one();
}

/// Lived at once: they mostly wait. Each on PostgreSQL makes a database of its own.
fn lived_at_once(on: On) -> usize {
    match on {
        On::Sqlite => 6,
        On::Postgres => 3,
    }
}

/// One reset whose Core dies at its `n`th commit; whether it died.
async fn dies(on: On, clear: &str, n: u64, side: Side) -> bool {
    let mut core = world::core(on).await;
    let mut node = Node::start(&core, 2).await;
    let mut held: Vec<(SessionId, AllocationId)> = Vec::new();
    let (idle, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    held.push((idle, allocation));
    let (working, allocation, turn) = world::working(&core).await;
    held.push((working, allocation));
    let before = view(&core).await;
    let what = format!("{clear}, dead at commit {n}, {side:?}");
    let faults = core.core().store.faults().clone();
    faults.die_at(n, side);
    let body = json!({ "expected_generation": 1, "clear": clear });
    let _ = core.operator(Method::POST, RESET, Some(&body)).await;
    end_if_alive(&core, working, turn).await;
    world::eventually("the reset is complete, or its Core dead", async || {
        let row = core.core().store.single().deployment().await;
        faults.is_dead() || row.is_ok_and(|row| row.provider.is_none())
    })
    .await;
    faults.spare();
    let died = faults.is_dead();
    let mut takeovers = 0;
    if died {
        node.kill().await;
        core.stop().await;
        core = world::next_core(&core).await;
        takeovers = 1;
        let retired = async |core: &TestCore, id: NodeId| {
            let row = core.core().store.single().node(id).await.unwrap().unwrap();
            row.retired_at.is_some()
        };
        go_on(&core, clear).await;
        end_if_alive(&core, working, turn).await;
        // The reset may have given the node up meanwhile.
        if let Err(status) = node.dial(&core.url).await {
            assert_eq!(status.as_u16(), 401, "{what}");
            assert!(retired(&core, node.id()).await, "{what}");
        }
    }
    let after = completed(&core).await;
    let higher = |name: &str| after[name].as_i64().unwrap() - before[name].as_i64().unwrap();
    assert_eq!(
        (higher("generation"), higher("owner_epoch")),
        (1, 1 + takeovers),
        "{what}"
    );
    assert_eq!(
        told(&core).await,
        lines(&[("reset_start", "core_key"), ("reset_complete", "core")]),
        "{what}"
    );
    for (session, allocation) in held {
        assert_eq!(archives_told(&core, session).await, 1, "{what}");
        let native = node.native(allocation);
        assert_eq!((native.created, native.running), (1, false), "{what}");
    }
    died
}

async fn killed_at_any_commit(on: On, clear: &str, side: Side) {
    let lives = stream::iter(1..)
        .map(|n| dies(on, clear, n, side))
        .buffered(lived_at_once(on));
    let deaths = lives.take_while(|died| future::ready(*died)).count().await;
    assert!(deaths >= 8, "only {deaths} commits to die at");
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn a_core_killed_before_any_commit_of_a_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Sqlite, "force", Side::Before).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn a_core_killed_after_any_commit_of_a_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Sqlite, "force", Side::After).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn a_core_killed_before_any_commit_of_an_automatic_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Sqlite, "auto", Side::Before).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn a_core_killed_after_any_commit_of_an_automatic_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Sqlite, "auto", Side::After).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn pg_a_core_killed_before_any_commit_of_a_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Postgres, "force", Side::Before).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn pg_a_core_killed_after_any_commit_of_a_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Postgres, "force", Side::After).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn pg_a_core_killed_before_any_commit_of_an_automatic_reset_is_followed_by_one_that_completes_it_once()
{
    killed_at_any_commit(On::Postgres, "auto", Side::Before).await;
}

// inv: INV-C2, INV-C4, INV-C15, INV-C17, INV-C23
#[tokio::test]
async fn pg_a_core_killed_after_any_commit_of_an_automatic_reset_is_followed_by_one_that_completes_it_once() {
    killed_at_any_commit(On::Postgres, "auto", Side::After).await;
}
