use oac_model::{Digest, Generation, NodeId, ProjectId};
use oac_store::{DeploymentLock, Ownership, Store, StoreError};
use tokio::task::JoinSet;

use crate::world::{World, new_allocation, new_input, new_placement, new_session};

/// The placing transaction as oac-core composes it, with every row it stores. The Session, its input and the
/// idempotency record are written before the node's counts are known, so that only the transaction can undo them.
async fn place(
    store: &Store,
    owner: &Ownership,
    project: ProjectId,
    node: NodeId,
    generation: Generation,
    key: &str,
) -> Result<bool, StoreError> {
    let tx = store.begin(owner).await?;
    tx.lock_deployment(DeploymentLock::Shared).await?;
    let deployment = tx.deployment().await?;
    if deployment.resetting() || deployment.target() != Some(generation) {
        return Ok(false);
    }
    let session = tx.insert_session(&new_session(project)).await?;
    let body = Digest::of(key);
    if !tx
        .insert_idempotency_record(
            project,
            "sessions",
            key,
            body,
            &serde_json::json!({"status": 201}),
        )
        .await?
    {
        return Ok(false);
    }
    tx.insert_input(&new_input(session.id)).await?;
    let Some(row) = tx.lock_node(node).await? else {
        return Ok(false);
    };
    let slots = tx.slot_counts(Some(node)).await?;
    if slots.active >= u64::from(row.max_active) || slots.retained >= u64::from(row.max_retained) {
        return Ok(false);
    }
    tx.insert_placement(&new_placement(session.environment_id, Some(node), generation))
        .await?;
    tx.commit().await?;
    Ok(true)
}

// inv: INV-C10, INV-C11
pub(crate) async fn fifty_callers_for_five_slots_place_exactly_five(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 5, 7).await;
    let project = world.project().await;
    let mut callers = JoinSet::new();
    for n in 0..50 {
        let (store, owner) = (world.store.clone(), world.owner);
        callers.spawn(async move {
            place(&store, &owner, project, node, generation, &format!("key {n}"))
                .await
                .unwrap()
        });
    }
    let placed = callers
        .join_all()
        .await
        .into_iter()
        .filter(|placed| *placed)
        .count();
    assert_eq!(placed, 5);

    let read = world.store.read().await.unwrap();
    let slots = read.slot_counts(Some(node)).await.unwrap();
    assert_eq!((slots.active, slots.retained), (5, 5));
    let sessions = read.sessions_of_project(project, None, None, 100).await.unwrap();
    assert_eq!(sessions.len(), 5);
    let mut records = 0;
    for n in 0..50 {
        let now = read.database_time().await.unwrap();
        let key = format!("key {n}");
        let record = read
            .idempotency_record(project, "sessions", &key, now)
            .await
            .unwrap();
        records += usize::from(record.is_some());
    }
    assert_eq!(records, 5);
    assert_eq!(
        read.sessions_with_unfinished_turns(None, 100)
            .await
            .unwrap()
            .len(),
        5
    );
    drop(read);

    // A freed slot is one slot.
    let tx = world.begin().await;
    let environment = sessions[0].environment_id;
    let placement = tx.unreleased_placement(environment).await.unwrap().unwrap();
    assert!(tx.release_placement(placement.id).await.unwrap());
    tx.commit().await.unwrap();
    for expected in [true, false] {
        let key = format!("again {expected}");
        let placed = place(&world.store, &world.owner, project, node, generation, &key).await;
        assert_eq!(placed.unwrap(), expected);
    }
}

// inv: INV-C12
pub(crate) async fn an_environment_has_one_unreleased_placement_and_allocation(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let session = world.session(project).await;
    let first = world.allocation_on(node, generation, &session).await;

    let tx = world.begin().await;
    let second = tx
        .insert_placement(&new_placement(session.environment_id, Some(node), generation))
        .await;
    assert!(matches!(second, Err(StoreError::Duplicate { .. })), "{second:?}");
    drop(tx);

    // The placement is released, its allocation is not: still no second allocation.
    let tx = world.begin().await;
    tx.release_placement(first.placement_id).await.unwrap();
    let placement = tx
        .insert_placement(&new_placement(session.environment_id, Some(node), generation))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let tx = world.begin().await;
    let second = tx
        .insert_allocation(&new_allocation(placement.id, &session, Some(node), generation))
        .await;
    assert!(matches!(second, Err(StoreError::Duplicate { .. })), "{second:?}");
    drop(tx);

    let tx = world.begin().await;
    let mut released = first.clone();
    released.released_at = Some(tx.now());
    tx.save_allocation(&mut released).await.unwrap();
    let second = tx
        .insert_allocation(&new_allocation(placement.id, &session, Some(node), generation))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let read = world.store.single();
    let current = read.unreleased_allocation(session.environment_id).await.unwrap();
    assert_eq!(current, Some(second));
}

// inv: INV-C11, INV-C12
pub(crate) async fn one_key_places_once_however_many_repeat_it(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 50, 50).await;
    let project = world.project().await;
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (store, owner) = (world.store.clone(), world.owner);
        callers.spawn(async move {
            place(&store, &owner, project, node, generation, "same")
                .await
                .unwrap()
        });
    }
    let placed = callers
        .join_all()
        .await
        .into_iter()
        .filter(|placed| *placed)
        .count();
    assert_eq!(placed, 1);
    let read = world.store.single();
    assert_eq!(read.slot_counts(Some(node)).await.unwrap().retained, 1);
    assert_eq!(
        read.sessions_of_project(project, None, None, 100)
            .await
            .unwrap()
            .len(),
        1
    );
}
