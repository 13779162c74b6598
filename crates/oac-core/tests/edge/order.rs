//! The order of checks and the envelope (core.md section 4).

use oac_core::http::router::{self, Body};
use oac_model::Secret;
use oac_testkit::core::{CoreOptions, EnrolledNode, TestCore, send};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::golden::{self, GoldenRoute, NOBODY};

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

/// What a request can have wrong before its route's own checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Method,
    Credential,
    Size,
    Media,
    Shape,
    Query,
    Target,
}

impl Wrong {
    fn status(self) -> u16 {
        match self {
            Self::Method => 405,
            Self::Credential => 401,
            Self::Size => 413,
            Self::Media => 415,
            Self::Shape | Self::Query => 400,
            Self::Target => 404,
        }
    }
}

/// What `route` can have wrong, in the order in which it must be noticed.
fn order(route: &GoldenRoute, body: Body) -> Vec<Wrong> {
    use Wrong::{Credential, Media, Method, Query, Shape, Size, Target};
    let mut order = match body {
        Body::Json { .. } => vec![Size, Media, Shape, Query],
        Body::None => vec![Size, Shape, Query],
        // Somebody else's are body, query and method of what goes to a port.
        Body::Stream if route.method == router::ANY => vec![],
        Body::Stream => vec![Query],
    };
    match route.credential.as_str() {
        "open" => {}
        "enrollment_token" => order.push(Credential),
        // Without an upgrade there is no connection to show a credential on.
        "link" => return vec![Method, Size, Shape],
        // Its query belongs to the credential (protocol.md section 4).
        "node" if route.path.ends_with("/connect") => return vec![Method, Credential, Size, Shape],
        _ => order.insert(0, Credential),
    }
    if route.method != router::ANY {
        order.insert(0, Method);
    }
    if route.path.contains('{') {
        order.push(Target);
    }
    order
}

/// The route's request with all of `wrong` in it, and nothing else but a target that is not there.
fn request(
    core: &TestCore,
    (route, body): (&GoldenRoute, Body),
    (token, node): (&Secret, &EnrolledNode),
    wrong: &[Wrong],
) -> RequestBuilder {
    let is = |what| wrong.contains(&what);
    let node_id = node.node_id.to_string();
    let method = match route.method.as_str() {
        _ if is(Wrong::Method) => "PURGE",
        router::ANY => "POST",
        method => method,
    };
    let mut target = route.target(&node_id);
    if is(Wrong::Query) {
        target.push_str(if target.contains('?') { "&" } else { "?" });
        target.push_str("zzz=1");
    }
    let mut request = core.request(method.parse().unwrap(), &target);
    let credential = match route.credential.as_str() {
        _ if is(Wrong::Credential) => None,
        "core_key" => Some(&core.core_key),
        "project_key" => Some(&core.project_key),
        "node" => Some(&node.credential),
        "enrollment_token" | "enrollment_token_or_node" => Some(token),
        _ => None,
    };
    if let Some(credential) = credential {
        request = request.bearer_auth(credential.expose());
    }
    if route.credential == "console" && !is(Wrong::Credential) {
        let (name, value) = golden::CONSOLE_HEADER;
        request = request.header(name, value);
    }
    match body {
        Body::Json { limit } => {
            let text = match golden::bodies().remove(&route.name()) {
                _ if is(Wrong::Size) => "x".repeat(limit + 1),
                // The one body that is itself a credential.
                Some(_) if !is(Wrong::Shape) && route.credential == "console" => {
                    json!({ "core_key": core.core_key.expose() }).to_string()
                }
                Some(golden) if !is(Wrong::Shape) => golden.body.to_string(),
                _ => "{\"zzz\":1}".to_owned(),
            };
            let media = if is(Wrong::Media) {
                "text/plain"
            } else {
                "application/json"
            };
            request.header("content-type", media).body(text)
        }
        Body::None if is(Wrong::Size) => request.body("x".repeat(20_000)),
        Body::None if is(Wrong::Shape) => request.body("x"),
        Body::None => request,
        Body::Stream => request.body("x"),
    }
}

/// Every route with the body it takes.
fn routes() -> Vec<(GoldenRoute, Body)> {
    let table = router::table();
    let body = |route: &GoldenRoute| {
        let found = table.iter().find(|known| {
            let (method, path) = known.name();
            (method, path) == (route.method.as_str(), route.path.as_str())
        });
        found.unwrap().body
    };
    golden::routes()
        .into_iter()
        .map(|route| {
            let body = body(&route);
            (route, body)
        })
        .collect()
}

#[tokio::test]
async fn on_every_route_what_is_wrong_is_noticed_in_the_documented_order_one_after_the_other() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let (token, node) = (
        core.enrollment_token(&json!({})).await,
        core.enroll(&json!({})).await,
    );
    for (route, body) in routes() {
        let order = order(&route, body);
        for noticed in 0..order.len() {
            let asked = request(&core, (&route, body), (&token, &node), &order[noticed..]);
            let answer = send(asked).await;
            let said = format!("{} with {:?}: {}", route.name(), &order[noticed..], answer.body);
            assert_eq!(answer.status.as_u16(), order[noticed].status(), "{said}");
            if order[noticed] == Wrong::Query {
                assert_eq!(answer.body["error"]["param"], "zzz", "{said}");
            }
            if order[noticed] == Wrong::Method {
                let allowed = answer.headers["allow"].to_str().unwrap();
                assert!(allowed.contains(&route.method), "{said}: {allowed}");
            }
        }
        // With nothing wrong none of these is what the route says.
        let answer = send(request(&core, (&route, body), (&token, &node), &[])).await;
        let status = answer.status.as_u16();
        let said = format!("{}: {status} {}", route.name(), answer.body);
        assert!(![401, 405, 413, 415].contains(&status), "{said}");
        assert!(answer.body["error"]["param"] != "zzz", "{said}");
    }
}

// inv: INV-C3
#[tokio::test]
async fn pg_a_standby_notices_nothing_of_what_is_wrong_but_that_it_stands_by() {
    let owner = TestCore::start_postgres().await;
    owner.deploy(2, 2048).await;
    let (token, node) = (
        owner.enrollment_token(&json!({})).await,
        owner.enroll(&json!({})).await,
    );
    let options = CoreOptions {
        standby: true,
        ..CoreOptions::default()
    };
    let standby = owner.beside(options).await;
    for (route, body) in routes() {
        if route.credential == "open" {
            continue;
        }
        let order = order(&route, body);
        for noticed in 0..order.len() {
            let asked = request(&standby, (&route, body), (&token, &node), &order[noticed..]);
            let answer = send(asked).await;
            let said = format!("{} with {:?}: {}", route.name(), &order[noticed..], answer.body);
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (503, "core_standby"),
                "{said}"
            );
            assert_eq!(answer.headers["retry-after"], "2", "{said}");
        }
    }
}
