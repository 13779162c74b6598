//! A scripted node.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use oac_model::{AllocationId, NodeId, ProviderKind, Reference, Secret, Time};
use oac_testkit::core::{EnrolledNode, TestCore};
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{Arguments, Health, Heartbeat, Hello, Identity, Request, Response, ResponseResult, Welcome},
    shapes::{Info, Operation, Sample},
};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{net::TcpStream, sync::Notify, task::JoinHandle};
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
    tungstenite::{Error, Message, client::IntoClientRequest as _, http::StatusCode},
};

pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How the node treats the next request for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Does it and answers.
    Answer,
    /// Does it; the answer is lost.
    Swallow,
    /// Is killed before it does anything.
    DieBefore,
    /// Is killed halfway: Docker created the container, or kill removed it, and no receipt says so.
    DieHalfway,
    /// Does it, then is killed before it answers.
    DieAfter,
    /// Definitely makes nothing and says so with a receipt.
    Reject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receipt {
    #[default]
    None,
    Creating,
    Settled,
    Killing,
    Tombstone,
}

/// What the engine holds of one allocation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native {
    pub receipt: Receipt,
    pub running: bool,
    pub volumes: bool,
    /// Containers ever created.
    pub created: u32,
    /// It ended within this boot, and is still there.
    pub ended: bool,
}

/// The host behind a node; it outlives the node's process.
#[derive(Default)]
pub struct Host {
    pub natives: HashMap<AllocationId, Native>,
    /// Every request that arrived, in order.
    pub requests: Vec<(Operation, AllocationId)>,
    /// The link credential each create delivered.
    pub credentials: HashMap<AllocationId, Secret>,
    pub script: HashMap<&'static str, VecDeque<Act>>,
    pub provider_ready: bool,
}

impl Host {
    fn next(&mut self, operation: Operation) -> Act {
        self.script
            .get_mut(operation.as_str())
            .and_then(VecDeque::pop_front)
            .unwrap_or(Act::Answer)
    }
}

/// One enrolled node and its host.
pub struct Node {
    pub enrolled: EnrolledNode,
    pub host: Arc<Mutex<Host>>,
    /// Something arrived or a connection ended.
    pub changed: Arc<Notify>,
    task: Option<JoinHandle<()>>,
}

/// A connection past its welcome.
pub struct Greeted {
    pub socket: Socket,
    pub welcome: Welcome,
}

impl Node {
    /// Enrolls; not connected yet.
    pub async fn enroll(core: &TestCore, slots: u32) -> Self {
        let limits = serde_json::json!({ "max_active": slots, "max_retained": slots });
        let host = Host {
            provider_ready: true,
            ..Host::default()
        };
        Self {
            enrolled: core.enroll(&limits).await,
            host: Arc::new(Mutex::new(host)),
            changed: Arc::new(Notify::new()),
            task: None,
        }
    }

    /// Enrolled, connected and serving.
    pub async fn start(core: &TestCore, slots: u32) -> Self {
        let mut node = Self::enroll(core, slots).await;
        node.connect(core).await;
        node
    }

    pub fn id(&self) -> NodeId {
        self.enrolled.node_id
    }

    pub fn plan(&self, operation: Operation, acts: &[Act]) {
        self.host
            .lock()
            .script
            .entry(operation.as_str())
            .or_default()
            .extend(acts);
    }

    /// Native state and requests of one allocation.
    pub fn native(&self, id: AllocationId) -> Native {
        self.host.lock().natives.get(&id).copied().unwrap_or_default()
    }

    pub fn count(&self, operation: Operation) -> usize {
        self.host
            .lock()
            .requests
            .iter()
            .filter(|(o, _)| *o == operation)
            .count()
    }

    /// Connects again, waiting until Core has freed the identity, and serves.
    pub async fn connect(&mut self, core: &TestCore) {
        self.connect_to(&core.url).await;
    }

    /// Likewise, to a Core at `url`.
    pub async fn connect_to(&mut self, url: &str) {
        let dialed = self.dial(url).await;
        assert_eq!(dialed, Ok(()), "the dial was refused");
    }

    /// Likewise, unless Core refuses this identity for good.
    pub async fn dial(&mut self, url: &str) -> Result<(), StatusCode> {
        self.kill().await;
        let greeted = loop {
            match greet_at(url, &self.enrolled, &self.health()).await {
                Ok(greeted) => break greeted,
                Err(status) if matches!(status.as_u16(), 409 | 503) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(status) => return Err(status),
            }
        };
        let (host, changed) = (self.host.clone(), self.changed.clone());
        self.task = Some(spawn(async move {
            serve(greeted, host).await;
            changed.notify_waiters();
        }));
        Ok(())
    }

    /// Kills the node's process; its host stays as it is.
    pub async fn kill(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Aborted or ended: either way it is gone.
            let _ = task.await;
        }
    }

    /// Waits until a scripted act killed the process.
    pub async fn dead(&mut self) {
        if let Some(task) = self.task.take() {
            tokio::time::timeout(Duration::from_secs(20), task)
                .await
                .unwrap()
                .unwrap();
        }
    }

    pub fn health(&self) -> Health {
        health(self.host.lock().provider_ready)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[allow(clippy::disallowed_methods)] // The node's process, in this one.
fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(future)
}

pub fn health(provider_ready: bool) -> Health {
    Health {
        provider_ready,
        observed_at: Time::from_millis(1_700_000_000_000).unwrap(),
        active_operations: 0,
        cpu_utilization: Nullable(Some(0.5)),
        total_memory_bytes: Nullable(Some(16 << 30)),
        effective_cpu_cores: Nullable(Some(8.0)),
        cpu_count: Nullable(Some(8)),
        available_memory_bytes: Nullable(Some(8 << 30)),
        available_disk_bytes: Nullable(Some(100 << 30)),
        execution_class: Nullable(None),
        checkpoint_store: Nullable(None),
        boot_id: Nullable(None),
        diagnostic: None,
        generations: None,
    }
}

pub fn identity(enrolled: &EnrolledNode) -> Identity {
    let id = &enrolled.identity;
    Identity {
        node_id: enrolled.node_id,
        installation_id: id["installation_id"].as_str().unwrap().parse().unwrap(),
        provider: ProviderKind::from_text(id["provider"].as_str().unwrap()).unwrap(),
        backend_fingerprint: oac_model::backend_fingerprint(
            ProviderKind::Docker,
            "unix:///var/run/docker.sock",
        ),
        deployment_generation: id["deployment_generation"].as_i64().unwrap().try_into().unwrap(),
        specification_digest: id["specification_digest"].as_str().unwrap().parse().unwrap(),
        max_active: id["max_active"].as_i64().unwrap(),
        max_retained: id["max_retained"].as_i64().unwrap(),
    }
}

pub fn hello(enrolled: &EnrolledNode, health: &Health) -> Hello {
    Hello {
        identity: identity(enrolled),
        health: health.clone(),
        generation_management: None,
    }
}

/// In the clear, or by TLS with a Core of the test authority.
fn connector(core_url: &str) -> Connector {
    if core_url.starts_with("http:") {
        return Connector::Plain;
    }
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(oac_testkit::tls::AUTHORITY.as_bytes());
    roots.add(authority.unwrap()).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Connector::Rustls(Arc::new(config))
}

/// Dials; the status when there is no upgrade.
pub async fn dial(core: &TestCore, enrolled: &EnrolledNode) -> Result<Socket, StatusCode> {
    dial_at(&core.url, enrolled).await
}

async fn dial_at(core_url: &str, enrolled: &EnrolledNode) -> Result<Socket, StatusCode> {
    match try_dial_at(core_url, enrolled).await {
        Ok(socket) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status()),
        Err(error) => panic!("no answer to a dial: {error}"),
    }
}

/// Dials, whatever comes of it.
pub async fn try_dial(core: &TestCore, enrolled: &EnrolledNode) -> Result<Socket, Error> {
    try_dial_at(&core.url, enrolled).await
}

async fn try_dial_at(core_url: &str, enrolled: &EnrolledNode) -> Result<Socket, Error> {
    let url = format!(
        "{}/api/v1/sandbox-node/connect?node_id={}",
        core_url.replacen("http", "ws", 1),
        enrolled.node_id
    );
    let mut request = url.into_client_request()?;
    let bearer = format!("Bearer {}", enrolled.credential.expose());
    request
        .headers_mut()
        .insert("authorization", bearer.parse().unwrap());
    let dialed = connect_async_tls_with_config(request, None, false, Some(connector(core_url)));
    dialed.await.map(|(socket, _)| socket)
}

pub async fn send(socket: &mut Socket, frame: &NodeFrame) {
    socket.send(Message::text(frame.encode().unwrap())).await.unwrap();
}

/// The next frame; `None` when the connection ended.
pub async fn receive(socket: &mut Socket) -> Option<CoreFrame> {
    loop {
        match tokio::time::timeout(Duration::from_secs(30), socket.next())
            .await
            .expect("Core said nothing")
        {
            Some(Ok(Message::Text(text))) => return Some(CoreFrame::decode(text.as_bytes()).unwrap()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            None | Some(Err(_) | Ok(_)) => return None,
        }
    }
}

/// Dials and greets; the status when there is no upgrade.
pub async fn greet(core: &TestCore, enrolled: &EnrolledNode, health: &Health) -> Result<Greeted, StatusCode> {
    greet_at(&core.url, enrolled, health).await
}

async fn greet_at(core_url: &str, enrolled: &EnrolledNode, health: &Health) -> Result<Greeted, StatusCode> {
    let mut socket = dial_at(core_url, enrolled).await?;
    send(&mut socket, &NodeFrame::Hello(Box::new(hello(enrolled, health)))).await;
    match receive(&mut socket).await {
        Some(CoreFrame::Welcome(welcome)) => Ok(Greeted { socket, welcome }),
        other => panic!("no welcome but {other:?}"),
    }
}

pub fn heartbeat(greeted: &Greeted, health: Health) -> NodeFrame {
    NodeFrame::Heartbeat(Box::new(Heartbeat {
        connection_id: greeted.welcome.connection_id,
        owner_epoch: greeted.welcome.owner_epoch,
        health,
    }))
}

/// Serves until the connection ends or a scripted act kills the node.
async fn serve(mut greeted: Greeted, host: Arc<Mutex<Host>>) {
    let mut beat = tokio::time::interval(Duration::from_secs(10));
    beat.tick().await;
    loop {
        let frame = tokio::select! {
            frame = next(&mut greeted.socket) => frame,
            _ = beat.tick() => {
                let health = health(host.lock().provider_ready);
                let beat = heartbeat(&greeted, health);
                send(&mut greeted.socket, &beat).await;
                continue;
            }
        };
        let request = match frame {
            Some(CoreFrame::Request(request)) => request,
            Some(_) => continue,
            None => return,
        };
        match perform(&host, &request) {
            Performed::Dead => return,
            Performed::Silent => {}
            Performed::Answer(error_code, result) => {
                let response = Response {
                    id: request.id,
                    connection_id: greeted.welcome.connection_id,
                    error_code: error_code.map(str::to_owned),
                    result: Ok(result),
                };
                let text = NodeFrame::Response(Box::new(response)).encode().unwrap();
                if greeted.socket.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn next(socket: &mut Socket) -> Option<CoreFrame> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Some(CoreFrame::decode(text.as_bytes()).unwrap()),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            None | Some(Err(_) | Ok(_)) => return None,
        }
    }
}

enum Performed {
    Answer(Option<&'static str>, Option<ResponseResult>),
    Silent,
    Dead,
}

/// The provider of providers.md section 4, in small.
fn perform(host: &Mutex<Host>, request: &Request) -> Performed {
    let body = request.body.as_ref().unwrap();
    let reference = body.reference;
    let id = reference.allocation_id;
    let operation = body.arguments.operation();
    let mut host = host.lock();
    host.requests.push((operation, id));
    let act = host.next(operation);
    if act == Act::DieBefore {
        return Performed::Dead;
    }
    if let Arguments::Create(bootstrap) = &body.arguments {
        host.credentials.insert(id, bootstrap.link.credential.clone());
    }
    let mut unknown = Native::default();
    let native = match operation {
        // Asking makes nothing.
        Operation::Info => host.natives.get_mut(&id).unwrap_or(&mut unknown),
        _ => host.natives.entry(id).or_default(),
    };
    let answer = match operation {
        Operation::Create if native.receipt != Receipt::None => (Some("exists"), None),
        Operation::Create if act == Act::Reject => {
            native.receipt = Receipt::Tombstone;
            (
                Some("invalid"),
                Some(ResponseResult::Info(absent(reference, false))),
            )
        }
        Operation::Create => {
            *native = Native {
                ended: false,
                receipt: Receipt::Creating,
                running: false,
                volumes: true,
                created: native.created + 1,
            };
            if act == Act::DieHalfway {
                return Performed::Dead;
            }
            native.running = true;
            native.receipt = Receipt::Settled;
            (
                None,
                Some(ResponseResult::Info(info_of(native, reference).unwrap())),
            )
        }
        Operation::Kill => {
            native.receipt = Receipt::Killing;
            native.running = false;
            if act == Act::DieHalfway {
                return Performed::Dead;
            }
            native.volumes = false;
            native.receipt = Receipt::Tombstone;
            (None, None)
        }
        Operation::Info => match info_of(native, reference) {
            Some(info) => (None, Some(ResponseResult::Info(info))),
            None => (Some("not_found"), None),
        },
        Operation::Observe if act == Act::Reject => (Some("runtime_not_running"), None),
        Operation::Observe => (None, Some(ResponseResult::Sample(sample()))),
        _ => (Some("unconfirmed"), None),
    };
    match act {
        Act::Swallow => Performed::Silent,
        Act::DieAfter => Performed::Dead,
        _ => Performed::Answer(answer.0, answer.1),
    }
}

pub fn sample() -> Sample {
    Sample {
        observed_at: Time::from_millis(1_700_000_000_000).unwrap(),
        started_at: Nullable(None),
        cpu_usage_seconds_total: Nullable(Some(1.5)),
        cpu_capacity_cores: Nullable(Some(2.0)),
        cpu_utilization_ratio: None,
        memory_usage_bytes: Nullable(Some(1 << 20)),
        memory_limit_bytes: Nullable(None),
        disk_usage_bytes: None,
        disk_limit_bytes: None,
    }
}

fn absent(reference: Reference, compute_lost: bool) -> Info {
    Info {
        reference,
        provider_id: String::new(),
        state: Info::ABSENT.to_owned(),
        bootstrap_complete: false,
        create_settled: true,
        compute_lost,
    }
}

fn info_of(native: &mut Native, reference: Reference) -> Option<Info> {
    match native.receipt {
        Receipt::Tombstone => Some(absent(reference, false)),
        Receipt::Settled if native.ended => Some(Info {
            provider_id: "container".to_owned(),
            state: "exited".to_owned(),
            bootstrap_complete: true,
            ..absent(reference, false)
        }),
        Receipt::Settled if !native.running => Some(absent(reference, true)),
        Receipt::Creating | Receipt::Settled if native.running => {
            native.receipt = Receipt::Settled;
            Some(Info {
                provider_id: "container".to_owned(),
                state: Info::RUNNING.to_owned(),
                bootstrap_complete: true,
                ..absent(reference, false)
            })
        }
        // A container that was created and never started.
        Receipt::Creating if native.volumes => Some(Info {
            provider_id: "container".to_owned(),
            state: "created".to_owned(),
            create_settled: false,
            ..absent(reference, false)
        }),
        _ => None,
    }
}
