//! What callers that go away and connections that break leave behind: nothing that a later caller could notice.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::world::World;

/// Polls a future so often at most, as a caller does that is then dropped.
struct AtMost<F> {
    inner: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for AtMost<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.inner.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            // The last poll: nothing more will be asked of it.
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn at_most<F: Future>(polls: usize, future: F) -> AtMost<F> {
    AtMost {
        inner: Box::pin(future),
        polls,
    }
}

/// Every kind of use a connection has, each of which must find it as if it were new. Often enough that each pooled
/// connection gets each: the pool hands out the one that has rested longest.
async fn all_uses_work(world: &World, after: &str) {
    let store = &world.store;
    let uses = async |n: usize| match n / 8 {
        // Before snapshots: in a transaction that somebody left open a snapshot would then be refused.
        0 => store.single().owner().await.map(drop),
        1 => store.read().await?.projects().await.map(drop),
        _ => store.begin(&world.owner).await.map(drop),
    };
    for n in 0..24 {
        let result = uses(n).await;
        assert!(result.is_ok(), "use {n} after {after}: {result:?}");
    }
}

pub(crate) async fn a_caller_dropped_at_any_point_leaves_its_connection_as_new(world: World) {
    let session = world.session(world.project().await).await;
    let store = &world.store;
    for polls in 1.. {
        let snapshot = at_most(polls, async {
            let read = store.read().await.unwrap();
            read.session(session.id).await.unwrap()
        });
        let snapshot = snapshot.await;
        all_uses_work(&world, &format!("a snapshot dropped after {polls} polls")).await;
        let single = at_most(polls, async { store.single().session(session.id).await.unwrap() }).await;
        all_uses_work(&world, &format!("a read dropped after {polls} polls")).await;
        let write = at_most(polls, async {
            let tx = world.begin().await;
            tx.lock_session(session.id).await.unwrap();
            tx.create_project("lost").await.unwrap();
            tx.rollback().await.unwrap();
        });
        let write = write.await;
        all_uses_work(&world, &format!("a transaction dropped after {polls} polls")).await;
        if snapshot.is_some() && single.is_some() && write.is_some() {
            break;
        }
    }
    assert_eq!(store.single().projects().await.unwrap().len(), 1);
}

/// What only PostgreSQL can show: connections, each of which can break.
mod pg_only {
    use std::{net::SocketAddr, time::Duration};

    use futures_util::future::join_all;
    use oac_store::{Claim, Database, Holder, Store, StoreError, StoreOptions};
    use oac_testkit::postgres::TestDatabase;
    use sqlx::{Connection as _, Executor as _, PgConnection};
    use tokio::{
        net::{TcpListener, TcpStream},
        sync::watch,
    };

    use super::*;
    use crate::world::LEASE;

    /// As an administrator would, and waits until they have ended.
    const END_ALL: &str = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()";

    /// Connections of the store's pool.
    const POOL: usize = 24;

    /// As many connections of the pool as these callers need.
    async fn fill(store: &Store) {
        let held = join_all((0..6).map(|_| store.read())).await;
        for read in held {
            read.unwrap().owner().await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_no_caller_notices_that_the_server_ended_every_idle_connection() {
        let world = World::postgres().await;
        let store = &world.store;
        for _ in 0..3 {
            fill(store).await;
            world.raw(END_ALL).await;
            let renewed = store.renew_ownership(world.owner.holder, LEASE).await;
            assert_eq!(renewed.unwrap(), Some(world.owner));
            all_uses_work(&world, "the end of all connections").await;
            world.raw(END_ALL).await;
            let snapshots = join_all((0..6).map(|_| async { store.read().await?.owner().await.map(drop) }));
            for result in snapshots.await {
                result.unwrap();
            }
            world.raw(END_ALL).await;
            let singles = join_all((0..6).map(|_| async { store.single().owner().await.map(drop) }));
            for result in singles.await {
                result.unwrap();
            }
            world.raw(END_ALL).await;
            let writes = join_all((0..6).map(|_| async {
                let tx = store.begin(&world.owner).await?;
                tx.create_project("kept").await?;
                tx.commit().await
            }));
            for result in writes.await {
                result.unwrap();
            }
        }
        assert_eq!(store.single().projects().await.unwrap().len(), 18);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_a_step_whose_connection_ended_stored_nothing_and_says_so_a_commit_says_that_it_is_unknown() {
        let world = World::postgres().await;
        let (snapshot, step, committing) = (
            world.store.read().await.unwrap(),
            world.begin().await,
            world.begin().await,
        );
        snapshot.owner().await.unwrap();
        step.create_project("lost").await.unwrap();
        committing.create_project("unknown").await.unwrap();
        world.raw(END_ALL).await;
        let broken = snapshot.projects().await;
        assert!(matches!(broken, Err(StoreError::Broken { .. })), "{broken:?}");
        let broken = step.create_project("more").await.unwrap_err();
        assert!(matches!(broken, StoreError::Broken { .. }), "{broken:?}");
        assert!(broken.is_transient());
        let unknown = committing.commit().await.unwrap_err();
        assert!(matches!(unknown, StoreError::Unknown { .. }), "{unknown:?}");
        assert!(
            !unknown.is_transient(),
            "a lost answer to a commit repeats nothing"
        );
        drop((snapshot, step));
        all_uses_work(&world, "broken transactions").await;
        assert_eq!(world.store.single().projects().await.unwrap(), []);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_a_core_that_starts_waits_for_anothers_migration_longer_than_for_any_other_answer() {
        let database = TestDatabase::create().await;
        let mut other = PgConnection::connect(&database.url_with_password())
            .await
            .unwrap();
        for sql in ["BEGIN", "SELECT pg_advisory_xact_lock(7299427, 3)"] {
            other.execute(sql).await.unwrap();
        }
        let opened = Store::open(StoreOptions {
            password: database.password().map(oac_model::Secret::new),
            answer_within: Duration::from_secs(1),
            ..StoreOptions::new(Database::Postgres(database.url()))
        });
        let migrates = async {
            other.execute("SELECT pg_sleep(2)").await.unwrap();
            other.execute("COMMIT").await.unwrap();
        };
        let (opened, ()) = tokio::join!(opened, migrates);
        opened.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_a_transaction_that_idled_too_long_may_be_repeated_and_spoils_no_connection() {
        let world = World::postgres().await;
        let tx = world.begin().await;
        tx.create_project("late").await.unwrap();
        // The server ends it after 3 s.
        let gone = "SELECT 1 / count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND state = 'idle in transaction'";
        let stranger = async |sql: &'static str| {
            let mut connection = PgConnection::connect(&world.stranger_url()).await.unwrap();
            sqlx::query(sql).execute(&mut connection).await
        };
        while stranger(gone).await.is_ok() {}
        let ended = tx.commit().await.unwrap_err();
        assert!(ended.is_transient(), "{ended:?}");
        all_uses_work(&world, "a transaction that idled").await;
        assert_eq!(world.store.single().projects().await.unwrap(), []);
    }

    /// A way to the server, on which the connections there are can fall silent.
    struct Proxy {
        address: SocketAddr,
        /// How often they did.
        silenced: watch::Sender<u32>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Drop for Proxy {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    impl Proxy {
        async fn before(server: String) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (silenced, heard) = watch::channel(0);
            let task = async move {
                let mut streams = tokio::task::JoinSet::new();
                loop {
                    let (mut client, _) = listener.accept().await.unwrap();
                    let mut upstream = TcpStream::connect(&server).await.unwrap();
                    let mut heard = heard.clone();
                    heard.mark_unchanged();
                    streams.spawn(async move {
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
                            // Both ends stay open, and nothing passes.
                            _ = heard.changed() => std::future::pending().await,
                        }
                    });
                }
            };
            #[expect(clippy::disallowed_methods, reason = "a test's own, which ends it")]
            let task = tokio::spawn(task);
            Self {
                address,
                silenced,
                task,
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pg_connections_that_fall_silent_hold_up_nobody_for_ever_and_no_place_in_the_pool() {
        let database = TestDatabase::create().await;
        let mut url = url::Url::parse(&database.url()).unwrap();
        let proxy = Proxy::before(format!(
            "{}:{}",
            url.host_str().unwrap(),
            url.port().unwrap_or(5432)
        ))
        .await;
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(proxy.address.port())).unwrap();
        let store = Store::open(StoreOptions {
            password: database.password().map(oac_model::Secret::new),
            answer_within: Duration::from_secs(2),
            ..StoreOptions::new(Database::Postgres(url.into()))
        })
        .await
        .unwrap();
        let lease = Duration::from_secs(600);
        let owner = store
            .acquire_ownership(Holder::random(), lease, Claim::WhenExpired)
            .await
            .unwrap()
            .unwrap();
        let transactions = join_all((0..POOL).map(|_| patiently(async || store.begin(&owner).await))).await;
        proxy.silenced.send_modify(|n| *n += 1);
        let writes = transactions.into_iter().map(async |tx| {
            let tx = tx?;
            tx.create_project("unheard").await.map(drop)
        });
        let (writes, renewed, single) = tokio::join!(
            join_all(writes),
            patiently(async || store.renew_ownership(owner.holder, lease).await),
            patiently(async || store.single().owner().await),
        );
        for write in writes {
            assert!(matches!(write, Err(StoreError::Broken { .. })), "{write:?}");
        }
        // On other connections than those.
        assert_eq!(renewed.unwrap(), Some(owner));
        assert!(single.unwrap().is(&owner));
        // All at once: as many places as there were.
        for read in join_all((0..POOL).map(|_| patiently(async || store.read().await))).await {
            assert_eq!(read.unwrap().projects().await.unwrap(), []);
        }
    }

    /// Again for as long as no place is free, as every caller may: on a machine with much else to do, so many connections
    /// are not opened as quickly as one that waits for a place gives up. A place that never comes back fails it.
    async fn patiently<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let asked = async {
            loop {
                match ask().await {
                    Err(StoreError::Busy { .. }) => {}
                    answer => return answer,
                }
            }
        };
        let limit = tokio::time::timeout(Duration::from_secs(60), asked);
        limit.await.expect("a place never comes free")
    }
}
