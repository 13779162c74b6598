use std::time::Duration;

use oac_model::{Digest, SessionState};
use oac_store::EventKind;
use serde_json::json;

use crate::world::World;

pub(crate) async fn a_session_pages_newest_first_and_belongs_to_its_project(world: World) {
    let (project, other) = (world.project().await, world.project().await);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(world.session(project).await);
    }
    let foreign = world.session(other).await;
    ids.sort_by_key(|s| std::cmp::Reverse((s.created_at, s.id)));
    let read = world.store.read().await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = read.sessions_of_project(project, None, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id));
        seen.extend(page);
    }
    assert_eq!(seen, ids);
    assert_eq!(read.session_of_project(project, foreign.id).await.unwrap(), None);
    let own = read.session_of_project(other, foreign.id).await.unwrap();
    assert_eq!(own.as_ref(), Some(&foreign));
    let by_environment = read.session_of_environment(foreign.environment_id).await.unwrap();
    assert_eq!(by_environment, own);
    let failed = read
        .sessions_of_project(project, Some(SessionState::Failed), after, 9)
        .await;
    assert_eq!(failed.unwrap(), []);
}

pub(crate) async fn an_archived_session_never_changes(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    let tx = world.begin().await;
    assert!(tx.lock_session(session.id).await.unwrap().is_some());
    let failed = tx.set_session_state(session.id, SessionState::Failed, Some("no sandbox"));
    assert!(failed.await.unwrap());
    tx.set_failed_creates(session.id, 3).await.unwrap();
    assert!(tx.archive_session(session.id).await.unwrap());
    assert!(!tx.archive_session(session.id).await.unwrap());
    let revived = tx.set_session_state(session.id, SessionState::Idle, None);
    assert!(!revived.await.unwrap());
    tx.commit().await.unwrap();
    let read = world.store.single();
    let row = read.session(session.id).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Archived);
    assert_eq!(row.reason.as_deref(), Some("no sandbox"));
    assert_eq!(row.failed_creates, 3);
    assert!(row.archived_at.is_some());
    assert_eq!(read.unarchived_sessions(None, 32).await.unwrap(), []);
}

pub(crate) async fn the_latest_ten_thousand_events_are_kept(world: World) {
    let project = world.project().await;
    let session = world.session(project).await;
    let tx = world.begin().await;
    for n in 1..=3 {
        let sequence = tx
            .append_event(session.id, EventKind::TurnQueued, &json!({"n": n}))
            .await;
        assert_eq!(sequence.unwrap(), n);
    }
    tx.commit().await.unwrap();
    // As after 9,998 more.
    world.raw("UPDATE sessions SET last_event = 10001").await;
    let tx = world.begin().await;
    let sequence = tx
        .append_event(session.id, EventKind::SandboxChanged, &json!({}))
        .await;
    assert_eq!(sequence.unwrap(), 10_002);
    tx.commit().await.unwrap();
    let read = world.store.single();
    let left: Vec<_> = read
        .events_after(session.id, 0, 100)
        .await
        .unwrap()
        .iter()
        .map(|e| (e.sequence, e.kind))
        .collect();
    assert_eq!(
        left,
        [(3, EventKind::TurnQueued), (10_002, EventKind::SandboxChanged)]
    );
    assert_eq!(read.events_after(session.id, 10_002, 100).await.unwrap(), []);
}

pub(crate) async fn an_idempotency_record_answers_for_a_day(world: World) {
    let project = world.project().await;
    let (first, second) = (Digest::of("first"), Digest::of("second"));
    let tx = world.begin().await;
    let stored = tx
        .insert_idempotency_record(project, "sessions", "k", first, &json!(1))
        .await;
    assert!(stored.unwrap());
    let again = tx
        .insert_idempotency_record(project, "sessions", "k", second, &json!(2))
        .await;
    assert!(!again.unwrap());
    let other_scope = tx
        .insert_idempotency_record(project, "inputs", "k", second, &json!(3))
        .await;
    assert!(other_scope.unwrap());
    let now = tx.now();
    tx.commit().await.unwrap();
    let read = world.store.single();
    let record = read
        .idempotency_record(project, "sessions", "k", now)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((record.body_digest, record.response), (first, json!(1)));

    let (later, owner) = world.later(Duration::from_secs(24 * 3600 + 1)).await;
    let tx = later.begin(&owner).await.unwrap();
    let gone = tx
        .idempotency_record(project, "sessions", "k", tx.now())
        .await
        .unwrap();
    assert_eq!(gone, None);
    let replaced = tx
        .insert_idempotency_record(project, "sessions", "k", second, &json!(4))
        .await;
    assert!(replaced.unwrap());
    assert_eq!(tx.prune_idempotency_records().await.unwrap(), 1);
    let record = tx
        .idempotency_record(project, "sessions", "k", tx.now())
        .await
        .unwrap();
    assert_eq!(record.unwrap().response, json!(4));
}

pub(crate) async fn sessions_without_a_placement_are_found(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let (placed, bare, gone) = (
        world.session(project).await,
        world.session(project).await,
        world.session(project).await,
    );
    let allocation = world.allocation_on(node, generation, &placed).await;
    let tx = world.begin().await;
    tx.archive_session(gone.id).await.unwrap();
    tx.commit().await.unwrap();
    let read = world.store.single();
    assert_eq!(
        read.sessions_without_placement(None, 32).await.unwrap(),
        [bare.id]
    );
    assert_eq!(
        read.sessions_without_placement(Some(bare.id), 32).await.unwrap(),
        []
    );
    let tx = world.begin().await;
    tx.release_placement(allocation.placement_id).await.unwrap();
    tx.commit().await.unwrap();
    let mut both = [bare.id, placed.id];
    both.sort();
    assert_eq!(read.sessions_without_placement(None, 32).await.unwrap(), both);
}
