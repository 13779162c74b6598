//! Values the tests of both ends share.

use oac_model::{
    AllocationId, ConnectionId, Digest, Generation, NetworkAccess, NodeId, OwnerEpoch, ProviderKind,
    Reference, RequestId, Secret, Time,
};
use oac_wire::{
    B64, CoreFrame, Nullable,
    frames::{
        Arguments, Deployment, Health, HeartbeatAck, Identity, Request, RequestBody, RetentionReference,
        Welcome,
    },
    shapes::{Bootstrap, Command, CommandResult, Info, Link, LinkResource, LinkResourceKind, Sample},
};

fn uuid(kind: u8, n: u64) -> String {
    format!("{kind:08x}-1111-4111-8111-{n:012x}")
}

pub(crate) fn reference(n: u64) -> Reference {
    Reference {
        tenant_id: uuid(2, 1).parse().unwrap(),
        environment_id: uuid(3, n + 1).parse().unwrap(),
        allocation_id: allocation(n),
    }
}

pub(crate) fn allocation(n: u64) -> AllocationId {
    uuid(4, n + 1).parse().unwrap()
}

pub(crate) fn connection(n: u64) -> ConnectionId {
    uuid(5, n + 1).parse().unwrap()
}

pub(crate) fn request_id(n: u64) -> RequestId {
    uuid(6, n + 1).parse().unwrap()
}

pub(crate) fn node_id(n: u64) -> NodeId {
    uuid(7, n + 1).parse().unwrap()
}

pub(crate) fn epoch(n: i64) -> OwnerEpoch {
    OwnerEpoch::try_from(n).unwrap()
}

pub(crate) fn generation(n: i64) -> Generation {
    Generation::try_from(n).unwrap()
}

pub(crate) fn identity() -> Identity {
    Identity {
        node_id: node_id(0),
        installation_id: uuid(1, 1).parse().unwrap(),
        provider: ProviderKind::Docker,
        backend_fingerprint: Digest::of("backend"),
        deployment_generation: generation(1),
        specification_digest: Digest::of("specification"),
        max_active: 2,
        max_retained: 2,
    }
}

pub(crate) fn health(provider_ready: bool) -> Health {
    Health {
        provider_ready,
        observed_at: wall(),
        active_operations: 0,
        cpu_utilization: Nullable(None),
        total_memory_bytes: Nullable(Some(1 << 30)),
        effective_cpu_cores: Nullable(Some(2.0)),
        cpu_count: Nullable(Some(2)),
        available_memory_bytes: Nullable(None),
        available_disk_bytes: Nullable(None),
        execution_class: Nullable(None),
        checkpoint_store: Nullable(None),
        boot_id: Nullable(None),
        diagnostic: None,
        generations: None,
    }
}

pub(crate) fn wall() -> Time {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// The digest of generation `n`; the first is the enrolled one's.
pub(crate) fn digest(n: i64) -> Digest {
    match n {
        1 => identity().specification_digest,
        n => Digest::of(format!("specification {n}").as_str()),
    }
}

pub(crate) fn deployment(target: i64, serving: Option<i64>) -> Deployment {
    Deployment {
        generation: generation(target),
        specification_digest: digest(target),
        serving_generation: Nullable(serving.map(generation)),
    }
}

pub(crate) fn asked(n: i64) -> RetentionReference {
    RetentionReference {
        generation: generation(n),
        specification_digest: digest(n),
    }
}

pub(crate) fn welcome(connection_id: ConnectionId, owner_epoch: OwnerEpoch) -> String {
    welcome_with(connection_id, owner_epoch, None)
}

pub(crate) fn welcome_with(
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    deployment: Option<Deployment>,
) -> String {
    let frame = Welcome {
        connection_id,
        owner_epoch,
        deployment,
    };
    CoreFrame::Welcome(frame).encode().unwrap()
}

pub(crate) fn ack(connection_id: ConnectionId, owner_epoch: OwnerEpoch) -> String {
    ack_with(connection_id, owner_epoch, None)
}

pub(crate) fn ack_with(
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    deployment: Option<Deployment>,
) -> String {
    let frame = HeartbeatAck {
        connection_id,
        owner_epoch,
        deployment,
    };
    CoreFrame::HeartbeatAck(frame).encode().unwrap()
}

pub(crate) fn create_arguments(reference: Reference) -> Arguments {
    Arguments::Create(Box::new(Bootstrap {
        reference,
        session_id: uuid(8, 1).parse().unwrap(),
        network_access: NetworkAccess::Public,
        allowed_domains: Vec::new(),
        link: Link {
            version: 1,
            link_url: "ws://127.0.0.1:1/api/v1/sandbox-link".into(),
            credential: Secret::new("credential"),
            resource: LinkResource {
                tenant_id: reference.tenant_id,
                environment_id: reference.environment_id,
                kind: LinkResourceKind::Allocation,
                id: reference.allocation_id,
                generation: generation(1),
            },
        },
        workspace: Nullable(None),
    }))
}

pub(crate) fn command_arguments() -> Arguments {
    Arguments::Command(Command {
        args: vec!["true".into()],
        directory: String::new(),
        stdin: None,
    })
}

pub(crate) fn request(
    connection_id: ConnectionId,
    sequence: i64,
    timeout_ms: u32,
    reference: Reference,
    arguments: Arguments,
) -> Request {
    Request {
        id: request_id(sequence as u64),
        sequence,
        connection_id,
        owner_epoch: epoch(1),
        deployment_generation: 1,
        body: Ok(RequestBody {
            deployment_generation: generation(1),
            timeout_ms,
            reference,
            arguments,
        }),
    }
}

pub(crate) fn text(request: Request) -> String {
    CoreFrame::Request(Box::new(request)).encode().unwrap()
}

pub(crate) fn running(reference: Reference) -> Info {
    Info {
        reference,
        provider_id: "container".into(),
        state: Info::RUNNING.into(),
        bootstrap_complete: true,
        create_settled: true,
        compute_lost: false,
    }
}

pub(crate) fn settled_absent(reference: Reference) -> Info {
    Info {
        reference,
        provider_id: String::new(),
        state: Info::ABSENT.into(),
        bootstrap_complete: false,
        create_settled: true,
        compute_lost: false,
    }
}

pub(crate) fn command_result() -> CommandResult {
    CommandResult {
        stdout: B64(b"out".to_vec()),
        stderr: B64(Vec::new()),
        stdout_truncated: false,
        stderr_truncated: false,
        exit_code: 0,
    }
}

pub(crate) fn sample(observed_at: Time) -> Sample {
    Sample {
        observed_at,
        started_at: Nullable(None),
        cpu_usage_seconds_total: Nullable(None),
        cpu_capacity_cores: Nullable(None),
        cpu_utilization_ratio: None,
        memory_usage_bytes: Nullable(Some(1)),
        memory_limit_bytes: Nullable(None),
        disk_usage_bytes: None,
        disk_limit_bytes: None,
    }
}
