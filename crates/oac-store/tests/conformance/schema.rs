use std::time::Duration;

use oac_model::{
    AuditId, BootId, ConnectionId, DiagnosticCode, Digest, Generation, InstanceId, OperationId, StoreId,
    Time, TurnState,
};
use oac_store::{
    AllocationDiagnostic, AuditEntry, CheckpointRow, CleanupCause, ComputeRow, Dispatch, EventKind,
    GenerationState, GenerationStatusRow, NodeHealth, NodeSampleRow, ObservationStatus, OpenError, Seen,
    Store, StoreOptions,
};

use crate::world::{World, counts, hello};

pub(crate) async fn opening_twice_migrates_once_and_keeps_the_installation(world: World) {
    let first = world.store.single().deployment().await.unwrap();
    let again = world.another_core(Duration::ZERO).await;
    assert_eq!(again.single().deployment().await.unwrap(), first);
    assert_eq!(first.generation, 0);
    assert_eq!((first.idle_seconds, first.retention_seconds), (300, 86400));
    assert_eq!(first.target(), None);
}

pub(crate) async fn two_processes_that_start_together_agree_on_one_installation(world: World) {
    // A second empty database, opened by four processes at once.
    let (database, second) = match &world.database {
        oac_store::Database::Sqlite(path) => (
            oac_store::Database::Sqlite(path.with_file_name("second.db")),
            None,
        ),
        oac_store::Database::Postgres(_) => {
            let second = oac_testkit::postgres::TestDatabase::create().await;
            (second.url().parse().unwrap(), Some(second))
        }
    };
    let password = second
        .as_ref()
        .and_then(oac_testkit::postgres::TestDatabase::password);
    let open = || async {
        let options = StoreOptions {
            password: password.map(oac_model::Secret::new),
            ..StoreOptions::new(database.clone())
        };
        let store = Store::open(options).await.unwrap();
        store.single().deployment().await.unwrap().installation_id
    };
    let (a, b, c, d) = tokio::join!(open(), open(), open(), open());
    assert_eq!([a, a, a], [b, c, d]);
}

pub(crate) async fn a_schema_from_a_newer_version_is_refused(world: World) {
    world
        .raw("INSERT INTO schema_migrations (number, name, applied_at) VALUES (999, 'later', 0)")
        .await;
    let error = world.open(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Newer { found: 999, known: 7 }),
        "{error}"
    );
}

pub(crate) async fn every_member_of_a_row_comes_back_as_it_was_stored(world: World) {
    let mut allocation = world.allocation().await;
    let node = allocation.node_id.unwrap();
    let connection = ConnectionId::random();
    let health = NodeHealth {
        provider_ready: true,
        diagnostic: Some(DiagnosticCode::HostUnsupported),
        observed_at: Time::from_millis(1_700_000_000_123),
        active_operations: 3,
        cpu_utilization: Some(0.25),
        effective_cpu_cores: Some(4.0),
        cpu_count: Some(8),
        total_memory_bytes: Some(1 << 40),
        available_memory_bytes: Some(1 << 39),
        available_disk_bytes: Some(0),
        execution_class: Some(Digest::of("class")),
        checkpoint_store: Some(StoreId::random()),
        boot_id: Some(BootId::random()),
    };
    let status = GenerationStatusRow {
        node_id: node,
        generation: allocation.deployment_generation,
        digest: Digest::of("specification"),
        state: GenerationState::Failed,
        diagnostic: Some(DiagnosticCode::RuntimeDownloadFailed),
        connection_id: connection,
        owner_epoch: world.owner.epoch,
    };
    let sample = NodeSampleRow {
        node_id: node,
        observed_at: Time::from_millis(5).unwrap(),
        cpu_utilization: Some(1.0),
        total_memory_bytes: Some(7),
        available_memory_bytes: None,
        available_disk_bytes: Some(9),
    };
    let compute = ComputeRow {
        allocation_id: allocation.id,
        generation: 0,
        node_id: Some(node),
        name: "oac-0".into(),
        native_id: Some("abc".into()),
        restored_from: None,
        failed_at: None,
        ended_at: None,
        kill_owed: false,
    };
    let checkpoint = CheckpointRow {
        operation_id: OperationId::random(),
        allocation_id: allocation.id,
        source_generation: 0,
        source_name: "oac-0".into(),
        source_id: "abc".into(),
        store_id: StoreId::random(),
        execution_class: Digest::of("class"),
        digest: Digest::of("checkpoint"),
        size_bytes: 12,
        data: b"{ \"opaque\": 1 }".to_vec(),
        retention_deadline: Time::from_millis(9).unwrap(),
        consumed_at: None,
        deleted_at: None,
    };

    let tx = world.begin().await;
    assert!(counts(&tx, hello(node, connection, true, &health)).await);
    tx.save_generation_statuses(std::slice::from_ref(&status))
        .await
        .unwrap();
    tx.insert_node_samples(std::slice::from_ref(&sample))
        .await
        .unwrap();
    tx.insert_compute(&compute).await.unwrap();
    tx.insert_checkpoint(&checkpoint).await.unwrap();
    allocation.provider_id = Some("provider".into());
    allocation.link_digest = Some(Digest::of("link"));
    allocation.link_generation = Generation::try_from(2).unwrap();
    allocation.bootstrap_complete = true;
    allocation.create_settled = true;
    allocation.restore_failures = 2;
    allocation.cause = Some(CleanupCause::NeverLinked);
    allocation.diagnostic = Some(AllocationDiagnostic::ResourceMissing);
    tx.save_allocation(&mut allocation).await.unwrap();
    let usage = serde_json::json!({"memory_usage_bytes": 1.5});
    let seen = |sample| Seen {
        allocation_id: allocation.id,
        sample,
    };
    tx.save_observations(&[seen(Ok(usage.clone()))]).await.unwrap();
    let missed = ObservationStatus::RuntimeNotRunning;
    tx.save_observations(&[seen(Err(missed))]).await.unwrap();
    (allocation.sample, allocation.sampled_at) = (Some(usage), Some(tx.now()));
    allocation.observation = Some(missed);
    let audit = tx
        .audit(&AuditEntry {
            actor: "core key",
            source: "127.0.0.1",
            resource_type: "node",
            resource_id: node.to_string(),
            action: "add",
            details: serde_json::json!({"name": "n"}),
        })
        .await
        .unwrap();
    let seen = tx.now();
    tx.commit().await.unwrap();

    let session = world
        .store
        .single()
        .session(allocation.session_id)
        .await
        .unwrap()
        .unwrap();
    let (input, mut turn) = world.input(&session).await;
    let tx = world.begin().await;
    turn.state = TurnState::Completed;
    turn.allocation_id = Some(allocation.id);
    turn.dispatch = Dispatch::Confirmed;
    turn.instance_id = Some(InstanceId::random());
    turn.cancel_requested_at = Some(seen);
    turn.started_at = Some(seen);
    turn.ended_at = Some(tx.now());
    (turn.exit_code, turn.signal) = (Some(-1), Some(9));
    turn.reason = Some("because".into());
    assert!(tx.save_turn(&turn).await.unwrap());
    tx.append_event(session.id, EventKind::TurnEnded, &serde_json::json!({"turn": 1}))
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let read = world.store.read().await.unwrap();
    let row = read.node(node).await.unwrap().unwrap();
    assert_eq!(row.connection_id, Some(connection));
    assert_eq!(row.connection_epoch, Some(world.owner.epoch));
    assert_eq!(row.last_seen_at, Some(seen));
    assert_eq!(row.generation_management, Some(true));
    assert!(row.online(world.owner.epoch, seen, 45_000));
    let stored = NodeHealth {
        provider_ready: row.provider_ready,
        diagnostic: row.diagnostic,
        observed_at: row.observed_at,
        active_operations: row.active_operations.unwrap(),
        cpu_utilization: row.cpu_utilization,
        effective_cpu_cores: row.effective_cpu_cores,
        cpu_count: row.cpu_count,
        total_memory_bytes: row.total_memory_bytes,
        available_memory_bytes: row.available_memory_bytes,
        available_disk_bytes: row.available_disk_bytes,
        execution_class: row.execution_class,
        checkpoint_store: row.checkpoint_store,
        boot_id: row.boot_id,
    };
    assert_eq!(stored, health);
    assert_eq!(read.generation_statuses(node).await.unwrap(), [status]);
    let epoch_start = Time::from_millis(0).unwrap();
    assert_eq!(read.node_samples(node, epoch_start).await.unwrap(), [sample]);
    assert_eq!(read.computes(allocation.id).await.unwrap(), [compute]);
    let kept = read.undeleted_checkpoint(allocation.id).await.unwrap();
    assert_eq!(kept, Some(checkpoint));
    assert_eq!(read.allocation(allocation.id).await.unwrap(), Some(allocation));
    assert_eq!(read.input(input.id).await.unwrap(), Some(input));
    assert_eq!(read.turn(turn.id).await.unwrap(), Some(turn));
    let events = read.events_after(session.id, 0, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data, serde_json::json!({"turn": 1}));
    let log: Vec<AuditId> = read
        .audit_log(None, 10)
        .await
        .unwrap()
        .iter()
        .map(|e| e.id)
        .collect();
    assert_eq!(log, [audit.id]);
    assert_eq!(read.audit_log(Some((audit.at, audit.id)), 10).await.unwrap(), []);
}
