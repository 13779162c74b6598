//! Sessions without their routes, and waiting on what Core stored.

use std::time::Duration;

use oac_core::{
    allocations::{self, Cause},
    placement::{self, PlaceError},
    sessions::admission::{Admitted, admit},
};
use oac_model::{
    AllocationId, AllocationState, EnvironmentId, InputId, Network, SessionId, TurnId, TurnState,
};
use oac_store::{AllocationRow, Dispatch, Initialization, NewInput, NewSession, OperationKind, OperationRow};
use oac_testkit::{core::TestCore, wait};

/// A database a test runs on.
#[derive(Debug, Clone, Copy)]
pub enum On {
    Sqlite,
    Postgres,
}

/// A Core with a deployment, on either database.
pub async fn core(on: On) -> TestCore {
    let core = match on {
        On::Sqlite => TestCore::start().await,
        On::Postgres => TestCore::start_postgres().await,
    };
    core.deploy(1, 512).await;
    placement::refresh_deployment(core.core()).await;
    core
}

/// A Core under TLS, with a deployment, on SQLite.
pub async fn core_under_tls(folder: &std::path::Path) -> TestCore {
    let options = oac_testkit::core::CoreOptions {
        tls: Some(oac_testkit::tls::Files::write(folder, oac_testkit::tls::FIRST).unwrap()),
        ..Default::default()
    };
    let core = TestCore::with(options).await;
    core.deploy(1, 512).await;
    placement::refresh_deployment(core.core()).await;
    core
}

/// Places a new Session, as its route does.
pub async fn session(core: &TestCore) -> Result<(SessionId, AllocationId), PlaceError> {
    let new = NewSession {
        id: SessionId::random(),
        project_id: core.project_id,
        environment_id: EnvironmentId::random(),
        name: None,
        network: Network::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    };
    let session = new.id;
    match admit(core.core(), new, None, Default::default()).await? {
        Admitted::Stored { placed, .. } => Ok((session, placed.allocation_id)),
        Admitted::First => panic!("there is no key"),
    }
}

pub async fn begin(core: &TestCore) -> oac_store::Tx {
    core.core().begin().await.unwrap()
}

/// Does something while `tx`, which PostgreSQL would end for its idleness, stays open.
pub async fn while_open<T>(tx: &oac_store::Tx, doing: impl Future<Output = T>) -> T {
    let mut doing = std::pin::pin!(doing);
    loop {
        match tokio::time::timeout(Duration::from_millis(500), &mut doing).await {
            Ok(done) => return done,
            Err(_) => drop(tx.database_time().await.unwrap()),
        }
    }
}

/// Archives as far as the sandbox is concerned.
pub async fn archive(core: &TestCore, session: SessionId, allocation: AllocationId) -> AllocationRow {
    let tx = begin(core).await;
    tx.lock_session(session).await.unwrap();
    let given_up = allocations::begin_cleanup(&tx, allocation, Cause::Archive)
        .await
        .unwrap();
    tx.archive_session(session).await.unwrap();
    tx.commit().await.unwrap();
    core.core().pokes.allocations.notify_one();
    given_up.row
}

/// A Turn that waits.
pub async fn input(core: &TestCore, session: SessionId) -> TurnId {
    let tx = begin(core).await;
    tx.lock_session(session).await.unwrap();
    let new = NewInput {
        id: InputId::random(),
        turn_id: TurnId::random(),
        session_id: session,
        args: vec!["true".to_owned()],
        cwd: "/workspace".to_owned(),
        env: Default::default(),
        stdin: None,
        timeout_seconds: 60,
        state: TurnState::Waiting,
    };
    tx.insert_input(&new).await.unwrap();
    tx.set_session_state(session, oac_model::SessionState::Busy, None)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    new.turn_id
}

/// A running sandbox on the only node that takes it, with a Turn that runs in it as if its runtime had linked.
pub async fn working(core: &TestCore) -> (SessionId, AllocationId, TurnId) {
    let (session, allocation) = session(core).await.unwrap();
    until(core, allocation, AllocationState::Running).await;
    let turn = input(core, session).await;
    let tx = begin(core).await;
    tx.lock_session(session).await.unwrap();
    let mut row = tx.lock_allocation(allocation).await.unwrap().unwrap();
    row.initialization = Initialization::Complete;
    tx.save_allocation(&mut row).await.unwrap();
    let mut row = tx.turn(turn).await.unwrap().unwrap();
    (row.state, row.dispatch, row.allocation_id) =
        (TurnState::Running, Dispatch::Confirmed, Some(allocation));
    assert!(tx.save_turn(&row).await.unwrap());
    tx.commit().await.unwrap();
    (session, allocation, turn)
}

pub async fn row(core: &TestCore, id: AllocationId) -> AllocationRow {
    core.core().store.single().allocation(id).await.unwrap().unwrap()
}

pub async fn operations(core: &TestCore, id: AllocationId) -> Vec<OperationRow> {
    core.core().store.single().operations(id).await.unwrap()
}

pub async fn creates(core: &TestCore, id: AllocationId) -> Vec<oac_store::OperationState> {
    let all = operations(core, id).await;
    all.into_iter()
        .filter(|op| op.kind == OperationKind::Create)
        .map(|op| op.state)
        .collect()
}

/// Waits until the allocation is in `state`.
pub async fn until(core: &TestCore, id: AllocationId, state: AllocationState) -> AllocationRow {
    let what = format!("allocation {id} in state {state}");
    let found = wait::until(&what, Duration::from_secs(40), async || {
        let row = row(core, id).await;
        (row.state == state).then_some(row)
    })
    .await;
    match found {
        Ok(row) => row,
        Err(error) => panic!(
            "{error}: {:?} {:?}",
            row(core, id).await,
            operations(core, id).await
        ),
    }
}

/// Waits until `holds`.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    wait::until(what, Duration::from_secs(40), async || {
        holds().await.then_some(())
    })
    .await
    .unwrap();
}

/// Stops `core`, then writes what a Core that was killed had stored, under an epoch of its own.
pub async fn as_killed<T>(core: &mut TestCore, write: impl AsyncFnOnce(&oac_store::Tx) -> T) -> T {
    core.stop().await;
    let database: oac_store::Database = core.database_url().parse().unwrap();
    let lock = oac_store::ExclusiveLock::take(&database).unwrap();
    let options = oac_store::StoreOptions {
        password: core.database_password(),
        ..oac_store::StoreOptions::new(database)
    };
    let store = oac_store::Store::open(options).await.unwrap();
    let claim = lock
        .as_ref()
        .map_or(oac_store::Claim::WhenExpired, oac_store::Claim::AtOnce);
    let held = store
        .acquire_ownership(oac_store::Holder::random(), Duration::from_millis(1), claim)
        .await;
    let tx = store
        .begin(&held.unwrap().expect("the stopped Core gave up its lease"))
        .await
        .unwrap();
    let written = write(&tx).await;
    tx.commit().await.unwrap();
    store.close().await;
    written
}

/// The next Core on the database of a stopped one, under the same public address.
pub async fn next_core(stopped: &TestCore) -> TestCore {
    let options = oac_testkit::core::CoreOptions {
        public_url: Some(stopped.public_url.clone()),
        ..oac_testkit::core::CoreOptions::default()
    };
    let core = stopped.beside(options).await;
    placement::refresh_deployment(core.core()).await;
    core
}

/// A Session with a reserved allocation on `node`, as placement leaves them.
pub async fn reserve(
    tx: &oac_store::Tx,
    project_id: oac_model::ProjectId,
    node: oac_model::NodeId,
) -> (SessionId, AllocationId) {
    let (id, environment_id) = (SessionId::random(), EnvironmentId::random());
    let session = NewSession {
        id,
        project_id,
        environment_id,
        name: None,
        network: Network::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    };
    tx.insert_session(&session).await.unwrap();
    let generation = tx.node(node).await.unwrap().unwrap().enrolled_generation;
    let placement = oac_store::NewPlacement {
        id: oac_model::PlacementId::random(),
        environment_id,
        node_id: Some(node),
        generation,
    };
    tx.insert_placement(&placement).await.unwrap();
    let allocation = oac_store::NewAllocation {
        id: AllocationId::random(),
        placement_id: placement.id,
        tenant_id: project_id,
        session_id: id,
        environment_id,
        node_id: Some(node),
        deployment_generation: generation,
    };
    tx.insert_allocation(&allocation).await.unwrap();
    (id, allocation.id)
}
