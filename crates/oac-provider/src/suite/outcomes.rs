//! What other worlds make of the same: other hosts and boots, late native work, secrets, probes and network access (V15,
//! V33 to V37, V41, V43, V44, V49).

use oac_model::{NetworkAccess, Reference};

use super::{
    Arrange, Lost, Needs, Step, World, checkpoints, code, is_running, is_settled_absent, later,
    lifecycle::{create_code, created, info},
    phase, soon,
};
use crate::{Failure, NativeWork, Phase};

pub(super) async fn ended_compute(world: &dyn World) {
    let (b, made) = created(world).await;
    world.arrange(Arrange::EndCompute(b.reference)).await;
    if world.declared().native_work() == NativeWork::Engine {
        stays_ended(world, &b.reference, &made.provider_id).await;
        world.arrange(Arrange::Reboot).await;
        world.arrange(Arrange::Steady).await;
    }
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
    assert!(
        !world.present(&b.reference).await.is_empty(),
        "a loss removes nothing"
    );
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
}

/// An ended compute of this boot may be started again: it is not lost.
async fn stays_ended(world: &dyn World, reference: &Reference, provider_id: &str) {
    let seen = info(world, reference).await.unwrap();
    assert_eq!(
        (seen.state.as_str(), seen.provider_id.as_str()),
        ("ended", provider_id)
    );
    assert!(seen.create_settled && !seen.compute_lost && !seen.bootstrap_complete);
}

pub(super) async fn secrets_stay_in_the_bootstrap(world: &dyn World) {
    let (b, _) = created(world).await;
    let shown = world.shown(&b.reference).await;
    assert!(!shown.is_empty());
    let secret = b.link.credential.expose();
    assert!(!shown.contains(secret), "the link credential is shown natively");

    let mut failures = Vec::new();
    for arrangement in [
        Arrange::Reject(Step::Create),
        Arrange::Spoil(Step::Create),
        Arrange::Lose(Step::Bootstrap, Lost::After),
    ] {
        let mut other = world.bootstrap();
        other.link.credential = b.link.credential.clone();
        world.arrange(arrangement).await;
        failures.push(world.provider().create(&other, later()).await.unwrap_err());
    }
    for failed in failures {
        let texts = format!("{failed:?} {failed} {} {:?}", failed.failure, failed.receipt);
        assert!(!texts.contains(secret), "the link credential is in an error");
    }
}

pub(super) async fn another_host(world: &dyn World) {
    let (b, _) = created(world).await;
    let (gone, _) = created(world).await;
    world.arrange(Arrange::RemoveCompute(gone.reference)).await;
    let fresh = world.bootstrap();
    let before = world.present(&b.reference).await;
    world.arrange(Arrange::OtherHost(true)).await;
    let calls = world.calls();
    assert_eq!(create_code(world, &fresh).await, "unconfirmed");
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "unconfirmed"
    );
    assert_eq!(
        code(world.provider().kill(&fresh.reference, later()).await),
        "unconfirmed"
    );
    if Needs::Checkpoints.missing(&world.declared()).is_none() {
        checkpoints::refused_elsewhere(world, &b.reference).await;
    }
    assert_eq!(
        world.calls(),
        calls,
        "a refusal on another host made a native call"
    );
    assert!(world.provider().sweep().await.is_ok());
    if let Ok(seen) = info(world, &gone.reference).await {
        assert!(!seen.compute_lost);
    }
    world.arrange(Arrange::Reboot).await;
    world.arrange(Arrange::Steady).await;
    if let Ok(seen) = info(world, &gone.reference).await {
        assert!(!seen.compute_lost);
    }
    assert_eq!(world.present(&b.reference).await, before);
    world.arrange(Arrange::OtherHost(false)).await;
    is_running(
        &world.provider().create(&fresh, later()).await.unwrap(),
        &fresh.reference,
    );
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(
        &info(world, &gone.reference).await.unwrap(),
        &gone.reference,
        true,
    );
}

pub(super) async fn live_after_a_reboot(world: &dyn World) {
    let (b, made) = created(world).await;
    let before = world.receipt(&b.reference).unwrap().boot_id;
    world.arrange(Arrange::Reboot).await;
    world.arrange(Arrange::Steady).await;
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    assert_ne!(
        world.receipt(&b.reference).unwrap().boot_id,
        before,
        "the boot was not stored"
    );
    world.arrange(Arrange::EndCompute(b.reference)).await;
    // It ended in the boot that info stored.
    match world.declared().native_work() {
        NativeWork::Engine => stays_ended(world, &b.reference, &made.provider_id).await,
        _ => is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true),
    }
}

pub(super) async fn late_call_under_a_tombstone(world: &dyn World) {
    let (kept, _) = created(world).await;
    let b = world.bootstrap();
    let twin = world.bootstrap().reference;
    world.provider().kill(&twin, later()).await.unwrap();
    world.arrange(Arrange::ForeignTwin(twin)).await;
    world.arrange(Arrange::Delay(Step::Create)).await;
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    world.arrange(Arrange::Deliver).await;
    assert_eq!(code(info(world, &b.reference).await), "unconfirmed");

    let (kept_before, twin_before) = (world.present(&kept.reference).await, world.present(&twin).await);
    let report = world.provider().sweep().await.unwrap();
    assert_eq!((report.removed, report.left), (1, 0));
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    assert!(world.present(&b.reference).await.is_empty());
    assert_eq!(world.present(&kept.reference).await, kept_before);
    assert_eq!(world.present(&twin).await, twin_before);
    assert_eq!(
        world.provider().sweep().await.unwrap(),
        crate::SweepReport::default()
    );
}

pub(super) async fn reboot_without_sixty_seconds(world: &dyn World) {
    let (b, _) = created(world).await;
    let (gone, _) = created(world).await;
    world.arrange(Arrange::EndCompute(b.reference)).await;
    world.arrange(Arrange::RemoveCompute(gone.reference)).await;
    world.arrange(Arrange::Reboot).await;
    let seen = info(world, &b.reference).await.unwrap();
    assert!(!seen.compute_lost && !seen.provider_id.is_empty());
    assert_eq!(code(info(world, &gone.reference).await), "unconfirmed");
    world.arrange(Arrange::RestartCompute(b.reference)).await;
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    world.arrange(Arrange::Steady).await;
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    is_settled_absent(
        &info(world, &gone.reference).await.unwrap(),
        &gone.reference,
        true,
    );
}

pub(super) async fn probe(world: &dyn World) {
    let checks = world.checks();
    assert!(!checks.is_empty());
    assert!(world.provider().probe(later()).await.is_ok());
    for (first, expected) in checks.iter().enumerate() {
        world.arrange(Arrange::FailChecks(first)).await;
        let failed = world.provider().probe(later()).await.unwrap_err();
        assert_eq!(failed.code, *expected, "check {first} and all after it fail");
        world.arrange(Arrange::Calm).await;
        assert!(
            world.provider().probe(later()).await.is_ok(),
            "check {first} was mended"
        );
    }
}

pub(super) async fn network_access(world: &dyn World) {
    let all = [
        NetworkAccess::None,
        NetworkAccess::Restricted,
        NetworkAccess::Public,
    ];
    let mut policies = Vec::new();
    for access in all {
        let mut b = world.bootstrap();
        b.network_access = access;
        if access == NetworkAccess::Restricted {
            b.allowed_domains = vec!["example.org".into()];
        }
        let calls = world.calls();
        let made = world.provider().create(&b, later()).await;
        if world.declared().enforces(access) {
            is_running(&made.unwrap(), &b.reference);
            let policy = world.policy(&b.reference).await;
            assert!(
                !policies.contains(&policy),
                "{access:?} is under another value's policy: {policy}"
            );
            policies.push(policy);
        } else {
            assert!(
                matches!(made.unwrap_err().failure, Failure::Invalid(_)),
                "{access:?}"
            );
            assert_eq!(
                world.calls(),
                calls,
                "{access:?} cannot be enforced and made a native call"
            );
            assert_eq!(phase(world, &b.reference), None);
        }
    }
    assert!(!policies.is_empty());
}

pub(super) async fn late_helper(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::Hold(Step::Start)).await;
    let failed = world.provider().create(&b, soon()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "unconfirmed");
    world.arrange(Arrange::AwaitHeld).await;
    world.arrange(Arrange::RestartNode).await;
    let (provider, r) = (world.provider(), b.reference);
    let (calls, before) = (world.calls(), world.receipt(&r));
    assert_eq!(code(provider.info(&r, later()).await), "unconfirmed");
    assert_eq!(code(provider.renew(&r, later()).await), "unconfirmed");
    assert_eq!(code(provider.kill(&r, later()).await), "unconfirmed");
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    assert_eq!(world.calls(), calls, "a native call beside the helper");
    assert_eq!(
        world.receipt(&r),
        before,
        "a receipt was written beside the helper"
    );
    world.arrange(Arrange::Release).await;
    world.arrange(Arrange::AwaitWork(r)).await;
    is_running(&info(world, &r).await.unwrap(), &r);
    provider.kill(&r, later()).await.unwrap();
    is_settled_absent(&info(world, &r).await.unwrap(), &r, false);
    assert!(world.present(&r).await.is_empty());
}

pub(super) async fn first_seen_by_kill(world: &dyn World) {
    let (b, r) = (world.bootstrap(), |b: &oac_wire::shapes::Bootstrap| b.reference);
    world.arrange(Arrange::Lose(Step::Create, Lost::After)).await;
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    assert_eq!(world.written(&r(&b)), [(Phase::Creating, None)]);
    world.arrange(Arrange::RestartNode).await;
    world.provider().kill(&r(&b), later()).await.unwrap();
    let written = world.written(&r(&b));
    let id = written[1].1.clone();
    assert!(id.is_some(), "{written:?}");
    let expected = [
        (Phase::Creating, None),
        (Phase::Creating, id.clone()),
        (Phase::Killing, id.clone()),
        (Phase::Tombstone, id),
    ];
    assert_eq!(written, expected);
    is_settled_absent(&info(world, &r(&b)).await.unwrap(), &r(&b), false);
    assert!(world.present(&r(&b)).await.is_empty());
}
