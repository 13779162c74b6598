//! A collector of traces: takes OTLP over HTTP, as protobuf, and keeps what it was sent.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use oac_telemetry::traces::{Ratio, Settings};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{KeyValue, any_value},
    trace::v1::Span,
};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A collector at a free port of one address. Dropped, it is gone.
pub struct Collector {
    pub address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// A span with the name of the program that sent it.
#[derive(Debug, Clone)]
pub struct Sent {
    pub program: String,
    pub span: Span,
}

/// Settings that send every span to `address`.
///
/// # Panics
/// Never: an address is an endpoint.
pub fn settings(address: SocketAddr) -> Settings {
    Settings {
        endpoint: format!("http://{address}")
            .parse()
            .unwrap_or_else(|e| panic!("{address}: {e}")),
        sample_ratio: Ratio::ALL,
    }
}

impl Collector {
    /// Takes whatever it is sent.
    pub async fn start() -> Self {
        Self::at(true).await
    }

    /// Accepts connections and says nothing on them, ever.
    pub async fn frozen() -> Self {
        Self::at(false).await
    }

    async fn at(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap_or_else(|e| panic!("cannot listen: {e}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|e| panic!("no address: {e}"));
        let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let kept = bodies.clone();
        let connections: Arc<AtomicUsize> = Arc::default();
        let accepted = connections.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut held = Vec::new();
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Relaxed);
                if answers {
                    open.spawn(take(stream, kept.clone()));
                } else {
                    held.push(stream);
                }
            }
        });
        Self {
            address,
            bodies,
            connections,
            _tasks: tasks,
        }
    }

    /// How often it was connected to.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Every span so far.
    ///
    /// # Panics
    /// When something else was sent.
    pub fn spans(&self) -> Vec<Sent> {
        let mut spans = Vec::new();
        for body in self.bodies.lock().iter() {
            let request =
                ExportTraceServiceRequest::decode(body.as_slice()).unwrap_or_else(|e| panic!("no OTLP: {e}"));
            for resource in request.resource_spans {
                let said = resource.resource.unwrap_or_default();
                let program = text(&said.attributes, "service.name").unwrap_or_default();
                for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                    spans.push(Sent {
                        program: program.clone(),
                        span,
                    });
                }
            }
        }
        spans
    }

    /// Whether `text` is anywhere in what came.
    pub fn has(&self, text: &str) -> bool {
        let text = text.as_bytes();
        let bodies = self.bodies.lock();
        bodies
            .iter()
            .any(|body| body.windows(text.len()).any(|window| window == text))
    }
}

impl Sent {
    /// An attribute of the span.
    pub fn text(&self, name: &str) -> Option<String> {
        text(&self.span.attributes, name)
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// One request on one connection; whatever is not as OTLP says is answered with 400.
async fn take(mut stream: TcpStream, bodies: Arc<Mutex<Vec<Vec<u8>>>>) {
    let Some(body) = request(&mut stream).await else {
        let _ = stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .await;
        return;
    };
    bodies.lock().push(body);
    let answer = ExportTraceServiceResponse::default().encode_to_vec();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        answer.len()
    );
    let _ = stream.write_all(&[head.into_bytes(), answer].concat()).await;
}

/// The body of a POST to `/v1/traces`.
async fn request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read[..end].to_vec()).ok()?.to_lowercase();
    let is_otlp = head.starts_with("post /v1/traces http/1.1\r\n")
        && head.contains("\r\ncontent-type: application/x-protobuf");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?
        .parse()
        .ok()?;
    let mut body = read.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    is_otlp.then_some(body)
}
