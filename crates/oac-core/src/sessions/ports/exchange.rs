//! One HTTP/1.1 exchange over a byte stream whose other end is not trusted.
//!
//! The connection has a task of its own, so that a body goes out also while nobody reads the answer. It ends with the
//! answer's body: a whole one lets it say goodbye, a dropped one cuts it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    client::conn::http1,
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use oac_link::Tunnel;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    select,
    sync::oneshot,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    http::{ApiError, error::Chain},
    limits,
    task::{Kind, Tasks},
};

/// A stream of which only so much is read before the answer's head was understood, so that heads without end, and
/// informational answers without number, end in an error.
pub(super) struct Bounded<S> {
    stream: S,
    read: usize,
    answered: Arc<AtomicBool>,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            read: 0,
            answered: Arc::default(),
        }
    }
}

/// The tunnel of an exchange that switched protocols, with what was read of it too far.
pub(super) fn stream_of(upgraded: Upgraded) -> Tunnel {
    let parts = upgraded
        .downcast::<TokioIo<Bounded<Tunnel>>>()
        .unwrap_or_else(|_| unreachable!("the exchange ran over this type"));
    let mut tunnel = parts.io.into_inner().stream;
    tunnel.unread(parts.read_buf);
    tunnel
}

/// Sends `request` and waits for the answer's head. `held` is dropped once the stream is.
pub(super) async fn exchange<S, H>(
    tasks: &Tasks,
    stream: Bounded<S>,
    request: Request<Body>,
    held: H,
) -> Result<Response<Answered>, ApiError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    H: Send + 'static,
{
    let answered = stream.answered.clone();
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(limits::PORT_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    let (goodbye, dropped) = oneshot::channel();
    tasks.spawn(Kind::Connection, "port exchange", async move {
        let mut connection = std::pin::pin!(connection.with_upgrades());
        select! {
            // What went wrong is in the answer, or in its body.
            _ = &mut connection => {}
            ended = dropped => if let Ok(()) = ended {
                let _ = timeout(limits::PORT_GOODBYE, connection).await;
            }
        }
        drop(held);
    });
    let sent = Arc::new(Mutex::new(Instant::now()));
    let broke = Arc::<AtomicBool>::default();
    let request = request.map(|body| {
        Body::new(Sending {
            body,
            last: sent.clone(),
            broke: broke.clone(),
        })
    });
    let answer = select! {
        answer = sender.send_request(request) => answer.map_err(|error| match broke.load(Ordering::Acquire) {
            true => ApiError::invalid_request("The request's body broke off or is malformed: send it again."),
            false => failed(&error),
        })?,
        () = silence(&sent) => return Err(ApiError::port_timed_out()),
    };
    answered.store(true, Ordering::Release);
    Ok(answer.map(|incoming| Answered {
        incoming,
        ended: false,
        goodbye: Some(goodbye),
    }))
}

fn failed(error: &hyper::Error) -> ApiError {
    tracing::debug!(error = %Chain(error), "a port gave no answer");
    let why = if error.is_parse_too_large() {
        "its head is too large"
    } else if error.is_parse() {
        "it is no HTTP/1.1"
    } else {
        "the connection ended before it"
    };
    ApiError::port_failed(why)
}

/// Resolves when neither the request has moved for [`limits::PORT_HEAD_WAIT`].
async fn silence(sent: &Mutex<Instant>) {
    loop {
        let until = *sent.lock() + limits::PORT_HEAD_WAIT;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

/// A request's body that notes when it moved.
struct Sending {
    body: Body,
    last: Arc<Mutex<Instant>>,
    /// It could not be read to its end, which is not the server's doing.
    broke: Arc<AtomicBool>,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            *self.last.lock() = Instant::now();
        }
        if let Poll::Ready(Some(Err(_))) = &frame {
            self.broke.store(true, Ordering::Release);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body. Dropping it before its end cuts the connection.
pub(super) struct Answered {
    incoming: Incoming,
    ended: bool,
    goodbye: Option<oneshot::Sender<()>>,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        self.ended |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        if (self.ended || self.incoming.is_end_stream())
            && let Some(goodbye) = self.goodbye.take()
        {
            let _ = goodbye.send(());
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() && !self.answered.load(Ordering::Acquire) {
            self.read += buf.filled().len() - before;
            if self.read > limits::PORT_BEFORE_ANSWER_BYTES {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "too much before the answer",
                )));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    async fn asked(stream: DuplexStream, body: Body) -> Result<Response<Answered>, ApiError> {
        let request = Request::post("/").body(body).unwrap();
        exchange(&Tasks::default(), Bounded::new(stream), request, ()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_or_dribbles_its_head_for_ever_is_504() {
        for dribbles in [false, true] {
            let (near, mut far) = duplex(1024);
            let server = async {
                let mut head = BytesMut::new();
                far.read_buf(&mut head).await.unwrap();
                far.write_all(b"HTTP/1.1 200 OK\r\nX: ").await.unwrap();
                while dribbles && far.write_all(b"y").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                std::future::pending::<()>().await;
            };
            let began = Instant::now();
            let answer = select! {
                answer = asked(near, Body::from("all")) => answer,
                () = server => unreachable!("it never ends"),
            };
            let error = answer.err().unwrap();
            assert_eq!(
                (error.status.as_u16(), error.code),
                (504, Some("sandbox_port_timed_out"))
            );
            assert!(began.elapsed() >= limits::PORT_HEAD_WAIT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_goes_on_for_long_is_no_silence() {
        let (near, mut far) = duplex(1024);
        let pieces = futures_util::stream::unfold(0, |n| async move {
            tokio::time::sleep(limits::PORT_HEAD_WAIT / 2).await;
            (n < 10).then(|| (Ok::<_, io::Error>(Bytes::from_static(b"piece")), n + 1))
        });
        let server = async {
            let mut all = BytesMut::new();
            while !all.ends_with(b"0\r\n\r\n") {
                far.read_buf(&mut all).await.unwrap();
            }
            far.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        };
        let answer = select! {
            answer = asked(near, Body::from_stream(pieces)) => answer,
            () = server => unreachable!("it never ends"),
        };
        assert_eq!(answer.unwrap().status(), 204);
    }

    #[tokio::test]
    async fn a_body_that_the_client_breaks_off_is_not_blamed_on_the_server() {
        let (near, mut far) = duplex(1024);
        let pieces = [
            Ok(Bytes::from_static(b"piece")),
            Err(io::Error::other("malformed")),
        ];
        let server = async {
            let mut all = BytesMut::new();
            while far.read_buf(&mut all).await.is_ok_and(|read| read > 0) {}
        };
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let (answer, ()) = tokio::join!(asked(near, body), server);
        let error = answer.err().unwrap();
        assert_eq!(
            (error.status.as_u16(), error.code),
            (400, Some("invalid_request"))
        );
    }

    #[tokio::test]
    async fn what_is_held_is_let_go_when_the_answer_is_dropped() {
        let (near, mut far) = duplex(1024);
        let (held, mut let_go) = tokio::sync::mpsc::channel::<()>(1);
        let tasks = Tasks::default();
        let request = Request::get("/").body(Body::empty()).unwrap();
        let server = async {
            far.read_buf(&mut BytesMut::new()).await.unwrap();
            far.write_all(b"HTTP/1.1 200 OK\r\n\r\nwithout end")
                .await
                .unwrap();
            far
        };
        let (answer, _far) = tokio::join!(exchange(&tasks, Bounded::new(near), request, held), server);
        let answer = answer.unwrap();
        assert!(let_go.try_recv() == Err(tokio::sync::mpsc::error::TryRecvError::Empty));
        drop(answer);
        assert_eq!(let_go.recv().await, None);
    }
}
