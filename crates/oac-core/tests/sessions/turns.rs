//! Dispatch, order, cancel and settlement.

use oac_link::service::OutputStreamName::{Stderr, Stdout};
use serde_json::{Value, json};

use crate::{
    reader,
    sandbox::{canceled, exit_code},
    world::World,
};

// inv: INV-S1
#[tokio::test]
async fn the_turns_of_a_session_run_one_at_a_time_in_sequence_order() {
    one_at_a_time(World::start().await).await;
}

// inv: INV-S1
#[tokio::test]
async fn pg_the_turns_of_a_session_run_one_at_a_time_in_sequence_order() {
    one_at_a_time(World::start_postgres().await).await;
}

async fn one_at_a_time(world: World) {
    let placed = world.place().await;
    let mut turns = vec![world.submit(placed.session, "one").await];
    let connection = placed.sandbox.connect(&world.core.url).await;
    assert_eq!(placed.sandbox.started(0).await, turns[0]);
    for program in ["two", "three"] {
        turns.push(world.submit(placed.session, program).await);
    }
    for (n, turn) in turns.iter().enumerate() {
        assert_eq!(placed.sandbox.started(n).await, *turn);
        world.until_turn(placed.session, *turn, "running").await;
        let shown = world.session(placed.session).await;
        assert_eq!(shown["turns"], json!({ "queued": 2 - n, "running": 1 }));
        assert_eq!(
            placed.sandbox.puts().len(),
            n + 1,
            "nothing is sent beside a running Turn"
        );
        placed.sandbox.exit(*turn, exit_code(n as i32));
        let ended = world.until_turn(placed.session, *turn, "completed").await;
        assert_eq!(ended["exit_code"], n);
        assert_eq!(ended["allocation_id"], placed.allocation.to_string());
        placed.sandbox.finally_acknowledged(*turn).await;
    }
    assert_eq!(placed.sandbox.starts(), turns);
    let idle = world.session(placed.session).await;
    assert_eq!(idle["state"], "idle");
    connection.close().await;
}

#[tokio::test]
async fn the_runtime_is_asked_to_run_exactly_what_was_submitted() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let path = format!("/v1/sessions/{}/inputs", placed.session);
    let body = json!({
        "args": ["prog", "a b", "ü"], "cwd": "/tmp", "env": { "B": "2", "A": "1" }, "stdin": "aGk=", "timeout_seconds": 7
    });
    world.post(&path, &body).await.expect(202);
    let request = placed.sandbox.request(placed.sandbox.started(0).await);
    assert_eq!(request.args, ["prog", "a b", "ü"]);
    assert_eq!((request.cwd.as_str(), request.timeout_ms), ("/tmp", 7000));
    assert_eq!(
        request.env.into_iter().collect::<Vec<_>>(),
        [("A".into(), "1".into()), ("B".into(), "2".into())]
    );
    assert_eq!(request.stdin.0, b"hi");
    placed.sandbox.exit(placed.sandbox.started(0).await, exit_code(0));

    let turn = world.submit(placed.session, "alone").await;
    placed.sandbox.started(1).await;
    let request = placed.sandbox.request(turn);
    assert_eq!(
        (request.cwd.as_str(), request.timeout_ms),
        ("/workspace", 3_600_000)
    );
    assert!(request.env.is_empty() && request.stdin.0.is_empty());
}

// inv: INV-S4
#[tokio::test]
async fn a_command_runs_and_its_output_and_end_are_read() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let admitted = world.input(placed.session, "echo").await.expect(202);
    assert_eq!(
        admitted["turn"]["state"], "running",
        "a linked and idle sandbox takes it at once"
    );
    let turn = placed.sandbox.started(0).await;
    let mut reader = reader::Reader::open(
        &world.core,
        &format!("/v1/sessions/{}/turns/{turn}/output", placed.session),
        None,
    )
    .await;
    placed.sandbox.write(turn, Stdout, b"out");
    assert_eq!(reader::output(&reader.next().await.unwrap()).len(), 3);
    placed.sandbox.write(turn, Stderr, b"err");
    placed.sandbox.exit(turn, exit_code(3));
    let (bytes, end) = reader.rest(3).await;
    assert_eq!(bytes, b"err".map(|b| ("stderr", b)));
    let end = end.unwrap();
    assert_eq!(
        (&end["state"], &end["exit_code"]),
        (&json!("completed"), &json!(3))
    );
    assert_eq!(
        (&end["output_bytes"], &end["output_truncated"]),
        (&json!(6), &json!(false))
    );
    placed.sandbox.finally_acknowledged(turn).await;
}

// inv: INV-S3
#[tokio::test]
async fn a_waiting_turn_is_canceled_at_once_and_a_terminal_one_never_changes() {
    terminal_stays(World::start().await).await;
}

// inv: INV-S3
#[tokio::test]
async fn pg_a_waiting_turn_is_canceled_at_once_and_a_terminal_one_never_changes() {
    terminal_stays(World::start_postgres().await).await;
}

async fn terminal_stays(world: World) {
    let placed = world.place().await;
    let first = world.submit(placed.session, "one").await;
    let second = world.submit(placed.session, "two").await;
    let third = world.submit(placed.session, "three").await;
    assert_eq!(world.cancel(placed.session, second).await["state"], "canceled");
    let canceled_first = world.cancel(placed.session, first).await;
    assert_eq!(canceled_first["state"], "canceled");
    assert_eq!(
        world.turn(placed.session, third).await["state"],
        "waiting",
        "it is next"
    );
    let _connection = placed.sandbox.connect(&world.core.url).await;
    assert_eq!(placed.sandbox.started(0).await, third);
    placed.sandbox.exit(third, exit_code(0));
    let ended = world.until_turn(placed.session, third, "completed").await;
    assert_eq!(world.cancel(placed.session, third).await, ended);
    assert_eq!(world.cancel(placed.session, first).await, canceled_first);
    world
        .delete(&format!("/v1/sessions/{}", placed.session))
        .await
        .expect(202);
    assert_eq!(world.turn(placed.session, third).await, ended);
    assert_eq!(placed.sandbox.starts(), [third]);
}

#[tokio::test]
async fn a_running_turn_is_canceled_by_its_runtime_and_its_exit_settles_it() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "sleep").await;
    placed.sandbox.started(0).await;
    assert_eq!(world.cancel(placed.session, turn).await["state"], "running");
    let asked = placed.sandbox.canceled(turn).await;
    assert_eq!(asked.grace_ms, 10_000, "from SIGTERM to SIGKILL");
    world.cancel(placed.session, turn).await;
    placed.sandbox.exit(turn, canceled());
    let ended = world.until_turn(placed.session, turn, "canceled").await;
    assert_eq!(ended["signal"], 15);

    // One that finished first stays completed.
    let turn = world.submit(placed.session, "quick").await;
    placed.sandbox.started(1).await;
    world.cancel(placed.session, turn).await;
    placed.sandbox.canceled(turn).await;
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
}

#[tokio::test]
async fn a_cancel_reaches_a_runtime_that_links_again() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "sleep").await;
    placed.sandbox.started(0).await;
    world
        .eventually("a confirmed Turn", async || {
            let row = world
                .core
                .core()
                .store
                .single()
                .turn(turn)
                .await
                .unwrap()
                .unwrap();
            (row.dispatch == oac_store::Dispatch::Confirmed).then_some(())
        })
        .await;
    connection.cut().await;
    world.cancel(placed.session, turn).await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    placed.sandbox.canceled(turn).await;
    placed.sandbox.exit(turn, canceled());
    world.until_turn(placed.session, turn, "canceled").await;
}

#[tokio::test]
async fn a_session_tells_its_events_in_order_and_ends_with_its_archive() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "true").await;
    placed.sandbox.started(0).await;
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    world
        .delete(&format!("/v1/sessions/{}", placed.session))
        .await
        .expect(202);
    let path = format!("/v1/sessions/{}/events", placed.session);
    let mut reader = reader::Reader::open(&world.core, &path, None).await;
    let mut names = Vec::new();
    let mut last = 0;
    while let Some(event) = reader.next().await {
        assert_eq!(event.id, Some(last + 1));
        last += 1;
        assert_eq!(event.data["type"], event.name);
        if event.name != "sandbox.changed" {
            names.push((event.name, event.data["data"]["turn_id"].clone()));
        }
    }
    let turn = json!(turn);
    let expected = [
        ("session.created", Value::Null),
        ("turn.queued", turn.clone()),
        ("turn.started", turn.clone()),
        ("turn.ended", turn),
        ("session.archived", Value::Null),
    ];
    assert_eq!(names, expected.map(|(name, turn)| (name.to_owned(), turn)));
    let resumed = reader::Reader::open(&world.core, &path, Some(last - 1))
        .await
        .next()
        .await
        .unwrap();
    assert_eq!(resumed.id, Some(last));
}
