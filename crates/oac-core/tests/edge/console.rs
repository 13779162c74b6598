//! Signing in to the console, and what a page of another site cannot do with a browser that is signed in.

use oac_testkit::core::{Answer, CoreOptions, TestCore, send};
use reqwest::Method;
use serde_json::json;

const SESSION: &str = "/core/v1/console/session";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const PROJECTS: &str = "/core/v1/projects";

/// What the request names as its console header and its origin.
#[derive(Debug, Clone, Copy)]
struct From<'a> {
    header: Option<&'a str>,
    origin: Option<&'a str>,
}

const OWN: From<'static> = From {
    header: Some("1"),
    origin: None,
};

fn from(builder: reqwest::RequestBuilder, from: From<'_>) -> reqwest::RequestBuilder {
    let named = [("x-oac-console", from.header), ("origin", from.origin)];
    named
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .fold(builder, |builder, (name, value)| builder.header(name, value))
}

async fn sign_in(core: &TestCore, sender: From<'_>) -> Answer {
    let body = json!({ "core_key": core.core_key.expose() });
    send(from(core.request(Method::POST, SESSION), sender).json(&body)).await
}

/// The cookie that a browser keeps of the answer, as it sends it back.
fn cookie(answer: &Answer) -> String {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

async fn signed_in(core: &TestCore) -> String {
    let answer = sign_in(core, OWN).await;
    assert_eq!(answer.status.as_u16(), 204);
    cookie(&answer)
}

async fn status(core: &TestCore, method: Method, path: &str, cookie: &str, sender: From<'_>) -> u16 {
    let mut request = from(core.request(method.clone(), path), sender).header("cookie", cookie);
    if method == Method::POST {
        request = request.json(&json!({}));
    }
    send(request).await.status.as_u16()
}

#[tokio::test]
async fn the_cookie_is_a_token_of_its_own_that_scripts_and_other_sites_do_not_get() {
    let core = TestCore::start().await;
    let answer = sign_in(&core, OWN).await;
    assert_eq!(answer.status.as_u16(), 204);
    let set = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    let (pair, attributes) = set.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/core/v1; HttpOnly; SameSite=Strict");
    let token = pair.strip_prefix("oac_console=").unwrap();
    assert_eq!(token.len(), 64);
    assert!(!core.core_key.expose().contains(token));
    assert_eq!(status(&core, Method::GET, PROJECTS, pair, OWN).await, 200);
    // A second sign-in is a second session.
    assert_ne!(signed_in(&core).await, pair);
}

#[tokio::test]
async fn the_cookie_is_secure_when_the_sign_in_came_by_https() {
    let public = "https://core.example.com";
    let core = TestCore::with(CoreOptions {
        public_url: Some(Some(public.to_owned())),
        ..CoreOptions::default()
    })
    .await;
    let secure = |answer: &Answer| {
        answer.headers["set-cookie"]
            .to_str()
            .unwrap()
            .contains("; Secure")
    };
    let by = |origin| From { origin, ..OWN };
    assert!(secure(&sign_in(&core, by(Some(public))).await));
    assert!(!secure(&sign_in(&core, by(Some(&core.url))).await));
}

// inv: INV-W3
#[tokio::test]
async fn a_request_of_another_sites_page_is_refused_and_writes_nothing() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let cookie = signed_in(&core).await;
    let public = core.public_url.clone().unwrap();
    let (_, port) = core.url.rsplit_once(':').unwrap();
    let other_port = format!("http://127.0.0.1:{}", if port == "1" { "2" } else { "1" });
    let other_scheme = core.url.replacen("http:", "https:", 1);
    let longer = format!("{}.example.com", core.url);
    let named = |origin| From {
        origin: Some(origin),
        ..OWN
    };
    let foreign = [
        named("http://example.com"),
        named("null"),
        named(""),
        named(&other_port),
        named(&other_scheme),
        named(&longer),
        // A form or an image sends no header of its own.
        From {
            header: None,
            origin: Some(&core.url),
        },
        From {
            header: None,
            origin: None,
        },
        From {
            header: Some("0"),
            origin: None,
        },
    ];
    let before = tokens(&core).await;
    for sender in foreign {
        assert_eq!(
            status(&core, Method::POST, TOKENS, &cookie, sender).await,
            401,
            "{sender:?}"
        );
        assert_eq!(sign_in(&core, sender).await.status.as_u16(), 401, "{sender:?}");
        assert_eq!(
            status(&core, Method::DELETE, SESSION, &cookie, sender).await,
            401,
            "{sender:?}"
        );
        assert_eq!(
            status(&core, Method::GET, PROJECTS, &cookie, sender).await,
            401,
            "{sender:?}"
        );
    }
    assert_eq!(tokens(&core).await, before);
    for sender in [OWN, named(&core.url), named(&public)] {
        assert_eq!(
            status(&core, Method::POST, TOKENS, &cookie, sender).await,
            201,
            "{sender:?}"
        );
    }
    assert_eq!(tokens(&core).await, before + 3);
}

/// How often a token was created.
async fn tokens(core: &TestCore) -> usize {
    let entries = crate::secrets::audit(core).await;
    entries
        .iter()
        .filter(|entry| entry.resource_type == "enrollment_token")
        .count()
}

// inv: INV-W3
#[tokio::test]
async fn two_origins_two_headers_or_two_cookies_are_none() {
    let core = TestCore::start().await;
    let cookie = signed_in(&core).await;
    let get = || from(core.request(Method::GET, PROJECTS), OWN);
    for request in [
        get()
            .header("cookie", &cookie)
            .header("origin", &core.url)
            .header("origin", "http://example.com"),
        get().header("cookie", &cookie).header("x-oac-console", "1"),
        get().header("cookie", format!("oac_console=other; {cookie}")),
        get()
            .header("cookie", &cookie)
            .header("cookie", "oac_console=other"),
        get().header("cookie", "oac_console="),
    ] {
        assert_eq!(send(request).await.status.as_u16(), 401);
    }
    let beside = get().header("cookie", format!("theme=dark; {cookie}"));
    assert_eq!(send(beside).await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_wrong_key_signs_nobody_in_and_a_session_opens_no_other_kind_of_route() {
    let core = TestCore::start().await;
    for key in ["", "oac_core_", core.project_key.expose()] {
        let request = from(core.request(Method::POST, SESSION), OWN).json(&json!({ "core_key": key }));
        let answer = send(request).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (401, "invalid_api_key"));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    let cookie = signed_in(&core).await;
    assert_eq!(
        status(&core, Method::GET, "/v1/sessions", &cookie, OWN).await,
        401
    );
    // A key that is sent is the one that counts.
    let both = from(core.request(Method::GET, PROJECTS), OWN)
        .header("cookie", &cookie)
        .header("authorization", "Bearer oac_core_wrong");
    assert_eq!(send(both).await.status.as_u16(), 401);
}

#[tokio::test]
async fn a_session_ends_at_sign_out_and_with_its_key() {
    let core = TestCore::start().await;
    let (first, second) = (signed_in(&core).await, signed_in(&core).await);
    let out = from(core.request(Method::DELETE, SESSION), OWN).header("cookie", &first);
    let answer = send(out).await;
    assert_eq!(answer.status.as_u16(), 204);
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("oac_console=; Path=/core/v1;") && set.contains("Max-Age=0"));
    assert_eq!(status(&core, Method::GET, PROJECTS, &first, OWN).await, 401);
    // Whoever is not signed in any more may sign out nonetheless.
    assert_eq!(status(&core, Method::DELETE, SESSION, &first, OWN).await, 204);
    assert_eq!(status(&core, Method::GET, PROJECTS, &second, OWN).await, 200);
    assert!(core.core().store.revoke_core_key(core.core_key_id).await.unwrap());
    assert_eq!(status(&core, Method::GET, PROJECTS, &second, OWN).await, 401);
    assert_eq!(sign_in(&core, OWN).await.status.as_u16(), 401);
}

#[tokio::test]
async fn pg_a_session_is_kept_by_the_database_and_audited_under_its_key() {
    let mut core = TestCore::start_postgres().await;
    let cookie = signed_in(&core).await;
    core.restart().await;
    let request = from(core.request(Method::POST, PROJECTS), OWN).header("cookie", &cookie);
    send(request.json(&json!({ "name": "by the console" })))
        .await
        .expect(201);
    let entries = crate::secrets::audit(&core).await;
    let last = entries.last().unwrap();
    assert_eq!(last.actor, format!("core_key:{}", core.core_key_id));
}

// inv: INV-C14
#[tokio::test]
async fn the_database_holds_no_console_token() {
    let core = TestCore::start().await;
    let cookie = signed_in(&core).await;
    let token = cookie.strip_prefix("oac_console=").unwrap();
    let stored = crate::secrets::database_bytes(&core);
    assert!(!stored.windows(token.len()).any(|bytes| bytes == token.as_bytes()));
}

#[tokio::test]
async fn a_path_that_is_no_page_stays_a_plain_404_for_programs() {
    let core = TestCore::start().await;
    for path in ["/core/v1/console", "/v1/nodes", "/api/v1", "/nodes/a/b"] {
        let answer = core.call(Method::GET, path, None, None).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "not_found_error"),
            "{path}"
        );
    }
    let page = core.call(Method::GET, "/nodes", None, None).await;
    let expected = if oac_core::console::is_built_in() {
        200
    } else {
        404
    };
    assert_eq!(page.status.as_u16(), expected);
    assert!(
        page.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .starts_with("default-src 'self';")
    );
}
