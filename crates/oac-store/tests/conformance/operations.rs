use oac_model::ConnectionId;
use oac_store::{Claim, Holder, OperationKind, OperationState, StoreError};
use serde_json::json;

use crate::world::{LEASE, World, new_operation};

// inv: INV-C16
pub(crate) async fn an_allocation_has_at_most_one_open_operation(world: World) {
    let allocation = world.allocation().await;
    let create = world.intent(&allocation, OperationKind::Create).await;
    let try_another = async || {
        let tx = world.begin().await;
        tx.insert_intent(&new_operation(&allocation, OperationKind::Kill))
            .await
    };
    assert!(matches!(try_another().await, Err(StoreError::Duplicate { .. })));
    let tx = world.begin().await;
    assert!(
        tx.mark_sent(create.id, Some(ConnectionId::random()))
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    assert!(matches!(try_another().await, Err(StoreError::Duplicate { .. })));
    let read = world.store.single();
    let open = read.open_operation(allocation.id).await.unwrap().unwrap();
    assert_eq!((open.id, open.state), (create.id, OperationState::Sent));
    // One of unknown outcome is only observed; it blocks no other.
    let tx = world.begin().await;
    assert!(tx.mark_unconfirmed(create.id).await.unwrap());
    tx.commit().await.unwrap();
    assert!(try_another().await.is_ok());
}

// inv: INV-C16
pub(crate) async fn an_operation_only_moves_forward(world: World) {
    let allocation = world.allocation().await;
    let create = world.intent(&allocation, OperationKind::Create).await;
    let tx = world.begin().await;
    assert!(
        !tx.settle_operation(create.id, &json!({})).await.unwrap(),
        "nothing was sent"
    );
    assert!(!tx.mark_unconfirmed(create.id).await.unwrap());
    let connection = ConnectionId::random();
    assert!(tx.mark_sent(create.id, Some(connection)).await.unwrap());
    assert!(!tx.mark_sent(create.id, Some(connection)).await.unwrap());
    assert!(!tx.reject_intent(create.id).await.unwrap());
    assert!(tx.mark_unconfirmed(create.id).await.unwrap());
    assert!(
        tx.settle_operation(create.id, &json!({"state": "running"}))
            .await
            .unwrap()
    );
    assert!(
        !tx.settle_operation(create.id, &json!({"state": "absent"}))
            .await
            .unwrap()
    );
    let kill = tx
        .insert_intent(&new_operation(&allocation, OperationKind::Kill))
        .await
        .unwrap();
    assert!(tx.reject_intent(kill.id).await.unwrap());
    assert!(!tx.mark_sent(kill.id, Some(connection)).await.unwrap());
    assert!(!tx.reject_unsent(kill.id).await.unwrap());
    assert!(!tx.reject_unsent(create.id).await.unwrap());
    tx.commit().await.unwrap();
    let read = world.store.single();
    let all = read.operations(allocation.id).await.unwrap();
    let mut states: Vec<_> = all.iter().map(|o| (o.kind, o.state)).collect();
    states.sort();
    assert_eq!(
        states,
        [
            (OperationKind::Create, OperationState::Settled),
            (OperationKind::Kill, OperationState::Rejected)
        ]
    );
    let row = read.operation(create.id).await.unwrap().unwrap();
    assert_eq!(row.outcome, Some(json!({"state": "running"})));
    assert_eq!(row.connection_id, Some(connection));
}

pub(crate) async fn a_new_owner_closes_what_earlier_ones_left_open(world: World) {
    let generation = world.generation(2).await;
    let node = world.node(generation, 10, 10).await;
    let project = world.project().await;
    let mut operations = Vec::new();
    for _ in 0..2 {
        let session = world.session(project).await;
        let allocation = world.allocation_on(node, generation, &session).await;
        operations.push(world.intent(&allocation, OperationKind::Create).await);
    }
    let tx = world.begin().await;
    assert!(tx.mark_sent(operations[1].id, None).await.unwrap());
    assert_eq!(tx.close_operations_of_earlier_owners().await.unwrap(), (0, 0));
    tx.commit().await.unwrap();

    let later = world.another_core(LEASE * 2).await;
    let next = later
        .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
        .await
        .unwrap()
        .unwrap();
    let tx = later.begin(&next).await.unwrap();
    assert_eq!(tx.close_operations_of_earlier_owners().await.unwrap(), (1, 1));
    tx.commit().await.unwrap();
    let read = later.single();
    let unconfirmed = read
        .operations_in_state(OperationState::Unconfirmed, None, 32)
        .await
        .unwrap();
    assert_eq!(
        unconfirmed.iter().map(|o| o.id).collect::<Vec<_>>(),
        [operations[1].id]
    );
    let rejected = read.operation(operations[0].id).await.unwrap().unwrap();
    assert_eq!(rejected.state, OperationState::Rejected);
    assert_eq!(rejected.owner_epoch, world.owner.epoch);
}
