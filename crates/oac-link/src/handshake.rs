//! Hello and its answer: the only messages before the byte stream.

use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;

use crate::{
    hello::{
        Envelope, Hello, HelloMessage, Kind, Refusal, RefusedMessage, VERSION, Version, Welcome,
        WelcomeMessage,
    },
    json, limits,
    mux::{self, LinkClient, LinkDriver},
    server::LinkServer,
    socket::{CloseReason, Message, Socket, SocketError},
};

/// Why no hello could be read.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// Another link version: answer [`Refusal::VersionUnsupported`].
    #[error("the runtime speaks another link version")]
    VersionUnsupported,
    /// Not a hello of at most 8 KiB: close without an answer.
    #[error("the first message is no hello")]
    Malformed,
    #[error("no hello within 10 s")]
    TimedOut,
    #[error("the link closed before its hello")]
    Closed,
    #[error("the link failed before its hello")]
    Socket(#[source] SocketError),
}

/// Core's end of a link that has not been welcomed. Nothing but the hello is read from it.
pub struct Opening {
    socket: Socket,
}

impl Opening {
    pub fn new(socket: Socket) -> Self {
        Self { socket }
    }

    /// Waits for the hello: one text message of at most 8 KiB, within 10 s.
    pub async fn hello(&mut self) -> Result<Hello, HelloError> {
        let text = next_text(&mut self.socket).await.map_err(|end| match end {
            NoText::TimedOut => HelloError::TimedOut,
            NoText::Closed(_) => HelloError::Closed,
            NoText::Other => HelloError::Malformed,
            NoText::Socket(error) => HelloError::Socket(error),
        })?;
        if text.len() > limits::HELLO_BYTES {
            return Err(HelloError::Malformed);
        }
        // Another version may have other members; only its number is looked at.
        match serde_json::from_str::<Version>(&text) {
            Ok(v) if v.version != u64::from(VERSION) => return Err(HelloError::VersionUnsupported),
            _ => {}
        }
        let message: HelloMessage = json::decode(text.as_bytes()).ok_or(HelloError::Malformed)?;
        let version_fits = (1..=64).contains(&message.runtime_version.len());
        if message.kind != Kind::Hello || !version_fits || !is_credential(message.credential.expose()) {
            return Err(HelloError::Malformed);
        }
        Ok(Hello {
            credential: message.credential,
            resource: message.resource,
            runtime_version: message.runtime_version,
            instance_id: message.instance_id,
        })
    }

    /// Accepts the hello. The driver must be polled for the client to work; it ends with the link.
    pub async fn welcome(mut self, welcome: Welcome) -> Result<(LinkClient, LinkDriver), SocketError> {
        let text = json::encode(&WelcomeMessage {
            version: VERSION,
            kind: Kind::Welcome,
            connection_id: welcome.connection_id,
            owner_epoch: welcome.owner_epoch,
        });
        send_text(&mut self.socket, text).await?;
        Ok(mux::client(self.socket, welcome))
    }

    /// Refuses the hello with a code and closes; at most 2 s. A failure to say so changes nothing.
    pub async fn refuse(mut self, code: Refusal) {
        let text = json::encode(&RefusedMessage {
            version: VERSION,
            kind: Kind::Refused,
            code,
        });
        let _ = timeout(limits::CLOSE_TIMEOUT, async {
            send_text(&mut self.socket, text).await?;
            self.finish().await
        })
        .await;
    }

    /// Closes without an answer; at most 2 s.
    pub async fn close(mut self) {
        let _ = timeout(limits::CLOSE_TIMEOUT, self.finish()).await;
    }

    async fn finish(&mut self) -> Result<(), SocketError> {
        self.socket.send(CloseReason::GoingAway.to_message()).await?;
        // The peer's close tells that the answer arrived.
        while let Some(Ok(message)) = self.socket.next().await {
            if matches!(message, Message::Close(_)) {
                break;
            }
        }
        Ok(())
    }
}

/// 64 hex characters, as Core makes them.
pub(crate) fn is_credential(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Why a hello was not welcomed.
#[derive(Debug, thiserror::Error)]
pub enum IntroduceError {
    #[error("Core refused the link: {0}")]
    Refused(Refusal),
    #[error("Core's answer to the hello is no welcome")]
    Malformed,
    #[error("Core did not answer the hello within 10 s")]
    TimedOut,
    #[error("Core closed the link before its welcome")]
    Closed(Option<CloseReason>),
    #[error("the link failed before its welcome")]
    Socket(#[source] SocketError),
}

/// The sandbox's end: says hello and waits for the welcome, then hands out the server. Until then nothing is accepted.
pub async fn introduce(mut socket: Socket, hello: &Hello) -> Result<(Welcome, LinkServer), IntroduceError> {
    let text = json::encode(&HelloMessage {
        version: VERSION,
        kind: Kind::Hello,
        credential: hello.credential.clone(),
        resource: hello.resource,
        runtime_version: hello.runtime_version.clone(),
        instance_id: hello.instance_id,
    });
    send_text(&mut socket, text)
        .await
        .map_err(IntroduceError::Socket)?;
    let answer = next_text(&mut socket).await.map_err(|end| match end {
        NoText::TimedOut => IntroduceError::TimedOut,
        NoText::Closed(reason) => IntroduceError::Closed(reason),
        NoText::Other => IntroduceError::Malformed,
        NoText::Socket(error) => IntroduceError::Socket(error),
    })?;
    let bytes = answer.as_bytes();
    if bytes.len() > limits::ANSWER_BYTES {
        return Err(IntroduceError::Malformed);
    }
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(|_| IntroduceError::Malformed)?;
    if envelope.version != VERSION {
        return Err(IntroduceError::Malformed);
    }
    match envelope.kind {
        Kind::Hello => Err(IntroduceError::Malformed),
        Kind::Refused => {
            let refused: RefusedMessage = json::decode(bytes).ok_or(IntroduceError::Malformed)?;
            Err(IntroduceError::Refused(refused.code))
        }
        Kind::Welcome => {
            let message: WelcomeMessage = json::decode(bytes).ok_or(IntroduceError::Malformed)?;
            let welcome = Welcome {
                connection_id: message.connection_id,
                owner_epoch: message.owner_epoch,
            };
            Ok((welcome, LinkServer::new(socket)))
        }
    }
}

async fn send_text(socket: &mut Socket, json: Vec<u8>) -> Result<(), SocketError> {
    let text = String::from_utf8(json).unwrap_or_else(|error| unreachable!("JSON is UTF-8: {error}"));
    socket.send(Message::Text(text)).await
}

enum NoText {
    TimedOut,
    Closed(Option<CloseReason>),
    Other,
    Socket(SocketError),
}

async fn next_text(socket: &mut Socket) -> Result<String, NoText> {
    let wait = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_))) => return Err(NoText::Other),
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.and_then(|(_, text)| CloseReason::from_text(&text));
                    return Err(NoText::Closed(reason));
                }
                Some(Err(error)) => return Err(NoText::Socket(error)),
                None => return Err(NoText::Closed(None)),
            }
        }
    };
    timeout(limits::HANDSHAKE_TIMEOUT, wait)
        .await
        .unwrap_or(Err(NoText::TimedOut))
}
