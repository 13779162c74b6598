//! Binary messages as one byte stream, with the pings that keep it alive and the silence that ends it.
//!
//! yamux reads and writes this stream from one task, so reading and writing share the socket without a lock. Both carry
//! the silence timer: yamux does not read while an answer of its own cannot leave, and a peer that freezes then must
//! still be noticed. Writes gather until a flush, so that a frame's header and body leave as one message.
//!
//! yamux answers a frame it does not allow with a farewell and goes on reading. Here such a farewell ends the
//! connection: a peer that breaks the protocol gets no second try ([`Farewell`]).

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
    priority::Gate,
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
    /// yamux said farewell over a frame that it does not allow.
    Refused,
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
    /// Reads since this last let others run.
    reads: u32,
    farewell: Farewell,
    gate: Gate,
    endings: SharedEndings,
}

impl ByteStream {
    pub(crate) fn new(socket: Socket, endings: SharedEndings, gate: Gate) -> Self {
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
            reads: 0,
            farewell: Farewell::default(),
            gate,
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

    /// Whether nothing was heard for too long; that ends reading. Otherwise the timer wakes.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let silent = self.silence.as_mut().poll_elapsed(cx).is_ready();
        if silent {
            self.end(ReadEnd::Silent);
        }
        silent
    }

    /// A peer that sends without a pause is heard in portions, so that other tasks of the thread are not held up.
    fn must_yield(&mut self, cx: &mut Context<'_>) -> bool {
        self.reads += 1;
        let yields = self.reads > limits::READS_AT_ONCE;
        if yields {
            self.reads = 0;
            cx.waker().wake_by_ref();
        }
        yields
    }

    /// The next bytes; empty once reading has ended.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            if self.ended {
                return Poll::Ready(Bytes::new());
            }
            if self.must_yield(cx) {
                return Poll::Pending;
            }
            if let Err(error) = self.poll_ping(cx) {
                self.end(ReadEnd::Failed(error));
                continue;
            }
            let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) else {
                if self.is_silent(cx) {
                    continue;
                }
                self.reads = 0;
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
        } else if self.must_yield(cx) {
            return Poll::Pending;
        }
        let n = self.inbound.len().min(buf.len());
        buf[..n].copy_from_slice(&self.inbound.split_to(n));
        Poll::Ready(Ok(n))
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.outbound.len() >= limits::SEND_BUFFER_BYTES {
            let pushed = self.poll_push(cx);
            ready!(self.or_silent(pushed, cx))?;
        }
        let n = buf.len().min(limits::SEND_BUFFER_BYTES);
        self.outbound.extend_from_slice(&buf[..n]);
        let this = &mut *self;
        let gate = &this.gate;
        if this.farewell.is_in(&buf[..n], |stream| gate.left(stream)) {
            self.end(ReadEnd::Refused);
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pushed = self.poll_push(cx);
        ready!(self.or_silent(pushed, cx))?;
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.or_silent(flushed, cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_closing(cx)
    }
}

impl ByteStream {
    /// A write that cannot go on, beside a peer that is not heard either, has failed.
    fn or_silent(
        &mut self,
        written: Poll<Result<(), SocketError>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match written {
            Poll::Pending if self.ended || self.is_silent(cx) => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            written => written.map_err(io::Error::other),
        }
    }
}

/// Finds yamux's farewell among the frames that leave: version, type, flags (2 bytes), stream (4), length (4), and behind
/// a data frame that many bytes.
#[derive(Default)]
struct Farewell {
    header: [u8; Self::HEADER_BYTES],
    have: usize,
    body: u32,
}

impl Farewell {
    const HEADER_BYTES: usize = 12;
    const DATA: u8 = 0;
    const GO_AWAY: u8 = 3;

    /// Tells `left` of each data frame with bytes by its stream.
    fn is_in(&mut self, mut bytes: &[u8], left: impl Fn(u32)) -> bool {
        let mut found = false;
        while !bytes.is_empty() {
            let skip = bytes.len().min(self.body as usize);
            self.body -= skip as u32;
            bytes = &bytes[skip..];
            let take = bytes.len().min(Self::HEADER_BYTES - self.have);
            self.header[self.have..self.have + take].copy_from_slice(&bytes[..take]);
            self.have += take;
            bytes = &bytes[take..];
            if self.have == Self::HEADER_BYTES {
                self.have = 0;
                let [_, kind, _, _, s0, s1, s2, s3, l0, l1, l2, l3] = self.header;
                found |= kind == Self::GO_AWAY;
                if kind == Self::DATA {
                    self.body = u32::from_be_bytes([l0, l1, l2, l3]);
                    if self.body > 0 {
                        left(u32::from_be_bytes([s0, s1, s2, s3]));
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Farewell;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, kind, 0, 0, 0, 0, 0, 1];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn a_farewell_is_found_wherever_it_is_cut_and_never_in_data() {
        let go_away = frame(3, b"");
        let data = frame(0, &go_away);
        let frames = [data.clone(), frame(2, b""), frame(1, b""), data, go_away].concat();
        for size in 1..frames.len() {
            let mut farewell = Farewell::default();
            let mut at = 0;
            for piece in frames.chunks(size) {
                at += piece.len();
                assert_eq!(
                    farewell.is_in(piece, |_| ()),
                    at == frames.len(),
                    "pieces of {size}, at {at}"
                );
            }
        }
    }
}
