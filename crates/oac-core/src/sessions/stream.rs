//! Event streams: one writer for output and events.

use std::{convert::Infallible, fmt::Write as _, future::Future, hash::Hash, sync::Arc};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use futures_util::Stream;
use oac_model::SessionId;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::{
    Core,
    http::ApiError,
    limits,
    turns::signals::{Counted, Subscription},
};

/// A place among the Session's streams; 429 when all are taken.
pub(super) fn open(core: &Core, session: SessionId) -> Result<Counted<SessionId>, ApiError> {
    core.turns
        .streams
        .open(session, limits::STREAMS_PER_SESSION)
        .ok_or_else(|| {
            ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                Some("invalid_request"),
                "The Session has too many open event streams: close one.",
            )
        })
}

/// The place to resume from: `Last-Event-ID`, else `query`, else 0.
pub(super) fn resume(headers: &HeaderMap, query: Option<u64>, param: &str) -> Result<u64, ApiError> {
    match headers.get("last-event-id") {
        None => Ok(query.unwrap_or(0)),
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| {
                ApiError::invalid_member(param, "Last-Event-ID is not one that this stream gave out.")
            }),
    }
}

/// One event as it travels.
pub(super) fn event<T: Serialize>(out: &mut String, name: &str, id: Option<u64>, data: &T) {
    // Writing to a String cannot fail, and the shapes are plain data.
    let _ = writeln!(out, "event: {name}");
    if let Some(id) = id {
        let _ = writeln!(out, "id: {id}");
    }
    let _ = write!(
        out,
        "data: {}\n\n",
        serde_json::to_string(data).unwrap_or_default()
    );
}

/// What a reader found.
pub(super) enum Found {
    /// Events, as text; there may be more at once.
    Some(String),
    /// Nothing now: wait.
    Nothing,
    /// The last events; the stream ends.
    Last(String),
}

/// Reads with `next` whenever `changes` wakes, until it answers [`Found::Last`] or fails. A comment keeps a quiet stream
/// open; the first one goes out as soon as everything stored has been sent, so that a reader knows that it has caught
/// up. The stream also ends when this Core stops or loses the installation; the reader resumes elsewhere.
pub(super) fn respond<K, S, F, Fut>(
    core: Arc<Core>,
    mut changes: Subscription<K>,
    place: Counted<SessionId>,
    mut state: S,
    mut next: F,
) -> Response
where
    K: Eq + Hash + Copy + Send + Sync + 'static,
    S: Copy + Send + 'static,
    F: FnMut(Arc<Core>, S) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(S, Found), ApiError>> + Send,
{
    let stream = async_stream::stream! {
        let _place = place;
        let stopping = core.tasks.stopping();
        let mut owner = core.owner.subscribe();
        // Not started anew by what wakes the reader and is nothing to it.
        let mut comment_at = Instant::now() + limits::STREAM_COMMENT;
        let mut caught_up = false;
        let mut failures = 0;
        while core.owner.ownership().is_some() {
            let (after, found) = match next(core.clone(), state).await {
                Ok(found) => found,
                // The database is busy, or its connections broke: the reader need not notice.
                Err(error) if error.status == StatusCode::SERVICE_UNAVAILABLE && failures < limits::STREAM_FAILURES => {
                    failures += 1;
                    tokio::time::sleep(limits::STREAM_RETRY).await;
                    continue;
                }
                Err(_) => break,
            };
            failures = 0;
            state = after;
            match found {
                Found::Some(text) => {
                    yield chunk(text);
                    comment_at = Instant::now() + limits::STREAM_COMMENT;
                }
                Found::Last(text) => {
                    yield chunk(text);
                    break;
                }
                Found::Nothing => {
                    if !caught_up {
                        caught_up = true;
                        comment_at = Instant::now();
                    }
                    loop {
                        tokio::select! {
                            biased;
                            () = stopping.cancelled() => return,
                            () = sleep_until(comment_at) => {
                                yield chunk(":\n\n".to_owned());
                                comment_at = Instant::now() + limits::STREAM_COMMENT;
                            }
                            _ = owner.changed() => break,
                            () = changes.changed() => break,
                        }
                    }
                }
            }
        }
    };
    answer(stream)
}

fn chunk(text: String) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(text))
}

fn answer(stream: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some proxies hold back what they think is a document.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
