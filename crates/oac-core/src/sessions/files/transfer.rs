//! The bytes of transfers, each with its count, its bound and its end.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use axum::body::Body as HttpBody;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use oac_link::{CallError, LinkError, RequestBody, files::FileError};
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::{
    UploadError,
    answer::{broken_off, failed, incomplete, unknown_outcome},
};
use crate::{
    http::{ApiError, error::Chain},
    limits,
    task::{Kind, Tasks},
};

/// A download's body. A task of its own moves the bytes, so that a client that stops reading is noticed, and the
/// Session's place given back, although nobody asks for more.
/// `held` is dropped once nothing moves any more.
pub(super) fn download<B, H>(tasks: &Tasks, mut from: B, held: H) -> HttpBody
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
    H: Send + 'static,
{
    let (sender, receiver) = mpsc::channel(limits::FILE_PIECES);
    tasks.spawn(Kind::Connection, "file download", async move {
        let _held = held;
        loop {
            let piece = match timeout(limits::FILE_STALL, from.frame()).await {
                Ok(None) => return,
                Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
                Ok(Some(Err(error))) => {
                    tracing::debug!(error = %Chain(&error), "a download broke off");
                    Err(io::Error::other(error))
                }
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            };
            let last = piece.is_err();
            let sent = timeout(limits::FILE_STALL, sender.send(piece)).await;
            if last || !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    });
    // The answer's length is stated, so an end before it breaks the connection.
    HttpBody::from_stream(stream::unfold(receiver, |mut receiver| async {
        let piece: io::Result<Bytes> = receiver.recv().await?;
        Some((piece, receiver))
    }))
}

/// An upload's bytes on their way, shared by whoever sends them and whoever watches.
pub(super) struct Upload(Arc<Shared>);

struct Shared {
    body: Mutex<Option<HttpBody>>,
    length: u64,
    taken: AtomicU64,
    /// The client broke off.
    failed: Mutex<bool>,
    /// The client is waited for, not the sandbox.
    waits: Mutex<bool>,
    moved_at: Mutex<Instant>,
}

impl Upload {
    pub(super) fn new(body: HttpBody, length: u64) -> Self {
        Self(Arc::new(Shared {
            body: Mutex::new(Some(body)),
            length,
            taken: AtomicU64::new(0),
            failed: Mutex::new(false),
            waits: Mutex::new(false),
            moved_at: Mutex::new(Instant::now()),
        }))
    }

    /// The bytes from where they are.
    pub(super) fn body(&self) -> RequestBody {
        *self.0.moved_at.lock() = Instant::now();
        Taking(self.0.clone()).boxed_unsync()
    }

    /// No byte was taken from the client.
    pub(super) fn is_untouched(&self) -> bool {
        self.0.taken.load(Ordering::Acquire) == 0 && !*self.0.failed.lock()
    }

    /// Once nothing has moved for too long: the client sends nothing, or the sandbox takes nothing or does not answer.
    pub(super) async fn stalled(&self) {
        loop {
            let until = *self.0.moved_at.lock() + limits::FILE_STALL;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// What the client did not get rid of yet.
    pub(super) fn rest(&self) -> Option<HttpBody> {
        self.0.body.lock().take()
    }

    /// What an upload that gave no answer means: a sandbox replaces nothing before it has every byte.
    pub(super) fn failure(&self, error: UploadError) -> ApiError {
        let complete = self.0.taken.load(Ordering::Acquire) >= self.0.length;
        match error {
            UploadError::Reach(error) => error,
            UploadError::File(error @ (FileError::Refused(_) | FileError::Range { .. })) => failed(error),
            UploadError::File(error) if error.was_not_sent() => failed(error),
            UploadError::File(FileError::Call(error @ CallError::Answered { .. })) => failed(error.into()),
            UploadError::File(FileError::Call(CallError::Link(LinkError::Broken(_)))) if !complete => {
                if *self.0.failed.lock() {
                    incomplete()
                } else {
                    broken_off()
                }
            }
            UploadError::Stalled if !complete && *self.0.waits.lock() => incomplete(),
            UploadError::Stalled if !complete => broken_off(),
            UploadError::File(_) | UploadError::Stalled => unknown_outcome(),
        }
    }
}

struct Taking(Arc<Shared>);

impl Body for Taking {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut body = self.0.body.lock();
        let Some(body) = body.as_mut() else {
            return Poll::Ready(Some(Err("the upload was given up".into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        *self.0.waits.lock() = frame.is_pending();
        let frame = std::task::ready!(frame);
        *self.0.moved_at.lock() = Instant::now();
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.0.taken.fetch_add(bytes, Ordering::AcqRel);
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                *self.0.failed.lock() = true;
                Some(Err(error.into()))
            }
            None => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        let taken = self.0.taken.load(Ordering::Acquire);
        SizeHint::with_exact(self.0.length.saturating_sub(taken))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{Stream, StreamExt};
    use http_body_util::StreamBody;

    use super::*;

    type Piece = Result<Frame<Bytes>, io::Error>;

    fn piece() -> Piece {
        Ok(Frame::data(Bytes::from_static(b"piece")))
    }

    fn body(
        pieces: impl Stream<Item = Piece> + Send + 'static,
    ) -> impl Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static {
        StreamBody::new(Box::pin(pieces))
    }

    /// One piece half the limit after the other, `count` of them, then nothing for ever.
    fn slow(count: usize) -> impl Stream<Item = Piece> + Send + 'static {
        let pieces = stream::iter(0..count).then(|_| async {
            tokio::time::sleep(limits::FILE_STALL / 2).await;
            piece()
        });
        pieces.chain(stream::pending())
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_in_which_nothing_moves_for_two_minutes_breaks_off() {
        let (held, mut let_go) = mpsc::channel::<()>(1);
        let began = Instant::now();
        let read = download(&Tasks::default(), body(slow(4)), held).collect().await;
        assert!(read.is_err());
        assert_eq!(let_go.recv().await, None);
        assert_eq!(began.elapsed().as_secs(), 4 * 60 + 120);
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_that_its_client_does_not_read_lets_its_place_go_after_two_minutes() {
        let (held, mut let_go) = mpsc::channel::<()>(1);
        let began = Instant::now();
        let endless = stream::repeat_with(piece);
        let _unread = download(&Tasks::default(), body(endless), held);
        assert_eq!(let_go.recv().await, None);
        assert_eq!(began.elapsed().as_secs(), 120);
    }

    /// Takes what comes of an upload until it has stalled; what that means, and after how many seconds.
    async fn stalled(pieces: usize, length: u64, takes: bool) -> (u16, Option<&'static str>, u64) {
        let began = Instant::now();
        let upload = Upload::new(HttpBody::new(body(slow(pieces))), length);
        let mut sent = upload.body();
        let taking = async {
            while takes && sent.frame().await.is_some() {}
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = upload.stalled() => {}
            () = taking => {}
        }
        let error = upload.failure(UploadError::Stalled);
        (error.status.as_u16(), error.code, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_in_which_nothing_moves_for_two_minutes_ends_and_tells_whose_fault_it_is() {
        let client = stalled(4, 21, true).await;
        assert_eq!(client, (408, Some("invalid_request"), 4 * 60 + 120));
        let sandbox = stalled(4, 21, false).await;
        assert_eq!(sandbox, (503, Some("sandbox_unreachable"), 120));
        // It has every byte and does not answer.
        let unknown = stalled(4, 20, true).await;
        assert_eq!(unknown, (502, Some("file_outcome_unknown"), 4 * 60 + 120));
    }
}
