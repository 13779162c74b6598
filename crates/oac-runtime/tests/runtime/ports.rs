//! Port streams of the real program. Its ports are those of this test, which shares its network.

use std::{io::ErrorKind, num::NonZeroU16, time::Duration};

use http::{Request, StatusCode};
use oac_link::{LinkClient, PortError, StreamClass, Tunnel, empty};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::acceptor::{LONG, Sandbox, until};

async fn listen(address: &str) -> (TcpListener, NonZeroU16) {
    let listener = TcpListener::bind(address).await.unwrap();
    let port = NonZeroU16::new(listener.local_addr().unwrap().port()).unwrap();
    (listener, port)
}

/// A port stream and the server's end of its connection.
async fn connected(client: &LinkClient, listener: &TcpListener, port: NonZeroU16) -> (Tunnel, TcpStream) {
    let (tunnel, accepted) = tokio::join!(client.connect_port(port), listener.accept());
    (tunnel.unwrap(), accepted.unwrap().0)
}

/// Everything up to the orderly end.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut bytes)).await.unwrap();
    read.unwrap();
    bytes
}

async fn next<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> [u8; N] {
    let mut bytes = [0; N];
    let read = timeout(LONG, stream.read_exact(&mut bytes)).await.unwrap();
    read.unwrap();
    bytes
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn bytes_beyond_every_buffer_pass_whole_in_both_directions_at_once() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("127.0.0.1:0").await;
    let (tunnel, server) = connected(&client, &listener, port).await;
    let bytes = pattern(24 << 20);
    let (mut from_tunnel, mut to_tunnel) = tokio::io::split(tunnel);
    let (mut from_server, mut to_server) = server.into_split();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let work = async {
        tokio::join!(
            async {
                to_tunnel.write_all(&bytes).await.unwrap();
                to_tunnel.shutdown().await.unwrap();
            },
            async {
                to_server.write_all(&bytes).await.unwrap();
                to_server.shutdown().await.unwrap();
            },
            from_server.read_to_end(&mut up),
            from_tunnel.read_to_end(&mut down),
        )
    };
    let (_, _, heard, told) = timeout(LONG, work).await.unwrap();
    assert_eq!((heard.unwrap(), told.unwrap()), (bytes.len(), bytes.len()));
    assert!(up == bytes && down == bytes);
}

#[tokio::test]
async fn a_side_that_ended_its_direction_still_receives() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("127.0.0.1:0").await;
    let (mut tunnel, mut server) = connected(&client, &listener, port).await;
    tunnel.write_all(b"all there is").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let heard = rest(&mut server).await;
    assert_eq!(heard, b"all there is");
    let answer = pattern(1 << 20);
    server.write_all(&answer).await.unwrap();
    drop(server);
    let told = rest(&mut tunnel).await;
    assert!(told == answer);

    // And the other way round.
    let (mut tunnel, mut server) = connected(&client, &listener, port).await;
    server.write_all(b"all there is").await.unwrap();
    server.shutdown().await.unwrap();
    let told = rest(&mut tunnel).await;
    assert_eq!(told, b"all there is");
    tunnel.write_all(&answer).await.unwrap();
    tunnel.shutdown().await.unwrap();
    let heard = rest(&mut server).await;
    assert!(heard == answer);
}

#[tokio::test]
async fn a_port_is_looked_for_on_both_loopback_addresses_and_refused_without_a_listener() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("[::1]:0").await;
    let (mut tunnel, mut server) = connected(&client, &listener, port).await;
    server.write_all(b"six").await.unwrap();
    assert_eq!(&next(&mut tunnel).await, b"six");
    drop((listener, tunnel, server));
    let refused = client.connect_port(port).await;
    assert!(matches!(refused, Err(PortError::Refused)), "{refused:?}");
}

#[tokio::test]
async fn a_server_that_breaks_off_is_an_error_and_no_end() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("127.0.0.1:0").await;
    let (mut tunnel, mut server) = connected(&client, &listener, port).await;
    server.write_all(b"half").await.unwrap();
    assert_eq!(&next(&mut tunnel).await, b"half");
    // A connection closed without its end is reset.
    rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
    drop(server);
    let error = timeout(LONG, tunnel.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_connection_also_of_a_server_that_neither_reads_nor_writes() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("127.0.0.1:0").await;
    let (tunnel, mut server) = connected(&client, &listener, port).await;
    drop(tunnel);
    let error = timeout(LONG, server.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);

    // More than all buffers between take.
    let (mut tunnel, server) = connected(&client, &listener, port).await;
    let flood = vec![7; 1 << 16];
    let mut written = 0_usize;
    while let Ok(Ok(())) = timeout(Duration::from_millis(500), tunnel.write_all(&flood)).await {
        written += flood.len();
    }
    assert!(written > 1 << 20);
    drop(tunnel);
    until("the connection is reset", async || {
        server.take_error().unwrap().is_some()
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_link_ends_its_port_connections() {
    let (mut sandbox, client) = Sandbox::linked().await;
    let (listener, port) = listen("127.0.0.1:0").await;
    let (mut tunnel, mut server) = connected(&client, &listener, port).await;
    client.close(oac_link::CloseReason::EpochChanged);
    for end in [
        timeout(LONG, server.read_u8()).await.unwrap(),
        timeout(LONG, tunnel.read_u8()).await.unwrap(),
    ] {
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    // The program links again, and ports work again.
    let (client, _) = sandbox.acceptor.link().await;
    connected(&client, &listener, port).await;
}

#[tokio::test]
async fn only_an_upgrade_to_tcp_of_a_port_number_is_connected() {
    let (_sandbox, client) = Sandbox::linked().await;
    let (_listener, port) = listen("127.0.0.1:0").await;
    let post = |path: String, upgrade: Option<&str>| {
        let mut request = Request::post(path);
        if let Some(protocol) = upgrade {
            request = request
                .header("connection", "upgrade")
                .header("upgrade", protocol);
        }
        client.request(StreamClass::Bulk, request.body(empty()).unwrap())
    };
    for (path, upgrade, status) in [
        (format!("/v1/ports/{port}"), None, StatusCode::BAD_REQUEST),
        (
            format!("/v1/ports/{port}"),
            Some("websocket"),
            StatusCode::BAD_REQUEST,
        ),
        (
            format!("/v1/ports/{port}?x=1"),
            Some("tcp"),
            StatusCode::BAD_REQUEST,
        ),
        ("/v1/ports/0".to_owned(), Some("tcp"), StatusCode::NOT_FOUND),
        ("/v1/ports/65536".to_owned(), Some("tcp"), StatusCode::NOT_FOUND),
        (format!("/v1/ports/+{port}"), Some("tcp"), StatusCode::NOT_FOUND),
        (format!("/v1/ports/0{port}"), Some("tcp"), StatusCode::NOT_FOUND),
        (format!("/v1/ports/{port}/"), Some("tcp"), StatusCode::NOT_FOUND),
    ] {
        let answer = post(path.clone(), upgrade).await.unwrap();
        assert_eq!(answer.status(), status, "{path} {upgrade:?}");
    }
}
