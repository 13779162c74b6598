//! Suspending: capture, publication, verification, the end of the source, and what is known of it afterwards (V18, V24
//! to V27, V31, V38, V42, V45).

use oac_model::{DiagnosticCode, Digest, OperationId, Reference};
use oac_wire::shapes::{Compute, ComputeState, Resume, Retained, Suspend};

use super::{
    Arrange, Damage, Lost, Marker, Step, World, code, is_running, is_settled_absent, later,
    lifecycle::{created, info},
    phase, soon,
};
use crate::{Failure, Phase};

/// A running sandbox, and its compute with the id it has.
pub(super) async fn source(world: &dyn World) -> (Reference, Compute) {
    let (b, made) = created(world).await;
    let calls = world.calls();
    let mut first = world.provider().initial(&b.reference, later()).await.unwrap();
    assert_eq!(world.calls(), calls, "deriving a name made a native call");
    assert_eq!((first.generation, &first.restored_from.0), (0, &None));
    first.id = Some(made.provider_id).into();
    (b.reference, first)
}

pub(super) fn suspension(reference: Reference, source: &Compute) -> Suspend {
    Suspend {
        reference,
        operation_id: OperationId::random(),
        source: source.clone(),
        retained: None.into(),
        reconcile_only: false,
    }
}

pub(super) async fn run(world: &dyn World, s: &Suspend) -> Result<ComputeState, Failure> {
    world.provider().suspend(s, later()).await
}

pub(super) async fn reconcile(world: &dyn World, s: &Suspend) -> Result<ComputeState, Failure> {
    let again = Suspend {
        reconcile_only: true,
        ..s.clone()
    };
    world.provider().suspend(&again, later()).await
}

/// The compute's slot is free, and what was kept is bound to where it came from.
pub(super) fn is_suspended(state: &ComputeState, s: &Suspend) -> Retained {
    assert_eq!(state.status, "suspended");
    assert!(state.resources_released && state.suspend_settled, "{state:?}");
    assert_eq!(state.compute, s.source);
    let kept = state.retained.0.clone().expect("a suspension keeps a checkpoint");
    assert_eq!(kept.operation_id, s.operation_id);
    assert_eq!(kept.source_generation, s.source.generation);
    assert_eq!(kept.source_name, s.source.name);
    assert_eq!(Some(&kept.source_id), s.source.id.0.as_ref());
    assert!(kept.size_bytes > 0);
    kept
}

/// The source is still there, and nothing was kept.
fn is_given_up(state: &ComputeState) {
    assert!(
        ["running", "paused"].contains(&state.status.as_str()),
        "{state:?}"
    );
    assert!(state.suspend_settled && !state.resources_released, "{state:?}");
    assert_eq!(state.retained.0, None);
}

/// A suspended sandbox.
pub(super) async fn suspended(world: &dyn World) -> (Suspend, Retained) {
    let (reference, source) = source(world).await;
    let s = suspension(reference, &source);
    let kept = is_suspended(&run(world, &s).await.unwrap(), &s);
    (s, kept)
}

pub(super) async fn suspended_is_not_lost(world: &dyn World) {
    let (s, _) = suspended(world).await;
    is_settled_absent(&info(world, &s.reference).await.unwrap(), &s.reference, false);
    assert_eq!(phase(world, &s.reference), Some(Phase::Suspended));
}

pub(super) async fn suspend(world: &dyn World) {
    let (s, kept) = suspended(world).await;
    assert!(world.live(&s.reference).await.is_empty(), "the source still runs");
    assert_eq!(world.checkpoints(&s.reference).len(), 1);
    let receipt = world.receipt(&s.reference).unwrap();
    assert_eq!(receipt.phase(), Phase::Suspended);
    assert_eq!(receipt.operation_id.0, Some(s.operation_id));
    assert_eq!(receipt.retained.0.as_ref(), Some(&kept));
    assert!(
        receipt
            .outcome
            .0
            .is_some_and(|o| o.resources_released == Some(true))
    );
    // Verified before anything was released.
    assert!(world.made(Step::Verify) >= 1);
    // kill leaves checkpoints.
    world.provider().kill(&s.reference, later()).await.unwrap();
    assert_eq!(world.checkpoints(&s.reference).len(), 1);
}

pub(super) async fn capture_fails(world: &dyn World) {
    let (reference, source) = source(world).await;
    let s = suspension(reference, &source);
    world.arrange(Arrange::Reject(Step::Capture)).await;
    is_given_up(&run(world, &s).await.unwrap());
    assert_eq!(phase(world, &reference), Some(Phase::Settled));
    assert!(world.checkpoints(&reference).is_empty());
    let thawed = world
        .provider()
        .resume_compute(&reference, &source, later())
        .await
        .unwrap();
    assert_eq!(
        (thawed.status.as_str(), thawed.compute),
        ("running", source.clone())
    );
    is_running(&info(world, &reference).await.unwrap(), &reference);
    // It can be suspended after all.
    let s = suspension(reference, &source);
    is_suspended(&run(world, &s).await.unwrap(), &s);
}

pub(super) async fn crash_after_publish(world: &dyn World) {
    let (reference, source) = source(world).await;
    let s = suspension(reference, &source);
    world.arrange(Arrange::Lose(Step::Stop, Lost::Before)).await;
    assert_eq!(code(run(world, &s).await), "unconfirmed");
    assert_eq!(phase(world, &reference), Some(Phase::Suspending));
    world.arrange(Arrange::RestartNode).await;
    let captures = world.made(Step::Capture);
    let kept = is_suspended(&reconcile(world, &s).await.unwrap(), &s);
    assert_eq!(world.made(Step::Capture), captures, "captured a second time");
    assert!(world.live(&reference).await.is_empty());
    assert_eq!(phase(world, &reference), Some(Phase::Suspended));
    assert_eq!(world.receipt(&reference).unwrap().retained.0, Some(kept));
}

pub(super) async fn nothing_captured(world: &dyn World) {
    for (step, status) in [(Step::Pause, "running"), (Step::Capture, "paused")] {
        let (reference, source) = source(world).await;
        let s = suspension(reference, &source);
        world.arrange(Arrange::Lose(step, Lost::Before)).await;
        assert_eq!(code(run(world, &s).await), "unconfirmed");
        world.arrange(Arrange::RestartNode).await;
        let effects = world.effects();
        let state = reconcile(world, &s).await.unwrap();
        is_given_up(&state);
        assert_eq!(state.status, status);
        assert_eq!(world.effects(), effects, "reconcile_only had a native effect");
        assert_eq!(phase(world, &reference), Some(Phase::Settled));
        assert_eq!(world.live(&reference).await.len(), 1);
    }
}

pub(super) async fn delete_retained(world: &dyn World) {
    let (s, kept) = suspended(world).await;
    let (other, other_kept) = suspended(world).await;
    let provider = world.provider();
    let wrong = |change: fn(&mut Retained)| {
        let mut wrong = kept.clone();
        change(&mut wrong);
        wrong
    };
    for wrong in [
        wrong(|k| k.digest = Digest::of("another")),
        wrong(|k| k.source_name.push('x')),
        wrong(|k| k.size_bytes += 1),
    ] {
        let refused = provider.delete_retained(&s.reference, &wrong, later()).await;
        assert_eq!(code(refused), "ownership");
    }
    // Another allocation's identity names nothing here.
    let _ = provider.delete_retained(&s.reference, &other_kept, later()).await;
    assert_eq!(world.checkpoints(&s.reference).len(), 1);
    assert_eq!(world.checkpoints(&other.reference).len(), 1);
    let (running, _) = source(world).await;
    for _ in 0..2 {
        provider
            .delete_retained(&s.reference, &kept, later())
            .await
            .unwrap();
        assert!(world.checkpoints(&s.reference).is_empty());
        assert_eq!(world.checkpoints(&other.reference).len(), 1);
    }
    is_running(&info(world, &running).await.unwrap(), &running);
}

pub(super) async fn outlasts_its_deadline(world: &dyn World) {
    let (reference, source) = source(world).await;
    let s = suspension(reference, &source);
    world.arrange(Arrange::Hold(Step::Capture)).await;
    assert_eq!(code(world.provider().suspend(&s, soon()).await), "unconfirmed");
    world.arrange(Arrange::AwaitHeld).await;
    world.arrange(Arrange::Release).await;
    world.provider().idle(&reference).await;
    let hashed = world.made(Step::Verify);
    let kept = is_suspended(&reconcile(world, &s).await.unwrap(), &s);
    let seen = world
        .provider()
        .compute(&reference, &source, later())
        .await
        .unwrap();
    assert_eq!(is_suspended(&seen, &s), kept);
    assert_eq!(world.made(Step::Verify), hashed, "hashed again");
}

pub(super) async fn marker(world: &dyn World) {
    let (s, kept) = suspended(world).await;
    let (reference, source) = source(world).await;
    let target = world
        .provider()
        .new_compute(&s.reference, 1, Some(&kept), later())
        .await
        .unwrap();
    for marker in [Marker::Missing, Marker::Another] {
        world.arrange(Arrange::StoreMarker(marker)).await;
        let there = world.marker();
        let failed = world.provider().probe(later()).await.unwrap_err();
        assert_eq!(failed.code, DiagnosticCode::ArtifactsUnavailable);
        let effects = world.effects();
        assert_eq!(
            code(run(world, &suspension(reference, &source)).await),
            "unconfirmed"
        );
        let resumed = world
            .provider()
            .resume(&resumption(&s, &kept, &target), later())
            .await;
        assert_eq!(code(resumed), "unconfirmed");
        let deleted = world
            .provider()
            .delete_retained(&s.reference, &kept, later())
            .await;
        assert_eq!(code(deleted), "unconfirmed");
        assert_eq!(world.effects(), effects, "a native effect without the marker");
        assert_eq!(world.marker(), there, "a marker appeared");
        assert_eq!(world.checkpoints(&s.reference).len(), 1);
    }
    world.arrange(Arrange::StoreMarker(Marker::Recorded)).await;
    assert!(world.provider().probe(later()).await.is_ok());
    let s = suspension(reference, &source);
    is_suspended(&run(world, &s).await.unwrap(), &s);
}

pub(super) fn resumption(s: &Suspend, kept: &Retained, target: &Compute) -> Resume {
    Resume {
        reference: s.reference,
        operation_id: OperationId::random(),
        retained: kept.clone(),
        target: target.clone(),
        reconcile_only: false,
        workspace: None.into(),
    }
}

pub(super) async fn verification_fails(world: &dyn World) {
    // While the source is live.
    let (reference, first) = source(world).await;
    let s = suspension(reference, &first);
    world.arrange(Arrange::Spoil(Step::Publish)).await;
    is_given_up(&run(world, &s).await.unwrap());
    assert!(world.checkpoints(&reference).is_empty(), "what failed was kept");
    assert_eq!(phase(world, &reference), Some(Phase::Settled));
    assert_eq!(world.live(&reference).await.len(), 1);

    // Once it has ended, only what was read and differs is removed.
    let (reference, first) = source(world).await;
    let s = suspension(reference, &first);
    world.arrange(Arrange::Lose(Step::Stop, Lost::After)).await;
    assert_eq!(code(run(world, &s).await), "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    world.arrange(Arrange::Unreadable(reference, true)).await;
    assert_eq!(code(reconcile(world, &s).await), "unconfirmed");
    assert_eq!(
        world.checkpoints(&reference).len(),
        1,
        "what could not be read was removed"
    );
    assert_eq!(phase(world, &reference), Some(Phase::Suspending));
    world.arrange(Arrange::Unreadable(reference, false)).await;
    is_suspended(&reconcile(world, &s).await.unwrap(), &s);

    let (reference, first) = source(world).await;
    let s = suspension(reference, &first);
    world.arrange(Arrange::Lose(Step::Stop, Lost::After)).await;
    assert_eq!(code(run(world, &s).await), "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    world.arrange(Arrange::Damage(reference, Damage::Digest)).await;
    if let Ok(state) = reconcile(world, &s).await {
        assert!(
            !state.resources_released && state.retained.0.is_none(),
            "{state:?}"
        );
    }
    assert!(
        world.checkpoints(&reference).is_empty(),
        "a proven mismatch was kept"
    );
}

/// On another host nothing of checkpoints is done either (V37); the caller compares the calls.
pub(super) async fn refused_elsewhere(world: &dyn World, reference: &Reference) {
    let provider = world.provider();
    let mut first = provider.initial(reference, later()).await.unwrap();
    first.id = Some("id".to_owned()).into();
    let s = suspension(*reference, &first);
    assert_eq!(code(run(world, &s).await), "unconfirmed");
    assert_eq!(
        code(provider.kill_compute(reference, &first, later()).await),
        "unconfirmed"
    );
    let kept = super::lifecycle::retained();
    let target = provider
        .new_compute(reference, 1, Some(&kept), later())
        .await
        .unwrap();
    let resumed = provider.resume(&resumption(&s, &kept, &target), later()).await;
    assert_eq!(code(resumed), "unconfirmed");
}
