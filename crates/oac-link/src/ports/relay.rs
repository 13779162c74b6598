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

use super::Tunnel;
use crate::limits;

/// Returns when both directions have ended, each of which ends alone. An error ends both at once: a side that failed; a
/// reset tunnel, found within a second also while nothing can be written; a side that takes nothing for
/// [`limits::PORT_STALL`] while bytes wait for it; or [`limits::HALF_CLOSED_IDLE`] without a byte after one direction
/// ended, since nobody tells when the other end of a half-closed stream leaves.
pub async fn relay<S>(tunnel: Tunnel, beside: S) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let watch = tunnel.watch();
    between(tunnel, beside, || watch.is_reset()).await
}

async fn between<T, S>(tunnel: T, beside: S, is_reset: impl Fn() -> bool) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let pulses = [Pulse::default(), Pulse::default()];
    let [one, other] = pulses.clone();
    let mut tunnel = Watched {
        stream: tunnel,
        pulse: one,
    };
    let mut beside = Watched {
        stream: beside,
        pulse: other,
    };
    let size = limits::PORT_BUFFER_BYTES;
    let abandoned = async {
        loop {
            sleep(limits::RESET_LOOK).await;
            if is_reset() {
                return io::ErrorKind::ConnectionReset;
            }
            if pulses.iter().any(Pulse::stalled) || Pulse::half_closed_and_idle(&pulses) {
                return io::ErrorKind::TimedOut;
            }
        }
    };
    select! {
        copied = copy_bidirectional_with_sizes(&mut tunnel, &mut beside, size, size) => copied.map(drop),
        error = abandoned => Err(error.into()),
    }
}

/// What happened last at one side.
#[derive(Clone)]
struct Pulse(Arc<Mutex<Beat>>);

struct Beat {
    /// A byte passed, or an end.
    last: Instant,
    /// Since when bytes wait to be taken.
    waiting: Option<Instant>,
    ended: bool,
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Beat {
            last: Instant::now(),
            waiting: None,
            ended: false,
        })))
    }
}

impl Pulse {
    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, end: bool) {
        let mut beat = self.lock();
        beat.last = Instant::now();
        beat.ended |= end;
    }

    fn written(&self, taken: bool) {
        let mut beat = self.lock();
        let now = Instant::now();
        if taken {
            beat.last = now;
            beat.waiting = None;
        } else {
            beat.waiting.get_or_insert(now);
        }
    }

    fn stalled(&self) -> bool {
        self.lock()
            .waiting
            .is_some_and(|since| since.elapsed() >= limits::PORT_STALL)
    }

    fn half_closed_and_idle(sides: &[Self; 2]) -> bool {
        let looks = sides.each_ref().map(|side| {
            let beat = side.lock();
            // Bytes that wait are no idleness: how long they may is another bound.
            (
                beat.ended,
                beat.waiting.is_none() && beat.last.elapsed() >= limits::HALF_CLOSED_IDLE,
            )
        });
        looks.iter().any(|(ended, _)| *ended) && looks.iter().all(|(_, idle)| *idle)
    }
}

/// A side, each of whose moves is noted.
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
            self.pulse.read(buf.filled().len() == before);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.pulse.written(written.is_ready());
        written
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_half_closed_pair_without_a_byte_is_given_up_and_an_open_one_is_not() {
        let (tunnel, mut core) = duplex(64);
        let (beside, mut server) = duplex(64);
        let began = Instant::now();
        let relaying = between(tunnel, beside, || false);
        let talk = async {
            // An open pair may be silent for ever.
            sleep(limits::PORT_STALL * 10).await;
            core.write_all(b"hi").await.unwrap();
            core.shutdown().await.unwrap();
            // One byte now and then is enough.
            for _ in 0..5 {
                sleep(limits::HALF_CLOSED_IDLE / 2).await;
                server.write_all(b".").await.unwrap();
                core.read_u8().await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let end = select! {
            end = relaying => end,
            () = talk => unreachable!("it never ends"),
        };
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let least = limits::PORT_STALL * 10 + limits::HALF_CLOSED_IDLE * 7 / 2;
        assert!(began.elapsed() >= least && began.elapsed() < least + limits::HALF_CLOSED_IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_takes_nothing_while_bytes_wait_is_given_up() {
        let (tunnel, mut core) = duplex(64);
        let (beside, mut server) = duplex(64);
        let flood = vec![7; 1 << 20];
        let relaying = between(tunnel, beside, || false);
        let talk = async {
            tokio::join!(core.write_all(&flood), async {
                // Slow is not stalled.
                for _ in 0..5 {
                    sleep(limits::PORT_STALL / 2).await;
                    server.read_exact(&mut [0; 64]).await.unwrap();
                }
                std::future::pending::<()>().await;
            })
        };
        let began = Instant::now();
        let end = select! {
            end = relaying => end,
            _ = talk => unreachable!("it never ends"),
        };
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= limits::PORT_STALL * 7 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_is_found_while_nothing_moves() {
        let (tunnel, _core) = duplex(64);
        let (beside, _server) = duplex(64);
        let reset = std::cell::Cell::new(false);
        let end = select! {
            end = between(tunnel, beside, || reset.get()) => end,
            () = async {
                sleep(limits::HALF_CLOSED_IDLE).await;
                reset.set(true);
                std::future::pending().await
            } => unreachable!("it never ends"),
        };
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
