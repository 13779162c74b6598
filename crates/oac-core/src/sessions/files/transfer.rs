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
use oac_link::{
    CallError, LinkError, RequestBody,
    files::{FileBody, FileError},
};
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
    Core,
    http::{ApiError, error::Chain},
    limits,
    sessions::access::Access,
    task::Kind,
};

/// A download's body. A task of its own moves the bytes, so that a client that stops reading is noticed, and the
/// Session's place given back, although nobody asks for more.
pub(super) fn download(core: &Arc<Core>, mut from: FileBody, access: Access) -> HttpBody {
    let (sender, receiver) = mpsc::channel(limits::FILE_PIECES);
    core.tasks.spawn(Kind::Connection, "file download", async move {
        let _access = access;
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

    /// What the client did not get rid of yet; for discarding.
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

/// Reads what a refused client still sends, for a while: it would not read the refusal before.
pub(super) async fn discard(mut body: HttpBody) {
    let mut left = limits::DISCARD_BYTES;
    let discarding = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = timeout(limits::DISCARD_WAIT, discarding).await;
}
