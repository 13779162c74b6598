//! Requests that are made up from Core's own description, right ones and wrong ones, to every route of a Core with a
//! node and a sandbox: every status is one that the description names for the route, every answer is of the described
//! type and shape, and what does not fit the description is never done. A failure names its seed; `OAC_SEED` runs one
//! again.

mod requests;
mod schema;

use std::collections::BTreeMap;

use oac_testkit::core::TestCore;
use reqwest::{Method, header::CONTENT_TYPE};
use serde_json::Value;

use self::{
    requests::{Asked, Known, Operation},
    schema::Schemas,
};
use crate::world::World;

const SEEDS: u64 = 5;
/// What is not Core's doing: the sandbox serves no files and no ports, its node is full, and a made-up reset stands.
const OF_OTHERS: [&str; 4] = [
    "sandbox_answer_invalid",
    "sandbox_port_failed",
    "runtime_node_unavailable",
    "sandbox_reset_in_progress",
];
/// Requests to each operation under one seed.
const ROUNDS: usize = 30;

async fn under(seed: u64, core: TestCore) {
    let world = World::on(core, 4).await;
    let placed = world.place().await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let document = world
        .core
        .call(Method::GET, "/openapi.json", None, None)
        .await
        .expect(200);
    let schemas = Schemas(&document);
    let operations = Operation::all(&document);
    let mut random = oac_peer::Random::new(seed);
    let mut known = Known::of(&world, &placed).await;
    // All that is wrong, each with its first occasion.
    let mut complaints = BTreeMap::new();
    for round in 0..ROUNDS {
        for operation in &operations {
            let asked = Asked::make_up(operation, &schemas, &known, &mut random);
            let answer = asked.send(&world.core).await;
            let (status, media, body) = read(answer).await;
            if let Some(wrong) = wrong(operation, &schemas, asked.fits, (status, &media, &body)) {
                let said = format!("OAC_SEED={seed}, round {round}: {asked:?}\n{status} {media} {body}");
                complaints
                    .entry(format!("{}: {wrong}", operation.name()))
                    .or_insert(said);
            }
            known.learn(operation, &asked, status, &body);
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// A reset with something left to list, which is rarely made up.
async fn resets(core: TestCore) {
    let world = World::on(core, 4).await;
    let _placed = world.place().await;
    let core = &world.core;
    let document = core
        .call(Method::GET, "/openapi.json", None, None)
        .await
        .expect(200);
    let (schemas, operations) = (&Schemas(&document), Operation::all(&document));
    let path = "/core/v1/sandbox/deployment";
    let now = core.operator(Method::GET, path, None).await.expect(200);
    let body = serde_json::json!({ "expected_generation": now["generation"], "clear": "force" });
    let route = format!("{path}/reset");
    let operation = operations
        .iter()
        .find(|one| one.method == Method::POST && one.path == route);
    let shown = core.operator(Method::POST, &route, Some(&body)).await.expect(200);
    assert!(shown["reset"]["remaining"].is_object());
    let answer = (200, "application/json", &shown);
    assert_eq!(wrong(operation.unwrap(), schemas, true, answer), None);
}

/// What the description does not say of an answer.
fn wrong(
    operation: &Operation<'_>,
    schemas: &Schemas<'_>,
    fits: bool,
    (status, media, body): (u16, &str, &Value),
) -> Option<String> {
    if !fits && status < 400 {
        return Some(format!("{status} to what does not fit the description"));
    }
    // However it is described: nothing is wrong with this Core. A HEAD's code is in no body; its GET is asked too.
    let code = body["error"]["code"].as_str().unwrap_or_default();
    if status >= 500 && operation.method != Method::HEAD && !OF_OTHERS.contains(&code) {
        return Some(format!("{status} {code}"));
    }
    let Some(described) = operation.response(status) else {
        return Some(format!("{status} is not described"));
    };
    // The head alone.
    if operation.method == Method::HEAD {
        return None;
    }
    let Some(content) = described.as_object().filter(|content| !content.is_empty()) else {
        return (!body.is_null()).then(|| format!("{status} with a body that is not described"));
    };
    let Some(content) = content.get(media) else {
        return Some(format!("{status} of type {media:?} is not described"));
    };
    if media == "text/event-stream" {
        let events = body.as_array().into_iter().flatten();
        let mut misfits = events.filter_map(|event| schemas.misfit(&content["schema"], event));
        return misfits.next().map(|misfit| format!("an event that{misfit}"));
    }
    if media != "application/json" {
        return None;
    }
    let misfit = schemas.misfit(&content["schema"], body)?;
    Some(format!("{status} with a body that{misfit}"))
}

/// Status, media type, and the document if there is one; the events of a stream that there are at once.
async fn read(mut answer: reqwest::Response) -> (u16, String, Value) {
    let status = answer.status().as_u16();
    let media = answer.headers().get(CONTENT_TYPE);
    let media = media.map_or("", |media| media.to_str().unwrap()).to_owned();
    if media == "text/event-stream" {
        return (status, media, events(&mut answer).await);
    }
    let bytes = answer.bytes().await.unwrap();
    let body = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    };
    (status, media, body)
}

/// The events before a stream's first comment, which says that there is nothing more now, or before its end.
async fn events(answer: &mut reqwest::Response) -> Value {
    let mut bytes = Vec::new();
    let quiet = |bytes: &[u8]| bytes.starts_with(b":\n") || bytes.windows(4).any(|four| four == b"\n\n:\n");
    while !quiet(&bytes) {
        match answer.chunk().await.unwrap() {
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => break,
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    let events = text
        .split("\n\n")
        .filter(|event| !event.is_empty() && !event.starts_with(':'));
    let event = |event: &str| -> Value {
        let fields = event.lines().map(|line| line.split_once(": ").unwrap());
        fields
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect()
    };
    events.map(event).collect()
}

fn seeds() -> std::ops::Range<u64> {
    let named = std::env::var("OAC_SEED").ok().and_then(|text| text.parse().ok());
    named.map_or(1..SEEDS + 1, |seed: u64| seed..seed + 1)
}

#[tokio::test]
async fn every_answer_to_made_up_requests_is_one_that_the_description_names() {
    for seed in seeds() {
        under(seed, TestCore::start().await).await;
    }
}

#[tokio::test]
async fn pg_every_answer_to_made_up_requests_is_one_that_the_description_names() {
    for seed in seeds() {
        under(seed, TestCore::start_postgres().await).await;
    }
}

#[tokio::test]
async fn a_reset_is_shown_as_the_description_says() {
    resets(TestCore::start().await).await;
}

#[tokio::test]
async fn pg_a_reset_is_shown_as_the_description_says() {
    resets(TestCore::start_postgres().await).await;
}
