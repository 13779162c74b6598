//! Declarations, create, info, kill and what lies between them (V01 to V18, V23, V34, V37, V41, V43, V49).

use oac_model::{Digest, OperationId, Reference, StoreId};
use oac_wire::shapes::{Bootstrap, Compute, Info, Opaque, Operation, Resume, Retained, Suspend};

use super::{Arrange, Lost, Outcome, Step, World, code, is_running, is_settled_absent, later, soon};
use crate::{CreateFailure, Failure, Support, arrange};

pub(super) async fn declarations_are_well_formed(world: &dyn World) -> Outcome {
    let provider = world.provider();
    let all = provider.declarations();
    for operation in Operation::ALL {
        if let Support::Unsupported(reason) = all.support(*operation) {
            let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(
                (1..=64).contains(&reason.len()) && reason.bytes().all(token),
                "{reason}"
            );
        }
    }
    Outcome::Proven
}

pub(super) async fn unsupported_makes_no_call(world: &dyn World) -> Outcome {
    let (b, made) = created(world).await;
    refuses_unsupported(world).await;
    assert_eq!(
        info(world, &b.reference).await.unwrap(),
        made,
        "a refusal touched a sandbox"
    );
    Outcome::Proven
}

fn compute(generation: i64, parent: Option<Retained>) -> Compute {
    Compute {
        generation,
        name: "compute".into(),
        id: Some("id".to_owned()).into(),
        restored_from: parent.into(),
    }
}

fn retained() -> Retained {
    Retained {
        operation_id: OperationId::random(),
        source_generation: 0,
        source_name: "compute".into(),
        source_id: "id".into(),
        store_id: StoreId::random(),
        execution_class: Digest::of("class"),
        digest: Digest::of("manifest"),
        size_bytes: 1,
        data: Opaque(serde_json::value::RawValue::from_string("{}".into()).unwrap()),
    }
}

/// Every declared refusal is answered as declared, and nothing native is called.
pub(super) async fn refuses_unsupported(world: &dyn World) {
    let provider = world.provider();
    let r = world.bootstrap().reference;
    let calls = world.calls();
    let check = |operation: Operation, result: Result<(), Failure>| {
        let Support::Unsupported(declared) = provider.declarations().support(operation) else {
            return;
        };
        match result {
            Err(Failure::Unsupported {
                operation: named,
                reason,
            }) => {
                assert_eq!((named, reason), (operation, declared));
            }
            other => panic!("{operation:?} is declared unsupported but answered {other:?}"),
        }
    };
    let unsupported = |o| matches!(provider.declarations().support(o), Support::Unsupported(_));
    let (first, kept) = (compute(0, None), retained());
    let command = oac_wire::shapes::Command {
        args: vec![world.tool()],
        directory: String::new(),
        stdin: None,
    };
    let by = later();
    for operation in Operation::ALL.iter().copied().filter(|o| unsupported(*o)) {
        let result = match operation {
            Operation::Initial => provider.initial(&r, by).await.map(drop),
            Operation::NewCompute => provider.new_compute(&r, 1, Some(&kept), by).await.map(drop),
            Operation::Compute => provider.compute(&r, &first, by).await.map(drop),
            Operation::KillCompute => provider.kill_compute(&r, &first, by).await,
            Operation::ResumeCompute => provider.resume_compute(&r, &first, by).await.map(drop),
            Operation::CommandCompute => provider.command_compute(&r, &first, &command, by).await.map(drop),
            Operation::Suspend => {
                let mut s = Suspend {
                    reference: r,
                    operation_id: OperationId::random(),
                    source: first.clone(),
                    retained: None.into(),
                    reconcile_only: true,
                };
                check(operation, provider.suspend(&s, by).await.map(drop));
                s.reconcile_only = false;
                provider.suspend(&s, by).await.map(drop)
            }
            Operation::Resume => {
                let mut s = Resume {
                    reference: r,
                    operation_id: OperationId::random(),
                    retained: kept.clone(),
                    target: compute(1, Some(kept.clone())),
                    reconcile_only: true,
                    workspace: None.into(),
                };
                check(operation, provider.resume(&s, by).await.map(drop));
                s.reconcile_only = false;
                provider.resume(&s, by).await.map(drop)
            }
            Operation::DeleteRetained => provider.delete_retained(&r, &kept, by).await,
            supported => panic!("every backend supports {supported:?}"),
        };
        check(operation, result);
    }
    assert_eq!(world.calls(), calls, "a refusal made a native call");
}

/// Reached only by a backend that declares checkpoints, whose cases are not written yet: it must fail.
pub(super) async fn needs_an_adapter_with_checkpoints(_: &dyn World) -> Outcome {
    Outcome::NotArranged("the suite has no checkpoint cases yet")
}

async fn created(world: &dyn World) -> (Bootstrap, Info) {
    let bootstrap = world.bootstrap();
    let info = world.provider().create(&bootstrap, later()).await.unwrap();
    is_running(&info, &bootstrap.reference);
    (bootstrap, info)
}

async fn info(world: &dyn World, r: &Reference) -> Result<Info, Failure> {
    world.provider().info(r, later()).await
}

async fn create_code(world: &dyn World, b: &Bootstrap) -> &'static str {
    let CreateFailure { failure, receipt } = world.provider().create(b, later()).await.unwrap_err();
    assert_eq!(receipt, None);
    failure.code()
}

pub(super) async fn create_then_info(world: &dyn World) -> Outcome {
    let (b, made) = created(world).await;
    let seen = info(world, &b.reference).await.unwrap();
    assert_eq!(seen, made);
    assert_eq!(world.provider().renew(&b.reference, later()).await.unwrap(), made);
    Outcome::Proven
}

pub(super) async fn create_twice(world: &dyn World) -> Outcome {
    let (b, made) = created(world).await;
    let before = world.present(&b.reference).await;
    assert_eq!(create_code(world, &b).await, "exists");
    assert_eq!(world.present(&b.reference).await, before);
    assert_eq!(info(world, &b.reference).await.unwrap(), made);
    Outcome::Proven
}

pub(super) async fn name_held_by_a_foreigner(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::ForeignHolder(b.reference));
    let before = world.present(&b.reference).await;
    assert!(!before.is_empty());
    assert_eq!(create_code(world, &b).await, "ownership");
    assert_eq!(code(info(world, &b.reference).await), "ownership");
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "ownership"
    );
    assert_eq!(world.present(&b.reference).await, before);
    Outcome::Proven
}

pub(super) async fn resource_mismatch(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::WrongNextCreate);
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "invalid");
    let receipt = failed.receipt.expect("a mismatch settles");
    assert!(receipt.is_settled_receipt_of(&b.reference) && !receipt.provider_id.is_empty());
    assert!(!receipt.bootstrap_complete);
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    Outcome::Proven
}

pub(super) async fn native_create_rejected(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::RejectNextCreate);
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    is_settled_absent(&failed.receipt.expect("a rejection settles"), &b.reference, false);
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    assert!(world.present(&b.reference).await.is_empty());
    Outcome::Proven
}

pub(super) async fn crash_before_the_first_effect(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::Lose(Step::FirstEffect, Lost::Before));
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    arrange!(world, Arrange::RestartNode);
    assert_eq!(code(info(world, &b.reference).await), "not_found");
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    Outcome::Proven
}

pub(super) async fn crash_before_bootstrap(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::Lose(Step::Bootstrap, Lost::Before));
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    arrange!(world, Arrange::RestartNode);
    let seen = info(world, &b.reference).await.unwrap();
    assert!(!seen.provider_id.is_empty() && !seen.bootstrap_complete && !seen.create_settled);
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
    Outcome::Proven
}

pub(super) async fn lost_create_response(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    arrange!(world, Arrange::Lose(Step::Start, Lost::After));
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    arrange!(world, Arrange::RestartNode);
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    // Adopted means that the receipt is settled: removed outside, it is lost.
    arrange!(world, Arrange::RemoveCompute(b.reference));
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
    Outcome::Proven
}

pub(super) async fn kill_on_nothing(world: &dyn World) -> Outcome {
    let b = world.bootstrap();
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    let calls = world.calls();
    assert_eq!(create_code(world, &b).await, "exists");
    assert_eq!(
        world.calls(),
        calls,
        "create after a tombstone made a native call"
    );
    world.provider().kill(&b.reference, later()).await.unwrap();
    Outcome::Proven
}

pub(super) async fn kill_with_one_foreign_resource(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    arrange!(world, Arrange::ForeignPart(b.reference));
    let before = world.present(&b.reference).await;
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "ownership"
    );
    assert_eq!(world.present(&b.reference).await, before);
    Outcome::Proven
}

pub(super) async fn removal_not_confirmed(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    arrange!(world, Arrange::KeepOnRemoval(true));
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "unconfirmed"
    );
    arrange!(world, Arrange::RestartNode);
    // No tombstone: what is there is still answered, and nothing is answered as absent.
    let seen = info(world, &b.reference).await.unwrap();
    assert_ne!(seen.state, Info::ABSENT);
    arrange!(world, Arrange::KeepOnRemoval(false));
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    Outcome::Proven
}

pub(super) async fn removed_outside(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    arrange!(world, Arrange::RemoveCompute(b.reference));
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    assert!(world.present(&b.reference).await.is_empty(), "leftovers went too");
    Outcome::Proven
}

pub(super) async fn ended_compute(world: &dyn World) -> Outcome {
    let (b, made) = created(world).await;
    arrange!(world, Arrange::EndCompute(b.reference));
    let seen = info(world, &b.reference).await.unwrap();
    assert_eq!(
        (seen.state.as_str(), &seen.provider_id),
        ("ended", &made.provider_id)
    );
    assert!(seen.create_settled && !seen.compute_lost && !seen.bootstrap_complete);
    arrange!(world, Arrange::Reboot);
    arrange!(world, Arrange::Steady);
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
    assert!(
        !world.present(&b.reference).await.is_empty(),
        "a loss removes nothing"
    );
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
    Outcome::Proven
}

pub(super) async fn inventory_failure(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    arrange!(world, Arrange::RemoveCompute(b.reference));
    arrange!(world, Arrange::FailInventory(true));
    assert_eq!(code(info(world, &b.reference).await), "unconfirmed");
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "unconfirmed"
    );
    arrange!(world, Arrange::FailInventory(false));
    let fresh = world.bootstrap().reference;
    arrange!(world, Arrange::FailInventory(true));
    assert_eq!(code(info(world, &fresh).await), "unconfirmed");
    Outcome::Proven
}

pub(super) async fn not_found_without_receipt(world: &dyn World) -> Outcome {
    let r = world.bootstrap().reference;
    assert_eq!(code(info(world, &r).await), "not_found");
    Outcome::Proven
}

pub(super) async fn deadline_ends_the_wait_alone(world: &dyn World) -> Outcome {
    let provider = world.provider();
    let b = world.bootstrap();
    arrange!(world, Arrange::Hold(Step::Start));
    let failed = provider.create(&b, soon()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "unconfirmed");
    arrange!(world, Arrange::AwaitHeld);
    let calls = world.calls();
    assert_eq!(code(provider.kill(&b.reference, soon()).await), "unconfirmed");
    assert_eq!(
        world.calls(),
        calls,
        "an operation started beside unfinished native work"
    );
    let next = provider.info(&b.reference, later());
    let release = world.arrange(Arrange::Release);
    // Polled in this order: info is in the queue before the work goes on.
    let (next, released) = join(next, release).await;
    assert!(released);
    is_running(&next.unwrap(), &b.reference);
    provider.idle(&b.reference).await;
    Outcome::Proven
}

/// Polls `a` first.
async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(biased; a, b)
}

pub(super) async fn secrets_stay_in_the_bootstrap(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    let shown = world.shown(&b.reference).await;
    assert!(!shown.is_empty());
    let secret = b.link.credential.expose();
    assert!(!shown.contains(secret), "the link credential is shown natively");

    let mut failures = Vec::new();
    for arrangement in [
        Arrange::RejectNextCreate,
        Arrange::WrongNextCreate,
        Arrange::Lose(Step::Bootstrap, Lost::After),
    ] {
        let mut other = world.bootstrap();
        other.link.credential = b.link.credential.clone();
        arrange!(world, arrangement);
        failures.push(world.provider().create(&other, later()).await.unwrap_err());
    }
    for failed in failures {
        let texts = format!("{failed:?} {failed} {} {:?}", failed.failure, failed.receipt);
        assert!(!texts.contains(secret), "the link credential is in an error");
    }
    Outcome::Proven
}

pub(super) async fn another_host(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    let (gone, _) = created(world).await;
    arrange!(world, Arrange::RemoveCompute(gone.reference));
    let fresh = world.bootstrap();
    let before = world.present(&b.reference).await;
    arrange!(world, Arrange::OtherHost(true));
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
    assert_eq!(
        world.calls(),
        calls,
        "a refusal on another host made a native call"
    );
    assert!(world.provider().sweep().await.is_ok());
    if let Ok(seen) = info(world, &gone.reference).await {
        assert!(!seen.compute_lost);
    }
    arrange!(world, Arrange::Reboot);
    arrange!(world, Arrange::Steady);
    if let Ok(seen) = info(world, &gone.reference).await {
        assert!(!seen.compute_lost);
    }
    assert_eq!(world.present(&b.reference).await, before);
    arrange!(world, Arrange::OtherHost(false));
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
    Outcome::Proven
}

pub(super) async fn live_after_a_reboot(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    arrange!(world, Arrange::Reboot);
    arrange!(world, Arrange::Steady);
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    arrange!(world, Arrange::EndCompute(b.reference));
    let seen = info(world, &b.reference).await.unwrap();
    assert_eq!(seen.state, "ended", "it ended in the boot that info stored");
    assert!(!seen.compute_lost);
    Outcome::Proven
}

pub(super) async fn late_call_under_a_tombstone(world: &dyn World) -> Outcome {
    let (kept, _) = created(world).await;
    let b = world.bootstrap();
    let twin = world.bootstrap().reference;
    world.provider().kill(&twin, later()).await.unwrap();
    arrange!(world, Arrange::ForeignTwin(twin));
    arrange!(world, Arrange::Delay(Step::Create));
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    arrange!(world, Arrange::RestartNode);
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    arrange!(world, Arrange::Deliver);
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
    Outcome::Proven
}

pub(super) async fn reboot_without_sixty_seconds(world: &dyn World) -> Outcome {
    let (b, _) = created(world).await;
    let (gone, _) = created(world).await;
    arrange!(world, Arrange::EndCompute(b.reference));
    arrange!(world, Arrange::RemoveCompute(gone.reference));
    arrange!(world, Arrange::Reboot);
    let seen = info(world, &b.reference).await.unwrap();
    assert!(!seen.compute_lost && !seen.provider_id.is_empty());
    assert_eq!(code(info(world, &gone.reference).await), "unconfirmed");
    arrange!(world, Arrange::RestartCompute(b.reference));
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    arrange!(world, Arrange::Steady);
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    is_settled_absent(
        &info(world, &gone.reference).await.unwrap(),
        &gone.reference,
        true,
    );
    Outcome::Proven
}
