//! What is still sent by a client whose request was refused before its body was read.
//!
//! A connection that is closed with bytes unread is reset, and its client told that it broke instead of what was answered:
//! one that would find another Core behind `core_standby` gives up. So a refusal comes once the rest was read, up to
//! [`limits::REST_BYTES`] and for [`limits::REST_WAIT`]. Who waits for a go-ahead (`Expect`) sends nothing, and waits for no
//! longer than it takes to refuse.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{body::Body as HttpBody, extract::Request, http::header, middleware::Next, response::Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::limits;

/// The part of a body that nobody read.
type Unread = Arc<Mutex<Option<HttpBody>>>;

/// Outermost of all checks.
pub(crate) async fn read_rest(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let unread = Unread::default();
    let lent = request.map(|body| {
        HttpBody::new(Lent {
            body: Some(body),
            unread: unread.clone(),
        })
    });
    let response = next.run(lent).await;
    let rest = unread.lock().take();
    if let Some(rest) = rest
        && (response.status().is_client_error() || response.status().is_server_error())
    {
        discard(rest).await;
    }
    response
}

async fn discard(mut body: HttpBody) {
    let mut left = limits::REST_BYTES;
    let discarding = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = timeout(limits::REST_WAIT, discarding).await;
}

/// A body that comes back when it is dropped before its end.
struct Lent {
    /// Until its end.
    body: Option<HttpBody>,
    unread: Unread,
}

impl Body for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.unread.lock() = self.body.take().filter(|body| !body.is_end_stream());
    }
}
