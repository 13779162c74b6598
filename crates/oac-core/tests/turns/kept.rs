//! What is kept, and for how long: output, events, answers to requests with a key; and what tells that files are gone.

use oac_core::allocations::{self, Cause};
use oac_link::service::OutputStreamName::Stdout;
use oac_model::{Secret, TurnId};
use oac_store::EventKind;
use oac_testkit::core::{Answer, CoreOptions, TestCore, send};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    reader::Reader,
    sandbox::exit_code,
    world::{World, id},
};

const DAY: i64 = 24 * 3600 * 1000;

/// The same installation so much later.
async fn later(world: &mut World, millis: i64) -> TestCore {
    world.core.stop().await;
    let core = world
        .core
        .beside(CoreOptions {
            clock_offset_millis: millis,
            ..CoreOptions::default()
        })
        .await;
    core.core().owner.owned().await;
    core
}

async fn keyed(core: &TestCore, project_key: &Secret, path: &str, key: &str, body: &Value) -> Answer {
    let request = core.request(Method::POST, path);
    send(
        request
            .bearer_auth(project_key.expose())
            .header("idempotency-key", key)
            .json(body),
    )
    .await
}

#[tokio::test]
async fn output_is_read_for_seven_days_and_then_its_end_alone() {
    let mut world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    placed.sandbox.write(turn, Stdout, b"kept for a week");
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    connection.close().await;
    let key = world.core.project_key.clone();
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    for (age, kept) in [(7 * DAY - 60_000, 15), (7 * DAY + 1, 0)] {
        let mut core = later(&mut world, age).await;
        core.project_key = key.clone();
        for offset in [0, 4, 15] {
            let path = format!("{path}?offset={offset}");
            let (bytes, end) = Reader::open(&core, &path, None).await.rest(offset).await;
            assert_eq!(bytes.len() as u64, (kept as u64).saturating_sub(offset), "{age}");
            let end = end.expect("an end in any case");
            assert_eq!(
                (&end["state"], &end["output_bytes"]),
                (&json!("completed"), &json!(15))
            );
        }
        let beyond = format!("{path}?offset=16");
        assert_eq!(Reader::request(&core, &key, &beyond, None).await.status(), 400);
        core.stop().await;
    }
}

/// Removed in part: whoever asks for a byte that is gone gets no later one in its place.
// inv: INV-S7
#[tokio::test]
async fn output_that_is_removed_while_it_is_read_ends_the_stream_and_leaves_no_gap() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    // More rows than are removed at once.
    let bytes: Vec<u8> = (0..16_800_000).map(|i| (i % 251) as u8).collect();
    placed.sandbox.write(turn, Stdout, &bytes);
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    let tx = world.core.core().begin().await.unwrap();
    let long_ago = tx.now().plus_millis(-DAY);
    assert!(tx.prune_output(long_ago, tx.now().plus_millis(1)).await.unwrap() > 0);
    tx.commit().await.unwrap();
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    for offset in (0..16_000_000).step_by(1_600_000) {
        let path = format!("{path}?offset={offset}");
        let (read, end) = Reader::open(&world.core, &path, None).await.rest(offset).await;
        let from = offset as usize;
        assert!(
            read.iter()
                .map(|(_, b)| *b)
                .eq(bytes[from..from + read.len()].iter().copied())
        );
        assert!(end.is_some());
    }
}

async fn answers_for_a_day(mut world: World) {
    let placed = world.place().await;
    let key = world.core.project_key.clone();
    let inputs = format!("/v1/sessions/{}/inputs", placed.session);
    let body = json!({ "args": ["work"] });
    let first = keyed(&world.core, &key, &inputs, "k", &body).await.expect(202);
    // Another Project's use of the key is another matter; a refusal holds no key.
    let (_, other) = world.core.new_project("other").await;
    let session = keyed(&world.core, &other, "/v1/sessions", "k", &json!({}))
        .await
        .expect(201);
    let foreign = format!("/v1/sessions/{}/inputs", session["id"].as_str().unwrap());
    let refused = keyed(&world.core, &key, &foreign, "fresh", &body).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (404, "not_found_error")
    );
    let another = json!({ "args": ["another"] });
    keyed(&world.core, &key, &inputs, "fresh", &another)
        .await
        .expect(202);
    let refused = keyed(&world.core, &key, &inputs, "bad", &json!({ "args": [] })).await;
    assert_eq!(refused.status, 400);
    keyed(&world.core, &key, &inputs, "bad", &body).await.expect(202);

    let mut same_day = later(&mut world, DAY - 60_000).await;
    assert_eq!(
        keyed(&same_day, &key, &inputs, "k", &body).await.expect(202),
        first
    );
    let conflict = keyed(&same_day, &key, &inputs, "k", &another).await;
    assert_eq!(conflict.code(), "idempotency_conflict");
    same_day.stop().await;

    let mut next_day = later(&mut world, DAY + 60_000).await;
    let again = keyed(&next_day, &key, &inputs, "k", &another).await.expect(202);
    assert_ne!(again["turn"]["id"], first["turn"]["id"]);
    assert_eq!(again["input"]["args"], json!(["another"]));
    assert_eq!(
        keyed(&next_day, &key, &inputs, "k", &another).await.expect(202),
        again
    );
    next_day.stop().await;
}

#[tokio::test]
async fn a_key_answers_for_24_hours_over_restarts_and_then_names_another_request() {
    answers_for_a_day(World::start().await).await;
}

#[tokio::test]
async fn pg_a_key_answers_for_24_hours_over_restarts_and_then_names_another_request() {
    answers_for_a_day(World::start_postgres().await).await;
}

#[tokio::test]
async fn the_latest_ten_thousand_events_are_kept_and_read_in_order() {
    let world = World::start().await;
    let placed = world.place().await;
    let before = world
        .core
        .core()
        .store
        .single()
        .session(placed.session)
        .await
        .unwrap()
        .unwrap()
        .last_event;
    let tx = world.core.core().begin().await.unwrap();
    for n in 0..10_020_i64 {
        let turn = json!({ "turn_id": TurnId::random(), "n": n });
        tx.append_event(placed.session, EventKind::TurnQueued, &turn)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let last = before + 10_020;
    let path = format!("/v1/sessions/{}/events", placed.session);
    let mut reader = Reader::open(&world.core, &format!("{path}?after=1"), None).await;
    for sequence in last - 10_000 + 1..=last {
        let event = reader.next().await.unwrap();
        assert_eq!(event.id, Some(sequence as u64));
    }
    let resumed = Reader::open(&world.core, &path, Some(last as u64 - 1))
        .await
        .next()
        .await;
    assert_eq!(resumed.unwrap().id, Some(last as u64));
}

/// A sandbox that once ran is given up, and the next input gets another.
async fn events_after(cause: Cause) -> Vec<(String, Value)> {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let core = world.core.core();
    let tx = core.begin().await.unwrap();
    tx.lock_session(placed.session).await.unwrap();
    allocations::begin_cleanup(&tx, placed.allocation, cause)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    core.pokes.allocations.notify_one();
    connection.ended().await;
    let turn = world.submit(placed.session, "work").await;
    world
        .eventually("another sandbox", async || {
            let row = core
                .store
                .single()
                .latest_allocation(placed.session)
                .await
                .unwrap()?;
            (row.id != placed.allocation).then_some(())
        })
        .await;
    let second = world.sandbox_of(placed.session).await;
    let _connection = second.sandbox.connect(&world.core.url).await;
    assert_eq!(second.sandbox.started(0).await, turn);
    let events = core
        .store
        .single()
        .events_after(placed.session, 0, 100)
        .await
        .unwrap();
    let mut told: Vec<_> = events
        .iter()
        .map(|e| (e.kind.as_str().to_owned(), e.data.clone()))
        .collect();
    told.retain(|(kind, _)| kind == "environment.reset" || kind == "turn.started");
    assert_eq!(id::<TurnId>(&told.last().unwrap().1["turn_id"]), turn);
    told
}

// inv: INV-S18
#[tokio::test]
async fn lost_files_are_announced_once_with_their_reason_before_the_first_turn() {
    for (cause, reason) in [
        (Cause::ComputeLost, "compute_lost"),
        (Cause::Discard, "discarded"),
        (Cause::Drain, "terminated"),
    ] {
        let told = events_after(cause).await;
        let kinds: Vec<_> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["environment.reset", "turn.started"], "{reason}");
        assert_eq!(told[0].1, json!({ "reason": reason }));
    }
}
