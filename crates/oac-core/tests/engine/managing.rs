//! Managing nodes: what they are told, what their statuses change, and which generations they may drop.

use std::time::Duration;

use oac_model::{AllocationState, Digest, EnvironmentId, Generation, PlacementId};
use oac_store::{GenerationState as Stored, NewPlacement, NodeRow, OperationState};
use oac_testkit::core::TestCore;
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{
        Deployment, GenerationState, GenerationStatus, Health, Hello, Retention, RetentionAnswer,
        RetentionControl, RetentionReference, Token,
    },
};

use crate::{
    node::{self, Greeted, Node, dial, health, hello, receive, send},
    world::{self, On},
};

const READY: GenerationState = GenerationState::Ready;
const PREPARING: GenerationState = GenerationState::Preparing;

fn generation(n: i64) -> Generation {
    Generation::try_from(n).unwrap()
}

async fn digest(core: &TestCore, n: i64) -> Digest {
    let read = core.core().store.single();
    read.generation(generation(n))
        .await
        .unwrap()
        .map_or(Digest::of(format!("generation {n}")), |row| row.digest)
}

async fn status(core: &TestCore, n: i64, state: GenerationState) -> GenerationStatus {
    GenerationStatus {
        generation: generation(n),
        specification_digest: digest(core, n).await,
        state,
        diagnostic: None,
    }
}

fn report(statuses: Vec<GenerationStatus>) -> Health {
    Health {
        generations: Some(statuses),
        ..health(false)
    }
}

async fn connect(core: &TestCore, node: &Node, statuses: Vec<GenerationStatus>) -> Greeted {
    let mut socket = loop {
        if let Ok(socket) = dial(core, &node.enrolled).await {
            break socket;
        }
    };
    let hello = Hello {
        generation_management: Some(true),
        ..hello(&node.enrolled, &report(statuses))
    };
    send(&mut socket, &NodeFrame::Hello(Box::new(hello))).await;
    match receive(&mut socket).await {
        Some(CoreFrame::Welcome(welcome)) => Greeted { socket, welcome },
        other => panic!("no welcome but {other:?}"),
    }
}

/// The next frame but requests, which nobody answers here.
async fn control(greeted: &mut Greeted) -> Option<CoreFrame> {
    loop {
        match receive(&mut greeted.socket).await {
            Some(CoreFrame::Request(_)) => {}
            other => return other,
        }
    }
}

/// The deployment that a heartbeat with these statuses is answered with; `None` when the connection ended.
async fn beat(greeted: &mut Greeted, statuses: Vec<GenerationStatus>) -> Option<Deployment> {
    let beat = node::heartbeat(greeted, report(statuses));
    send(&mut greeted.socket, &beat).await;
    match control(greeted).await {
        Some(CoreFrame::HeartbeatAck(ack)) => Some(ack.deployment.unwrap()),
        None => None,
        other => panic!("{other:?}"),
    }
}

async fn deployment(core: &TestCore, target: i64, serving: Option<i64>) -> Deployment {
    Deployment {
        generation: generation(target),
        specification_digest: digest(core, target).await,
        serving_generation: Nullable(serving.map(generation)),
    }
}

async fn row(core: &TestCore, node: &Node) -> NodeRow {
    let read = core.core().store.single();
    read.node(node.id()).await.unwrap().unwrap()
}

async fn statuses(core: &TestCore, node: &Node) -> Vec<(i64, Stored)> {
    let read = core.core().store.single();
    let rows = read.generation_statuses(node.id()).await.unwrap();
    rows.into_iter().map(|s| (s.generation.get(), s.state)).collect()
}

async fn pins(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 4).await;
    let mut greeted = connect(&core, &node, vec![status(&core, 1, READY).await]).await;
    assert_eq!(
        greeted.welcome.deployment,
        Some(deployment(&core, 1, Some(1)).await),
        "a target that is ready at once is served at once"
    );
    let stored = row(&core, &node).await;
    assert_eq!(
        (stored.generation_management, stored.serving_generation),
        (Some(true), Some(generation(1)))
    );
    assert!(!stored.provider_ready, "it has no readiness of its own");
    assert!(core.core().hub.is_ready(node.id(), generation(1)));

    // A new target: the node goes on serving what it serves while it prepares.
    core.deploy(2, 1024).await;
    oac_core::placement::refresh_deployment(core.core()).await;
    let preparing = vec![status(&core, 2, PREPARING).await];
    assert_eq!(
        beat(&mut greeted, preparing).await,
        Some(deployment(&core, 2, Some(1)).await)
    );
    assert_eq!(
        statuses(&core, &node).await,
        [(2, Stored::Preparing), (1, Stored::Ready)]
    );
    let (_, placed) = world::session(&core).await.unwrap();
    assert_eq!(
        world::row(&core, placed).await.deployment_generation,
        generation(1)
    );

    // Ready under a target that was superseded meanwhile: the pin stays.
    core.deploy(1, 1024).await;
    let late = vec![status(&core, 2, READY).await];
    assert_eq!(
        beat(&mut greeted, late).await,
        Some(deployment(&core, 3, Some(1)).await)
    );
    assert_eq!(row(&core, &node).await.serving_generation, Some(generation(1)));
    // Ready under the target: the pin moves, and placement follows it.
    let ready = vec![status(&core, 3, READY).await];
    assert_eq!(
        beat(&mut greeted, ready).await,
        Some(deployment(&core, 3, Some(3)).await)
    );
    oac_core::placement::refresh_deployment(core.core()).await;
    let (_, placed) = world::session(&core).await.unwrap();
    assert_eq!(
        world::row(&core, placed).await.deployment_generation,
        generation(3)
    );
    // The pin outlives the connection; what was said on it does not.
    drop(greeted);
    world::eventually("presence is removed", async || {
        row(&core, &node).await.connection_id.is_none()
    })
    .await;
    assert_eq!(row(&core, &node).await.serving_generation, Some(generation(3)));
    assert_eq!(statuses(&core, &node).await, []);
    let again = connect(&core, &node, vec![]).await;
    assert_eq!(
        again.welcome.deployment,
        Some(deployment(&core, 3, Some(3)).await)
    );
    assert!(
        !core.core().hub.is_ready(node.id(), generation(3)),
        "not said on this connection"
    );
}

// req: P-025, P-029, P-083, P-088
// inv: INV-P15, INV-P17, INV-C7
#[tokio::test]
async fn a_pin_moves_only_to_the_target_reported_ready_and_every_answer_carries_the_deployment() {
    pins(On::Sqlite).await;
}

// req: P-025, P-029
// inv: INV-P15, INV-P17, INV-C7
#[tokio::test]
async fn pg_a_pin_moves_only_to_the_target_reported_ready_and_every_answer_carries_the_deployment() {
    pins(On::Postgres).await;
}

async fn judged(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 1).await;
    let first = status(&core, 1, READY).await;
    let mut greeted = connect(&core, &node, vec![]).await;
    assert_eq!(greeted.welcome.deployment, Some(deployment(&core, 1, None).await));
    // Never heard of: ignored, whatever its digest.
    let unknown = GenerationStatus {
        generation: generation(99),
        ..first.clone()
    };
    let odd = GenerationStatus {
        state: GenerationState::Failed,
        diagnostic: Some(Token("a_code_of_tomorrow".to_owned())),
        ..first.clone()
    };
    assert!(beat(&mut greeted, vec![unknown, odd]).await.is_some());
    let read = core.core().store.single();
    let stored = read.generation_statuses(node.id()).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(
        stored[0].diagnostic,
        Some(oac_model::DiagnosticCode::ProviderUnavailable)
    );
    // Another digest for one that is kept: closes, and changes nothing.
    let other = GenerationStatus {
        specification_digest: Digest::of("another"),
        ..first.clone()
    };
    assert_eq!(beat(&mut greeted, vec![other.clone()]).await, None);
    assert_eq!(row(&core, &node).await.serving_generation, None);
    let mut socket = loop {
        if let Ok(socket) = dial(&core, &node.enrolled).await {
            break socket;
        }
    };
    let opening = Hello {
        generation_management: Some(true),
        ..hello(&node.enrolled, &report(vec![other]))
    };
    send(&mut socket, &NodeFrame::Hello(Box::new(opening))).await;
    assert_eq!(
        receive(&mut socket).await,
        None,
        "no welcome for a differing digest"
    );
    world::eventually("what may have been recorded is removed", async || {
        row(&core, &node).await.connection_id.is_none()
    })
    .await;
    // Known to manage: a hello that no longer says so opens nothing.
    let mut socket = loop {
        if let Ok(socket) = dial(&core, &node.enrolled).await {
            break socket;
        }
    };
    let plain = NodeFrame::Hello(Box::new(hello(&node.enrolled, &health(true))));
    send(&mut socket, &plain).await;
    assert_eq!(receive(&mut socket).await, None);
}

// req: P-037
// inv: INV-P27
#[tokio::test]
async fn statuses_of_unkept_generations_are_ignored_and_a_differing_digest_closes() {
    judged(On::Sqlite).await;
}

// req: P-037
#[tokio::test]
async fn pg_statuses_of_unkept_generations_are_ignored_and_a_differing_digest_closes() {
    judged(On::Postgres).await;
}

async fn asks(
    core: &TestCore,
    greeted: &mut Greeted,
    sequence: i64,
    named: &[(i64, Option<Digest>)],
) -> Option<(Vec<RetentionAnswer>, Deployment)> {
    let mut references = Vec::new();
    for (n, other) in named {
        references.push(RetentionReference {
            generation: generation(*n),
            specification_digest: match other {
                Some(other) => *other,
                None => digest(core, *n).await,
            },
        });
    }
    let request = RetentionControl {
        id: oac_model::RequestId::random(),
        sequence,
        connection_id: greeted.welcome.connection_id,
        owner_epoch: greeted.welcome.owner_epoch,
        references: references.clone(),
    };
    send(
        &mut greeted.socket,
        &NodeFrame::Retention(Retention {
            control: request.clone(),
        }),
    )
    .await;
    let ack = match control(greeted).await {
        Some(CoreFrame::RetentionAck(ack)) => ack,
        None => return None,
        other => panic!("{other:?}"),
    };
    let told = ack.control;
    assert_eq!((told.id, told.sequence), (request.id, sequence));
    let repeated: Vec<_> = told
        .retentions
        .iter()
        .map(|r| (r.generation, r.specification_digest))
        .collect();
    let asked: Vec<_> = references
        .iter()
        .map(|r| (r.generation, r.specification_digest))
        .collect();
    assert_eq!(repeated, asked, "entries in their order");
    Some((told.retentions, ack.deployment))
}

fn kept(answer: Option<(Vec<RetentionAnswer>, Deployment)>) -> Vec<bool> {
    answer.unwrap().0.iter().map(|r| r.keep).collect()
}

async fn retention(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 4).await;
    let other = Node::enroll(&core, 4).await;
    let mut greeted = connect(&core, &node, vec![status(&core, 1, READY).await]).await;
    // Generation 1 is named by a placement, and pinned by this node; 2 and 3 were targets once.
    let placement = NewPlacement {
        id: PlacementId::random(),
        environment_id: EnvironmentId::random(),
        node_id: Some(node.id()),
        generation: generation(1),
    };
    let tx = world::begin(&core).await;
    tx.insert_placement(&placement).await.unwrap();
    tx.commit().await.unwrap();
    core.deploy(2, 1024).await;
    let second = vec![status(&core, 2, READY).await];
    beat(&mut greeted, second).await.unwrap();
    core.deploy(1, 1024).await;
    core.deploy(2, 512).await;
    let told = deployment(&core, 4, Some(2)).await;
    let named = [(3, None), (1, None), (99, None)];
    let answer = asks(&core, &mut greeted, 1, &named).await;
    assert_eq!(answer.as_ref().unwrap().1, told);
    // 1 is the enrolled generation of the other node, which is not known to manage, besides the placement.
    assert_eq!(kept(answer), [false, true, false]);

    // The other node says that it manages: what it enrolled with keeps nothing any more, the placement does.
    let _other = connect(&core, &other, vec![]).await;
    assert_eq!(
        kept(asks(&core, &mut greeted, 2, &named).await),
        [false, true, false]
    );
    // Released, it is kept by nobody: the node's own word about it goes with the answer.
    let first = vec![status(&core, 1, READY).await];
    beat(&mut greeted, first).await.unwrap();
    assert!(statuses(&core, &node).await.contains(&(1, Stored::Ready)));
    assert!(core.core().hub.is_ready(node.id(), generation(1)));
    let tx = world::begin(&core).await;
    assert!(tx.release_placement(placement.id).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(kept(asks(&core, &mut greeted, 3, &named).await), [false; 3]);
    assert_eq!(statuses(&core, &node).await, [(2, Stored::Ready)]);
    assert!(!core.core().hub.is_ready(node.id(), generation(1)));
    // Such a number never returns: a later selection, equal to it or not, gets another.
    core.deploy(1, 512).await;
    let target = core.core().store.single().deployment().await.unwrap().target();
    assert_eq!(target, Some(generation(5)));
    assert_eq!(kept(asks(&core, &mut greeted, 4, &[(1, None)]).await), [false]);

    // A kept one with another digest, a wrong sequence: closes.
    let wrong = [(2, Some(Digest::of("another")))];
    assert!(asks(&core, &mut greeted, 5, &wrong).await.is_none());
    let mut greeted = connect(&core, &node, vec![]).await;
    assert!(asks(&core, &mut greeted, 2, &[(1, None)]).await.is_none());
    let mut greeted = connect(&core, &node, vec![]).await;
    assert_eq!(
        kept(asks(&core, &mut greeted, 1, &[(2, None)]).await),
        [true],
        "pinned"
    );
}

// req: P-089, P-090, P-091
// inv: INV-C8
#[tokio::test]
async fn retention_is_answered_from_the_rows_entry_by_entry_and_a_number_not_kept_never_returns() {
    retention(On::Sqlite).await;
}

// req: P-089, P-090, P-091
// inv: INV-C8
#[tokio::test]
async fn pg_retention_is_answered_from_the_rows_entry_by_entry_and_a_number_not_kept_never_returns() {
    retention(On::Postgres).await;
}

// req: P-115, P-116
// inv: INV-C8
#[tokio::test]
async fn a_node_that_comes_back_without_helper_and_files_releases_no_placement_and_settles_no_create() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 4).await;
    let mut greeted = connect(&core, &node, vec![status(&core, 1, READY).await]).await;
    let (_, id) = world::session(&core).await.unwrap();
    // The create is on its way; then node and helper end.
    while !matches!(
        receive(&mut greeted.socket).await.expect("a request"),
        CoreFrame::Request(_)
    ) {}
    drop(greeted);
    core.deploy(2, 1024).await;
    // Nothing of the generation is left there, and another is pinned.
    let mut greeted = connect(&core, &node, vec![]).await;
    let second = vec![status(&core, 2, READY).await];
    beat(&mut greeted, second).await.unwrap();
    let row = row(&core, &node).await;
    assert_eq!(row.serving_generation, Some(generation(2)));
    assert_eq!(statuses(&core, &node).await, [(2, Stored::Ready)]);
    assert_eq!(
        kept(asks(&core, &mut greeted, 1, &[(1, None)]).await),
        [true],
        "the placement is Core's alone"
    );
    let allocation = world::row(&core, id).await;
    assert_eq!(
        (
            allocation.state,
            allocation.create_settled,
            allocation.released_at
        ),
        (AllocationState::Creating, false, None)
    );
    let create = world::creates(&core, id).await;
    assert!(
        matches!(create[..], [OperationState::Sent | OperationState::Unconfirmed]),
        "{create:?}"
    );
    let read = core.core().store.single();
    assert_eq!(read.slot_counts(Some(node.id())).await.unwrap().active, 1);
}

// req: P-080
#[tokio::test]
async fn a_fixed_node_that_asks_for_retention_is_closed_and_gets_no_deployment() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = node::greet(&core, &node.enrolled, &health(true)).await.unwrap();
    assert_eq!(greeted.welcome.deployment, None);
    let beat = node::heartbeat(&greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    let Some(CoreFrame::HeartbeatAck(ack)) = receive(&mut greeted.socket).await else {
        panic!("no acknowledgement")
    };
    assert_eq!(ack.deployment, None);
    assert!(asks(&core, &mut greeted, 1, &[(1, None)]).await.is_none());
}

async fn collected(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 4).await;
    let _greeted = connect(&core, &node, vec![status(&core, 1, READY).await]).await;
    // 1 is pinned; more than one transaction removes were targets once; the last one is.
    for n in 0..40 {
        core.deploy(1, 1024 + n).await;
    }
    let rows = async || {
        let read = core.core().store.single();
        let mut left = Vec::new();
        for n in 1..=41 {
            if read.generation(generation(n)).await.unwrap().is_some() {
                left.push(n);
            }
        }
        left
    };
    assert_eq!(rows().await.len(), 41);
    core.core().hub.clock().skip(Duration::from_secs(600));
    world::eventually("what nothing keeps is gone", async || rows().await == [1, 41]).await;
    core.deploy(1, 512).await;
    let target = core.core().store.single().deployment().await.unwrap().target();
    assert_eq!(target, Some(generation(42)), "no number comes back");
}

// inv: INV-C4
#[tokio::test]
async fn rows_of_generations_that_nothing_keeps_are_removed_and_no_number_comes_back() {
    collected(On::Sqlite).await;
}

// inv: INV-C4
#[tokio::test]
async fn pg_rows_of_generations_that_nothing_keeps_are_removed_and_no_number_comes_back() {
    collected(On::Postgres).await;
}

// req: G-164
#[tokio::test]
async fn every_node_is_told_the_same_configuration_and_none_has_one_of_its_own() {
    let core = world::core(On::Sqlite).await;
    let nodes = [Node::enroll(&core, 1).await, Node::enroll(&core, 7).await];
    let mut greeted = Vec::new();
    for node in &nodes {
        let ready = vec![status(&core, 1, READY).await];
        greeted.push(connect(&core, node, ready).await);
    }
    let labels = format!("/core/v1/sandbox/nodes/{}/labels", nodes[1].id());
    let body = serde_json::json!({ "labels": { "size": "large" } });
    core.operator(reqwest::Method::PUT, &labels, Some(&body))
        .await
        .expect(200);
    core.deploy(2, 1024).await;
    oac_core::placement::refresh_deployment(core.core()).await;
    for connection in &mut greeted {
        let told = beat(connection, vec![]).await.unwrap();
        assert_eq!(told.generation, generation(2));
        assert_eq!(told.specification_digest, digest(&core, 2).await);
    }
    for (setting, value) in [
        ("resources", serde_json::json!({ "cpus": 1, "memory_mib": 512 })),
        ("runtime", serde_json::json!({})),
        ("provider", serde_json::json!("docker")),
        ("workspace", serde_json::json!(null)),
        ("generation", serde_json::json!(1)),
    ] {
        let path = format!("/core/v1/sandbox/nodes/{}", nodes[0].id());
        let mut edit = serde_json::json!({ "name": "node", "max_active": 1, "max_retained": 1 });
        edit[setting] = value;
        let refused = core.operator(reqwest::Method::PATCH, &path, Some(&edit)).await;
        assert_eq!(refused.status.as_u16(), 400, "{setting}: {}", refused.body);
    }
}
