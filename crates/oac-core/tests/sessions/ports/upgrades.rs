//! WebSockets and other protocols through a port.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::tungstenite::{
    Message,
    client::IntoClientRequest as _,
    handshake::server::{Request, Response},
};

use super::{Field, LONG, server};

async fn echo() -> server::Server {
    server::each(|stream| async move {
        #[allow(clippy::result_large_err, reason = "the library's signature")]
        let agree = |request: &Request, mut response: Response| {
            assert!(request.headers().get("authorization").is_none());
            assert_eq!(request.uri(), "/chat?room=1");
            let wanted = request.headers()["sec-websocket-protocol"].clone();
            response.headers_mut().insert("sec-websocket-protocol", wanted);
            Ok(response)
        };
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, agree).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_websocket_passes_with_its_protocol_its_messages_and_its_close() {
    let field = Field::start().await;
    let server = echo().await;
    let url = field.world.core.url.replacen("http", "ws", 1) + &field.path(server.port, "/chat?room=1");
    let mut request = url.into_client_request().unwrap();
    let key = format!("Bearer {}", field.world.core.project_key.expose());
    request
        .headers_mut()
        .insert("authorization", key.parse().unwrap());
    request
        .headers_mut()
        .insert("sec-websocket-protocol", "talk".parse().unwrap());
    let (mut socket, answer) = timeout(LONG, tokio_tungstenite::connect_async(request))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "talk");
    let large = Message::binary((0..4_u32 << 20).map(|n| n as u8).collect::<Vec<_>>());
    for message in [Message::text("hello"), large, Message::text("again")] {
        socket.send(message.clone()).await.unwrap();
        let back = timeout(LONG, socket.next()).await.unwrap().unwrap().unwrap();
        assert!(back == message);
    }
    socket.close(None).await.unwrap();
    while timeout(LONG, socket.next()).await.unwrap().is_some() {}
    field.until_free(server.port).await;
}

#[tokio::test]
async fn after_any_upgrade_bytes_pass_as_they_are_and_each_direction_ends_alone() {
    let field = Field::start().await;
    let server = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        // The first bytes of the new protocol come with the head.
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: own/2\r\nX-More: 1\r\n\r\nhello\0";
        stream.write_all(head).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        all.reverse();
        stream.write_all(&all).await.unwrap();
    })
    .await;
    let (mut stream, authorization) = field.connect().await;
    let head = format!(
        "GET {}/ HTTP/1.1\r\nHost: x\r\n{authorization}Connection: keep-alive, Upgrade\r\nUpgrade: own/2\r\n\r\n",
        field.path(server.port, "")
    );
    // And the client does not wait either.
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"\x00abc").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    timeout(LONG, stream.read_to_end(&mut all))
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8(all).unwrap().to_lowercase();
    let (head, bytes) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    for line in ["connection: upgrade", "upgrade: own/2", "x-more: 1"] {
        assert!(head.contains(line), "{head}");
    }
    assert_eq!(bytes, "hello\0cba\0");
    field.until_free(server.port).await;
}

#[tokio::test]
async fn an_offered_upgrade_that_is_not_taken_is_an_ordinary_exchange() {
    let field = Field::start().await;
    let (server, heard) =
        server::scripted("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno").await;
    let answer = field
        .raw(
            server.port,
            "GET {at}/ HTTP/1.1\r\nHost: x\r\n{auth}Connection: upgrade, close\r\nUpgrade: own\r\n\r\n",
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 426") && answer.ends_with("\r\n\r\nno"),
        "{answer}"
    );
    let heard = heard.texts().concat();
    assert!(
        heard.contains("upgrade: own\r\n") && heard.contains("connection: upgrade\r\n"),
        "{heard}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_an_upgraded_connection_ends_the_servers() {
    let field = Field::start().await;
    let server = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n";
        stream.write_all(head).await.unwrap();
        // Speaks for as long as it is heard.
        while stream.write_all(&[0; 1024]).await.is_ok() {}
    })
    .await;
    let (mut stream, authorization) = field.connect().await;
    let head = format!(
        "GET {}/ HTTP/1.1\r\nHost: x\r\n{authorization}Connection: upgrade\r\nUpgrade: own\r\n\r\n",
        field.path(server.port, "")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut some = [0; 4096];
    timeout(LONG, stream.read_exact(&mut some))
        .await
        .unwrap()
        .unwrap();
    drop(stream);
    field.until_free(server.port).await;
}
