use oac_model::{ConnectionId, EnvironmentId, Generation};
use oac_store::{DeploymentLock, NodeHealth, StoreError};

use crate::world::{World, counts, hello, new_placement, selection};

// inv: INV-C4
pub(crate) async fn selections_get_numbers_that_never_repeat(world: World) {
    let numbers = [
        world.generation(1).await,
        world.generation(2).await,
        world.generation(1).await,
    ];
    assert_eq!(numbers.map(Generation::get), [1, 2, 3]);
    // A refused write uses no number, and collection gives none back.
    let tx = world.begin().await;
    tx.save_selection(&selection(4)).await.unwrap();
    tx.rollback().await.unwrap();
    let tx = world.begin().await;
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    let collected = tx.collect_generations().await.unwrap();
    assert_eq!(collected.iter().map(|g| g.get()).max(), Some(2));
    tx.commit().await.unwrap();
    assert_eq!(world.generation(5).await.get(), 4);

    let deployment = world.store.single().deployment().await.unwrap();
    let row = world
        .store
        .single()
        .generation(deployment.target().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.specification, selection(5).specification);
    assert_eq!(row.digest, selection(5).specification.digest());
    assert_eq!(row.canonical, selection(5).specification.canonical());
}

// inv: INV-C4
pub(crate) async fn a_placement_without_its_generations_row_is_refused(world: World) {
    let generation = world.generation(2).await;
    let missing = generation.next().unwrap();
    let tx = world.begin().await;
    let refused = tx
        .insert_placement(&new_placement(EnvironmentId::random(), None, missing))
        .await;
    assert!(
        matches!(refused, Err(StoreError::NoSuchGeneration { generation }) if generation == missing),
        "{refused:?}"
    );
}

// inv: INV-C4
pub(crate) async fn a_generation_is_kept_while_anything_unreleased_names_it(world: World) {
    let placed = world.generation(1).await;
    let node = world.node(placed, 10, 10).await;
    let pinned = world.generation(2).await;
    let unused = world.generation(3).await;
    let target = world.generation(4).await;
    let project = world.project().await;
    let session = world.session(project).await;
    let mut allocation = world.allocation_on(node, placed, &session).await;

    let tx = world.begin().await;
    // Known to be managing, so that its enrolled generation alone keeps nothing.
    let managing = hello(node, ConnectionId::random(), true, &NodeHealth::default());
    assert!(counts(&tx, managing).await);
    tx.set_serving_generation(node, pinned).await.unwrap();
    tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
    assert_eq!(tx.collect_generations().await.unwrap(), [unused]);
    tx.commit().await.unwrap();
    let read = world.store.single();
    for kept in [placed, pinned, target] {
        assert!(read.kept_generation(kept).await.unwrap().is_some(), "{kept}");
    }
    assert_eq!(read.kept_generation(unused).await.unwrap(), None);
    // The same for several at once, in the order that was asked for, those never heard of included.
    let never = target.next().unwrap();
    let digest = |memory| Some(selection(memory).specification.digest());
    assert_eq!(
        read.kept_digests(&[target, unused, never, placed, pinned])
            .await
            .unwrap(),
        [digest(4), None, None, digest(1), digest(2)]
    );
    assert_eq!(read.kept_digests(&[]).await.unwrap(), []);

    let tx = world.begin().await;
    let compute = crate::in_play::compute(allocation.id, 0, None);
    tx.insert_compute(&compute).await.unwrap();
    assert!(tx.discard_compute(allocation.id, 0).await.unwrap());
    allocation.released_at = Some(tx.now());
    tx.save_allocation(&mut allocation).await.unwrap();
    assert!(
        tx.kept_generation(placed).await.unwrap().is_some(),
        "the placement is not released"
    );
    assert!(tx.release_placement(allocation.placement_id).await.unwrap());
    assert!(!tx.release_placement(allocation.placement_id).await.unwrap());
    assert!(
        tx.kept_generation(placed).await.unwrap().is_some(),
        "a kill of it is owed"
    );
    assert!(tx.end_compute(allocation.id, 0).await.unwrap());
    assert_eq!(tx.kept_generation(placed).await.unwrap(), None);
    assert!(tx.retire_node(node).await.unwrap());
    assert_eq!(tx.kept_generation(pinned).await.unwrap(), None);
    tx.commit().await.unwrap();
}
