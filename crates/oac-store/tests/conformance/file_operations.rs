use oac_store::FileOperationKind::{Port, Write};

use crate::world::World;

pub(crate) async fn an_open_file_operation_is_found_until_it_ends_and_none_outlives_its_owner(world: World) {
    let project = world.project().await;
    let (session, other) = (world.session(project).await, world.session(project).await);
    let tx = world.begin().await;
    tx.lock_session(session.id).await.unwrap();
    let file = tx.begin_file_operation(session.id, Write).await.unwrap();
    let port = tx.begin_file_operation(session.id, Port).await.unwrap();
    tx.commit().await.unwrap();
    let tx = world.begin().await;
    tx.begin_file_operation(other.id, Write).await.unwrap();
    drop(tx);

    let read = world.store.single();
    let mut found = read.file_operations(session.id).await.unwrap();
    found.sort_by_key(|row| row.kind);
    assert_eq!(found, [file.clone(), port.clone()]);
    assert_eq!(read.file_operations(other.id).await.unwrap(), []);

    let tx = world.begin().await;
    assert!(tx.end_file_operation(file.id).await.unwrap());
    assert!(!tx.end_file_operation(file.id).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(read.file_operations(session.id).await.unwrap(), [port]);

    let tx = world.begin().await;
    assert_eq!(tx.end_all_file_operations().await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(read.file_operations(session.id).await.unwrap(), []);
}
