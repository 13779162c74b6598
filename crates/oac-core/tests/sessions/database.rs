//! What an application sees of Core's database connections: nothing, or an answer that says to ask again.

use futures_util::future::{join, join_all};
use oac_link::service::OutputStreamName::Stdout;
use oac_testkit::core::{Answer, send};
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::{
    reader::whole,
    sandbox::exit_code,
    world::{World, id},
};

/// As an administrator would; they end when they notice.
const END_ALL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Answered, or to be asked again: never a failure that says nothing.
fn answered_or_later(answer: &Answer) -> bool {
    let status = answer.status.as_u16();
    assert!(matches!(status, 200 | 503), "{status}: {}", answer.body);
    if status == 503 {
        assert!(answer.headers.contains_key("retry-after"), "{}", answer.body);
    }
    status == 200
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_while_the_databases_connections_end_reads_are_answered_or_to_be_repeated_and_inputs_are_stored_once()
 {
    let world = World::start_postgres().await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    let running = world.submit(placed.session, "long").await;
    placed.sandbox.started(0).await;
    let session = format!("/v1/sessions/{}", placed.session);
    let paths = [
        session.clone(),
        "/v1/sessions".to_owned(),
        format!("{session}/turns"),
        format!("{session}/turns/{running}"),
    ];
    let ends = async {
        for n in 0..40_u8 {
            world.core.execute(END_ALL).await;
            placed.sandbox.write(running, Stdout, &[n; 1000]);
        }
    };
    let reads = join_all(paths.iter().map(async |path| {
        for _ in 0..60 {
            answered_or_later(&world.get(path).await);
        }
    }));
    let inputs = async {
        for key in 0..20 {
            loop {
                let request = world
                    .core
                    .request(Method::POST, &format!("{session}/inputs"))
                    .bearer_auth(world.core.project_key.expose())
                    .header("idempotency-key", format!("input {key}"))
                    .json(&json!({ "args": ["true"] }));
                let answer = send(request).await;
                match answer.status.as_u16() {
                    202 => break,
                    503 => assert!(answer.headers.contains_key("retry-after"), "{}", answer.body),
                    // The answer to the commit was lost: the key tells whether it was stored.
                    500 => {}
                    other => panic!("{other}: {}", answer.body),
                }
            }
        }
    };
    join(join(ends, inputs), reads).await;
    for path in &paths {
        world.get(path).await.expect(200);
    }
    let turns = world.get(&format!("{session}/turns")).await.expect(200);
    assert_eq!(turns["data"].as_array().unwrap().len(), 21);
    placed.sandbox.exit(running, exit_code(0));
    world.until_turn(placed.session, running, "completed").await;
    let (bytes, _) = whole(&world.core, placed.session, running).await;
    assert!(bytes == placed.sandbox.written(running));
    for n in 1..=20 {
        let turn = placed.sandbox.started(n).await;
        placed.sandbox.exit(turn, exit_code(0));
        world.until_turn(placed.session, turn, "completed").await;
    }
    assert_eq!(placed.sandbox.starts().len(), 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pg_applications_that_hang_up_disturb_no_other_request() {
    hang_up(World::start_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_that_hang_up_disturb_no_other_request() {
    hang_up(World::start().await).await;
}

async fn hang_up(world: World) {
    let created = world.post("/v1/sessions", &json!({})).await.expect(201);
    let session: oac_model::SessionId = id(&created["id"]);
    let path = format!("/v1/sessions/{session}");
    let address = world.core.url.strip_prefix("http://").unwrap();
    let key = world.core.project_key.expose();
    for n in 0..150 {
        let mut hasty = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: core\r\nauthorization: Bearer {key}\r\n\r\n");
        hasty.write_all(request.as_bytes()).await.unwrap();
        // Core is at another point of its work each time.
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        drop(hasty);
        world.get(&path).await.expect(200);
    }
}
