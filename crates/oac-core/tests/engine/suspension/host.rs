//! Nodes that keep checkpoints: the scripted provider behind the real protocol, and the runtime in its sandbox.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::SinkExt as _;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use oac_link::{
    Hello, Socket,
    service::{ErrorAnswer, QuiesceAnswer, Status, codes},
};
use oac_model::{AllocationId, BootId, Digest, InstanceId, NodeId, Reference, Secret};
use oac_provider::{
    Failure, NativeWork,
    fake::FakeWorld,
    suite::{Arrange, World},
};
use oac_testkit::core::{EnrolledNode, TestCore};
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{Arguments, Health, Request as Asked, Response as Answered, ResponseResult},
    shapes::{CommandResult, LinkResource, Operation},
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_tungstenite::tungstenite::Message;

use crate::node::{Greeted, greet, health, heartbeat, receive};

/// What stands behind every node of a test: one store, and one place where computes are. It outlives the nodes.
pub struct Backend {
    pub world: FakeWorld,
    script: Mutex<HashMap<&'static str, VecDeque<Act>>>,
    /// Every request that arrived, in order, and when.
    pub requests: Mutex<Vec<(NodeId, Operation, Instant)>>,
    refused: Mutex<Vec<(NodeId, Operation)>>,
    /// Of nodes whose execution class is another.
    classes: Mutex<HashMap<NodeId, Digest>>,
    /// Captures end with the source running and nothing kept.
    pub captures_fail: AtomicBool,
    /// What `compute` answers shows no native id.
    pub anonymous: AtomicBool,
    runtimes: Mutex<HashMap<AllocationId, Runtime>>,
}

/// How the next request for an operation is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// The node is killed before it does anything.
    DieBefore,
    /// It is done, and the node is killed before it answers.
    DieAfter,
    /// It is neither done nor answered, and the node goes on.
    Ignore,
}

/// What a runtime answers to the word to be quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quiet {
    #[default]
    Yes,
    Busy,
    /// Nothing, ever.
    Silent,
}

/// A runtime's way to Core, and what it was asked.
#[derive(Clone)]
struct Runtime {
    credential: Secret,
    resource: LinkResource,
    instance_id: InstanceId,
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    quiet: Arc<Mutex<Quiet>>,
    /// Its status call is never answered.
    mute: Arc<AtomicBool>,
    link: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Backend {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            world: FakeWorld::new(NativeWork::Helper, None),
            script: Mutex::default(),
            requests: Mutex::default(),
            refused: Mutex::default(),
            classes: Mutex::default(),
            captures_fail: AtomicBool::default(),
            anonymous: AtomicBool::default(),
            runtimes: Mutex::default(),
        })
    }

    pub fn plan(&self, operation: Operation, acts: &[Act]) {
        let mut script = self.script.lock();
        script.entry(operation.as_str()).or_default().extend(acts);
    }

    pub fn count(&self, operation: Operation) -> usize {
        self.requests
            .lock()
            .iter()
            .filter(|(_, o, _)| *o == operation)
            .count()
    }

    /// Nodes that were sent the operation.
    pub fn asked(&self, operation: Operation) -> Vec<NodeId> {
        let requests = self.requests.lock();
        requests
            .iter()
            .filter(|(_, o, _)| *o == operation)
            .map(|(node, ..)| *node)
            .collect()
    }

    /// The node refuses the operation from now on.
    pub fn refuse(&self, node: NodeId, operation: Operation) {
        self.refused.lock().push((node, operation));
    }

    /// The node says from its next connection on that it executes as this class does; as all do when nothing was said.
    pub fn set_class(&self, node: NodeId, class: Option<Digest>) {
        let mut classes = self.classes.lock();
        match class {
            Some(class) => drop(classes.insert(node, class)),
            None => drop(classes.remove(&node)),
        }
    }

    /// What the runtime was asked, in order.
    pub fn runtime_asked(&self, id: AllocationId) -> Vec<String> {
        self.runtimes
            .lock()
            .get(&id)
            .map(|r| r.asked.lock().clone())
            .unwrap_or_default()
    }

    /// What the runtime answers to the word to be quiet from now on.
    pub fn set_quiet(&self, id: AllocationId, quiet: Quiet) {
        if let Some(runtime) = self.runtimes.lock().get(&id) {
            *runtime.quiet.lock() = quiet;
        }
    }

    /// The runtime dials anew, and answers no status call from then on, or all.
    pub async fn relink(&self, id: AllocationId, mute: bool) {
        let runtime = self.runtimes.lock().get(&id).cloned().unwrap();
        runtime.mute.store(mute, Ordering::SeqCst);
        let link = runtime.link.lock().take();
        if let Some(link) = link {
            link.abort();
            let _ = link.await;
        }
        self.link(id);
    }

    fn health(&self, node: NodeId) -> Health {
        let class = self.classes.lock().get(&node).copied();
        Health {
            execution_class: Nullable(Some(class.unwrap_or_else(|| Digest::of("class")))),
            checkpoint_store: Nullable(self.world.marker().map(|id| id.parse().unwrap())),
            ..health(true)
        }
    }

    /// The runtime dials, unless it is linked.
    fn link(&self, id: AllocationId) {
        let Some(runtime) = self.runtimes.lock().get(&id).cloned() else {
            return;
        };
        let mut link = runtime.link.lock();
        if link.as_ref().is_none_or(JoinHandle::is_finished) {
            *link = Some(spawn(serve_link(runtime.clone())));
        }
    }

    async fn perform(&self, request: &Asked) -> Result<Option<ResponseResult>, Failure> {
        let body = request.body.as_ref().unwrap();
        let (r, by) = (&body.reference, Instant::now() + Duration::from_secs(30));
        let provider = self.world.provider();
        let state = |s| Some(ResponseResult::State(Box::new(s)));
        let compute = |c| Some(ResponseResult::Compute(Box::new(c)));
        match &body.arguments {
            Arguments::Create(b) => {
                let info = provider.create(b, by).await.map_err(|failed| failed.failure)?;
                self.runtimes.lock().insert(
                    r.allocation_id,
                    Runtime {
                        credential: b.link.credential.clone(),
                        resource: b.link.resource,
                        instance_id: InstanceId::random(),
                        url: b.link.link_url.clone(),
                        asked: Arc::default(),
                        quiet: Arc::default(),
                        mute: Arc::default(),
                        link: Arc::default(),
                    },
                );
                self.link(r.allocation_id);
                Ok(Some(ResponseResult::Info(info)))
            }
            Arguments::Info => provider.info(r, by).await.map(ResponseResult::Info).map(Some),
            Arguments::Kill => provider.kill(r, by).await.map(|()| None),
            Arguments::Initial => provider.initial(r, by).await.map(compute),
            Arguments::NewCompute { generation, retained } => provider
                .new_compute(r, generation.get(), retained.as_deref(), by)
                .await
                .map(compute),
            Arguments::Compute(c) => {
                let mut seen = provider.compute(r, c, by).await?;
                if self.anonymous.load(Ordering::SeqCst) {
                    seen.compute.id = Nullable(None);
                }
                Ok(state(seen))
            }
            Arguments::KillCompute(c) => provider.kill_compute(r, c, by).await.map(|()| None),
            Arguments::ResumeCompute(c) => provider.resume_compute(r, c, by).await.map(state),
            // The wake command: the runtime that was captured reconnects.
            Arguments::CommandCompute(c, _) => {
                let running = provider.compute(r, c, by).await?.status == "running";
                if running {
                    self.link(r.allocation_id);
                }
                Ok(Some(ResponseResult::Command(exited(if running {
                    0
                } else {
                    75
                }))))
            }
            Arguments::Suspend(s) if self.captures_fail.load(Ordering::SeqCst) => {
                provider.compute(r, &s.source, by).await.map(state)
            }
            Arguments::Suspend(s) => provider.suspend(s, by).await.map(state),
            Arguments::Resume(s) => provider.resume(s, by).await.map(state),
            Arguments::DeleteRetained(k) => provider.delete_retained(r, k, by).await.map(|()| None),
            // What runs is measured, by its name.
            Arguments::Observe(o) => {
                let Some(named) = o.instance.compute.0.as_ref() else {
                    return Err(Failure::RuntimeNotRunning);
                };
                let running = provider.compute(r, named, by).await?.status == "running";
                let sample = running.then(|| ResponseResult::Sample(crate::node::sample()));
                sample.map(Some).ok_or(Failure::RuntimeNotRunning)
            }
            Arguments::Renew | Arguments::Command(_) => Err(Failure::RuntimeNotRunning),
        }
    }

    /// Nothing native is left of the reference, and no checkpoint.
    pub async fn is_clean(&self, reference: &Reference) -> bool {
        self.world.present(reference).await.is_empty() && self.world.checkpoints(reference).is_empty()
    }

    pub async fn arrange(&self, what: Arrange) {
        self.world.arrange(what).await;
    }
}

fn exited(exit_code: i64) -> CommandResult {
    CommandResult {
        stdout: oac_wire::B64(Vec::new()),
        stderr: oac_wire::B64(Vec::new()),
        stdout_truncated: false,
        stderr_truncated: false,
        exit_code,
    }
}

async fn serve_link(runtime: Runtime) {
    let Ok((socket, _)) = tokio_tungstenite::connect_async(&runtime.url).await else {
        return;
    };
    let hello = Hello {
        credential: runtime.credential.clone(),
        resource: runtime.resource,
        runtime_version: "test".to_owned(),
        instance_id: runtime.instance_id,
    };
    let Ok((_, server)) = oac_link::introduce(Socket::from_tungstenite(socket), &hello).await else {
        return;
    };
    let (_stop, stopped) = mpsc::channel(1);
    let service = service_fn(move |request: Request<Incoming>| {
        let runtime = runtime.clone();
        async move {
            let name = format!("{} {}", request.method(), request.uri().path());
            runtime.asked.lock().push(name.clone());
            Ok::<_, Infallible>(match name.as_str() {
                "GET /v1/status" if runtime.mute.load(Ordering::SeqCst) => std::future::pending().await,
                "GET /v1/status" => answer(
                    200,
                    &Status {
                        runtime_version: "test".to_owned(),
                        instance_id: runtime.instance_id,
                        boot_id: BootId::random(),
                        parked: false,
                        turns: Vec::new(),
                    },
                ),
                "POST /v1/quiesce" => {
                    let quiet = *runtime.quiet.lock();
                    match quiet {
                        Quiet::Yes => answer(200, &QuiesceAnswer { quiesced: true }),
                        Quiet::Busy => answer(409, &error(codes::BUSY)),
                        Quiet::Silent => std::future::pending().await,
                    }
                }
                _ => answer(503, &error(codes::STOPPING)),
            })
        }
    });
    server.serve(service, stopped).await;
}

fn error(code: &str) -> ErrorAnswer {
    ErrorAnswer {
        code: code.to_owned(),
        message: "test".to_owned(),
    }
}

fn answer<T: serde::Serialize>(status: u16, value: &T) -> Response<Full<Bytes>> {
    let body = Full::new(serde_json::to_vec(value).unwrap().into());
    Response::builder().status(status).body(body).unwrap()
}

/// One enrolled node before the backend.
pub struct Node {
    pub enrolled: EnrolledNode,
    backend: Arc<Backend>,
    task: Option<JoinHandle<()>>,
}

impl Node {
    pub async fn start(core: &TestCore, backend: &Arc<Backend>, active: u32, retained: u32) -> Self {
        let limits = serde_json::json!({ "max_active": active, "max_retained": retained });
        let mut node = Self {
            enrolled: core.enroll(&limits).await,
            backend: backend.clone(),
            task: None,
        };
        node.connect(core).await;
        node
    }

    pub fn id(&self) -> NodeId {
        self.enrolled.node_id
    }

    pub async fn connect(&mut self, core: &TestCore) {
        self.kill().await;
        let greeted = loop {
            match greet(core, &self.enrolled, &self.backend.health(self.id())).await {
                Ok(greeted) => break greeted,
                Err(status) => {
                    assert!(
                        matches!(status.as_u16(), 409 | 503),
                        "the dial was answered {status}"
                    );
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let (backend, id) = (self.backend.clone(), self.id());
        self.task = Some(spawn(async move { serve(greeted, backend, id).await }));
    }

    /// Kills the node's process and waits until Core knows that it is away.
    pub async fn lose(&mut self, core: &TestCore) {
        self.kill().await;
        crate::world::eventually("the node is away", async || {
            core.core().hub.connected(self.id()).is_none()
        })
        .await;
    }

    /// Kills the node's process; what is behind it stays.
    pub async fn kill(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub fn is_dead(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[allow(clippy::disallowed_methods)] // A node's process or a runtime's, in this one.
fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(future)
}

async fn serve(mut greeted: Greeted, backend: Arc<Backend>, id: NodeId) {
    let mut beat = tokio::time::interval(Duration::from_secs(10));
    beat.tick().await;
    loop {
        let frame = tokio::select! {
            frame = receive(&mut greeted.socket) => frame,
            _ = beat.tick() => {
                let beat = heartbeat(&greeted, backend.health(id));
                crate::node::send(&mut greeted.socket, &beat).await;
                continue;
            }
        };
        let request = match frame {
            Some(CoreFrame::Request(request)) => request,
            Some(_) => continue,
            None => return,
        };
        let operation = request.body.as_ref().unwrap().arguments.operation();
        backend.requests.lock().push((id, operation, Instant::now()));
        let act = backend
            .script
            .lock()
            .get_mut(operation.as_str())
            .and_then(VecDeque::pop_front);
        match act {
            Some(Act::DieBefore) => return,
            Some(Act::Ignore) => continue,
            Some(Act::DieAfter) | None => {}
        }
        let result = if backend.refused.lock().contains(&(id, operation)) {
            Err(Failure::RuntimeNotRunning.code())
        } else {
            backend.perform(&request).await.map_err(|failure| failure.code())
        };
        if act == Some(Act::DieAfter) {
            return;
        }
        let response = Answered {
            id: request.id,
            connection_id: greeted.welcome.connection_id,
            error_code: result.as_ref().err().map(|code| (*code).to_owned()),
            result: Ok(result.ok().flatten()),
        };
        let text = NodeFrame::Response(Box::new(response)).encode().unwrap();
        if greeted.socket.send(Message::text(text)).await.is_err() {
            return;
        }
    }
}
