//! The order of checks and the envelope (core.md section 4).

use oac_testkit::core::{TestCore, send};
use reqwest::Method;
use serde_json::json;

use crate::golden::NOBODY;

#[tokio::test]
async fn checks_come_in_the_documented_order() {
    let core = TestCore::start().await;
    let keys = format!("/core/v1/projects/{NOBODY}/keys");
    // An unknown route is 404 and a known one under another method 405, both before any credential.
    let answer = core.call(Method::GET, "/core/v1/nothing", None, None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, "not_found_error"));
    assert_eq!(answer.body["error"]["type"], "not_found_error");
    let answer = core.call(Method::PUT, "/core/v1/projects", None, None).await;
    assert_eq!(answer.status.as_u16(), 405);
    assert!(answer.headers["allow"].to_str().unwrap().contains("POST"));
    assert!(answer.body["error"]["code"].is_null());
    // The credential comes before the body's size, media type and shape.
    let huge = "x".repeat(2 << 20);
    let answer = send(core.request(Method::POST, &keys).body(huge.clone())).await;
    assert_eq!(answer.status.as_u16(), 401);
    // Size and media type before shape and query.
    let with_key = |path: &str| {
        core.request(Method::POST, path)
            .bearer_auth(core.core_key.expose())
    };
    let json = |request: reqwest::RequestBuilder| request.header("content-type", "application/json");
    assert_eq!(
        send(json(with_key(&format!("{keys}?x=1")).body(huge)))
            .await
            .status
            .as_u16(),
        413
    );
    assert_eq!(
        send(with_key(&format!("{keys}?x=1")).body("x"))
            .await
            .status
            .as_u16(),
        415
    );
    // Shape and query before the target.
    assert_eq!(send(json(with_key(&keys).body("{}"))).await.status.as_u16(), 400);
    assert_eq!(
        send(json(with_key(&format!("{keys}?x=1")).body("{\"name\":\"n\"}")))
            .await
            .status
            .as_u16(),
        400
    );
    // The target before the route's own checks.
    assert_eq!(
        send(json(with_key(&keys).body("{\"name\":\"\"}")))
            .await
            .status
            .as_u16(),
        404
    );
    let nothing = "/core/v1/projects/not-an-id/keys";
    assert_eq!(
        send(json(with_key(nothing).body("{}"))).await.status.as_u16(),
        400
    );
    assert_eq!(
        send(json(with_key(nothing).body("{\"name\":\"n\"}")))
            .await
            .status
            .as_u16(),
        404
    );
}

#[tokio::test]
async fn details_are_shown_to_operators_alone() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let answer = core
        .operator(Method::POST, "/core/v1/projects", Some(&json!({ "name": " " })))
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "invalid_name"));
    assert_eq!(answer.body["error"]["details"], json!({ "max_length": 128 }));
    assert_eq!(answer.body["error"]["param"], "name");
    let (mut body, _) = core.enrollment().await;
    body["name"] = json!(" ");
    let answer = core
        .call(Method::POST, "/api/v1/sandbox-node/enroll", None, Some(&body))
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, "invalid_name"));
    assert!(answer.body["error"].get("details").is_none());
}
