use oac_model::AllocationState;
use oac_store::{ObservationStatus, Seen, StoreError};
use serde_json::json;

use crate::world::World;

pub(crate) async fn a_write_on_an_old_revision_changes_nothing(world: World) {
    let mut first = world.allocation().await;
    let mut second = first.clone();
    let tx = world.begin().await;
    first.state = AllocationState::Creating;
    tx.save_allocation(&mut first).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(first.revision, second.revision + 1);

    let tx = world.begin().await;
    second.state = AllocationState::CleanupPending;
    let refused = tx.save_allocation(&mut second).await;
    assert!(
        matches!(refused, Err(StoreError::Revision { allocation_id }) if allocation_id == first.id),
        "{refused:?}"
    );
    drop(tx);
    let read = world.store.single();
    assert_eq!(read.allocation(first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(
        read.latest_allocation(first.session_id).await.unwrap(),
        Some(first.clone())
    );
    let by_placement = read.allocation_of_placement(first.placement_id).await.unwrap();
    assert_eq!(by_placement, Some(first));
}

pub(crate) async fn pages_of_a_state_name_each_allocation_once(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        let session = world.session(project).await;
        let mut allocation = world.allocation_on(node, generation, &session).await;
        if n < 5 {
            ids.push(allocation.id);
        } else {
            let tx = world.begin().await;
            allocation.state = AllocationState::Released;
            allocation.released_at = Some(tx.now());
            tx.save_allocation(&mut allocation).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    ids.sort();
    let read = world.store.read().await.unwrap();
    let mut seen = Vec::new();
    loop {
        let page = read
            .allocations_in_state(AllocationState::Reserved, seen.last().copied(), 2)
            .await
            .unwrap()
            .whole()
            .unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        seen.extend(page.iter().map(|a| a.id));
    }
    assert_eq!(seen, ids);
    assert_eq!(
        read.unreleased_allocations(Some(ids[2]), 32)
            .await
            .unwrap()
            .rows
            .len(),
        2
    );
    assert_eq!(
        read.allocations_of_node(node, None, 32).await.unwrap().rows.len(),
        5
    );
}

pub(crate) async fn a_link_may_stay_only_while_its_sandbox_starts_or_runs(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let (mut all, mut expected) = (Vec::new(), Vec::new());
    for state in AllocationState::ALL {
        let session = world.session(project).await;
        let mut allocation = world.allocation_on(node, generation, &session).await;
        let tx = world.begin().await;
        allocation.state = *state;
        tx.save_allocation(&mut allocation).await.unwrap();
        tx.commit().await.unwrap();
        all.push(allocation.id);
        if matches!(state, AllocationState::Creating | AllocationState::Running) {
            expected.push((allocation.id, allocation.link_generation));
        }
    }
    let read = world.store.single();
    let mut linkable = read.linkable_allocations(&all).await.unwrap();
    linkable.sort();
    expected.sort();
    assert_eq!(linkable, expected);
    assert_eq!(read.linkable_allocations(&[]).await.unwrap(), []);
}

pub(crate) async fn observations_of_many_are_kept_together_and_each_as_if_alone(world: World) {
    let (sampled, missed) = (world.allocation().await, world.allocation().await);
    let mut released = world.allocation().await;
    let tx = world.begin().await;
    released.state = AllocationState::Released;
    released.released_at = Some(tx.now());
    tx.save_allocation(&mut released).await.unwrap();
    let seen = |allocation_id, sample| Seen {
        allocation_id,
        sample,
    };
    let use_of = |n: u32| json!({ "memory_usage_bytes": n });
    tx.save_observations(&[seen(missed.id, Ok(use_of(1)))])
        .await
        .unwrap();
    let (before, why) = (tx.now(), ObservationStatus::RuntimeNotRunning);
    tx.commit().await.unwrap();

    let tx = world.begin().await;
    let all = [
        seen(sampled.id, Ok(use_of(2))),
        seen(missed.id, Err(why)),
        seen(released.id, Ok(use_of(3))),
    ];
    tx.save_observations(&all).await.unwrap();
    let now = tx.now();
    tx.commit().await.unwrap();

    let page = world
        .store
        .single()
        .allocations(&all.map(|one| one.allocation_id))
        .await;
    let rows = page.unwrap().whole().unwrap();
    assert_eq!(rows.len(), 3);
    let kept = |id| {
        let row = rows.iter().find(|row| row.id == id).unwrap();
        (row.sample.clone(), row.sampled_at, row.observation, row.revision)
    };
    let observed = Some(ObservationStatus::Observed);
    assert_eq!(
        kept(sampled.id),
        (Some(use_of(2)), Some(now), observed, sampled.revision)
    );
    assert_eq!(
        kept(missed.id),
        (Some(use_of(1)), Some(before), Some(why), missed.revision)
    );
    assert_eq!(kept(released.id), (None, None, None, released.revision));
}
