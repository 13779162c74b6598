//! Links of sandboxes that rest: suspended, being restored, or restored and not admitted yet. What a later part will
//! store is stored here by hand.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use oac_link::{
    IntroduceError, LinkEnd, Refusal, Socket,
    service::{ErrorAnswer, Status, codes},
};
use oac_model::{AllocationState, BootId, ComputePhase, Digest, InstanceId, OperationId, StoreId};
use oac_store::{CheckpointRow, ComputeRow, NewOperation, OperationKind};
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};

use crate::world::{Placed, World};

/// A runtime that notes what it is asked, and whether the checkpoint was marked consumed by then.
struct Witness {
    asked: Arc<Mutex<Vec<(String, bool)>>>,
    status: watch::Sender<bool>,
    link: JoinSet<LinkEnd>,
    _stop: tokio::sync::mpsc::Sender<oac_link::StopAccepting>,
}

impl Witness {
    /// Links; the status is answered once `answer_status` is called.
    async fn link(world: &World, placed: &Placed) -> Result<Self, IntroduceError> {
        let url = format!("{}/api/v1/sandbox-link", world.core.url.replacen("http", "ws", 1));
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let hello = placed.sandbox.hello();
        let (_, server) = oac_link::introduce(Socket::from_tungstenite(socket), &hello).await?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let status = watch::Sender::new(false);
        let (stop, stopped) = tokio::sync::mpsc::channel(1);
        let mut link = JoinSet::new();
        let (noted, allowed, core) = (asked.clone(), status.clone(), world.core.core().clone());
        let (allocation, instance) = (placed.allocation, hello.instance_id);
        let service = service_fn(move |request: Request<Incoming>| {
            let (noted, mut allowed, core) = (noted.clone(), allowed.subscribe(), core.clone());
            async move {
                let checkpoint = core
                    .store
                    .single()
                    .undeleted_checkpoint(allocation)
                    .await
                    .unwrap();
                let consumed = checkpoint.is_none_or(|checkpoint| checkpoint.consumed_at.is_some());
                let name = format!("{} {}", request.method(), request.uri().path());
                noted.lock().push((name.clone(), consumed));
                if name == "GET /v1/status" {
                    allowed.wait_for(|allowed| *allowed).await.unwrap();
                    return Ok::<_, Infallible>(answer(200, &status_of(instance)));
                }
                let nothing = ErrorAnswer {
                    code: codes::STOPPING.to_owned(),
                    message: "test".to_owned(),
                };
                Ok(answer(503, &nothing))
            }
        });
        link.spawn(server.serve(service, stopped));
        Ok(Self {
            asked,
            status,
            link,
            _stop: stop,
        })
    }

    fn answer_status(&self) {
        self.status.send_replace(true);
    }

    fn asked(&self) -> Vec<(String, bool)> {
        self.asked.lock().clone()
    }

    async fn until_asked(&self, world: &World, what: &str) {
        world
            .eventually(what, async || {
                let asked = self.asked();
                asked.iter().any(|(name, _)| name.starts_with(what)).then_some(())
            })
            .await;
    }

    async fn ended(&mut self) -> LinkEnd {
        self.link.join_next().await.unwrap().unwrap()
    }
}

fn status_of(instance_id: InstanceId) -> Status {
    Status {
        runtime_version: "test".to_owned(),
        instance_id,
        boot_id: BootId::random(),
        parked: false,
        turns: Vec::new(),
    }
}

fn answer<T: serde::Serialize>(status: u16, value: &T) -> Response<Full<Bytes>> {
    let body = Full::new(serde_json::to_vec(value).unwrap().into());
    Response::builder().status(status).body(body).unwrap()
}

/// A Session whose sandbox ran and is now in `phase`, with a Turn that waits.
async fn resting(world: &World, phase: ComputePhase) -> Placed {
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    connection.close().await;
    world
        .eventually("no link", async || {
            (!world.core.core().links.is_linked(placed.allocation)).then_some(())
        })
        .await;
    set_phase(world, &placed, phase).await;
    let turn = world.submit(placed.session, "true").await;
    world.until_turn(placed.session, turn, "waiting").await;
    placed
}

async fn set_phase(world: &World, placed: &Placed, phase: ComputePhase) {
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    let mut row = tx.lock_allocation(placed.allocation).await.unwrap().unwrap();
    row.compute_phase = phase;
    row.restore_failures = 2;
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
}

async fn set_state(world: &World, placed: &Placed, state: AllocationState) {
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    let mut row = tx.lock_allocation(placed.allocation).await.unwrap().unwrap();
    row.state = state;
    tx.save_allocation(&mut row).await.unwrap();
    tx.commit().await.unwrap();
}

/// The source, and a target restored from its checkpoint.
async fn restored(world: &World, placed: &Placed) -> OperationId {
    let suspend = OperationId::random();
    let row = world.allocation(placed.allocation).await;
    let compute = |generation, restored_from| ComputeRow {
        allocation_id: placed.allocation,
        generation,
        node_id: row.node_id,
        name: format!("oac-test-g{generation}"),
        native_id: Some(format!("native-{generation}")),
        restored_from,
        failed_at: None,
        ended_at: None,
        kill_owed: false,
    };
    let tx = world.core.core().begin().await.unwrap();
    tx.insert_compute(&compute(0, None)).await.unwrap();
    tx.insert_checkpoint(&CheckpointRow {
        operation_id: suspend,
        allocation_id: placed.allocation,
        source_generation: 0,
        source_name: "oac-test-g0".to_owned(),
        source_id: "native-0".to_owned(),
        store_id: StoreId::random(),
        execution_class: Digest::of("class"),
        digest: Digest::of("checkpoint"),
        size_bytes: 1,
        data: Vec::new(),
        retention_deadline: tx.now().plus_millis(3_600_000),
        consumed_at: None,
        deleted_at: None,
    })
    .await
    .unwrap();
    tx.insert_compute(&compute(1, Some(suspend))).await.unwrap();
    tx.commit().await.unwrap();
    suspend
}

/// A `kill_compute` that was sent and has no answer, or was dropped unsent. Core's worker leaves either as it is.
async fn store_kill(world: &World, placed: &Placed, generation: i64, sent: bool) {
    let id = OperationId::random();
    let tx = world.core.core().begin().await.unwrap();
    tx.insert_intent(&NewOperation {
        id,
        allocation_id: placed.allocation,
        node_id: world.allocation(placed.allocation).await.node_id,
        kind: OperationKind::KillCompute,
        argument: Some(serde_json::json!({ "generation": generation })),
    })
    .await
    .unwrap();
    if sent {
        assert!(tx.mark_sent(id, None).await.unwrap());
        assert!(tx.mark_unconfirmed(id).await.unwrap());
    } else {
        assert!(tx.reject_intent(id).await.unwrap());
    }
    tx.commit().await.unwrap();
}

async fn is_consumed(world: &World, checkpoint: OperationId) -> bool {
    let read = world.core.core().store.single();
    read.is_checkpoint_consumed(checkpoint).await.unwrap()
}

async fn turn_state(world: &World, placed: &Placed) -> String {
    let turns = world
        .get(&format!("/v1/sessions/{}/turns", placed.session))
        .await
        .expect(200);
    turns["data"][0]["state"].as_str().unwrap().to_owned()
}

// inv: INV-S21
#[tokio::test]
async fn a_restored_sandbox_gets_one_status_call_and_nothing_else_until_its_checkpoint_is_marked_consumed() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Waking).await;
    let checkpoint = restored(&world, &placed).await;
    // The source's removal is stored already and concerns the target nothing.
    store_kill(&world, &placed, 0, true).await;
    let witness = Witness::link(&world, &placed).await.unwrap();
    witness.until_asked(&world, "GET /v1/status").await;
    // Everything that could want a stream wants one now.
    world.submit(placed.session, "more").await;
    let path = format!("/v1/sessions/{}/ports/80/", placed.session);
    let waiting = world.get(&path);
    tokio::pin!(waiting);
    assert!((&mut waiting).now_or_never().is_none());
    assert!(!is_consumed(&world, checkpoint).await);
    assert_eq!(turn_state(&world, &placed).await, "waiting");
    assert_eq!(
        world.allocation(placed.allocation).await.compute_phase,
        ComputePhase::Waking
    );
    assert_eq!(witness.asked(), [("GET /v1/status".to_owned(), false)]);
    assert!(world.core.core().links.ready(placed.allocation).is_none());

    witness.answer_status();
    let (answer, ()) = tokio::join!(waiting, witness.until_asked(&world, "PUT /v1/turns/"));
    assert_eq!(answer.status, 503, "{answer:?}");
    witness.until_asked(&world, "POST /v1/ports/").await;
    let row = world.allocation(placed.allocation).await;
    assert_eq!(
        (row.compute_phase, row.restore_failures),
        (ComputePhase::Running, 0)
    );
    assert!(is_consumed(&world, checkpoint).await);
    for (name, consumed) in witness.asked().into_iter().skip(1) {
        assert!(consumed, "{name} before the checkpoint was consumed");
    }
}

/// The admission behind it fails at first: its answer serves the next try too.
// inv: INV-S21
#[tokio::test]
async fn a_restored_sandbox_is_asked_for_its_status_once_however_often_its_admission_is_tried() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Waking).await;
    let checkpoint = restored(&world, &placed).await;
    let witness = Witness::link(&world, &placed).await.unwrap();
    witness.until_asked(&world, "GET /v1/status").await;
    set_state(&world, &placed, AllocationState::Creating).await;
    witness.answer_status();
    // By then the first try has failed.
    for _ in 0..20 {
        world.session(placed.session).await;
    }
    assert!(!is_consumed(&world, checkpoint).await);
    set_state(&world, &placed, AllocationState::Running).await;
    witness.until_asked(&world, "PUT /v1/turns/").await;
    let statuses = witness.asked();
    let statuses = statuses.iter().filter(|(name, _)| name == "GET /v1/status");
    assert_eq!(statuses.count(), 1);
}

// inv: INV-S21
#[tokio::test]
async fn a_restored_target_that_core_has_begun_to_kill_is_refused() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Waking).await;
    let checkpoint = restored(&world, &placed).await;
    // It is stored while the first status call is under way.
    let mut witness = Witness::link(&world, &placed).await.unwrap();
    witness.until_asked(&world, "GET /v1/status").await;
    store_kill(&world, &placed, 1, true).await;
    witness.answer_status();
    witness.ended().await;
    assert_eq!(witness.asked(), [("GET /v1/status".to_owned(), false)]);
    let refused = Witness::link(&world, &placed).await.err().unwrap();
    assert!(
        matches!(refused, IntroduceError::Refused(Refusal::Busy)),
        "{refused}"
    );
    assert!(!is_consumed(&world, checkpoint).await);
    assert_eq!(turn_state(&world, &placed).await, "waiting");
}

// inv: INV-S21
#[tokio::test]
async fn a_restored_target_whose_kill_was_dropped_unsent_is_admitted() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Waking).await;
    let checkpoint = restored(&world, &placed).await;
    store_kill(&world, &placed, 1, false).await;
    let witness = Witness::link(&world, &placed).await.unwrap();
    witness.answer_status();
    witness.until_asked(&world, "PUT /v1/turns/").await;
    assert!(is_consumed(&world, checkpoint).await);
}

// inv: INV-S21
#[tokio::test]
async fn a_suspended_sandbox_and_one_whose_restore_is_not_verified_are_refused_as_busy() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Suspending).await;
    for phase in [
        ComputePhase::Suspending,
        ComputePhase::Suspended,
        ComputePhase::Restoring,
    ] {
        set_phase(&world, &placed, phase).await;
        let refused = Witness::link(&world, &placed).await.err().unwrap();
        assert!(
            matches!(refused, IntroduceError::Refused(Refusal::Busy)),
            "{phase:?}: {refused}"
        );
    }
    assert_eq!(turn_state(&world, &placed).await, "waiting");
}

#[tokio::test]
async fn a_sandbox_woken_without_a_checkpoint_is_admitted_at_its_first_link() {
    let world = World::start().await;
    let placed = resting(&world, ComputePhase::Waking).await;
    let witness = Witness::link(&world, &placed).await.unwrap();
    witness.answer_status();
    witness.until_asked(&world, "PUT /v1/turns/").await;
    assert_eq!(
        world.allocation(placed.allocation).await.compute_phase,
        ComputePhase::Running
    );
}

#[tokio::test]
async fn a_link_that_is_open_when_quiescing_begins_carries_no_further_stream_until_it_ends() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    set_phase(&world, &placed, ComputePhase::Quiescing).await;
    let turn = world.submit(placed.session, "true").await;
    world.until_turn(placed.session, turn, "waiting").await;
    let link = world.core.core().links.current(placed.allocation);
    assert!(link.is_some(), "it is needed for the word to quiesce");
    assert!(placed.sandbox.puts().is_empty());
    set_phase(&world, &placed, ComputePhase::Running).await;
    connection.cut().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    assert_eq!(placed.sandbox.started(0).await, turn);
}
