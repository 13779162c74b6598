//! Operations as the description tells them, and requests to them.

use std::collections::BTreeMap;

use oac_model::SessionId;
use oac_peer::Random;
use oac_testkit::core::{TestCore, docker_selection, new_secret};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::schema::Schemas;
use crate::world::{Placed, World};

/// A whole body of every route that takes one, as far as its members go together.
const BODIES: &str = include_str!("../../edge/golden/bodies.json");

/// One method on one path.
pub(super) struct Operation<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    description: &'a Value,
    document: &'a Value,
}

impl<'a> Operation<'a> {
    pub(super) fn all(document: &'a Value) -> Vec<Self> {
        let paths = document["paths"].as_object().unwrap();
        let operation = |(path, item): (&'a String, &'a Value)| {
            let methods = item.as_object().unwrap();
            methods.iter().map(move |(method, description)| Self {
                method: method.to_uppercase().parse().unwrap(),
                path,
                description,
                document,
            })
        };
        paths.iter().flat_map(operation).collect()
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// What an answer of this status holds, by media type; null for nothing at all.
    pub(super) fn response(&self, status: u16) -> Option<&'a Value> {
        let responses = &self.description["responses"];
        let class = format!("{}XX", status / 100);
        let named = [status.to_string(), class, "default".to_owned()];
        let found = named.iter().find_map(|name| responses.get(name))?;
        let found = match found["$ref"].as_str() {
            Some(reference) => self.document.pointer(reference.trim_start_matches('#'))?,
            None => found,
        };
        Some(&found["content"])
    }

    fn parameters(&self, place: &str) -> impl Iterator<Item = &'a Value> {
        let all = self.description["parameters"].as_array().into_iter().flatten();
        all.filter(move |parameter| parameter["in"] == place)
    }

    /// The classes of credential it accepts.
    fn classes(&self) -> Vec<&'a str> {
        let all = self.description["security"].as_array().into_iter().flatten();
        all.filter_map(|class| Some(class.as_object()?.keys().next()?.as_str()))
            .collect()
    }
}

/// What there is to be named.
pub(super) struct Known {
    own_project: String,
    /// Those that requests made.
    projects: Vec<String>,
    keys: Vec<(String, String)>,
    /// The first one has a sandbox that is linked, and is not archived.
    sessions: Vec<String>,
    archived: Vec<String>,
    turns: Vec<(String, String)>,
    /// The first one is connected, and is not removed.
    nodes: Vec<String>,
    allocations: Vec<String>,
    enrollments: Vec<String>,
    /// By class.
    credentials: BTreeMap<&'static str, String>,
    generation: u64,
    /// What a host would say of itself.
    enrollment: Value,
}

fn one_of<T: Clone>(all: &[T], random: &mut Random) -> Option<T> {
    let at = random.below(all.len().max(1) as u64) as usize;
    all.get(at).cloned()
}

impl Known {
    pub(super) async fn of(world: &World, placed: &Placed) -> Self {
        let core = &world.core;
        let node = &world.node.enrolled;
        let token = core.enrollment_token(&json!({})).await;
        Self {
            own_project: core.project_id.to_string(),
            projects: Vec::new(),
            keys: Vec::new(),
            sessions: vec![placed.session.to_string()],
            archived: Vec::new(),
            turns: Vec::new(),
            nodes: vec![node.node_id.to_string()],
            allocations: vec![placed.allocation.to_string()],
            enrollments: Vec::new(),
            credentials: BTreeMap::from([
                ("core_key", core.core_key.expose().to_owned()),
                ("project_key", core.project_key.expose().to_owned()),
                ("enrollment_token", token.expose().to_owned()),
                ("node", node.credential.expose().to_owned()),
            ]),
            generation: 1,
            enrollment: core.enrollment().await.0,
        }
    }

    /// What a variable of `operation`'s path may stand for, all from one thing that is there.
    fn names(&self, operation: &Operation<'_>, random: &mut Random) -> BTreeMap<&'static str, String> {
        let ends_it = operation.method == Method::DELETE || operation.path.ends_with("/archive");
        // What reaches for a sandbox waits a minute for one that does not link.
        let reaches = operation.path.contains("/files") || operation.path.contains("/ports");
        let (first, later) = self.sessions.split_at(1);
        let sessions = match (reaches, ends_it) {
            (true, _) => [first, &self.archived].concat(),
            (false, true) => later.to_vec(),
            (false, false) => self.sessions.clone(),
        };
        let (session, turn) = match one_of(&self.turns, random) {
            Some((session, turn)) if operation.path.contains("{turn_id}") => (Some(session), Some(turn)),
            _ => (one_of(&sessions, random), None),
        };
        let (project, key) = match one_of(&self.keys, random) {
            Some((project, key)) if operation.path.contains("{key_id}") => (Some(project), Some(key)),
            _ if operation.path.contains("{session_id}") => (Some(self.own_project.clone()), None),
            _ if ends_it => (one_of(&self.projects, random), None),
            _ => (Some(self.own_project.clone()), None),
        };
        // The first node goes on taking sandboxes.
        let closes = ["/cordon", "/drain", "/labels"];
        let closes = closes.iter().any(|end| operation.path.ends_with(end));
        let but_first = usize::from(closes || ends_it && operation.path.ends_with("{node_id}"));
        let names = [
            ("session_id", session),
            ("turn_id", turn),
            ("project_id", project),
            ("key_id", key),
            ("node_id", one_of(&self.nodes[but_first..], random)),
            ("allocation_id", one_of(&self.allocations, random)),
            ("enrollment_id", one_of(&self.enrollments, random)),
            ("port", one_of(&["8080", "1", "65535"], random).map(str::to_owned)),
            (
                "path",
                one_of(&["", "a/b", "%2e%2e/x"], random).map(str::to_owned),
            ),
        ];
        let names = names.into_iter();
        names.filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// A body that goes further than made-up members would; `None` where those do.
    fn likely_body(&self, operation: &Operation<'_>, random: &mut Random) -> Option<Value> {
        let name = operation.name();
        if name.ends_with(" /core/v1/sandbox/deployment") && random.one_in(2) {
            return Some(docker_selection(self.generation, 1 + random.below(3) as u32, 512));
        }
        if name == "POST /api/v1/sandbox-node/enroll" {
            let mut body = self.enrollment.clone();
            body["node_id"] = json!(oac_model::NodeId::random());
            body["credential"] = json!(new_secret("").expose());
            return Some(body);
        }
        if name == "POST /v1/sessions" && random.one_in(2) {
            return Some(json!({ "name": "made up" }));
        }
        if name == "POST /core/v1/sandbox/enrollment-tokens" {
            return one_of(
                &[json!({}), json!({ "max_active": 2, "max_retained": 2 })],
                random,
            );
        }
        let bodies: Value = serde_json::from_str(BODIES).unwrap();
        let mut body = bodies[&name]["body"].clone();
        if name == "POST /core/v1/sandbox/deployment/reset" {
            // It would take away what the other routes are asked about.
            body["expected_generation"] = json!(0);
        } else if body.get("expected_generation").is_some() {
            body["expected_generation"] = json!(self.generation);
        }
        (!body.is_null()).then_some(body)
    }

    /// Remembers what an answer names.
    pub(super) fn learn(&mut self, operation: &Operation<'_>, asked: &Asked, status: u16, body: &Value) {
        if !(200..300).contains(&status) {
            return;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = |name: &str| asked.names.get(name).cloned().unwrap_or_default();
        match operation.name().as_str() {
            "POST /v1/sessions" if !self.sessions.contains(&text(&body["id"])) => {
                self.sessions.push(text(&body["id"]));
            }
            "POST /v1/sessions/{session_id}/inputs" => {
                self.turns.push((named("session_id"), text(&body["turn"]["id"])));
            }
            "DELETE /v1/sessions/{session_id}"
            | "POST /core/v1/projects/{project_id}/sessions/{session_id}/archive" => {
                self.archived.push(named("session_id"));
            }
            "GET /core/v1/sandbox/allocations" => {
                let all = body["data"].as_array().into_iter().flatten();
                self.allocations
                    .extend(all.map(|allocation| text(&allocation["id"])));
            }
            "POST /core/v1/projects" => self.projects.push(text(&body["id"])),
            "POST /core/v1/projects/{project_id}/keys" => {
                self.keys.push((named("project_id"), text(&body["id"])));
            }
            "POST /core/v1/sandbox/enrollment-tokens" => {
                self.enrollments.push(text(&body["enrollment_id"]));
                self.credentials.insert("enrollment_token", text(&body["token"]));
            }
            "POST /api/v1/sandbox-node/enroll" => self.nodes.push(text(&body["node_id"])),
            "POST /core/v1/sandbox/deployment" | "PUT /core/v1/sandbox/deployment" => {
                self.generation = body["generation"].as_u64().unwrap_or_default();
                self.enrollment["deployment_generation"] = body["generation"].clone();
                self.enrollment["specification_digest"] = body["specification_digest"].clone();
            }
            _ => {}
        }
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Asked {
    method: Method,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
    /// Query and body fit the description.
    pub(super) fits: bool,
    names: BTreeMap<&'static str, String>,
    credential: Hidden,
}

/// A class of credential and one of it.
struct Hidden(Option<(&'static str, String)>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_ref().map_or("none", |(class, _)| class))
    }
}

impl Asked {
    pub(super) fn make_up(
        operation: &Operation<'_>,
        schemas: &Schemas<'_>,
        known: &Known,
        random: &mut Random,
    ) -> Self {
        let mut names = known.names(operation, random);
        if random.one_in(8) {
            let strange = ["x", "%00", "..%2f", "0", "99999999-9999-4999-8999-999999999999"];
            let at = random.below(names.len() as u64) as usize;
            if let Some(value) = names.values_mut().nth(at) {
                *value = one_of(&strange, random).unwrap_or_default().to_owned();
            }
        }
        let mut fits = true;
        let mut target = operation.path.to_owned();
        for parameter in operation.parameters("path") {
            let name = parameter["name"].as_str().unwrap();
            let stranger = SessionId::random().to_string();
            let value = names.get(name).unwrap_or(&stranger);
            target = target.replace(&format!("{{{name}}}"), value);
        }
        let query = query(operation, schemas, known, random, &mut fits);
        if !query.is_empty() {
            target = format!("{target}?{query}");
        }
        let body = body(operation, schemas, known, random, &mut fits);
        let class = one_of(&operation.classes(), random).filter(|_| !random.one_in(16));
        let class = class.and_then(|class| known.credentials.keys().find(|known| **known == class).copied());
        let mut headers = headers(operation, random);
        if operation.description["requestBody"]["content"]["application/json"].is_object() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        if class == Some("node") && operation.path.ends_with("/configuration") {
            headers.push(("x-oac-node-id".to_owned(), known.nodes[0].clone()));
        }
        Self {
            method: operation.method.clone(),
            target,
            headers,
            body,
            fits,
            names,
            credential: Hidden(class.map(|class| (class, known.credentials[class].clone()))),
        }
    }

    pub(super) async fn send(&self, core: &TestCore) -> Response {
        let mut request = core.request(self.method.clone(), &self.target);
        if let Some((_, credential)) = &self.credential.0 {
            request = request.bearer_auth(credential);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        request.send().await.unwrap_or_else(|e| panic!("{self:?}: {e:?}"))
    }
}

fn query(
    operation: &Operation<'_>,
    schemas: &Schemas<'_>,
    known: &Known,
    random: &mut Random,
    fits: &mut bool,
) -> String {
    let mut members = Vec::new();
    let breaks = random.one_in(6);
    for parameter in operation.parameters("query") {
        let required = parameter["required"] == true;
        if !required && random.one_in(2) {
            continue;
        }
        let name = parameter["name"].as_str().unwrap();
        if name == "node_id" && random.one_in(2) {
            members.push(format!("node_id={}", known.nodes[0]));
            continue;
        }
        let value = schemas.fitting(&parameter["schema"], random);
        members.push(format!("{name}={}", percent(&value)));
        if breaks && random.one_in(2) && parameter["schema"]["type"] == "integer" {
            members.pop();
            members.push(format!("{name}=zzz"));
            *fits = false;
        }
    }
    // Somebody else's query is not described.
    if breaks && *fits && !operation.path.contains("/ports/") {
        let twice = members.first().cloned().unwrap_or_else(|| "zzz=1".to_owned());
        members.push(one_of(&[twice, "zzz=1".to_owned()], random).unwrap());
        *fits = false;
    }
    members.join("&")
}

fn percent(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

fn body(
    operation: &Operation<'_>,
    schemas: &Schemas<'_>,
    known: &Known,
    random: &mut Random,
    fits: &mut bool,
) -> Option<String> {
    let content = &operation.description["requestBody"]["content"];
    if content["application/octet-stream"].is_object() {
        return Some("x".repeat(random.below(2000) as usize));
    }
    let schema = &content["application/json"]["schema"];
    if schema.is_null() {
        return None;
    }
    match random.below(6) {
        0 => {
            *fits = false;
            let broken = ["", "{", "null", "[]", "{} {}", "\"text\"", "\u{feff}{}"];
            one_of(&broken, random).map(str::to_owned)
        }
        1 | 2 => match schemas.unfitting(schema, random) {
            Some(value) => {
                *fits = false;
                Some(value.to_string())
            }
            None => Some(schemas.fitting(schema, random).to_string()),
        },
        3 => Some(schemas.fitting(schema, random).to_string()),
        _ => {
            let likely = known.likely_body(operation, random);
            let body = likely.unwrap_or_else(|| schemas.fitting(schema, random));
            assert_eq!(schemas.misfit(schema, &body), None, "{}", operation.name());
            Some(body.to_string())
        }
    }
}

fn headers(operation: &Operation<'_>, random: &mut Random) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for parameter in operation.parameters("header") {
        let values: &[&str] = match parameter["name"].as_str().unwrap() {
            "Idempotency-Key" => &["a", "b", "c", "", "d e"],
            "Range" => &["bytes=0-1", "bytes=5-", "bytes=-1", "bytes=9-1", "x"],
            "If-Range" | "If-None-Match" => &["*", "\"a\"", "x"],
            "Content-Digest" => &["sha-256=:AAAA:", "md5=:AAAA:", "x"],
            // Told by the client itself, and sent with the credential it belongs to.
            "Content-Length" | "X-OAC-Node-ID" => continue,
            other => panic!("teach this test the header {other}"),
        };
        if let Some(value) = one_of(values, random)
            && random.one_in(2)
        {
            headers.push((parameter["name"].as_str().unwrap().to_owned(), value.to_owned()));
        }
    }
    headers
}
