//! A WebSocket of any library, as a stream and sink of [`Message`]s.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{Sink, Stream};

/// What travels in a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Text(String),
    Binary(Bytes),
    Ping(Bytes),
    Pong(Bytes),
    /// The closing code and reason, when given.
    Close(Option<(u16, String)>),
}

/// Why a side ends a link that was welcome, as the close reason says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// A newer connection of the allocation is current; the runtime waits 30 s.
    Superseded,
    /// The link generation was revoked; the runtime exits 78.
    Revoked,
    /// The sandbox was quiesced; the runtime stays parked.
    Parked,
    /// Core's ownership changed; the runtime retries.
    EpochChanged,
    /// This side is shutting down.
    GoingAway,
}

impl CloseReason {
    const ALL: [Self; 5] = [
        Self::Superseded,
        Self::Revoked,
        Self::Parked,
        Self::EpochChanged,
        Self::GoingAway,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "link_superseded",
            Self::Revoked => "link_revoked",
            Self::Parked => "link_parked",
            Self::EpochChanged => "link_epoch_changed",
            Self::GoingAway => "going_away",
        }
    }

    fn code(self) -> u16 {
        match self {
            Self::Parked => 1000,
            Self::GoingAway => 1001,
            _ => 1008,
        }
    }

    pub(crate) fn to_message(self) -> Message {
        Message::Close(Some((self.code(), self.as_str().to_owned())))
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failure of the WebSocket library or of the connection below it.
#[derive(Debug, thiserror::Error)]
#[error("the WebSocket failed")]
pub struct SocketError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

trait Transport: Stream<Item = Result<Message, SocketError>> + Sink<Message, Error = SocketError> + Send {}
impl<T: Stream<Item = Result<Message, SocketError>> + Sink<Message, Error = SocketError> + Send> Transport
    for T
{
}

/// An open WebSocket. Made by [`Socket::from_axum`] or [`Socket::from_tungstenite`], or of any stream and sink.
pub struct Socket(Pin<Box<dyn Transport>>);

impl Socket {
    /// A socket over any stream and sink of messages. The stream answers pings itself, as both libraries do.
    pub fn new<T>(transport: T) -> Self
    where
        T: Stream<Item = Result<Message, SocketError>> + Sink<Message, Error = SocketError> + Send + 'static,
    {
        Self(Box::pin(transport))
    }
}

impl Stream for Socket {
    type Item = Result<Message, SocketError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl Sink<Message> for Socket {
    type Error = SocketError;
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.as_mut().poll_ready(cx)
    }
    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), SocketError> {
        self.0.as_mut().start_send(message)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.as_mut().poll_flush(cx)
    }
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.0.as_mut().poll_close(cx)
    }
}

/// A library's socket whose messages are translated on the way.
#[cfg(any(feature = "axum", feature = "tungstenite"))]
struct Translated<W, N> {
    socket: W,
    read: fn(N) -> Option<Message>,
    write: fn(Message) -> N,
}

#[cfg(any(feature = "axum", feature = "tungstenite"))]
impl<W, N, E> Stream for Translated<W, N>
where
    W: Stream<Item = Result<N, E>> + Unpin,
    E: std::error::Error + Send + Sync + 'static,
{
    type Item = Result<Message, SocketError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            return Poll::Ready(
                match std::task::ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                    None => None,
                    Some(Err(error)) => Some(Err(SocketError(Box::new(error)))),
                    Some(Ok(native)) => match (self.read)(native) {
                        Some(message) => Some(Ok(message)),
                        None => continue,
                    },
                },
            );
        }
    }
}

#[cfg(any(feature = "axum", feature = "tungstenite"))]
impl<W, N, E> Sink<Message> for Translated<W, N>
where
    W: Sink<N, Error = E> + Unpin,
    E: std::error::Error + Send + Sync + 'static,
{
    type Error = SocketError;
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        Pin::new(&mut self.socket).poll_ready(cx).map_err(boxed)
    }
    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), SocketError> {
        let native = (self.write)(message);
        Pin::new(&mut self.socket).start_send(native).map_err(boxed)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(boxed)
    }
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(boxed)
    }
}

#[cfg(any(feature = "axum", feature = "tungstenite"))]
fn boxed<E: std::error::Error + Send + Sync + 'static>(error: E) -> SocketError {
    SocketError(Box::new(error))
}

#[cfg(feature = "axum")]
mod with_axum {
    use axum::extract::ws;

    use super::{Message, Socket, Translated};

    impl Socket {
        /// Core's end. Limit the upgrade with `max_message_size` and `max_frame_size` of
        /// [`crate::limits::MESSAGE_BYTES`].
        pub fn from_axum(socket: ws::WebSocket) -> Self {
            Self::new(Translated {
                socket,
                read: from_axum,
                write: to_axum,
            })
        }
    }

    fn from_axum(message: ws::Message) -> Option<Message> {
        Some(match message {
            ws::Message::Text(text) => Message::Text(text.as_str().to_owned()),
            ws::Message::Binary(bytes) => Message::Binary(bytes),
            ws::Message::Ping(bytes) => Message::Ping(bytes),
            ws::Message::Pong(bytes) => Message::Pong(bytes),
            ws::Message::Close(frame) => {
                Message::Close(frame.map(|f| (f.code, f.reason.as_str().to_owned())))
            }
        })
    }

    fn to_axum(message: Message) -> ws::Message {
        match message {
            Message::Text(text) => ws::Message::Text(text.into()),
            Message::Binary(bytes) => ws::Message::Binary(bytes),
            Message::Ping(bytes) => ws::Message::Ping(bytes),
            Message::Pong(bytes) => ws::Message::Pong(bytes),
            Message::Close(frame) => ws::Message::Close(frame.map(|(code, reason)| ws::CloseFrame {
                code,
                reason: reason.into(),
            })),
        }
    }
}

#[cfg(feature = "tungstenite")]
mod with_tungstenite {
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message as Native, protocol::CloseFrame},
    };

    use super::{Message, Socket, Translated};

    impl Socket {
        /// The runtime's end. Configure `max_message_size` and `max_frame_size` of
        /// [`crate::limits::MESSAGE_BYTES`].
        pub fn from_tungstenite<S>(socket: WebSocketStream<S>) -> Self
        where
            S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        {
            Self::new(Translated {
                socket,
                read: from_native,
                write: to_native,
            })
        }
    }

    fn from_native(message: Native) -> Option<Message> {
        Some(match message {
            Native::Text(text) => Message::Text(text.as_str().to_owned()),
            Native::Binary(bytes) => Message::Binary(bytes),
            Native::Ping(bytes) => Message::Ping(bytes),
            Native::Pong(bytes) => Message::Pong(bytes),
            Native::Close(frame) => {
                Message::Close(frame.map(|f| (f.code.into(), f.reason.as_str().to_owned())))
            }
            // Never produced by reading.
            Native::Frame(_) => return None,
        })
    }

    fn to_native(message: Message) -> Native {
        match message {
            Message::Text(text) => Native::Text(text.into()),
            Message::Binary(bytes) => Native::Binary(bytes),
            Message::Ping(bytes) => Native::Ping(bytes),
            Message::Pong(bytes) => Native::Pong(bytes),
            Message::Close(frame) => Native::Close(frame.map(|(code, reason)| CloseFrame {
                code: code.into(),
                reason: reason.into(),
            })),
        }
    }
}
