//! A proxy before an engine that records calls and disturbs the ones it is told to.

use std::{io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use oac_provider::suite::{CallFault, Lost, Step};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::http::{Answer, answer, collect, refuse, send, serve, split};

/// What happens to a call that a rule meets.
#[derive(Clone)]
pub(crate) enum Fault {
    Lose(Lost),
    /// Waits for `release`, then goes on.
    Hold,
    /// Lost to the caller; `deliver` sends it on.
    Delay,
    Refuse(u16),
    /// The request's body is changed on its way.
    Falsify(fn(&mut Value)),
    /// Answered so without the engine.
    Pretend(StatusCode),
    /// The engine's answer is changed on its way back.
    Belie(Vec<fn(&mut Value)>),
    /// The engine acts, and its answer is no HTTP body of its kind.
    Garble,
    /// From this call on nothing listens any more, until `clear`.
    Vanish,
}

impl From<CallFault> for Fault {
    fn from(fault: CallFault) -> Self {
        match fault {
            CallFault::Refused => Self::Refuse(500),
            CallFault::Lost(lost) => Self::Lose(lost),
            CallFault::Malformed => Self::Garble,
            CallFault::Late => Self::Hold,
            CallFault::Unreachable => Self::Vanish,
        }
    }
}

/// The `n`th call (or effect alone), from the moment this is made.
pub(crate) fn nth(n: usize, effects_alone: bool) -> Matches {
    let left = Mutex::new(n);
    Box::new(move |method, path| {
        if is_greeting(path) || (effects_alone && method == Method::GET) {
            return false;
        }
        let mut left = left.lock();
        *left = left.wrapping_sub(1);
        *left == usize::MAX
    })
}

/// Which calls a rule meets.
pub(crate) type Matches = Box<dyn Fn(&Method, &str) -> bool + Send>;

struct Rule {
    matches: Matches,
    fault: Fault,
    once: bool,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    /// Those that reached the engine, as their method and path.
    passed: Vec<(Method, String)>,
    rules: Vec<Rule>,
    delayed: Vec<Request<Full<Bytes>>>,
    vanished: bool,
}

#[derive(Clone)]
pub(crate) struct Tap {
    pub(crate) socket: PathBuf,
    upstream: PathBuf,
    state: Arc<Mutex<State>>,
    held: watch::Sender<bool>,
    reached: watch::Sender<bool>,
    connections: Option<watch::Sender<()>>,
}

pub(crate) fn is_step(step: Step) -> Matches {
    Box::new(move |method, path| match step {
        Step::FirstEffect => path == "/volumes/create",
        Step::Create => path == "/containers/create",
        Step::Bootstrap => method == Method::PUT && path.ends_with("/archive"),
        Step::Start => path.starts_with("/containers/") && path.ends_with("/start"),
        Step::Remove => method == Method::DELETE,
        Step::Attach => path.starts_with("/exec/") && path.ends_with("/start"),
        Step::Observe => path.ends_with("/stats"),
        Step::Inventory => is_listing()(method, path),
        Step::Pause
        | Step::Thaw
        | Step::Capture
        | Step::Publish
        | Step::Verify
        | Step::Stop
        | Step::Restore
        | Step::DeleteCheckpoint => false,
    })
}

/// Whether a call is one that only reads the engine's identity.
fn is_greeting(path: &str) -> bool {
    path == "/info" || path == "/_ping"
}

impl Tap {
    pub(crate) fn new(socket: PathBuf, upstream: PathBuf) -> Self {
        let mut tap = Self {
            socket: socket.clone(),
            upstream,
            state: Arc::default(),
            held: watch::Sender::new(true),
            reached: watch::Sender::new(false),
            connections: None,
        };
        let service = tap.clone();
        let connections = serve(&socket, move |request| {
            let tap = service.clone();
            async move { tap.pass(request).await }
        });
        tap.connections = Some(connections);
        tap
    }

    /// Calls so far as `METHOD /path`, without those that only read the engine's identity.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// How many calls of this step reached the engine.
    pub(crate) fn passed(&self, step: Step) -> usize {
        let matches = is_step(step);
        let state = self.state.lock();
        state
            .passed
            .iter()
            .filter(|(method, path)| matches(method, path))
            .count()
    }

    pub(crate) fn effects(&self) -> usize {
        self.calls()
            .iter()
            .filter(|call| !call.starts_with("GET "))
            .count()
    }

    /// The call of this number from now, or the effect of this number.
    pub(crate) fn at(&self, n: usize, effects_alone: bool, fault: Fault) {
        self.once(nth(n, effects_alone), fault);
    }

    pub(crate) fn once(&self, matches: Matches, fault: Fault) {
        self.add(matches, fault, true);
    }

    pub(crate) fn always(&self, matches: Matches, fault: Fault) {
        self.add(matches, fault, false);
    }

    fn add(&self, matches: Matches, fault: Fault, once: bool) {
        if matches!(fault, Fault::Hold) {
            self.held.send_replace(true);
            self.reached.send_replace(false);
        }
        self.state.lock().rules.push(Rule { matches, fault, once });
    }

    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        state.rules.clear();
        if std::mem::take(&mut state.vanished) {
            std::fs::rename(self.away(), &self.socket).unwrap();
        }
        drop(state);
        self.release();
    }

    fn away(&self) -> PathBuf {
        self.socket.with_extension("away")
    }

    /// Ends all connections, as an engine that restarts does.
    pub(crate) async fn cut(&self) {
        let connections = self.connections.as_ref().unwrap();
        connections.send_replace(());
        // The connections' tasks end, and their closing reaches the provider's side.
        while connections.receiver_count() > 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    /// Resolves when a call is held.
    pub(crate) async fn await_held(&self) {
        self.reached
            .subscribe()
            .wait_for(|reached| *reached)
            .await
            .unwrap();
    }

    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// Sends what was delayed; the engine's answers.
    pub(crate) async fn deliver(&self) -> Vec<StatusCode> {
        let delayed: Vec<_> = self.state.lock().delayed.drain(..).collect();
        let mut answers = Vec::new();
        for request in delayed {
            let response = send(&self.upstream, request).await.unwrap();
            answers.push(response.status());
            collect(response.into_body()).await;
        }
        answers
    }

    fn meet(&self, method: &Method, path: &str) -> Option<Fault> {
        let mut state = self.state.lock();
        if !is_greeting(path) {
            state.calls.push(format!("{method} {path}"));
        }
        let index = state.rules.iter().position(|r| (r.matches)(method, path))?;
        if state.rules[index].once {
            Some(state.rules.remove(index).fault)
        } else {
            Some(state.rules[index].fault.clone())
        }
    }

    async fn pass(&self, mut request: Request<Incoming>) -> io::Result<Answer> {
        let (path, _) = split(request.uri());
        let fault = self.meet(request.method(), &path);
        let upgrade = request
            .headers()
            .contains_key(header::UPGRADE)
            .then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let mut body = collect(body).await;
        let lost = || io::Error::other("lost");
        match &fault {
            Some(Fault::Lose(Lost::Before)) => return Err(lost()),
            Some(Fault::Vanish) => {
                // Whoever connects now is refused.
                self.state.lock().vanished = true;
                std::fs::rename(&self.socket, self.away()).unwrap();
                self.connections.as_ref().unwrap().send_replace(());
                return Err(lost());
            }
            Some(Fault::Refuse(status)) => return Ok(refuse(*status, "refused by the test")),
            Some(Fault::Pretend(status)) => return Ok(answer(status.as_u16(), Value::Null)),
            Some(Fault::Falsify(change)) => {
                let mut value = serde_json::from_slice(&body).unwrap();
                change(&mut value);
                body = value.to_string().into();
            }
            Some(Fault::Hold) => {
                self.reached.send_replace(true);
                self.held.subscribe().wait_for(|held| !held).await.unwrap();
            }
            _ => {}
        }
        self.state.lock().passed.push((head.method.clone(), path));
        let mut forward = Request::builder().method(head.method).uri(head.uri);
        for (name, value) in &head.headers {
            if name != header::CONTENT_LENGTH && name != header::TRANSFER_ENCODING {
                forward = forward.header(name, value);
            }
        }
        let forward = forward.body(Full::new(body)).unwrap();
        if matches!(fault, Some(Fault::Delay)) {
            self.state.lock().delayed.push(forward);
            return Err(lost());
        }
        let response = send(&self.upstream, forward).await?;
        let status = response.status();
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (status, upgrade) {
            tokio::spawn(async move {
                let engine = hyper::upgrade::on(response).await;
                let (Ok(client), Ok(engine)) = (client.await, engine) else {
                    return;
                };
                let (mut client, mut engine) = (TokioIo::new(client), TokioIo::new(engine));
                let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
            });
            if matches!(fault, Some(Fault::Lose(Lost::After) | Fault::Garble)) {
                return Err(lost());
            }
            return Ok(http::Response::builder()
                .status(status)
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "tcp")
                .body(Full::default())
                .unwrap());
        }
        let (head, body) = response.into_parts();
        let mut body = collect(body).await;
        match fault {
            Some(Fault::Lose(Lost::After)) => return Err(lost()),
            Some(Fault::Garble) => body = Bytes::from_static(b"{\"Id\": 7"),
            Some(Fault::Belie(changes)) => {
                let mut value = serde_json::from_slice(&body).unwrap();
                changes.iter().for_each(|change| change(&mut value));
                body = value.to_string().into();
            }
            _ => {}
        }
        let mut back = http::Response::builder().status(status);
        for (name, value) in &head.headers {
            if name != header::CONTENT_LENGTH && name != header::TRANSFER_ENCODING {
                back = back.header(name, value);
            }
        }
        Ok(back.body(Full::new(body)).unwrap())
    }
}

/// Every listing of the engine.
pub(crate) fn is_listing() -> Matches {
    Box::new(|method, path| method == Method::GET && (path == "/containers/json" || path == "/volumes"))
}
