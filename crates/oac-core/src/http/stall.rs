//! Connections whose client has stopped reading.
//!
//! An answer that holds something back from others, as a download does, is given up when its client takes nothing of it
//! for [`STALL`]. Any other may wait as long as it likes: a console's event stream, a tunnel.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::limits::STALL;
use crate::clock::Clock;

/// Says of one connection that an answer on it must not stall; in the extensions of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Urgency(Arc<AtomicUsize>);

/// While it lives, the connection's client has to read.
#[derive(Debug)]
pub(crate) struct Urgent(Urgency);

impl Urgency {
    pub(crate) fn begin(&self) -> Urgent {
        self.0.fetch_add(1, Ordering::Relaxed);
        Urgent(self.clone())
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection's stream: a write that makes no progress for [`STALL`] while it is urgent fails.
pub(crate) struct Watched<S> {
    stream: S,
    urgency: Urgency,
    clock: Arc<Clock>,
    /// Since a write last waited.
    waits: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, urgency: Urgency, clock: Arc<Clock>) -> Self {
        Self {
            stream,
            urgency,
            clock,
            waits: None,
        }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() || !self.urgency.is_on() {
            self.waits = None;
            return done;
        }
        let clock = &self.clock;
        let waits = self.waits.get_or_insert_with(|| {
            let clock = clock.clone();
            Box::pin(async move { clock.pass(STALL).await })
        });
        waits
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_urgent_write_that_makes_no_progress_fails_and_any_other_waits() {
        let clock = Arc::new(Clock::default());
        let urgency = Urgency::default();
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Watched::new(near, urgency.clone(), clock.clone());
        near.write_all(b"full").await.unwrap();
        {
            let mut write = std::pin::pin!(near.write_all(b"more"));
            assert!(futures_util::poll!(&mut write).is_pending());
            clock.skip(10 * STALL);
            assert!(futures_util::poll!(&mut write).is_pending(), "nobody minds");
        }
        let urgent = urgency.begin();
        {
            let mut write = std::pin::pin!(near.write_all(b"more and more"));
            for _ in 0..3 {
                assert!(futures_util::poll!(&mut write).is_pending());
                clock.skip(STALL / 2);
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            assert!(futures_util::poll!(&mut write).is_pending(), "it was read from");
            clock.skip(STALL);
            assert_eq!(write.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        drop(urgent);
        let mut write = std::pin::pin!(near.write_all(b"more"));
        assert!(futures_util::poll!(&mut write).is_pending());
    }
}
