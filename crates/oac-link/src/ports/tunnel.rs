//! One end of a port stream.

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures_util::{AsyncRead as _, AsyncWrite as _};
use http::Request;
use hyper::{
    body::Incoming,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::compat::Compat;

use crate::{mux::StreamPermit, priority::LinkStream};

/// Raw bytes both ways. Shutting it down ends this side's direction alone; dropping it before resets the stream.
pub struct Tunnel(Arc<Mutex<Inner>>);

/// Looks at a tunnel from beside whoever reads and writes it, without keeping it open.
#[derive(Clone)]
pub struct TunnelWatch(Weak<Mutex<Inner>>);

struct Inner {
    stream: LinkStream,
    /// Bytes that arrived with the answer's head.
    ahead: Bytes,
    /// This side's direction was ended.
    shut: bool,
    permit: Option<StreamPermit>,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// yamux tells a reset stream from an ended one by its state alone: until this side ends its own direction, only a
    /// reset or the link's end closes the stream.
    fn is_reset(&self) -> bool {
        let link_ended = || self.permit.as_ref().is_some_and(|permit| !permit.link_is_open());
        self.stream.is_closed() && (!self.shut || link_ended())
    }
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the port stream was reset")
}

impl Tunnel {
    /// Of an exchange of this crate, whose connection is a link's stream.
    pub(super) fn of(upgraded: Upgraded, permit: Option<StreamPermit>) -> Self {
        let parts = upgraded
            .downcast::<TokioIo<Compat<LinkStream>>>()
            .unwrap_or_else(|_| unreachable!("exchanges of a link run over its streams"));
        Self(Arc::new(Mutex::new(Inner {
            stream: parts.io.into_inner().into_inner(),
            ahead: parts.read_buf,
            shut: false,
            permit,
        })))
    }

    /// Gives back bytes that were read of it too far; they are read before all others.
    pub fn unread(&mut self, bytes: Bytes) {
        let mut inner = lock(&self.0);
        inner.ahead = match inner.ahead.is_empty() {
            true => bytes,
            false => [bytes, inner.ahead.clone()].concat().into(),
        };
    }

    pub fn watch(&self) -> TunnelWatch {
        TunnelWatch(Arc::downgrade(&self.0))
    }
}

impl TunnelWatch {
    /// Whether the other end, or the link, is gone. A tunnel that was dropped is.
    pub fn is_reset(&self) -> bool {
        self.0.upgrade().is_none_or(|inner| lock(&inner).is_reset())
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        if inner.ahead.has_remaining() {
            let n = inner.ahead.len().min(buf.remaining());
            buf.put_slice(&inner.ahead.split_to(n));
            return Poll::Ready(Ok(()));
        }
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let n = ready!(Pin::new(&mut inner.stream).poll_read(cx, buf.initialize_unfilled()))?;
        if n == 0 && inner.is_reset() {
            return Poll::Ready(Err(reset()));
        }
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = lock(&self.0);
        Pin::new(&mut inner.stream)
            .poll_write(cx, bytes)
            .map_err(|_| reset())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        Pin::new(&mut inner.stream).poll_flush(cx).map_err(|_| reset())
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.0);
        if inner.shut {
            return Poll::Ready(Ok(()));
        }
        if inner.is_reset() {
            return Poll::Ready(Err(reset()));
        }
        ready!(Pin::new(&mut inner.stream).poll_close(cx)).map_err(|_| reset())?;
        inner.shut = true;
        Poll::Ready(Ok(()))
    }
}

/// The sandbox's end of a port stream, to be taken from the request before it is answered 101.
pub struct Accepting(OnUpgrade);

impl Accepting {
    pub fn of(request: &mut Request<Incoming>) -> Self {
        Self(hyper::upgrade::on(request))
    }

    /// Waits until the 101 has left; `None` when it never will.
    pub async fn accepted(self) -> Option<Tunnel> {
        self.0.await.ok().map(|upgraded| Tunnel::of(upgraded, None))
    }
}
