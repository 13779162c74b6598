//! Every body with missing, extra, duplicate, mis-cased, null and oversized members.

use oac_core::http::{
    limits::JSON_BODY_BYTES,
    router::{self, Body},
};
use oac_model::Secret;
use oac_testkit::core::{Answer, TestCore, send};
use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    golden::{self, GoldenBody, GoldenRoute},
    transport,
};

/// The route's request with these bytes and the credential it accepts.
async fn post(
    core: &TestCore,
    route: &GoldenRoute,
    bytes: impl Into<reqwest::Body>,
    media: Option<&str>,
) -> Answer {
    let method: Method = route.method.parse().unwrap();
    let credential = match route.credential.as_str() {
        "core_key" => core.core_key.clone(),
        "project_key" => core.project_key.clone(),
        // Checked after the body's shape: none is needed to see that refused.
        "enrollment_token" | "console" => Secret::new("x"),
        other => panic!("a body test for {other} is missing"),
    };
    let mut request = core
        .request(method, &route.target(""))
        .bearer_auth(credential.expose())
        .header(golden::CONSOLE_HEADER.0, golden::CONSOLE_HEADER.1)
        .body(bytes);
    if let Some(media) = media {
        request = request.header("content-type", media);
    }
    send(request).await
}

const JSON: Option<&str> = Some("application/json");

#[track_caller]
fn refused(answer: &Answer, status: u16, param: Option<&str>, what: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.body);
    if let Some(param) = param {
        assert_eq!(answer.body["error"]["param"], param, "{what}: {}", answer.body);
        assert_eq!(answer.code(), "invalid_request_error", "{what}");
    }
}

/// Dotted paths of all members of `value`, those of free-form objects left out.
fn members(value: &Value, prefix: &str, maps: &[String], found: &mut Vec<String>) {
    let Value::Object(object) = value else { return };
    for (name, inner) in object {
        let path = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        if !maps.contains(&path) {
            members(inner, &path, maps, found);
        }
        found.push(path);
    }
}

/// The object that holds `path`'s last name, and that name.
fn holder<'a>(body: &'a mut Value, path: &'a str) -> (&'a mut serde_json::Map<String, Value>, &'a str) {
    let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut object = body;
    for parent in parents.split('.').filter(|p| !p.is_empty()) {
        object = &mut object[parent];
    }
    (object.as_object_mut().unwrap(), name)
}

fn changed(
    golden: &GoldenBody,
    path: &str,
    change: impl FnOnce(&mut serde_json::Map<String, Value>, &str),
) -> String {
    let mut body = golden.body.clone();
    let (object, name) = holder(&mut body, path);
    change(object, name);
    body.to_string()
}

/// Text that names `path`'s member twice: a placeholder takes the second one's place and is renamed in the text.
fn doubled(golden: &GoldenBody, path: &str) -> String {
    let name = path.rsplit('.').next().unwrap();
    changed(golden, path, |object, name| {
        let value = object[name].clone();
        object.insert("zzz-second".to_owned(), value);
    })
    .replace("\"zzz-second\"", &format!("\"{name}\""))
}

fn mis_cased(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}

// req: P-002
#[tokio::test]
async fn every_body_is_refused_with_missing_extra_duplicate_mis_cased_null_and_oversized_members() {
    let core = TestCore::start().await;
    let bodies = golden::bodies();
    for route in golden::routes() {
        let Some(golden) = bodies.get(&route.name()) else {
            continue;
        };
        let name = route.name();
        let mut all = Vec::new();
        members(&golden.body, "", &golden.maps, &mut all);

        // The body itself is well-formed: whatever is wrong, it is not its shape.
        let answer = post(&core, &route, golden.body.to_string(), JSON).await;
        assert!(
            !answer.code().starts_with("invalid_request"),
            "{name}: {}",
            answer.body
        );
        assert!(
            !matches!(answer.status.as_u16(), 413 | 415),
            "{name}: {}",
            answer.body
        );

        for path in &golden.required {
            let body = changed(golden, path, |object, name| drop(object.remove(name).unwrap()));
            refused(
                &post(&core, &route, body, JSON).await,
                400,
                Some(path),
                &format!("{name} without {path}"),
            );
        }
        let objects = std::iter::once(String::new())
            .chain(all.iter().filter(|p| !golden.maps.contains(p)).cloned())
            .filter(|path| {
                let pointer = if path.is_empty() {
                    String::new()
                } else {
                    format!("/{}", path.replace('.', "/"))
                };
                golden.body.pointer(&pointer).is_some_and(Value::is_object)
            });
        for object in objects {
            let path = if object.is_empty() {
                "surplus".to_owned()
            } else {
                format!("{object}.surplus")
            };
            let body = changed(golden, &path, |object, name| {
                drop(object.insert(name.to_owned(), Value::from(1)))
            });
            refused(
                &post(&core, &route, body, JSON).await,
                400,
                Some(&path),
                &format!("{name} with {path}"),
            );
        }
        for path in &all {
            refused(
                &post(&core, &route, doubled(golden, path), JSON).await,
                400,
                Some(path),
                &format!("{name} with {path} twice"),
            );
            let body = changed(golden, path, |object, name| {
                let value = object.remove(name).unwrap();
                object.insert(mis_cased(name), value);
            });
            refused(
                &post(&core, &route, body, JSON).await,
                400,
                None,
                &format!("{name} with {path} mis-cased"),
            );
            let body = changed(golden, path, |object, name| {
                drop(object.insert(name.to_owned(), Value::Null))
            });
            refused(
                &post(&core, &route, body, JSON).await,
                400,
                Some(path),
                &format!("{name} with {path} null"),
            );
            let body = changed(golden, path, |object, name| {
                // Another JSON type than any member has.
                object.insert(name.to_owned(), Value::from(vec![vec![1.5]]));
            });
            refused(
                &post(&core, &route, body, JSON).await,
                400,
                None,
                &format!("{name} with {path} of another type"),
            );
        }
        for (path, length) in &golden.too_long {
            let body = changed(golden, path, |object, name| {
                drop(object.insert(name.to_owned(), "a".repeat(*length).into()))
            });
            let answer = post(&core, &route, body, JSON).await;
            refused(&answer, 400, None, &format!("{name} with {path} too long"));
            assert_eq!(answer.body["error"]["param"], path.as_str(), "{name}");
        }
        for text in ["", "null", "[]", "1", "\"text\"", "{", "{}x", "\u{feff}{}"] {
            let answer = post(&core, &route, text, JSON).await;
            refused(&answer, 400, None, &format!("{name} with {text:?}"));
        }
    }
}

#[tokio::test]
async fn every_body_larger_than_its_limit_is_413_and_every_other_media_type_415() {
    let core = TestCore::start().await;
    let bodies = golden::bodies();
    let table = router::table();
    for route in golden::routes() {
        let Some(golden) = bodies.get(&route.name()) else {
            continue;
        };
        let name = route.name();
        let limit = golden.limit.unwrap_or(JSON_BODY_BYTES);
        let built = table
            .iter()
            .find(|r| r.name() == (route.method.as_str(), route.path.as_str()))
            .unwrap();
        assert_eq!(built.body, Body::Json { limit }, "{name}");

        // White space is part of the size; one byte more is too much, declared or not.
        let body = golden.body.to_string();
        let padded = |size: usize| format!("{body}{}", " ".repeat(size - body.len()));
        let answer = post(&core, &route, padded(limit), JSON).await;
        assert_ne!(answer.status.as_u16(), 413, "{name}");
        refused(
            &post(&core, &route, padded(limit + 1), JSON).await,
            413,
            None,
            &name,
        );
        let chunks = futures_util::stream::iter([Ok::<_, std::io::Error>(padded(limit + 1))]);
        let chunked = reqwest::Body::wrap_stream(chunks);
        refused(&post(&core, &route, chunked, JSON).await, 413, None, &name);

        for media in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            Some("application/jsonx"),
        ] {
            refused(&post(&core, &route, body.clone(), media).await, 415, None, &name);
        }
        let answer = post(&core, &route, body, Some("application/json; charset=UTF-8")).await;
        assert_ne!(answer.status.as_u16(), 415, "{name}");
    }
}

#[tokio::test]
async fn a_route_without_a_body_refuses_one_and_every_route_refuses_an_unknown_query_name() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&serde_json::json!({})).await;
    let token = core.enrollment_token(&serde_json::json!({})).await;
    let id = node.node_id.to_string();
    let table = router::table();
    for route in golden::routes() {
        if route.method == router::ANY {
            // Its query and body are not Core's to judge.
            continue;
        }
        let credential = match route.credential.as_str() {
            "core_key" => Some(&core.core_key),
            "project_key" => Some(&core.project_key),
            "enrollment_token" | "enrollment_token_or_node" => Some(&token),
            "node" => Some(&node.credential),
            _ => None,
        };
        let method: Method = route.method.parse().unwrap();
        let body = golden::bodies()
            .get(&route.name())
            .map(|golden| golden.body.clone());
        let target = route.target(&id);
        let path = format!(
            "{target}{}surplus=1",
            if target.contains('?') { '&' } else { '?' }
        );
        let ask = |path: &str, body: Option<&Value>| {
            let (name, value) = golden::CONSOLE_HEADER;
            let mut request = core.request(method.clone(), path).header(name, value);
            if let Some(credential) = credential {
                request = request.bearer_auth(credential.expose());
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            send(request)
        };
        let answer = ask(&path, body.as_ref()).await;
        if route.path.ends_with("/connect") {
            // Its one query name is part of the credential.
            assert_eq!(answer.status.as_u16(), 401);
        } else {
            refused(&answer, 400, Some("surplus"), &route.name());
        }
        let built = table
            .iter()
            .find(|r| r.name() == (route.method.as_str(), route.path.as_str()))
            .unwrap();
        if built.body == Body::None {
            let body = serde_json::json!({});
            let answer = ask(&target, Some(&body)).await;
            refused(&answer, 400, None, &route.name());
        }
    }
}

/// What a client is told that sends all of a body that nobody reads before it listens.
async fn told_in_the_end(core: &TestCore) -> String {
    /// More than the buffers between the two take.
    const BODY: usize = 16 << 20;
    let mut stream = TcpStream::connect(transport::address(core)).await.unwrap();
    let head = format!(
        "POST /core/v1/projects HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {BODY}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
        .write_all(&vec![b' '; BODY])
        .await
        .expect("all of it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn who_sends_a_large_body_that_nobody_reads_is_told_why_it_is_refused() {
    let core = TestCore::start().await;
    let answer = told_in_the_end(&core).await;
    assert!(
        answer.starts_with("HTTP/1.1 401") && answer.contains("\"invalid_api_key\""),
        "{answer}"
    );
}

// inv: INV-C3
#[tokio::test]
async fn pg_who_sends_a_large_body_to_a_standby_is_told_to_ask_another() {
    let owner = TestCore::start_postgres().await;
    let options = oac_testkit::core::CoreOptions {
        standby: true,
        ..Default::default()
    };
    let standby = owner.beside(options).await;
    let answer = told_in_the_end(&standby).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("\"core_standby\""),
        "{answer}"
    );
}
