//! Who owns the installation.

use std::time::Duration;

use oac_core::owner::{LEASE, MUTATION_RESERVE};
use oac_testkit::{
    core::{CoreOptions, TestCore},
    wait,
};
use reqwest::Method;

const LONG: Duration = Duration::from_secs(60);

async fn epoch(core: &TestCore) -> i64 {
    let deployment = core
        .operator(Method::GET, "/core/v1/sandbox/deployment", None)
        .await
        .expect(200);
    deployment["owner_epoch"].as_i64().unwrap()
}

#[tokio::test]
async fn an_owner_has_at_most_the_whole_lease_left_and_may_mutate() {
    let core = TestCore::start().await;
    let owner = &core.core().owner;
    assert!(owner.lease_left() <= LEASE && owner.lease_left() >= MUTATION_RESERVE);
    assert!(owner.may_mutate());
    assert_eq!(
        core.call(Method::GET, "/readyz", None, None)
            .await
            .status
            .as_u16(),
        200
    );
    assert_eq!(
        core.call(Method::GET, "/healthz", None, None)
            .await
            .status
            .as_u16(),
        200
    );
}

// inv: INV-C2
#[tokio::test]
async fn a_restarted_sqlite_core_takes_the_lease_at_once_under_the_next_epoch() {
    let mut core = TestCore::start().await;
    assert_eq!(epoch(&core).await, 1);
    core.restart().await;
    assert_eq!(epoch(&core).await, 2);
}

#[tokio::test]
async fn a_second_core_on_one_sqlite_database_does_not_start() {
    let core = TestCore::start().await;
    let config = core.core().config.clone();
    let error = oac_core::run::start_on(config, Vec::new(), 0)
        .await
        .err()
        .unwrap();
    assert!(matches!(error, oac_core::run::StartError::Lock(_)), "{error:?}");
}

// inv: INV-C2
#[tokio::test]
async fn pg_a_standby_takes_over_when_the_owner_stops_cleanly() {
    let mut owner = TestCore::start_postgres().await;
    let standby = owner
        .beside(CoreOptions {
            standby: true,
            ..CoreOptions::default()
        })
        .await;
    assert!(standby.core().owner.ownership().is_none());
    assert!(!standby.core().owner.may_mutate());
    owner.stop().await;
    standby.core().owner.owned().await;
    assert_eq!(epoch(&standby).await, 2);
}

// inv: INV-C1, INV-C3
#[tokio::test]
async fn pg_a_core_whose_lease_another_took_stands_by_and_changes_nothing() {
    let core = TestCore::start_postgres().await;
    let before = core.core().owner.ownership().unwrap();
    core.execute(
        "UPDATE core_owner SET epoch = epoch + 1, holder = '99999999-9999-4999-8999-999999999999', \
         expires_at = expires_at + 3600000",
    )
    .await;
    // Even before it notices, its writes are refused.
    let body = serde_json::json!({ "name": "late" });
    let answer = core
        .operator(Method::POST, "/core/v1/projects", Some(&body))
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, "core_standby"));
    assert!(matches!(
        core.core().store.begin(&before).await,
        Err(oac_store::StoreError::NotOwner { .. })
    ));
    wait::until("the Core stands by", LONG, async || {
        core.core().owner.ownership().is_none().then_some(())
    })
    .await
    .unwrap();
    let answer = core.call(Method::GET, "/core/v1/projects", None, None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, "core_standby"));
    assert_eq!(
        core.call(Method::GET, "/readyz", None, None)
            .await
            .status
            .as_u16(),
        503
    );
}
