//! Durable admissions: what one costs with many nodes known, beside transactions that store one row.
//!
//! An admission is what the route does between body and answer: the choice among all nodes in memory, then a transaction
//! that locks the chosen nodes, checks them again and stores Session, events, placement, allocation and idempotency
//! record; admissions that come meanwhile share the next one. Core's workers do not run: what becomes of the sandboxes is
//! not part of it. The baseline stores its rows one in a transaction; beside it stands what as many rows in a transaction
//! as there are callers take, the most that sharing could save.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use oac_core::{
    Core,
    config::Config,
    hub::Hub,
    metrics::Metrics,
    owner::OwnerHandle,
    placement,
    sessions::{
        Keyed,
        admission::{Admitted, admit},
    },
};
use oac_lifecycle::placement::{Node, TargetStatus};
use oac_model::{ConnectionId, Digest, NodeId};
use oac_store::{Database, IdempotencyRow, NodeHealth, NodeReport, StoreError};
use oac_testkit::postgres::TestDatabase;
use tokio::task::JoinSet;

use crate::{
    figure::{Figure, Work, median},
    gauge::{Budget, Gauge, Unit},
    ground::{Ground, new_session},
};

/// Known nodes, the last one that of the budget.
const NODES: [(usize, [&str; 2]); 3] = [
    (100, ["SQLite, 100 nodes known", "PostgreSQL, 100 nodes known"]),
    (
        1_000,
        ["SQLite, 1,000 nodes known", "PostgreSQL, 1,000 nodes known"],
    ),
    (
        10_000,
        ["SQLite, 10,000 nodes known", "PostgreSQL, 10,000 nodes known"],
    ),
];
/// Admissions, and bare transactions, in one sample.
const EACH: usize = 3_200;
/// How many callers ask at once.
const CALLERS: usize = 64;
const NAME: &str = "placement";
const LEASE: Duration = Duration::from_secs(3600);
const SCOPE: &str = "POST /v1/sessions";
const CORE_URL: &str = "http://core.example.com";

pub(crate) async fn measure(rounds: usize) -> Result<(Vec<Figure>, Vec<Gauge>)> {
    let (mut figures, mut gauges) = (Vec::new(), Vec::new());
    for (nodes, [on_sqlite, on_postgres]) in NODES {
        let folder = tempfile::tempdir()?;
        let file = format!("sqlite://{}", folder.path().join("core.db").display());
        figures.push(on(file.parse()?, nodes, on_sqlite, rounds).await?);
        let server = TestDatabase::create().await;
        figures.push(on(server.url().parse()?, nodes, on_postgres, rounds).await?);
    }
    for figure in &figures[figures.len() - 2..] {
        let each_second = EACH as f64 / median(&figure.ours).as_secs_f64();
        gauges.push(Gauge {
            name: NAME,
            what: figure.what.to_owned(),
            unit: Unit::EachSecond,
            ours: each_second,
            baseline: Some(EACH as f64 / median(&figure.baseline).as_secs_f64()),
            budget: Budget::AtLeast(2_000.0),
        });
    }
    Ok((figures, gauges))
}

async fn on(database: Database, nodes: usize, what: &'static str, rounds: usize) -> Result<Figure> {
    let ground = Arc::new(Ground::of(database, LEASE).await?);
    let ids = ground.nodes(nodes, CORE_URL).await?;
    let (mut ours, mut baseline, mut together) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let core = core_that_knows(&ground, &ids).await?;
        let admitted = admissions(&core, &ground).await?;
        let bare = bare_transactions(&ground).await?;
        let shared = shared_transactions(&ground).await?;
        // The first ones fill caches.
        if round > 0 {
            ours.push(admitted);
            baseline.push(bare);
            together.push(shared);
        }
    }
    Ok(Figure {
        name: NAME,
        what,
        ours,
        baseline,
        work: Work::Things(EACH as u64),
        budget: None,
        beside: vec![("64 rows in each bare transaction", median(&together))],
    })
}

/// A Core to which every node has just spoken. Its lease holds for a round.
async fn core_that_knows(ground: &Ground, nodes: &[NodeId]) -> Result<Arc<Core>> {
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let metrics = Metrics::default();
    let core = Core {
        config: Config {
            listen: vec![listen],
            metrics_listen: None,
            public_url: Some(CORE_URL.parse()?),
            database: ground.store.database().clone(),
            database_password: None,
            tls: None,
            release_dir: Default::default(),
            release_url: None,
            trusted_proxies: Default::default(),
            traces: None,
        },
        store: ground.store.clone(),
        owner: OwnerHandle::default(),
        hub: Hub::new(metrics.clone(), Default::default()),
        links: Default::default(),
        admissions: Default::default(),
        samples: Default::default(),
        releases: Default::default(),
        traces: Default::default(),
        turns: Default::default(),
        accesses: Default::default(),
        metrics,
        pokes: Default::default(),
        tasks: Default::default(),
    };
    let reports: Vec<NodeReport> = nodes.iter().map(|id| report(*id)).collect();
    for some in reports.chunks(500) {
        let tx = ground.store.begin(&ground.owner).await?;
        tx.record_reports(some).await?;
        tx.commit().await?;
    }
    placement::refresh_deployment(&core).await;
    let counts = ground.store.single().nodes_with_counts().await?;
    let memory = core.hub.memory();
    for (row, counts) in counts {
        let node = Node {
            id: row.id,
            created_at: row.created_at,
            online: true,
            provider_ready: true,
            pin: Some(ground.generation),
            core_url: row.core_url,
            cordoned: false,
            draining: false,
            labels: Default::default(),
            active: u32::try_from(counts.slots.active)?,
            retained: u32::try_from(counts.slots.retained)?,
            max_active: row.max_active,
            max_retained: row.max_retained,
            target_status: Some(TargetStatus::Ready),
            execution_class: row.execution_class,
            checkpoint_store: row.checkpoint_store,
        };
        memory.remember(memory.ticket(), node);
    }
    let owner = OwnerHandle::last_renewed(&ground.owner, Instant::now());
    Ok(Arc::new(Core { owner, ..core }))
}

fn report(node_id: NodeId) -> NodeReport {
    NodeReport {
        node_id,
        connection_id: ConnectionId::random(),
        hello: Some(false),
        health: NodeHealth {
            provider_ready: true,
            diagnostic: None,
            observed_at: None,
            active_operations: 0,
            cpu_utilization: None,
            effective_cpu_cores: None,
            cpu_count: None,
            total_memory_bytes: None,
            available_memory_bytes: None,
            available_disk_bytes: None,
            execution_class: None,
            checkpoint_store: None,
            boot_id: None,
        },
    }
}

async fn admissions(core: &Arc<Core>, ground: &Arc<Ground>) -> Result<Duration> {
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (core, ground) = (core.clone(), ground.clone());
        callers.spawn(async move {
            for _ in 0..EACH / CALLERS {
                one_admission(&core, &ground).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok(began.elapsed())
}

async fn one_admission(core: &Arc<Core>, ground: &Ground) -> Result<()> {
    let new = new_session(ground.project);
    let key = new.id.to_string();
    let keyed = Keyed::new(ground.project, SCOPE, &key, Digest::of(&key));
    match admit(core, new, Some(keyed), Default::default()).await? {
        Admitted::Stored { .. } => Ok(()),
        Admitted::First => bail!("nobody else has this key"),
    }
}

/// One inserted row each, made durable.
async fn bare_transactions(ground: &Arc<Ground>) -> Result<Duration> {
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let ground = ground.clone();
        callers.spawn(async move {
            for _ in 0..EACH / CALLERS {
                let digest = Digest::of(NodeId::random().to_string());
                ground.store.create_core_key("bench", digest).await?;
            }
            Ok::<(), StoreError>(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done.context("a caller ended")??;
    }
    Ok(began.elapsed())
}

/// As many rows, those of all callers in one transaction.
async fn shared_transactions(ground: &Ground) -> Result<Duration> {
    let began = Instant::now();
    for _ in 0..EACH / CALLERS {
        let tx = ground.store.begin(&ground.owner).await?;
        let row = |key: String| IdempotencyRow {
            project_id: ground.project,
            scope: SCOPE.to_owned(),
            body_digest: Digest::of(&key),
            key,
            response: serde_json::json!({}),
            created_at: tx.now(),
        };
        let rows: Vec<_> = (0..CALLERS).map(|_| row(NodeId::random().to_string())).collect();
        tx.insert_idempotency_records(&rows).await?;
        tx.commit().await?;
    }
    Ok(began.elapsed())
}
