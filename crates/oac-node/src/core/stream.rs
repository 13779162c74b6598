//! The raw bytes under the WebSocket: when protocol bytes last arrived, when a byte last left, and no room for a
//! message above its limit.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use oac_peer::{Moment, stream::FrameBytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Clock;

/// Shared between the stream and its connection.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: Clock,
    heard: AtomicU64,
    written: AtomicU64,
}

impl Progress {
    pub(super) fn new(clock: Clock) -> Self {
        let now = clock.now().0;
        Self {
            clock,
            heard: now.into(),
            written: now.into(),
        }
    }

    /// When the last byte of a protocol frame arrived.
    pub(crate) fn heard(&self) -> Moment {
        Moment(self.heard.load(Ordering::Relaxed))
    }

    /// When the last byte was taken by the network.
    pub(super) fn written(&self) -> Moment {
        Moment(self.written.load(Ordering::Relaxed))
    }

    /// A write begins: its time without progress counts from here.
    pub(super) fn write_begins(&self) {
        self.written.store(self.clock.now().0, Ordering::Relaxed);
    }
}

/// A stream that begins with the first WebSocket frame.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    frames: FrameBytes,
    progress: Arc<Progress>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self {
            stream,
            frames: FrameBytes::at_first_frame(),
            progress,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &polled {
            let taken = this.frames.take(&buf.filled()[before..]);
            if taken.protocol {
                this.progress
                    .heard
                    .store(this.progress.clock.now().0, Ordering::Relaxed);
            }
            if taken.oversized {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message announces more than its limit",
                )));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, buf);
        if matches!(polled, Poll::Ready(Ok(n)) if n > 0) {
            this.progress.write_begins();
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
