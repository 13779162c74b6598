//! The text form of frames.
//!
//! A frame is decoded in one pass straight into its type. A request's arguments and a response's results get a second
//! look only when that pass fails: a wrong *structure* makes the whole frame invalid, but a wrong *value* in a frame of
//! right structure is the peer's mistake about one operation, answered `invalid` or read as unconfirmed
//! (protocol.md section 7), and the envelope is still good.

use oac_model::{ConnectionId, OwnerEpoch, Reference, RequestId};
use serde::{Deserialize, Serialize};

use crate::{
    frames::{
        Arguments, CoreFrame, FrameError, InvalidRequest, InvalidResult, NodeFrame, Request, Response,
        ResponseResult,
    },
    limits,
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Resume, Retained,
        Sample, Suspend, Unsupported,
    },
    strict::{self, StrictError},
    structure, validate,
};

#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(default)]
    version: Option<serde_json::Value>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<std::borrow::Cow<'a, str>>,
}

/// The frame type, read first. Senders write it up front, so large frames are not scanned twice for it.
fn kind_of(text: &[u8]) -> Result<std::borrow::Cow<'_, str>, FrameError> {
    for kind in ["request", "response"] {
        let mut start = Vec::with_capacity(40);
        write_start(&mut start, kind);
        if text.starts_with(&start) && text.get(start.len()) == Some(&b',') {
            return Ok(kind.into());
        }
    }
    let malformed = |text: &[u8]| {
        // The strict reader words the error; the document is at most one frame.
        match strict::from_slice::<serde_json::Value>(text) {
            Err(error) => FrameError::Malformed(error),
            Ok(_) => FrameError::Type,
        }
    };
    let peek: Peek<'_> = serde_json::from_slice(text).map_err(|_| malformed(text))?;
    if peek.version.is_some_and(|v| v != crate::PROTOCOL_VERSION) {
        return Err(FrameError::Version);
    }
    peek.kind.ok_or_else(|| malformed(text))
}

fn limit_of(kind: &str) -> usize {
    match kind {
        "request" | "response" => limits::REQUEST_FRAME_BYTES,
        _ => limits::CONTROL_FRAME_BYTES,
    }
}

fn within_limit(text: &[u8], kind: &str) -> Result<(), FrameError> {
    let limit = limit_of(kind);
    if text.len() > limit {
        Err(FrameError::TooLarge {
            bytes: text.len(),
            limit,
        })
    } else {
        Ok(())
    }
}

fn payload<'a, T: Deserialize<'a>>(text: &'a [u8], kind: &str) -> Result<T, FrameError> {
    strict::frame_from_slice(text, kind).map_err(FrameError::Malformed)
}

impl NodeFrame {
    /// Decodes and checks a frame that Core received.
    pub fn decode(text: &[u8]) -> Result<Self, FrameError> {
        if text.len() > limits::REQUEST_FRAME_BYTES {
            return Err(FrameError::TooLarge {
                bytes: text.len(),
                limit: limits::REQUEST_FRAME_BYTES,
            });
        }
        let kind = kind_of(text)?;
        within_limit(text, &kind)?;
        let frame = match &*kind {
            "hello" => Self::Hello(payload(text, "hello")?),
            "heartbeat" => Self::Heartbeat(payload(text, "heartbeat")?),
            "retention" => Self::Retention(payload(text, "retention")?),
            "response" => Self::Response(Box::new(decode_response(text)?)),
            _ => return Err(FrameError::Type),
        };
        frame.check()?;
        Ok(frame)
    }

    /// The frame's text; refuses what the receiver would refuse.
    pub fn encode(&self) -> Result<String, FrameError> {
        self.check()?;
        match self {
            Self::Hello(f) => write("hello", f),
            Self::Heartbeat(f) => write("heartbeat", f),
            Self::Retention(f) => write("retention", f),
            Self::Response(f) => encode_response(f),
        }
    }

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Self::Hello(f) => {
                validate::identity(&f.identity)?;
                validate::health(&f.health, f.generation_management == Some(true))
            }
            Self::Heartbeat(f) => validate::health(&f.health, f.health.generations.is_some()),
            Self::Retention(f) => validate::retention(&f.control),
            Self::Response(f) => validate::response(f),
        }
    }
}

impl CoreFrame {
    /// Decodes and checks a frame that a node received.
    pub fn decode(text: &[u8]) -> Result<Self, FrameError> {
        if text.len() > limits::REQUEST_FRAME_BYTES {
            return Err(FrameError::TooLarge {
                bytes: text.len(),
                limit: limits::REQUEST_FRAME_BYTES,
            });
        }
        let kind = kind_of(text)?;
        within_limit(text, &kind)?;
        let frame = match &*kind {
            "welcome" => Self::Welcome(payload(text, "welcome")?),
            "heartbeat_ack" => Self::HeartbeatAck(payload(text, "heartbeat_ack")?),
            "retention_ack" => Self::RetentionAck(payload(text, "retention_ack")?),
            "request" => Self::Request(Box::new(decode_request(text)?)),
            _ => return Err(FrameError::Type),
        };
        frame.check()?;
        Ok(frame)
    }

    /// The frame's text; refuses what the receiver would refuse.
    pub fn encode(&self) -> Result<String, FrameError> {
        self.check()?;
        match self {
            Self::Welcome(f) => write("welcome", f),
            Self::HeartbeatAck(f) => write("heartbeat_ack", f),
            Self::RetentionAck(f) => write("retention_ack", f),
            Self::Request(f) => encode_request(f),
        }
    }

    fn check(&self) -> Result<(), FrameError> {
        match self {
            Self::RetentionAck(f) => validate::retention_ack(&f.control),
            Self::Request(f) if f.sequence < 1 => Err(FrameError::Bounds("sequence must be at least 1")),
            _ => Ok(()),
        }
    }
}

fn write_start(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(br#"{"version":1,"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

/// Writes the header and then the payload's own members, in one buffer.
fn write(kind: &str, payload: &impl Serialize) -> Result<String, FrameError> {
    let mut out = Vec::with_capacity(1024);
    write_start(&mut out, kind);
    let at = out.len();
    serde_json::to_writer(&mut out, payload).map_err(|_| FrameError::Bounds("a number is not finite"))?;
    debug_assert_eq!(out[at], b'{');
    out[at] = b',';
    within_limit(&out, kind)?;
    String::from_utf8(out).map_err(|_| FrameError::Bounds("not UTF-8"))
}

/// A request's members as they stand on the wire.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    id: RequestId,
    sequence: i64,
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    deployment_generation: i64,
    operation: String,
    timeout_ms: i64,
    reference: Reference,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bootstrap: Option<Box<Bootstrap>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Command>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    observation: Option<Box<Observation>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute: Option<Box<Compute>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspend: Option<Box<Suspend>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resume: Option<Box<Resume>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retained: Option<Box<Retained>>,
}

/// What must be good for a request to be answered at all.
#[derive(Deserialize)]
struct RequestEnvelope {
    id: RequestId,
    sequence: i64,
    connection_id: ConnectionId,
    owner_epoch: OwnerEpoch,
    deployment_generation: i64,
}

fn decode_request(text: &[u8]) -> Result<Request, FrameError> {
    match strict::frame_from_slice::<RawRequest>(text, "request") {
        Ok(raw) => Ok(Request {
            id: raw.id,
            sequence: raw.sequence,
            connection_id: raw.connection_id,
            owner_epoch: raw.owner_epoch,
            deployment_generation: raw.deployment_generation,
            body: validate::request_body(raw.into_parts()),
        }),
        Err(error) => {
            let envelope: RequestEnvelope = after_structure(text, "request", &structure::REQUEST, &error)?;
            Ok(Request {
                id: envelope.id,
                sequence: envelope.sequence,
                connection_id: envelope.connection_id,
                owner_epoch: envelope.owner_epoch,
                deployment_generation: envelope.deployment_generation,
                body: Err(InvalidRequest(error.to_string())),
            })
        }
    }
}

/// The envelope of a frame whose typed decode failed, if its structure is right; else the frame's error.
fn after_structure<T: for<'de> Deserialize<'de>>(
    text: &[u8],
    kind: &str,
    shape: &structure::Shape,
    error: &StrictError,
) -> Result<T, FrameError> {
    let malformed = || FrameError::Malformed(error.clone());
    if error.mistake == strict::Mistake::Syntax {
        return Err(malformed());
    }
    let value: serde_json::Value = strict::frame_from_slice(text, kind).map_err(FrameError::Malformed)?;
    if !structure::conforms(&value, shape) {
        return Err(malformed());
    }
    serde_json::from_value(value).map_err(|_| malformed())
}

impl RawRequest {
    fn into_parts(self) -> validate::RequestParts {
        validate::RequestParts {
            deployment_generation: self.deployment_generation,
            operation: self.operation,
            timeout_ms: self.timeout_ms,
            reference: self.reference,
            bootstrap: self.bootstrap,
            command: self.command,
            observation: self.observation,
            generation: self.generation,
            compute: self.compute,
            suspend: self.suspend,
            resume: self.resume,
            retained: self.retained,
        }
    }
}

fn encode_request(request: &Request) -> Result<String, FrameError> {
    let body = request
        .body
        .as_ref()
        .map_err(|_| FrameError::Bounds("an invalid request is never sent"))?;
    validate::arguments(&body.reference, &body.arguments)
        .map_err(|_| FrameError::Bounds("request out of bounds"))?;
    let mut raw = RawRequest {
        id: request.id,
        sequence: request.sequence,
        connection_id: request.connection_id,
        owner_epoch: request.owner_epoch,
        deployment_generation: request.deployment_generation,
        operation: body.arguments.operation().as_str().to_owned(),
        timeout_ms: i64::from(body.timeout_ms),
        reference: body.reference,
        bootstrap: None,
        command: None,
        observation: None,
        generation: None,
        compute: None,
        suspend: None,
        resume: None,
        retained: None,
    };
    match &body.arguments {
        Arguments::Create(b) => raw.bootstrap = Some(b.clone()),
        Arguments::Command(c) => raw.command = Some(c.clone()),
        Arguments::Observe(o) => raw.observation = Some(o.clone()),
        Arguments::NewCompute { generation, retained } => {
            raw.generation = Some(generation.get());
            raw.retained.clone_from(retained);
        }
        Arguments::Compute(c) | Arguments::KillCompute(c) | Arguments::ResumeCompute(c) => {
            raw.compute = Some(c.clone());
        }
        Arguments::CommandCompute(compute, command) => {
            raw.compute = Some(compute.clone());
            raw.command = Some(command.clone());
        }
        Arguments::Suspend(s) => raw.suspend = Some(s.clone()),
        Arguments::Resume(r) => raw.resume = Some(r.clone()),
        Arguments::DeleteRetained(r) => raw.retained = Some(r.clone()),
        Arguments::Info | Arguments::Renew | Arguments::Kill | Arguments::Initial => {}
    }
    write("request", &raw)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResponse {
    id: RequestId,
    connection_id: ConnectionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<Info>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<CommandResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample: Option<Sample>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute: Option<Box<Compute>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Box<ComputeState>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsupported: Option<Unsupported>,
}

#[derive(Deserialize)]
struct ResponseEnvelope {
    id: RequestId,
    connection_id: ConnectionId,
    error_code: Option<String>,
}

fn decode_response(text: &[u8]) -> Result<Response, FrameError> {
    match strict::frame_from_slice::<RawResponse>(text, "response") {
        Ok(raw) => {
            let mut results = [
                raw.info.map(ResponseResult::Info),
                raw.command.map(ResponseResult::Command),
                raw.sample.map(ResponseResult::Sample),
                raw.compute.map(ResponseResult::Compute),
                raw.state.map(ResponseResult::State),
                raw.unsupported.map(ResponseResult::Unsupported),
            ]
            .into_iter()
            .flatten();
            let result = results.next();
            if results.next().is_some() {
                return Err(FrameError::Bounds("a response holds at most one result"));
            }
            let result = match result {
                Some(result) => validate::result(&result).map(|()| Some(result)),
                None => Ok(None),
            };
            Ok(Response {
                id: raw.id,
                connection_id: raw.connection_id,
                error_code: raw.error_code,
                result,
            })
        }
        Err(error) => {
            let envelope: ResponseEnvelope = after_structure(text, "response", &structure::RESPONSE, &error)?;
            Ok(Response {
                id: envelope.id,
                connection_id: envelope.connection_id,
                error_code: envelope.error_code,
                result: Err(InvalidResult(error.to_string())),
            })
        }
    }
}

fn encode_response(response: &Response) -> Result<String, FrameError> {
    let result = response
        .result
        .as_ref()
        .map_err(|_| FrameError::Bounds("an invalid response is never sent"))?;
    let mut raw = RawResponse {
        id: response.id,
        connection_id: response.connection_id,
        error_code: response.error_code.clone(),
        info: None,
        command: None,
        sample: None,
        compute: None,
        state: None,
        unsupported: None,
    };
    if let Some(result) = result {
        validate::result(result).map_err(|_| FrameError::Bounds("response out of bounds"))?;
        match result.clone() {
            ResponseResult::Info(v) => raw.info = Some(v),
            ResponseResult::Command(v) => raw.command = Some(v),
            ResponseResult::Sample(v) => raw.sample = Some(v),
            ResponseResult::Compute(v) => raw.compute = Some(v),
            ResponseResult::State(v) => raw.state = Some(v),
            ResponseResult::Unsupported(v) => raw.unsupported = Some(v),
        }
    }
    write("response", &raw)
}
