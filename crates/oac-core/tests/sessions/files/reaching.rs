//! Starting, waiting for and losing the sandbox that files are asked of.

use oac_core::allocations::{self, Cause};
use oac_model::SessionId;
use oac_testkit::core::send;
use reqwest::Method;
use tokio::time::timeout;

use super::{LONG, request};
use crate::{
    runtime::Runtime,
    world::{Placed, World},
};

/// The sandbox is given up as an operator's discard does it, and released.
async fn lose(world: &World, session: SessionId) {
    let core = world.core.core();
    let allocation = core
        .store
        .single()
        .latest_allocation(session)
        .await
        .unwrap()
        .unwrap();
    let tx = core.begin().await.unwrap();
    tx.lock_session(session).await.unwrap();
    allocations::begin_cleanup(&tx, allocation.id, Cause::Discard)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    core.links.revoke(allocation.id);
    core.pokes.allocations.notify_one();
}

/// Waits until a request for files is admitted.
async fn until_open(world: &World, session: SessionId) {
    let store = world.core.core().store.clone();
    world
        .eventually("the request is open", async || {
            let rows = store.single().file_operations(session).await;
            (!rows.unwrap().is_empty()).then_some(())
        })
        .await;
}

async fn until_gone(world: &World, session: SessionId) {
    world
        .eventually("the sandbox is gone", async || {
            (world.session(session).await["sandbox"]["state"] == "none").then_some(())
        })
        .await;
}

/// The sandbox that takes the place of the `first`.
async fn another(world: &World, first: &Placed) -> Placed {
    let store = world.core.core().store.clone();
    world
        .eventually("another allocation", async || {
            let latest = store.single().latest_allocation(first.session).await;
            latest.unwrap().filter(|row| row.id != first.allocation)
        })
        .await;
    world.sandbox_of(first.session).await
}

#[tokio::test]
async fn a_request_waits_for_a_sandbox_that_starts() {
    let world = World::start().await;
    let placed = world.place().await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("file");
    let put = request(&world, placed.session, Method::PUT, path.to_str().unwrap()).body("early");
    let put = timeout(LONG, send(put));
    let link = async {
        // It is admitted before there is any link.
        until_open(&world, placed.session).await;
        Runtime::start(&world, &placed)
    };
    let (answer, _runtime) = tokio::join!(put, link);
    answer.unwrap().expect(201);
    assert_eq!(std::fs::read(path).unwrap(), b"early");
}

// inv: INV-S18
#[tokio::test]
async fn files_of_a_session_that_lost_its_sandbox_start_a_new_one_without_any_turn() {
    let world = World::start().await;
    let (first, runtime) = Runtime::place(&world).await;
    lose(&world, first.session).await;
    runtime.kill().await;
    until_gone(&world, first.session).await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("file");
    let put = request(&world, first.session, Method::PUT, path.to_str().unwrap()).body("again");
    let put = timeout(LONG, send(put));
    let link = async {
        let placed = another(&world, &first).await;
        Runtime::start(&world, &placed)
    };
    let (answer, _runtime) = tokio::join!(put, link);
    answer.unwrap().expect(201);
    let events = world
        .core
        .core()
        .store
        .single()
        .events_after(first.session, 0, 100)
        .await
        .unwrap();
    assert!(
        events
            .iter()
            .any(|event| event.kind == oac_store::EventKind::EnvironmentReset)
    );
}

#[tokio::test]
async fn a_sandbox_lost_while_a_request_waits_is_replaced_for_it() {
    let world = World::start().await;
    let first = world.place().await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("file");
    let put = request(&world, first.session, Method::PUT, path.to_str().unwrap()).body("x");
    let put = timeout(LONG, send(put));
    let replace = async {
        until_open(&world, first.session).await;
        lose(&world, first.session).await;
        let placed = another(&world, &first).await;
        Runtime::start(&world, &placed)
    };
    let (answer, _runtime) = tokio::join!(put, replace);
    answer.unwrap().expect(201);
}

#[tokio::test]
async fn without_room_the_placement_code_is_told_and_nothing_is_stored() {
    let world = World::start().await;
    let placed = world.place().await;
    lose(&world, placed.session).await;
    until_gone(&world, placed.session).await;
    let mut world = world;
    world.node.kill().await;
    world
        .eventually("the node is offline", async || {
            let core = world.core.core();
            core.hub.connected(world.node.id()).is_none().then_some(())
        })
        .await;
    let answer = send(request(&world, placed.session, Method::GET, "x")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "runtime_node_unavailable")
    );
    let read = world.core.core().store.single();
    assert!(read.file_operations(placed.session).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sandbox_that_does_not_link_is_given_up_after_a_minute_with_a_time_to_come_again() {
    let world = World::start().await;
    let placed = world.place().await;
    let answer = send(request(&world, placed.session, Method::GET, "x")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (503, "sandbox_unreachable")
    );
    assert_eq!(answer.headers["retry-after"], "5");
}

#[tokio::test]
async fn a_read_whose_link_broke_before_the_answer_goes_on_over_the_next() {
    let world = World::start().await;
    let placed = world.place().await;
    // The first asked is cut off, the second is the real program.
    placed.sandbox.answer_files(std::sync::Arc::new(|_, cut| {
        Box::pin(async move {
            cut.notify_one();
            std::future::pending().await
        })
    }));
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "here").unwrap();
    let get = request(&world, placed.session, Method::GET, path.to_str().unwrap()).send();
    let link = async {
        connection.ended().await;
        Runtime::start(&world, &placed)
    };
    let (answer, _runtime) = tokio::join!(timeout(LONG, get), link);
    let answer = answer.unwrap().unwrap();
    assert_eq!(answer.bytes().await.unwrap(), b"here".as_slice());
}
