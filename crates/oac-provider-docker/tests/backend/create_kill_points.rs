//! The tables of `create.rs` and `kill.rs`: the node dies around every call, and the next node answers as they say.

use std::time::{Duration, Instant};

use http::Method;
use oac_provider::{
    Failure,
    suite::{Lost, World},
};
use parking_lot::Mutex;

use crate::{
    tap::{Fault, Matches},
    world::DockerWorld,
};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The `n`th call, from the moment this is armed.
fn nth(n: usize) -> Matches {
    let left = Mutex::new(n);
    Box::new(move |_, path| {
        if path == "/info" || path == "/_ping" {
            return false;
        }
        let mut left = left.lock();
        *left = left.wrapping_sub(1);
        *left == usize::MAX
    })
}

/// What stands natively after a create that died: containers, running, volumes.
fn standing(world: &DockerWorld) -> (usize, bool, usize) {
    let engine = world.scripted.as_ref().unwrap().world.lock();
    let running = engine
        .containers
        .values()
        .any(|c| c["State"]["Status"] == "running");
    (engine.containers.len(), running, engine.volumes.len())
}

// inv: INV-V3, INV-V6, INV-V7, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_call_of_create_answers_as_the_table_says() {
    let mut seen_running = 0;
    for lost in [Lost::Before, Lost::After] {
        for n in 0.. {
            let world = DockerWorld::scripted().await;
            let b = world.bootstrap();
            world.tap.once(nth(n), Fault::Lose(lost));
            let outcome = world.provider().create(&b, later()).await;
            world.tap.clear();
            let Err(failed) = outcome else {
                assert!(n > 10, "a whole create makes more calls than {n}");
                break;
            };
            assert!(
                failed.receipt.is_none(),
                "call {n} {lost:?}: a lost call settles nothing"
            );
            world.restart_node();
            let what = format!("call {n} {lost:?}, standing {:?}", standing(&world));
            let info = world.provider().info(&b.reference, later()).await;
            match standing(&world) {
                (0, _, 0) => assert!(matches!(info, Err(Failure::NotFound)), "{what}: {info:?}"),
                (_, true, _) => {
                    seen_running += 1;
                    let info = info.unwrap();
                    assert!(info.create_settled && info.bootstrap_complete, "{what}: {info:?}");
                }
                _ => {
                    let info = info.unwrap();
                    assert!(
                        !info.create_settled && !info.bootstrap_complete,
                        "{what}: {info:?}"
                    );
                    assert!(!info.provider_id.is_empty(), "{what}: {info:?}");
                }
            }
            let again = world.provider().create(&b, later()).await.unwrap_err();
            assert!(matches!(again.failure, Failure::Exists(_)), "{what}: {again:?}");
            world.provider().kill(&b.reference, later()).await.unwrap();
            assert_eq!(standing(&world), (0, false, 0), "{what}");
            let info = world.provider().info(&b.reference, later()).await.unwrap();
            assert!(
                info.is_settled_receipt_of(&b.reference) && !info.compute_lost,
                "{what}: {info:?}"
            );
        }
    }
    assert!(seen_running > 2, "the walk reached the started container");
}

// inv: INV-V5, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_call_of_kill_has_no_tombstone_and_kills_again() {
    for lost in [Lost::Before, Lost::After] {
        for n in 0.. {
            let world = DockerWorld::scripted().await;
            let b = world.bootstrap();
            world.provider().create(&b, later()).await.unwrap();
            world.tap.once(nth(n), Fault::Lose(lost));
            let outcome = world.provider().kill(&b.reference, later()).await;
            world.tap.clear();
            world.restart_node();
            let info = world.provider().info(&b.reference, later()).await;
            if outcome.is_ok() {
                assert!(n > 10, "a whole kill makes more calls than {n}");
                assert!(info.unwrap().is_settled_receipt_of(&b.reference));
                break;
            }
            let what = format!("call {n} {lost:?}, standing {:?}", standing(&world));
            match (standing(&world), info) {
                ((0, _, 0), Err(Failure::NotFound)) => {}
                ((0, _, 0), other) => panic!("{what}: {other:?}"),
                ((_, true, _), info) => assert!(info.unwrap().create_settled, "{what}"),
                (_, info) => {
                    let info = info.unwrap();
                    assert!(!info.create_settled && !info.compute_lost, "{what}: {info:?}");
                }
            }
            let again = world.provider().create(&b, later()).await.unwrap_err();
            assert!(matches!(again.failure, Failure::Exists(_)), "{what}: {again:?}");
            world.provider().kill(&b.reference, later()).await.unwrap();
            assert_eq!(standing(&world), (0, false, 0), "{what}");
        }
    }
}

// inv: INV-V3
#[tokio::test]
async fn a_refused_call_of_create_leaves_nothing_and_says_so() {
    let steps: [fn(&Method, &str) -> bool; 2] = [
        |m, p| m == Method::POST && p == "/volumes/create",
        |m, p| m == Method::POST && p == "/containers/create",
    ];
    for matches in steps {
        for status in [400, 404, 500] {
            let world = DockerWorld::scripted().await;
            let b = world.bootstrap();
            world.tap.once(Box::new(matches), Fault::Refuse(status));
            let failed = world.provider().create(&b, later()).await.unwrap_err();
            assert!(failed.receipt.unwrap().is_settled_receipt_of(&b.reference));
            assert_eq!(standing(&world), (0, false, 0));
        }
    }
}
