//! Bounds of values, run by the receiver on what it decoded and by the sender on what it is about to send.

use oac_model::{Generation, Network, ProviderKind, Reference};

use crate::{
    frames::{
        Arguments, FrameError, GenerationState, GenerationStatus, Health, Identity, InvalidRequest,
        InvalidResult, RequestBody, Response, ResponseResult, RetentionAckControl, RetentionControl, Token,
    },
    limits,
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Link, Observation, Operation, Resume,
        Retained, Sample, Suspend, WorkspaceBinding,
    },
};

type Frame = Result<(), FrameError>;
type Checked = Result<(), &'static str>;

fn bound(holds: bool, rule: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(rule) }
}

fn frame(checked: Checked) -> Frame {
    checked.map_err(FrameError::Bounds)
}

pub(crate) fn identity(identity: &Identity) -> Frame {
    frame((|| {
        bound(
            identity.provider != ProviderKind::E2b,
            "identity.provider is docker or microsandbox",
        )?;
        bound(
            (1..=limits::CAPACITY).contains(&identity.max_active),
            "identity.max_active is from 1 to 1000000",
        )?;
        bound(
            (identity.max_active..=limits::CAPACITY).contains(&identity.max_retained),
            "identity.max_retained is from max_active to 1000000",
        )
    })())
}

fn size(value: i64) -> bool {
    (0..=limits::SIZE_MAX).contains(&value)
}

/// `managing`: the report may hold statuses, and then neither readiness nor a diagnostic of its own.
pub(crate) fn health(health: &Health, managing: bool) -> Frame {
    frame(check_health(health, managing))
}

fn check_health(health: &Health, managing: bool) -> Checked {
    let known = |value: Option<i64>, least: i64| value.is_none_or(|v| v >= least && size(v));
    bound(
        (0..=limits::OPERATIONS as i64).contains(&health.active_operations),
        "active_operations is from 0 to 32",
    )?;
    bound(
        health.cpu_utilization.0.is_none_or(|v| (0.0..=1.0).contains(&v)),
        "cpu_utilization is from 0 to 1",
    )?;
    bound(
        known(health.total_memory_bytes.0, 1),
        "total_memory_bytes is a size of at least 1",
    )?;
    bound(
        health.effective_cpu_cores.0.is_none_or(|v| v > 0.0),
        "effective_cpu_cores is above 0",
    )?;
    bound(known(health.cpu_count.0, 0), "cpu_count is a size")?;
    bound(
        known(health.available_memory_bytes.0, 0),
        "available_memory_bytes is a size",
    )?;
    if let (Some(total), Some(available)) = (health.total_memory_bytes.0, health.available_memory_bytes.0) {
        bound(
            available <= total,
            "available_memory_bytes is not above total_memory_bytes",
        )?;
    }
    bound(
        known(health.available_disk_bytes.0, 0),
        "available_disk_bytes is a size",
    )?;
    bound(
        health.diagnostic.as_ref().is_none_or(is_token),
        "diagnostic is at most 64 of [a-z0-9_]",
    )?;
    let Some(statuses) = &health.generations else {
        return Ok(());
    };
    bound(managing, "generations come from a managing node alone")?;
    bound(
        statuses.len() <= limits::STATUSES,
        "at most eight generations are reported",
    )?;
    for (index, status) in statuses.iter().enumerate() {
        check_status(status)?;
        bound(
            !statuses[..index]
                .iter()
                .any(|s| s.generation == status.generation),
            "reported generations are distinct",
        )?;
    }
    Ok(())
}

fn check_status(status: &GenerationStatus) -> Checked {
    bound(
        status.diagnostic.as_ref().is_none_or(is_token),
        "diagnostic is at most 64 of [a-z0-9_]",
    )?;
    let told = status.diagnostic.as_ref().is_some_and(|d| !d.0.is_empty());
    bound(
        !(told && status.state == GenerationState::Ready),
        "a ready generation has no diagnostic",
    )
}

fn is_token(token: &Token) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    token.0.len() <= limits::TOKEN_BYTES && token.0.bytes().all(allowed)
}

pub(crate) fn retention(control: &RetentionControl) -> Frame {
    let generations: Vec<_> = control.references.iter().map(|r| r.generation).collect();
    check_control(control.sequence, &generations)
}

pub(crate) fn retention_ack(control: &RetentionAckControl) -> Frame {
    let generations: Vec<_> = control.retentions.iter().map(|r| r.generation).collect();
    check_control(control.sequence, &generations)
}

fn check_control(sequence: i64, generations: &[Generation]) -> Frame {
    frame((|| {
        bound(sequence >= 1, "sequence must be at least 1")?;
        bound(
            (1..=limits::STATUSES).contains(&generations.len()),
            "one to eight generations are named",
        )?;
        let distinct = generations
            .iter()
            .enumerate()
            .all(|(i, g)| !generations[..i].contains(g));
        bound(distinct, "named generations are distinct")
    })())
}

pub(crate) fn response(response: &Response) -> Frame {
    let code = |code: &String| is_word(code, 64);
    frame(bound(
        response.error_code.as_ref().is_none_or(code),
        "error_code is 1 to 64 of [a-z_]",
    ))
}

fn is_word(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// `text(n)`: 1..n bytes without control characters.
fn is_text(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A request's members before its operation was looked at.
pub(crate) struct RequestParts {
    pub(crate) deployment_generation: i64,
    pub(crate) operation: String,
    pub(crate) timeout_ms: i64,
    pub(crate) reference: Reference,
    pub(crate) bootstrap: Option<Box<Bootstrap>>,
    pub(crate) command: Option<Command>,
    pub(crate) observation: Option<Box<Observation>>,
    pub(crate) generation: Option<i64>,
    pub(crate) compute: Option<Box<Compute>>,
    pub(crate) suspend: Option<Box<Suspend>>,
    pub(crate) resume: Option<Box<Resume>>,
    pub(crate) retained: Option<Box<Retained>>,
}

pub(crate) fn request_body(parts: RequestParts) -> Result<RequestBody, InvalidRequest> {
    build_body(parts).map_err(|rule| InvalidRequest(rule.to_owned()))
}

fn build_body(parts: RequestParts) -> Result<RequestBody, &'static str> {
    const WRONG: &str = "the operation does not take these arguments";
    let operation = Operation::from_text(&parts.operation).ok_or("unknown operation")?;
    let deployment_generation = Generation::try_from(parts.deployment_generation)
        .map_err(|_| "deployment_generation is at least 1")?;
    bound(
        limits::TIMEOUT_MS.contains(&parts.timeout_ms),
        "timeout_ms is from 1 to 120000",
    )?;
    let reference = parts.reference;
    let arguments = match (
        operation,
        parts.bootstrap,
        parts.command,
        parts.observation,
        parts.generation,
        parts.compute,
        parts.suspend,
        parts.resume,
        parts.retained,
    ) {
        (Operation::Create, Some(b), None, None, None, None, None, None, None) => Arguments::Create(b),
        (Operation::Info, None, None, None, None, None, None, None, None) => Arguments::Info,
        (Operation::Renew, None, None, None, None, None, None, None, None) => Arguments::Renew,
        (Operation::Kill, None, None, None, None, None, None, None, None) => Arguments::Kill,
        (Operation::Initial, None, None, None, None, None, None, None, None) => Arguments::Initial,
        (Operation::Command, None, Some(c), None, None, None, None, None, None) => Arguments::Command(c),
        (Operation::Observe, None, None, Some(o), None, None, None, None, None) => Arguments::Observe(o),
        (Operation::NewCompute, None, None, None, Some(g), None, None, None, retained) => {
            Arguments::NewCompute {
                generation: Generation::try_from(g).map_err(|_| "generation is at least 1")?,
                retained,
            }
        }
        (Operation::Compute, None, None, None, None, Some(c), None, None, None) => Arguments::Compute(c),
        (Operation::KillCompute, None, None, None, None, Some(c), None, None, None) => {
            Arguments::KillCompute(c)
        }
        (Operation::ResumeCompute, None, None, None, None, Some(c), None, None, None) => {
            Arguments::ResumeCompute(c)
        }
        (Operation::CommandCompute, None, Some(cmd), None, None, Some(c), None, None, None) => {
            Arguments::CommandCompute(c, cmd)
        }
        (Operation::Suspend, None, None, None, None, None, Some(s), None, None) => Arguments::Suspend(s),
        (Operation::Resume, None, None, None, None, None, None, Some(r), None) => Arguments::Resume(r),
        (Operation::DeleteRetained, None, None, None, None, None, None, None, Some(r)) => {
            Arguments::DeleteRetained(r)
        }
        _ => return Err(WRONG),
    };
    self::arguments(&reference, &arguments)?;
    Ok(RequestBody {
        deployment_generation,
        timeout_ms: parts.timeout_ms as u32,
        reference,
        arguments,
    })
}

impl Arguments {
    pub fn operation(&self) -> Operation {
        match self {
            Self::Create(_) => Operation::Create,
            Self::Info => Operation::Info,
            Self::Renew => Operation::Renew,
            Self::Kill => Operation::Kill,
            Self::Command(_) => Operation::Command,
            Self::Observe(_) => Operation::Observe,
            Self::Initial => Operation::Initial,
            Self::NewCompute { .. } => Operation::NewCompute,
            Self::Compute(_) => Operation::Compute,
            Self::KillCompute(_) => Operation::KillCompute,
            Self::ResumeCompute(_) => Operation::ResumeCompute,
            Self::CommandCompute(..) => Operation::CommandCompute,
            Self::Suspend(_) => Operation::Suspend,
            Self::Resume(_) => Operation::Resume,
            Self::DeleteRetained(_) => Operation::DeleteRetained,
        }
    }
}

pub(crate) fn arguments(reference: &Reference, arguments: &Arguments) -> Checked {
    match arguments {
        Arguments::Create(b) => bootstrap(reference, b),
        Arguments::Info | Arguments::Renew | Arguments::Kill | Arguments::Initial => Ok(()),
        Arguments::Command(c) => command(c),
        Arguments::Observe(o) => observation(o),
        Arguments::NewCompute { retained: r, .. } => r.as_deref().map_or(Ok(()), retained),
        Arguments::Compute(c) | Arguments::KillCompute(c) | Arguments::ResumeCompute(c) => compute(c),
        Arguments::CommandCompute(c, cmd) => compute(c).and_then(|()| command(cmd)),
        Arguments::Suspend(s) => suspend(reference, s),
        Arguments::Resume(r) => resume(reference, r),
        Arguments::DeleteRetained(r) => retained(r),
    }
}

fn bootstrap(reference: &Reference, b: &Bootstrap) -> Checked {
    bound(
        b.reference == *reference,
        "bootstrap.reference equals the request's",
    )?;
    let network = Network {
        access: b.network_access,
        allowed_domains: b.allowed_domains.clone(),
    };
    bound(
        network.validate().is_ok(),
        "allowed_domains holds at most 64 host names, and none unless restricted",
    )?;
    link(reference, &b.link)?;
    b.workspace.0.as_ref().map_or(Ok(()), workspace)
}

fn link(reference: &Reference, link: &Link) -> Checked {
    bound(link.version == 1, "link.version is 1")?;
    bound(
        is_link_url(&link.link_url),
        "link.link_url is ws or wss with path /api/v1/sandbox-link and nothing else",
    )?;
    let credential = link.credential.expose();
    bound(
        (1..=limits::CREDENTIAL_BYTES).contains(&credential.len())
            && !credential.chars().any(|c| c.is_whitespace() || c == '\0'),
        "link.credential is 1 to 4096 bytes without white space",
    )?;
    let resource = &link.resource;
    bound(
        resource.tenant_id == reference.tenant_id
            && resource.environment_id == reference.environment_id
            && resource.id == reference.allocation_id,
        "link.resource names the request's reference",
    )
}

/// `ws` or `wss`, a host, an optional port, the link path; no credentials, query or fragment.
fn is_link_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("wss://").or_else(|| url.strip_prefix("ws://")) else {
        return false;
    };
    let Some(authority) = rest.strip_suffix("/api/v1/sandbox-link") else {
        return false;
    };
    let host_bytes = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if let Some(v6) = authority.strip_prefix('[') {
        let Some((address, port)) = v6.split_once(']') else {
            return false;
        };
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port_fits && address.parse::<core::net::Ipv6Addr>().is_ok();
    }
    let (host, port) = authority
        .split_once(':')
        .map_or((authority, None), |(h, p)| (h, Some(p)));
    !host.is_empty() && host.len() <= 253 && host.bytes().all(host_bytes) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>()
        .is_ok_and(|p| p > 0 && text.bytes().all(|b| b.is_ascii_digit()))
}

fn workspace(w: &WorkspaceBinding) -> Checked {
    bound(
        is_clean_absolute(&w.mount),
        "workspace.mount is a clean absolute path",
    )
}

fn is_clean_absolute(path: &str) -> bool {
    path.len() > 1
        && path.starts_with('/')
        && path[1..]
            .split('/')
            .all(|s| !s.is_empty() && s != "." && s != "..")
        && !path.chars().any(char::is_control)
}

fn command(c: &Command) -> Checked {
    bound(
        (1..=limits::ARGS).contains(&c.args.len()),
        "args holds 1 to 1024 strings",
    )?;
    bound(!c.args[0].is_empty(), "args[0] is not empty")?;
    bound(
        c.args.iter().map(String::len).sum::<usize>() <= limits::ARGS_BYTES,
        "args is at most 1 MiB together",
    )?;
    bound(!c.args.iter().any(|a| a.contains('\0')), "args holds no NUL")?;
    bound(
        c.directory.is_empty() || (c.directory.starts_with('/') && !c.directory.contains('\0')),
        "directory is empty or absolute",
    )?;
    bound(
        c.stdin.as_ref().is_none_or(|s| s.0.len() <= limits::STDIN_BYTES),
        "stdin is at most 50 MiB and 32 bytes",
    )
}

fn observation(o: &Observation) -> Checked {
    o.instance.compute.0.as_ref().map_or(Ok(()), compute)
}

fn compute(c: &Compute) -> Checked {
    bound(c.generation >= 0, "compute.generation is at least 0")?;
    bound(is_text(&c.name, 128), "compute.name is 1 to 128 bytes")?;
    bound(
        c.id.0.as_ref().is_none_or(|id| is_text(id, 256)),
        "compute.id is 1 to 256 bytes",
    )?;
    match (&c.restored_from.0, c.generation) {
        (None, 0) => Ok(()),
        (None, _) => Err("a compute above generation 0 has a parent"),
        (Some(_), 0) => Err("compute generation 0 has no parent"),
        (Some(parent), generation) => {
            retained(parent)?;
            bound(
                parent.source_generation < generation,
                "a parent is of a lower generation",
            )
        }
    }
}

fn retained(r: &Retained) -> Checked {
    bound(r.source_generation >= 0, "source_generation is at least 0")?;
    bound(is_text(&r.source_name, 128), "source_name is 1 to 128 bytes")?;
    bound(is_text(&r.source_id, 256), "source_id is 1 to 256 bytes")?;
    bound(size(r.size_bytes), "size_bytes is a size")?;
    bound(
        r.data.0.get().len() <= limits::OPAQUE_BYTES,
        "data is at most 64 KiB",
    )
}

fn suspend(reference: &Reference, s: &Suspend) -> Checked {
    bound(
        s.reference == *reference,
        "suspend.reference equals the request's",
    )?;
    compute(&s.source)?;
    bound(s.source.id.0.is_some(), "suspend.source has an id")?;
    s.retained.0.as_ref().map_or(Ok(()), retained)
}

fn resume(reference: &Reference, r: &Resume) -> Checked {
    bound(r.reference == *reference, "resume.reference equals the request's")?;
    retained(&r.retained)?;
    compute(&r.target)?;
    bound(
        r.target.restored_from.0.as_ref() == Some(&r.retained),
        "target.restored_from equals retained",
    )?;
    r.workspace.0.as_ref().map_or(Ok(()), workspace)
}

pub(crate) fn result(result: &ResponseResult) -> Result<(), InvalidResult> {
    let checked = match result {
        ResponseResult::Info(i) => info(i),
        ResponseResult::Command(c) => command_result(c),
        ResponseResult::Sample(s) => sample(s),
        ResponseResult::Compute(c) => compute(c),
        ResponseResult::State(s) => state(s),
        ResponseResult::Unsupported(u) => bound(
            (1..=64).contains(&u.operation.len())
                && (1..=64).contains(&u.reason.len())
                && u.reason
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "unsupported names a method and a reason of [a-z0-9_]",
        ),
    };
    checked.map_err(|rule| InvalidResult(rule.to_owned()))
}

fn info(i: &Info) -> Checked {
    bound(i.provider_id.len() <= 256, "provider_id is at most 256 bytes")?;
    bound(is_word(&i.state, 32), "state is 1 to 32 of [a-z_]")?;
    bound(
        !i.bootstrap_complete || i.create_settled,
        "bootstrap_complete requires create_settled",
    )?;
    bound(
        !i.compute_lost || (i.state == Info::ABSENT && i.create_settled),
        "compute_lost requires state absent and create_settled",
    )
}

fn command_result(c: &CommandResult) -> Checked {
    bound(
        c.stdout.0.len() <= limits::OUTPUT_BYTES && c.stderr.0.len() <= limits::OUTPUT_BYTES,
        "each output stream is at most 1 MiB",
    )?;
    bound((0..=255).contains(&c.exit_code), "exit_code is from 0 to 255")
}

fn sample(s: &Sample) -> Checked {
    let least = |value: Option<i64>, least: i64| value.is_none_or(|v| v >= least && size(v));
    bound(
        s.started_at.0.is_none_or(|t| t <= s.observed_at),
        "started_at is not after observed_at",
    )?;
    bound(
        s.cpu_usage_seconds_total.0.is_none_or(|v| v >= 0.0),
        "cpu_usage_seconds_total is at least 0",
    )?;
    bound(
        s.cpu_capacity_cores.0.is_none_or(|v| v > 0.0),
        "cpu_capacity_cores is above 0",
    )?;
    bound(
        s.cpu_utilization_ratio.is_none_or(|v| v >= 0.0),
        "cpu_utilization_ratio is at least 0",
    )?;
    bound(least(s.memory_usage_bytes.0, 0), "memory_usage_bytes is a size")?;
    bound(
        least(s.memory_limit_bytes.0, 1),
        "memory_limit_bytes is a size of at least 1",
    )?;
    bound(least(s.disk_usage_bytes, 0), "disk_usage_bytes is a size")?;
    bound(
        least(s.disk_limit_bytes, 1),
        "disk_limit_bytes is a size of at least 1",
    )
}

fn state(s: &ComputeState) -> Checked {
    compute(&s.compute)?;
    bound(is_word(&s.status, 32), "status is 1 to 32 of [a-z_]")?;
    s.retained.0.as_ref().map_or(Ok(()), retained)
}
