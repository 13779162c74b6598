//! Reading output: offsets, resuming, bounds.

use oac_link::service::OutputStreamName::{Stderr, Stdout};
use serde_json::json;

use crate::{
    reader::{Event, Reader, output, whole},
    sandbox::exit_code,
    world::World,
};

/// Two streams in turns, in pieces of unlike sizes, some larger than one event.
fn pieces() -> Vec<(oac_link::service::OutputStreamName, Vec<u8>)> {
    [1, 40_000, 3, 1, 70_000, 2_000, 1, 33_000]
        .into_iter()
        .enumerate()
        .map(|(n, length)| {
            let bytes = (0..length).map(|i: usize| (i * 7 + n) as u8).collect();
            (if n % 3 == 1 { Stderr } else { Stdout }, bytes)
        })
        .collect()
}

fn flat() -> Vec<(&'static str, u8)> {
    pieces()
        .into_iter()
        .flat_map(|(stream, bytes)| bytes.into_iter().map(move |b| (stream.as_str(), b)))
        .collect()
}

// inv: INV-S4, INV-S7
#[tokio::test]
async fn a_reader_that_resumes_anywhere_receives_exactly_the_bytes_from_there_on() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    for (stream, bytes) in pieces() {
        placed.sandbox.write(turn, stream, &bytes);
    }
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    let all = flat();
    let (bytes, end) = whole(&world.core, placed.session, turn).await;
    assert!(bytes == all);
    assert_eq!(end["output_bytes"], all.len());

    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    let length = all.len();
    for offset in [1, 2, 39_999, 40_001, 40_004, 40_005, 100_000, length - 1, length] {
        let mut reader = Reader::open(&world.core, &format!("{path}?offset={offset}"), None).await;
        let (bytes, end) = reader.rest(offset as u64).await;
        assert!(bytes == all[offset..], "from {offset}");
        assert!(end.is_some());
        // The header prevails over the query.
        let mut reader = Reader::open(&world.core, &format!("{path}?offset=0"), Some(offset as u64)).await;
        assert!(
            reader.rest(offset as u64).await.0 == all[offset..],
            "after {offset}"
        );
    }
    let refused = world.get(&format!("{path}?offset={}", length + 1)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (400, "invalid_request_error")
    );
    assert_eq!(refused.body["error"]["param"], "offset");
    for bad in ["?offset=-1", "?offset=x", "?offset=", "?surplus=1"] {
        assert_eq!(world.get(&format!("{path}{bad}")).await.status, 400, "{bad}");
    }
}

// inv: INV-S7
#[tokio::test]
async fn an_offset_beyond_the_output_so_far_waits_for_it() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let path = format!("/v1/sessions/{}/turns/{turn}/output?offset=5", placed.session);
    let mut reader = Reader::open(&world.core, &path, None).await;
    placed.sandbox.write(turn, Stdout, b"0123");
    placed.sandbox.acknowledged(turn, 4).await;
    placed.sandbox.write(turn, Stdout, b"4567");
    let Event { id, data, .. } = reader.next().await.unwrap();
    assert_eq!(
        (id, &data["offset"], &data["data"]),
        (Some(8), &json!(5), &json!("NTY3"))
    );
    placed.sandbox.exit(turn, exit_code(0));
    assert!(reader.rest(8).await.1.is_some());
}

// On threads of its own: Core's lease is renewed however long a busy host takes for the bytes.
// inv: INV-S5
#[tokio::test(flavor = "multi_thread")]
async fn output_beyond_16_mib_is_counted_acknowledged_and_dropped() {
    const BOUND: usize = 16 << 20;
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let chunk: Vec<u8> = (0..1_000_003).map(|i| (i % 253) as u8).collect();
    for n in 0..18 {
        placed
            .sandbox
            .write(turn, if n % 2 == 0 { Stdout } else { Stderr }, &chunk);
    }
    placed.sandbox.exit(turn, exit_code(0));
    let total = 18 * chunk.len();
    world.until_turn(placed.session, turn, "completed").await;
    placed.sandbox.finally_acknowledged(turn).await;
    let last = placed.sandbox.acks(turn).pop().unwrap();
    assert_eq!((last.offset, last.is_final), (total as u64, true));
    let (bytes, end) = whole(&world.core, placed.session, turn).await;
    assert_eq!(bytes.len(), BOUND);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(n, (_, b))| *b == chunk[n % chunk.len()])
    );
    assert_eq!(
        (&end["output_bytes"], &end["output_truncated"]),
        (&json!(total), &json!(true))
    );
}

// inv: INV-S17
#[tokio::test]
async fn reading_history_output_and_events_is_no_activity_and_starts_no_sandbox() {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "true").await;
    placed.sandbox.started(0).await;
    placed.sandbox.exit(turn, exit_code(0));
    world.until_turn(placed.session, turn, "completed").await;
    connection.close().await;
    let before = world.session(placed.session).await;
    let rows = || async { world.allocation(placed.allocation).await };
    let row = rows().await;
    whole(&world.core, placed.session, turn).await;
    world.turn(placed.session, turn).await;
    world
        .get(&format!("/v1/sessions/{}/turns", placed.session))
        .await
        .expect(200);
    let events = format!("/v1/sessions/{}/events", placed.session);
    assert!(
        Reader::open(&world.core, &events, None)
            .await
            .next()
            .await
            .is_some()
    );
    let after = world.session(placed.session).await;
    assert_eq!(after["last_activity_at"], before["last_activity_at"]);
    assert_eq!(after["placement"], before["placement"]);
    let now = rows().await;
    assert_eq!((now.state, now.compute_phase), (row.state, row.compute_phase));

    // Without a sandbox there is none afterwards either.
    world.lose_sandbox(&placed).await;
    whole(&world.core, placed.session, turn).await;
    world
        .get(&format!("/v1/sessions/{}/turns", placed.session))
        .await
        .expect(200);
    let mut events = Reader::open(&world.core, &events, None).await;
    assert!(events.next().await.is_some());
    assert_eq!(world.session(placed.session).await["placement"], json!(null));
}

#[tokio::test]
async fn a_session_has_at_most_thirty_two_open_streams() {
    let world = World::start().await;
    let placed = world.place().await;
    let turn = world.submit(placed.session, "true").await;
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    let mut open = Vec::new();
    for _ in 0..32 {
        open.push(Reader::open(&world.core, &path, None).await);
    }
    let refused = world.get(&path).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (429, "invalid_request")
    );
    assert!(refused.headers.contains_key("retry-after"));
    drop(open.pop());
    world
        .eventually("room for a stream", async || {
            let response = Reader::request(&world.core, &world.core.project_key, &path, None).await;
            (response.status() == 200).then_some(())
        })
        .await;
}

// inv: INV-S4
#[tokio::test]
async fn a_reader_sees_bytes_while_the_process_still_runs() {
    let world = World::start().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let turn = world.submit(placed.session, "write").await;
    placed.sandbox.started(0).await;
    let path = format!("/v1/sessions/{}/turns/{turn}/output", placed.session);
    let mut reader = Reader::open(&world.core, &path, None).await;
    for n in 0..5_u8 {
        placed.sandbox.write(turn, Stdout, &[n]);
        assert_eq!(output(&reader.next().await.unwrap()), [("stdout", n)]);
    }
}
