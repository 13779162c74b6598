//! A scripted Core: one handler sees every request and answers it, or breaks off.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use oac_wire::B64;
use serde_json::{Value, json};

pub const SESSION: &str = "11111111-1111-4111-8111-111111111111";
pub const TURN: &str = "22222222-2222-4222-8222-222222222222";

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The method and path.
    pub fn is(&self, method: Method, path: &str) -> bool {
        self.method == method && self.target.split('?').next() == Some(path)
    }
}

/// The Core; it stops when dropped.
pub struct Script {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    changed: Arc<tokio::sync::Notify>,
    _server: tokio::task::JoinSet<()>,
}

impl Script {
    /// `answer` is given every request, with how many of its kind came before it.
    pub async fn start<F, A>(answer: F) -> Self
    where
        F: Fn(Asked, usize) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response> + Send + 'static,
    {
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let changed: Arc<tokio::sync::Notify> = Arc::default();
        let (seen, notify) = (asked.clone(), changed.clone());
        let app = Router::new().fallback(move |request: Request| {
            let (answer, seen, notify) = (answer.clone(), seen.clone(), notify.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
                let one = Asked {
                    method: parts.method,
                    target: parts.uri.to_string(),
                    headers: parts.headers,
                    body,
                };
                let before = {
                    let mut seen = seen.lock().unwrap();
                    let path = one.target.split('?').next().unwrap_or_default();
                    let before = seen.iter().filter(|a| a.is(one.method.clone(), path)).count();
                    seen.push(one.clone());
                    before
                };
                notify.notify_waiters();
                answer(one, before).await
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            asked,
            changed,
            _server: server,
        }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The requests of one kind, once there are `n`.
    pub async fn until(&self, method: Method, path: &str, n: usize) -> Vec<Asked> {
        loop {
            let changed = self.changed.notified();
            let found: Vec<Asked> = self
                .asked()
                .into_iter()
                .filter(|a| a.is(method.clone(), path))
                .collect();
            if found.len() >= n {
                return found;
            }
            changed.await;
        }
    }
}

pub fn session_path(rest: &str) -> String {
    format!("/v1/sessions/{SESSION}{rest}")
}

pub fn turn_path(rest: &str) -> String {
    session_path(&format!("/turns/{TURN}{rest}"))
}

pub fn answer(status: u16, body: Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

pub fn refuse(status: u16, code: &str) -> Response {
    answer(
        status,
        json!({ "error": { "message": "The script says no: mend it.", "type": "x", "code": code, "param": null } }),
    )
}

/// The connection breaks after these bytes.
pub fn broken(bytes: impl Into<Bytes>) -> Response {
    let bytes: Bytes = bytes.into();
    let chunks = async_chunks(bytes);
    Response::new(Body::from_stream(chunks))
}

fn async_chunks(
    bytes: Bytes,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    use futures_util::StreamExt;
    futures_util::stream::iter([Ok(bytes)]).chain(futures_util::stream::once(async {
        // The bytes are on their way before the connection goes.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        Err(std::io::Error::other("broken off"))
    }))
}

pub fn events(body: String) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from(body)).into_response()
}

/// A stream that stays open after `body`.
pub fn events_open(body: String) -> Response {
    use futures_util::StreamExt;
    let body = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(body))])
        .chain(futures_util::stream::pending());
    (
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(body),
    )
        .into_response()
}

pub fn record(offset: u64, stream: &str, text: &str) -> String {
    let data = json!({ "offset": offset, "stream": stream, "data": B64(text.into()).encode() });
    format!(
        "event: output\nid: {}\ndata: {data}\n\n",
        offset + text.len() as u64
    )
}

pub fn end(members: Value) -> String {
    let mut data = json!({ "exit_code": null, "signal": null, "reason": null, "output_bytes": 0, "output_truncated": false });
    data.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    format!("event: end\ndata: {data}\n\n")
}

pub fn turn(members: Value) -> Value {
    let mut turn = json!({
        "id": TURN, "session_id": SESSION, "sequence": 1, "state": "running",
        "input": { "id": TURN, "session_id": SESSION, "args": ["printf", "x"], "cwd": "/workspace", "env": {},
            "timeout_seconds": 3600, "created_at": "2026-01-01T00:00:00Z" },
        "allocation_id": null, "created_at": "2026-01-01T00:00:00Z", "started_at": null, "ended_at": null,
        "exit_code": null, "signal": null, "reason": null, "output_bytes": 0, "output_truncated": false,
    });
    turn.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    turn
}

pub fn session(members: Value) -> Value {
    let mut session = json!({
        "id": SESSION, "name": "work", "state": "idle", "reason": null, "environment_id": TURN,
        "network": { "access": "public", "allowed_domains": [] }, "metadata": {},
        "created_at": "2026-01-01T00:00:00Z", "archived_at": null, "last_activity_at": "2026-01-01T00:00:00Z",
        "placement": { "backend": "docker", "node_id": TURN, "generation": 1, "online": true },
        "sandbox": { "state": "running", "compute_phase": "running", "diagnostic": "", "changed_at": null },
        "turns": { "queued": 0, "running": 0 },
    });
    session
        .as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    session
}

/// Answers to what every run of a command asks; the rest is the test's.
pub fn usual(asked: &Asked) -> Option<Response> {
    if asked.is(Method::POST, &session_path("/inputs")) {
        return Some(answer(202, json!({ "input": {}, "turn": turn(json!({})) })));
    }
    if asked.is(Method::POST, &turn_path("/cancel")) || asked.is(Method::GET, &turn_path("")) {
        return Some(answer(202, turn(json!({}))));
    }
    if asked.is(Method::GET, &session_path("")) {
        return Some(answer(200, session(json!({}))));
    }
    None
}
