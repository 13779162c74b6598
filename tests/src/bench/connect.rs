//! Many nodes of one Core: what their connections cost, and how they come back after it died.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use oac_model::{Digest, Generation, InstallationId, NodeId, ProviderKind, Secret, backend_fingerprint};
use oac_store::{Claim, Database, ExclusiveLock, Holder, NewNode, NodeLimits, Store, StoreOptions};
use oac_testkit::{
    installation::Installation,
    program::{Tie, built_programs},
};
use oac_wire::frames::Identity;
use serde_json::{Value, json};

use crate::{
    bare,
    gauge::{Budget, Gauge, Unit},
    process::{Process, load_average, open_many_files},
    swarm::{Member, Swarm},
};

/// Nodes, unless asked for fewer.
pub(crate) const NODES: usize = 10_000;
/// How long idleness is measured: whole rounds of heartbeats, and of the samples that every third one stores.
const IDLE: Duration = Duration::from_secs(60);
/// After the last connection, until everything that connecting started has ended.
const SETTLE: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(300);
const NAME: &str = "connect";

/// A Core of this build in a process of its own, and nodes that it knows.
pub(crate) struct Field {
    pub(crate) installation: Installation,
    pub(crate) members: Vec<Member>,
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Field {
    /// The nodes are written to the database as enrollment would leave them, while no Core runs: their tokens and their
    /// requests to enroll are not part of what is measured.
    pub(crate) async fn with(nodes: usize) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::Builder::new().prefix("oac-bench-").tempdir()?;
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut installation =
            Installation::start(&built_programs(), folder.path(), local, None, Tie::Bound).await?;
        let deployment = installation.deploy(1, 512, &made_up_release()).await?;
        let installation_id = installation.installation_id().await?;
        installation.stop_core().await;
        let known = Known {
            installation_id,
            generation: Generation::try_from(deployment["generation"].as_i64().unwrap_or(0))?,
            digest: deployment["specification_digest"]
                .as_str()
                .unwrap_or("")
                .parse()?,
            url: installation.url.clone(),
        };
        let database = format!("sqlite://{}", folder.path().join("core.db").display());
        let members = known.enroll(&database.parse()?, nodes).await?;
        installation.start_core().await?;
        let address = installation.url.trim_start_matches("http://").parse()?;
        Ok(Self {
            installation,
            members,
            address,
            _folder: folder,
        })
    }

    pub(crate) fn core(&self) -> Result<Process> {
        self.installation.core_pid().map(Process).context("Core ended")
    }
}

/// What a node is enrolled with.
struct Known {
    installation_id: InstallationId,
    generation: Generation,
    digest: Digest,
    url: String,
}

impl Known {
    async fn enroll(&self, database: &Database, nodes: usize) -> Result<Vec<Member>> {
        let lock = ExclusiveLock::take(database)?;
        let store = Store::open(StoreOptions::new(database.clone())).await?;
        let claim = lock.as_ref().map_or(Claim::WhenExpired, Claim::AtOnce);
        let owner = store
            .acquire_ownership(Holder::random(), Duration::from_secs(600), claim)
            .await?
            .context("the database has an owner")?;
        let fingerprint = backend_fingerprint(ProviderKind::Docker, "unix:///var/run/docker.sock");
        let mut members = Vec::with_capacity(nodes);
        for start in (0..nodes).step_by(500) {
            let tx = store.begin(&owner).await?;
            for number in start..nodes.min(start + 500) {
                let (id, credential) = (
                    NodeId::random(),
                    Secret::new(format!("{}{}", NodeId::random(), NodeId::random())),
                );
                tx.insert_node(&NewNode {
                    id,
                    installation_id: self.installation_id,
                    name: format!("node {number}"),
                    credential_digest: credential.digest(),
                    provider: ProviderKind::Docker,
                    backend_fingerprint: fingerprint,
                    enrolled_generation: self.generation,
                    enrolled_digest: self.digest,
                    core_url: self.url.clone(),
                    max_active: 1000,
                    max_retained: 1000,
                    limits: NodeLimits::Custom,
                    enrollment_id: None,
                })
                .await?;
                let identity = Identity {
                    node_id: id,
                    installation_id: self.installation_id,
                    provider: ProviderKind::Docker,
                    backend_fingerprint: fingerprint,
                    deployment_generation: self.generation,
                    specification_digest: self.digest,
                    max_active: 1000,
                    max_retained: 1000,
                };
                members.push(Member { identity, credential });
            }
            tx.commit().await?;
        }
        store.release_ownership(owner.holder).await?;
        store.close().await;
        Ok(members)
    }
}

/// No node here runs sandboxes, so no image need exist.
pub(crate) fn made_up_release() -> Value {
    json!({
        "source_commit": "1".repeat(40),
        "artifacts": {
            "image_id": format!("sha256:{}", "ab".repeat(32)),
            "image_manifest_digest": format!("sha256:{}", "cd".repeat(32)),
        },
    })
}

fn gauge(what: String, unit: Unit, ours: f64, baseline: Option<f64>, budget: Budget) -> Gauge {
    Gauge {
        name: NAME,
        what,
        unit,
        ours,
        baseline,
        budget,
    }
}

/// Kibibytes of a process for each of `count` things that it came to hold.
fn each(before: u64, after: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / 1024.0 / count as f64
}

pub(crate) async fn measure(nodes: usize) -> Result<Vec<Gauge>> {
    open_many_files()?;
    let bare = bare_sockets(nodes).await?;
    let mut field = Field::with(nodes).await?;
    let core = field.core()?;
    let mut swarm = Swarm::of(field.address);
    let known = core.resident()?;

    let some = nodes / 10;
    let began = Instant::now();
    let coming = swarm.watch();
    swarm.start(&field.members[..some]);
    coming.all(some, PATIENCE).await?;
    tokio::time::sleep(SETTLE).await;
    let with_some = core.resident()?;

    let (spent, load) = (core.processor_time()?, load_average());
    let coming = swarm.watch();
    swarm.start(&field.members[some..]);
    let times = coming.all(nodes - some, PATIENCE).await?;
    let spent = core.processor_time()?.saturating_sub(spent);
    tokio::time::sleep(SETTLE).await;
    let with_all = core.resident()?;
    let first = times.last().copied().unwrap_or_default();
    println!("connected after {:.1?} (load average {load})", began.elapsed());

    let load = load_average();
    let idle = core.load_over(IDLE).await? * 100.0;
    ensure!(
        swarm.connected() == nodes,
        "only {} nodes stayed connected",
        swarm.connected()
    );
    let rested = core.resident()?;
    println!("idle measured with load averages {load} to {}", load_average());

    let load = load_average();
    let returning = swarm.watch();
    field.installation.kill_core().await;
    field.installation.start_core().await?;
    let back = returning.all(nodes, PATIENCE).await?;
    println!("returned with load averages {load} to {}", load_average());
    let again = field.core()?;
    tokio::time::sleep(SETTLE).await;
    ensure!(
        swarm.connected() == nodes,
        "only {} nodes came back",
        swarm.connected()
    );
    let (last, peak) = (back.last().copied().unwrap_or_default(), peak_to_mean(&back));

    Ok(vec![
        gauge(
            format!("{} nodes dial at once: time to the last", nodes - some),
            Unit::Seconds,
            first,
            None,
            Budget::None,
        ),
        gauge(
            "one node connects: Core's processor time".to_owned(),
            Unit::Millis,
            spent.as_secs_f64() * 1000.0 / (nodes - some) as f64,
            None,
            Budget::None,
        ),
        gauge(
            format!("memory of each of {some} connected nodes"),
            Unit::Kibibytes,
            each(known, with_some, some),
            None,
            Budget::None,
        ),
        gauge(
            format!("memory of each of {nodes} connected nodes"),
            Unit::Kibibytes,
            each(known, with_all, nodes),
            Some(bare.memory_kib),
            Budget::AtMost(40.0),
        ),
        gauge(
            "the same after a minute of idleness".to_owned(),
            Unit::Kibibytes,
            each(known, rested, nodes),
            None,
            Budget::AtMost(40.0),
        ),
        gauge(
            "the same after Core was killed and all came back".to_owned(),
            Unit::Kibibytes,
            each(known, again.resident()?, nodes),
            None,
            Budget::AtMost(40.0),
        ),
        gauge(
            format!("{nodes} idle nodes"),
            Unit::Percent,
            idle,
            Some(bare.idle_percent),
            Budget::AtMost(15.0),
        ),
        gauge(
            format!("{nodes} nodes return to a killed Core: the last"),
            Unit::Seconds,
            last,
            None,
            Budget::AtMost(60.0),
        ),
        gauge(
            "their busiest second against the mean".to_owned(),
            Unit::Times,
            peak,
            None,
            Budget::AtMost(3.0),
        ),
    ])
}

/// Arrivals of the busiest second, over the mean from the first arrival to the last.
fn peak_to_mean(times: &[f64]) -> f64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return 0.0;
    };
    let busiest = (0..times.len())
        .map(|at| times[at..].partition_point(|time| *time < times[at] + 1.0))
        .max()
        .unwrap_or(0);
    // What takes less than a second has no other second to be compared with.
    busiest as f64 / (times.len() as f64 / (last - first).max(1.0))
}

struct Bare {
    memory_kib: f64,
    idle_percent: f64,
}

async fn bare_sockets(count: usize) -> Result<Bare> {
    let server = bare::Server::start().await?;
    let process = server.process()?;
    let before = process.resident()?;
    let _beating = bare::beating(server.address, count).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(Bare {
        memory_kib: each(before, process.resident()?, count),
        idle_percent: process.load_over(IDLE).await? * 100.0,
    })
}
