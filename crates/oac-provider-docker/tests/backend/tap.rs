//! A proxy before an engine that records calls and disturbs the ones it is told to.

use std::{io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use oac_provider::suite::{Lost, Step};
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
    rules: Vec<Rule>,
    delayed: Vec<Request<Full<Bytes>>>,
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
    })
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

    pub(crate) fn once(&self, matches: Matches, fault: Fault) {
        self.add(matches, fault, true);
    }

    pub(crate) fn always(&self, matches: Matches, fault: Fault) {
        self.add(matches, fault, false);
    }

    fn add(&self, matches: Matches, fault: Fault, once: bool) {
        self.state.lock().rules.push(Rule { matches, fault, once });
    }

    pub(crate) fn clear(&self) {
        self.state.lock().rules.clear();
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
        if path != "/info" && path != "/_ping" {
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
            if matches!(fault, Some(Fault::Lose(Lost::After))) {
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
        let body = collect(body).await;
        if matches!(fault, Some(Fault::Lose(Lost::After))) {
            return Err(lost());
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
