//! Requests through hub and node, beside an echo of the same bytes over a bare WebSocket.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _, future::join_all};
use oac_core::hub::{CallOutcome, Request};
use oac_model::{
    AllocationId, EnvironmentId, Generation, ProjectId, ProviderKind, Reference, backend_fingerprint,
};
use oac_testkit::core::{CoreOptions, TestCore};
use oac_wire::{
    CoreFrame,
    frames::{Arguments, Identity, RequestBody},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    bare,
    figure::{Figure, Work, median},
    swarm::{Member, Swarm},
};

/// Requests of one sample.
const CALLS: usize = 2000;
const WAIT: Duration = Duration::from_secs(20);
/// One at a time, and as many as may be pending.
const IN_FLIGHT: [(usize, &str); 2] = [
    (1, "requests to a node, one at a time"),
    (
        oac_peer::limits::PENDING_REQUESTS,
        "requests to a node, 32 in flight",
    ),
];

/// Core and its node run in this process, as the echo and its client do.
pub(crate) async fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let core = TestCore::with(CoreOptions::default()).await;
    core.deploy(1, 512).await;
    let member = enroll(&core).await?;
    let address = core.url.trim_start_matches("http://").parse()?;
    let mut swarm = Swarm::of(address);
    let connected = swarm.watch();
    swarm.start(std::slice::from_ref(&member));
    connected.all(1, WAIT).await?;
    let mut figures = Vec::new();
    for (in_flight, what) in IN_FLIGHT {
        let (mut ours, mut baseline) = (Vec::new(), Vec::new());
        let (mut waits, mut bare_waits) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(call(&core, &member, in_flight, &mut waits).await?);
            baseline.push(echo(&member, in_flight, &mut bare_waits).await?);
        }
        waits.sort_unstable();
        bare_waits.sort_unstable();
        let slowest = |waits: &[Duration]| waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
        // Told in the figure's unit: so many, had each waited as long as this one.
        let told = |wait: Duration| wait.mul_f64(CALLS as f64 / in_flight as f64);
        figures.push(Figure {
            name: "calls",
            what,
            ours,
            baseline,
            work: Work::Things(CALLS as u64),
            budget: None,
            beside: vec![
                ("at the median wait", told(median(&waits))),
                ("at the 99th percentile", told(slowest(&waits))),
                ("the echo's at the median wait", told(median(&bare_waits))),
                ("the echo's at the 99th percentile", told(slowest(&bare_waits))),
            ],
        });
        println!(
            "calls, {in_flight} in flight: p50 {:.1?}, p99 {:.1?}; echo: p50 {:.1?}, p99 {:.1?}",
            median(&waits),
            slowest(&waits),
            median(&bare_waits),
            slowest(&bare_waits)
        );
    }
    Ok(figures)
}

/// A node with 64 places.
pub(crate) async fn enroll(core: &TestCore) -> Result<Member> {
    let enrolled = core
        .enroll(&json!({ "max_active": 64, "max_retained": 64 }))
        .await;
    let id = &enrolled.identity;
    let text = |name: &str| id[name].as_str().unwrap_or_default();
    let identity = Identity {
        node_id: enrolled.node_id,
        installation_id: text("installation_id").parse()?,
        provider: ProviderKind::Docker,
        backend_fingerprint: backend_fingerprint(ProviderKind::Docker, "unix:///var/run/docker.sock"),
        deployment_generation: Generation::try_from(id["deployment_generation"].as_i64().unwrap_or(0))?,
        specification_digest: text("specification_digest").parse()?,
        max_active: 64,
        max_retained: 64,
    };
    Ok(Member {
        identity,
        credential: enrolled.credential,
    })
}

fn reference() -> Reference {
    Reference {
        tenant_id: ProjectId::random(),
        environment_id: EnvironmentId::random(),
        allocation_id: AllocationId::random(),
    }
}

/// How long all requests took; each one's own time is added to `waits`.
async fn call(
    core: &TestCore,
    member: &Member,
    in_flight: usize,
    waits: &mut Vec<Duration>,
) -> Result<Duration> {
    let (core, begun) = (core.core(), AtomicUsize::new(0));
    let started = Instant::now();
    let callers = (0..in_flight).map(async |_| {
        let (reference, mut waits) = (reference(), Vec::new());
        while begun.fetch_add(1, Ordering::Relaxed) < CALLS {
            let request = Request {
                node_id: member.identity.node_id,
                generation: member.identity.deployment_generation,
                provider: ProviderKind::Docker,
                reference,
                arguments: Arguments::Info,
                on: None,
                wait: WAIT,
            };
            let asked = Instant::now();
            match core.hub.call(&core.owner, request).await {
                CallOutcome::Ok(Some(_)) => waits.push(asked.elapsed()),
                other => bail!("a request ended with {other:?}"),
            }
        }
        Ok(waits)
    });
    for one in join_all(callers).await {
        waits.extend(one?);
    }
    Ok(started.elapsed())
}

/// The same number of frames of the same size, echoed.
async fn echo(member: &Member, in_flight: usize, waits: &mut Vec<Duration>) -> Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let mut server = JoinSet::new();
    server.spawn(bare::answer(listener));
    let mut socket = bare::dial(address, 0).await?;
    let text = request(member)?;
    let mut asked: VecDeque<Instant> = VecDeque::new();
    let (mut sent, started) = (0, Instant::now());
    for _ in 0..CALLS {
        while sent < CALLS && asked.len() < in_flight {
            asked.push_back(Instant::now());
            socket.send(Message::text(text.clone())).await?;
            sent += 1;
        }
        socket.next().await.context("the echo ended")??;
        waits.extend(asked.pop_front().map(|at| at.elapsed()));
    }
    Ok(started.elapsed())
}

fn request(member: &Member) -> Result<String> {
    let generation = member.identity.deployment_generation;
    let frame = oac_wire::frames::Request {
        id: oac_model::RequestId::random(),
        sequence: 1000,
        connection_id: oac_model::ConnectionId::random(),
        owner_epoch: oac_model::OwnerEpoch::try_from(1)?,
        deployment_generation: generation.get(),
        body: Ok(RequestBody {
            deployment_generation: generation,
            timeout_ms: 20_000,
            reference: reference(),
            arguments: Arguments::Info,
        }),
    };
    Ok(CoreFrame::Request(Box::new(frame)).encode()?)
}
