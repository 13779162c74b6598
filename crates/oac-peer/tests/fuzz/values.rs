//! Values of frames, and frames that are nearly right.

use oac_model::{
    ConnectionId, Digest, Generation, InstallationId, NetworkAccess, NodeId, OwnerEpoch, ProviderKind,
    Reference, RequestId, Secret, Time,
};
use oac_wire::{
    B64, Nullable,
    frames::{Arguments, Deployment, Health, Identity},
    shapes::{Bootstrap, Command, CommandResult, Info, Link, LinkResource, LinkResourceKind},
};

use super::random::Random;

fn uuid(kind: u8, n: u64) -> String {
    format!("{kind:08x}-1111-4111-8111-{n:012x}")
}

/// The number an id was made from.
pub(crate) fn number_of(id: impl std::fmt::Display) -> u64 {
    let text = id.to_string();
    u64::from_str_radix(text.rsplit('-').next().unwrap_or_default(), 16).unwrap_or_default()
}

/// An allocation, and in the environment the number of the request that names it.
pub(crate) fn reference(allocation: u64, request: u64) -> Reference {
    Reference {
        tenant_id: uuid(2, 1).parse().unwrap(),
        environment_id: uuid(3, request + 1).parse().unwrap(),
        allocation_id: uuid(4, allocation + 1).parse().unwrap(),
    }
}

pub(crate) fn connection(n: u64) -> ConnectionId {
    uuid(5, n + 1).parse().unwrap()
}

pub(crate) fn request_id(n: u64) -> RequestId {
    uuid(6, n + 1).parse().unwrap()
}

pub(crate) fn epoch(n: i64) -> OwnerEpoch {
    OwnerEpoch::try_from(n.max(1)).unwrap()
}

pub(crate) fn generation(n: i64) -> Generation {
    Generation::try_from(n.max(1)).unwrap()
}

pub(crate) fn wall() -> Time {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub(crate) fn digest(n: i64) -> Digest {
    Digest::of(format!("specification {n}"))
}

pub(crate) fn identity() -> Identity {
    let node_id: NodeId = uuid(7, 1).parse().unwrap();
    let installation_id: InstallationId = uuid(1, 1).parse().unwrap();
    Identity {
        node_id,
        installation_id,
        provider: ProviderKind::Docker,
        backend_fingerprint: Digest::of("backend"),
        deployment_generation: generation(1),
        specification_digest: digest(1),
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
        cpu_count: Nullable(None),
        available_memory_bytes: Nullable(None),
        available_disk_bytes: Nullable(None),
        execution_class: Nullable(None),
        checkpoint_store: Nullable(None),
        boot_id: Nullable(None),
        diagnostic: None,
        generations: None,
    }
}

pub(crate) fn deployment(random: &mut Random) -> Deployment {
    let target = 1 + random.below(3) as i64;
    let most = if random.one_in(20) { 3 } else { target as usize };
    Deployment {
        generation: generation(target),
        specification_digest: digest(if random.one_in(30) { 9 } else { target }),
        serving_generation: Nullable(
            random
                .one_in(2)
                .then(|| generation(1 + random.below(most) as i64)),
        ),
    }
}

pub(crate) fn arguments(random: &mut Random, reference: Reference) -> Arguments {
    let command = || Command {
        args: vec!["true".to_owned()],
        directory: String::new(),
        stdin: None,
    };
    match random.below(5) {
        0 => Arguments::Create(Box::new(Bootstrap {
            reference,
            session_id: uuid(8, 1).parse().unwrap(),
            network_access: NetworkAccess::Public,
            allowed_domains: Vec::new(),
            link: Link {
                version: 1,
                link_url: "ws://127.0.0.1:1/api/v1/sandbox-link".to_owned(),
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
        })),
        1 => Arguments::Info,
        2 => Arguments::Kill,
        3 => Arguments::Initial,
        _ => Arguments::Command(command()),
    }
}

pub(crate) fn info(random: &mut Random, reference: Reference) -> Info {
    let absent = random.one_in(2);
    let create_settled = !random.one_in(4);
    Info {
        reference,
        provider_id: if absent { String::new() } else { "c".to_owned() },
        state: if absent { Info::ABSENT } else { Info::RUNNING }.to_owned(),
        bootstrap_complete: !absent && create_settled,
        create_settled,
        compute_lost: absent && create_settled && random.one_in(3),
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

/// The same text with a few bytes changed.
pub(crate) fn spoiled(random: &mut Random, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = *random.pick(b"\"{}[],:0129-aA \0\xff"),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.insert(at, *random.pick(b"\"{}[],:0129-aA \0\xff")),
        }
    }
    bytes
}
