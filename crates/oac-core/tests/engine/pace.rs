//! How much Core reads while much happens (core.md sections 5, 11 and 14).

use std::time::Instant;

use oac_model::AllocationState;
use oac_store::Side;
use reqwest::Method;
use serde_json::json;

use crate::{
    node::Node,
    world::{self, On},
};

#[tokio::test]
async fn what_is_stored_is_looked_through_now_and_then_and_not_with_every_poke() {
    const SESSIONS: u32 = 30;
    let core = world::core(On::Sqlite).await;
    let _node = Node::start(&core, SESSIONS).await;
    let faults = core.core().store.faults();
    faults.count(&["WHERE released_at IS NULL AND state = $1"]);
    let began = Instant::now();
    for _ in 0..SESSIONS {
        let (_, allocation) = world::session(&core).await.unwrap();
        world::until(&core, allocation, AllocationState::Running).await;
    }
    // Three states, each with a second page where there was anything.
    let (times, read) = (began.elapsed().as_secs() / 2 + 2, faults.counted()[0]);
    assert!(read <= times * 6, "{read} pages in {times} times");
}

#[tokio::test]
async fn pg_a_sandbox_of_which_something_cannot_be_read_is_not_read_with_every_look_at_all_of_them() {
    let core = world::core(On::Postgres).await;
    let mut node = Node::start(&core, 2).await;
    let (_, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    core.execute("UPDATE allocations SET observation = 'of a later version'")
        .await;
    // Around it something is different from then on.
    node.kill().await;
    let faults = core.core().store.faults();
    faults.count(&[
        "FROM allocations WHERE id IN (",
        "WHERE released_at IS NULL AND state = $1",
    ]);
    world::eventually("what is stored is looked through twice", async || {
        core.core().pokes.allocations.notify_one();
        faults.counted()[1] >= 6
    })
    .await;
    let read = faults.counted()[0];
    assert!(read <= 3, "it was read {read} times");
}

#[tokio::test]
async fn an_automatic_reset_looks_at_whatever_is_told_of_and_only_now_and_then_at_all_sessions() {
    const PASSES: u64 = 20;
    let core = world::core(On::Sqlite).await;
    let _node = Node::start(&core, 2).await;
    let (session, ..) = world::working(&core).await;
    world::working(&core).await;
    let body = json!({ "expected_generation": 1, "clear": "auto" });
    let path = "/core/v1/sandbox/deployment/reset";
    core.operator(Method::POST, path, Some(&body)).await.expect(200);
    let faults = core.core().store.faults();
    faults.count(&["s.archived_at IS NULL AND NOT", "AS resources, EXISTS"]);
    let began = Instant::now();
    world::eventually("very many passes", async || {
        core.core().pokes.want(session);
        faults.counted()[1] >= PASSES
    })
    .await;
    let (times, read) = (began.elapsed().as_secs() / 5 + 2, faults.counted()[0]);
    assert!(read <= times, "all were looked through {read} times, not {times}");
}

#[tokio::test]
async fn pg_another_reset_looks_through_all_sessions_at_once_and_one_that_was_not_archived_is_tried_again_soon()
 {
    let core = world::core(On::Postgres).await;
    let _node = Node::start(&core, 2).await;
    let (session, allocation) = world::session(&core).await.unwrap();
    world::until(&core, allocation, AllocationState::Running).await;
    let body = json!({ "expected_generation": 1, "clear": "force" });
    let path = "/core/v1/sandbox/deployment/reset";
    let faults = core.core().store.faults();
    let cancel = format!("{path}?expected_generation=1");
    // How often all were looked through, and passes.
    let count = || faults.count(&["s.archived_at IS NULL AND TRUE", "AS resources, EXISTS"]);
    let until_looked = async || {
        world::eventually("all are looked through", async || faults.counted()[0] > 0).await;
        faults.counted()[1]
    };
    // Whoever archives the Session waits for it in vain.
    let tx = world::begin(&core).await;
    tx.lock_session(session).await.unwrap();
    world::while_open(&tx, async {
        count();
        core.operator(Method::POST, path, Some(&body)).await.expect(200);
        until_looked().await;
        world::eventually("it is canceled", async || {
            let canceled = core.operator(Method::DELETE, &cancel, None).await;
            canceled.status.as_u16() == 200
        })
        .await;
        count();
        core.operator(Method::POST, path, Some(&body)).await.expect(200);
        assert_eq!(until_looked().await, 1, "with its first pass");
        world::eventually("it was not archived", async || faults.counted()[1] > 1).await;
    })
    .await;
    tx.rollback().await.unwrap();
    count();
    world::until(&core, allocation, AllocationState::Released).await;
    assert!(faults.counted()[1] <= 4, "{:?}", faults.counted());
}

/// What a deployment is shown with is counted over every sandbox there is, and everything waits for the one who writes it.
#[tokio::test]
async fn a_write_to_the_deployment_reads_what_it_is_answered_with_once_nobody_waits_for_it() {
    let core = world::core(On::Sqlite).await;
    let faults = core.core().store.faults();
    faults.count(&["FROM deployment d JOIN placements"]);
    let hold = faults.hold_next(Side::Before);
    let body = json!({ "expected_generation": 1, "clear": "auto" });
    let path = "/core/v1/sandbox/deployment/reset";
    let asked = core.operator(Method::POST, path, Some(&body));
    let under_its_lock = async {
        hold.reached().await;
        let counted = faults.counted();
        drop(hold);
        counted
    };
    let (answer, counted) = tokio::join!(asked, under_its_lock);
    let shown = answer.expect(200);
    assert_eq!(counted, [0]);
    assert_eq!(shown["reset"]["clear"], "auto");
    assert!(faults.counted()[0] > 0);
}
