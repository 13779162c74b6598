//! Typed calls of the runtime's service over a link.

use bytes::{Bytes, BytesMut};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use oac_model::{InstanceId, OperationId, TurnId};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    exchange::{Exchange, LinkError, RequestBody, ResponseBody, StreamClass, empty, full},
    json, limits,
    mux::LinkClient,
    service::{
        Ack, Cancel, ErrorAnswer, Exit, OutputLine, OutputStreamName, PutTurnAnswer, PutTurnRequest,
        QuiesceAnswer, QuiesceRequest, Status, TurnRecord, codes,
    },
};

/// Why a call gave no answer to use.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Whether the runtime acted is unknown, unless the link was closed or full before anything was sent.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The runtime answered with an error that the call does not expect.
    #[error("the runtime answered {status} {code}")]
    Answered { status: StatusCode, code: String },
    /// The answer breaks the service's shape.
    #[error("the runtime's answer is malformed")]
    Malformed,
}

/// The answer to `PUT /v1/turns/{id}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutTurn {
    /// 201: the process was started, or its failure to start recorded, now.
    Started { instance_id: InstanceId },
    /// 200: it was started before, with an equal digest.
    Known { instance_id: InstanceId },
    /// 409: the id is known with another digest.
    DigestDiffers,
    /// 409: another Turn is running.
    OtherRunning,
    /// 409: the Turn ended and its end was acknowledged.
    EndedAndAcknowledged,
}

/// The answer to `POST /v1/quiesce`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiesce {
    /// 200.
    Quiesced,
    /// 409: a Turn runs or has unacknowledged output, a file operation is open or a port stream exists.
    Busy,
}

/// Why output could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// 416.
    #[error("the offset is below the acknowledged or above the written one")]
    OutOfRange,
    /// 404.
    #[error("the runtime has no record of the Turn")]
    Unknown,
}

/// One item of a Turn's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputItem {
    Data {
        offset: u64,
        stream: OutputStreamName,
        data: Bytes,
    },
    /// The last item; `offset` is the length of all output.
    End { offset: u64, exit: Exit },
}

/// A Turn's output as it is written, from one offset on to its end.
#[derive(Debug)]
pub struct OutputStream {
    body: ResponseBody,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of a line.
    scanned: usize,
    /// The offset the next item must have.
    next: u64,
    ended: bool,
}

impl LinkClient {
    /// The runtime's Turns and identity; the first success makes a link ready.
    pub async fn status(&self) -> Result<Status, CallError> {
        let answer = self.call(Method::GET, "/v1/status", empty()).await?;
        expect(answer, StatusCode::OK).await
    }

    /// Starts a Turn, once for its id whatever is repeated.
    pub async fn put_turn(&self, turn: TurnId, request: &PutTurnRequest) -> Result<PutTurn, CallError> {
        let answer = self
            .call(Method::PUT, &format!("/v1/turns/{turn}"), body(request))
            .await?;
        match answer.status() {
            StatusCode::CREATED => {
                let PutTurnAnswer { instance_id } = read(answer).await?;
                Ok(PutTurn::Started { instance_id })
            }
            StatusCode::OK => {
                let PutTurnAnswer { instance_id } = read(answer).await?;
                Ok(PutTurn::Known { instance_id })
            }
            StatusCode::CONFLICT => match error_of(answer).await {
                CallError::Answered { code, .. } if code == codes::DIGEST_DIFFERS => {
                    Ok(PutTurn::DigestDiffers)
                }
                CallError::Answered { code, .. } if code == codes::TURN_RUNNING => Ok(PutTurn::OtherRunning),
                CallError::Answered { code, .. } if code == codes::TURN_ENDED => {
                    Ok(PutTurn::EndedAndAcknowledged)
                }
                error => Err(error),
            },
            _ => Err(error_of(answer).await),
        }
    }

    /// One Turn's record; `None` when the runtime has none.
    pub async fn turn(&self, turn: TurnId) -> Result<Option<TurnRecord>, CallError> {
        let answer = self
            .call(Method::GET, &format!("/v1/turns/{turn}"), empty())
            .await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            _ => expect(answer, StatusCode::OK).await.map(Some),
        }
    }

    /// Follows a Turn's output from byte `offset` to its end.
    pub async fn output(&self, turn: TurnId, offset: u64) -> Result<OutputStream, OutputError> {
        let request = Request::get(format!("/v1/turns/{turn}/output?offset={offset}")).body(empty());
        let answer = self
            .request(StreamClass::Output, built(request))
            .await
            .map_err(CallError::Link)?;
        match answer.status() {
            StatusCode::OK => Ok(OutputStream {
                body: answer.into_body(),
                buffer: BytesMut::new(),
                scanned: 0,
                next: offset,
                ended: false,
            }),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(OutputError::OutOfRange),
            StatusCode::NOT_FOUND => Err(OutputError::Unknown),
            _ => Err(OutputError::Call(error_of(answer).await)),
        }
    }

    /// Acknowledges output that Core has stored or counted as truncated (INV-S5); `false` when the Turn is unknown.
    pub async fn ack(&self, turn: TurnId, ack: Ack) -> Result<bool, CallError> {
        let path = format!("/v1/turns/{turn}/ack");
        self.post(&path, body(&ack)).await
    }

    /// SIGTERM now, SIGKILL after the grace; harmless to repeat. `false` when the Turn is unknown.
    pub async fn cancel(&self, turn: TurnId, cancel: Cancel) -> Result<bool, CallError> {
        let path = format!("/v1/turns/{turn}/cancel");
        self.post(&path, body(&cancel)).await
    }

    /// Has the runtime let nothing begin any more and write everything to disk; it is to be parked then, by closing the
    /// link with [`crate::CloseReason::Parked`]. After any error it is perhaps quiesced, unless that says `link is closed`.
    pub async fn quiesce(&self, suspend_id: OperationId) -> Result<Quiesce, CallError> {
        let request = body(&QuiesceRequest { suspend_id });
        let answer = self.call(Method::POST, "/v1/quiesce", request).await?;
        match answer.status() {
            StatusCode::OK => match read(answer).await? {
                QuiesceAnswer { quiesced: true } => Ok(Quiesce::Quiesced),
                QuiesceAnswer { quiesced: false } => Err(CallError::Malformed),
            },
            StatusCode::CONFLICT => match error_of(answer).await {
                CallError::Answered { code, .. } if code == codes::BUSY => Ok(Quiesce::Busy),
                error => Err(error),
            },
            _ => Err(error_of(answer).await),
        }
    }

    async fn post(&self, path: &str, body: RequestBody) -> Result<bool, CallError> {
        let answer = self.call(Method::POST, path, body).await?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(error_of(answer).await),
        }
    }

    async fn call(&self, method: Method, path: &str, body: RequestBody) -> Result<Exchange, LinkError> {
        let request = Request::builder().method(method).uri(path).body(body);
        self.request(StreamClass::Control, built(request)).await
    }
}

fn built(request: http::Result<Request<RequestBody>>) -> Request<RequestBody> {
    request.unwrap_or_else(|error| unreachable!("paths of ids and numbers are valid: {error}"))
}

fn body<T: Serialize>(value: &T) -> RequestBody {
    full(json::encode(value))
}

async fn expect<T: DeserializeOwned>(answer: Exchange, status: StatusCode) -> Result<T, CallError> {
    if answer.status() == status {
        read(answer).await
    } else {
        Err(error_of(answer).await)
    }
}

async fn read<T: DeserializeOwned>(answer: Exchange) -> Result<T, CallError> {
    read_within(answer, limits::ANSWER_JSON_BYTES).await
}

/// One JSON document of at most `limit` bytes.
pub(crate) async fn read_within<T: DeserializeOwned>(answer: Exchange, limit: usize) -> Result<T, CallError> {
    let mut body = answer.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(LinkError::Broken)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit {
                return Err(CallError::Malformed);
            }
            bytes.extend_from_slice(data);
        }
    }
    json::decode(&bytes).ok_or(CallError::Malformed)
}

pub(crate) async fn error_of(answer: Exchange) -> CallError {
    let status = answer.status();
    match read::<ErrorAnswer>(answer).await {
        Ok(ErrorAnswer { code, .. }) => CallError::Answered { status, code },
        Err(error) => error,
    }
}

impl OutputStream {
    /// The next item; `None` after the end. An error leaves the offset reached valid: follow again from there. Dropping
    /// the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<OutputItem>, CallError> {
        loop {
            if self.ended {
                return Ok(None);
            }
            if let Some(item) = self.buffered()? {
                return Ok(Some(item));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(CallError::Link(LinkError::Broken(error))),
                // Only the exit line ends an output.
                None => return Err(CallError::Link(LinkError::Closed)),
            }
        }
    }

    /// Waits for one item and takes those that have arrived with it, up to about `bytes` of data; empty after the end.
    /// Dropping the future loses nothing.
    pub async fn next_batch(&mut self, bytes: usize) -> Result<Vec<OutputItem>, CallError> {
        let mut items = Vec::new();
        let mut size = 0;
        let mut next = self.next().await?;
        while let Some(item) = next {
            if let OutputItem::Data { data, .. } = &item {
                size += data.len();
            }
            items.push(item);
            next = if size < bytes && !self.ended {
                self.buffered()?
            } else {
                None
            };
        }
        Ok(items)
    }

    /// The offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.next
    }

    fn buffered(&mut self) -> Result<Option<OutputItem>, CallError> {
        let unseen = &self.buffer[self.scanned..];
        let Some(end) = unseen
            .iter()
            .position(|b| *b == b'\n')
            .map(|at| self.scanned + at)
        else {
            self.scanned = self.buffer.len();
            if self.buffer.len() > limits::OUTPUT_LINE_BYTES {
                return Err(CallError::Malformed);
            }
            return Ok(None);
        };
        self.scanned = 0;
        let line = self.buffer.split_to(end + 1);
        let line: OutputLine = json::decode(&line[..end]).ok_or(CallError::Malformed)?;
        if line.offset != self.next {
            return Err(CallError::Malformed);
        }
        match line {
            OutputLine {
                offset,
                stream: Some(stream),
                data: Some(data),
                exit: None,
            } if (1..=limits::RECORD_BYTES).contains(&data.0.len()) => {
                self.next += data.0.len() as u64;
                Ok(Some(OutputItem::Data {
                    offset,
                    stream,
                    data: data.0.into(),
                }))
            }
            OutputLine {
                offset,
                stream: None,
                data: None,
                exit: Some(exit),
            } => {
                self.ended = true;
                Ok(Some(OutputItem::End { offset, exit }))
            }
            _ => Err(CallError::Malformed),
        }
    }
}
