//! What passes: methods, bodies, heads, streams.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{Response, body::Frame};
use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::timeout,
};

use super::{Field, LONG, server};

fn header<'a>(seen: &'a Value, name: &str) -> Vec<&'a str> {
    seen["headers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pair| pair[0] == name)
        .map(|pair| pair[1].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn every_method_with_its_body_reaches_the_port_and_its_answer_comes_back() {
    let field = Field::start().await;
    let server = server::mirror().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE"] {
        let request = field
            .request(method.parse().unwrap(), server.port, "/a/b?c=d")
            .header("x-mine", "1")
            .header("cookie", "a=1")
            .body(format!("body of {method}"));
        let answer = timeout(LONG, request.send()).await.unwrap().unwrap();
        assert_eq!(answer.status(), 200, "{method}");
        let seen: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        assert_eq!(seen["method"], method);
        assert_eq!(seen["target"], "/a/b?c=d");
        assert_eq!(seen["body"], format!("body of {method}"));
        assert_eq!(header(&seen, "x-mine"), ["1"]);
        assert_eq!(header(&seen, "cookie"), ["a=1"]);
    }
    field.until_free(server.port).await;
}

#[tokio::test]
async fn the_sandbox_is_told_who_asked_by_core_alone_and_never_gets_the_key() {
    let field = Field::start().await;
    let (server, heard) = server::scripted("HTTP/1.1 204 No Content\r\n\r\n").await;
    let answer = field
        .raw(
            server.port,
            "GET {at}/x HTTP/1.1\r\nHost: called.so\r\n{auth}X-Forwarded-For: 1.1.1.1\r\nForwarded: for=1.1.1.1\r\n\
             X-Forwarded-Host: evil\r\nX-Secret: 1\r\nConnection: close, x-secret, x-forwarded-proto\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let heard = heard.texts().concat();
    let mut lines: Vec<_> = heard.trim_end().split("\r\n").collect();
    lines.sort_unstable();
    let public = field.world.core.public_url.clone().unwrap();
    let mut expected = vec![
        "GET /x HTTP/1.1".to_owned(),
        "connection: close".to_owned(),
        format!("host: localhost:{}", server.port),
        "x-forwarded-for: 127.0.0.1".to_owned(),
        format!("x-forwarded-host: {}", public.strip_prefix("http://").unwrap()),
        format!("x-forwarded-prefix: {}", field.path(server.port, "")),
        "x-forwarded-proto: http".to_owned(),
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert!(!heard.contains("oac_key"));
}

#[tokio::test]
async fn the_path_and_query_behind_the_port_arrive_byte_for_byte() {
    let field = Field::start().await;
    let (server, heard) = server::scripted("HTTP/1.1 204 No Content\r\n\r\n").await;
    let tricks = [
        ("", "/"),
        ("?q", "/?q"),
        ("/", "/"),
        ("//", "//"),
        ("/../../../../core/v1/projects", "/../../../../core/v1/projects"),
        ("/..%2f..%2F%2e%2e/./a//b", "/..%2f..%2F%2e%2e/./a//b"),
        ("/%00%0d%0aX:%20y", "/%00%0d%0aX:%20y"),
        ("/a;b=c,d'(e)*!@$&+=:~", "/a;b=c,d'(e)*!@$&+=:~"),
        ("/?a=1&a=2&&=%zz?/../", "/?a=1&a=2&&=%zz?/../"),
        ("/v1/sessions/x/ports/1/y", "/v1/sessions/x/ports/1/y"),
    ];
    for (sent, _) in tricks {
        let request = format!("GET {{at}}{sent} HTTP/1.1\r\nHost: x\r\n{{auth}}Connection: close\r\n\r\n");
        let answer = field.raw(server.port, &request).await;
        assert!(answer.starts_with("HTTP/1.1 204"), "{sent}: {answer}");
    }
    let targets: Vec<_> = heard
        .texts()
        .iter()
        .map(|text| text.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(targets, tricks.map(|(_, arrived)| arrived));
    // The whole URL in the request line names the same, whatever host it claims.
    let absolute = "GET http://evil.example{at}/z HTTP/1.1\r\nHost: x\r\n{auth}Connection: close\r\n\r\n";
    assert!(field.raw(server.port, absolute).await.starts_with("HTTP/1.1 204"));
    assert!(heard.texts().last().unwrap().starts_with("GET /z HTTP/1.1"));
}

#[tokio::test]
async fn bodies_beyond_every_buffer_pass_whole_in_both_directions() {
    let field = Field::start().await;
    let server =
        server::http(|request| async move { Response::new(request.into_body().boxed_unsync()) }).await;
    let bytes: Bytes = (0..16_u32 << 20)
        .map(|n| (n % 251) as u8)
        .collect::<Vec<_>>()
        .into();
    let request = field.request(Method::POST, server.port, "/").body(bytes.clone());
    let answer = timeout(LONG, request.send()).await.unwrap().unwrap();
    assert_eq!(answer.headers()["content-length"], bytes.len().to_string());
    let back = timeout(LONG, answer.bytes()).await.unwrap().unwrap();
    assert!(back == bytes);
}

#[tokio::test]
async fn bodies_stream_both_ways_before_either_has_ended() {
    let field = Field::start().await;
    let server =
        server::http(|request| async move { Response::new(request.into_body().boxed_unsync()) }).await;
    let (send, receive) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = futures_util::stream::unfold(receive, |mut receive| async {
        Some((receive.recv().await?, receive))
    });
    let request = field
        .request(Method::POST, server.port, "/")
        .body(reqwest::Body::wrap_stream(body));
    let mut answer = timeout(LONG, request.send()).await.unwrap().unwrap();
    for n in 0..10 {
        let chunk = Bytes::from(format!("chunk {n}"));
        send.send(Ok(chunk.clone())).await.unwrap();
        let back = timeout(LONG, answer.chunk()).await.unwrap().unwrap();
        assert_eq!(back, Some(chunk));
    }
    drop(send);
    assert_eq!(timeout(LONG, answer.chunk()).await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn an_event_stream_is_told_event_by_event() {
    let field = Field::start().await;
    let (send, receive) = mpsc::channel::<Bytes>(1);
    let receive = std::sync::Arc::new(tokio::sync::Mutex::new(Some(receive)));
    let server = server::http(move |_| {
        let receive = receive.clone();
        async move {
            let receive = receive.lock().await.take().unwrap();
            let events = futures_util::stream::unfold(receive, |mut receive| async {
                let event = receive.recv().await?;
                Some((Ok(Frame::data(event)), receive))
            });
            Response::builder()
                .header("content-type", "text/event-stream")
                .body(StreamBody::new(events.boxed()).boxed_unsync())
                .unwrap()
        }
    })
    .await;
    let mut answer = field.get(server.port, "/events").await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    for n in 0..5 {
        let event = Bytes::from(format!("data: {n}\n\n"));
        send.send(event.clone()).await.unwrap();
        assert_eq!(timeout(LONG, answer.chunk()).await.unwrap().unwrap(), Some(event));
    }
    // The server learns that its reader left.
    drop(answer);
    timeout(LONG, send.closed()).await.unwrap();
    field.until_free(server.port).await;
}

#[tokio::test]
async fn an_answer_without_a_body_passes_and_one_to_head_keeps_its_stated_length() {
    let field = Field::start().await;
    for (method, head, status) in [
        (
            "HEAD",
            "200 OK\r\nContent-Length: 42\r\nContent-Type: text/x",
            200,
        ),
        (
            "GET",
            "304 Not Modified\r\nContent-Length: 42\r\nContent-Type: text/x",
            304,
        ),
        ("GET", "204 No Content\r\nContent-Type: text/x", 204),
    ] {
        let (server, _) = server::scripted(format!("HTTP/1.1 {head}\r\nETag: \"e\"\r\n\r\n")).await;
        let request = format!("{method} {{at}}/ HTTP/1.1\r\nHost: x\r\n{{auth}}Connection: close\r\n\r\n");
        let answer = field.raw(server.port, &request).await.to_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
        assert!(answer.contains("etag: \"e\"\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        assert_eq!(
            answer.contains("content-length: 42\r\n"),
            method == "HEAD",
            "{answer}"
        );
        assert!(!answer.contains("transfer-encoding"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_waits_to_be_asked_for_is_asked_for_once_the_port_is_connected() {
    let field = Field::start().await;
    // It answers after the body, not before.
    let server = server::mirror().await;
    let (mut stream, authorization) = field.connect().await;
    let head = format!(
        "PUT {}/x HTTP/1.1\r\nHost: x\r\n{authorization}Expect: 100-continue\r\nContent-Length: 4\r\nConnection: close\r\n\r\n",
        field.path(server.port, "")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    timeout(LONG, stream.read_exact(&mut asked))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, seen) = answer.split_once("\r\n\r\n").unwrap();
    let seen: Value = serde_json::from_str(seen).unwrap();
    assert_eq!(seen["body"], "body", "{seen}");
    assert_eq!(header(&seen, "expect"), [""; 0], "{seen}");
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let field = Field::start().await;
    let (server, heard) = server::scripted(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n",
    )
    .await;
    let answer = field
        .raw(
            server.port,
            "POST {at}/ HTTP/1.1\r\nHost: x\r\n{auth}TE: trailers\r\nTrailer: x-up\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n2\r\nhi\r\n0\r\nx-up: 7\r\n\r\n",
        )
        .await;
    assert!(
        answer.ends_with("\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n"),
        "{answer}"
    );
    field
        .world
        .eventually("the request's trailer", async || {
            heard
                .texts()
                .concat()
                .ends_with("0\r\nx-up: 7\r\n\r\n")
                .then_some(())
        })
        .await;
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_passes_and_one_that_breaks_off_does_not_pass_for_whole() {
    let field = Field::start().await;
    let (server, _) = server::scripted("HTTP/1.0 200 OK\r\nServer: old\r\n\r\nto the end").await;
    let answer = field.get(server.port, "/").await;
    assert_eq!(answer.headers()["server"], "old");
    assert_eq!(answer.text().await.unwrap(), "to the end");

    // Closed with unread bytes, the connection is reset.
    let breaking = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nto the").await;
        let _ = stream.flush().await;
        stream.set_zero_linger().unwrap();
        // The bytes must have been read before the reset discards them.
        let mut byte = [0];
        let _ = stream.read(&mut byte).await;
    })
    .await;
    let request = field
        .request(Method::POST, breaking.port, "/")
        .body(reqwest::Body::wrap_stream(futures_util::stream::pending::<
            Result<Bytes, std::io::Error>,
        >()));
    let mut answer = timeout(LONG, request.send()).await.unwrap().unwrap();
    assert_eq!(
        timeout(LONG, answer.chunk()).await.unwrap().unwrap(),
        Some(Bytes::from_static(b"to the"))
    );
    // The sandbox is lost in the middle of the body.
    field.runtime.kill().await;
    assert!(timeout(LONG, answer.chunk()).await.unwrap().is_err());
}
