use std::time::Duration;

use oac_model::{InstallationId, NodeId, Secret};
use oac_store::{EnrollmentTokenRow, NewEnrollmentToken, TokenLimits};
use tokio::task::JoinSet;

use crate::world::World;

async fn token(world: &World, secret: &Secret) -> EnrollmentTokenRow {
    let tx = world.begin().await;
    let installation = tx.deployment().await.unwrap().installation_id;
    let new = NewEnrollmentToken {
        token_digest: secret.digest(),
        limits: TokenLimits::Recommended,
        max_active: 1,
        max_retained: 1,
        lives_seconds: 3600,
    };
    let row = tx.create_enrollment_token(installation, &new).await.unwrap();
    tx.commit().await.unwrap();
    row
}

fn secret() -> Secret {
    Secret::from_entropy("", [9; 32])
}

// inv: INV-C13
pub(crate) async fn a_token_enrolls_one_node_however_many_try(world: World) {
    let row = token(&world, &secret()).await;
    let mut tries = JoinSet::new();
    for _ in 0..20 {
        let (store, owner, id) = (world.store.clone(), world.owner, row.enrollment_id);
        tries.spawn(async move {
            let node = NodeId::random();
            let tx = store.begin(&owner).await.unwrap();
            if !tx.consume_enrollment_token(id, node).await.unwrap() {
                return None;
            }
            tx.commit().await.unwrap();
            Some(node)
        });
    }
    let winners: Vec<NodeId> = tries.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    let read = world.store.single();
    let stored = read.enrollment_token(&secret()).await.unwrap().unwrap();
    assert_eq!(stored.node_id, Some(winners[0]));
    assert!(!stored.usable(stored.created_at, stored.installation_id));
}

// inv: INV-C13
pub(crate) async fn a_refused_enrollment_leaves_the_token_usable(world: World) {
    let row = token(&world, &secret()).await;
    let tx = world.begin().await;
    assert!(
        tx.consume_enrollment_token(row.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
    drop(tx);
    let stored = world
        .store
        .single()
        .enrollment_token(&secret())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored, row);
    assert!(stored.usable(row.created_at, row.installation_id));
    assert!(!stored.usable(row.created_at, InstallationId::random()));
    let tx = world.begin().await;
    assert!(
        tx.consume_enrollment_token(row.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
}

pub(crate) async fn an_expired_token_enrolls_nothing(world: World) {
    let row = token(&world, &secret()).await;
    let (later, owner) = world.later(Duration::from_secs(3601)).await;
    let tx = later.begin(&owner).await.unwrap();
    assert!(!row.usable(tx.now(), row.installation_id));
    assert!(
        !tx.consume_enrollment_token(row.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
    drop(tx);
    let (earlier, owner) = world.later(Duration::from_secs(3500)).await;
    let tx = earlier.begin(&owner).await.unwrap();
    assert!(
        tx.consume_enrollment_token(row.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
}

pub(crate) async fn only_an_unused_token_is_revoked(world: World) {
    let unused = token(&world, &secret()).await;
    let used = token(&world, &Secret::from_entropy("", [8; 32])).await;
    let tx = world.begin().await;
    assert!(
        tx.consume_enrollment_token(used.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
    assert!(!tx.revoke_enrollment_token(used.enrollment_id).await.unwrap());
    assert!(tx.revoke_enrollment_token(unused.enrollment_id).await.unwrap());
    assert!(
        !tx.consume_enrollment_token(unused.enrollment_id, NodeId::random())
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    assert_eq!(
        world.store.single().enrollment_token(&secret()).await.unwrap(),
        None
    );
}
