//! The one task that sends spans: in batches, one at a time, each within [`SEND_WAIT`].

use std::{
    convert::Infallible,
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use oac_dial::{ReachError, Rest, Way};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span as Message, Status, span::Link, status::StatusCode as Code},
};
use prost::Message as _;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Context, Ended, Endpoint, Kind, Program, Value,
    outcome::{NOT_TAKEN, SENT},
};
use crate::Counter;

/// Spans in one request.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// From the first byte to the collector to its whole answer.
const SEND_WAIT: Duration = Duration::from_secs(10);
/// How often a batch is sent that the collector may take later.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of the program waits for the collector.
const FLUSH_WAIT: Duration = Duration::from_secs(2);
/// An answer.
const ANSWER_BYTES: usize = 64 * 1024;
/// That the trace is kept, as the flags of a span say it.
const SAMPLED: u32 = 1;

/// Sends spans while it is awaited. The default sends nothing.
#[derive(Default)]
pub struct Export(Option<Sender>);

struct Sender {
    endpoint: Endpoint,
    way: Way,
    program: Program,
    queue: mpsc::Receiver<Ended>,
    /// Taken from the queue and not yet sent.
    batch: Vec<Ended>,
    spans: Counter<1>,
    /// Whether the collector took the last batch; said once when it changes.
    taken: bool,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("no answer")]
    Reach(#[from] ReachError),
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("no answer in time")]
    Late,
    #[error("its answer cannot be read")]
    Answer,
}

impl SendError {
    /// Whether the collector may take the same batch later.
    fn passes(&self) -> bool {
        match self {
            Self::Reach(ReachError::Large) | Self::Answer => false,
            Self::Reach(_) | Self::Late => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl Export {
    pub(super) fn to(
        endpoint: Endpoint,
        program: Program,
        queue: mpsc::Receiver<Ended>,
        spans: Counter<1>,
    ) -> Self {
        Self(Some(Sender {
            way: endpoint.way(program.name),
            endpoint,
            program,
            queue,
            batch: Vec::new(),
            spans,
            taken: true,
        }))
    }

    #[cfg(test)]
    pub(super) fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Sends spans for as long as it is awaited. Dropped at any await it loses nothing that [`Self::flush`] would send.
    pub async fn run(&mut self) -> Infallible {
        match &mut self.0 {
            Some(sender) => loop {
                sender.gather().await;
                sender.send().await;
            },
            None => std::future::pending().await,
        }
    }

    /// The last words: what ended before is sent, as far as the collector takes it within two seconds.
    pub async fn flush(self) {
        let Some(mut sender) = self.0 else { return };
        sender.queue.close();
        let sent = timeout(FLUSH_WAIT, async {
            loop {
                let free = BATCH - sender.batch.len();
                if sender.queue.recv_many(&mut sender.batch, free).await == 0 && sender.batch.is_empty() {
                    break;
                }
                sender.send().await;
            }
        });
        if sent.await.is_err() {
            let left = sender.batch.len() + sender.queue.len();
            sender.spans.add(NOT_TAKEN, left as u64);
        }
    }
}

impl Sender {
    /// Waits for a span, then a little for others.
    async fn gather(&mut self) {
        if self.batch.is_empty() {
            match self.queue.recv().await {
                Some(span) => self.batch.push(span),
                None => std::future::pending().await,
            }
        }
        let until = Instant::now() + LINGER;
        while self.batch.len() < BATCH {
            let free = BATCH - self.batch.len();
            match timeout_at(until, self.queue.recv_many(&mut self.batch, free)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }

    /// Sends the batch or gives it up.
    async fn send(&mut self) {
        let count = self.batch.len() as u64;
        let body = Bytes::from(request(&self.program, &self.batch).encode_to_vec());
        let mut attempt = 1;
        let result = loop {
            let posted = timeout(SEND_WAIT, post(&self.way, body.clone())).await;
            match posted.unwrap_or(Err(SendError::Late)) {
                Err(error) if error.passes() && attempt < ATTEMPTS => {
                    attempt += 1;
                    sleep(PAUSE).await;
                }
                result => break result,
            }
        };
        self.batch.clear();
        let refused = match &result {
            Ok(refused) => (*refused).min(count),
            Err(_) => count,
        };
        self.spans.add(SENT, count - refused);
        self.spans.add(NOT_TAKEN, refused);
        match result {
            Ok(_) if !self.taken => {
                tracing::info!(event = "traces_taken", collector = %self.endpoint, "the collector takes spans again");
            }
            Err(ref error) if self.taken => {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(event = "traces_not_taken", collector = %self.endpoint, %error, cause, "the collector takes no spans: they are dropped");
            }
            _ => {}
        }
        self.taken = result.is_ok();
    }
}

/// Sends one batch over a connection of its own; how many spans of it the collector refused.
async fn post(way: &Way, body: Bytes) -> Result<u64, SendError> {
    let request = Request::post("/v1/traces")
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::new(body))
        .map_err(|_| SendError::Answer)?;
    let answer = way.ask(request, ANSWER_BYTES).await?;
    if !answer.head.status.is_success() {
        return Err(SendError::Status(answer.head.status));
    }
    let Rest::Body(body) = answer.rest else {
        return Err(SendError::Answer);
    };
    let said = ExportTraceServiceResponse::decode(body).map_err(|_| SendError::Answer)?;
    let refused = said.partial_success.map_or(0, |partial| partial.rejected_spans);
    Ok(u64::try_from(refused).unwrap_or(0))
}

fn request(program: &Program, spans: &[Ended]) -> ExportTraceServiceRequest {
    let said = [
        ("service.name", Value::Text(program.name)),
        ("service.version", Value::Text(program.version)),
        ("service.instance.id", Value::Id(program.instance)),
    ];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: said.into_iter().map(attribute).collect(),
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "oac".to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans: spans.iter().map(message).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn message(span: &Ended) -> Message {
    let began = span.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Message {
        trace_id: span.context.trace.as_bytes().to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
        flags: SAMPLED,
        name: span.name.join(" "),
        kind: match span.kind {
            Kind::Internal => 1,
            Kind::Server => 2,
            Kind::Client => 3,
        },
        start_time_unix_nano: nanos(began),
        end_time_unix_nano: nanos(began + span.took),
        attributes: span.attributes.iter().copied().map(attribute).collect(),
        links: span.links.iter().map(link).collect(),
        status: span.failed.then(|| Status {
            code: Code::Error.into(),
            message: String::new(),
        }),
        ..Message::default()
    }
}

fn link(to: &Context) -> Link {
    Link {
        trace_id: to.trace.as_bytes().to_vec(),
        span_id: to.span.to_vec(),
        flags: SAMPLED,
        ..Link::default()
    }
}

fn attribute((name, value): (&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text.to_owned()),
        Value::Id(id) => any_value::Value::StringValue(id.hyphenated().to_string()),
        Value::Number(number) => any_value::Value::IntValue(number),
    };
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
