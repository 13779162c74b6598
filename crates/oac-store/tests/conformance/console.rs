use oac_model::{CoreKeyId, Secret};
use oac_store::limits;

use crate::world::World;

fn secret(number: u8) -> Secret {
    Secret::from_entropy("", [number; 32])
}

async fn key(world: &World) -> CoreKeyId {
    let digest = Secret::from_entropy("oac_core_", [1; 32]).digest();
    world.store.create_core_key("console", digest).await.unwrap().id
}

async fn begin(world: &World, key: CoreKeyId, number: u8) {
    let tx = world.begin().await;
    tx.create_console_session(key, secret(number).digest())
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn opens(world: &World, number: u8) -> bool {
    let found = world.store.single().console_session(&secret(number)).await;
    found.unwrap().is_some()
}

/// As if the session had begun, and been used last, so much earlier.
async fn age(world: &World, began_millis: i64, used_millis: i64) {
    world
        .raw(&format!(
            "UPDATE console_sessions SET created_at = created_at - {began_millis}, \
             last_used_at = last_used_at - {used_millis}"
        ))
        .await;
}

pub(crate) async fn a_console_session_opens_until_it_ends_or_its_key_is_revoked(world: World) {
    let key = key(&world).await;
    begin(&world, key, 2).await;
    begin(&world, key, 3).await;
    assert!(opens(&world, 2).await && opens(&world, 3).await && !opens(&world, 4).await);
    let tx = world.begin().await;
    assert!(tx.end_console_session(&secret(2)).await.unwrap());
    assert!(!tx.end_console_session(&secret(4)).await.unwrap());
    tx.commit().await.unwrap();
    assert!(!opens(&world, 2).await && opens(&world, 3).await);
    assert!(world.store.revoke_core_key(key).await.unwrap());
    assert!(!opens(&world, 3).await);
    // One that was begun by a sign-in that had read the key before its revocation.
    begin(&world, key, 5).await;
    assert!(!opens(&world, 5).await);
}

pub(crate) async fn a_console_session_ends_after_12_hours_without_use_and_after_7_days(world: World) {
    let key = key(&world).await;
    let (idle, life) = (12 * 3_600_000, 7 * 24 * 3_600_000);
    begin(&world, key, 2).await;
    age(&world, idle - 60_000, idle - 60_000).await;
    let used = world.store.single().console_session(&secret(2)).await.unwrap();
    let used = used.unwrap();
    assert!(used.to_be_renewed);
    let tx = world.begin().await;
    tx.renew_console_session(used.session.id).await.unwrap();
    tx.commit().await.unwrap();
    let used = world.store.single().console_session(&secret(2)).await.unwrap();
    assert!(!used.unwrap().to_be_renewed);
    age(&world, 0, idle).await;
    assert!(!opens(&world, 2).await);

    begin(&world, key, 3).await;
    age(&world, life - 60_000, 0).await;
    assert!(opens(&world, 3).await);
    age(&world, 60_000, 0).await;
    assert!(!opens(&world, 3).await);
}

pub(crate) async fn of_many_console_sessions_of_a_key_the_least_used_end(world: World) {
    let key = key(&world).await;
    begin(&world, key, 1).await;
    age(&world, 1000, 1000).await;
    for number in 2..=u8::try_from(limits::CONSOLE_SESSIONS).unwrap() {
        begin(&world, key, number).await;
    }
    assert!(opens(&world, 1).await);
    begin(&world, key, 200).await;
    assert!(!opens(&world, 1).await && opens(&world, 2).await && opens(&world, 200).await);
}
