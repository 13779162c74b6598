//! A scripted Docker Engine: the part of the API that the backend uses, over maps in memory. Commands run as
//! processes of the test's own, so their streams are real.

use std::{collections::BTreeMap, path::Path, process::Stdio, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http::{Answer, Never, answer, collect, query, refuse, serve, split};

/// What the engine holds, and what it says of its host. Tests change it directly.
pub(crate) struct World {
    pub(crate) info: Value,
    pub(crate) api: String,
    pub(crate) images: BTreeMap<String, Value>,
    pub(crate) networks: Vec<String>,
    pub(crate) containers: BTreeMap<String, Value>,
    pub(crate) volumes: BTreeMap<String, Value>,
    execs: BTreeMap<String, Value>,
    /// Archives as they were uploaded, by path.
    pub(crate) uploads: Vec<(String, Bytes)>,
    next: u64,
}

#[derive(Clone)]
pub(crate) struct ScriptedEngine {
    pub(crate) world: Arc<Mutex<World>>,
}

impl ScriptedEngine {
    pub(crate) fn start(socket: &Path, image: &str, network: &str) -> Self {
        let world = World {
            info: json!({
                "ID": "SCRIPTED", "MemoryLimit": true, "CpuCfsQuota": true, "NCPU": 4, "MemTotal": 8i64 << 30,
            }),
            api: "1.41".into(),
            images: [(
                image.to_owned(),
                json!({"Id": image, "Config": {"Env": ["PATH=/usr/bin"]}}),
            )]
            .into(),
            networks: vec![network.to_owned()],
            containers: BTreeMap::new(),
            volumes: BTreeMap::new(),
            execs: BTreeMap::new(),
            uploads: Vec::new(),
            next: 0,
        };
        let engine = Self {
            world: Arc::new(Mutex::new(world)),
        };
        let service = engine.clone();
        serve(socket, move |request| {
            let engine = service.clone();
            async move { Ok::<_, Never>(engine.handle(request).await) }
        });
        engine
    }

    async fn handle(&self, mut request: Request<Incoming>) -> Answer {
        let (path, q) = split(request.uri());
        let method = request.method().clone();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        if let ["exec", id, "start"] = segments[..] {
            let upgrade = hyper::upgrade::on(&mut request);
            let id = id.to_owned();
            let engine = self.clone();
            tokio::spawn(async move { engine.execute(&id, upgrade.await.unwrap()).await });
            return http::Response::builder()
                .status(101)
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "tcp")
                .body(Full::default())
                .unwrap();
        }
        let bytes = collect(request.into_body()).await;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let mut world = self.world.lock();
        let mut answer = match (method.as_str(), &segments[..]) {
            ("GET", ["_ping"]) => answer(200, json!("OK")),
            ("GET", ["info"]) => answer(200, world.info.clone()),
            ("GET", ["images", id, "json"]) => found(world.images.get(*id)),
            ("GET", ["networks", name]) => {
                found(world.networks.iter().any(|n| n == name).then_some(&json!({})))
            }
            ("GET", ["volumes"]) => {
                let wanted = wanted(&q);
                let all: Vec<_> = world
                    .volumes
                    .values()
                    .filter(|v| has(&v["Labels"], &wanted))
                    .collect();
                answer(200, json!({"Volumes": all, "Warnings": null}))
            }
            ("GET", ["volumes", name]) => found(world.volumes.get(*name)),
            ("POST", ["volumes", "create"]) => {
                let name = body["Name"].as_str().unwrap().to_owned();
                let new = json!({"Name": name, "Labels": body["Labels"]});
                answer(201, world.volumes.entry(name).or_insert(new).clone())
            }
            ("DELETE", ["volumes", name]) => match world.volumes.remove(*name) {
                Some(_) => answer(204, Value::Null),
                None => refuse(404, "no such volume"),
            },
            ("GET", ["containers", "json"]) => {
                let wanted = wanted(&q);
                let all: Vec<_> = world
                    .containers
                    .values()
                    .filter(|c| has(&c["Config"]["Labels"], &wanted))
                    .map(|c| json!({"Id": c["Id"], "Labels": c["Config"]["Labels"], "State": c["State"]["Status"]}))
                    .collect();
                answer(200, json!(all))
            }
            ("POST", ["containers", "create"]) => world.create(&query(&q, "name").unwrap(), &body),
            (_, ["containers", key, rest @ ..]) => world.container(&method, key, rest, &q, bytes),
            ("POST", _) => refuse(500, "not scripted"),
            ("GET", ["exec", id, "json"]) => found(world.execs.get(*id)),
            _ => refuse(500, "not scripted"),
        };
        let api = header::HeaderValue::from_str(&world.api).unwrap();
        answer.headers_mut().insert("api-version", api);
        answer
    }

    /// Runs the exec and frames its streams as the engine does.
    async fn execute(&self, id: &str, stream: hyper::upgrade::Upgraded) {
        let exec = self.world.lock().execs[id].clone();
        let args: Vec<String> = serde_json::from_value(exec["Cmd"].clone()).unwrap();
        let program = if args[0] == crate::image::TOOL {
            crate::image::tool()
        } else {
            args[0].clone().into()
        };
        let mut command = tokio::process::Command::new(program);
        command
            .args(&args[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(directory) = exec["WorkingDir"].as_str() {
            command.current_dir(directory);
        }
        let mut child = command.spawn().unwrap();
        let (mut input, output) = tokio::io::split(TokioIo::new(stream));
        let mut stdin = child.stdin.take().unwrap();
        let attached = exec["AttachStdin"] == true;
        let feed = tokio::spawn(async move {
            if attached {
                let _ = tokio::io::copy(&mut input, &mut stdin).await;
            }
            drop(stdin);
            input
        });
        let output = Arc::new(tokio::sync::Mutex::new(output));
        let one = frames(1, child.stdout.take().unwrap(), output.clone());
        let two = frames(2, child.stderr.take().unwrap(), output.clone());
        tokio::join!(one, two);
        let status = child.wait().await.unwrap();
        if let Some(exec) = self.world.lock().execs.get_mut(id) {
            exec["Running"] = false.into();
            exec["ExitCode"] = status.code().into();
        }
        let _ = output.lock().await.shutdown().await;
        feed.abort();
    }
}

async fn frames(
    number: u8,
    mut from: impl tokio::io::AsyncRead + Unpin,
    to: Arc<tokio::sync::Mutex<impl tokio::io::AsyncWrite + Unpin>>,
) {
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let read = from.read(&mut chunk).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let mut frame = vec![number, 0, 0, 0];
        frame.extend((read as u32).to_be_bytes());
        frame.extend(&chunk[..read]);
        if to.lock().await.write_all(&frame).await.is_err() {
            return;
        }
    }
}

impl World {
    fn create(&mut self, name: &str, body: &Value) -> Answer {
        if self.containers.values().any(|c| c["Name"] == format!("/{name}")) {
            return refuse(409, "the name is in use");
        }
        let Some(image) = self.images.get(body["Image"].as_str().unwrap()).cloned() else {
            return refuse(404, "no such image");
        };
        self.next += 1;
        let id = format!("{:064x}", self.next);
        let host = body["HostConfig"].as_object().cloned().unwrap_or_default();
        let mounts: Vec<Value> = host
            .get("Mounts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|m| json!({"Type": m["Type"], "Name": m["Source"], "Destination": m["Target"], "RW": true}))
            .collect();
        let network = host
            .get("NetworkMode")
            .and_then(Value::as_str)
            .unwrap_or("bridge")
            .to_owned();
        let networks: Map<String, Value> = [(network, json!({}))].into_iter().collect();
        let container = json!({
            "Id": id, "Name": format!("/{name}"), "Image": image["Id"],
            "State": {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z"},
            "Config": {
                "User": body["User"].as_str().unwrap_or_default(),
                "Env": image["Config"]["Env"], "Cmd": body["Cmd"], "Entrypoint": body["Entrypoint"],
                "WorkingDir": body["WorkingDir"].as_str().unwrap_or_default(), "Labels": body["Labels"],
            },
            "HostConfig": host, "Mounts": mounts, "NetworkSettings": {"Networks": networks},
        });
        self.containers.insert(id.clone(), container);
        answer(201, json!({"Id": id, "Warnings": []}))
    }

    fn container(&mut self, method: &Method, key: &str, rest: &[&str], q: &str, bytes: Bytes) -> Answer {
        let by_key = |c: &&Value| c["Id"] == key || c["Name"] == format!("/{key}");
        let Some(id) = self
            .containers
            .values()
            .find(by_key)
            .map(|c| c["Id"].as_str().unwrap().to_owned())
        else {
            return refuse(404, "no such container");
        };
        let container = self.containers.get_mut(&id).unwrap();
        let mut status = |s: &str| container["State"]["Status"] = s.into();
        match (method.as_str(), rest) {
            ("GET", ["json"]) => answer(200, container.clone()),
            ("POST", ["start"]) => {
                status("running");
                container["State"]["StartedAt"] = "2026-01-02T03:04:05.000000006Z".into();
                answer(204, Value::Null)
            }
            ("POST", ["kill"]) => {
                status("exited");
                answer(204, Value::Null)
            }
            ("PUT", ["archive"]) => {
                self.uploads.push((query(q, "path").unwrap(), bytes));
                answer(200, Value::Null)
            }
            ("GET", ["stats"]) => answer(
                200,
                json!({
                    "read": "2026-01-02T03:05:05.5Z",
                    "cpu_stats": {"cpu_usage": {"total_usage": 2_500_000_000u64}},
                    "memory_stats": {"usage": 7_340_032},
                }),
            ),
            ("POST", ["exec"]) => {
                self.next += 1;
                let exec_id = format!("{:064x}", self.next);
                let mut exec: Value = serde_json::from_slice(&bytes).unwrap();
                exec["ID"] = exec_id.clone().into();
                exec["Running"] = true.into();
                exec["ExitCode"] = Value::Null;
                self.execs.insert(exec_id.clone(), exec);
                answer(201, json!({"Id": exec_id}))
            }
            ("DELETE", []) => {
                self.containers.remove(&id);
                answer(204, Value::Null)
            }
            _ => refuse(500, "not scripted"),
        }
    }
}

fn found(value: Option<&Value>) -> Answer {
    value.map_or_else(|| refuse(404, "no such thing"), |v| answer(200, v.clone()))
}

fn wanted(q: &str) -> Vec<String> {
    let filters: Value = query(q, "filters").map_or(Value::Null, |f| serde_json::from_str(&f).unwrap());
    serde_json::from_value(filters["label"].clone()).unwrap_or_default()
}

fn has(labels: &Value, wanted: &[String]) -> bool {
    wanted.iter().all(|w| {
        let (key, value) = w.split_once('=').unwrap();
        labels[key] == value
    })
}
