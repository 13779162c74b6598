//! Connections, requests and the attach stream.

use std::{
    future::{Future, poll_fn},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use crate::{engine::Steady, provider::Clock};

/// Largest answer read; a listing of many thousand containers fits.
const ANSWER_LIMIT_BYTES: usize = 32 * 1024 * 1024;
/// Idle connections kept; more concurrent operations open their own.
const IDLE_SESSIONS: usize = 8;
/// The floor (providers.md section 6), and the newest API whose answers this crate was written against.
pub(crate) const API_FLOOR: (u32, u32) = (1, 41);
const API_NEWEST: (u32, u32) = (1, 44);

/// What became of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// No byte of a request was sent.
    #[error("the Docker Engine at {socket} cannot be reached")]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The request may have been acted upon.
    #[error("the connection to the Docker Engine broke during {call}")]
    Broken {
        call: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The engine answered that it did not do it.
    #[error("the Docker Engine refused {call} with {status}: {message}")]
    Refused {
        call: String,
        status: u16,
        message: String,
    },
    #[error("the Docker Engine's answer to {call} cannot be understood")]
    Shape {
        call: String,
        #[source]
        source: serde_json::Error,
    },
}

impl EngineError {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// System information, as far as a node needs it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct EngineInfo {
    #[serde(rename = "ID", default)]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) memory_limit: bool,
    #[serde(default)]
    pub(crate) cpu_cfs_quota: bool,
    #[serde(rename = "NCPU", default)]
    pub(crate) cpus: i64,
    #[serde(default)]
    pub(crate) mem_total: i64,
    #[serde(rename = "OSType", default)]
    pub(crate) os_type: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) docker_root_dir: String,
    /// Such as `name=rootless`.
    #[serde(default)]
    pub(crate) security_options: Option<Vec<String>>,
}

/// The engine behind one socket.
pub(crate) struct Engine {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
    steady: Mutex<Steady>,
    clock: Clock,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes; polled only while a call is made.
    driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    engine_id: String,
    api: (u32, u32),
}

impl Connection {
    async fn is_closed(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.driver.as_mut().poll(cx).is_ready())).await || self.sender.is_closed()
    }
}

/// One connection in use by one operation.
pub(crate) struct Session {
    engine: Arc<Engine>,
    connection: Option<Connection>,
    /// No call is half done.
    whole: bool,
}

impl Engine {
    pub(crate) fn new(socket: &Path, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            socket: socket.to_owned(),
            idle: Mutex::default(),
            steady: Mutex::default(),
            clock,
        })
    }

    pub(crate) fn is_at(&self, socket: &Path) -> bool {
        self.socket == socket
    }

    /// An idle connection that is still open, or a new one whose engine id was just read.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Session, EngineError> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut connection) = idle else { break };
            if !connection.is_closed().await {
                return Ok(self.adopt(connection));
            }
            // The engine process ended, or gave up on us: either way it did not answer without interruption.
            self.steady.lock().interrupted();
        }
        self.connect().await
    }

    /// A new connection.
    pub(crate) async fn connect(self: &Arc<Self>) -> Result<Session, EngineError> {
        let stream = self.stream().await?;
        let (sender, driver) = handshake(stream).await?;
        let mut session = self.adopt(Connection {
            sender,
            driver: Box::pin(driver),
            engine_id: String::new(),
            api: API_FLOOR,
        });
        let answer = session.send(Method::GET, "/info".into(), None).await?;
        let info: EngineInfo = answer.json("system information")?;
        if let Some(connection) = &mut session.connection {
            connection.engine_id = info.id;
            connection.api = answer.api.unwrap_or((0, 0));
        }
        Ok(session)
    }

    async fn stream(&self) -> Result<UnixStream, EngineError> {
        UnixStream::connect(&self.socket).await.map_err(|source| {
            self.steady.lock().interrupted();
            EngineError::Unreachable {
                socket: self.socket.clone(),
                source,
            }
        })
    }

    fn adopt(self: &Arc<Self>, connection: Connection) -> Session {
        Session {
            engine: self.clone(),
            connection: Some(connection),
            whole: true,
        }
    }

    /// Whether the engine has answered this node for 60 s without interruption.
    pub(crate) fn is_steady(&self) -> bool {
        self.steady.lock().is_steady()
    }
}

async fn handshake<I>(
    stream: I,
) -> Result<
    (
        SendRequest<Full<Bytes>>,
        hyper::client::conn::http1::Connection<TokioIo<I>, Full<Bytes>>,
    ),
    EngineError,
>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| broken("connect", e))
}

fn broken(call: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EngineError {
    EngineError::Broken {
        call: call.to_owned(),
        source: source.into(),
    }
}

/// One answer, read whole.
struct Answer {
    status: StatusCode,
    api: Option<(u32, u32)>,
    body: Bytes,
}

impl Answer {
    fn json<T: DeserializeOwned>(&self, call: &str) -> Result<T, EngineError> {
        serde_json::from_slice(&self.body).map_err(|source| EngineError::Shape {
            call: call.to_owned(),
            source,
        })
    }

    fn refusal(&self, call: &str) -> EngineError {
        #[derive(Deserialize)]
        struct Message {
            message: String,
        }
        let message = serde_json::from_slice::<Message>(&self.body)
            .map_or_else(|_| String::from("no message"), |m| m.message);
        EngineError::Refused {
            call: call.to_owned(),
            status: self.status.as_u16(),
            message,
        }
    }
}

/// A request body.
pub(crate) enum Body {
    Json(serde_json::Value),
    Tar(Vec<u8>),
}

impl Session {
    /// The id of the engine process that answers this session.
    pub(crate) fn engine_id(&self) -> &str {
        self.connection.as_ref().map_or("", |c| &c.engine_id)
    }

    /// The newest API the engine speaks.
    pub(crate) fn api(&self) -> (u32, u32) {
        self.connection.as_ref().map_or((0, 0), |c| c.api)
    }

    /// With the version of the API that is spoken.
    pub(crate) fn path(&self, path: &str) -> String {
        let (major, minor) = self.api().clamp(API_FLOOR, API_NEWEST);
        format!("/v{major}.{minor}{path}")
    }

    /// A value; `None` where the engine answers that there is no such thing.
    pub(crate) async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<Option<T>, EngineError> {
        let answer = self.send(Method::GET, self.path(path), None).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => answer.json(path).map(Some),
            _ => Err(answer.refusal(path)),
        }
    }

    /// A mutation whose answer is read.
    pub(crate) async fn post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: Body,
    ) -> Result<T, EngineError> {
        let answer = self.mutate(Method::POST, path, Some(body)).await?;
        answer.json(path)
    }

    /// A mutation whose answer is its status.
    pub(crate) async fn act(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<(), EngineError> {
        self.mutate(method, path, body).await.map(|_| ())
    }

    async fn mutate(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Body>,
    ) -> Result<Answer, EngineError> {
        let answer = self.send(method, self.path(path), body).await?;
        // 304: already as asked.
        if answer.status.is_success() || answer.status == StatusCode::NOT_MODIFIED {
            Ok(answer)
        } else {
            Err(answer.refusal(path))
        }
    }

    /// Ping and system information, in this order.
    pub(crate) async fn system(&mut self) -> Result<EngineInfo, EngineError> {
        for path in ["/_ping", "/info"] {
            let answer = self.send(Method::GET, path.into(), None).await?;
            if !answer.status.is_success() {
                return Err(answer.refusal(path));
            }
            if path == "/info" {
                return answer.json(path);
            }
        }
        unreachable!("the loop ends with system information")
    }

    async fn send(
        &mut self,
        method: Method,
        path: String,
        body: Option<Body>,
    ) -> Result<Answer, EngineError> {
        let call = format!("{method} {}", path.split('?').next().unwrap_or_default());
        let gone = || broken(&call, "an earlier call of this operation broke it");
        let connection = self.connection.as_mut().ok_or_else(gone)?;
        let request = request(method, &path, body).map_err(|e| broken(&call, e))?;
        self.whole = false;
        let result = exchange(connection, request).await;
        let now = (self.engine.clock)();
        match result {
            Ok((answer, stays_open)) => {
                self.engine.steady.lock().answered(now);
                self.whole = true;
                if !stays_open {
                    self.connection = None;
                }
                Ok(answer)
            }
            Err(source) => {
                self.engine.steady.lock().interrupted();
                self.connection = None;
                Err(EngineError::Broken { call, source })
            }
        }
    }

    /// A call whose body is streamed, on a connection of its own; its answer is the caller's to read, while this is polled.
    pub(crate) async fn stream_call<B, T>(
        &self,
        request: Request<B>,
        read: impl AsyncFnOnce(http::Response<hyper::body::Incoming>) -> T,
    ) -> Result<T, EngineError>
    where
        B: hyper::body::Body<Data = Bytes> + 'static,
        B::Error: Into<Source>,
    {
        let call = format!("{} {}", request.method(), request.uri().path());
        let io = TokioIo::new(self.engine.stream().await?);
        let (mut sender, driver) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|e| broken(&call, e))?;
        let mut driver = pin!(driver);
        let mut work = pin!(async {
            let response = sender.send_request(request).await.map_err(|e| broken(&call, e))?;
            Ok(read(response).await)
        });
        tokio::select! {
            biased;
            result = &mut work => result,
            // The connection ended; what was already read still arrives.
            _ = &mut driver => work.await,
        }
    }

    /// Starts an exec and takes over its stream, on a connection of its own.
    pub(crate) async fn attach(
        &mut self,
        path: &str,
        body: serde_json::Value,
    ) -> Result<Attached, EngineError> {
        let stream = self.engine.stream().await?;
        let (mut sender, driver) = handshake(stream).await?;
        let mut driver = pin!(driver.with_upgrades());
        let mut request =
            request(Method::POST, &self.path(path), Some(Body::Json(body))).map_err(|e| broken(path, e))?;
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, header::HeaderValue::from_static("tcp"));
        let work = async {
            let response = sender.send_request(request).await.map_err(|e| broken(path, e))?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return hyper::upgrade::on(response).await.map_err(|e| broken(path, e));
            }
            let answer = read(response).await.map_err(|e| broken(path, e))?;
            Err(answer.refusal(path))
        };
        let mut work = pin!(work);
        let upgraded = tokio::select! {
            result = &mut work => result,
            _ = &mut driver => work.await,
        }?;
        Ok(TokioIo::new(upgraded))
    }
}

/// The raw stream of an attached exec.
pub(crate) type Attached = TokioIo<hyper::upgrade::Upgraded>;

impl Drop for Session {
    fn drop(&mut self) {
        if !self.whole {
            // Dropped in the middle of a call: the engine did not answer in time.
            self.engine.steady.lock().interrupted();
        } else if let Some(connection) = self.connection.take() {
            let mut idle = self.engine.idle.lock();
            if idle.len() < IDLE_SESSIONS && !connection.sender.is_closed() {
                idle.push(connection);
            }
        }
    }
}

fn request(method: Method, path: &str, body: Option<Body>) -> Result<Request<Full<Bytes>>, http::Error> {
    let (kind, bytes) = match body {
        None => (None, Bytes::new()),
        Some(Body::Json(value)) => (Some("application/json"), Bytes::from(value.to_string())),
        Some(Body::Tar(bytes)) => (Some("application/x-tar"), Bytes::from(bytes)),
    };
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "docker");
    if let Some(kind) = kind {
        builder = builder.header(header::CONTENT_TYPE, kind);
    }
    builder.body(Full::new(bytes))
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The answer, and whether the connection can be used again.
async fn exchange(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
) -> Result<(Answer, bool), Source> {
    let Connection { sender, driver, .. } = connection;
    let work = async {
        let response = sender.send_request(request).await?;
        read(response).await
    };
    let mut work = pin!(work);
    tokio::select! {
        biased;
        answer = &mut work => answer.map(|a| (a, true)),
        // The connection ended; what was already read still arrives.
        _ = driver => work.await.map(|a| (a, false)),
    }
}

async fn read(response: http::Response<hyper::body::Incoming>) -> Result<Answer, Source> {
    let (head, body) = response.into_parts();
    let api = head.headers.get("api-version").and_then(|v| {
        let (major, minor) = v.to_str().ok()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let body = Limited::new(body, ANSWER_LIMIT_BYTES).collect().await?.to_bytes();
    Ok(Answer {
        status: head.status,
        api,
        body,
    })
}

/// `?filters=` with `value`, percent-encoded.
pub(crate) fn filters(value: &serde_json::Value) -> String {
    let text = value.to_string();
    let encoded = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
    format!("filters={encoded}")
}
