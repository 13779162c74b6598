//! Links cut, runtimes restarted, Core stopped: sessions.md section 8.

use oac_core::allocations::{self, Cause};
use oac_link::service::OutputStreamName::{Stderr, Stdout};
use oac_model::TurnId;
use oac_store::Dispatch;
use serde_json::json;

use crate::{
    reader::{Reader, whole},
    sandbox::exit_code,
    world::{Placed, World},
};

impl World {
    async fn until_dispatch(&self, turn: TurnId, dispatch: Dispatch) {
        self.eventually("the Turn's dispatch", async || {
            let row = self.core.core().store.single().turn(turn).await.unwrap().unwrap();
            (row.dispatch == dispatch).then_some(())
        })
        .await;
    }
}

async fn stored(world: &World, turn: TurnId) -> u64 {
    world
        .core
        .core()
        .store
        .single()
        .turn(turn)
        .await
        .unwrap()
        .unwrap()
        .output_bytes
}

// inv: INV-S2, INV-S8
#[tokio::test]
async fn a_turn_whose_answer_was_lost_is_sent_again_to_the_same_sandbox_and_started_once() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.lose_put_answers(true);
    let turn = world.submit(placed.session, "once").await;
    placed.sandbox.started(0).await;
    connection.ended().await;
    placed.sandbox.lose_put_answers(false);
    let _connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.write(turn, Stdout, b"once");
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    assert_eq!(placed.sandbox.starts(), [turn]);
    assert_eq!(whole(&world.core, placed.session, turn).await.0.len(), 4);
}

// inv: INV-S2
#[tokio::test]
async fn a_turn_that_never_arrived_is_sent_again_on_the_next_link() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.hold_puts(true);
    let turn = world.submit(placed.session, "once").await;
    world.until_dispatch(turn, Dispatch::Sent).await;
    connection.cut().await;
    placed.sandbox.hold_puts(false);
    let _connection = placed.sandbox.connect(&world.core.url).await;
    assert_eq!(placed.sandbox.started(0).await, turn);
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    assert_eq!(placed.sandbox.starts(), [turn]);
}

// inv: INV-S4, INV-S5
#[tokio::test]
async fn links_cut_during_output_lose_and_repeat_nothing() {
    cut_during_output(World::start().await).await;
}

// inv: INV-S4, INV-S5
#[tokio::test]
async fn pg_links_cut_during_output_lose_and_repeat_nothing() {
    cut_during_output(World::start_postgres().await).await;
}

async fn cut_during_output(world: World) {
    let placed = world.place().await;
    let mut connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    let mut reader = Reader::open(&world.core, &path, None).await;
    let mut expected = Vec::new();
    for n in 0..6_u32 {
        let bytes: Vec<u8> = (0..50_000 + n * 1000)
            .map(|i| (i % 241) as u8 ^ n as u8)
            .collect();
        let stream = if n % 2 == 0 { Stdout } else { Stderr };
        placed.sandbox.write(turn, stream, &bytes);
        expected.extend(bytes.iter().map(|b| (stream.as_str(), *b)));
        // Cut somewhere in the middle of it.
        world
            .eventually("some of it stored", async || {
                (stored(&world, turn).await > expected.len() as u64 - 50_000).then_some(())
            })
            .await;
        connection.cut().await;
        placed.sandbox.write(turn, Stdout, &[n as u8]);
        expected.push(("stdout", n as u8));
        connection = placed.sandbox.connect(&world.core.url).await;
    }
    placed.sandbox.exit(turn, exit_code(0));
    let (bytes, end) = reader.rest(0).await;
    assert!(bytes == expected);
    assert_eq!(end.unwrap()["state"], "completed");
    assert_eq!(placed.sandbox.starts(), [turn]);
    // What was acknowledged never ran ahead, and ends at the end.
    placed.sandbox.finally_acknowledged(turn).await;
    let acks = placed.sandbox.acks(turn);
    assert!(acks.iter().all(|ack| ack.offset <= expected.len() as u64));
    assert_eq!(acks.last().unwrap().offset, expected.len() as u64);
}

// inv: INV-S2, INV-S4, INV-S5
#[tokio::test]
async fn a_core_that_stops_during_output_goes_on_where_its_stored_bytes_end() {
    core_stops_during_output(World::start().await).await;
}

// inv: INV-S2, INV-S4, INV-S5
#[tokio::test]
async fn pg_a_core_that_stops_during_output_goes_on_where_its_stored_bytes_end() {
    core_stops_during_output(World::start_postgres().await).await;
}

async fn core_stops_during_output(mut world: World) {
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let first: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 239) as u8).collect();
    placed.sandbox.write(turn, Stdout, &first);
    world
        .eventually("some of it stored", async || {
            (stored(&world, turn).await > 0).then_some(())
        })
        .await;
    world.core.restart().await;
    connection.ended().await;
    let kept = stored(&world, turn).await;
    let acknowledged = placed
        .sandbox
        .acks(turn)
        .iter()
        .map(|ack| ack.offset)
        .max()
        .unwrap_or(0);
    assert!(acknowledged <= kept, "only what is stored was acknowledged");
    placed.sandbox.write(turn, Stderr, b"after");
    let _connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    let (bytes, _) = whole(&world.core, placed.session, turn).await;
    let expected: Vec<u8> = first.into_iter().chain(*b"after").collect();
    assert!(bytes.into_iter().map(|(_, b)| b).eq(expected));
    assert_eq!(placed.sandbox.starts(), [turn]);
}

#[tokio::test]
async fn a_turn_that_ended_while_nothing_was_linked_is_read_to_its_end() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    connection.cut().await;
    placed.sandbox.write(turn, Stdout, b"unseen");
    placed.sandbox.exit(turn, exit_code(7));
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let ended = world.until_turn(placed.session, turn, "completed").await;
    assert_eq!(
        (&ended["exit_code"], &ended["output_bytes"]),
        (&json!(7), &json!(6))
    );
    placed.sandbox.finally_acknowledged(turn).await;
}

/// A Turn with stored output, on a link that was cut.
async fn cut_while_running(world: &World) -> (Placed, TurnId) {
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    placed.sandbox.write(turn, Stdout, b"stored");
    placed.sandbox.acknowledged(turn, 6).await;
    world.until_dispatch(turn, Dispatch::Confirmed).await;
    connection.cut().await;
    (placed, turn)
}

// inv: INV-S2, INV-S3
#[tokio::test]
async fn a_confirmed_turn_that_its_runtime_does_not_know_is_interrupted_and_the_next_one_runs() {
    let world = World::start().await;
    let (placed, turn) = cut_while_running(&world).await;
    let next = world.submit(placed.session, "next").await;
    placed.sandbox.lose_records();
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let ended = world.until_turn(placed.session, turn, "interrupted").await;
    assert_eq!(ended["output_bytes"], 6);
    assert_eq!(placed.sandbox.started(1).await, next);
    placed.sandbox.exit(next, exit_code(0));
    world.until_turn(placed.session, next, "completed").await;
    assert_eq!(placed.sandbox.starts(), [turn, next]);
}

#[tokio::test]
async fn a_restarted_runtime_interrupts_its_turns_after_their_remaining_output() {
    let world = World::start().await;
    let (placed, turn) = cut_while_running(&world).await;
    placed.sandbox.write(turn, Stdout, b" and more");
    placed.sandbox.restart();
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let ended = world.until_turn(placed.session, turn, "interrupted").await;
    assert_eq!(
        (&ended["reason"], &ended["output_bytes"]),
        (&json!("runtime_restarted"), &json!(15))
    );
    placed.sandbox.finally_acknowledged(turn).await;
}

// inv: INV-S4
#[tokio::test]
async fn a_log_shorter_than_the_stored_bytes_keeps_them_and_interrupts_the_turn() {
    let world = World::start().await;
    let (placed, turn) = cut_while_running(&world).await;
    placed.sandbox.shorten(turn, 3);
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_turn(placed.session, turn, "interrupted").await;
    assert_eq!(whole(&world.core, placed.session, turn).await.0.len(), 6);
    // Canceled, because it runs; forgotten once it ended.
    placed.sandbox.canceled(turn).await;
    placed.sandbox.exit(turn, crate::sandbox::canceled());
    placed.sandbox.finally_acknowledged(turn).await;
}

#[tokio::test]
async fn what_a_runtime_still_runs_of_another_time_is_ended_before_the_next_turn() {
    let world = World::start().await;
    let (placed, turn) = cut_while_running(&world).await;
    // Core settled it meanwhile.
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    let mut row = tx.turn(turn).await.unwrap().unwrap();
    row.state = oac_model::TurnState::Interrupted;
    row.ended_at = Some(tx.now());
    assert!(tx.save_turn(&row).await.unwrap());
    tx.commit().await.unwrap();
    let next = world.submit(placed.session, "next").await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.canceled(turn).await;
    assert_eq!(
        placed.sandbox.puts().len(),
        1,
        "nothing is sent beside a running Turn"
    );
    placed.sandbox.exit(turn, crate::sandbox::canceled());
    assert_eq!(placed.sandbox.started(1).await, next);
}

// inv: INV-S8, INV-S18
#[tokio::test]
async fn a_turn_that_was_sent_is_never_sent_to_another_sandbox_and_one_that_was_not_is() {
    never_to_another(World::start().await).await;
}

// inv: INV-S8, INV-S18
#[tokio::test]
async fn pg_a_turn_that_was_sent_is_never_sent_to_another_sandbox_and_one_that_was_not_is() {
    never_to_another(World::start_postgres().await).await;
}

async fn never_to_another(world: World) {
    let (placed, sent) = cut_while_running(&world).await;
    let queued = world.submit(placed.session, "later").await;
    let tx = world.core.core().begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    allocations::begin_cleanup(&tx, placed.allocation, Cause::Discard)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    world.core.core().pokes.allocations.notify_one();
    world.until_turn(placed.session, sent, "interrupted").await;
    let next = world
        .eventually("another sandbox", async || {
            let row = world
                .core
                .core()
                .store
                .single()
                .latest_allocation(placed.session)
                .await
                .unwrap()?;
            (row.id != placed.allocation).then_some(())
        })
        .await;
    let () = next;
    let second = world.sandbox_of(placed.session).await;
    let _connection = second.sandbox.connect(&world.core.url).await;
    assert_eq!(second.sandbox.started(0).await, queued);
    second.sandbox.exit(queued, exit_code(0));
    world.until_turn(placed.session, queued, "completed").await;
    assert_eq!(placed.sandbox.starts(), [sent]);
    assert_eq!(second.sandbox.puts(), [queued]);
    let events = world
        .core
        .core()
        .store
        .single()
        .events_after(placed.session, 0, 100)
        .await
        .unwrap();
    let at = |kind: &str, turn: Option<TurnId>| {
        events.iter().position(|e| {
            e.kind.as_str() == kind && turn.is_none_or(|turn| e.data["turn_id"] == turn.to_string())
        })
    };
    let reset = at("environment.reset", None).expect("the lost files are announced");
    assert!(reset < at("turn.started", Some(queued)).unwrap());
}
