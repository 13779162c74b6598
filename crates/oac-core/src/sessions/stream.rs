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
use tokio_util::sync::CancellationToken;

use crate::{
    Core,
    http::ApiError,
    limits,
    owner::OwnerHandle,
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

/// Answers with what `next` reads, as [`follow`] does.
pub(super) fn respond<K, S, F, Fut>(
    core: Arc<Core>,
    changes: Subscription<K>,
    place: Counted<SessionId>,
    state: S,
    mut next: F,
) -> Response
where
    K: Eq + Hash + Copy + Send + Sync + 'static,
    S: Copy + Send + 'static,
    F: FnMut(Arc<Core>, S) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(S, Found), ApiError>> + Send + 'static,
{
    let (owner, stopping) = (core.owner.clone(), core.tasks.stopping());
    let stream = follow(owner, stopping, changes, state, move |state| {
        // Given back when the reader goes away.
        let _ = &place;
        next(core.clone(), state)
    });
    answer(stream)
}

/// Reads with `next` whenever `changes` wakes, until it answers [`Found::Last`] or fails. A comment keeps a quiet stream
/// open; the first one goes out as soon as everything stored has been sent, so that a reader knows that it has caught
/// up. The stream also ends when this Core stops or loses the installation; the reader resumes elsewhere.
fn follow<K, S, F, Fut>(
    owner: OwnerHandle,
    stopping: CancellationToken,
    mut changes: Subscription<K>,
    mut state: S,
    mut next: F,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static
where
    K: Eq + Hash + Copy + Send + Sync + 'static,
    S: Copy + Send + 'static,
    F: FnMut(S) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(S, Found), ApiError>> + Send + 'static,
{
    async_stream::stream! {
        let mut owners = owner.subscribe();
        // Not started anew by what wakes the reader and is nothing to it.
        let mut comment_at = Instant::now() + limits::STREAM_COMMENT;
        let mut caught_up = false;
        let mut failures = 0;
        while owner.ownership().is_some() {
            let (after, found) = match next(state).await {
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
                            _ = owners.changed() => break,
                            () = changes.changed() => break,
                        }
                    }
                }
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt;
    use oac_model::TurnId;
    use oac_store::{Holder, Ownership};

    use super::*;
    use crate::turns::signals::Signals;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_woken_for_nothing_still_gets_its_comment_every_fifteen_seconds() {
        let ownership = Ownership {
            holder: Holder::random(),
            epoch: 1.try_into().unwrap(),
        };
        // Of this process's clock, which goes on as ever.
        let owner = OwnerHandle::last_renewed(&ownership, std::time::Instant::now());
        let (output, turn) = (Signals::default(), TurnId::random());
        // It waits at an offset beyond the output, which flows.
        let changes = output.subscribe(turn);
        let beyond = |()| async { Ok(((), Found::Nothing)) };
        let mut stream = Box::pin(follow(owner, CancellationToken::new(), changes, (), beyond));
        let began = Instant::now();
        let mut comments = Vec::new();
        let reading = async {
            while comments.len() < 5 {
                assert_eq!(stream.next().await.unwrap().unwrap(), ":\n\n");
                comments.push(began.elapsed().as_secs());
            }
        };
        let flowing = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                output.notify(turn);
            }
        };
        tokio::select! {
            () = reading => {}
            () = flowing => {}
        }
        assert_eq!(comments, [0, 15, 30, 45, 60]);
    }
}
