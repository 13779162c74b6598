//! One database of a test's own, the Core that owns it, and rows to work with.

use std::time::Duration;

use oac_model::{
    AllocationId, Artifacts, ConnectionId, Digest, EnvironmentId, Generation, ImageDigest, InputId, Network,
    NodeId, OperationId, PlacementId, ProjectId, ProviderKind, Resources, RuntimeRelease, SessionId,
    SourceCommit, Specification, TurnId, TurnState,
};
use oac_store::{
    AllocationRow, Claim, Database, DeploymentLock, Holder, InputRow, Labels, NewAllocation, NewInput,
    NewNode, NewOperation, NewPlacement, NewSession, NodeHealth, NodeLimits, NodeReport, OpenError,
    OperationKind, OperationRow, Ownership, Selection, SessionRow, Store, StoreOptions, TurnRow, Tx,
};
use oac_testkit::postgres::TestDatabase;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

#[allow(dead_code)] // The fields keep the database alive.
enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(TestDatabase),
}

pub(crate) struct World {
    place: Place,
    pub(crate) database: Database,
    pub(crate) store: Store,
    pub(crate) owner: Ownership,
}

fn options(place: &Place, database: Database) -> StoreOptions {
    let password = match place {
        Place::Postgres(database) => database.password().map(oac_model::Secret::new),
        Place::Sqlite(_) => None,
    };
    StoreOptions {
        password,
        ..StoreOptions::new(database)
    }
}

impl World {
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("core.db").display());
        Self::with(Place::Sqlite(directory), &url).await
    }

    pub(crate) async fn postgres() -> Self {
        let database = TestDatabase::create().await;
        let url = database.url();
        Self::with(Place::Postgres(database), &url).await
    }

    async fn with(place: Place, url: &str) -> Self {
        let database: Database = url.parse().unwrap();
        let store = Store::open(options(&place, database.clone())).await.unwrap();
        let owner = store
            .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
            .await
            .unwrap()
            .unwrap();
        Self {
            place,
            database,
            store,
            owner,
        }
    }

    /// How a stranger connects to the PostgreSQL database.
    pub(crate) fn stranger_url(&self) -> String {
        match &self.place {
            Place::Postgres(database) => database.url_with_password(),
            Place::Sqlite(_) => panic!("only a PostgreSQL database takes strangers"),
        }
    }

    /// Another process's view of the same database, its clock ahead by `ahead`.
    pub(crate) async fn another_core(&self, ahead: Duration) -> Store {
        self.open(ahead).await.unwrap()
    }

    pub(crate) async fn open(&self, ahead: Duration) -> Result<Store, OpenError> {
        let mut options = options(&self.place, self.database.clone());
        options.clock_offset_millis = ahead.as_millis() as i64;
        Store::open(options).await
    }

    /// A store whose clock is `ahead`, and its ownership: time has passed for it.
    pub(crate) async fn later(&self, ahead: Duration) -> (Store, Ownership) {
        (self.another_core(ahead).await, self.owner)
    }

    pub(crate) async fn begin(&self) -> Tx {
        self.store.begin(&self.owner).await.unwrap()
    }

    /// One statement as a stranger would run it.
    pub(crate) async fn raw(&self, sql: &str) {
        match (&self.place, &self.database) {
            (Place::Postgres(database), _) => database.execute(sql).await,
            (_, Database::Sqlite(path)) => {
                let options = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(path)
                    .busy_timeout(Duration::from_secs(10));
                let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
                connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
                connection.close().await.unwrap();
            }
            _ => unreachable!(),
        }
    }

    pub(crate) async fn project(&self) -> ProjectId {
        let tx = self.begin().await;
        let project = tx.create_project("project").await.unwrap();
        tx.commit().await.unwrap();
        project.id
    }

    pub(crate) async fn generation(&self, cpus: u32) -> Generation {
        let tx = self.begin().await;
        tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
        let generation = tx.save_selection(&selection(cpus)).await.unwrap();
        tx.commit().await.unwrap();
        generation
    }

    pub(crate) async fn node(&self, generation: Generation, max_active: u32, max_retained: u32) -> NodeId {
        let tx = self.begin().await;
        let installation_id = tx.deployment().await.unwrap().installation_id;
        let id = NodeId::random();
        tx.insert_node(&NewNode {
            id,
            installation_id,
            name: "node".into(),
            credential_digest: Digest::of(format!("credential of {id}")),
            provider: ProviderKind::Docker,
            backend_fingerprint: Digest::of("backend"),
            enrolled_generation: generation,
            enrolled_digest: Digest::of("specification"),
            core_url: "http://core.example:8080".into(),
            max_active,
            max_retained,
            limits: NodeLimits::Custom,
            enrollment_id: None,
        })
        .await
        .unwrap();
        tx.commit().await.unwrap();
        id
    }

    pub(crate) async fn session(&self, project: ProjectId) -> SessionRow {
        let tx = self.begin().await;
        let session = tx.insert_session(&new_session(project)).await.unwrap();
        tx.commit().await.unwrap();
        session
    }

    /// A Session of a fresh Project with a placement and a reserved allocation on a node with room for 10.
    pub(crate) async fn allocation(&self) -> AllocationRow {
        let generation = self.generation(2).await;
        let node = self.node(generation, 10, 10).await;
        let project = self.project().await;
        let session = self.session(project).await;
        self.allocation_on(node, generation, &session).await
    }

    pub(crate) async fn allocation_on(
        &self,
        node: NodeId,
        generation: Generation,
        session: &SessionRow,
    ) -> AllocationRow {
        let tx = self.begin().await;
        let placement = tx
            .insert_placement(&new_placement(session.environment_id, Some(node), generation))
            .await
            .unwrap();
        let allocation = tx
            .insert_allocation(&new_allocation(placement.id, session, Some(node), generation))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        allocation
    }

    pub(crate) async fn intent(&self, allocation: &AllocationRow, kind: OperationKind) -> OperationRow {
        let tx = self.begin().await;
        let operation = tx.insert_intent(&new_operation(allocation, kind)).await.unwrap();
        tx.commit().await.unwrap();
        operation
    }

    pub(crate) async fn input(&self, session: &SessionRow) -> (InputRow, TurnRow) {
        let tx = self.begin().await;
        tx.lock_session(session.id).await.unwrap();
        let both = tx.insert_input(&new_input(session.id)).await.unwrap();
        tx.commit().await.unwrap();
        both
    }
}

pub(crate) fn selection(cpus: u32) -> Selection {
    Selection {
        specification: Specification {
            provider: ProviderKind::Docker,
            resources: Resources {
                cpus,
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
        },
        configuration: serde_json::json!({}),
        metadata: serde_json::json!({}),
        credential_sealed: None,
    }
}

pub(crate) fn new_session(project_id: ProjectId) -> NewSession {
    NewSession {
        id: SessionId::random(),
        project_id,
        environment_id: EnvironmentId::random(),
        name: Some("session".into()),
        network: Network::default(),
        required_labels: Labels::from([("zone".into(), "a".into())]),
        metadata: Labels::from([("ticket".into(), "ü\"1\"".into())]),
    }
}

pub(crate) fn new_placement(
    environment_id: EnvironmentId,
    node_id: Option<NodeId>,
    generation: Generation,
) -> NewPlacement {
    NewPlacement {
        id: PlacementId::random(),
        environment_id,
        node_id,
        generation,
    }
}

pub(crate) fn new_allocation(
    placement_id: PlacementId,
    session: &SessionRow,
    node_id: Option<NodeId>,
    generation: Generation,
) -> NewAllocation {
    NewAllocation {
        id: AllocationId::random(),
        placement_id,
        tenant_id: session.project_id,
        session_id: session.id,
        environment_id: session.environment_id,
        node_id,
        deployment_generation: generation,
    }
}

pub(crate) fn new_operation(allocation: &AllocationRow, kind: OperationKind) -> NewOperation {
    NewOperation {
        id: OperationId::random(),
        allocation_id: allocation.id,
        node_id: allocation.node_id,
        kind,
        argument: Some(serde_json::json!({"network_access": "public"})),
    }
}

pub(crate) fn new_input(session_id: SessionId) -> NewInput {
    NewInput {
        id: InputId::random(),
        turn_id: TurnId::random(),
        session_id,
        args: vec!["echo".into(), "grüße\n".into()],
        cwd: "/workspace".into(),
        env: Labels::from([("A".into(), "b".into())]),
        stdin: Some(vec![0, 255, 1]),
        timeout_seconds: 3600,
        state: TurnState::Queued,
    }
}

/// A hello of a node, managing or fixed.
pub(crate) fn hello(
    node_id: NodeId,
    connection_id: ConnectionId,
    managing: bool,
    health: &NodeHealth,
) -> NodeReport {
    NodeReport {
        node_id,
        connection_id,
        hello: Some(managing),
        health: health.clone(),
    }
}

/// A heartbeat.
pub(crate) fn heartbeat(node_id: NodeId, connection_id: ConnectionId, health: &NodeHealth) -> NodeReport {
    NodeReport {
        hello: None,
        ..hello(node_id, connection_id, false, health)
    }
}

/// Whether a report counts.
pub(crate) async fn counts(tx: &Tx, report: NodeReport) -> bool {
    tx.record_reports(&[report]).await.unwrap() == 1
}
