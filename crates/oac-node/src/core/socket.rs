use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use http::{
    StatusCode,
    header::{
        AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use http_body_util::Full;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use oac_dial::{Answer, ReachError, Rest, request_to};
use oac_model::{NodeId, Secret};
use oac_wire::limits::REQUEST_FRAME_BYTES;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    CoreClient,
    routes::authorization,
    stream::{Progress, Watched},
};
use crate::{
    clock::Clock,
    limits::{CLOSE_WRITE, CORE_BODY_BYTES, OUTGOING_FRAMES, WRITE_PROGRESS},
};

/// An upgrade that gave no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// By Core, or by something between; GET identity tells.
    #[error("the upgrade was answered 401")]
    Refused,
    #[error("the upgrade was answered {0}")]
    Answer(StatusCode),
    #[error("the upgrade was answered 101 without a WebSocket")]
    NotWebSocket,
    #[error("Core could not be reached")]
    Network(#[source] ReachError),
}

type Socket = WebSocketStream<Watched<TokioIo<Upgraded>>>;

/// One live WebSocket: whole messages in, frames out through a bounded queue.
#[derive(Debug)]
pub(crate) struct Connection {
    reader: SplitStream<Socket>,
    outgoing: mpsc::Sender<String>,
    writer: JoinSet<()>,
    abort: AbortHandle,
    pub(crate) progress: Arc<Progress>,
}

#[derive(Debug)]
pub(crate) enum Incoming {
    Text(Utf8Bytes),
    Unreadable,
    Lost,
}

impl CoreClient {
    /// Dials and upgrades (protocol.md section 4), for as long as it is awaited: the state machine ends it after 10 s.
    pub(crate) async fn dial(&self, node_id: NodeId, credential: &Secret) -> Result<Connection, DialError> {
        let mut url = self.origin.route("/sandbox-node/connect");
        url.set_query(Some(&format!("node_id={node_id}")));
        let key = generate_key();
        let request = request_to(&url)
            .header(AUTHORIZATION, authorization(credential))
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .body(Full::<Bytes>::default())
            .unwrap_or_else(|_| unreachable!("a route and these headers make a request"));
        let Answer { head, rest } = self
            .way
            .ask(request, CORE_BODY_BYTES)
            .await
            .map_err(DialError::Network)?;
        let upgraded = match (head.status, rest) {
            (StatusCode::UNAUTHORIZED, _) => return Err(DialError::Refused),
            (_, Rest::Switched(upgraded)) => upgraded,
            (status, Rest::Body(_)) => return Err(DialError::Answer(status)),
        };
        let header = |name| {
            head.headers
                .get(name)
                .and_then(|v: &http::HeaderValue| v.to_str().ok())
        };
        let is_websocket = header(UPGRADE).is_some_and(|v| v.eq_ignore_ascii_case("websocket"))
            && header(SEC_WEBSOCKET_ACCEPT) == Some(derive_accept_key(key.as_bytes()).as_str());
        if !is_websocket {
            return Err(DialError::NotWebSocket);
        }
        Ok(Connection::over(upgraded, self.clock.clone()).await)
    }
}

impl Connection {
    async fn over(upgraded: TokioIo<Upgraded>, clock: Clock) -> Self {
        let progress = Arc::new(Progress::new(clock.clone()));
        let config = WebSocketConfig::default()
            .max_message_size(Some(REQUEST_FRAME_BYTES))
            .max_frame_size(Some(REQUEST_FRAME_BYTES));
        let stream = Watched::new(upgraded, progress.clone());
        let socket = WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await;
        let (sink, reader) = socket.split();
        let (outgoing, frames) = mpsc::channel(OUTGOING_FRAMES);
        let mut writer = JoinSet::new();
        let abort = writer.spawn(write_all(sink, frames, progress.clone(), clock));
        Self {
            reader,
            outgoing,
            writer,
            abort,
            progress,
        }
    }

    /// Queues a frame; false when the queue is full or the connection is gone.
    pub(crate) fn send(&self, text: String) -> bool {
        self.outgoing.try_send(text).is_ok()
    }

    /// The next whole message, or the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Incoming {
        loop {
            tokio::select! {
                message = self.reader.next() => match message {
                    Some(Ok(Message::Text(text))) => return Incoming::Text(text),
                    Some(Ok(Message::Binary(_))) => return Incoming::Unreadable,
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Incoming::Lost,
                },
                // The writer ends only when a write failed or made no progress.
                _ = self.writer.join_next() => return Incoming::Lost,
            }
        }
    }

    /// Writes what is queued and a Close message, within a second, then drops the socket.
    pub(crate) async fn close(mut self) {
        drop(self.outgoing);
        if timeout(CLOSE_WRITE, self.writer.join_next()).await.is_err() {
            self.abort.abort();
        }
    }
}

/// Writes frames until the queue is closed; ends early when a write fails or moves no byte for 10 s.
async fn write_all(
    mut sink: SplitSink<Socket, Message>,
    mut frames: mpsc::Receiver<String>,
    progress: Arc<Progress>,
    clock: Clock,
) {
    while let Some(text) = frames.recv().await {
        progress.write_begins();
        let mut send = std::pin::pin!(sink.send(Message::text(text)));
        loop {
            let stuck = progress.written().plus_millis(WRITE_PROGRESS.as_millis() as u64);
            tokio::select! {
                sent = &mut send => match sent {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = clock.until(Some(stuck)) => {
                    if clock.now().millis_since(progress.written()) >= WRITE_PROGRESS.as_millis() as u64 {
                        tracing::warn!("a frame made no progress for {WRITE_PROGRESS:?}");
                        return;
                    }
                }
            }
        }
    }
    let _ = sink.close().await;
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, net::TcpListener};

    use oac_dial::Surroundings;

    use super::*;
    use oac_dial::Origin;

    /// The first bytes that a node with a Core of this scheme sends to it.
    async fn first_bytes(scheme: &str) -> [u8; 3] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let origin = Origin::parse(&format!("{scheme}://{address}")).unwrap();
        let core = CoreClient::new(origin, Surroundings::default(), Clock::start()).unwrap();
        let credential = Secret::new("credential");
        let dial = core.dial(NodeId::random(), &credential);
        let read = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut first = [0; 3];
            stream.read_exact(&mut first).await.unwrap();
            first
        };
        let (dialed, first) = tokio::join!(dial, read);
        assert!(dialed.is_err(), "nobody answered");
        first
    }

    // req: P-013
    #[tokio::test]
    async fn a_core_under_https_is_dialed_over_tls_and_one_under_http_in_the_clear() {
        let [handshake, major, _] = first_bytes("https").await;
        assert_eq!((handshake, major), (22, 3), "a TLS handshake record");
        assert_eq!(&first_bytes("http").await, b"GET");
    }
}
