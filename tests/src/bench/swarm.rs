//! Many nodes in this process: each is the node's end of the protocol over a WebSocket of its own, with a provider that
//! answers at once.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use oac_model::{AllocationId, Digest, Generation, Secret, Time};
use oac_peer::{
    FailureCode, Moment, Outcome,
    limits::DIAL_MILLIS,
    node::{Action, Event, Job, Local, Node, Refresh, Standing},
};
use oac_wire::{
    Nullable,
    frames::{Health, Identity, ResponseResult},
    shapes::{Info, Operation},
};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        Error, Message, client::IntoClientRequest as _, http::StatusCode, protocol::WebSocketConfig,
    },
};

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// Loopback addresses that connections leave from in turn, so that none of them runs out of ports.
const SOURCES: u8 = 8;

/// One registered node.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) identity: Identity,
    pub(crate) credential: Secret,
}

/// Running nodes; they end when it is dropped.
pub(crate) struct Swarm {
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
    started: usize,
}

struct Shared {
    core: SocketAddr,
    base: Instant,
    connected: AtomicUsize,
    /// When nodes were accepted, in milliseconds after `base`.
    accepted: watch::Sender<Vec<u64>>,
    /// Whether nodes manage generations; each then has every one prepared that it hears of.
    managing: bool,
    /// When nodes came to serve the target, in milliseconds after `base`.
    moved: watch::Sender<Vec<u64>>,
}

impl Shared {
    fn now(&self) -> Moment {
        Moment(self.base.elapsed().as_millis() as u64)
    }
}

impl Swarm {
    /// Of a Core that listens on a loopback address; no node runs yet.
    pub(crate) fn of(core: SocketAddr) -> Self {
        Self::new(core, false)
    }

    /// Likewise, of nodes that manage generations.
    pub(crate) fn managing(core: SocketAddr) -> Self {
        Self::new(core, true)
    }

    fn new(core: SocketAddr, managing: bool) -> Self {
        Self {
            tasks: JoinSet::new(),
            shared: Arc::new(Shared {
                core,
                base: Instant::now(),
                connected: AtomicUsize::new(0),
                accepted: watch::Sender::new(Vec::new()),
                managing,
                moved: watch::Sender::new(Vec::new()),
            }),
            started: 0,
        }
    }

    /// Starts these nodes; each dials at once.
    pub(crate) fn start(&mut self, members: &[Member]) {
        for member in members {
            let source = Ipv4Addr::new(127, 0, 0, 1 + (self.started % usize::from(SOURCES)) as u8);
            let seed = self.started as u64;
            self.started += 1;
            self.tasks
                .spawn(run(member.clone(), source, seed, self.shared.clone()));
        }
    }

    /// Connected now.
    pub(crate) fn connected(&self) -> usize {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// Forgets when nodes were accepted so far, and counts from now.
    pub(crate) fn watch(&self) -> Coming {
        self.coming(&self.shared.accepted)
    }

    /// Forgets when nodes came to serve a target so far, and counts from now.
    pub(crate) fn watch_moves(&self) -> Coming {
        self.coming(&self.shared.moved)
    }

    fn coming(&self, there: &watch::Sender<Vec<u64>>) -> Coming {
        there.send_modify(Vec::clear);
        Coming {
            from: self.shared.now(),
            there: there.subscribe(),
        }
    }
}

/// Nodes on their way to a connection, or to a target.
pub(crate) struct Coming {
    from: Moment,
    there: watch::Receiver<Vec<u64>>,
}

impl Coming {
    /// Waits until `count` nodes are there; the moments, in seconds from the start of watching, in order.
    pub(crate) async fn all(mut self, count: usize, limit: Duration) -> Result<Vec<f64>> {
        let reached = timeout(limit, self.there.wait_for(|all| all.len() >= count))
            .await
            .is_ok();
        if !reached {
            let so_far = self.there.borrow().len();
            bail!("{so_far} of {count} nodes were there within {limit:?}");
        }
        let there = self.there.borrow().clone();
        Ok(there
            .iter()
            .map(|at| at.saturating_sub(self.from.0) as f64 / 1000.0)
            .collect())
    }
}

pub(crate) fn small_buffers() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(0)
}

/// What a node says of itself, in the size of a real report.
pub(crate) fn health() -> Health {
    Health {
        provider_ready: true,
        observed_at: now(),
        active_operations: 0,
        cpu_utilization: Nullable(Some(0.125)),
        total_memory_bytes: Nullable(Some(68_719_476_736)),
        effective_cpu_cores: Nullable(Some(16.0)),
        cpu_count: Nullable(Some(16)),
        available_memory_bytes: Nullable(Some(34_359_738_368)),
        available_disk_bytes: Nullable(Some(500_107_862_016)),
        execution_class: Nullable(None),
        checkpoint_store: Nullable(None),
        boot_id: Nullable(Some(oac_model::BootId::random())),
        diagnostic: None,
        generations: None,
    }
}

pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time::from_millis(since.map_or(0, |since| since.as_millis() as i64))
        .unwrap_or_else(|| unreachable!("the clock is between 1970 and 9999"))
}

async fn run(member: Member, source: Ipv4Addr, seed: u64, shared: Arc<Shared>) {
    let identity = &member.identity;
    let mut node = Node::new(identity.clone(), 0, 8, seed, shared.now());
    let mut held = vec![prepared(
        identity.deployment_generation,
        identity.specification_digest,
    )];
    if shared.managing {
        node = node.managing(held.clone());
    }
    let health = health();
    let (mut socket, mut live, mut epoch): (Option<Socket>, bool, i64) = (None, false, 0);
    let mut killed = HashSet::new();
    loop {
        let wakeup = node
            .next_wakeup()
            .map(|at| shared.base + Duration::from_millis(at.0));
        let received = tokio::select! {
            received = next(&mut socket) => Some(received),
            () = async { match wakeup {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            } } => None,
        };
        let mut actions = match &received {
            None => node.apply(Event::Tick, shared.now()),
            Some(Some(Ok(Message::Text(text)))) => node.apply(Event::Message(text.as_bytes()), shared.now()),
            Some(Some(Ok(_))) => continue,
            Some(None | Some(Err(_))) => node.apply(Event::Lost, shared.now()),
        };
        // Whatever an action causes comes before the actions after it, as in the node program.
        actions.reverse();
        while let Some(action) = actions.pop() {
            let event = match action {
                Action::Dial => match timeout(
                    Duration::from_millis(DIAL_MILLIS),
                    dial(&member, source, shared.core),
                )
                .await
                {
                    Ok(Ok(dialed)) => {
                        socket = Some(dialed);
                        Event::Upgraded
                    }
                    Ok(Err(StatusCode::UNAUTHORIZED)) => Event::Refused,
                    Ok(Err(_)) | Err(_) => Event::DialFailed,
                },
                Action::Measure(attempt) => {
                    let health = Health {
                        observed_at: now(),
                        ..health.clone()
                    };
                    Event::Measured(attempt, Box::new(health))
                }
                Action::Send(text) => {
                    let sent = match &mut socket {
                        Some(open) => open.send(Message::text(text)).await.is_ok(),
                        None => false,
                    };
                    if sent {
                        continue;
                    }
                    Event::Lost
                }
                Action::StoreEpoch(owner_epoch) => {
                    epoch = owner_epoch.get();
                    Event::EpochStored(true)
                }
                Action::Accepted(..) => {
                    live = true;
                    shared.connected.fetch_add(1, Ordering::Relaxed);
                    shared.accepted.send_modify(|all| all.push(shared.now().0));
                    continue;
                }
                Action::Close(_) => {
                    socket = None;
                    if std::mem::take(&mut live) {
                        shared.connected.fetch_sub(1, Ordering::Relaxed);
                    }
                    continue;
                }
                Action::Refresh => Event::Refreshed(Refresh::Confirmed {
                    identity: Box::new(member.identity.clone()),
                    stored_epoch: epoch,
                }),
                Action::Run(job) => {
                    let Job { ticket, request, .. } = job;
                    let outcome = nothing_done(&request, &mut killed);
                    let mut more = node.apply(Event::Answered(ticket, outcome), shared.now());
                    more.extend(node.apply(Event::Ended(ticket), shared.now()));
                    actions.extend(more.into_iter().rev());
                    continue;
                }
                Action::Deployment(deployment) => {
                    let target = deployment.generation;
                    if deployment.serving_generation.0 == Some(target) {
                        shared.moved.send_modify(|all| all.push(shared.now().0));
                    }
                    if held.iter().any(|local| local.generation == target) {
                        continue;
                    }
                    held.push(prepared(target, deployment.specification_digest));
                    Event::Generations(held.clone())
                }
                Action::Granted(..) => continue,
                Action::Exit(_) => return,
            };
            actions.extend(node.apply(event, shared.now()).into_iter().rev());
        }
    }
}

fn prepared(generation: Generation, specification_digest: Digest) -> Local {
    Local {
        generation,
        specification_digest,
        standing: Standing::Ready,
        acquirable: true,
    }
}

/// A provider that has done everything already; it remembers what was killed.
fn nothing_done(request: &oac_wire::frames::RequestBody, killed: &mut HashSet<AllocationId>) -> Outcome {
    let id = request.reference.allocation_id;
    match request.arguments.operation() {
        Operation::Info if killed.contains(&id) => Outcome::Success(Some(ResponseResult::Info(Info {
            reference: request.reference,
            provider_id: String::new(),
            state: Info::ABSENT.to_owned(),
            bootstrap_complete: false,
            create_settled: true,
            compute_lost: false,
        }))),
        Operation::Create | Operation::Info | Operation::Renew => {
            Outcome::Success(Some(ResponseResult::Info(Info {
                reference: request.reference,
                provider_id: "nothing".to_owned(),
                state: Info::RUNNING.to_owned(),
                bootstrap_complete: true,
                create_settled: true,
                compute_lost: false,
            })))
        }
        Operation::Kill => {
            killed.insert(id);
            Outcome::Success(None)
        }
        _ => Outcome::Failed {
            code: FailureCode::Unconfirmed,
            receipt: None,
        },
    }
}

async fn next(socket: &mut Option<Socket>) -> Option<Result<Message, Error>> {
    match socket {
        Some(socket) => socket.next().await,
        None => std::future::pending().await,
    }
}

/// A connection from `source`.
pub(crate) async fn tcp(source: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Without it the kernel would keep each port for one destination alone.
    socket.set_reuseaddr(true)?;
    socket.bind((source, 0).into())?;
    let stream = socket.connect(to).await.context("no connection")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn dial(member: &Member, source: Ipv4Addr, core: SocketAddr) -> Result<Socket, StatusCode> {
    let failed = StatusCode::SERVICE_UNAVAILABLE;
    let node_id = member.identity.node_id;
    let url = format!("ws://{core}/api/v1/sandbox-node/connect?node_id={node_id}");
    let mut request = url.into_client_request().map_err(|_| failed)?;
    let bearer = format!("Bearer {}", member.credential.expose());
    let bearer = bearer.parse().map_err(|_| failed)?;
    request.headers_mut().insert("authorization", bearer);
    let stream = tcp(source, core).await.map_err(|_| failed)?;
    match client_async_with_config(request, stream, Some(small_buffers())).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status()),
        Err(_) => Err(failed),
    }
}
