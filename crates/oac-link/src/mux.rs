//! The yamux connection that both ends drive, and Core's handle on it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::{
    bytestream::{ByteStream, ReadEnd, SharedEndings, lock},
    exchange::{LinkError, StreamClass},
    hello::Welcome,
    limits,
    priority::{Class, Gate, LinkStream},
    socket::{CloseReason, Socket, SocketError},
};

/// How a link that was welcome ended.
#[derive(Debug)]
pub enum LinkEnd {
    /// This side closed it.
    ClosedHere(CloseReason),
    /// The peer closed it, or the connection ended without a reason.
    ClosedByPeer(Option<CloseReason>),
    /// Nothing was heard for 45 s.
    Silent,
    /// The peer broke the protocol.
    Violation(&'static str),
    Failed(SocketError),
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClosedHere(reason) => write!(f, "closed here: {reason}"),
            Self::ClosedByPeer(Some(reason)) => write!(f, "closed by the peer: {reason}"),
            Self::ClosedByPeer(None) => f.write_str("the connection ended"),
            Self::Silent => f.write_str("nothing was heard for 45 s"),
            Self::Violation(what) => write!(f, "the peer broke the protocol: {what}"),
            Self::Failed(_) => f.write_str("the connection failed"),
        }
    }
}

/// A yamux connection over a link's byte stream.
pub(crate) struct Mux {
    connection: yamux::Connection<ByteStream>,
    endings: SharedEndings,
    gate: Gate,
}

impl Mux {
    pub(crate) fn new(socket: Socket, mode: yamux::Mode) -> Self {
        let mut config = yamux::Config::default();
        // Streams together may grow by what one needs to reach its maximum, so that none passes it.
        let growth = limits::WINDOW_MAX_BYTES - limits::WINDOW_BYTES;
        config
            .set_max_connection_receive_window(None)
            .set_max_num_streams(limits::YAMUX_STREAMS)
            .set_max_connection_receive_window(Some(limits::YAMUX_STREAMS * limits::WINDOW_BYTES + growth))
            .set_split_send_size(limits::FRAME_BYTES);
        let endings = SharedEndings::default();
        let gate = Gate::default();
        let stream = ByteStream::new(socket, endings.clone(), gate.clone());
        Self {
            connection: yamux::Connection::new(stream, config, mode),
            endings,
            gate,
        }
    }

    /// What the link's streams wait at before they send.
    pub(crate) fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Drives the connection; the next stream that the peer opened, or the end.
    pub(crate) fn poll_inbound(&mut self, cx: &mut Context<'_>) -> Poll<Result<yamux::Stream, LinkEnd>> {
        self.connection.poll_next_inbound(cx).map(|next| match next {
            Some(Ok(stream)) => Ok(stream),
            Some(Err(error)) => Err(self.end(Some(error))),
            None => Err(self.end(None)),
        })
    }

    pub(crate) fn poll_outbound(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<yamux::Stream, yamux::ConnectionError>> {
        self.connection.poll_new_outbound(cx)
    }

    fn end(&mut self, error: Option<yamux::ConnectionError>) -> LinkEnd {
        match (lock(&self.endings).read.take(), error) {
            (Some(ReadEnd::Closed(reason)), _) => LinkEnd::ClosedByPeer(reason),
            (Some(ReadEnd::Silent), _) => LinkEnd::Silent,
            (Some(ReadEnd::Text), _) => LinkEnd::Violation("a text message after the welcome"),
            (Some(ReadEnd::Refused), _) => LinkEnd::Violation("a frame that yamux does not allow"),
            (Some(ReadEnd::Failed(error)), _) => LinkEnd::Failed(error),
            (None, Some(yamux::ConnectionError::Io(error))) => LinkEnd::Failed(SocketError(Box::new(error))),
            (None, Some(yamux::ConnectionError::Closed) | None) => LinkEnd::ClosedByPeer(None),
            (None, Some(_)) => LinkEnd::Violation("a frame that yamux does not allow"),
        }
    }

    /// Says `reason` and lets go of the connection, and with it of every stream, within 2 s.
    pub(crate) async fn close(mut self, reason: CloseReason) {
        lock(&self.endings).say = Some(reason);
        let gone = poll_fn(|cx| {
            while let Poll::Ready(next) = self.connection.poll_next_inbound(cx) {
                if !matches!(next, Some(Ok(_))) {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        });
        let _ = tokio::time::timeout(limits::CLOSE_TIMEOUT, gone).await;
    }
}

struct Shared {
    welcome: Welcome,
    openings: mpsc::Sender<oneshot::Sender<yamux::Stream>>,
    streams: Arc<Semaphore>,
    unreserved: Arc<Semaphore>,
    close: watch::Sender<Option<CloseReason>>,
    ended: watch::Receiver<bool>,
    gate: Gate,
}

/// Core's handle on one link; clones share it. Its streams are opened here and nowhere else.
#[derive(Clone)]
pub struct LinkClient(Arc<Shared>);

impl fmt::Debug for LinkClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkClient({})", self.0.welcome.connection_id)
    }
}

/// Moves a link's bytes; to be run as a task of the program.
pub struct LinkDriver {
    mux: Mux,
    openings: mpsc::Receiver<oneshot::Sender<yamux::Stream>>,
    close: watch::Receiver<Option<CloseReason>>,
    _ended: watch::Sender<bool>,
}

pub(crate) fn client(socket: Socket, welcome: Welcome) -> (LinkClient, LinkDriver) {
    let (openings, receiver) = mpsc::channel(limits::OPENINGS_QUEUED);
    let (close, close_receiver) = watch::channel(None);
    let (ended_sender, ended) = watch::channel(false);
    let driver = LinkDriver {
        mux: Mux::new(socket, yamux::Mode::Client),
        openings: receiver,
        close: close_receiver,
        _ended: ended_sender,
    };
    let shared = Shared {
        welcome,
        openings,
        streams: Arc::new(Semaphore::new(limits::STREAMS)),
        unreserved: Arc::new(Semaphore::new(limits::STREAMS - limits::RESERVED_STREAMS)),
        close,
        ended,
        gate: driver.mux.gate(),
    };
    (LinkClient(Arc::new(shared)), driver)
}

/// One stream's place among the 64, given back when it is dropped.
pub(crate) struct StreamPermit {
    /// A link lives as long as one of its exchanges.
    client: LinkClient,
    _stream: OwnedSemaphorePermit,
    _unreserved: Option<OwnedSemaphorePermit>,
}

impl StreamPermit {
    pub(crate) fn link_is_open(&self) -> bool {
        self.client.is_open()
    }
}

impl LinkClient {
    /// What Core answered the hello with.
    pub fn welcome(&self) -> Welcome {
        self.0.welcome
    }

    /// Ends the link with `reason`; its streams end with it, and no new one opens. The first reason stays.
    pub fn close(&self, reason: CloseReason) {
        self.0.close.send_if_modified(|said| {
            let first = said.is_none();
            said.get_or_insert(reason);
            first
        });
    }

    /// Whether a stream may still be opened.
    pub fn is_open(&self) -> bool {
        self.0.close.borrow().is_none() && self.0.ended.has_changed().is_ok()
    }

    /// Returns once the link's driver has ended, for whatever reason.
    pub async fn closed(&self) {
        let mut ended = self.0.ended.clone();
        // The driver never sends; it drops its end.
        while ended.changed().await.is_ok() {}
    }

    pub(crate) async fn open(&self, class: StreamClass) -> Result<(LinkStream, StreamPermit), LinkError> {
        if !self.is_open() {
            return Err(LinkError::Closed);
        }
        let take = |semaphore: &Arc<Semaphore>| {
            semaphore
                .clone()
                .try_acquire_owned()
                .map_err(|_| LinkError::TooManyStreams)
        };
        let unreserved = match class {
            StreamClass::Control | StreamClass::Output => None,
            StreamClass::Bulk => Some(take(&self.0.unreserved)?),
        };
        let permit = StreamPermit {
            client: self.clone(),
            _stream: take(&self.0.streams)?,
            _unreserved: unreserved,
        };
        let (answer, stream) = oneshot::channel();
        self.0
            .openings
            .send(answer)
            .await
            .map_err(|_| LinkError::Closed)?;
        let stream = stream.await.map_err(|_| LinkError::Closed)?;
        let stream = LinkStream::new(stream, Class::new(class), self.0.gate.clone());
        Ok((stream, permit))
    }
}

enum Event {
    Close(CloseReason),
    Inbound(Result<yamux::Stream, LinkEnd>),
    Opening(oneshot::Sender<yamux::Stream>),
    NoClientLeft,
}

impl LinkDriver {
    /// Moves the link's bytes until it ends; every stream has ended when this returns.
    pub async fn run(mut self) -> LinkEnd {
        loop {
            match self.next().await {
                Event::Close(reason) => {
                    self.openings.close();
                    self.mux.close(reason).await;
                    return LinkEnd::ClosedHere(reason);
                }
                Event::NoClientLeft => {
                    self.mux.close(CloseReason::GoingAway).await;
                    return LinkEnd::ClosedHere(CloseReason::GoingAway);
                }
                Event::Inbound(Err(LinkEnd::Violation(what))) => {
                    self.mux.close(CloseReason::GoingAway).await;
                    return LinkEnd::Violation(what);
                }
                Event::Inbound(Err(end)) => return end,
                Event::Inbound(Ok(_)) => {
                    self.mux.close(CloseReason::GoingAway).await;
                    return LinkEnd::Violation("the runtime opened a stream");
                }
                Event::Opening(answer) => {
                    match poll_fn(|cx| self.mux.poll_outbound(cx)).await {
                        Ok(stream) => drop(answer.send(stream)),
                        // The caller learns that the link is closed; polling on gives the reason.
                        Err(_) => drop(answer),
                    }
                }
            }
        }
    }

    async fn next(&mut self) -> Event {
        let Self {
            mux, openings, close, ..
        } = self;
        let mut closing = pin!(async move {
            let said = close.wait_for(Option::is_some).await.map(|reason| *reason);
            match said {
                Ok(reason) => reason.unwrap_or(CloseReason::GoingAway),
                // Every client is gone; the openings say so too.
                Err(_) => std::future::pending().await,
            }
        });
        poll_fn(|cx| {
            if let Poll::Ready(reason) = closing.as_mut().poll(cx) {
                return Poll::Ready(Event::Close(reason));
            }
            if let Poll::Ready(inbound) = mux.poll_inbound(cx) {
                return Poll::Ready(Event::Inbound(inbound));
            }
            match openings.poll_recv(cx) {
                Poll::Ready(Some(answer)) => Poll::Ready(Event::Opening(answer)),
                Poll::Ready(None) => Poll::Ready(Event::NoClientLeft),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
