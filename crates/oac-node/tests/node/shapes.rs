use oac_model::{NetworkAccess, Reference, Secret};
use oac_wire::{
    B64, Nullable,
    frames::{Arguments, NodeFrame, Response},
    shapes::{Bootstrap, Command, CommandResult, Info, Link, LinkResource, LinkResourceKind},
};

pub(crate) fn uuid(kind: u8, n: u64) -> String {
    format!("{kind:08x}-1111-4111-8111-{:012x}", n + 1)
}

pub(crate) fn reference(n: u64) -> Reference {
    Reference {
        tenant_id: uuid(2, 0).parse().unwrap(),
        environment_id: uuid(3, n).parse().unwrap(),
        allocation_id: uuid(4, n).parse().unwrap(),
    }
}

pub(crate) fn create(reference: Reference) -> Arguments {
    Arguments::Create(Box::new(Bootstrap {
        reference,
        session_id: uuid(8, 1).parse().unwrap(),
        network_access: NetworkAccess::Public,
        allowed_domains: Vec::new(),
        link: Link {
            version: 1,
            link_url: "ws://127.0.0.1:1/api/v1/sandbox-link".into(),
            credential: Secret::new("link-credential"),
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

pub(crate) fn command(stdin: Option<Vec<u8>>) -> Arguments {
    Arguments::Command(Command {
        args: vec!["cat".into()],
        directory: String::new(),
        stdin: stdin.map(B64),
    })
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

pub(crate) fn output(stdout: Vec<u8>) -> CommandResult {
    CommandResult {
        stdout: B64(stdout),
        stderr: B64(Vec::new()),
        stdout_truncated: false,
        stderr_truncated: false,
        exit_code: 0,
    }
}

pub(crate) fn response(frame: NodeFrame) -> Response {
    match frame {
        NodeFrame::Response(response) => *response,
        other => panic!("expected a response: {other:?}"),
    }
}
