//! Many: Turns in a row, inputs at once, readers of one output.

use futures_util::{StreamExt as _, future::join_all, stream};
use oac_link::service::OutputStreamName::{Stderr, Stdout};
use oac_model::{Time, TurnId};
use oac_testkit::core::TestCore;
use oac_wire::B64;
use serde_json::{Value, json};

use crate::{
    reader::{Reader, whole},
    sandbox::exit_code,
    world::{Placed, World, id},
};

/// Turns submitted ahead of the one that runs.
const AHEAD: usize = 32;

fn said(n: usize) -> Vec<u8> {
    format!("{n}\n").repeat(n % 7).into_bytes()
}

/// Runs each Turn that starts: it says its number, and ends with it.
async fn run(placed: &Placed, turns: usize) {
    for n in 0..turns {
        let turn = placed.sandbox.started(n).await;
        placed.sandbox.write(turn, Stdout, &said(n));
        placed.sandbox.exit(turn, exit_code((n % 200) as i32));
    }
}

async fn many_quick_turns(core: TestCore, count: usize) {
    let world = World::on(core, 4).await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let submit = async {
        let mut turns: Vec<TurnId> = Vec::new();
        while turns.len() < count {
            if let Some(at) = turns.len().checked_sub(AHEAD) {
                placed.sandbox.started(at).await;
            }
            turns.push(world.submit(placed.session, "quick").await);
        }
        turns
    };
    let (turns, ()) = tokio::join!(submit, run(&placed, count));
    world
        .until_turn(placed.session, turns[count - 1], "completed")
        .await;
    assert!(placed.sandbox.starts() == turns, "each once, in order");
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/sessions/{}/turns?limit=100{cursor}", placed.session);
        let page = world.get(&path).await.expect(200);
        listed.extend(page["data"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(listed.len(), count);
    let mut ended = None;
    for (n, turn) in listed.iter().enumerate() {
        assert_eq!(id::<TurnId>(&turn["id"]), turns[n]);
        assert_eq!(turn["sequence"], n + 1);
        assert_eq!(
            (&turn["state"], &turn["exit_code"], &turn["output_bytes"]),
            (&json!("completed"), &json!(n % 200), &json!(said(n).len()))
        );
        let (start, end): (Time, Time) = (id(&turn["started_at"]), id(&turn["ended_at"]));
        assert!(ended <= Some(start) && start <= end, "one after the other");
        ended = Some(end);
    }
    // Every tenth whole, many at once.
    let outputs = stream::iter((0..count).step_by(10))
        .map(|n| {
            let (world, placed, turn) = (&world, &placed, turns[n]);
            async move { (n, whole(&world.core, placed.session, turn).await.0) }
        })
        .buffer_unordered(8);
    outputs
        .for_each(async |(n, output)| {
            let expected = said(n).into_iter().map(|b| ("stdout", b));
            assert!(output.into_iter().eq(expected), "the output of {n}");
        })
        .await;
}

// inv: INV-S1, INV-S2, INV-S4
#[tokio::test]
async fn a_thousand_quick_turns_run_once_in_order_with_their_own_output() {
    many_quick_turns(TestCore::start().await, 1000).await;
}

// inv: INV-S1, INV-S2, INV-S4
#[tokio::test]
async fn pg_three_hundred_quick_turns_run_once_in_order_with_their_own_output() {
    many_quick_turns(TestCore::start_postgres().await, 300).await;
}

async fn a_hundred_at_once(world: World) {
    let placed = world.place().await;
    let path = format!("/v1/sessions/{}", placed.session);
    let answers = join_all((0..100).map(|_| world.input(placed.session, "work"))).await;
    let (admitted, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.status == 202);
    assert_eq!(admitted.len(), 64);
    assert!(
        refused
            .iter()
            .all(|a| (a.status.as_u16(), a.code()) == (429, "turn_queue_full"))
    );
    let turns = world.get(&format!("{path}/turns")).await.expect(200);
    let turns = turns["data"].as_array().unwrap();
    assert!(turns.iter().map(|t| t["sequence"].as_i64().unwrap()).eq(1..=64));
    let first = |state: &str| turns.iter().filter(|t| t["state"] == state).count();
    assert_eq!((first("waiting"), first("queued")), (1, 63));
    let shown = world.session(placed.session).await;
    assert_eq!(shown["turns"], json!({ "queued": 64, "running": 0 }));
    // One that runs counts too; one that ended makes room for one, whoever asks.
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let running = placed.sandbox.started(0).await;
    world.until_turn(placed.session, running, "running").await;
    assert_eq!(world.input(placed.session, "work").await.status, 429);
    placed.sandbox.exit(running, exit_code(0));
    placed.sandbox.started(1).await;
    let answers = join_all((0..10).map(|_| world.input(placed.session, "work"))).await;
    assert_eq!(answers.iter().filter(|a| a.status == 202).count(), 1);
}

// inv: INV-S9
#[tokio::test]
async fn of_a_hundred_inputs_at_once_exactly_sixty_four_are_admitted() {
    a_hundred_at_once(World::start().await).await;
}

// inv: INV-S9
#[tokio::test]
async fn pg_of_a_hundred_inputs_at_once_exactly_sixty_four_are_admitted() {
    a_hundred_at_once(World::start_postgres().await).await;
}

/// Readers that do not read hold no transaction and no connection of the database, of which there are fewer than readers.
async fn many_readers(world: World) {
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    let mut stuck = Vec::new();
    for _ in 0..31 {
        stuck.push(Reader::open(&world.core, &path, None).await);
    }
    let mut prompt = Reader::open(&world.core, &path, None).await;
    assert_eq!(world.get(&path).await.status, 429);
    // More than the sockets of a reader hold, so that all but one are stuck in the middle of it.
    let mut all = Vec::new();
    for n in 0..12_usize {
        let bytes: Vec<u8> = (0..200_000).map(|i| (i * 7 + n) as u8).collect();
        let stream = if n % 3 == 1 { Stderr } else { Stdout };
        placed.sandbox.write(turn, stream, &bytes);
        all.extend(bytes);
    }
    placed.sandbox.exit(turn, exit_code(0));
    // One that reads waits for none.
    receives(&mut prompt, &all, usize::MAX).await;
    // And the Session goes on as if there were none.
    let next = world.submit(placed.session, "next").await;
    placed.sandbox.started(1).await;
    placed.sandbox.exit(next, exit_code(0));
    world.until_turn(placed.session, next, "completed").await;
    let mut longest = stuck.pop().unwrap();
    let all = &all;
    let readers = stuck.iter_mut().enumerate();
    join_all(readers.map(|(n, reader)| receives(reader, all, n + 1))).await;
    receives(&mut longest, all, usize::MAX).await;
}

/// All of it and one end, with a pause after each so many events.
async fn receives(reader: &mut Reader, all: &[u8], pause: usize) {
    let (mut at, mut events) = (0, 0);
    let end: Value = loop {
        let event = reader.next().await.expect("an end comes before the stream ends");
        if event.name == "end" {
            break event.data;
        }
        assert_eq!(event.data["offset"], at);
        let bytes = B64::decode(event.data["data"].as_str().unwrap().as_bytes())
            .unwrap()
            .0;
        assert!(all[at..].starts_with(&bytes), "the bytes from {at} on");
        at += bytes.len();
        events += 1;
        if events % pause == 0 {
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
        }
    };
    assert_eq!((at, &end["output_bytes"]), (all.len(), &json!(all.len())));
    assert!(reader.next().await.is_none(), "one end, and nothing behind it");
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn thirty_two_readers_of_unlike_speeds_each_receive_every_byte() {
    many_readers(World::start().await).await;
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn pg_thirty_two_readers_of_unlike_speeds_each_receive_every_byte() {
    many_readers(World::start_postgres().await).await;
}
