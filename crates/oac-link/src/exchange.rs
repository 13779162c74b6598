//! One HTTP/1.1 exchange over one stream, from Core's end.
//!
//! The HTTP connection is polled by whoever waits for the answer or reads its body, so no task belongs to an exchange,
//! and dropping the body ends the stream.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::mux::{LinkClient, StreamPermit};

/// What a stream is for; 16 of the 64 streams are kept for the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamClass {
    /// Status, Turns, acknowledgements.
    Control,
    /// Following a Turn's output.
    Output,
    /// Files and ports.
    Bulk,
}

/// Why an exchange did not complete. Whether the runtime acted on the request is unknown.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link is closed")]
    Closed,
    /// The link's streams are all in use; nothing was sent.
    #[error("too many streams are open on the link")]
    TooManyStreams,
    #[error("the exchange over the link broke off")]
    Broken(#[source] hyper::Error),
}

/// A request's body.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// A body without bytes.
pub fn empty() -> RequestBody {
    Empty::new()
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// One answered exchange.
pub type Exchange = http::Response<ResponseBody>;

type Connection = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// An answer's body, which moves its own connection while it is read. Dropping it ends the stream.
pub struct ResponseBody {
    incoming: Incoming,
    connection: Option<Connection>,
    _permit: StreamPermit,
}

impl ResponseBody {
    pub(crate) fn new<C>(incoming: Incoming, connection: Option<Pin<Box<C>>>, permit: StreamPermit) -> Self
    where
        C: Future<Output = Result<(), hyper::Error>> + Send + 'static,
    {
        Self {
            incoming,
            connection: connection.map(|connection| connection as Connection),
            _permit: permit,
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseBody")
    }
}

/// Waits for an answer and moves its connection meanwhile; the answer, and whether the connection is still to be moved.
pub(crate) async fn beside<A: Future>(
    connection: &mut Pin<Box<impl Future + ?Sized>>,
    answer: A,
) -> (A::Output, bool) {
    let mut running = true;
    let mut answer = pin!(answer);
    let answer = poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        if running && connection.as_mut().poll(cx).is_ready() {
            running = false;
        }
        answer.as_mut().poll(cx)
    })
    .await;
    (answer, running)
}

impl LinkClient {
    /// Sends `request` over a stream of its own. The URI is a path; `Host` is set here. Returns with the answer's head.
    pub async fn request(
        &self,
        class: StreamClass,
        mut request: http::Request<RequestBody>,
    ) -> Result<Exchange, LinkError> {
        let (stream, permit) = self.open(class).await?;
        let host = http::HeaderValue::from_static("runtime");
        request.headers_mut().insert(http::header::HOST, host);
        let io = TokioIo::new(stream.compat());
        let (mut sender, connection) = http1::handshake(io).await.map_err(LinkError::Broken)?;
        let mut connection: Connection = Box::pin(connection);
        let (answer, running) = beside(&mut connection, sender.send_request(request)).await;
        let answer = answer.map_err(LinkError::Broken)?;
        Ok(answer.map(|incoming| ResponseBody {
            incoming,
            connection: running.then_some(connection),
            _permit: permit,
        }))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let first = Pin::new(&mut this.incoming).poll_frame(cx);
        if first.is_ready() {
            return first;
        }
        let Some(connection) = &mut this.connection else {
            return first;
        };
        if connection.as_mut().poll(cx).is_ready() {
            this.connection = None;
        }
        Pin::new(&mut this.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
