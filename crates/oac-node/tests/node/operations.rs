//! All fifteen operations from a frame to the provider and back, and every way each of them can fail.

use oac_model::{ComputePhase, DiagnosticCode, Digest, Reference, Time};
use oac_peer::FailureCode;
use oac_provider::{Cause, Failure};
use oac_wire::{
    B64, NodeFrame, Nullable,
    frames::{Arguments, ResponseResult},
    shapes::{
        Command, Compute, ComputeState, Observation, ObservationMode, ObservedInstance, Opaque, Operation,
        Resume, Retained, Sample, Suspend, Unsupported,
    },
};

use crate::{
    installation::{Installation, connected},
    provider::{PRIVATE_TEXT, Reply, scripted_with},
    scripted_core::{Link, ScriptedCore},
    shapes::{create, output, reference, response, running, uuid},
};

fn retained() -> Retained {
    Retained {
        operation_id: uuid(9, 1).parse().unwrap(),
        source_generation: 0,
        source_name: "source".into(),
        source_id: "id".into(),
        store_id: uuid(10, 1).parse().unwrap(),
        execution_class: Digest::of("class"),
        digest: Digest::of("checkpoint"),
        size_bytes: 5,
        // Not as a serializer would write it.
        data: Opaque(serde_json::value::RawValue::from_string(r#"{"b" : 1.50,"a":null}"#.into()).unwrap()),
    }
}

fn compute(parent: Option<Retained>) -> Compute {
    Compute {
        generation: i64::from(parent.is_some()),
        name: "name".into(),
        id: Nullable(Some("id".into())),
        restored_from: Nullable(parent),
    }
}

fn state(compute: Compute, retained: Option<Retained>) -> Option<ResponseResult> {
    Some(ResponseResult::State(Box::new(ComputeState {
        compute,
        status: "running".into(),
        bootstrap_complete: true,
        retained: Nullable(retained),
        resources_released: false,
        suspend_settled: true,
    })))
}

/// Every operation with arguments for `here`, and the result its row names.
fn operations(here: Reference) -> Vec<(Arguments, Option<ResponseResult>)> {
    let info = || Some(ResponseResult::Info(running(here)));
    let result = || Some(ResponseResult::Command(output(vec![0xff, 0])));
    let derived = |c: Compute| Some(ResponseResult::Compute(Box::new(c)));
    let command = || Command {
        args: vec!["cat".into()],
        directory: "/workspace".into(),
        stdin: Some(B64(vec![1, 2, 3])),
    };
    let sample = Sample {
        observed_at: Time::from_millis(1_700_000_000_000).unwrap(),
        started_at: Nullable(None),
        cpu_usage_seconds_total: Nullable(Some(1.5)),
        cpu_capacity_cores: Nullable(None),
        cpu_utilization_ratio: None,
        memory_usage_bytes: Nullable(Some(1)),
        memory_limit_bytes: Nullable(None),
        disk_usage_bytes: None,
        disk_limit_bytes: None,
    };
    let observation = Observation {
        mode: ObservationMode::Managed,
        session_id: uuid(8, 1).parse().unwrap(),
        instance: ObservedInstance {
            provider_key: uuid(1, 1).parse().unwrap(),
            compute_phase: ComputePhase::Running,
            compute: Nullable(None),
        },
    };
    let suspend = Suspend {
        reference: here,
        operation_id: uuid(9, 1).parse().unwrap(),
        source: compute(None),
        retained: Nullable(None),
        reconcile_only: false,
    };
    let target = compute(Some(retained()));
    let resume = Resume {
        reference: here,
        operation_id: uuid(9, 2).parse().unwrap(),
        retained: retained(),
        target: target.clone(),
        reconcile_only: false,
        workspace: Nullable(None),
    };
    let new_compute = Arguments::NewCompute {
        generation: 1.try_into().unwrap(),
        retained: Some(Box::new(retained())),
    };
    let plain = || Box::new(compute(None));
    vec![
        (create(here), info()),
        (Arguments::Info, info()),
        (Arguments::Renew, info()),
        (Arguments::Kill, None),
        (Arguments::Command(command()), result()),
        (
            Arguments::Observe(Box::new(observation)),
            Some(ResponseResult::Sample(sample)),
        ),
        (Arguments::Initial, derived(compute(None))),
        (new_compute, derived(target.clone())),
        (Arguments::Compute(plain()), state(compute(None), None)),
        (Arguments::KillCompute(plain()), None),
        (Arguments::ResumeCompute(plain()), state(compute(None), None)),
        (Arguments::CommandCompute(plain(), command()), result()),
        (
            Arguments::Suspend(Box::new(suspend)),
            state(compute(None), Some(retained())),
        ),
        (
            Arguments::Resume(Box::new(resume)),
            state(target, Some(retained())),
        ),
        (Arguments::DeleteRetained(Box::new(retained())), None),
    ]
}

// req: P-043, P-044, P-045, P-046, P-047, P-048, P-049, P-059, P-060
// inv: INV-P30
#[tokio::test]
async fn each_of_the_fifteen_operations_reaches_its_method_and_answers_the_result_of_its_row() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted_with(Operation::ALL);
    let node = installation.start(provider, 8);
    let (mut link, _) = core.greet().await;
    let all = operations(reference(0));
    let named: Vec<_> = all.iter().map(|o| o.0.operation()).collect();
    assert_eq!(named, Operation::ALL);
    for (arguments, result) in all {
        let operation = arguments.operation();
        let id = link.call(0, arguments).await;
        let called = calls.recv().await.unwrap();
        assert_eq!((called.operation, called.reference), (operation, reference(0)));
        called.reply(Reply::of(result.clone()));
        let answer = response(link.next().await);
        assert_eq!((answer.id, answer.error_code), (id, None), "{operation:?}");
        assert_eq!(answer.result, Ok(result), "{operation:?}");
    }
    let bytes = link
        .heard
        .iter()
        .filter(|t| t.contains(r#"{"b" : 1.50,"a":null}"#));
    assert_eq!(
        bytes.count(),
        3,
        "new_compute, suspend and resume gave `data` back byte for byte"
    );
    node.stop().await.unwrap();
}

// req: P-066, P-074
// inv: INV-P18
#[tokio::test]
async fn each_undeclared_operation_is_unsupported_with_its_method_and_reason_and_reaches_no_backend() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let mut refused = 0;
    for (arguments, _) in operations(reference(0)).into_iter().skip(6) {
        let operation = arguments.operation();
        link.call(0, arguments).await;
        let answer = response(link.next().await);
        assert_eq!(answer.error_code.as_deref(), Some("unsupported"));
        let evidence = Unsupported {
            operation: operation.method().into(),
            reason: "scripted_reason".into(),
        };
        assert_eq!(answer.result, Ok(Some(ResponseResult::Unsupported(evidence))));
        refused += 1;
    }
    assert_eq!(refused, 9);
    assert!(calls.try_recv().is_err());
    node.stop().await.unwrap();
}

type Fail = fn(Cause) -> Failure;

/// Every class, with the code it leaves as.
const FAILURES: [(Fail, FailureCode); 8] = [
    (
        Failure::ObservationUnavailable,
        FailureCode::ObservationUnavailable,
    ),
    (|_| Failure::RuntimeNotRunning, FailureCode::RuntimeNotRunning),
    (Failure::Invalid, FailureCode::Invalid),
    (Failure::Ownership, FailureCode::Ownership),
    (Failure::Exists, FailureCode::Exists),
    (|_| Failure::NotFound, FailureCode::NotFound),
    (Failure::CommandUnconfirmed, FailureCode::CommandUnconfirmed),
    (Failure::Unconfirmed, FailureCode::Unconfirmed),
];

fn reveals(text: &str) -> bool {
    [
        PRIVATE_TEXT,
        "secret",
        "/var/lib",
        "link-credential",
        "/workspace",
    ]
    .iter()
    .any(|private| text.contains(private))
}

async fn fails(
    link: &mut Link,
    calls: &mut crate::provider::Calls,
    arguments: Arguments,
    failure: Failure,
) -> String {
    link.call(0, arguments).await;
    let called = calls.recv().await.unwrap();
    // Whatever a failed create claims to have made, only a settled receipt of this reference may leave.
    let receipt = oac_wire::shapes::Info {
        provider_id: PRIVATE_TEXT.into(),
        create_settled: false,
        bootstrap_complete: false,
        ..running(reference(0))
    };
    called.reply(Reply::Failed(failure, Some(receipt)));
    let answer = response(link.next().await);
    assert_eq!(answer.result, Ok(None));
    answer.error_code.unwrap()
}

// req: P-036, P-061, P-184
// inv: INV-P19, INV-P20, INV-N35
#[tokio::test]
async fn whatever_fails_in_the_provider_leaves_as_its_code_and_no_frame_holds_a_word_of_it() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted_with(Operation::ALL);
    let node = installation.start(provider.clone(), 8);
    let (mut link, _) = core.greet().await;
    for (arguments, _) in operations(reference(0)) {
        for (fail, code) in FAILURES {
            let failure = fail(Cause::new(PRIVATE_TEXT));
            let operation = arguments.operation();
            let said = fails(&mut link, &mut calls, arguments.clone(), failure).await;
            assert_eq!(said, code.as_str(), "{operation:?}");
        }
        // A call that breaks says nothing either.
        link.call(0, arguments.clone()).await;
        drop(calls.recv().await.unwrap());
        let broken = response(link.next().await);
        assert_eq!(broken.error_code.as_deref(), Some("unconfirmed"));
    }
    // Nor does a probe, whatever it fails with.
    for code in [
        DiagnosticCode::ProviderUnavailable,
        DiagnosticCode::HostUnsupported,
        DiagnosticCode::CapacityInsufficient,
        DiagnosticCode::RuntimeImageUnavailable,
        DiagnosticCode::ArtifactsUnavailable,
    ] {
        *provider.probe.lock() = Err(code);
        node.skip(10);
        let NodeFrame::Heartbeat(heartbeat) = link.next().await else {
            panic!("a heartbeat is due");
        };
        assert_eq!(heartbeat.health.diagnostic.unwrap().0, code.as_str());
        link.acknowledge().await;
    }
    assert!(link.heard.len() > 140, "{} frames", link.heard.len());
    let revealing: Vec<_> = link.heard.iter().filter(|text| reveals(text)).collect();
    assert!(revealing.is_empty(), "{revealing:?}");
    node.stop().await.unwrap();
}
