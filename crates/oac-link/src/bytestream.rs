//! Binary messages as one byte stream, with the pings that keep it alive and the silence that ends it.
//!
//! yamux reads and writes this stream from one task, so reading and writing share the socket without a lock, and
//! reading is always pending: it carries the timers. Writes gather until a flush, so that a frame's header and body
//! leave as one message.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use futures_util::{AsyncRead, AsyncWrite, Sink, Stream};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use crate::{
    limits,
    socket::{CloseReason, Message, Socket, SocketError},
};

/// Why reading ended.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// The peer sent a close message, or the connection ended without one.
    Closed(Option<CloseReason>),
    /// Nothing was heard for [`limits::SILENCE`].
    Silent,
    /// A text message after the welcome.
    Text,
    Failed(SocketError),
}

/// What the byte stream and the driver above it tell each other past yamux, which carries bytes alone.
#[derive(Default)]
pub(crate) struct Endings {
    /// The reason to give when this side closes.
    pub say: Option<CloseReason>,
    pub read: Option<ReadEnd>,
}

pub(crate) type SharedEndings = Arc<Mutex<Endings>>;

pub(crate) fn lock(endings: &SharedEndings) -> std::sync::MutexGuard<'_, Endings> {
    endings.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Closing {
    No,
    Saying,
    Flushing,
    /// Waiting for the peer's own close, so that ours is not lost to a reset connection.
    Draining,
    Done,
}

pub(crate) struct ByteStream {
    socket: Socket,
    inbound: Bytes,
    outbound: BytesMut,
    ping: Interval,
    ping_due: bool,
    silence: Pin<Box<Sleep>>,
    closing: Closing,
    ended: bool,
    endings: SharedEndings,
}

impl ByteStream {
    pub(crate) fn new(socket: Socket, endings: SharedEndings) -> Self {
        let start = Instant::now();
        let mut ping = tokio::time::interval_at(start + limits::PING_INTERVAL, limits::PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            socket,
            inbound: Bytes::new(),
            outbound: BytesMut::new(),
            ping,
            ping_due: false,
            silence: Box::pin(tokio::time::sleep_until(start + limits::SILENCE)),
            closing: Closing::No,
            ended: false,
            endings,
        }
    }

    fn end(&mut self, end: ReadEnd) {
        self.ended = true;
        lock(&self.endings).read.get_or_insert(end);
    }

    fn poll_ping(&mut self, cx: &mut Context<'_>) -> Result<(), SocketError> {
        while self.ping.poll_tick(cx).is_ready() {
            self.ping_due = true;
        }
        if self.ping_due && Pin::new(&mut self.socket).poll_ready(cx)?.is_ready() {
            self.ping_due = false;
            Pin::new(&mut self.socket).start_send(Message::Ping(Bytes::new()))?;
            let _ = Pin::new(&mut self.socket).poll_flush(cx)?;
        }
        Ok(())
    }

    /// The next bytes; empty once reading has ended.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            if self.ended {
                return Poll::Ready(Bytes::new());
            }
            if let Err(error) = self.poll_ping(cx) {
                self.end(ReadEnd::Failed(error));
                continue;
            }
            let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) else {
                if self.silence.as_mut().poll_elapsed(cx).is_ready() {
                    self.end(ReadEnd::Silent);
                    continue;
                }
                return Poll::Pending;
            };
            self.silence.as_mut().reset(Instant::now() + limits::SILENCE);
            match message {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => {}
                Some(Ok(Message::Binary(bytes))) => return Poll::Ready(bytes),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_))) => self.end(ReadEnd::Text),
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.and_then(|(_, text)| CloseReason::from_text(&text));
                    self.end(ReadEnd::Closed(reason));
                }
                Some(Err(error)) => self.end(ReadEnd::Failed(error)),
                None => self.end(ReadEnd::Closed(None)),
            }
        }
    }

    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        if !self.outbound.is_empty() {
            ready!(Pin::new(&mut self.socket).poll_ready(cx))?;
            let bytes = self.outbound.split().freeze();
            Pin::new(&mut self.socket).start_send(Message::Binary(bytes))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl ByteStream {
    /// Says why, and waits for the peer's own close. Reading turns into this once there is a reason to say: yamux's own
    /// farewell would end the peer before it has read the reason.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.closing {
                Closing::No => {
                    ready!(self.poll_push(cx)).map_err(io::Error::other)?;
                    self.closing = Closing::Saying;
                }
                Closing::Saying => {
                    ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(io::Error::other)?;
                    let reason = lock(&self.endings).say.unwrap_or(CloseReason::GoingAway);
                    Pin::new(&mut self.socket)
                        .start_send(reason.to_message())
                        .map_err(io::Error::other)?;
                    self.closing = Closing::Flushing;
                }
                Closing::Flushing => {
                    ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(io::Error::other)?;
                    self.closing = Closing::Draining;
                }
                Closing::Draining => {
                    if ready!(self.poll_bytes(cx)).is_empty() {
                        self.closing = Closing::Done;
                    }
                }
                Closing::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}

trait PollElapsed {
    fn poll_elapsed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
}

impl PollElapsed for Sleep {
    fn poll_elapsed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        std::future::Future::poll(self, cx)
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if lock(&self.endings).say.is_some() {
            return self.poll_closing(cx).map_ok(|()| 0);
        }
        if self.inbound.is_empty() {
            self.inbound = ready!(self.poll_bytes(cx));
        }
        let n = self.inbound.len().min(buf.len());
        buf[..n].copy_from_slice(&self.inbound.split_to(n));
        Poll::Ready(Ok(n))
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.outbound.len() >= limits::SEND_BUFFER_BYTES {
            ready!(self.poll_push(cx)).map_err(io::Error::other)?;
        }
        let n = buf.len().min(limits::SEND_BUFFER_BYTES);
        self.outbound.extend_from_slice(&buf[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_push(cx)).map_err(io::Error::other)?;
        Pin::new(&mut self.socket)
            .poll_flush(cx)
            .map_err(io::Error::other)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_closing(cx)
    }
}
