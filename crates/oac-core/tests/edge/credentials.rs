//! Every route with no credential, a wrong one, and a valid one of each wrong class.

use oac_model::Secret;
use oac_testkit::core::{Answer, CoreOptions, EnrolledNode, TestCore, new_secret, send};
use reqwest::Method;
use serde_json::json;

use crate::golden::{self, GoldenRoute};

/// Something to send as Bearer, and the class it is valid for.
struct Attempt {
    what: &'static str,
    class: &'static str,
    bearer: Option<Secret>,
    node_header: Option<String>,
}

fn attempts(core: &TestCore, token: &Secret, node: &EnrolledNode) -> Vec<Attempt> {
    let attempt = |what, class, bearer: Option<Secret>| Attempt {
        what,
        class,
        bearer,
        node_header: None,
    };
    let id = Some(node.node_id.to_string());
    vec![
        attempt("nothing", "", None),
        attempt("an empty one", "", Some(Secret::new(""))),
        attempt("an unknown Core key", "", Some(new_secret("oac_core_"))),
        attempt("an unknown Project key", "", Some(new_secret("oac_key_"))),
        attempt("an unknown token", "", Some(new_secret(""))),
        Attempt {
            node_header: id.clone(),
            ..attempt("an unknown node credential", "", Some(new_secret("")))
        },
        attempt("a Core key", "core_key", Some(core.core_key.clone())),
        attempt(
            "a Core key in capitals",
            "",
            Some(Secret::new(core.core_key.expose().to_uppercase())),
        ),
        attempt("a Project key", "project_key", Some(core.project_key.clone())),
        attempt("an enrollment token", "enrollment_token", Some(token.clone())),
        attempt("a node credential", "node", Some(node.credential.clone())),
        Attempt {
            node_header: id.clone(),
            ..attempt("a named node", "node", Some(node.credential.clone()))
        },
        Attempt {
            node_header: Some(golden::NOBODY.to_owned()),
            ..attempt("another node's name", "", Some(node.credential.clone()))
        },
        Attempt {
            node_header: id,
            ..attempt("a token with a node's name", "", Some(token.clone()))
        },
    ]
}

async fn ask(core: &TestCore, route: &GoldenRoute, attempt: &Attempt, node: &EnrolledNode) -> Answer {
    let method: Method = route.method.parse().unwrap();
    let mut request = core.request(method, &route.target(&node.node_id.to_string()));
    if let Some(bearer) = &attempt.bearer {
        request = request.bearer_auth(bearer.expose());
    }
    if let Some(id) = &attempt.node_header {
        request = request.header("x-oac-node-id", id);
    }
    if let Some(golden) = golden::bodies().get(&route.name()) {
        request = request.json(&golden.body);
    }
    send(request).await
}

fn accepts(route: &GoldenRoute, attempt: &Attempt) -> bool {
    match route.credential.as_str() {
        "open" => true,
        // Without its node's name, a node credential is tried as a token.
        "enrollment_token_or_node" => match attempt.class {
            "enrollment_token" => true,
            "node" => attempt.node_header.is_some(),
            _ => false,
        },
        // Only the token itself is looked at.
        "enrollment_token" => {
            attempt.bearer.is_some() && attempt.what.contains("token") && !attempt.what.contains("unknown")
        }
        // A header that contradicts the credential refuses it on node routes alone.
        class => attempt.class == class || (class == "core_key" && attempt.class == "core_key"),
    }
}

// req: G-059, P-015
#[tokio::test]
async fn every_route_answers_401_to_everything_but_its_own_class_of_credential() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({})).await;
    let token = core.enrollment_token(&json!({})).await;
    for route in golden::routes() {
        // A link's credential travels in its first message, after the upgrade: tested with the link.
        if route.credential == "link" {
            continue;
        }
        for attempt in attempts(&core, &token, &node) {
            let answer = ask(&core, &route, &attempt, &node).await;
            let said = format!(
                "{} with {}: {} {}",
                route.name(),
                attempt.what,
                answer.status,
                answer.body
            );
            if accepts(&route, &attempt) {
                assert_ne!(answer.status.as_u16(), 401, "{said}");
                continue;
            }
            assert_eq!(answer.status.as_u16(), 401, "{said}");
            let keyed = matches!(route.credential.as_str(), "core_key" | "console" | "project_key");
            let code = if keyed {
                "invalid_api_key"
            } else {
                "invalid_node_credential"
            };
            assert_eq!(answer.code(), code, "{said}");
            assert_eq!(answer.body["error"]["type"], "invalid_request_error", "{said}");
        }
    }
}

// inv: INV-C26, INV-P26
#[tokio::test]
async fn a_revoked_key_and_a_removed_node_open_nothing() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({})).await;
    let id = node.node_id.to_string();
    let path = format!("/core/v1/sandbox/nodes/{id}");
    core.operator(Method::DELETE, &path, None).await.expect(204);
    for route in golden::routes().iter().filter(|r| r.credential.contains("node")) {
        let method: Method = route.method.parse().unwrap();
        let request = core
            .request(method, &route.target(&id))
            .bearer_auth(node.credential.expose())
            .header("x-oac-node-id", &id);
        let answer = send(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (401, "invalid_node_credential"),
            "{}",
            route.name()
        );
    }
    assert!(core.core().store.revoke_core_key(core.core_key_id).await.unwrap());
    let answer = core.operator(Method::GET, "/core/v1/projects", None).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (401, "invalid_api_key"));
}

#[tokio::test]
async fn a_credential_is_one_bearer_header_and_nothing_else() {
    let core = TestCore::start().await;
    let key = core.core_key.expose().to_owned();
    let path = "/core/v1/projects";
    let get = || core.request(Method::GET, path);
    for request in [
        get().header("authorization", &key),
        get().header("authorization", format!("Basic {key}")),
        get().header("authorization", format!("Bearer  {key}")),
        get().header("authorization", format!("Bearer {key} {key}")),
        get()
            .header("authorization", format!("Bearer {key}"))
            .header("authorization", format!("Bearer {key}")),
        core.request(Method::GET, &format!("{path}?access_token={key}")),
        get().header("cookie", format!("token={key}")),
    ] {
        assert_eq!(send(request).await.status.as_u16(), 401);
    }
    assert_eq!(
        send(get().header("authorization", format!("bearer {key}")))
            .await
            .status
            .as_u16(),
        200
    );
}

// inv: INV-C3
#[tokio::test]
async fn pg_a_standby_answers_503_on_every_api_route_whatever_the_credential() {
    let owner = TestCore::start_postgres().await;
    owner.deploy(2, 2048).await;
    let node = owner.enroll(&json!({})).await;
    let token = owner.enrollment_token(&json!({})).await;
    let standby = owner
        .beside(CoreOptions {
            standby: true,
            ..CoreOptions::default()
        })
        .await;
    for route in golden::routes() {
        let api = ["/core/v1/", "/api/v1/", "/v1/"]
            .iter()
            .any(|prefix| route.path.starts_with(prefix));
        for attempt in attempts(&owner, &token, &node) {
            let answer = ask(&standby, &route, &attempt, &node).await;
            if api {
                assert_eq!(
                    (answer.status.as_u16(), answer.code()),
                    (503, "core_standby"),
                    "{}",
                    route.name()
                );
                assert_eq!(answer.headers["retry-after"], "2");
            } else {
                assert_ne!(answer.status.as_u16(), 401);
            }
        }
    }
    assert_eq!(
        standby
            .call(Method::GET, "/healthz", None, None)
            .await
            .status
            .as_u16(),
        200
    );
    assert_eq!(
        standby
            .call(Method::GET, "/readyz", None, None)
            .await
            .status
            .as_u16(),
        503
    );
    let answer = standby
        .call(Method::GET, "/core/v1/no-such-route", None, None)
        .await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, "core_standby"));
    assert_eq!(
        owner
            .call(Method::GET, "/readyz", None, None)
            .await
            .status
            .as_u16(),
        200
    );
}
