//! A sandbox whose processes the test plays: the real sandbox end of the link, and the runtime's service with its rules
//! (once per id, output by offset, nothing dropped before it is acknowledged) over records in memory, which outlive a
//! connection as the runtime's files do.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, future::BoxFuture};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{Method, Request, Response, StatusCode, body::Frame, body::Incoming, service::service_fn};
use oac_link::{
    CloseReason, Hello, IntroduceError, LinkEnd, Socket, StopAccepting,
    service::{
        Ack, Cancel, ErrorAnswer, Exit, OutputLine, OutputStreamName, PutTurnAnswer, PutTurnRequest,
        RunState, Status, StatusTurn, TurnRecord, codes,
    },
};
use oac_model::{BootId, Digest, InstanceId, Secret, TurnId};
use oac_wire::{B64, Nullable, shapes::LinkResource};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers a request in the runtime's place; the link is cut when it notifies.
pub type Script = Arc<
    dyn Fn(Request<Incoming>, Arc<tokio::sync::Notify>) -> BoxFuture<'static, Response<Body>> + Send + Sync,
>;

/// The runtime's memory and the test's hand on it.
#[derive(Clone)]
pub struct Sandbox(Arc<Shared>);

struct Shared {
    credential: Secret,
    resource: LinkResource,
    instance_id: Mutex<InstanceId>,
    boot_id: BootId,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    turns: HashMap<TurnId, Record>,
    ended: HashSet<TurnId>,
    /// Every start of a process, in order.
    starts: Vec<TurnId>,
    puts: Vec<TurnId>,
    acks: Vec<(TurnId, Ack)>,
    cancels: Vec<(TurnId, Cancel)>,
    /// Everything each Turn's process wrote, kept after the Turn is forgotten.
    written: HashMap<TurnId, Vec<(OutputStreamName, u8)>>,
    /// Answers to PUT are lost: the link is cut after the Turn was started.
    lose_put_answers: bool,
    /// PUT is not answered while set.
    hold_puts: bool,
    /// Answers what is asked of files.
    files: Option<Script>,
}

struct Record {
    digest: Digest,
    request: PutTurnRequest,
    log: Vec<(OutputStreamName, u8)>,
    acked: u64,
    exit: Option<Exit>,
}

/// One connection of the sandbox.
pub struct Connection {
    stop: mpsc::Sender<StopAccepting>,
    end: tokio::task::JoinHandle<LinkEnd>,
}

impl Connection {
    /// The connection breaks off without a word.
    pub async fn cut(self) {
        self.end.abort();
        let _ = self.end.await;
    }

    /// Waits for the link's end.
    pub async fn ended(self) -> LinkEnd {
        self.end.await.unwrap()
    }

    pub async fn close(self) -> LinkEnd {
        let _ = self
            .stop
            .send(StopAccepting::Everything(CloseReason::GoingAway))
            .await;
        self.end.await.unwrap()
    }
}

pub fn exit_code(code: i32) -> Exit {
    Exit {
        code: Nullable(Some(code)),
        signal: Nullable(None),
        timed_out: false,
        canceled: false,
        error: Nullable(None),
    }
}

pub fn canceled() -> Exit {
    Exit {
        code: Nullable(None),
        signal: Nullable(Some(15)),
        canceled: true,
        ..exit_code(0)
    }
}

impl Sandbox {
    pub fn new(credential: Secret, resource: LinkResource) -> Self {
        Self(Arc::new(Shared {
            credential,
            resource,
            instance_id: Mutex::new(InstanceId::random()),
            boot_id: BootId::random(),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }))
    }

    pub fn hello(&self) -> Hello {
        Hello {
            credential: self.0.credential.clone(),
            resource: self.0.resource,
            runtime_version: "test".to_owned(),
            instance_id: *self.0.instance_id.lock(),
        }
    }

    /// Dials Core and serves until the link ends.
    pub async fn connect(&self, base: &str) -> Connection {
        self.try_connect(base).await.expect("Core welcomes the sandbox")
    }

    pub async fn try_connect(&self, base: &str) -> Result<Connection, IntroduceError> {
        connect(base, &self.hello(), Some(self.clone())).await
    }

    /// The runtime starts anew: its processes are gone.
    pub fn restart(&self) {
        *self.0.instance_id.lock() = InstanceId::random();
        for record in self.0.state.lock().turns.values_mut() {
            record.exit.get_or_insert(Exit::failed(Exit::RUNTIME_RESTARTED));
        }
        self.changed();
    }

    /// The records are gone, as after a fresh file system.
    pub fn lose_records(&self) {
        self.0.state.lock().turns.clear();
        self.changed();
    }

    /// The log loses its end, as after a power loss.
    pub fn shorten(&self, turn: TurnId, length: usize) {
        self.with(turn, |record| record.log.truncate(length));
    }

    pub fn lose_put_answers(&self, lose: bool) {
        self.0.state.lock().lose_put_answers = lose;
    }

    pub fn answer_files(&self, script: Script) {
        self.0.state.lock().files = Some(script);
    }

    pub fn hold_puts(&self, hold: bool) {
        self.0.state.lock().hold_puts = hold;
        self.changed();
    }

    fn changed(&self) {
        self.0.changed.send_replace(());
    }

    fn with<T>(&self, turn: TurnId, f: impl FnOnce(&mut Record) -> T) -> T {
        let result = f(self
            .0
            .state
            .lock()
            .turns
            .get_mut(&turn)
            .expect("the runtime has the Turn"));
        self.changed();
        result
    }

    /// Waits until `found` answers.
    async fn until<T>(&self, mut found: impl FnMut(&State) -> Option<T>) -> T {
        let mut changes = self.0.changed.subscribe();
        loop {
            if let Some(value) = found(&self.0.state.lock()) {
                return value;
            }
            changes.changed().await.unwrap();
        }
    }

    /// Waits for the `n`th start of a process.
    pub async fn started(&self, n: usize) -> TurnId {
        self.until(|state| state.starts.get(n).copied()).await
    }

    /// Waits until the runtime is asked to cancel it; how it is asked first.
    pub async fn canceled(&self, turn: TurnId) -> Cancel {
        self.until(|state| {
            let first = state.cancels.iter().find(|(id, _)| *id == turn);
            first.map(|(_, cancel)| *cancel)
        })
        .await
    }

    pub async fn finally_acknowledged(&self, turn: TurnId) {
        self.until(|state| state.ended.contains(&turn).then_some(()))
            .await;
    }

    pub async fn acknowledged(&self, turn: TurnId, offset: u64) {
        self.until(|state| {
            let reached = |r: &Record| r.acked >= offset;
            (state.turns.get(&turn).is_some_and(reached) || state.ended.contains(&turn)).then_some(())
        })
        .await;
    }

    pub fn starts(&self) -> Vec<TurnId> {
        self.0.state.lock().starts.clone()
    }

    pub fn puts(&self) -> Vec<TurnId> {
        self.0.state.lock().puts.clone()
    }

    pub fn acks(&self, turn: TurnId) -> Vec<Ack> {
        self.0
            .state
            .lock()
            .acks
            .iter()
            .filter(|(id, _)| *id == turn)
            .map(|(_, ack)| *ack)
            .collect()
    }

    pub fn request(&self, turn: TurnId) -> PutTurnRequest {
        self.with(turn, |record| record.request.clone())
    }

    /// The process writes.
    pub fn write(&self, turn: TurnId, stream: OutputStreamName, bytes: &[u8]) {
        let bytes = bytes.iter().map(|b| (stream, *b));
        self.with(turn, |record| record.log.extend(bytes.clone()));
        self.0.state.lock().written.entry(turn).or_default().extend(bytes);
    }

    /// Everything the Turn's process wrote.
    pub fn written(&self, turn: TurnId) -> Vec<(&'static str, u8)> {
        let state = self.0.state.lock();
        let all = state.written.get(&turn).into_iter().flatten();
        all.map(|(stream, b)| (stream.as_str(), *b)).collect()
    }

    /// The Turn whose process runs now.
    pub fn running(&self) -> Option<TurnId> {
        let state = self.0.state.lock();
        let mut running = state
            .turns
            .iter()
            .filter(|(_, r)| r.exit.is_none())
            .map(|(id, _)| *id);
        let one = running.next();
        assert!(running.next().is_none(), "at most one Turn runs");
        one
    }

    /// Whether the runtime was asked to cancel it.
    pub fn was_canceled(&self, turn: TurnId) -> bool {
        let state = self.0.state.lock();
        state.cancels.iter().any(|(id, _)| *id == turn)
    }

    /// The process ends.
    pub fn exit(&self, turn: TurnId, exit: Exit) {
        self.with(turn, |record| record.exit.get_or_insert(exit).clone());
    }

    async fn serve(self, request: Request<Incoming>, cut: Arc<tokio::sync::Notify>) -> Response<Body> {
        let script = self.0.state.lock().files.clone();
        if let Some(script) = script.filter(|_| request.uri().path().starts_with("/v1/files")) {
            return script(request, cut).await;
        }
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let method = request.method().clone();
        let body = request
            .into_body()
            .collect()
            .await
            .map(|b| b.to_bytes())
            .unwrap_or_default();
        let segments: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        let turn = segments.get(1).and_then(|id| id.parse::<TurnId>().ok());
        match (&method, segments.as_slice(), turn) {
            (&Method::GET, ["status"], _) => json(StatusCode::OK, &self.status()),
            (&Method::PUT, ["turns", _], Some(turn)) => {
                let request: PutTurnRequest = serde_json::from_slice(&body).unwrap();
                self.until(|state| (!state.hold_puts).then_some(())).await;
                let answer = self.put_turn(turn, request);
                if self.0.state.lock().lose_put_answers {
                    cut.notify_one();
                    std::future::pending::<()>().await;
                }
                answer
            }
            (&Method::GET, ["turns", _], Some(turn)) => match self.0.state.lock().turns.get(&turn) {
                None => error(StatusCode::NOT_FOUND, codes::NOT_FOUND),
                Some(r) => json(
                    StatusCode::OK,
                    &TurnRecord {
                        state: r.state(),
                        offset: r.log.len() as u64,
                        exit: Nullable(r.exit.clone()),
                    },
                ),
            },
            (&Method::GET, ["turns", _, "output"], Some(turn)) => {
                self.output(turn, query.strip_prefix("offset=").unwrap().parse().unwrap())
            }
            (&Method::POST, ["turns", _, "ack"], Some(turn)) => {
                self.ack(turn, serde_json::from_slice(&body).unwrap())
            }
            (&Method::POST, ["turns", _, "cancel"], Some(turn)) => {
                let cancel: Cancel = serde_json::from_slice(&body).unwrap();
                let known = {
                    let mut state = self.0.state.lock();
                    state.cancels.push((turn, cancel));
                    state.turns.contains_key(&turn)
                };
                self.changed();
                if known {
                    no_content()
                } else {
                    error(StatusCode::NOT_FOUND, codes::NOT_FOUND)
                }
            }
            _ => error(StatusCode::NOT_FOUND, codes::NOT_FOUND),
        }
    }

    fn status(&self) -> Status {
        let state = self.0.state.lock();
        Status {
            runtime_version: "test".to_owned(),
            instance_id: *self.0.instance_id.lock(),
            boot_id: self.0.boot_id,
            parked: false,
            turns: state
                .turns
                .iter()
                .map(|(id, r)| StatusTurn {
                    turn_id: *id,
                    state: r.state(),
                    offset: r.log.len() as u64,
                    acked: r.acked,
                })
                .collect(),
        }
    }

    fn put_turn(&self, turn: TurnId, request: PutTurnRequest) -> Response<Body> {
        let instance_id = *self.0.instance_id.lock();
        let answer = {
            let mut state = self.0.state.lock();
            state.puts.push(turn);
            let running = state.turns.iter().any(|(id, r)| *id != turn && r.exit.is_none());
            match state.turns.get(&turn) {
                _ if state.ended.contains(&turn) => error(StatusCode::CONFLICT, codes::TURN_ENDED),
                Some(known) if known.digest != request.digest => {
                    error(StatusCode::CONFLICT, codes::DIGEST_DIFFERS)
                }
                Some(_) => json(StatusCode::OK, &PutTurnAnswer { instance_id }),
                None if running => error(StatusCode::CONFLICT, codes::TURN_RUNNING),
                None => {
                    state.starts.push(turn);
                    let record = Record {
                        digest: request.digest,
                        request,
                        log: Vec::new(),
                        acked: 0,
                        exit: None,
                    };
                    state.turns.insert(turn, record);
                    json(StatusCode::CREATED, &PutTurnAnswer { instance_id })
                }
            }
        };
        self.changed();
        answer
    }

    fn ack(&self, turn: TurnId, ack: Ack) -> Response<Body> {
        let answer = {
            let mut state = self.0.state.lock();
            state.acks.push((turn, ack));
            match state.turns.get_mut(&turn) {
                None => error(StatusCode::NOT_FOUND, codes::NOT_FOUND),
                Some(record) => {
                    assert!(
                        ack.offset <= record.log.len() as u64,
                        "Core acknowledges what was written"
                    );
                    record.acked = record.acked.max(ack.offset);
                    if ack.is_final {
                        assert!(
                            record.exit.is_some(),
                            "only an ended Turn is acknowledged for good"
                        );
                        state.turns.remove(&turn);
                        state.ended.insert(turn);
                    }
                    no_content()
                }
            }
        };
        self.changed();
        answer
    }

    fn output(&self, turn: TurnId, offset: u64) -> Response<Body> {
        match self.0.state.lock().turns.get(&turn) {
            None => return error(StatusCode::NOT_FOUND, codes::NOT_FOUND),
            Some(r) if offset < r.acked || offset > r.log.len() as u64 => {
                return error(StatusCode::RANGE_NOT_SATISFIABLE, codes::OFFSET_OUT_OF_RANGE);
            }
            Some(_) => {}
        }
        let lines =
            futures_util::stream::unfold((self.clone(), Some(offset)), move |(this, at)| async move {
                let at = at? as usize;
                let line = this
                    .until(|state| {
                        let Some(record) = state.turns.get(&turn) else {
                            return Some(None);
                        };
                        if let Some((stream, _)) = record.log.get(at) {
                            let data: Vec<u8> = record.log[at..]
                                .iter()
                                .take_while(|(s, _)| s == stream)
                                .take(32 * 1024)
                                .map(|(_, b)| *b)
                                .collect();
                            return Some(Some(OutputLine {
                                offset: at as u64,
                                stream: Some(*stream),
                                data: Some(B64(data)),
                                exit: None,
                            }));
                        }
                        record.exit.clone().map(|exit| {
                            Some(OutputLine {
                                offset: at as u64,
                                stream: None,
                                data: None,
                                exit: Some(exit),
                            })
                        })
                    })
                    .await?;
                let next = line.data.as_ref().map(|data| (at + data.0.len()) as u64);
                let mut text = serde_json::to_vec(&line).unwrap();
                text.push(b'\n');
                Some((Ok(Frame::data(Bytes::from(text))), (this, next)))
            });
        Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
    }
}

impl Record {
    fn state(&self) -> RunState {
        if self.exit.is_some() {
            RunState::Ended
        } else {
            RunState::Running
        }
    }
}

/// Dials Core's link route and says `hello`.
pub async fn connect(
    base: &str,
    hello: &Hello,
    sandbox: Option<Sandbox>,
) -> Result<Connection, IntroduceError> {
    let url = format!("{}/api/v1/sandbox-link", base.replacen("http", "ws", 1));
    let (socket, _) = tokio_tungstenite::connect_async(url)
        .await
        .expect("Core upgrades");
    let (_, server) = oac_link::introduce(Socket::from_tungstenite(socket), hello).await?;
    let (stop, asked) = mpsc::channel(1);
    #[allow(clippy::disallowed_methods)] // A test's task ends with its runtime.
    let end = tokio::spawn(async move {
        let cut = Arc::new(tokio::sync::Notify::new());
        let cutting = cut.clone();
        let service = service_fn(move |request| {
            let (sandbox, cut) = (sandbox.clone(), cut.clone());
            async move {
                match sandbox {
                    Some(sandbox) => Ok::<_, Infallible>(sandbox.serve(request, cut).await),
                    None => std::future::pending().await,
                }
            }
        });
        tokio::select! {
            end = server.serve(service, asked) => end,
            () = cutting.notified() => LinkEnd::Silent,
        }
    });
    Ok(Connection { stop, end })
}

fn json<T: serde::Serialize>(status: StatusCode, value: &T) -> Response<Body> {
    let body = Full::new(Bytes::from(serde_json::to_vec(value).unwrap())).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

fn no_content() -> Response<Body> {
    Response::builder()
        .status(StatusCode::NO_CONTENT)
        .body(Full::new(Bytes::new()).boxed_unsync())
        .unwrap()
}

fn error(status: StatusCode, code: &str) -> Response<Body> {
    json(
        status,
        &ErrorAnswer {
            code: code.to_owned(),
            message: "test".to_owned(),
        },
    )
}
