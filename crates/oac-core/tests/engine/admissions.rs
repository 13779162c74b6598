//! New Sessions that share placing transactions (core.md sections 2, 7 and 8). While one transaction is held, applications
//! ask for more over HTTP; what they are answered and what is stored is of each alone.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use oac_core::{placement::PlaceError, sessions::admission::admit};
use oac_model::{AllocationState, EnvironmentId, Network, SessionId};
use oac_store::{NewSession, Side, StoreError};
use oac_testkit::core::{Answer, TestCore, try_send};
use oac_wire::shapes::Operation;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    node::Node,
    world::{self, On},
};

fn request(core: &TestCore, key: &str, body: &Value) -> RequestBuilder {
    core.request(Method::POST, "/v1/sessions")
        .bearer_auth(core.project_key.expose())
        .header("idempotency-key", key)
        .json(body)
}

#[allow(clippy::disallowed_methods, reason = "a test's own task")]
fn start<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// An application asks under `key`; the answer comes when it comes.
pub fn ask(core: &TestCore, key: &str, body: Value) -> JoinHandle<Answer> {
    let request = request(core, key, &body);
    start(async move { try_send(request).await.unwrap() })
}

fn named(key: &str) -> Value {
    json!({ "name": key })
}

/// Asks under each key, and waits for the answers.
async fn all(core: &TestCore, keys: &[&str]) -> Vec<Answer> {
    let asked: Vec<_> = keys.iter().map(|key| ask(core, key, named(key))).collect();
    join_all(asked).await.into_iter().map(Result::unwrap).collect()
}

/// While one cannot be stored, others are asked for under `keys`.
async fn behind_first(core: &TestCore, keys: &[&str]) -> Vec<JoinHandle<Answer>> {
    let mut asked = vec![ask(core, keys[0], named(keys[0]))];
    until_unanswered(core, 1).await;
    asked.extend(keys[1..].iter().map(|key| ask(core, key, named(key))));
    until_unanswered(core, keys.len()).await;
    asked
}

async fn until_unanswered(core: &TestCore, count: usize) {
    world::eventually("so many are asked for", async || {
        core.core().admissions.unanswered() == count
    })
    .await;
}

/// All of them found the row of their node held, and go into each transaction from now on.
async fn until_held(core: &TestCore, count: usize) {
    world::eventually("all of them wait for the row", async || {
        core.core().admissions.held() == count
    })
    .await;
}

pub async fn until_waiting(core: &TestCore, count: usize) {
    world::eventually("the others wait", async || {
        core.core().admissions.waiting() == count
    })
    .await;
}

fn created(answer: &Answer) -> SessionId {
    assert_eq!(answer.status.as_u16(), 201, "{}", answer.body);
    answer.body["id"].as_str().unwrap().parse().unwrap()
}

fn is_refused(answer: &Answer) {
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (503, "runtime_node_unavailable"), "{}", answer.body);
}

/// The Sessions there are, in no order; each has one unreleased allocation.
async fn stored(core: &TestCore) -> BTreeSet<SessionId> {
    let read = core.core().store.single();
    let rows = read.sessions_of_project(core.project_id, None, None, 1000).await;
    let ids: BTreeSet<SessionId> = rows.unwrap().iter().map(|row| row.id).collect();
    let counts = read.resource_counts().await.unwrap();
    assert_eq!((counts.allocations, counts.pending), (ids.len() as u64, 0));
    ids
}

async fn active(core: &TestCore, node: &Node) -> u64 {
    let counts = core.core().store.single().slot_counts(Some(node.id())).await;
    counts.unwrap().active
}

fn fresh(core: &TestCore) -> NewSession {
    NewSession {
        id: SessionId::random(),
        project_id: core.project_id,
        environment_id: EnvironmentId::random(),
        name: None,
        network: Network::default(),
        required_labels: Default::default(),
        metadata: Default::default(),
    }
}

async fn together(on: On) {
    let core = world::core(on).await;
    let nodes = [Node::start(&core, 4).await, Node::start(&core, 4).await];
    let faults = core.core().store.faults();
    let hold = faults.hold_next(Side::Before);
    let first = ask(&core, "first", named("first"));
    hold.reached().await;

    let good = ["b", "c", "d", "e"].map(|key| ask(&core, key, named(key)));
    let elsewhere = json!({ "node_labels": { "zone": "nowhere" } });
    let unplaceable = ask(&core, "elsewhere", elsewhere);
    until_waiting(&core, 5).await;
    let (same, first_again) = (ask(&core, "b", named("b")), ask(&core, "first", named("first")));
    let other_body = ask(&core, "b", named("another"));
    until_waiting(&core, 8).await;
    faults.count(&["INSERT INTO sessions"]);
    drop(hold);

    let first = first.await.unwrap();
    let mut told = BTreeSet::from([created(&first)]);
    let good: Vec<Answer> = join_all(good).await.into_iter().map(Result::unwrap).collect();
    told.extend(good.iter().map(created));
    assert_eq!(told.len(), 5, "each of its own");
    assert_eq!(
        same.await.unwrap().body,
        good[0].body,
        "the answer of the first with this key"
    );
    assert_eq!(first_again.await.unwrap().body, first.body);
    let other_body = other_body.await.unwrap();
    assert_eq!(
        (other_body.status.as_u16(), other_body.code()),
        (409, "idempotency_conflict")
    );
    is_refused(&unplaceable.await.unwrap());

    assert_eq!(faults.counted(), [1], "the four are stored by one transaction");
    assert_eq!(stored(&core).await, told);
    let read = core.core().store.single();
    let now = read.database_time().await.unwrap();
    let record = read.idempotency_record(core.project_id, "POST /v1/sessions", "elsewhere", now);
    assert_eq!(record.await.unwrap(), None);
    assert_eq!(active(&core, &nodes[0]).await + active(&core, &nodes[1]).await, 5);
    for session in told {
        let allocation = read.latest_allocation(session).await.unwrap().unwrap();
        world::until(&core, allocation.id, AllocationState::Running).await;
        let events = read.events_after(session, 0, 10).await.unwrap();
        let kinds: Vec<_> = events
            .iter()
            .take(2)
            .map(|e| (e.sequence, e.kind.as_str()))
            .collect();
        assert_eq!(kinds, [(1, "session.created"), (2, "sandbox.changed")]);
    }
    assert_eq!(
        nodes[0].count(Operation::Create) + nodes[1].count(Operation::Create),
        5
    );
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn sessions_asked_for_meanwhile_share_a_transaction_and_each_has_an_answer_of_its_own() {
    together(On::Sqlite).await;
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn pg_sessions_asked_for_meanwhile_share_a_transaction_and_each_has_an_answer_of_its_own() {
    together(On::Postgres).await;
}

/// Asks under each key while `write` is made behind memory's back and not committed; it locks every node that takes them, so
/// that all wait for it.
async fn behind_memory(
    core: &TestCore,
    keys: &[&str],
    write: impl AsyncFnOnce(&oac_store::Tx),
) -> Vec<Answer> {
    let tx = world::begin(core).await;
    write(&tx).await;
    let asked = behind_first(core, keys).await;
    tx.commit().await.unwrap();
    join_all(asked).await.into_iter().map(Result::unwrap).collect()
}

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn limited(on: On) {
    let core = world::core(on).await;
    let node = Node::start(&core, 6).await;
    let answers = behind_memory(&core, &KEYS, async |tx| {
        tx.lock_node(node.id()).await.unwrap();
        let limits = oac_store::NodeLimits::Custom;
        tx.set_node_limits(node.id(), limits, 3, 3).await.unwrap();
    })
    .await;
    let (placed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|a| a.status.as_u16() == 201);
    assert_eq!(placed.len(), 3);
    refused.into_iter().for_each(is_refused);
    assert_eq!(active(&core, &node).await, 3);
    assert_eq!(stored(&core).await, placed.into_iter().map(created).collect());
}

// inv: INV-C10, INV-C11
#[tokio::test]
async fn admissions_of_one_transaction_count_one_another_under_a_limit_that_memory_does_not_know() {
    limited(On::Sqlite).await;
}

// inv: INV-C10, INV-C11
#[tokio::test]
async fn pg_admissions_of_one_transaction_count_one_another_under_a_limit_that_memory_does_not_know() {
    limited(On::Postgres).await;
}

async fn moved_on(on: On) {
    let core = world::core(on).await;
    let (cordoned, open) = (Node::start(&core, 6).await, Node::start(&core, 6).await);
    let answers = behind_memory(&core, &KEYS, async |tx| {
        tx.lock_nodes(&[cordoned.id(), open.id()]).await.unwrap();
        tx.set_node_cordoned(cordoned.id(), true).await.unwrap();
    })
    .await;
    let told: BTreeSet<SessionId> = answers.iter().map(created).collect();
    assert_eq!(stored(&core).await, told);
    assert_eq!(
        (active(&core, &cordoned).await, active(&core, &open).await),
        (0, 6)
    );
}

// inv: INV-C24, INV-C32
#[tokio::test]
async fn an_admission_whose_node_no_longer_fits_goes_elsewhere_in_a_further_transaction() {
    moved_on(On::Sqlite).await;
}

// inv: INV-C24, INV-C32
#[tokio::test]
async fn pg_an_admission_whose_node_no_longer_fits_goes_elsewhere_in_a_further_transaction() {
    moved_on(On::Postgres).await;
}

// inv: INV-C11
#[tokio::test]
async fn who_leaves_while_others_are_stored_gets_no_session_and_who_leaves_at_the_commit_finds_it() {
    let core = world::core(On::Sqlite).await;
    let node = Node::start(&core, 3).await;
    let hold = core.core().store.faults().hold_next(Side::Before);
    let at_commit = ask(&core, "first", named("first"));
    hold.reached().await;
    at_commit.abort();
    let (core_, left) = (core.core().clone(), fresh(&core));
    let leaving = start(async move { admit(&core_, left, None, Default::default()).await });
    until_waiting(&core, 1).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    let stays = ask(&core, "stays", named("stays"));
    until_waiting(&core, 2).await;
    drop(hold);
    let mut told = BTreeSet::from([created(&stays.await.unwrap())]);
    told.extend(all(&core, &["first"]).await.iter().map(created));
    assert_eq!(told.len(), 2);
    assert_eq!(stored(&core).await, told, "the one that left has none");
    assert_eq!(active(&core, &node).await, 2);
}

/// The transaction of six admissions is the last thing its Core does.
async fn killed(on: On, side: Side) {
    let mut core = world::core(on).await;
    let mut nodes = vec![Node::start(&core, 6).await];
    if let On::Sqlite = on {
        nodes.push(Node::start(&core, 6).await);
    }
    let faults = core.core().store.faults().clone();
    let tx = world::begin(&core).await;
    tx.lock_node(nodes[0].id()).await.unwrap();
    // Where there is one writer the first of them waits for it, alone: it then finds its node cordoned, and chooses again
    // together with the others.
    if let On::Sqlite = on {
        tx.set_node_cordoned(nodes[0].id(), true).await.unwrap();
    }
    let asked = behind_first(&core, &KEYS).await;
    if let On::Postgres = on {
        until_held(&core, KEYS.len()).await;
    }
    // This one first; then that of all of them.
    faults.die_at(2, side);
    tx.commit().await.unwrap();
    for answer in join_all(asked).await {
        let answer = answer.unwrap();
        assert_eq!(
            answer.status.as_u16(),
            500,
            "whether it was stored is not known: {}",
            answer.body
        );
    }
    assert!(faults.is_dead());
    for node in &mut nodes {
        node.kill().await;
    }
    core.stop().await;
    core.start_again().await;
    core.core().owner.owned().await;
    oac_core::placement::refresh_deployment(core.core()).await;
    let before = stored(&core).await;
    assert_eq!(before.len(), if side == Side::After { KEYS.len() } else { 0 });
    for node in &mut nodes {
        node.connect(&core).await;
    }
    let answers = all(&core, &KEYS).await;
    let told: BTreeSet<SessionId> = answers.iter().map(created).collect();
    assert_eq!(told.len(), KEYS.len());
    assert!(before.is_subset(&told));
    assert_eq!(stored(&core).await, told);
    assert_eq!(active(&core, nodes.last().unwrap()).await, 6);
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn a_core_killed_before_the_commit_of_several_admissions_leaves_none_of_them() {
    killed(On::Sqlite, Side::Before).await;
}

// inv: INV-C12
#[tokio::test]
async fn a_core_killed_after_the_commit_of_several_admissions_leaves_each_of_them_once() {
    killed(On::Sqlite, Side::After).await;
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn pg_a_core_killed_before_the_commit_of_several_admissions_leaves_none_of_them() {
    killed(On::Postgres, Side::Before).await;
}

// inv: INV-C12
#[tokio::test]
async fn pg_a_core_killed_after_the_commit_of_several_admissions_leaves_each_of_them_once() {
    killed(On::Postgres, Side::After).await;
}

/// Ends every transaction that waits for its client.
const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND state = 'idle in transaction'";

// inv: INV-C11, INV-C12
#[tokio::test]
async fn pg_the_connection_that_breaks_at_a_commit_breaks_it_for_all_in_it_and_each_may_ask_again() {
    let core = world::core(On::Postgres).await;
    let node = Node::start(&core, 6).await;
    let faults = core.core().store.faults().clone();
    let tx = world::begin(&core).await;
    tx.lock_node(node.id()).await.unwrap();
    let asked = behind_first(&core, &KEYS).await;
    until_held(&core, KEYS.len()).await;
    let own = faults.hold_next(Side::Before);
    let letting_go = start(tx.commit());
    own.reached().await;
    // The commit after this one is that of all of them.
    let hold = faults.hold_next(Side::Before);
    drop(own);
    letting_go.await.unwrap().unwrap();
    hold.reached().await;
    core.execute(CUT).await;
    drop(hold);
    for answer in join_all(asked).await {
        let answer = answer.unwrap();
        assert_eq!(answer.status.as_u16(), 500, "{}", answer.body);
    }
    let answers = all(&core, &KEYS).await;
    assert_eq!(stored(&core).await, answers.iter().map(created).collect());
}

/// A Project is deleted while Sessions of it are asked for: the deletion is stored, and nothing after it.
async fn deleted(on: On) {
    let core = world::core(on).await;
    let _node = Node::start(&core, 6).await;
    let answers = behind_memory(&core, &KEYS, async |tx| {
        assert!(tx.delete_project(core.project_id).await.unwrap());
    })
    .await;
    for answer in &answers {
        let told = (answer.status.as_u16(), answer.code());
        assert_eq!(told, (401, "invalid_api_key"), "{}", answer.body);
    }
    assert_eq!(stored(&core).await, BTreeSet::new());
}

// inv: INV-C11
#[tokio::test]
async fn admissions_whose_project_is_deleted_meanwhile_are_answered_as_its_key_is_and_leave_no_row() {
    deleted(On::Sqlite).await;
}

// inv: INV-C11
#[tokio::test]
async fn pg_admissions_whose_project_is_deleted_meanwhile_are_answered_as_its_key_is_and_leave_no_row() {
    deleted(On::Postgres).await;
}

// inv: INV-C32
#[tokio::test]
async fn pg_a_node_whose_row_is_held_delays_no_admission_to_another() {
    let core = world::core(On::Postgres).await;
    let (held, open) = (Node::start(&core, 6).await, Node::start(&core, 6).await);
    let tx = world::begin(&core).await;
    tx.lock_node(held.id()).await.unwrap();
    let answers = world::while_open(&tx, all(&core, &KEYS)).await;
    let told: BTreeSet<SessionId> = answers.iter().map(created).collect();
    assert_eq!(stored(&core).await, told);
    assert_eq!((active(&core, &held).await, active(&core, &open).await), (0, 6));
    tx.rollback().await.unwrap();
}

// inv: INV-C11, INV-C32
#[tokio::test]
async fn pg_however_many_want_a_held_node_alone_they_wait_for_it_and_keep_nobody_waiting() {
    /// More than a transaction takes.
    const CROWD: u32 = 70;
    let core = world::core(On::Postgres).await;
    let (held, _open) = (Node::start(&core, CROWD).await, Node::start(&core, 6).await);
    let labels = json!({ "labels": { "zone": "a" } });
    let path = format!("/core/v1/sandbox/nodes/{}/labels", held.id());
    core.operator(Method::PUT, &path, Some(&labels)).await.expect(200);
    let zone = |_| {
        let (core_, mut new) = (core.core().clone(), fresh(&core));
        new.required_labels = [("zone".to_owned(), "a".to_owned())].into();
        let id = new.id;
        start(async move {
            let admitted = admit(&core_, new, None, Default::default()).await;
            admitted.map(|_| id)
        })
    };

    let tx = world::begin(&core).await;
    tx.lock_node(held.id()).await.unwrap();
    let waiting: Vec<_> = (0..CROWD).map(zone).collect();
    let elsewhere = world::while_open(&tx, async {
        until_held(&core, waiting.len()).await;
        all(&core, &["c", "d", "e"]).await
    })
    .await;
    let mut told: BTreeSet<SessionId> = elsewhere.iter().map(created).collect();
    assert!(!waiting.iter().any(JoinHandle::is_finished), "their node is held");
    assert_eq!(stored(&core).await, told);
    tx.rollback().await.unwrap();
    for answer in waiting {
        told.insert(answer.await.unwrap().unwrap());
    }
    assert_eq!(stored(&core).await, told);
    assert_eq!(active(&core, &held).await, u64::from(CROWD));
}

/// What the database refuses of one (here an Environment that is placed already) fails nobody else.
async fn one_refused(on: On) {
    let core = world::core(on).await;
    let _node = Node::start(&core, 6).await;
    let placed = fresh(&core);
    admit(core.core(), placed.clone(), None, Default::default())
        .await
        .unwrap();
    let read = core.core().store.single();
    let allocation = read.latest_allocation(placed.id).await.unwrap().unwrap();
    world::until(&core, allocation.id, AllocationState::Running).await;
    let hold = core.core().store.faults().hold_next(Side::Before);
    let first = ask(&core, "first", named("first"));
    hold.reached().await;
    let again = NewSession {
        id: SessionId::random(),
        ..placed.clone()
    };
    let core_ = core.core().clone();
    let again = start(async move { admit(&core_, again, None, Default::default()).await });
    let good = ["b", "c"].map(|key| ask(&core, key, named(key)));
    until_waiting(&core, 3).await;
    drop(hold);
    let mut told = BTreeSet::from([placed.id, created(&first.await.unwrap())]);
    let refused = again.await.unwrap();
    assert!(
        matches!(refused, Err(PlaceError::Store(StoreError::Duplicate { .. }))),
        "{refused:?}"
    );
    for answer in good {
        told.insert(created(&answer.await.unwrap()));
    }
    assert_eq!(stored(&core).await, told);
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn what_the_database_refuses_of_one_admission_fails_no_other_of_its_transaction() {
    one_refused(On::Sqlite).await;
}

// inv: INV-C11, INV-C12
#[tokio::test]
async fn pg_what_the_database_refuses_of_one_admission_fails_no_other_of_its_transaction() {
    one_refused(On::Postgres).await;
}
