//! Core started on a database full of sandboxes: how long until it serves, and what memory it takes.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use oac_store::Database;
use oac_testkit::{
    installation::Installation,
    postgres::TestDatabase,
    program::{Tie, built_programs},
};

use crate::{
    gauge::{Budget, Gauge, Unit},
    ground::Ground,
    process::{Process, load_average},
};

const ALLOCATIONS: usize = 100_000;
const NODES: usize = 100;
/// After it serves, until what starting began has ended.
const SETTLE: Duration = Duration::from_secs(15);
const NAME: &str = "restart";

pub(crate) async fn measure() -> Result<Vec<Gauge>> {
    let mut gauges = on("SQLite", None).await?;
    let server = TestDatabase::create().await;
    gauges.extend(on("PostgreSQL", Some(&server.url())).await?);
    Ok(gauges)
}

/// One start.
struct Started {
    /// Until `/readyz` says so.
    ready: f64,
    /// Until an operator's and an application's list were answered.
    serving: f64,
    /// Mebibytes, once it settled.
    memory: f64,
    /// Seconds of processor time from the start until then.
    spent: f64,
}

async fn on(kind: &str, url: Option<&str>) -> Result<Vec<Gauge>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::Builder::new().prefix("oac-bench-").tempdir()?;
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut installation =
        Installation::start(&built_programs(), folder.path(), local, url, Tie::Bound).await?;
    installation.stop_core().await;
    let empty = started(&mut installation, 0).await?;
    let database: Database = match url {
        Some(url) => url.parse()?,
        None => format!("sqlite://{}", folder.path().join("core.db").display()).parse()?,
    };
    let ground = Ground::of(database, Duration::from_secs(3600)).await?;
    let nodes = ground.nodes(NODES, &installation.url).await?;
    ground.sandboxes(ALLOCATIONS, &nodes).await?;
    ground.leave().await?;
    let full = started(&mut installation, ALLOCATIONS as u64).await?;
    println!("{kind}: started with load average {}", load_average());
    let gauge = |what: &str, unit, ours, baseline, budget| Gauge {
        name: NAME,
        what: format!("{kind}, {ALLOCATIONS} allocations: {what}"),
        unit,
        ours,
        baseline: Some(baseline),
        budget,
    };
    Ok(vec![
        gauge(
            "ready",
            Unit::Seconds,
            full.ready,
            empty.ready,
            Budget::AtMost(5.0),
        ),
        gauge(
            "lists answered",
            Unit::Seconds,
            full.serving,
            empty.serving,
            Budget::AtMost(5.0),
        ),
        gauge("memory", Unit::Mebibytes, full.memory, empty.memory, Budget::None),
        gauge(
            "processor time until settled",
            Unit::Seconds,
            full.spent,
            empty.spent,
            Budget::None,
        ),
    ])
}

/// Starts Core, measures, and stops it again.
async fn started(installation: &mut Installation, allocations: u64) -> Result<Started> {
    let began = Instant::now();
    installation.start_core().await?;
    let ready = began.elapsed().as_secs_f64();
    let key = installation.core_key.clone();
    let path = "/core/v1/sandbox/deployment";
    let deployment = installation.call("GET", path, &key, None).await?;
    ensure!(
        deployment["resources"]["allocations"] == allocations,
        "Core sees {}",
        deployment["resources"]
    );
    let path = "/core/v1/sandbox/allocations";
    installation.call("GET", path, &key, None).await?;
    let path = "/core/v1/sandbox/nodes";
    installation.call("GET", path, &key, None).await?;
    let serving = began.elapsed().as_secs_f64();
    tokio::time::sleep(SETTLE).await;
    let process = Process(installation.core_pid().context("Core ended")?);
    let started = Started {
        ready,
        serving,
        memory: process.resident()? as f64 / f64::from(1 << 20),
        spent: process.processor_time()?.as_secs_f64(),
    };
    installation.stop_core().await;
    Ok(started)
}
