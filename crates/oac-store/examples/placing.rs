//! Durable placements a second, with many nodes known: the store's part of the budget in the overview.
//!
//! `cargo run --release -p oac-store --example placing -- sqlite:///path | postgres://… [nodes] [workers] [seconds]`.
//! The database must be empty.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use oac_model::{
    Artifacts, Digest, EnvironmentId, Generation, ImageDigest, Network, NodeId, PlacementId, ProjectId,
    ProviderKind, Resources, RuntimeRelease, SessionId, SourceCommit, Specification,
};
use oac_store::{
    Claim, DeploymentLock, Holder, Labels, NewNode, NewPlacement, NewSession, NodeLimits, Ownership,
    Selection, Store, StoreError, StoreOptions,
};
use tokio::task::JoinSet;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)] // The rate is this program's answer.
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("the first argument is a database URL")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |a| a.parse());
    let (nodes, workers, seconds) = (number(10_000)?, number(16)?, number(10)?);

    let store = Store::open(StoreOptions::new(url.parse()?)).await?;
    let owner = store
        .acquire_ownership(Holder::random(), Duration::from_secs(3600), Claim::WhenExpired)
        .await?
        .ok_or("the database has an owner; use an empty one")?;
    let (project, generation, nodes) = prepare(&store, &owner, nodes).await?;
    let (next, placed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (store, nodes, next, placed) = (store.clone(), nodes.clone(), next.clone(), placed.clone());
        tasks.spawn(async move {
            while Instant::now() < until {
                // In order of ascending load, as placement would choose.
                let node = nodes[next.fetch_add(1, Ordering::Relaxed) % nodes.len()];
                if place(&store, &owner, project, node, generation).await? {
                    placed.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), StoreError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let (count, took) = (placed.load(Ordering::Relaxed), started.elapsed());
    println!(
        "{count} placements in {:.1} s: {:.0}/s, {workers} workers, {} nodes",
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64(),
        nodes.len()
    );
    Ok(())
}

async fn prepare(
    store: &Store,
    owner: &Ownership,
    count: u64,
) -> Result<(ProjectId, Generation, Arc<[NodeId]>), StoreError> {
    let tx = store.begin(owner).await?;
    tx.lock_deployment(DeploymentLock::Exclusive).await?;
    let specification = Specification {
        provider: ProviderKind::Docker,
        resources: Resources {
            cpus: 2,
            memory_mib: 2048,
            root_disk_mib: None,
            environment_disk_mib: None,
        },
        runtime: Some(RuntimeRelease {
            source_commit: SourceCommit::from_bytes([1; 20]),
            artifacts: Artifacts {
                image_id: Some(ImageDigest::of("image")),
                image_manifest_digest: Some(ImageDigest::of("manifest")),
                ..Artifacts::default()
            },
        }),
        workspace: None,
    };
    let selection = Selection {
        specification,
        configuration: serde_json::json!({}),
        metadata: serde_json::json!({}),
        credential_sealed: None,
    };
    let generation = tx.save_selection(&selection).await?;
    let installation_id = tx.deployment().await?.installation_id;
    let project = tx.create_project("bench").await?.id;
    tx.commit().await?;
    let nodes: Vec<NodeId> = (0..count).map(|_| NodeId::random()).collect();
    for some in nodes.chunks(500) {
        let tx = store.begin(owner).await?;
        for id in some {
            tx.insert_node(&NewNode {
                id: *id,
                installation_id,
                name: id.to_string(),
                credential_digest: Digest::of(id.to_string()),
                provider: ProviderKind::Docker,
                backend_fingerprint: Digest::of("backend"),
                enrolled_generation: generation,
                enrolled_digest: Digest::of("specification"),
                core_url: "http://core.example".into(),
                max_active: 1000,
                max_retained: 1000,
                limits: NodeLimits::Custom,
                enrollment_id: None,
            })
            .await?;
        }
        tx.commit().await?;
    }
    Ok((project, generation, nodes.into()))
}

async fn place(
    store: &Store,
    owner: &Ownership,
    project_id: ProjectId,
    node: NodeId,
    generation: Generation,
) -> Result<bool, StoreError> {
    let tx = store.begin(owner).await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let deployment = tx.deployment().await?;
    let Some(row) = tx.lock_node(node).await? else {
        return Ok(false);
    };
    let slots = tx.slot_counts(Some(node)).await?;
    if deployment.resetting() || slots.active >= u64::from(row.max_active) {
        return Ok(false);
    }
    let session = tx
        .insert_session(&NewSession {
            id: SessionId::random(),
            project_id,
            environment_id: EnvironmentId::random(),
            name: None,
            network: Network::default(),
            required_labels: Labels::new(),
            metadata: Labels::new(),
        })
        .await?;
    tx.insert_placement(&NewPlacement {
        id: PlacementId::random(),
        environment_id: session.environment_id,
        node_id: Some(node),
        generation,
    })
    .await?;
    let (key, response) = (session.id.to_string(), serde_json::json!({"status": 201}));
    tx.insert_idempotency_record(project_id, "sessions", &key, Digest::of(&key), &response)
        .await?;
    tx.commit().await?;
    Ok(true)
}
