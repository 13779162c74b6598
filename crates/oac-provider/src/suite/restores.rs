//! Resuming: the next generation, what is verified before and after it, and the receipt on the way (V28 to V30, V32,
//! V39, V40, V46 to V48).

use oac_wire::shapes::{Compute, ComputeState, Resume, Retained, Suspend};

use super::{
    Arrange, Damage, Lost, Marker, Step, World,
    checkpoints::{resumption, source, suspended, suspension},
    code, is_running, is_settled_absent, later,
    lifecycle::info,
    phase,
};
use crate::{Failure, Phase};

async fn target(world: &dyn World, s: &Suspend, kept: &Retained, generation: i64) -> Compute {
    let calls = world.calls();
    let provider = world.provider();
    let target = provider
        .new_compute(&s.reference, generation, Some(kept), later())
        .await
        .unwrap();
    assert_eq!(world.calls(), calls, "deriving a name made a native call");
    assert_eq!(target.generation, generation);
    assert_eq!(target.restored_from.0.as_ref(), Some(kept));
    assert_ne!(target.name, s.source.name);
    target
}

async fn run(world: &dyn World, r: &Resume) -> Result<ComputeState, Failure> {
    world.provider().resume(r, later()).await
}

async fn reconcile(world: &dyn World, r: &Resume) -> Result<ComputeState, Failure> {
    let again = Resume {
        reconcile_only: true,
        ..r.clone()
    };
    world.provider().resume(&again, later()).await
}

fn is_restored(state: &ComputeState, r: &Resume) {
    assert_eq!(state.status, "running", "{state:?}");
    assert_eq!(
        (state.compute.generation, &state.compute.name),
        (r.target.generation, &r.target.name)
    );
    assert_eq!(state.compute.restored_from, r.target.restored_from);
    assert!(state.compute.id.0.as_ref().is_some_and(|id| !id.is_empty()));
}

/// A suspended sandbox and its restore as generation 1, not yet asked for.
async fn ready(world: &dyn World) -> (Suspend, Retained, Resume) {
    let (s, kept) = suspended(world).await;
    let target = target(world, &s, &kept, 1).await;
    let r = resumption(&s, &kept, &target);
    (s, kept, r)
}

pub(super) async fn resume(world: &dyn World) {
    let (reference, first) = source(world).await;
    let policy = world.policy(&reference).await;
    let s = suspension(reference, &first);
    let state = world.provider().suspend(&s, later()).await.unwrap();
    let kept = super::checkpoints::is_suspended(&state, &s);
    let without = world.provider().new_compute(&reference, 1, None, later()).await;
    assert_eq!(code(without), "invalid", "a generation without a parent");
    let target = target(world, &s, &kept, 1).await;
    let r = resumption(&s, &kept, &target);
    let state = run(world, &r).await.unwrap();
    is_restored(&state, &r);
    assert_eq!(world.live(&reference).await, std::slice::from_ref(&target.name));
    assert_eq!(
        world.policy(&reference).await,
        policy,
        "another network policy than create's"
    );
    let seen = world
        .provider()
        .compute(&reference, &state.compute, later())
        .await
        .unwrap();
    assert_eq!((seen.status.as_str(), &seen.compute), ("running", &state.compute));
    let receipt = world.receipt(&reference).unwrap();
    assert_eq!((receipt.phase(), receipt.compute_generation), (Phase::Settled, 1));
    is_running(&info(world, &reference).await.unwrap(), &reference);
}

pub(super) async fn repeated(world: &dyn World) {
    let (s, _, r) = ready(world).await;
    world.arrange(Arrange::Lose(Step::Restore, Lost::After)).await;
    assert_eq!(code(run(world, &r).await), "unconfirmed");
    assert_eq!(phase(world, &s.reference), Some(Phase::Restoring));
    world.arrange(Arrange::RestartNode).await;
    let restores = world.made(Step::Restore);
    let mut foreign = r.clone();
    foreign.target.id = Some("another".to_owned()).into();
    assert_eq!(code(run(world, &foreign).await), "ownership");
    is_restored(&run(world, &r).await.unwrap(), &r);
    assert_eq!(world.made(Step::Restore), restores, "restored a second time");
    assert_eq!(phase(world, &s.reference), Some(Phase::Settled));

    let (s, _, r) = ready(world).await;
    world.arrange(Arrange::Lose(Step::Restore, Lost::After)).await;
    assert_eq!(code(run(world, &r).await), "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    world.arrange(Arrange::ForeignParent(s.reference)).await;
    assert_eq!(code(run(world, &r).await), "ownership");
    assert_eq!(phase(world, &s.reference), Some(Phase::Restoring));
}

pub(super) async fn corrupt(world: &dyn World) {
    for damage in Damage::ALL {
        let (s, _, r) = ready(world).await;
        world.arrange(Arrange::Damage(s.reference, damage)).await;
        let effects = world.effects();
        assert_eq!(code(run(world, &r).await), "invalid", "{damage:?}");
        assert_eq!(
            world.effects(),
            effects,
            "{damage:?}: a native effect before verification"
        );
        assert!(world.live(&s.reference).await.is_empty());
        assert_eq!(
            world.checkpoints(&s.reference).len(),
            1,
            "{damage:?}: resume removed it"
        );
    }
}

pub(super) async fn kill_the_old(world: &dyn World) {
    let (s, _, r) = ready(world).await;
    let state = run(world, &r).await.unwrap();
    let mut old = s.source.clone();
    world
        .provider()
        .kill_compute(&s.reference, &old, later())
        .await
        .unwrap();
    // Nor by an id that the newer one has.
    old.id = state.compute.id.clone();
    let _ = world.provider().kill_compute(&s.reference, &old, later()).await;
    assert_eq!(
        world.live(&s.reference).await,
        std::slice::from_ref(&r.target.name)
    );
    is_running(&info(world, &s.reference).await.unwrap(), &s.reference);
}

pub(super) async fn kill_compute_and_receipts(world: &dyn World) {
    let kill = async |c: &Compute, s: &Suspend| {
        world
            .provider()
            .kill_compute(&s.reference, c, later())
            .await
            .unwrap();
        phase(world, &s.reference)
    };
    // A restore target without a receipt.
    let (s, _, r) = ready(world).await;
    world.arrange(Arrange::ForgetReceipt(s.reference)).await;
    assert_eq!(kill(&r.target, &s).await, Some(Phase::Suspended));
    assert_eq!(world.receipt(&s.reference).unwrap().compute_generation, 1);
    // Any compute under `suspended`.
    let before = world.receipt(&s.reference);
    assert_eq!(kill(&s.source, &s).await, Some(Phase::Suspended));
    assert_eq!(kill(&r.target, &s).await, Some(Phase::Suspended));
    assert_eq!(world.receipt(&s.reference), before);

    // A restore target that the receipt names, under restoring.
    let (s, _, r) = ready(world).await;
    world.arrange(Arrange::Lose(Step::Restore, Lost::After)).await;
    assert_eq!(code(run(world, &r).await), "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    assert_eq!(kill(&r.target, &s).await, Some(Phase::Suspended));
    assert!(world.live(&s.reference).await.is_empty());

    // Under settled, and first a compute that the receipt does not name.
    let (s, kept, r) = ready(world).await;
    run(world, &r).await.unwrap();
    let before = world.receipt(&s.reference);
    assert_eq!(kill(&s.source, &s).await, Some(Phase::Settled));
    assert_eq!(world.receipt(&s.reference), before);
    assert_eq!(kill(&r.target, &s).await, Some(Phase::Suspended));
    // It can be restored again.
    let next = target(world, &s, &kept, 2).await;
    let r = resumption(&s, &kept, &next);
    is_restored(&run(world, &r).await.unwrap(), &r);

    // The first compute: then only kill is left.
    let (reference, first) = source(world).await;
    world
        .provider()
        .kill_compute(&reference, &first, later())
        .await
        .unwrap();
    assert_eq!(phase(world, &reference), Some(Phase::Killing));
    assert!(world.live(&reference).await.is_empty());
}

pub(super) async fn loss_without_compute(world: &dyn World) {
    for removed in [true, false] {
        for suspending in [true, false] {
            without_compute(world, removed, suspending).await;
        }
    }
}

async fn without_compute(world: &dyn World, removed: bool, suspending: bool) {
    let reference = if suspending {
        let (reference, first) = source(world).await;
        world.arrange(Arrange::Lose(Step::Stop, Lost::Before)).await;
        let s = suspension(reference, &first);
        assert_eq!(code(world.provider().suspend(&s, later()).await), "unconfirmed");
        reference
    } else {
        let (s, _, r) = ready(world).await;
        world.arrange(Arrange::Lose(Step::Restore, Lost::After)).await;
        assert_eq!(code(run(world, &r).await), "unconfirmed");
        s.reference
    };
    if removed {
        world.arrange(Arrange::RemoveCompute(reference)).await;
        world.arrange(Arrange::RestartNode).await;
    } else {
        world.arrange(Arrange::EndCompute(reference)).await;
        world.arrange(Arrange::Reboot).await;
        world.arrange(Arrange::Steady).await;
    }
    let seen = async |lost: bool| {
        let info = info(world, &reference).await.unwrap();
        is_settled_absent(&info, &reference, lost);
    };
    seen(false).await;
    world.arrange(Arrange::StoreMarker(Marker::Missing)).await;
    seen(false).await;
    world.arrange(Arrange::StoreMarker(Marker::Recorded)).await;
    world.arrange(Arrange::RemoveCheckpoints(reference)).await;
    world.arrange(Arrange::StoreMarker(Marker::Another)).await;
    seen(false).await;
    world.arrange(Arrange::StoreMarker(Marker::Recorded)).await;
    seen(true).await;
}

pub(super) async fn failed_target(world: &dyn World) {
    let (s, kept, r) = ready(world).await;
    world.arrange(Arrange::Spoil(Step::Restore)).await;
    let is_failed = |state: ComputeState| {
        assert_eq!(state.status, "failed");
        assert_eq!(state.compute.name, r.target.name);
    };
    is_failed(run(world, &r).await.unwrap());
    is_failed(reconcile(world, &r).await.unwrap());
    assert_eq!(phase(world, &s.reference), Some(Phase::Restoring));
    assert_eq!(world.live(&s.reference).await.len(), 1, "it stays as it is");
    world
        .provider()
        .kill_compute(&s.reference, &r.target, later())
        .await
        .unwrap();
    assert_eq!(phase(world, &s.reference), Some(Phase::Suspended));
    assert!(world.live(&s.reference).await.is_empty());
    let next = target(world, &s, &kept, 2).await;
    let r = resumption(&s, &kept, &next);
    is_restored(&run(world, &r).await.unwrap(), &r);
}

pub(super) async fn another_target(world: &dyn World) {
    // Its outcome is unknown.
    let (s, kept, r) = ready(world).await;
    world.arrange(Arrange::Lose(Step::Restore, Lost::Before)).await;
    assert_eq!(code(run(world, &r).await), "unconfirmed");
    let next = target(world, &s, &kept, 2).await;
    let restores = world.made(Step::Restore);
    assert_eq!(code(run(world, &resumption(&s, &kept, &next)).await), "exists");
    assert_eq!(world.made(Step::Restore), restores);
    assert_eq!(world.receipt(&s.reference).unwrap().compute_generation, 1);

    // It failed verification.
    let (s, kept, r) = ready(world).await;
    world.arrange(Arrange::Damage(s.reference, Damage::Digest)).await;
    assert_eq!(code(run(world, &r).await), "invalid");
    let receipt = world.receipt(&s.reference).unwrap();
    assert_eq!(receipt.phase(), Phase::Restoring);
    assert!(
        receipt
            .outcome
            .0
            .is_some_and(|o| o.error_code.as_deref() == Some("invalid"))
    );
    let next = target(world, &s, &kept, 2).await;
    // Accepted, and verified anew.
    assert_eq!(code(run(world, &resumption(&s, &kept, &next)).await), "invalid");
    assert_eq!(world.receipt(&s.reference).unwrap().compute_generation, 2);
}

pub(super) async fn compute_settles_nothing(world: &dyn World) {
    let (s, _, r) = ready(world).await;
    world.arrange(Arrange::Lose(Step::Restore, Lost::After)).await;
    assert_eq!(code(run(world, &r).await), "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    let before = world.receipt(&s.reference);
    let seen = world
        .provider()
        .compute(&s.reference, &r.target, later())
        .await
        .unwrap();
    assert_eq!(seen.status, "running");
    assert_eq!(world.receipt(&s.reference), before, "compute changed the receipt");
    let restores = world.made(Step::Restore);
    is_restored(&reconcile(world, &r).await.unwrap(), &r);
    assert_eq!(world.made(Step::Restore), restores, "reconcile_only restored");
    assert_eq!(phase(world, &s.reference), Some(Phase::Settled));
}
