//! Declarations, create, info, kill and what lies between them (V01 to V14, V16, V17, V23).

use oac_model::{Digest, OperationId, Reference, StoreId};
use oac_wire::shapes::{Bootstrap, Compute, Info, Opaque, Operation, Resume, Retained, Suspend};

use super::{Arrange, Lost, Step, World, code, is_running, is_settled_absent, later, phase, soon};
use crate::{CreateFailure, Failure, NativeWork, Phase, Support};

pub(super) async fn declarations_are_well_formed(world: &dyn World) {
    let provider = world.provider();
    let all = provider.declarations();
    assert_eq!(*all, world.declared(), "not what the backend is registered with");
    for operation in Operation::ALL {
        if let Support::Unsupported(reason) = all.support(*operation) {
            let token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(
                (1..=64).contains(&reason.len()) && reason.bytes().all(token),
                "{reason}"
            );
        }
    }
}

pub(super) async fn unsupported_makes_no_call(world: &dyn World) {
    let (b, made) = created(world).await;
    // Of what is not there, and of what is.
    for reference in [world.bootstrap().reference, b.reference] {
        let before = world.receipt(&reference);
        refuses_unsupported(world, reference).await;
        assert_eq!(world.receipt(&reference), before, "a refusal changed a receipt");
    }
    assert_eq!(
        info(world, &b.reference).await.unwrap(),
        made,
        "a refusal touched a sandbox"
    );
}

fn compute(generation: i64, parent: Option<Retained>) -> Compute {
    Compute {
        generation,
        name: "compute".into(),
        id: Some("id".to_owned()).into(),
        restored_from: parent.into(),
    }
}

pub(super) fn retained() -> Retained {
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
pub(super) async fn refuses_unsupported(world: &dyn World, r: Reference) {
    let provider = world.provider();
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

pub(super) async fn created(world: &dyn World) -> (Bootstrap, Info) {
    let bootstrap = world.bootstrap();
    let info = world.provider().create(&bootstrap, later()).await.unwrap();
    is_running(&info, &bootstrap.reference);
    (bootstrap, info)
}

pub(super) async fn info(world: &dyn World, r: &Reference) -> Result<Info, Failure> {
    world.provider().info(r, later()).await
}

pub(super) async fn create_code(world: &dyn World, b: &Bootstrap) -> &'static str {
    let CreateFailure { failure, receipt } = world.provider().create(b, later()).await.unwrap_err();
    assert_eq!(receipt, None);
    failure.code()
}

pub(super) async fn create_then_info(world: &dyn World) {
    let (b, made) = created(world).await;
    assert_eq!(
        phase(world, &b.reference),
        Some(Phase::Settled),
        "answered before it was durable"
    );
    let seen = info(world, &b.reference).await.unwrap();
    assert_eq!(seen, made);
    assert_eq!(world.provider().renew(&b.reference, later()).await.unwrap(), made);
}

pub(super) async fn create_twice(world: &dyn World) {
    let (b, made) = created(world).await;
    let before = world.present(&b.reference).await;
    assert_eq!(create_code(world, &b).await, "exists");
    assert_eq!(world.present(&b.reference).await, before);
    assert_eq!(info(world, &b.reference).await.unwrap(), made);
}

pub(super) async fn name_held_by_a_foreigner(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::ForeignHolder(b.reference)).await;
    let before = world.present(&b.reference).await;
    assert!(!before.is_empty());
    assert_eq!(create_code(world, &b).await, "ownership");
    assert_eq!(code(info(world, &b.reference).await), "ownership");
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "ownership"
    );
    assert_eq!(world.present(&b.reference).await, before);
}

pub(super) async fn resource_mismatch(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::Spoil(Step::Create)).await;
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "invalid");
    let receipt = failed.receipt.expect("a mismatch settles");
    assert!(receipt.is_settled_receipt_of(&b.reference) && !receipt.provider_id.is_empty());
    assert!(!receipt.bootstrap_complete);
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
}

pub(super) async fn native_create_rejected(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::Reject(Step::Create)).await;
    let failed = world.provider().create(&b, later()).await.unwrap_err();
    is_settled_absent(&failed.receipt.expect("a rejection settles"), &b.reference, false);
    assert_eq!(phase(world, &b.reference), Some(Phase::Tombstone));
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    assert!(world.present(&b.reference).await.is_empty());
}

pub(super) async fn crash_before_the_first_effect(world: &dyn World) {
    let b = world.bootstrap();
    world
        .arrange(Arrange::Lose(Step::FirstEffect, Lost::Before))
        .await;
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    assert_eq!(
        phase(world, &b.reference),
        Some(Phase::Creating),
        "no receipt before the effect"
    );
    world.arrange(Arrange::RestartNode).await;
    assert_eq!(code(info(world, &b.reference).await), "not_found");
    let killed = world.provider().kill(&b.reference, later()).await;
    if world.declared().native_work() == NativeWork::Service {
        // The service may still make it: only an operator may say that it will not.
        assert_eq!(code(killed), "unconfirmed");
        assert_eq!(phase(world, &b.reference), Some(Phase::Creating));
        world.arrange(Arrange::Discard(b.reference)).await;
    } else {
        killed.unwrap();
    }
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
}

pub(super) async fn crash_before_bootstrap(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::Lose(Step::Bootstrap, Lost::Before)).await;
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    let seen = info(world, &b.reference).await.unwrap();
    assert!(!seen.provider_id.is_empty() && !seen.bootstrap_complete && !seen.create_settled);
    world.provider().kill(&b.reference, later()).await.unwrap();
    assert!(world.present(&b.reference).await.is_empty());
}

pub(super) async fn lost_create_response(world: &dyn World) {
    let b = world.bootstrap();
    world.arrange(Arrange::Lose(Step::Start, Lost::After)).await;
    assert_eq!(create_code(world, &b).await, "unconfirmed");
    world.arrange(Arrange::RestartNode).await;
    is_running(&info(world, &b.reference).await.unwrap(), &b.reference);
    assert_eq!(phase(world, &b.reference), Some(Phase::Settled));
    // Removed outside, what was adopted is lost.
    world.arrange(Arrange::RemoveCompute(b.reference)).await;
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
}

pub(super) async fn kill_on_nothing(world: &dyn World) {
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
}

pub(super) async fn kill_with_one_foreign_resource(world: &dyn World) {
    let (b, _) = created(world).await;
    world.arrange(Arrange::ForeignPart(b.reference)).await;
    let before = world.present(&b.reference).await;
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "ownership"
    );
    assert_eq!(world.present(&b.reference).await, before);
}

pub(super) async fn removal_not_confirmed(world: &dyn World) {
    let (b, _) = created(world).await;
    world.arrange(Arrange::KeepOnRemoval(true)).await;
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "unconfirmed"
    );
    assert_eq!(phase(world, &b.reference), Some(Phase::Killing));
    world.arrange(Arrange::RestartNode).await;
    // No tombstone: what is there is still answered, and nothing is answered as absent.
    let seen = info(world, &b.reference).await.unwrap();
    assert_ne!(seen.state, Info::ABSENT);
    world.arrange(Arrange::KeepOnRemoval(false)).await;
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
}

pub(super) async fn removed_outside(world: &dyn World) {
    let (b, _) = created(world).await;
    world.arrange(Arrange::RemoveCompute(b.reference)).await;
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, true);
    world.provider().kill(&b.reference, later()).await.unwrap();
    is_settled_absent(&info(world, &b.reference).await.unwrap(), &b.reference, false);
    assert!(world.present(&b.reference).await.is_empty(), "leftovers went too");
}

pub(super) async fn inventory_failure(world: &dyn World) {
    let (b, _) = created(world).await;
    world.arrange(Arrange::RemoveCompute(b.reference)).await;
    world.arrange(Arrange::FailInventory(true)).await;
    assert_eq!(code(info(world, &b.reference).await), "unconfirmed");
    assert_eq!(
        code(world.provider().kill(&b.reference, later()).await),
        "unconfirmed"
    );
    assert_ne!(phase(world, &b.reference), Some(Phase::Tombstone));
    world.arrange(Arrange::FailInventory(false)).await;
    let fresh = world.bootstrap().reference;
    world.arrange(Arrange::FailInventory(true)).await;
    assert_eq!(code(info(world, &fresh).await), "unconfirmed");
}

pub(super) async fn not_found_without_receipt(world: &dyn World) {
    let r = world.bootstrap().reference;
    assert_eq!(code(info(world, &r).await), "not_found");
    assert_eq!(phase(world, &r), None, "a lookup wrote a receipt");
}

pub(super) async fn deadline_ends_the_wait_alone(world: &dyn World) {
    let provider = world.provider();
    let b = world.bootstrap();
    world.arrange(Arrange::Hold(Step::Start)).await;
    let failed = provider.create(&b, soon()).await.unwrap_err();
    assert_eq!(failed.failure.code(), "unconfirmed");
    world.arrange(Arrange::AwaitHeld).await;
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
    let (next, ()) = join(next, release).await;
    is_running(&next.unwrap(), &b.reference);
    provider.idle(&b.reference).await;
}

/// Polls `a` first.
async fn join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(biased; a, b)
}
