//! The runtime's HTTP service (sessions.md section 7), reachable only through the link.

use std::{convert::Infallible, future::Future, io, num::NonZeroU16, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming},
};
use oac_link::service::{
    Ack, Cancel, ErrorAnswer, OutputLine, PutTurnAnswer, PutTurnRequest, QuiesceAnswer, QuiesceRequest, Run,
    Status, codes,
};
use oac_model::{BootId, InstanceId, TurnId};
use oac_wire::B64;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use crate::{
    activity::Activity,
    files::Files,
    limits,
    park::{Park, Quiesce},
    ports::Ports,
    task,
    turns::{AckError, Chunk, FollowError, LogCursor, Progress, Put, PutError, Turns},
};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Serves one runtime; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub turns: Turns,
    /// Open file operations and port streams; acknowledgements, which change files too.
    pub activity: Activity,
    pub park: Park,
    pub ports: Ports,
    pub files: Files,
    pub instance_id: InstanceId,
    pub boot_id: BootId,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            Ok(service
                .answer(request)
                .await
                .unwrap_or_else(|refusal| refusal.answer()))
        })
    }
}

/// An error answer.
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, codes::INVALID, message)
    }

    fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, codes::NOT_FOUND, "nothing has this path")
    }

    fn unknown_turn() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            codes::NOT_FOUND,
            "the Turn has no record here",
        )
    }

    pub(crate) fn answer(self) -> Answer {
        json(
            self.status,
            &ErrorAnswer {
                code: self.code.to_owned(),
                message: self.message,
            },
        )
    }
}

enum Route {
    Status,
    Turn(TurnId),
    Output(TurnId),
    Ack(TurnId),
    Cancel(TurnId),
    Port(NonZeroU16),
    File,
    FileList,
    Quiesce,
}

fn route(path: &str) -> Option<Route> {
    let parts: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
    let id = |text: &str| text.parse::<TurnId>().ok();
    Some(match parts.as_slice() {
        ["status"] => Route::Status,
        ["turns", turn] => Route::Turn(id(turn)?),
        ["turns", turn, "output"] => Route::Output(id(turn)?),
        ["turns", turn, "ack"] => Route::Ack(id(turn)?),
        ["turns", turn, "cancel"] => Route::Cancel(id(turn)?),
        ["ports", port] => Route::Port(port_number(port)?),
        ["files"] => Route::File,
        ["files", "list"] => Route::FileList,
        ["quiesce"] => Route::Quiesce,
        _ => return None,
    })
}

/// A number as Core writes it: no sign, no leading zero.
fn port_number(text: &str) -> Option<NonZeroU16> {
    text.parse()
        .ok()
        .filter(|port: &NonZeroU16| port.to_string() == text)
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let route = route(request.uri().path()).ok_or_else(Refusal::not_found)?;
        if !matches!(route, Route::Output(_) | Route::File | Route::FileList)
            && request.uri().query().is_some()
        {
            return Err(Refusal::invalid("this path takes no query"));
        }
        match (request.method(), route) {
            (&Method::GET, Route::Status) => Ok(json(StatusCode::OK, &self.status())),
            (&Method::PUT, Route::Turn(turn)) => self.put(turn, request).await,
            (&Method::GET, Route::Turn(turn)) => {
                let record = self.turns.record(turn).ok_or_else(Refusal::unknown_turn)?;
                Ok(json(StatusCode::OK, &record))
            }
            (&Method::GET, Route::Output(turn)) => self.output(turn, request.uri().query()).await,
            (&Method::POST, Route::Ack(turn)) => self.ack(turn, request).await,
            (&Method::POST, Route::Cancel(turn)) => self.cancel(turn, request).await,
            (&Method::POST, Route::Port(port)) => self.ports.connect(port, request).await,
            (_, Route::File) => self.files.file(request).await,
            (&Method::GET, Route::FileList) => self.files.list(request.uri().query()).await,
            (&Method::POST, Route::Quiesce) => self.quiesce(request).await,
            _ => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                codes::INVALID,
                "this path has another method",
            )),
        }
    }

    fn status(&self) -> Status {
        Status {
            runtime_version: crate::VERSION.to_owned(),
            instance_id: self.instance_id,
            boot_id: self.boot_id,
            parked: self.park.is_quiesced(),
            turns: self.turns.status(),
        }
    }

    async fn put(&self, turn: TurnId, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let body: PutTurnRequest = read(request, oac_link::limits::PUT_TURN_BYTES).await?;
        let (digest, run) = body.into_parts();
        check(&run).map_err(Refusal::invalid)?;
        if run.digest() != digest {
            return Err(Refusal::invalid("digest is not that of the other members"));
        }
        let conflict = |code, message: &str| Refusal::new(StatusCode::CONFLICT, code, message);
        let status = match self.turns.put(turn, digest, run).await {
            Ok(Put::Started) => StatusCode::CREATED,
            Ok(Put::Known) => StatusCode::OK,
            Err(error) => {
                return Err(match error {
                    PutError::DigestDiffers => {
                        conflict(codes::DIGEST_DIFFERS, "the Turn is known with another digest")
                    }
                    PutError::OtherRunning => conflict(codes::TURN_RUNNING, "another Turn is running"),
                    PutError::EndedAndAcknowledged => {
                        conflict(codes::TURN_ENDED, "the Turn ended and its end was acknowledged")
                    }
                    PutError::Stopping => Refusal::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        codes::STOPPING,
                        "the runtime is shutting down",
                    ),
                    PutError::Storage(why) => {
                        crate::report(format_args!(
                            "Turn {turn} was not started, no record can be made: {why}"
                        ));
                        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, codes::STORAGE_FAILED, why)
                    }
                });
            }
        };
        Ok(json(
            status,
            &PutTurnAnswer {
                instance_id: self.instance_id,
            },
        ))
    }

    async fn output(&self, turn: TurnId, query: Option<&str>) -> Result<Answer, Refusal> {
        let offset = query
            .and_then(|query| query.strip_prefix("offset="))
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| Refusal::invalid("the query must be offset=N"))?;
        let (mut cursor, progress) = self.turns.follow(turn, offset).map_err(|error| match error {
            FollowError::Unknown => Refusal::unknown_turn(),
            FollowError::OutOfRange => Refusal::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                codes::OFFSET_OUT_OF_RANGE,
                "the offset is below the acknowledged or above the written one",
            ),
        })?;
        if offset < progress.borrow().written {
            let held = task::blocking(move || (cursor.is_held(), cursor)).await;
            if !held.0 {
                return Err(Refusal::new(
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    codes::OFFSET_OUT_OF_RANGE,
                    "the output was removed from the sandbox",
                ));
            }
            cursor = held.1;
        }
        let body = StreamBody::new(lines(cursor, progress)).boxed_unsync();
        Ok(with_type(Response::new(body), "application/x-ndjson"))
    }

    async fn ack(&self, turn: TurnId, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let ack: Ack = read(request, oac_link::limits::REQUEST_JSON_BYTES).await?;
        let _active = self.activity.begin().ok_or_else(|| {
            Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                codes::STOPPING,
                "the sandbox is being suspended",
            )
        })?;
        self.turns
            .acknowledge(turn, ack)
            .await
            .map_err(|error| match error {
                AckError::Unknown => Refusal::unknown_turn(),
                AckError::OutOfRange => Refusal::new(
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    codes::OFFSET_OUT_OF_RANGE,
                    "the offset is above the written one",
                ),
                AckError::Running => Refusal::new(
                    StatusCode::CONFLICT,
                    codes::TURN_RUNNING,
                    "a Turn that runs has no final acknowledgement",
                ),
                AckError::Storage(why) => {
                    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, codes::STORAGE_FAILED, why)
                }
            })?;
        Ok(no_content())
    }

    async fn quiesce(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let QuiesceRequest { suspend_id } = read(request, oac_link::limits::REQUEST_JSON_BYTES).await?;
        match self.park.quiesce(suspend_id) {
            Quiesce::Quiesced => {}
            Quiesce::Busy(why) => return Err(Refusal::new(StatusCode::CONFLICT, codes::BUSY, why)),
            Quiesce::NotSupported => {
                return Err(Refusal::new(
                    StatusCode::NOT_IMPLEMENTED,
                    codes::NOT_SUPPORTED,
                    "nothing could wake the runtime of this sandbox",
                ));
            }
        }
        // Nothing begins any more: what is written, is.
        task::blocking(rustix::fs::sync).await;
        Ok(json(StatusCode::OK, &QuiesceAnswer { quiesced: true }))
    }

    async fn cancel(&self, turn: TurnId, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let Cancel { grace_ms } = read(request, oac_link::limits::REQUEST_JSON_BYTES).await?;
        if grace_ms > limits::GRACE_MS {
            return Err(Refusal::invalid("grace_ms is above 600000"));
        }
        if !self.turns.cancel(turn, Duration::from_millis(grace_ms)) {
            return Err(Refusal::unknown_turn());
        }
        Ok(no_content())
    }
}

/// The bounds of sessions.md section 3, which Core checks first.
fn check(run: &Run) -> Result<(), &'static str> {
    let args_bytes: usize = run.args.iter().map(String::len).sum();
    let env_bytes: usize = run.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    let no_nul = |text: &String| !text.contains('\0');
    if !(1..=limits::ARGS).contains(&run.args.len())
        || run.args[0].is_empty()
        || args_bytes > limits::ARGS_BYTES
        || !run.args.iter().all(no_nul)
    {
        return Err("args must be 1 to 1024 strings without NUL, at most 128 KiB, the first nonempty");
    }
    if !run.cwd.starts_with('/') || !no_nul(&run.cwd) {
        return Err("cwd must be an absolute path");
    }
    let good_name = |name: &String| !name.is_empty() && !name.contains('=') && no_nul(name);
    if run.env.len() > limits::ENV_PAIRS
        || env_bytes > limits::ENV_BYTES
        || !run.env.keys().all(good_name)
        || !run.env.values().all(no_nul)
    {
        return Err("env must be at most 256 pairs and 64 KiB, without NUL");
    }
    if run.stdin.0.len() > limits::STDIN_BYTES {
        return Err("stdin must be at most 8 MiB");
    }
    if !(1..=limits::TIMEOUT_MS).contains(&run.timeout_ms) {
        return Err("timeout_ms must be from 1 to 86400000");
    }
    Ok(())
}

/// Output lines from the cursor on, to the exit. What is known together is sent together: a short command's output and
/// end reach Core in one piece, and are stored in one transaction.
fn lines(
    cursor: LogCursor,
    progress: watch::Receiver<Progress>,
) -> impl stream::Stream<Item = io::Result<Frame<Bytes>>> + Send {
    stream::unfold(Some((cursor, progress)), |state| async move {
        let (mut cursor, mut progress) = state?;
        let now = loop {
            let now = progress.borrow_and_update().clone();
            if cursor.offset() < now.written || now.exit.is_some() {
                break now;
            }
            // A Turn is removed only after its end; then nothing more is to be told.
            progress.changed().await.ok()?;
        };
        let mut bytes = BytesMut::new();
        if cursor.offset() < now.written {
            let first = cursor.offset();
            let (back, chunks) = task::blocking(move || {
                let chunks = cursor.read(now.written);
                (cursor, chunks)
            })
            .await;
            cursor = back;
            match chunks {
                Ok(chunks) => push_chunks(&mut bytes, first, chunks),
                Err(error) => return Some((Err(error), None)),
            }
        }
        let last = now.exit.filter(|_| cursor.offset() == now.written);
        let ended = last.is_some();
        if let Some(exit) = last {
            let line = OutputLine {
                offset: now.written,
                stream: None,
                data: None,
                exit: Some(exit),
            };
            push_line(&mut bytes, &line);
        }
        let state = (!ended).then_some((cursor, progress));
        Some((Ok(Frame::data(bytes.freeze())), state))
    })
}

fn push_chunks(bytes: &mut BytesMut, first: u64, chunks: Vec<Chunk>) {
    let mut offset = first;
    for chunk in chunks {
        let length = chunk.data.len() as u64;
        let line = OutputLine {
            offset,
            stream: Some(chunk.stream),
            data: Some(B64(chunk.data.into())),
            exit: None,
        };
        push_line(bytes, &line);
        offset += length;
    }
}

fn push_line(bytes: &mut BytesMut, line: &OutputLine) {
    bytes.extend_from_slice(&to_json(line));
    bytes.extend_from_slice(b"\n");
}

fn to_json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| unreachable!("answers are plain data: {error}"))
}

pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Answer {
    let body = Full::new(to_json(value).into()).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    with_type(answer, "application/json")
}

fn with_type(mut answer: Answer, media_type: &'static str) -> Answer {
    let value = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, value);
    answer
}

pub(crate) fn no_content() -> Answer {
    let body = Empty::new().map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

async fn read<T: DeserializeOwned>(request: Request<Incoming>, limit: usize) -> Result<T, Refusal> {
    let too_large = || {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            codes::INVALID,
            "the body is too large",
        )
    };
    let mut body = request.into_body();
    let stated = body.size_hint().lower();
    if stated > limit as u64 {
        return Err(too_large());
    }
    let mut bytes = BytesMut::with_capacity(stated as usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::invalid("the body broke off"))?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(data);
        }
    }
    oac_wire::strict::from_slice(&bytes).map_err(|error| Refusal::invalid(error.to_string()))
}
