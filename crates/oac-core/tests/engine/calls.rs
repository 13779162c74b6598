//! Calling a node: every operation, what is never sent, and what a caller that goes away leaves behind.

use std::time::{Duration, Instant};

use oac_core::{
    hub::{CallOutcome, Refusal, Request},
    owner::OwnerHandle,
};
use oac_model::{
    AllocationId, AllocationState, ComputePhase, ConnectionId, Digest, EnvironmentId, NetworkAccess, NodeId,
    OperationId, ProjectId, ProviderKind, Reference, Secret, SessionId, StoreId, Time,
};
use oac_testkit::core::TestCore;
use oac_wire::{
    B64, CoreFrame, NodeFrame, Nullable,
    frames::{Arguments, Request as Frame, Response, ResponseResult},
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Link, LinkResource, LinkResourceKind,
        Observation, ObservationMode, ObservedInstance, Opaque, Operation, Resume, Retained, Sample, Suspend,
        Unsupported,
    },
};

use crate::{
    node::{Act, Greeted, Node, greet, health, receive, send},
    world::{self, On},
};

pub const LINK_CREDENTIAL: &str = "credential-of-a-link-that-nobody-logs";

pub fn reference() -> Reference {
    Reference {
        tenant_id: ProjectId::random(),
        environment_id: EnvironmentId::random(),
        allocation_id: AllocationId::random(),
    }
}

/// A call of `arguments` for a fresh allocation, or the one that they name.
pub async fn request(core: &TestCore, node: &Node, arguments: Arguments) -> Request {
    let row = core.core().store.single().node(node.id()).await.unwrap().unwrap();
    let reference = match &arguments {
        Arguments::Create(b) => b.reference,
        Arguments::Suspend(s) => s.reference,
        Arguments::Resume(r) => r.reference,
        _ => reference(),
    };
    Request {
        node_id: node.id(),
        generation: row.enrolled_generation,
        provider: ProviderKind::Docker,
        reference,
        arguments,
        on: None,
        wait: Duration::from_secs(60),
    }
}

fn retained() -> Retained {
    Retained {
        operation_id: OperationId::random(),
        source_generation: 0,
        source_name: "source".to_owned(),
        source_id: "id".to_owned(),
        store_id: StoreId::random(),
        execution_class: Digest::of("class"),
        digest: Digest::of("checkpoint"),
        size_bytes: 5,
        // Not as a serializer would write it.
        data: Opaque(
            serde_json::value::RawValue::from_string(r#"{"b" : 1.50,"a":null}"#.to_owned()).unwrap(),
        ),
    }
}

fn compute(parent: Option<Retained>) -> Compute {
    Compute {
        generation: i64::from(parent.is_some()),
        name: "name".to_owned(),
        id: Nullable(Some("id".to_owned())),
        restored_from: Nullable(parent),
    }
}

fn state(compute: Compute, retained: Option<Retained>) -> ResponseResult {
    ResponseResult::State(Box::new(ComputeState {
        compute,
        status: "running".to_owned(),
        bootstrap_complete: true,
        retained: Nullable(retained),
        resources_released: false,
        suspend_settled: true,
    }))
}

pub fn create(reference: Reference) -> Arguments {
    Arguments::Create(Box::new(Bootstrap {
        reference,
        session_id: SessionId::random(),
        network_access: NetworkAccess::Public,
        allowed_domains: Vec::new(),
        link: Link {
            version: 1,
            link_url: "ws://127.0.0.1:1/api/v1/sandbox-link".into(),
            credential: Secret::new(LINK_CREDENTIAL),
            resource: LinkResource {
                tenant_id: reference.tenant_id,
                environment_id: reference.environment_id,
                kind: LinkResourceKind::Allocation,
                id: reference.allocation_id,
                generation: 1.try_into().unwrap(),
            },
        },
        workspace: Nullable(None),
    }))
}

fn command() -> Command {
    Command {
        args: vec!["true".to_owned()],
        directory: String::new(),
        stdin: None,
    }
}

fn running(reference: Reference) -> Info {
    Info {
        reference,
        provider_id: "native".to_owned(),
        state: Info::RUNNING.to_owned(),
        bootstrap_complete: true,
        create_settled: true,
        compute_lost: false,
    }
}

/// Every operation with arguments, and the result its row names.
fn operations() -> Vec<(Reference, Arguments, Option<ResponseResult>)> {
    let info = |r: Reference| Some(ResponseResult::Info(running(r)));
    let output = CommandResult {
        stdout: B64(vec![0, 255]),
        stderr: B64(Vec::new()),
        stdout_truncated: false,
        stderr_truncated: true,
        exit_code: 3,
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
        session_id: SessionId::random(),
        instance: ObservedInstance {
            provider_key: oac_model::InstallationId::random(),
            compute_phase: ComputePhase::Running,
            compute: Nullable(Some(compute(None))),
        },
    };
    let kept = retained();
    let target = compute(Some(kept.clone()));
    let suspend = |reference| Suspend {
        reference,
        operation_id: OperationId::random(),
        source: compute(None),
        retained: Nullable(None),
        reconcile_only: false,
    };
    let resume = |reference| Resume {
        reference,
        operation_id: OperationId::random(),
        retained: kept.clone(),
        target: target.clone(),
        reconcile_only: false,
        workspace: Nullable(None),
    };
    let output = || Some(ResponseResult::Command(output.clone()));
    let derived = |c: &Compute| Some(ResponseResult::Compute(Box::new(c.clone())));
    let plain = Box::new(compute(None));
    let r: [Reference; 15] = std::array::from_fn(|_| reference());
    vec![
        (r[0], create(r[0]), info(r[0])),
        (r[1], Arguments::Info, info(r[1])),
        (r[2], Arguments::Renew, info(r[2])),
        (r[3], Arguments::Kill, None),
        (r[4], Arguments::Command(command()), output()),
        (
            r[5],
            Arguments::Observe(Box::new(observation)),
            Some(ResponseResult::Sample(sample)),
        ),
        (r[6], Arguments::Initial, derived(&plain)),
        (
            r[7],
            Arguments::NewCompute {
                generation: 1.try_into().unwrap(),
                retained: Some(Box::new(kept.clone())),
            },
            derived(&target),
        ),
        (
            r[8],
            Arguments::Compute(plain.clone()),
            Some(state(compute(None), None)),
        ),
        (r[9], Arguments::KillCompute(plain.clone()), None),
        (
            r[10],
            Arguments::ResumeCompute(plain.clone()),
            Some(state(compute(None), None)),
        ),
        (
            r[11],
            Arguments::CommandCompute(plain.clone(), command()),
            output(),
        ),
        (
            r[12],
            Arguments::Suspend(Box::new(suspend(r[12]))),
            Some(state(compute(None), Some(kept.clone()))),
        ),
        (
            r[13],
            Arguments::Resume(Box::new(resume(r[13]))),
            Some(state(target.clone(), Some(kept.clone()))),
        ),
        (r[14], Arguments::DeleteRetained(Box::new(kept.clone())), None),
    ]
}

async fn next(greeted: &mut Greeted) -> Frame {
    match receive(&mut greeted.socket).await {
        Some(CoreFrame::Request(request)) => *request,
        other => panic!("{other:?}"),
    }
}

async fn reply(greeted: &mut Greeted, to: &Frame, code: Option<&str>, result: Option<ResponseResult>) {
    let response = Response {
        id: to.id,
        connection_id: greeted.welcome.connection_id,
        error_code: code.map(str::to_owned),
        result: Ok(result),
    };
    send(&mut greeted.socket, &NodeFrame::Response(Box::new(response))).await;
}

// req: P-038, P-039, P-042, P-043, P-044, P-045, P-046, P-047, P-048, P-049, P-060
// inv: INV-P30
#[tokio::test]
async fn all_fifteen_operations_reach_the_node_with_their_arguments_and_bring_back_the_result_of_their_row() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let all = operations();
    let named: Vec<_> = all.iter().map(|o| o.1.operation()).collect();
    assert_eq!(named, Operation::ALL);
    for (index, (reference, arguments, result)) in all.into_iter().enumerate() {
        let operation = arguments.operation();
        let request = Request {
            reference,
            // The one that supports every operation.
            provider: ProviderKind::Microsandbox,
            ..request(&core, &node, arguments.clone()).await
        };
        let call = core.core().hub.call(&core.core().owner, request);
        let (outcome, frame) = tokio::join!(call, async {
            let frame = next(&mut greeted).await;
            reply(&mut greeted, &frame, None, result.clone()).await;
            frame
        });
        assert_eq!(outcome, CallOutcome::Ok(result), "{operation:?}");
        assert_eq!(frame.sequence, index as i64 + 1, "{operation:?}");
        let body = frame.body.unwrap();
        assert_eq!((body.reference, body.arguments), (reference, arguments));
        assert!((1..=60_000).contains(&body.timeout_ms), "{operation:?}");
    }
}

// req: P-072, P-074, P-076, P-078
// inv: INV-P18
#[tokio::test]
async fn what_docker_declares_unsupported_needs_no_node_and_a_node_s_own_word_for_it_is_unconfirmed() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let mut refused = 0;
    for (reference, arguments, _) in operations() {
        let operation = arguments.operation();
        let supported = oac_provider::declarations_of(ProviderKind::Docker)
            .unwrap()
            .require(operation)
            .is_ok();
        let of = request(&core, &node, arguments).await;
        // A node that does not exist would be unavailable.
        let nobody = Request {
            reference,
            node_id: NodeId::random(),
            ..of.clone()
        };
        let unsent = core.core().hub.call(&core.core().owner, nobody).await;
        if !supported {
            refused += 1;
            assert_eq!(unsent, CallOutcome::Unsupported, "{operation:?}");
            continue;
        }
        assert_eq!(unsent, CallOutcome::Unavailable, "{operation:?}");
        let evidence = ResponseResult::Unsupported(Unsupported {
            operation: operation.method().to_owned(),
            reason: oac_provider::DOCKER_REASON.to_owned(),
        });
        let call = core
            .core()
            .hub
            .call(&core.core().owner, Request { reference, ..of });
        let (outcome, ()) = tokio::join!(call, async {
            let frame = next(&mut greeted).await;
            reply(&mut greeted, &frame, Some("unsupported"), Some(evidence)).await;
        });
        let expected = match operation {
            Operation::Command => CallOutcome::Refused {
                code: Refusal::CommandUnconfirmed,
                receipt: None,
            },
            Operation::Observe => CallOutcome::Refused {
                code: Refusal::ObservationUnavailable,
                receipt: None,
            },
            _ => CallOutcome::Unconfirmed,
        };
        assert_eq!(outcome, expected, "{operation:?}");
    }
    assert_eq!(refused, 9);
}

// req: P-054
#[tokio::test]
async fn a_call_stored_for_another_connection_generation_or_a_node_that_is_not_ready_is_never_sent() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(false)).await.unwrap();
    let good = request(&core, &node, Arguments::Info).await;
    let other_connection = Request {
        on: Some(ConnectionId::random()),
        ..good.clone()
    };
    let other_generation = Request {
        generation: good.generation.next().unwrap(),
        ..good.clone()
    };
    let unready = request(&core, &node, create(reference())).await;
    let no_time = Request {
        wait: Duration::ZERO,
        ..good.clone()
    };
    for unsent in [other_connection, other_generation, unready, no_time] {
        let outcome = core.core().hub.call(&core.core().owner, unsent).await;
        assert_eq!(outcome, CallOutcome::Unavailable);
    }
    let on_this = Request {
        on: Some(greeted.welcome.connection_id),
        ..good
    };
    let reference = on_this.reference;
    let call = core.core().hub.call(&core.core().owner, on_this);
    let (outcome, sequence) = tokio::join!(call, async {
        let frame = next(&mut greeted).await;
        reply(
            &mut greeted,
            &frame,
            None,
            Some(ResponseResult::Info(running(reference))),
        )
        .await;
        frame.sequence
    });
    assert!(matches!(outcome, CallOutcome::Ok(_)), "{outcome:?}");
    assert_eq!(sequence, 1, "the first that was sent");
}

// inv: INV-C27
#[tokio::test]
async fn no_mutation_leaves_with_less_than_5_s_of_lease_and_what_only_looks_still_does() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let ownership = core.core().owner.ownership().unwrap();
    let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    let late = OwnerHandle::last_renewed(&ownership, ago(6));
    let kill = || request(&core, &node, Arguments::Kill);
    for arguments in [create(reference()), Arguments::Kill] {
        let request = request(&core, &node, arguments).await;
        assert_eq!(
            core.core().hub.call(&late, request).await,
            CallOutcome::Unavailable
        );
    }
    let info = request(&core, &node, Arguments::Info).await;
    let reference = info.reference;
    let (looked, ()) = tokio::join!(core.core().hub.call(&late, info), async {
        let frame = next(&mut greeted).await;
        assert_eq!(frame.body.as_ref().unwrap().arguments, Arguments::Info);
        reply(
            &mut greeted,
            &frame,
            None,
            Some(ResponseResult::Info(running(reference))),
        )
        .await;
    });
    assert!(matches!(looked, CallOutcome::Ok(_)), "{looked:?}");
    // No owner at all, or one of another epoch: nothing.
    for owner in [
        OwnerHandle::default(),
        OwnerHandle::last_renewed(&ownership, ago(11)),
    ] {
        let info = request(&core, &node, Arguments::Info).await;
        assert_eq!(core.core().hub.call(&owner, info).await, CallOutcome::Unavailable);
    }
    let fresh = OwnerHandle::last_renewed(&ownership, ago(0));
    let (killed, ()) = tokio::join!(core.core().hub.call(&fresh, kill().await), async {
        let frame = next(&mut greeted).await;
        assert_eq!(frame.sequence, 2, "what was refused took no sequence");
        reply(&mut greeted, &frame, None, None).await;
    });
    assert_eq!(killed, CallOutcome::Ok(None));
}

// req: P-055, P-057, P-068
// inv: INV-P12
#[tokio::test]
async fn callers_that_went_away_still_count_to_the_thirty_two_until_their_answers_come() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let mut frames = Vec::new();
    for _ in 0..oac_peer::limits::PENDING_REQUESTS {
        let request = request(&core, &node, Arguments::Info).await;
        // The caller is dropped as soon as its request has arrived.
        tokio::select! {
            outcome = core.core().hub.call(&core.core().owner, request) => panic!("{outcome:?}"),
            frame = next(&mut greeted) => frames.push(frame),
        }
    }
    let info = || request(&core, &node, Arguments::Info);
    let full = core.core().hub.call(&core.core().owner, info().await).await;
    assert_eq!(full, CallOutcome::Unavailable);
    // A late answer is dropped, and frees its place.
    reply(&mut greeted, &frames[7], Some("not_found"), None).await;
    let mut last = CallOutcome::Unavailable;
    world::eventually("the answer was taken", async || {
        let call = async {
            let frame = next(&mut greeted).await;
            reply(&mut greeted, &frame, Some("not_found"), None).await;
            std::future::pending::<CallOutcome>().await
        };
        last = tokio::select! {
            outcome = core.core().hub.call(&core.core().owner, info().await) => outcome,
            outcome = call => outcome,
        };
        last != CallOutcome::Unavailable
    })
    .await;
    let not_found = CallOutcome::Refused {
        code: Refusal::NotFound,
        receipt: None,
    };
    assert_eq!(last, not_found);
}

// req: P-064, P-065, P-068
// inv: INV-P10
#[tokio::test]
async fn a_deadline_and_a_disconnect_leave_a_sent_call_uncertain_and_an_absent_node_unavailable() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let kill = request(&core, &node, Arguments::Kill).await;
    let (outcome, ()) = tokio::join!(core.core().hub.call(&core.core().owner, kill), async {
        next(&mut greeted).await;
        core.core().hub.clock().skip(Duration::from_secs(34));
        let beat = crate::node::heartbeat(&greeted, health(true));
        send(&mut greeted.socket, &beat).await;
        receive(&mut greeted.socket).await.unwrap();
        core.core().hub.clock().skip(Duration::from_secs(30));
    });
    assert_eq!(
        outcome,
        CallOutcome::Uncertain,
        "the caller waits 60 s and no longer"
    );
    let kill = request(&core, &node, Arguments::Kill).await;
    let (outcome, ()) = tokio::join!(core.core().hub.call(&core.core().owner, kill), async {
        next(&mut greeted).await;
        drop(greeted);
    });
    assert_eq!(outcome, CallOutcome::Uncertain);
    let info = request(&core, &node, Arguments::Info).await;
    let outcome = core.core().hub.call(&core.core().owner, info).await;
    assert_eq!(outcome, CallOutcome::Unavailable);
}

// req: P-069
// inv: INV-P32, INV-P9
#[tokio::test]
async fn an_unknown_outcome_waits_for_the_node_it_was_sent_to_whatever_other_nodes_there_are() {
    let core = world::core(On::Sqlite).await;
    let mut first = Node::start(&core, 1).await;
    first.plan(Operation::Create, &[Act::DieAfter]);
    let (_, id) = world::session(&core).await.unwrap();
    first.dead().await;
    world::eventually("the create is of unknown outcome", async || {
        world::creates(&core, id).await == [oac_store::OperationState::Unconfirmed]
    })
    .await;
    let second = Node::start(&core, 1).await;
    // Work for the second node passes the worker; the first node's create is asked of nobody else.
    let (_, other) = world::session(&core).await.unwrap();
    world::until(&core, other, AllocationState::Running).await;
    let about = |node: &Node| node.host.lock().requests.iter().filter(|r| r.1 == id).count();
    assert_eq!(about(&second), 0);
    assert_eq!(world::row(&core, id).await.state, AllocationState::Creating);
    first.connect(&core).await;
    world::until(&core, id, AllocationState::Running).await;
    assert_eq!((first.count(Operation::Create), about(&second)), (1, 0));
}
