//! The tables of `create.rs` and `kill.rs`: the node dies around every call, and the next node answers as they say.

use std::time::{Duration, Instant};

use http::Method;
use oac_provider::{
    Failure,
    suite::{Lost, World},
};

use crate::{
    tap::{Fault, nth},
    world::DockerWorld,
};

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Which engine a walk runs on. The real one is walked by effects alone, to spare time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Scripted,
    Real,
}

impl Engine {
    async fn world(self) -> DockerWorld {
        match self {
            Self::Scripted => DockerWorld::scripted().await,
            Self::Real => DockerWorld::real().await,
        }
    }

    /// A whole create makes at least so many calls, or effects; a kill at least half as many.
    fn least_calls(self) -> usize {
        match self {
            Self::Scripted => 11,
            Self::Real => 6,
        }
    }
}

pub(crate) async fn die_in_create(engine: Engine) {
    let mut seen_running = 0;
    for lost in [Lost::Before, Lost::After] {
        for n in 0.. {
            let world = engine.world().await;
            let b = world.bootstrap();
            world.tap.once(nth(n, engine == Engine::Real), Fault::Lose(lost));
            let outcome = world.provider().create(&b, later()).await;
            world.tap.clear();
            let Err(failed) = outcome else {
                assert!(
                    n >= engine.least_calls(),
                    "a whole create makes more calls than {n}"
                );
                break;
            };
            assert!(
                failed.receipt.is_none(),
                "call {n} {lost:?}: a lost call settles nothing"
            );
            world.restart_node();
            let standing = world.standing().await;
            let what = format!("call {n} {lost:?}, standing {standing:?}");
            let info = world.provider().info(&b.reference, later()).await;
            match standing {
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
            assert_eq!(world.standing().await, (0, false, 0), "{what}");
            let info = world.provider().info(&b.reference, later()).await.unwrap();
            assert!(
                info.is_settled_receipt_of(&b.reference) && !info.compute_lost,
                "{what}: {info:?}"
            );
        }
    }
    assert!(seen_running >= 1, "the walk reached the started container");
}

pub(crate) async fn die_in_kill(engine: Engine) {
    for lost in [Lost::Before, Lost::After] {
        for n in 0.. {
            let world = engine.world().await;
            let b = world.bootstrap();
            world.provider().create(&b, later()).await.unwrap();
            world.tap.once(nth(n, engine == Engine::Real), Fault::Lose(lost));
            let outcome = world.provider().kill(&b.reference, later()).await;
            world.tap.clear();
            world.restart_node();
            let info = world.provider().info(&b.reference, later()).await;
            if outcome.is_ok() {
                assert!(
                    n >= engine.least_calls() / 2,
                    "a whole kill makes more calls than {n}"
                );
                assert!(info.unwrap().is_settled_receipt_of(&b.reference));
                break;
            }
            let standing = world.standing().await;
            let what = format!("call {n} {lost:?}, standing {standing:?}");
            match (standing, info) {
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
            assert_eq!(world.standing().await, (0, false, 0), "{what}");
        }
    }
}

// inv: INV-V3, INV-V6, INV-V7, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_call_of_create_answers_as_the_table_says() {
    die_in_create(Engine::Scripted).await;
}

// inv: INV-V5, INV-V9
#[tokio::test]
async fn a_node_killed_around_any_call_of_kill_has_no_tombstone_and_kills_again() {
    die_in_kill(Engine::Scripted).await;
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
            assert_eq!(world.standing().await, (0, false, 0));
        }
    }
}
