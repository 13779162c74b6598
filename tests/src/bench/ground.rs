//! A database as an installation would have left it: a saved deployment, nodes, Sessions with sandboxes. Written while no
//! Core runs, because how it came to be is not part of what is measured.

use std::time::Duration;

use anyhow::{Context as _, Result};
use oac_model::{
    AllocationId, AllocationState, Artifacts, EnvironmentId, Generation, ImageDigest, InstallationId,
    Network, NodeId, PlacementId, ProjectId, ProviderKind, Resources, RuntimeRelease, SessionId,
    SourceCommit, Specification, backend_fingerprint,
};
use oac_store::{
    Claim, Database, DeploymentLock, ExclusiveLock, Holder, NewAllocation, NewNode, NewPlacement, NewSession,
    NodeLimits, Ownership, Selection, Store, StoreOptions, Tx,
};

/// Rows of each kind in one transaction.
const TOGETHER: usize = 500;
/// Sandboxes that each node has room for.
const ROOM: u32 = 1000;

/// An open database and the lease on it.
pub(crate) struct Ground {
    pub(crate) store: Store,
    pub(crate) owner: Ownership,
    pub(crate) project: ProjectId,
    pub(crate) generation: Generation,
    pub(crate) specification: Specification,
    installation: InstallationId,
    _lock: Option<ExclusiveLock>,
}

impl Ground {
    /// Of a database that nobody uses. A deployment that is saved there stays.
    pub(crate) async fn of(database: Database, lease: Duration) -> Result<Self> {
        let lock = ExclusiveLock::take(&database)?;
        let store = Store::open(StoreOptions::new(database)).await?;
        let claim = lock.as_ref().map_or(Claim::WhenExpired, Claim::AtOnce);
        let owner = store
            .acquire_ownership(Holder::random(), lease, claim)
            .await?
            .context("the database has an owner")?;
        let tx = store.begin(&owner).await?;
        tx.lock_deployment(DeploymentLock::Exclusive).await?;
        let specification = specification();
        let deployment = tx.deployment().await?;
        let generation = match deployment.target() {
            Some(generation) => generation,
            None => {
                let selection = Selection {
                    specification: specification.clone(),
                    configuration: serde_json::json!({}),
                    metadata: serde_json::json!({}),
                    credential_sealed: None,
                };
                tx.save_selection(&selection).await?
            }
        };
        let project = tx.create_project("bench").await?.id;
        tx.commit().await?;
        Ok(Self {
            store,
            owner,
            project,
            generation,
            specification,
            installation: deployment.installation_id,
            _lock: lock,
        })
    }

    pub(crate) async fn nodes(&self, count: usize, core_url: &str) -> Result<Vec<NodeId>> {
        let ids: Vec<NodeId> = (0..count).map(|_| NodeId::random()).collect();
        for some in ids.chunks(TOGETHER) {
            let tx = self.store.begin(&self.owner).await?;
            for id in some {
                tx.insert_node(&NewNode {
                    id: *id,
                    installation_id: self.installation,
                    name: id.to_string(),
                    credential_digest: oac_model::Digest::of(id.to_string()),
                    provider: ProviderKind::Docker,
                    backend_fingerprint: backend_fingerprint(
                        ProviderKind::Docker,
                        "unix:///var/run/docker.sock",
                    ),
                    enrolled_generation: self.generation,
                    enrolled_digest: self.specification.digest(),
                    core_url: core_url.to_owned(),
                    max_active: ROOM,
                    max_retained: ROOM,
                    limits: NodeLimits::Custom,
                    enrollment_id: None,
                })
                .await?;
            }
            tx.commit().await?;
        }
        Ok(ids)
    }

    /// As many idle Sessions, each with a running sandbox on one of `nodes` in turn.
    pub(crate) async fn sandboxes(&self, count: usize, nodes: &[NodeId]) -> Result<()> {
        for start in (0..count).step_by(TOGETHER) {
            let tx = self.store.begin(&self.owner).await?;
            for number in start..count.min(start + TOGETHER) {
                self.sandbox(&tx, nodes[number % nodes.len()]).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    async fn sandbox(&self, tx: &Tx, node: NodeId) -> Result<()> {
        let session = tx.insert_session(&new_session(self.project)).await?;
        let placement = NewPlacement {
            id: PlacementId::random(),
            environment_id: session.environment_id,
            node_id: Some(node),
            generation: self.generation,
        };
        tx.insert_placement(&placement).await?;
        let allocation = NewAllocation {
            id: AllocationId::random(),
            placement_id: placement.id,
            tenant_id: self.project,
            session_id: session.id,
            environment_id: session.environment_id,
            node_id: Some(node),
            deployment_generation: self.generation,
        };
        let mut row = tx.insert_allocation(&allocation).await?;
        row.state = AllocationState::Running;
        row.initialization = oac_store::Initialization::Complete;
        row.create_settled = true;
        row.bootstrap_complete = true;
        row.link_digest = Some(oac_model::Digest::of(allocation.id.to_string()));
        tx.save_allocation(&mut row).await?;
        Ok(())
    }

    /// Leaves the database to whoever comes next.
    pub(crate) async fn leave(self) -> Result<()> {
        self.store.release_ownership(self.owner.holder).await?;
        self.store.close().await;
        Ok(())
    }
}

pub(crate) fn new_session(project_id: ProjectId) -> NewSession {
    NewSession {
        id: SessionId::random(),
        project_id,
        environment_id: EnvironmentId::random(),
        name: None,
        network: Network::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    }
}

/// No node here runs sandboxes, so no image need exist.
fn specification() -> Specification {
    Specification {
        provider: ProviderKind::Docker,
        resources: Resources {
            cpus: 1,
            memory_mib: 512,
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
    }
}
