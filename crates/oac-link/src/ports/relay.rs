//! Copies between a tunnel and a connection beside it, until both directions have ended.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    select,
    time::{Instant, sleep},
};

use super::{Tunnel, TunnelWatch};
use crate::limits;

/// Returns when both directions have ended, each of which ends alone. An error ends both at once: a failed side, a reset
/// tunnel (found within a second also while nothing can be written), or [`limits::HALF_CLOSED_IDLE`] without a byte after
/// one direction ended, since nobody tells when the other end of a half-closed stream leaves.
pub async fn relay<S>(mut tunnel: Tunnel, beside: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let watch = tunnel.watch();
    let pulse = Pulse::default();
    let mut beside = Watched {
        stream: beside,
        pulse: pulse.clone(),
    };
    let size = limits::PORT_BUFFER_BYTES;
    select! {
        copied = copy_bidirectional_with_sizes(&mut tunnel, &mut beside, size, size) => copied.map(drop),
        error = abandoned(&watch, &pulse) => Err(error),
    }
}

async fn abandoned(tunnel: &TunnelWatch, pulse: &Pulse) -> io::Error {
    loop {
        sleep(limits::RESET_LOOK).await;
        if tunnel.is_reset() {
            return io::ErrorKind::ConnectionReset.into();
        }
        if pulse.idle_half_closed() {
            return io::ErrorKind::TimedOut.into();
        }
    }
}

/// The last moment a byte passed, or a direction ended.
#[derive(Clone)]
struct Pulse(Arc<Mutex<Beat>>);

struct Beat {
    last: Instant,
    half_closed: bool,
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Beat {
            last: Instant::now(),
            half_closed: false,
        })))
    }
}

impl Pulse {
    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self, end: bool) {
        let mut beat = self.lock();
        beat.last = Instant::now();
        beat.half_closed |= end;
    }

    fn idle_half_closed(&self) -> bool {
        let beat = self.lock();
        beat.half_closed && beat.last.elapsed() >= limits::HALF_CLOSED_IDLE
    }
}

/// Every byte of both directions passes the connection beside the tunnel, so that one alone is watched.
struct Watched<S> {
    stream: S,
    pulse: Pulse,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = read {
            self.pulse.beat(buf.filled().len() == before);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.pulse.beat(false);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        if shut.is_ready() {
            self.pulse.beat(true);
        }
        shut
    }
}
