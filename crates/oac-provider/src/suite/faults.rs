//! A fault at every native call of an operation, one after the other: the backend refuses, the call is lost before or
//! after its effect, its answer is unreadable, it comes after the deadline, or the backend cannot be reached from then on.
//! The node restarts, and everything it says afterwards has to fit to what natively stands.

use std::time::Instant;

use oac_model::Reference;
use oac_wire::shapes::{Bootstrap, Command, Info, Observation, ObservationMode, ObservedInstance};

use super::{
    Arrange, CallFault, SOON, World,
    checkpoints::{self, resumption, source, suspension},
    code, is_settled_absent, later,
    lifecycle::{self, create_code, created},
    phase,
};
use crate::{Failure, NativeWork, Phase};

/// Walks `operation` over every number of a native call and every fault, until the fault is met no more: a walk is over
/// when no fault kept the operation from its success. `arrive` looks at what is then there.
async fn walk<T>(
    world: &dyn World,
    prepare: impl AsyncFn() -> T,
    operation: impl AsyncFn(&T, Instant) -> Result<(), Failure>,
    arrive: impl AsyncFn(&T, Result<(), Failure>, &str),
) {
    let made = || match world.is_quick() {
        true => world.calls(),
        false => world.effects(),
    };
    for fault in CallFault::ALL {
        let (mut n, mut patience) = (0, SOON);
        loop {
            let what = format!("call {n}, {fault:?}");
            let subject = prepare().await;
            let (calls, quick) = (made(), world.is_quick());
            let at = if quick {
                Arrange::FaultAt
            } else {
                Arrange::FaultAtEffect
            };
            world.arrange(at(n, fault)).await;
            let late = fault == CallFault::Late;
            let by = if late { Instant::now() + patience } else { later() };
            let outcome = operation(&subject, by).await;
            let (met, succeeded) = (made() > calls + n, outcome.is_ok());
            world.arrange(Arrange::Release).await;
            world.arrange(Arrange::Calm).await;
            arrive(&subject, outcome, &what).await;
            if met {
                n += 1;
            } else if succeeded {
                assert!(n >= 1 || !quick, "{what}: the operation makes no native call");
                break;
            } else {
                assert!(late, "{what}: it failed without the fault");
                // A slow host: the deadline passed before the call.
                patience *= 2;
            }
        }
    }
}

/// What was under way has ended, and another node answers.
async fn next_node(world: &dyn World, reference: &Reference) {
    world.arrange(Arrange::AwaitWork(*reference)).await;
    world.arrange(Arrange::RestartNode).await;
}

/// What `info` says of what stands, whatever happened before.
async fn fits(world: &dyn World, reference: &Reference, what: &str) {
    let (standing, live) = (world.present(reference).await, world.live(reference).await);
    let phase = phase(world, reference);
    match lifecycle::info(world, reference).await {
        Ok(seen) => {
            assert!(
                seen.state != Info::ABSENT || live.is_empty(),
                "{what}: {seen:?} while {live:?} lives"
            );
            assert!(
                !seen.compute_lost || phase == Some(Phase::Settled),
                "{what}: {phase:?} {seen:?}"
            );
            let past = !matches!(phase, None | Some(Phase::Creating | Phase::Killing));
            let running = seen.bootstrap_complete && !live.is_empty();
            assert!(
                !seen.create_settled || past || running,
                "{what}: {phase:?} {seen:?}"
            );
            let buried = phase == Some(Phase::Tombstone) && seen.create_settled;
            assert!(
                !buried || standing.is_empty(),
                "{what}: {standing:?} under a tombstone"
            );
        }
        Err(Failure::NotFound) => assert!(standing.is_empty(), "{what}: {standing:?} was not found"),
        Err(Failure::Unconfirmed(_)) => {}
        Err(other) => panic!("{what}: {other:?}"),
    }
}

/// Nothing of it is left, and nothing follows.
async fn can_be_killed(world: &dyn World, b: &Bootstrap, what: &str) {
    let r = &b.reference;
    if let Err(failure) = world.provider().kill(r, later()).await {
        // A service may still make what it was once asked for; only an operator may say that it will not.
        let unseen = world.declared().native_work() == NativeWork::Service;
        assert!(unseen && failure.code() == "unconfirmed", "{what}: {failure:?}");
        assert_eq!(phase(world, r), Some(Phase::Creating), "{what}");
        world.arrange(Arrange::Discard(*r)).await;
    }
    assert!(world.present(r).await.is_empty(), "{what}");
    assert_eq!(phase(world, r), Some(Phase::Tombstone), "{what}");
    is_settled_absent(&lifecycle::info(world, r).await.unwrap(), r, false);
    assert_eq!(create_code(world, b).await, "exists", "{what}");
}

pub(super) async fn create(world: &dyn World) {
    let operation = async |b: &Bootstrap, by| {
        let Err(failed) = world.provider().create(b, by).await else {
            return Ok(());
        };
        if let Some(receipt) = &failed.receipt {
            assert!(receipt.is_settled_receipt_of(&b.reference), "{receipt:?}");
        }
        // A fresh reference, without a foreign part.
        assert!(
            ["unconfirmed", "invalid"].contains(&failed.failure.code()),
            "{:?}",
            failed.failure
        );
        let settled = failed.receipt.is_some();
        assert!(
            !settled || world.present(&b.reference).await.is_empty(),
            "settled, and something is left"
        );
        Err(failed.failure)
    };
    let arrive = async |b: &Bootstrap, outcome: Result<(), Failure>, what: &str| {
        next_node(world, &b.reference).await;
        if outcome.is_ok() {
            assert_eq!(phase(world, &b.reference), Some(Phase::Settled), "{what}");
        }
        let standing = !world.present(&b.reference).await.is_empty();
        assert!(
            !standing || world.receipt(&b.reference).is_some(),
            "{what}: an effect without a receipt"
        );
        fits(world, &b.reference, what).await;
        can_be_killed(world, b, what).await;
    };
    walk(world, async || world.bootstrap(), operation, arrive).await;
}

pub(super) async fn kill(world: &dyn World) {
    let operation = async |b: &Bootstrap, by| world.provider().kill(&b.reference, by).await;
    let arrive = async |b: &Bootstrap, outcome: Result<(), Failure>, what: &str| {
        match outcome {
            Ok(()) => assert_eq!(phase(world, &b.reference), Some(Phase::Tombstone), "{what}"),
            Err(failure) => assert_eq!(failure.code(), "unconfirmed", "{what}"),
        }
        next_node(world, &b.reference).await;
        let buried = phase(world, &b.reference) == Some(Phase::Tombstone);
        assert!(
            !buried || world.present(&b.reference).await.is_empty(),
            "{what}: a tombstone too early"
        );
        fits(world, &b.reference, what).await;
        can_be_killed(world, b, what).await;
    };
    walk(world, async || created(world).await.0, operation, arrive).await;
}

async fn info_of(world: &dyn World, gone: bool) {
    let prepare = async || {
        let (b, _) = created(world).await;
        if gone {
            world.arrange(Arrange::RemoveCompute(b.reference)).await;
        }
        b
    };
    let operation = async |b: &Bootstrap, by| {
        let seen = world.provider().info(&b.reference, by).await?;
        assert_eq!(seen.compute_lost, gone, "{seen:?}");
        assert!(seen.create_settled);
        Ok(())
    };
    let arrive = async |b: &Bootstrap, outcome: Result<(), Failure>, what: &str| {
        if let Err(failure) = outcome {
            assert_eq!(failure.code(), "unconfirmed", "{what}");
        }
        next_node(world, &b.reference).await;
        assert_eq!(phase(world, &b.reference), Some(Phase::Settled), "{what}");
        fits(world, &b.reference, what).await;
    };
    walk(world, prepare, operation, arrive).await;
}

pub(super) async fn info(world: &dyn World) {
    info_of(world, false).await;
    info_of(world, true).await;
}

pub(super) async fn command_and_observe(world: &dyn World) {
    let (b, made) = created(world).await;
    let r = b.reference;
    let unchanged = async |outcome: Result<(), Failure>, codes: &[&'static str], what: &str| {
        if let Err(failure) = outcome {
            assert!(codes.contains(&failure.code()), "{what}: {failure:?}");
        }
        world.arrange(Arrange::AwaitWork(r)).await;
        assert_eq!(lifecycle::info(world, &r).await.unwrap(), made, "{what}");
    };
    let command = Command {
        args: vec![world.tool(), "flood".into(), "64".into()],
        directory: String::new(),
        stdin: None,
    };
    let operation = async |(): &(), by| {
        let result = world.provider().command(&r, &command, by).await?;
        // A result is whole: never the part that a broken call left.
        assert_eq!(
            (result.exit_code, result.stdout.0.len(), result.stderr.0.len()),
            (7, 64, 64)
        );
        assert!(!result.stdout_truncated && !result.stderr_truncated);
        Ok(())
    };
    let arrive = async |(): &(), outcome: Result<(), Failure>, what: &str| {
        unchanged(outcome, &["command_unconfirmed", "unconfirmed"], what).await;
    };
    walk(world, async || (), operation, arrive).await;

    let observation = Observation {
        mode: ObservationMode::Managed,
        session_id: b.session_id,
        instance: ObservedInstance {
            provider_key: world.observed_as(),
            compute_phase: oac_model::ComputePhase::Running,
            compute: None.into(),
        },
    };
    let operation = async |(): &(), by| world.provider().observe(&r, &observation, by).await.map(drop);
    let arrive = async |(): &(), outcome: Result<(), Failure>, what: &str| {
        unchanged(outcome, &["observation_unavailable"], what).await;
    };
    walk(world, async || (), operation, arrive).await;
}

pub(super) async fn suspend(world: &dyn World) {
    let prepare = async || {
        let (reference, first) = source(world).await;
        suspension(reference, &first)
    };
    let operation = async |s: &oac_wire::shapes::Suspend, by| {
        let state = world.provider().suspend(s, by).await?;
        let released = state.resources_released;
        assert_eq!(released, state.retained.0.is_some(), "{state:?}");
        assert!(!released || world.live(&s.reference).await.is_empty());
        assert!(
            released || ["running", "paused"].contains(&state.status.as_str()),
            "{state:?}"
        );
        Ok(())
    };
    let arrive = async |s: &oac_wire::shapes::Suspend, outcome: Result<(), Failure>, what: &str| {
        if let Err(failure) = outcome {
            assert_eq!(failure.code(), "unconfirmed", "{what}");
        }
        next_node(world, &s.reference).await;
        let kept = !world.live(&s.reference).await.is_empty() || !world.checkpoints(&s.reference).is_empty();
        assert!(kept, "{what}: neither source nor checkpoint is left");
        let state = checkpoints::reconcile(world, s).await.unwrap();
        let released = state.resources_released;
        assert_eq!(
            released,
            world.live(&s.reference).await.is_empty(),
            "{what}: {state:?}"
        );
        assert_eq!(
            released,
            phase(world, &s.reference) == Some(Phase::Suspended),
            "{what}"
        );
        fits(world, &s.reference, what).await;
    };
    walk(world, prepare, operation, arrive).await;
}

pub(super) async fn resume(world: &dyn World) {
    let prepare = async || {
        let (s, kept) = checkpoints::suspended(world).await;
        let target = world
            .provider()
            .new_compute(&s.reference, 1, Some(&kept), later())
            .await
            .unwrap();
        resumption(&s, &kept, &target)
    };
    let operation = async |r: &oac_wire::shapes::Resume, by| {
        let state = world.provider().resume(r, by).await?;
        assert_eq!(state.status, "running");
        Ok(())
    };
    let arrive = async |r: &oac_wire::shapes::Resume, outcome: Result<(), Failure>, what: &str| {
        if let Err(failure) = &outcome {
            assert_eq!(failure.code(), "unconfirmed", "{what}");
        }
        next_node(world, &r.reference).await;
        assert_eq!(world.checkpoints(&r.reference).len(), 1, "{what}");
        if phase(world, &r.reference) != Some(Phase::Settled) {
            // The same again: whatever came of the first, it is there once.
            let state = world.provider().resume(r, later()).await.unwrap();
            assert_eq!(state.status, "running", "{what}");
        }
        assert_eq!(
            world.live(&r.reference).await,
            std::slice::from_ref(&r.target.name),
            "{what}"
        );
        assert_eq!(
            code(world.provider().resume(r, later()).await),
            "exists",
            "{what}"
        );
        fits(world, &r.reference, what).await;
    };
    walk(world, prepare, operation, arrive).await;
}
