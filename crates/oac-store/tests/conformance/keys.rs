use oac_model::Secret;

use crate::world::World;

pub(crate) async fn a_key_opens_until_it_is_revoked_or_its_project_is_deleted(world: World) {
    let read = world.store.single();
    let core = Secret::from_entropy("oac_core_", [1; 32]);
    let row = world.store.create_core_key("first", core.digest()).await.unwrap();
    assert_eq!(
        read.authenticate_core_key(&core).await.unwrap(),
        Some(row.clone())
    );
    let wrong = Secret::from_entropy("oac_core_", [2; 32]);
    assert_eq!(read.authenticate_core_key(&wrong).await.unwrap(), None);
    assert!(world.store.revoke_core_key(row.id).await.unwrap());
    assert!(!world.store.revoke_core_key(row.id).await.unwrap());
    assert_eq!(read.authenticate_core_key(&core).await.unwrap(), None);
    assert_eq!(read.core_keys().await.unwrap().len(), 1);

    let (project, other) = (world.project().await, world.project().await);
    let keys = [3, 4].map(|n| Secret::from_entropy("oac_key_", [n; 32]));
    let tx = world.begin().await;
    let mut rows = Vec::new();
    for key in &keys {
        rows.push(tx.create_project_key(project, "key", key.digest()).await.unwrap());
    }
    tx.commit().await.unwrap();
    assert_eq!(
        read.authenticate_project_key(&keys[0]).await.unwrap(),
        Some(rows[0].clone())
    );
    // A Core key's table is not a Project key's.
    assert_eq!(read.authenticate_core_key(&keys[0]).await.unwrap(), None);
    assert_eq!(read.authenticate_project_key(&core).await.unwrap(), None);

    let tx = world.begin().await;
    assert!(!tx.revoke_project_key(other, rows[0].id).await.unwrap());
    assert!(tx.revoke_project_key(project, rows[0].id).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(read.authenticate_project_key(&keys[0]).await.unwrap(), None);
    assert!(read.authenticate_project_key(&keys[1]).await.unwrap().is_some());
    assert_eq!(read.project_keys(project).await.unwrap().len(), 2);

    let tx = world.begin().await;
    assert!(tx.delete_project(project).await.unwrap());
    assert!(!tx.delete_project(project).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(read.authenticate_project_key(&keys[1]).await.unwrap(), None);
    assert_eq!(read.project(project).await.unwrap(), None);
    assert_eq!(read.projects().await.unwrap().len(), 1);
}
