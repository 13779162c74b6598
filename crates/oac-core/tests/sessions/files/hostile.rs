//! Sandboxes that lie about files, or answer nothing: each harms its own request alone.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Response, StatusCode};
use oac_testkit::core::send;
use reqwest::Method;
use serde_json::{Value, json};

use super::request;
use crate::{
    sandbox::{Body, Connection},
    world::{Placed, World},
};

type Head = Vec<(&'static str, String)>;

async fn start() -> (World, Placed, Connection) {
    let world = World::start().await;
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    (world, placed, connection)
}

fn answer(status: u16, head: &Head, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in head {
        answer = answer.header(*name, value);
    }
    answer.body(Full::new(body.into()).boxed_unsync()).unwrap()
}

/// Every file request is answered so, once its body was read.
fn always(placed: &Placed, status: u16, head: Head, body: impl Into<Bytes>) {
    let body = body.into();
    placed.sandbox.answer_files(Arc::new(move |request, _| {
        let answer = answer(status, &head, body.clone());
        Box::pin(async move {
            let _ = request.into_body().collect().await;
            answer
        })
    }));
}

fn head(more: &[(&'static str, &str)]) -> Head {
    let mut head = vec![
        ("oac-file-mode", "420".to_owned()),
        ("oac-file-modified-ms", "1".to_owned()),
        ("etag", "\"1-a\"".to_owned()),
    ];
    for (name, value) in more {
        head.retain(|(known, _)| known != name);
        head.push((name, (*value).to_owned()));
    }
    head
}

#[tokio::test]
async fn a_download_that_does_not_fit_what_was_asked_is_refused() {
    let (world, placed, _connection) = start().await;
    let get = |range: Option<&str>| {
        let mut get = request(&world, placed.session, Method::GET, "x");
        if let Some(range) = range {
            get = get.header("Range", range);
        }
        get
    };
    for (status, head) in [
        (200, vec![]),
        (200, head(&[("oac-file-mode", "99999")])),
        (200, head(&[("oac-file-mode", "rw")])),
        (200, head(&[("etag", "\"a\\\"b\"")])),
        (200, head(&[("etag", "\"\"")])),
        (201, head(&[])),
        (204, head(&[])),
        (206, head(&[("content-range", "bytes 0-2/3")])),
        (302, head(&[("location", "http://elsewhere/")])),
        (500, head(&[])),
    ] {
        always(&placed, status, head, "abc");
        let refused = send(get(None)).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (502, "sandbox_answer_invalid"),
            "{status}"
        );
    }
    for (status, more) in [
        (200, None),
        (206, None),
        (206, Some("bytes 0-2/3")),
        (206, Some("bytes 1-3/3")),
        (206, Some("bytes 1-3/9")),
        (206, Some("bytes 1-4/5")),
        (206, Some("bytes 1-0/5")),
        (206, Some("bytes 1-18446744073709551615/18446744073709551615")),
        (206, Some("bytes */5")),
        (206, Some("nonsense")),
        (416, None),
        (416, Some("bytes */7")),
    ] {
        let more: Vec<_> = more.iter().map(|range| ("content-range", *range)).collect();
        always(&placed, status, head(&more), "abc");
        let refused = send(get(Some("bytes=1-5"))).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (502, "sandbox_answer_invalid"),
            "{status} {more:?}"
        );
    }
    // Nothing of it reaches the caller's headers, and an honest answer is as good as ever.
    always(
        &placed,
        200,
        head(&[("set-cookie", "a=b"), ("content-type", "text/html")]),
        "abc",
    );
    let honest = get(None).send().await.unwrap();
    assert_eq!(honest.headers()["content-type"], "application/octet-stream");
    assert!(!honest.headers().contains_key("set-cookie"));
    assert_eq!(honest.bytes().await.unwrap(), b"abc".as_slice());
}

#[tokio::test]
async fn an_upload_whose_answer_does_not_fit_has_an_unknown_outcome() {
    let (world, placed, _connection) = start().await;
    let file = |change: &dyn Fn(&mut Value)| {
        let mut answer = json!({
            "file": { "name": "x", "type": "file", "size": 3, "mode": 420, "modified_ms": 0 },
            "sha256": oac_model::Digest::of("abc").to_string(),
        });
        change(&mut answer);
        answer.to_string()
    };
    let put = || request(&world, placed.session, Method::PUT, "x").body("abc");
    for (status, body) in [
        (200, String::new()),
        (200, "{}".to_owned()),
        (200, " ".repeat(3 << 20)),
        (200, file(&|answer| answer["file"]["size"] = json!(4))),
        (200, file(&|answer| answer["file"]["type"] = json!("directory"))),
        (200, file(&|answer| answer["file"]["name"] = json!("../x"))),
        (
            200,
            file(&|answer| answer["file"]["name"] = json!("n".repeat(5000))),
        ),
        (200, file(&|answer| answer["sha256"] = json!("abc"))),
        (
            200,
            file(&|answer| drop(answer.as_object_mut().unwrap().remove("sha256"))),
        ),
        (200, file(&|answer| answer["more"] = json!(1))),
    ] {
        let shown = body.get(..80).unwrap_or(&body).to_owned();
        always(&placed, status, vec![], body);
        let refused = send(put()).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (502, "file_outcome_unknown"),
            "{shown}"
        );
    }
    let digest = oac_link::files::write_digest(&oac_model::Digest::of("abc"));
    always(
        &placed,
        200,
        vec![],
        file(&|answer| answer["sha256"] = json!(oac_model::Digest::of("x").to_string())),
    );
    let other = send(put().header("Content-Digest", digest)).await;
    assert_eq!(other.code(), "file_outcome_unknown");
    always(&placed, 200, vec![], file(&|_| {}));
    let replaced = send(put().header("If-None-Match", "*")).await;
    assert_eq!(replaced.code(), "file_outcome_unknown");
    send(put()).await.expect(200);
}

#[tokio::test]
async fn a_list_that_is_too_long_or_malformed_is_refused() {
    let (world, placed, _connection) = start().await;
    let path = format!("/v1/sessions/{}/files/list?path=x", placed.session);
    let entry = |name: &str| json!({ "name": name, "type": "file", "size": 0, "mode": 0, "modified_ms": 0 });
    let many: Vec<_> = (0..1001).map(|n| entry(&n.to_string())).collect();
    let flood = format!("{{\"data\":[{}", "{\"name\":\"a\"},".repeat(1_000_000));
    for body in [
        json!({ "data": many, "next": null }).to_string(),
        json!({ "data": [entry("a/b")], "next": null }).to_string(),
        json!({ "data": [entry("..")], "next": null }).to_string(),
        json!({ "data": [entry("")], "next": null }).to_string(),
        json!({ "data": [], "next": "00" }).to_string(),
        json!({ "data": [entry("a")], "next": "a&path=/etc" }).to_string(),
        json!({ "data": [entry("a")], "next": "a".repeat(2000) }).to_string(),
        json!({ "data": [entry("a")] }).to_string(),
        flood,
    ] {
        let shown = body.get(..80).unwrap_or(&body).to_owned();
        always(&placed, 200, vec![], body);
        let refused = world.get(&path).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (502, "sandbox_answer_invalid"),
            "{shown}"
        );
    }
    // Times and modes that no file has.
    let odd =
        json!({ "name": "a", "type": "other", "size": u64::MAX, "mode": 4095, "modified_ms": i64::MIN });
    always(
        &placed,
        200,
        vec![],
        json!({ "data": [odd], "next": null }).to_string(),
    );
    let shown = world.get(&path).await.expect(200);
    assert_eq!(shown["data"][0]["modified_at"], "1970-01-01T00:00:00Z");
}

#[tokio::test]
async fn refusals_carry_cores_words_and_only_codes_that_core_knows() {
    let (world, placed, _connection) = start().await;
    let refuse = |status: u16, code: &str| {
        let body = json!({ "code": code, "message": "<script>" }).to_string();
        always(&placed, status, vec![], body);
        send(request(&world, placed.session, Method::GET, "x"))
    };
    let known = refuse(409, "file_is_directory").await;
    assert_eq!((known.status.as_u16(), known.code()), (409, "file_is_directory"));
    assert!(
        !known.body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("script")
    );
    for (status, code) in [
        (409, "session_archived"),
        (403, "file_is_directory"),
        (401, "invalid_api_key"),
    ] {
        let other = refuse(status, code).await;
        assert_eq!(
            (other.status.as_u16(), other.code()),
            (502, "sandbox_answer_invalid"),
            "{code}"
        );
    }
    let busy = refuse(503, "busy").await;
    assert_eq!((busy.status.as_u16(), busy.code()), (503, "sandbox_unreachable"));
}

#[tokio::test]
async fn an_upload_whose_answer_is_lost_is_told_as_unknown_and_never_repeated() {
    let (world, placed, _connection) = start().await;
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    placed.sandbox.answer_files(Arc::new(move |request, cut| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Box::pin(async move {
            let _ = request.into_body().collect().await;
            cut.notify_one();
            std::future::pending().await
        })
    }));
    let put = send(request(&world, placed.session, Method::PUT, "x").body("abc")).await;
    assert_eq!((put.status.as_u16(), put.code()), (502, "file_outcome_unknown"));
    let _again = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let delete = send(request(&world, placed.session, Method::DELETE, "x")).await;
    assert_eq!(
        (delete.status.as_u16(), delete.code()),
        (502, "file_outcome_unknown")
    );
    let _more = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    world.session(placed.session).await;
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 2);
}
