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
