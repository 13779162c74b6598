use std::time::Duration;

use oac_store::{Claim, DeploymentLock, Holder, StoreError};

use crate::world::{LEASE, World};

// inv: INV-C2
pub(crate) async fn only_an_expired_lease_is_taken_and_each_holder_gets_the_next_epoch(world: World) {
    let standby = world.another_core(Duration::ZERO).await;
    let other = Holder::random();
    let taken = standby.acquire_ownership(other, LEASE, Claim::WhenExpired).await;
    assert_eq!(taken.unwrap(), None);
    assert_eq!(
        standby.single().owner().await.unwrap().epoch,
        Some(world.owner.epoch)
    );

    let mut epoch = world.owner.epoch;
    for round in 1..=3 {
        let later = world.another_core(LEASE * 2 * round).await;
        let taken = later.acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired);
        let taken = taken.await.unwrap().unwrap();
        assert_eq!(Some(taken.epoch), epoch.next());
        epoch = taken.epoch;
    }
}

// inv: INV-C1
pub(crate) async fn a_transaction_of_an_older_epoch_changes_no_row(world: World) {
    let later = world.another_core(LEASE * 2).await;
    let new = later
        .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
        .await
        .unwrap()
        .unwrap();
    let refused = world.store.begin(&world.owner).await.map(drop);
    assert!(
        matches!(refused, Err(StoreError::NotOwner { epoch }) if epoch == world.owner.epoch),
        "{refused:?}"
    );
    assert_eq!(
        world
            .store
            .renew_ownership(world.owner.holder, LEASE)
            .await
            .unwrap(),
        None
    );
    // The right epoch with another holder is not the owner either.
    let impostor = oac_store::Ownership {
        holder: world.owner.holder,
        epoch: new.epoch,
    };
    assert!(matches!(
        world.store.begin(&impostor).await.map(drop),
        Err(StoreError::NotOwner { .. })
    ));
    assert_eq!(world.store.single().projects().await.unwrap(), []);
    let tx = later.begin(&new).await.unwrap();
    tx.create_project("new owner's").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(later.single().projects().await.unwrap().len(), 1);
}

// inv: INV-C1
pub(crate) async fn a_takeover_waits_for_the_open_transactions_of_the_owner(world: World) {
    let later = world.another_core(LEASE * 2).await;
    let tx = world.begin().await;
    tx.create_project("still mine").await.unwrap();
    let takeover = later.acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired);
    tokio::pin!(takeover);
    for _ in 0..20 {
        // The takeover advances while this reads, and must not get past the lock.
        tokio::select! {
            biased;
            early = &mut takeover => panic!("took over during a transaction: {early:?}"),
            owner = async { world.store.single().owner().await.unwrap() } => {
                assert_eq!(owner.epoch, Some(world.owner.epoch));
            }
        }
    }
    tx.commit().await.unwrap();
    let taken = takeover.await.unwrap().unwrap();
    assert_eq!(Some(taken.epoch), world.owner.epoch.next());
    assert_eq!(later.single().projects().await.unwrap().len(), 1);
}

pub(crate) async fn a_released_lease_is_free_at_once_and_renewal_of_a_lost_one_is_refused(world: World) {
    let renewed = world.store.renew_ownership(world.owner.holder, LEASE).await;
    assert_eq!(renewed.unwrap(), Some(world.owner));
    world.store.release_ownership(world.owner.holder).await.unwrap();
    assert!(world.store.single().owner().await.unwrap().expired());
    let standby = world.another_core(Duration::ZERO).await;
    let taken = standby
        .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        world
            .store
            .renew_ownership(world.owner.holder, LEASE)
            .await
            .unwrap(),
        None
    );
    // Releasing what is lost takes nothing from the new owner.
    world.store.release_ownership(world.owner.holder).await.unwrap();
    let owner = standby.single().owner().await.unwrap();
    assert!(owner.is(&taken) && !owner.expired());
}

pub(crate) async fn locks_are_taken_in_one_order(world: World) {
    let allocation = world.allocation().await;
    let (node, project) = (allocation.node_id.unwrap(), allocation.tenant_id);
    let tx = world.begin().await;
    tx.lock_deployment(DeploymentLock::Shared).await.unwrap();
    let other = world.begin_elsewhere_with_shared_deployment().await;
    assert!(tx.lock_node(node).await.unwrap().is_some());
    assert_eq!(tx.keep_projects(&[project]).await.unwrap(), [project]);
    assert!(tx.lock_session(allocation.session_id).await.unwrap().is_some());
    let locked = tx.lock_allocation(allocation.id).await.unwrap();
    assert_eq!(locked, Some(allocation));
    let back = tx.lock_node(node).await;
    assert!(
        matches!(
            back,
            Err(StoreError::LockOrder {
                asked: "node",
                held: "allocation"
            })
        ),
        "{back:?}"
    );
    drop(other);
    for late in [
        tx.keep_projects(&[project]).await.map(drop),
        tx.delete_project(project).await.map(drop),
    ] {
        assert!(
            matches!(late, Err(StoreError::LockOrder { asked: "project", .. })),
            "{late:?}"
        );
    }
}

impl World {
    /// On PostgreSQL a second transaction that shares the deployment at the same time; SQLite has one writer.
    async fn begin_elsewhere_with_shared_deployment(&self) -> Option<oac_store::Tx> {
        if matches!(self.database, oac_store::Database::Sqlite(_)) {
            return None;
        }
        let tx = self.begin().await;
        tx.lock_deployment(DeploymentLock::Shared).await.unwrap();
        Some(tx)
    }
}

/// What only PostgreSQL can show: several connections that write.
mod pg_only {
    use sqlx::{Connection as _, Executor as _, PgConnection};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_renewal_waits_for_no_owner_transaction() {
        let world = World::postgres().await;
        let tx = world.begin().await;
        tx.lock_deployment(DeploymentLock::Exclusive).await.unwrap();
        tx.create_project("open").await.unwrap();
        let renewed = world.store.renew_ownership(world.owner.holder, LEASE).await;
        assert_eq!(renewed.unwrap(), Some(world.owner));
        tx.commit().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_the_server_ends_a_dead_owners_transaction_so_that_a_takeover_succeeds() {
        let world = World::postgres().await;
        let later = world.another_core(LEASE * 2).await;
        // An owner that stopped in the middle: its transaction stays open and idle.
        let stuck = world.begin().await;
        stuck.create_project("never committed").await.unwrap();
        let taken = loop {
            match later
                .acquire_ownership(Holder::random(), LEASE, Claim::WhenExpired)
                .await
            {
                Ok(Some(taken)) => break taken,
                Ok(None) | Err(StoreError::Busy { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        };
        assert_eq!(Some(taken.epoch), world.owner.epoch.next());
        stuck.commit().await.unwrap_err();
        assert_eq!(later.single().projects().await.unwrap(), []);
    }

    // inv: INV-C1
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_a_transaction_that_waited_for_a_takeover_finds_the_new_epoch() {
        let world = World::postgres().await;
        // Whatever the server's administrator chose as default.
        let choose = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = \
             ''repeatable read''', current_database()); END $$";
        world.raw(choose).await;
        let store = world.another_core(Duration::ZERO).await;
        let mut takeover = PgConnection::connect(&world.stranger_url()).await.unwrap();
        for sql in [
            "BEGIN",
            "SELECT pg_advisory_xact_lock(7299427, 1)",
            "UPDATE core_owner SET epoch = epoch + 1",
        ] {
            takeover.execute(sql).await.unwrap();
        }
        let waiting = "SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
             WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)";
        let commit_once_it_waits = async {
            loop {
                let waits = sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut takeover);
                if waits.await.unwrap() {
                    break;
                }
            }
            takeover.execute("COMMIT").await.unwrap();
        };
        let (old, ()) = tokio::join!(store.begin(&world.owner), commit_once_it_waits);
        let old = old.map(drop);
        assert!(matches!(old, Err(StoreError::NotOwner { .. })), "{old:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_a_selection_waits_for_placements_and_placements_share() {
        let world = World::postgres().await;
        let (a, b) = (world.begin().await, world.begin().await);
        a.lock_deployment(DeploymentLock::Shared).await.unwrap();
        b.lock_deployment(DeploymentLock::Shared).await.unwrap();
        let writer = world.begin().await;
        let exclusive = writer.lock_deployment(DeploymentLock::Exclusive);
        tokio::pin!(exclusive);
        for _ in 0..20 {
            tokio::select! {
                biased;
                early = &mut exclusive => panic!("a placement is under way: {early:?}"),
                deployment = async { a.deployment().await.unwrap() } => assert_eq!(deployment.generation, 0),
            }
        }
        a.commit().await.unwrap();
        b.commit().await.unwrap();
        exclusive.await.unwrap();
    }
}

mod sqlite_only {
    use oac_store::{Database, ExclusiveLock, ExclusiveLockError};

    use super::*;

    #[tokio::test]
    async fn one_process_serves_a_sqlite_database_and_takes_the_lease_at_once() {
        let world = World::sqlite().await;
        let lock = ExclusiveLock::take(&world.database).unwrap().unwrap();
        let second = ExclusiveLock::take(&world.database);
        assert!(
            matches!(second, Err(ExclusiveLockError::Held { .. })),
            "{second:?}"
        );
        // The lease of the former process has not expired, but the lock proves that it is gone.
        let taken = world
            .store
            .acquire_ownership(Holder::random(), LEASE, Claim::AtOnce(&lock))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(Some(taken.epoch), world.owner.epoch.next());
        drop(lock);
        assert!(ExclusiveLock::take(&world.database).unwrap().is_some());
        let postgres = Database::Postgres("postgres://core@db/core".into());
        assert!(ExclusiveLock::take(&postgres).unwrap().is_none());
    }
}
