use oac_model::{AllocationId, Digest, OperationId, StoreId, Time};
use oac_store::{CheckpointRow, ComputeRow, NewOperation, OperationKind, OperationRow, OperationState, Tx};
use serde_json::{Value, json};

use crate::world::World;

/// A transaction at a time of its own.
async fn later(world: &World, than: &mut Time) -> Tx {
    loop {
        let tx = world.begin().await;
        if tx.now() > *than {
            *than = tx.now();
            return tx;
        }
    }
}

pub(crate) fn compute(
    allocation_id: AllocationId,
    generation: i64,
    restored_from: Option<OperationId>,
) -> ComputeRow {
    ComputeRow {
        allocation_id,
        generation,
        node_id: None,
        name: format!("oac-{generation}"),
        native_id: Some("abc".into()),
        restored_from,
        failed_at: None,
        ended_at: None,
        kill_owed: false,
    }
}

pub(crate) fn checkpoint(
    allocation_id: AllocationId,
    operation_id: OperationId,
    source: i64,
) -> CheckpointRow {
    CheckpointRow {
        operation_id,
        allocation_id,
        source_generation: source,
        source_name: format!("oac-{source}"),
        source_id: "abc".into(),
        store_id: StoreId::random(),
        execution_class: Digest::of("class"),
        digest: Digest::of("checkpoint"),
        size_bytes: 12,
        data: b"{ \"opaque\": 1 }".to_vec(),
        retention_deadline: Time::from_millis(9).unwrap(),
        consumed_at: None,
        deleted_at: None,
    }
}

/// One that was sent and settled.
pub(crate) async fn settled(
    tx: &Tx,
    id: AllocationId,
    kind: OperationKind,
    argument: Option<Value>,
) -> OperationRow {
    let new = NewOperation {
        id: OperationId::random(),
        allocation_id: id,
        node_id: None,
        kind,
        argument,
    };
    let row = tx.insert_intent(&new).await.unwrap();
    assert!(tx.mark_sent(row.id, None).await.unwrap());
    assert!(tx.settle_operation(row.id, &json!({})).await.unwrap());
    row
}

/// Suspends and restores: the old compute ended, the old checkpoint deleted.
async fn round(world: &World, at: &mut Time, id: AllocationId, generation: i64) -> OperationId {
    let tx = later(world, at).await;
    let suspend = settled(&tx, id, OperationKind::Suspend, None).await.id;
    tx.insert_checkpoint(&checkpoint(id, suspend, generation))
        .await
        .unwrap();
    let next = generation + 1;
    settled(
        &tx,
        id,
        OperationKind::Resume,
        Some(json!({ "generation": next })),
    )
    .await;
    tx.insert_compute(&compute(id, next, Some(suspend)))
        .await
        .unwrap();
    tx.consume_checkpoint(suspend).await.unwrap();
    settled(&tx, id, OperationKind::DeleteRetained, None).await;
    assert!(tx.delete_checkpoint(suspend).await.unwrap());
    settled(
        &tx,
        id,
        OperationKind::KillCompute,
        Some(json!({ "generation": generation })),
    )
    .await;
    assert!(tx.end_compute(id, generation).await.unwrap());
    tx.commit().await.unwrap();
    suspend
}

pub(crate) async fn what_is_read_of_an_allocation_does_not_grow_with_what_it_went_through(world: World) {
    let (allocation, mut at) = (world.allocation().await, Time::from_millis(0).unwrap());
    let id = allocation.id;
    let tx = later(&world, &mut at).await;
    let create = settled(&tx, id, OperationKind::Create, None).await.id;
    tx.insert_compute(&compute(id, 0, None)).await.unwrap();
    tx.commit().await.unwrap();
    let mut suspends = Vec::new();
    for generation in 0..12 {
        suspends.push(round(&world, &mut at, id, generation).await);
    }
    let read = world.store.single();
    let computes = read.computes_in_play(id).await.unwrap();
    assert_eq!(computes.iter().map(|c| c.generation).collect::<Vec<_>>(), [12]);
    let kept = read.checkpoints_in_play(id).await.unwrap();
    let named: Vec<_> = kept.iter().map(|c| (c.operation_id, c.data.is_empty())).collect();
    assert_eq!(
        named,
        [(suspends[11], false)],
        "the compute is named with its bytes"
    );
    let operations = read
        .operations_in_play(id, &[json!({ "generation": 12 })])
        .await
        .unwrap();
    let mut kinds: Vec<_> = operations.iter().map(|op| op.kind).collect();
    kinds.sort();
    assert_eq!(
        kinds,
        [
            OperationKind::Create,
            OperationKind::KillCompute,
            OperationKind::Suspend,
            OperationKind::Resume,
            OperationKind::DeleteRetained,
        ]
    );
    assert!(operations.iter().any(|op| op.id == create));
    assert!(operations.iter().any(|op| op.id == suspends[11]), "the latest");

    // A kill of what has not ended stays known whatever came after it, and so does one of unknown outcome.
    let tx = later(&world, &mut at).await;
    settled(
        &tx,
        id,
        OperationKind::KillCompute,
        Some(json!({ "generation": 12 })),
    )
    .await;
    tx.commit().await.unwrap();
    let tx = later(&world, &mut at).await;
    let new = NewOperation {
        id: OperationId::random(),
        allocation_id: id,
        node_id: None,
        kind: OperationKind::KillCompute,
        argument: Some(json!({ "generation": 3 })),
    };
    tx.insert_intent(&new).await.unwrap();
    assert!(tx.mark_sent(new.id, None).await.unwrap());
    assert!(tx.mark_unconfirmed(new.id).await.unwrap());
    tx.commit().await.unwrap();
    let tx = later(&world, &mut at).await;
    settled(
        &tx,
        id,
        OperationKind::KillCompute,
        Some(json!({ "generation": 4 })),
    )
    .await;
    tx.commit().await.unwrap();
    let operations = read
        .operations_in_play(id, &[json!({ "generation": 12 })])
        .await
        .unwrap();
    let kills: Vec<_> = operations
        .iter()
        .filter(|op| op.kind == OperationKind::KillCompute)
        .map(|op| {
            (
                op.argument.clone().unwrap()["generation"].as_i64().unwrap(),
                op.state,
            )
        })
        .collect();
    assert_eq!(
        kills,
        [
            (12, OperationState::Settled),
            (3, OperationState::Unconfirmed),
            (4, OperationState::Settled)
        ]
    );

    // Targets of the checkpoint that is kept matter, ended or not; and nothing else that ended.
    let tx = later(&world, &mut at).await;
    let suspend = settled(&tx, id, OperationKind::Suspend, None).await.id;
    tx.insert_checkpoint(&checkpoint(id, suspend, 12)).await.unwrap();
    for target in [13, 14] {
        tx.insert_compute(&compute(id, target, Some(suspend)))
            .await
            .unwrap();
        assert!(tx.end_compute(id, target).await.unwrap());
    }
    tx.commit().await.unwrap();
    let computes = read.computes_in_play(id).await.unwrap();
    assert_eq!(
        computes.iter().map(|c| c.generation).collect::<Vec<_>>(),
        [12, 13, 14]
    );
    let kept = read.undeleted_checkpoint(id).await.unwrap().unwrap();
    assert!(!kept.data.is_empty(), "it can still be restored");
}

pub(crate) async fn a_deleted_checkpoint_loses_its_bytes_once_no_compute_is_named_with_them(world: World) {
    let (allocation, mut at) = (world.allocation().await, Time::from_millis(0).unwrap());
    let id = allocation.id;
    let (used, unused) = (OperationId::random(), OperationId::random());
    let data = async |of: OperationId| {
        let text = world.store.single().checkpoint(of).await.unwrap().unwrap();
        text.data.len()
    };
    let tx = later(&world, &mut at).await;
    tx.insert_compute(&compute(id, 0, None)).await.unwrap();
    tx.insert_checkpoint(&checkpoint(id, used, 0)).await.unwrap();
    tx.insert_compute(&compute(id, 1, Some(used))).await.unwrap();
    assert!(tx.delete_checkpoint(used).await.unwrap());
    tx.insert_checkpoint(&checkpoint(id, unused, 1)).await.unwrap();
    tx.commit().await.unwrap();
    assert!(data(used).await > 0, "generation 1 is named with them");
    let tx = later(&world, &mut at).await;
    assert!(tx.end_compute(id, 0).await.unwrap());
    assert!(tx.delete_checkpoint(unused).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(data(unused).await, 0);
    assert!(data(used).await > 0);
    let tx = later(&world, &mut at).await;
    assert!(tx.end_compute(id, 1).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(data(used).await, 0);
}

/// A compute that is discarded stays what its kill is sent with, and its generation kept, until its end is confirmed.
pub(crate) async fn a_discarded_compute_and_what_it_is_named_with_matter_until_its_kill_is_confirmed(
    world: World,
) {
    let allocation = world.allocation().await;
    let id = allocation.id;
    let suspend = OperationId::random();
    let tx = world.begin().await;
    tx.insert_checkpoint(&checkpoint(id, suspend, 0)).await.unwrap();
    tx.insert_compute(&compute(id, 0, None)).await.unwrap();
    tx.insert_compute(&compute(id, 1, Some(suspend))).await.unwrap();
    tx.insert_compute(&compute(id, 2, None)).await.unwrap();
    assert!(tx.end_compute(id, 0).await.unwrap());
    assert!(tx.discard_compute(id, 1).await.unwrap());
    assert!(!tx.discard_compute(id, 0).await.unwrap(), "it ended");
    tx.delete_checkpoint(suspend).await.unwrap();
    tx.commit().await.unwrap();
    let in_play = async || {
        let read = world.store.single();
        let computes = read.computes_in_play(id).await.unwrap();
        let named = read.checkpoints_in_play(id).await.unwrap();
        let generations: Vec<_> = computes.iter().map(|c| (c.generation, c.kill_owed)).collect();
        (generations, named.iter().filter(|c| !c.data.is_empty()).count())
    };
    assert_eq!(in_play().await, (vec![(1, true), (2, false)], 1));
    let read = world.store.single();
    assert!(
        read.allocations_owing_kills(None, 9)
            .await
            .unwrap()
            .rows
            .is_empty(),
        "it is not released"
    );

    let tx = world.begin().await;
    let mut row = tx.lock_allocation(id).await.unwrap().unwrap();
    row.state = oac_model::AllocationState::Released;
    row.released_at = Some(tx.now());
    tx.save_allocation(&mut row).await.unwrap();
    tx.release_placement(row.placement_id).await.unwrap();
    tx.commit().await.unwrap();
    let owing = read.allocations_owing_kills(None, 9).await.unwrap().rows;
    assert_eq!(owing.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
    assert!(
        read.allocations_owing_kills(Some(id), 9)
            .await
            .unwrap()
            .rows
            .is_empty()
    );

    let tx = world.begin().await;
    assert!(tx.end_compute(id, 1).await.unwrap());
    assert!(!tx.end_compute(id, 1).await.unwrap(), "it was confirmed");
    tx.commit().await.unwrap();
    assert_eq!(
        in_play().await,
        (vec![(2, false)], 0),
        "nothing is named with its bytes"
    );
    assert!(
        read.allocations_owing_kills(None, 9)
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    assert!(read.checkpoint(suspend).await.unwrap().unwrap().data.is_empty());
}
