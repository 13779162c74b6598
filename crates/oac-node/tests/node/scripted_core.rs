//! Core's machine routes on a real socket; the test decides every answer and drives each WebSocket itself.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::{FromRequestParts, Request, State, WebSocketUpgrade, ws::Message, ws::WebSocket},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use oac_model::{ConnectionId, OwnerEpoch, RequestId};
use oac_wire::{
    CoreFrame, NodeFrame,
    frames::{Arguments, Deployment, HeartbeatAck, Hello, Request as RequestFrame, RequestBody, Welcome},
};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use crate::shapes::{reference, uuid};

/// Generous: a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Answer = Box<dyn Fn(&Seen) -> (StatusCode, String) + Send + Sync>;
type Files = Box<dyn Fn(&Seen) -> Option<Response> + Send + Sync>;

pub(crate) struct Script {
    /// GET identity.
    pub(crate) identity: Mutex<Answer>,
    /// POST enroll.
    pub(crate) enroll: Mutex<Answer>,
    /// GET configuration, and every file of a release: `None` is 404.
    pub(crate) files: Mutex<Files>,
    /// Answers of `files` for a path that ends so wait until it is another.
    pub(crate) held: watch::Sender<&'static str>,
    /// What the upgrade answers; `None` upgrades.
    pub(crate) connect: Mutex<Option<(StatusCode, String)>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// How many requests were seen.
    count: watch::Sender<usize>,
    sockets: mpsc::Sender<WebSocket>,
}

pub(crate) struct ScriptedCore {
    pub(crate) script: Arc<Script>,
    pub(crate) address: SocketAddr,
    sockets: mpsc::Receiver<WebSocket>,
    next: u64,
    _server: JoinSet<()>,
}

pub(crate) fn envelope(code: &str) -> String {
    format!(r#"{{"error":{{"message":"no","type":"invalid_request_error","code":"{code}","param":null}}}}"#)
}

pub(crate) fn unauthorized() -> (StatusCode, String) {
    (StatusCode::UNAUTHORIZED, envelope("invalid_node_credential"))
}

impl ScriptedCore {
    pub(crate) async fn start() -> Self {
        let (sockets, accepted) = mpsc::channel(16);
        let script = Arc::new(Script {
            identity: Mutex::new(Box::new(|_| unauthorized())),
            enroll: Mutex::new(Box::new(|_| (StatusCode::SERVICE_UNAVAILABLE, String::new()))),
            files: Mutex::new(Box::new(|_| None)),
            held: watch::Sender::new("nothing"),
            connect: Mutex::new(None),
            seen: Mutex::default(),
            count: watch::Sender::new(0),
            sockets,
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(script.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            script,
            address,
            sockets: accepted,
            next: 0,
            _server: server,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next connection a node opens.
    pub(crate) async fn accept(&mut self) -> Link {
        let socket = timeout(PATIENCE, self.sockets.recv())
            .await
            .expect("the node did not connect")
            .unwrap();
        self.next += 1;
        Link {
            socket,
            connection_id: uuid(5, self.next).parse().unwrap(),
            owner_epoch: OwnerEpoch::FIRST,
            sequence: 0,
            deployment: None,
            heard: Vec::new(),
        }
    }

    /// The next connection, greeted.
    pub(crate) async fn greet(&mut self) -> (Link, Hello) {
        let mut link = self.accept().await;
        let hello = link.hello().await;
        link.welcome().await;
        (link, hello)
    }

    /// Waits until `count` requests of a path were seen.
    pub(crate) async fn until_seen(&self, path: &str, count: usize) {
        let mut seen = self.script.count.subscribe();
        let enough = seen.wait_for(|_| self.seen(path).len() >= count);
        timeout(PATIENCE, enough)
            .await
            .expect("the node is silent")
            .unwrap();
    }

    pub(crate) fn seen(&self, path: &str) -> Vec<Seen> {
        let seen = self.script.seen.lock();
        seen.iter()
            .filter(|s| s.uri.path().ends_with(path))
            .cloned()
            .collect()
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let seen = Seen {
        uri: parts.uri.clone(),
        headers: parts.headers.clone(),
        body,
    };
    script.seen.lock().push(seen.clone());
    script.count.send_modify(|count| *count += 1);
    match parts.uri.path() {
        "/api/v1/sandbox-node/identity" => (script.identity.lock())(&seen).into_response(),
        "/api/v1/sandbox-node/enroll" => (script.enroll.lock())(&seen).into_response(),
        "/api/v1/sandbox-node/connect" => {
            if let Some((status, body)) = script.connect.lock().clone() {
                return (status, [("location", "/elsewhere")], body).into_response();
            }
            let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
                .await
                .unwrap();
            let sockets = script.sockets.clone();
            upgrade
                .max_frame_size(usize::MAX)
                .max_message_size(usize::MAX)
                .on_upgrade(async move |socket| {
                    let _ = sockets.send(socket).await;
                })
        }
        _ => {
            let path = parts.uri.path();
            let _ = script
                .held
                .subscribe()
                .wait_for(|held| !path.ends_with(*held))
                .await;
            match (script.files.lock())(&seen) {
                Some(answer) => answer,
                None => StatusCode::NOT_FOUND.into_response(),
            }
        }
    }
}

/// Core's end of one WebSocket.
pub(crate) struct Link {
    pub(crate) socket: WebSocket,
    pub(crate) connection_id: ConnectionId,
    pub(crate) owner_epoch: OwnerEpoch,
    pub(crate) sequence: i64,
    /// What every answer to a managing node delivers.
    pub(crate) deployment: Option<Deployment>,
    /// Every text the node sent, as it came; its close frame as `close <code> <reason>`.
    pub(crate) heard: Vec<String>,
}

impl Link {
    /// The next frame of the node.
    pub(crate) async fn next(&mut self) -> NodeFrame {
        self.try_next().await.expect("the node closed the connection")
    }

    /// The next frame, or `None` when the node closed.
    pub(crate) async fn try_next(&mut self) -> Option<NodeFrame> {
        loop {
            let message = timeout(PATIENCE, self.socket.recv())
                .await
                .expect("the node is silent");
            match message {
                Some(Ok(Message::Text(text))) => {
                    self.heard.push(text.to_string());
                    return Some(NodeFrame::decode(text.as_bytes()).unwrap());
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| format!("{} {}", frame.code, frame.reason));
                    self.heard.push(format!("close {}", reason.unwrap_or_default()));
                    return None;
                }
                Some(Err(_)) | None => return None,
                Some(Ok(other)) => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the node closes, whatever it still says.
    pub(crate) async fn closed(mut self) {
        while self.try_next().await.is_some() {}
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.next().await {
            NodeFrame::Hello(hello) => *hello,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn welcome(&mut self) {
        let welcome = Welcome {
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment: self.deployment,
        };
        self.send(CoreFrame::Welcome(welcome).encode().unwrap()).await;
    }

    /// Any frame of Core's counts against its silence.
    pub(crate) async fn acknowledge(&mut self) {
        let ack = HeartbeatAck {
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment: self.deployment,
        };
        self.send(CoreFrame::HeartbeatAck(ack).encode().unwrap()).await;
    }

    pub(crate) async fn send(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The frame of the next request; `timeout_ms` is its budget.
    pub(crate) fn request(
        &mut self,
        lane: u64,
        timeout_ms: u32,
        arguments: Arguments,
    ) -> (RequestId, String) {
        self.request_of(1, lane, timeout_ms, arguments)
    }

    /// The same, of another generation.
    pub(crate) fn request_of(
        &mut self,
        generation: i64,
        lane: u64,
        timeout_ms: u32,
        arguments: Arguments,
    ) -> (RequestId, String) {
        self.sequence += 1;
        let id = RequestId::random();
        let request = RequestFrame {
            id,
            sequence: self.sequence,
            connection_id: self.connection_id,
            owner_epoch: self.owner_epoch,
            deployment_generation: generation,
            body: Ok(RequestBody {
                deployment_generation: generation.try_into().unwrap(),
                timeout_ms,
                reference: reference(lane),
                arguments,
            }),
        };
        (id, CoreFrame::Request(Box::new(request)).encode().unwrap())
    }

    pub(crate) async fn call(&mut self, lane: u64, arguments: Arguments) -> RequestId {
        let (id, text) = self.request(lane, 60_000, arguments);
        self.send(text).await;
        id
    }
}
