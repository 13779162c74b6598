//! A crowd of applications that ask for Sessions at once, over HTTP, of three nodes with five places each: fifteen get
//! one, nobody gets two, and of the others nothing is left (core.md sections 7 and 8).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use oac_model::{AllocationId, AllocationState, Secret, SessionId};
use oac_store::OperationState;
use oac_testkit::{
    core::{Answer, TestCore, try_send},
    core_program::CoreProgram,
};
use oac_wire::shapes::Operation;
use serde_json::json;
use tokio::sync::watch;

use crate::{
    node::Node,
    world::{self, On},
};

const CLIENTS: usize = 200;
const SLOTS: u32 = 5;
const PLACES: usize = 15;
const EXE: &str = env!("CARGO_BIN_EXE_oac-core");

async fn three_nodes(core: &TestCore) -> [Node; 3] {
    [
        Node::start(core, SLOTS).await,
        Node::start(core, SLOTS).await,
        Node::start(core, SLOTS).await,
    ]
}

/// Applications of one Project, by number.
struct Clients {
    http: reqwest::Client,
    project_key: Secret,
}

impl Clients {
    fn of(core: &TestCore) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            project_key: core.project_key.clone(),
        }
    }

    /// One asks for a Session, always under the same key.
    async fn ask(&self, core_url: &str, client: usize) -> reqwest::Result<Answer> {
        let request = self.http.post(format!("{core_url}/v1/sessions"));
        let request = request
            .bearer_auth(self.project_key.expose())
            .header("idempotency-key", key(client))
            .json(&json!({ "name": key(client) }));
        try_send(request).await
    }

    /// One asks at both addresses in turn, and again in each phase, until it has a Session.
    async fn insist(
        &self,
        urls: [&str; 2],
        client: usize,
        phase: &watch::Sender<Phase>,
        told: &watch::Sender<usize>,
    ) -> Answer {
        let mut phases = phase.subscribe();
        let mut last = None;
        for now in PHASES {
            phases.wait_for(|phase| *phase >= now).await.unwrap();
            for url in urls {
                let Ok(answer) = self.ask(url, client).await else {
                    continue;
                };
                if is_created(&answer) {
                    told.send_modify(|told| *told += 1);
                    return answer;
                }
                last = Some(answer);
            }
        }
        last.unwrap()
    }
}

fn key(client: usize) -> String {
    format!("client {client}")
}

fn is_created(answer: &Answer) -> bool {
    answer.status.as_u16() == 201
}

fn session_of(answer: &Answer) -> SessionId {
    answer.body["id"].as_str().unwrap().parse().unwrap()
}

/// What must be true when everybody was answered by `core`, whoever answered before it, and maybe was `killed`.
async fn fifteen_are_placed_and_nothing_is_left_of_the_others(
    core: &TestCore,
    nodes: &[Node],
    answers: &[Answer],
    killed: bool,
) {
    for answer in answers.iter().filter(|answer| !is_created(answer)) {
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (503, "runtime_node_unavailable"),
            "{}",
            answer.body
        );
    }
    let told: BTreeSet<SessionId> = answers
        .iter()
        .filter(|answer| is_created(answer))
        .map(session_of)
        .collect();
    assert_eq!(told.len(), PLACES, "each of its own");
    let store = core.core().store.single();
    let stored = store
        .sessions_of_project(core.project_id, None, None, 1000)
        .await
        .unwrap();
    let stored: BTreeSet<SessionId> = stored.iter().map(|session| session.id).collect();
    assert_eq!(stored, told, "no Session that nobody was told of");
    let counts = store.resource_counts().await.unwrap();
    assert_eq!((counts.allocations, counts.pending), (PLACES as u64, 0));
    let now = store.database_time().await.unwrap();
    for (client, answer) in answers.iter().enumerate() {
        let record = store
            .idempotency_record(core.project_id, "POST /v1/sessions", &key(client), now)
            .await
            .unwrap();
        assert_eq!(record.is_some(), is_created(answer), "client {client}");
    }
    let mut unheard = BTreeSet::new();
    for session in told {
        let allocation = store.latest_allocation(session).await.unwrap().unwrap().id;
        let mut told = String::new();
        world::eventually("it runs, or its create went down with its Core", async || {
            let row = store.allocation(allocation).await.unwrap().unwrap();
            let is_running = row.state == AllocationState::Running;
            let creates = world::creates(core, allocation).await;
            let now = format!("{:?}, {:?}, {creates:?}", row.state, row.diagnostic);
            if now != told {
                // Said when it fails.
                eprintln!("allocation {allocation}: {now}");
                told = now;
            }
            if !is_running && killed && is_unheard(core, nodes, allocation).await {
                unheard.insert(allocation);
            }
            is_running || unheard.contains(&allocation)
        })
        .await;
    }
    let mut heard = 0;
    for node in nodes {
        let counts = store.slot_counts(Some(node.id())).await.unwrap();
        assert_eq!((counts.active, counts.retained), (5, 5));
        let host = node.host.lock();
        assert!(host.natives.values().all(|native| native.created == 1));
        let creates = host.requests.iter().filter(|(o, _)| *o == Operation::Create);
        let mut of: Vec<AllocationId> = creates.map(|(_, allocation)| *allocation).collect();
        let sent = of.len();
        of.sort();
        of.dedup();
        assert_eq!(of.len(), sent, "sent once for each allocation");
        assert_eq!(host.natives.len(), sent, "one sandbox for each");
        assert!(sent <= 5);
        heard += sent;
    }
    assert_eq!(heard + unheard.len(), PLACES);
}

/// The create was stored as sent and its Core was killed before it left: no node heard of it, nobody knows, and nobody
/// sends it again.
async fn is_unheard(core: &TestCore, nodes: &[Node], allocation: AllocationId) -> bool {
    let is_open = world::creates(core, allocation).await == [OperationState::Unconfirmed];
    let on = |node: &Node| node.host.lock().natives.contains_key(&allocation);
    is_open && !nodes.iter().any(on)
}

async fn at_once(on: On) {
    let core = world::core(on).await;
    let nodes = three_nodes(&core).await;
    let clients = Clients::of(&core);
    let answers = join_all((0..CLIENTS).map(|client| clients.ask(&core.url, client))).await;
    let answers: Vec<Answer> = answers.into_iter().collect::<Result<_, _>>().unwrap();
    fifteen_are_placed_and_nothing_is_left_of_the_others(&core, &nodes, &answers, false).await;
}

// inv: INV-C10, INV-C11, INV-C12
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_hundred_requests_at_once_exactly_fifteen_get_the_fifteen_places() {
    at_once(On::Sqlite).await;
}

// inv: INV-C10, INV-C11, INV-C12
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pg_of_two_hundred_requests_at_once_exactly_fifteen_get_the_fifteen_places() {
    at_once(On::Postgres).await;
}

/// When clients ask; whoever was not placed asks again in the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// An owner with three nodes, which is killed in the middle.
    Crowd,
    /// It is gone, and the next one may not have noticed.
    Killed,
    /// Another one owns, and has heard of no node yet.
    Taken,
    /// The nodes are back.
    Whole,
}

const PHASES: [Phase; 4] = [Phase::Crowd, Phase::Killed, Phase::Taken, Phase::Whole];
/// So many were told of their Session when the owner is killed.
const TOLD_BEFORE: usize = 5;

async fn across_a_takeover(on: On) {
    let mut core = world::core(on).await;
    let mut nodes = three_nodes(&core).await;
    let owner = CoreProgram::in_place_of(&mut core, EXE.as_ref()).await;
    for node in &mut nodes {
        node.connect_to(&owner.url).await;
    }
    // On SQLite nobody listens there until the owner is gone.
    let next_url = core.url.clone();
    if let On::Postgres = on {
        core.start_again().await;
    }
    let clients = Clients::of(&core);
    let (phase, told) = (watch::Sender::new(Phase::Crowd), watch::Sender::new(0));
    let urls = [owner.url.as_str(), &next_url];
    let asked = join_all((0..CLIENTS).map(|client| clients.insist(urls, client, &phase, &told)));
    let takeover = async {
        let mut so_far = told.subscribe();
        so_far.wait_for(|told| *told >= TOLD_BEFORE).await.unwrap();
        owner.program.kill().await;
        phase.send_replace(Phase::Killed);
        if let On::Sqlite = on {
            core.start_again().await;
        }
        core.core().owner.owned().await;
        oac_core::placement::refresh_deployment(core.core()).await;
        phase.send_replace(Phase::Taken);
        for node in &mut nodes {
            node.connect(&core).await;
        }
        phase.send_replace(Phase::Whole);
    };
    let (answers, ()) = tokio::join!(asked, takeover);
    fifteen_are_placed_and_nothing_is_left_of_the_others(&core, &nodes, &answers, true).await;
    // Whoever asks once more hears the same.
    for (client, before) in answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| is_created(answer))
    {
        let again = clients.ask(&core.url, client).await.unwrap();
        assert_eq!((again.status, again.body), (before.status, before.body.clone()));
    }
}

// inv: INV-C10, INV-C11, INV-C12, INV-C17
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_whose_core_is_killed_and_started_again_gets_fifteen_sessions_and_none_twice() {
    across_a_takeover(On::Sqlite).await;
}

// inv: INV-C10, INV-C11, INV-C12, INV-C17
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pg_a_crowd_whose_owner_is_killed_gets_fifteen_sessions_of_the_next_and_none_twice() {
    across_a_takeover(On::Postgres).await;
}

// inv: INV-C32
#[tokio::test]
async fn pg_a_placement_waits_for_no_other_nodes_row() {
    let core = world::core(On::Postgres).await;
    let nodes = three_nodes(&core).await;
    let others = world::begin(&core).await;
    let mut ids = [nodes[1].id(), nodes[2].id()];
    ids.sort();
    others.lock_nodes(&ids).await.unwrap();
    let (_, allocation) = world::session(&core).await.unwrap();
    assert_eq!(world::row(&core, allocation).await.node_id, Some(nodes[0].id()));
    others.rollback().await.unwrap();
}
