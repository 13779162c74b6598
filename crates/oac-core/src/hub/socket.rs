//! The upgraded byte stream under one node's WebSocket, measured.
//!
//! Three limits of the protocol are about bytes, which a WebSocket library does not report: 32 KiB for the first message,
//! 35 s without a byte of a protocol frame (pings are none), and 10 s of writing without progress.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use oac_peer::{Moment, stream::FrameBytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::limits::WRITE_PROGRESS;
use crate::clock::Clock;

/// What passed through one [`Socket`]; read by the connection's watchdog.
pub(super) struct Meter {
    clock: Arc<Clock>,
    received: AtomicU64,
    written: AtomicU64,
    waiting: AtomicBool,
}

impl Meter {
    pub(super) fn new(clock: Arc<Clock>) -> Arc<Self> {
        Arc::new(Self {
            received: AtomicU64::new(clock.now().0),
            written: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            clock,
        })
    }

    fn now(&self) -> u64 {
        self.clock.now().0
    }

    /// When the last byte of a protocol frame arrived.
    pub(super) fn received_at(&self) -> Moment {
        Moment(self.received.load(Ordering::Relaxed))
    }

    /// When a write that moves nothing more has lasted too long; while nothing waits to be taken, that long from now.
    pub(super) fn patience(&self) -> Moment {
        let since = match self.waiting.load(Ordering::Relaxed) {
            true => Moment(self.written.load(Ordering::Relaxed)),
            false => self.clock.now(),
        };
        since.plus_millis(WRITE_PROGRESS.as_millis() as u64)
    }

    /// Since bytes were last taken, while some wait to be.
    pub(super) fn stalled_for(&self) -> Duration {
        if !self.waiting.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now().saturating_sub(self.written.load(Ordering::Relaxed)))
    }

    fn took(&self, frames: &mut FrameBytes, bytes: &[u8]) -> std::io::Result<()> {
        let taken = frames.take(bytes);
        if taken.protocol {
            self.received.store(self.now(), Ordering::Relaxed);
        }
        if taken.oversized {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "a message over its limit",
            ));
        }
        Ok(())
    }

    fn gave<T>(&self, result: &Poll<std::io::Result<T>>) {
        if result.is_pending() {
            if !self.waiting.swap(true, Ordering::Relaxed) {
                self.written.store(self.now(), Ordering::Relaxed);
            }
        } else {
            self.written.store(self.now(), Ordering::Relaxed);
            self.waiting.store(false, Ordering::Relaxed);
        }
    }
}

/// A stream that keeps its [`Meter`] up to date.
pub(super) struct Socket<S> {
    inner: S,
    frames: FrameBytes,
    meter: Arc<Meter>,
}

impl<S> Socket<S> {
    pub(super) fn new(inner: S, meter: Arc<Meter>) -> Self {
        Self {
            inner,
            frames: FrameBytes::at_first_frame(),
            meter,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        Poll::Ready(this.meter.took(&mut this.frames, &buf.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.meter.gave(&result);
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_flush(cx);
        this.meter.gave(&result);
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn text(bytes: usize) -> Vec<u8> {
        let mut frame = vec![0x81, 0x80 | 126];
        frame.extend((bytes as u16).to_be_bytes());
        frame.extend(vec![0; 4 + bytes]);
        frame
    }

    #[tokio::test]
    async fn no_first_message_over_32_kib_is_read_and_a_later_one_is() {
        let (mut node, core) = tokio::io::duplex(1 << 20);
        let mut socket = Socket::new(core, Meter::new(Arc::default()));
        node.write_all(&text(32 * 1024)).await.unwrap();
        let mut taken = vec![0; text(32 * 1024).len()];
        socket.read_exact(&mut taken).await.unwrap();
        node.write_all(&text(60_000)).await.unwrap();
        socket.read_exact(&mut vec![0; text(60_000).len()]).await.unwrap();

        let (mut node, core) = tokio::io::duplex(1 << 20);
        let mut socket = Socket::new(core, Meter::new(Arc::default()));
        node.write_all(&text(32 * 1024 + 1)[..8]).await.unwrap();
        assert!(socket.read_exact(&mut [0; 8]).await.is_err());
    }

    // inv: INV-P21
    #[tokio::test]
    async fn a_ping_is_no_sign_of_life_and_one_byte_of_a_frame_is() {
        let (mut node, core) = tokio::io::duplex(1024);
        let meter = Meter::new(Arc::default());
        let mut socket = Socket::new(core, meter.clone());
        let stamp = |meter: &Meter| meter.received.load(Ordering::Relaxed);
        meter.received.store(u64::MAX, Ordering::Relaxed);
        node.write_all(&[0x89, 0x80, 1, 2, 3, 4]).await.unwrap();
        socket.read_exact(&mut [0; 6]).await.unwrap();
        assert_eq!(stamp(&meter), u64::MAX);
        node.write_all(&[0x81]).await.unwrap();
        socket.read_exact(&mut [0; 1]).await.unwrap();
        assert_ne!(stamp(&meter), u64::MAX);
    }

    #[tokio::test]
    async fn a_write_nobody_takes_is_seen_as_stalled_until_it_is_taken() {
        let (mut node, core) = tokio::io::duplex(8);
        let meter = Meter::new(Arc::default());
        let mut socket = Socket::new(core, meter.clone());
        let mut write = std::pin::pin!(socket.write_all(&[0; 16]));
        assert!(futures_util::poll!(&mut write).is_pending());
        assert!(meter.waiting.load(Ordering::Relaxed));
        node.read_exact(&mut [0; 8]).await.unwrap();
        write.await.unwrap();
        assert!(!meter.waiting.load(Ordering::Relaxed));
        assert_eq!(meter.stalled_for(), Duration::ZERO);
    }
}
