//! Servers that lie, flood and stall, and clients that smuggle: each harms its own request alone.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{Field, LONG, server};

/// The answer is Core's own 502.
async fn failed(answer: reqwest::Response, what: &str) {
    assert_eq!(answer.status(), 502, "{what}");
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(body["error"]["code"], "sandbox_port_failed", "{what}");
    assert_eq!(body["error"]["type"], "server_error", "{what}");
    assert!(body["error"].get("details").is_none(), "{what}");
}

#[tokio::test]
async fn a_malformed_head_is_502_with_the_envelope() {
    let field = Field::start().await;
    for head in [
        "",
        "\r\n\r\n",
        "nonsense",
        "<html>no head</html>\r\n\r\n",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\0: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: cut",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}",
    ] {
        let (server, _) = server::scripted(head).await;
        failed(field.get(server.port, "/").await, head).await;
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1000));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(160 << 10));
    for (what, head) in [("many headers", many), ("a long header", long)] {
        let (server, _) = server::scripted(head).await;
        failed(field.get(server.port, "/").await, what).await;
    }
    // The Session's sandbox is as usable as before.
    let mirror = server::mirror().await;
    assert_eq!(field.get(mirror.port, "/").await.status(), 200);
}

#[tokio::test]
async fn a_head_without_end_and_informational_answers_without_number_are_cut_off() {
    let field = Field::start().await;
    let floods: [(&str, &[u8], &[u8]); 4] = [
        ("one header", b"HTTP/1.1 200 OK\r\nX: ", b"yyyyyyyyyyyyyyyy"),
        ("headers", b"HTTP/1.1 200 OK\r\n", b"a: bbbbbbbbbbbb\r\n"),
        (
            "informational answers",
            b"",
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        ),
        ("empty lines", b"", b"\r\n\r\n\r\n\r\n"),
    ];
    for (what, first, more) in floods {
        let taken = Arc::new(AtomicU64::new(0));
        let count = taken.clone();
        let piece: Arc<[u8]> = more.repeat(65_536 / more.len()).into();
        let server = server::each(move |mut stream| {
            let (count, piece) = (count.clone(), piece.clone());
            async move {
                server::read_head(&mut stream, |_| {}).await;
                let mut wrote = stream.write_all(first).await;
                // A gigabyte, if nobody minds.
                while wrote.is_ok() && count.fetch_add(piece.len() as u64, Ordering::Relaxed) < 1 << 30 {
                    wrote = stream.write_all(&piece).await;
                }
            }
        })
        .await;
        failed(field.get(server.port, "/").await, what).await;
        field.until_free(server.port).await;
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken < 64 << 20, "{what}: {taken} bytes were taken");
    }
    // A hundred of them, as a slow server may send, are none too many.
    let hints = "HTTP/1.1 102 Processing\r\n\r\n".repeat(100);
    let (server, _) =
        server::scripted(format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).await;
    let answer = field.get(server.port, "/").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "ok");
    let hints = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
    let (server, _) = server::scripted(format!("{hints}HTTP/1.1 200 OK\r\n\r\n")).await;
    failed(field.get(server.port, "/").await, "a hundred thousand").await;
}

#[tokio::test]
async fn an_answer_is_framed_anew_and_what_follows_it_reaches_nobody() {
    let field = Field::start().await;
    let second = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled";
    let whole = |head: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n");
    for (answer, body) in [
        (whole("Content-Length: 2\r\n") + "ok" + second, Some("ok")),
        (
            whole("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n") + "4\r\nfour\r\n0\r\n\r\n" + second,
            Some("four"),
        ),
        (
            whole("Transfer-Encoding: chunked\r\nContent-Length: 9\r\n") + "2\r\nok\r\n0\r\n\r\n" + second,
            Some("ok"),
        ),
        (whole("Transfer-Encoding: chunked\r\n") + "zz\r\nbad", None),
        (whole("Transfer-Encoding: chunked\r\n") + "2\r\nokX", None),
        (
            whole("Transfer-Encoding: chunked\r\n") + "ffffffffffffffffff\r\n",
            None,
        ),
        (whole("Transfer-Encoding: chunked\r\n") + "5\r\ncut", None),
        (whole("Content-Length: 5\r\n") + "cut", None),
    ] {
        let (server, _) = server::scripted(answer.clone()).await;
        // One connection for all, so that what followed an answer would be met by the next.
        let got = timeout(LONG, field.request(Method::GET, server.port, "/").send())
            .await
            .unwrap();
        let got = match got {
            Ok(got) => got,
            // Broken off before its head had left.
            Err(_) => {
                assert!(body.is_none(), "{answer}");
                continue;
            }
        };
        assert_eq!(got.status(), 200, "{answer}");
        let framings = ["content-length", "transfer-encoding"].map(|name| got.headers().contains_key(name));
        assert_ne!(framings, [true, true], "{answer}");
        match body {
            Some(body) => assert_eq!(
                timeout(LONG, got.text()).await.unwrap().unwrap(),
                body,
                "{answer}"
            ),
            None => assert!(timeout(LONG, got.bytes()).await.unwrap().is_err(), "{answer}"),
        }
    }
}

#[tokio::test]
async fn a_request_that_could_be_read_two_ways_is_refused_or_passed_on_in_one() {
    let field = Field::start().await;
    let hidden = "GET /admin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = "POST {at}/ HTTP/1.1\r\nHost: x\r\n{auth}";
    let length = hidden.len();
    for (what, request) in [
        (
            "both lengths, chunks first",
            format!("{head}Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "both lengths, length first",
            format!("{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "two lengths",
            format!("{head}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        ),
        (
            "a folded header",
            format!("{head}X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        ),
        (
            "a space before the colon",
            format!("{head}Transfer-Encoding : chunked\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        ),
        (
            "another last coding",
            format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "an unknown coding",
            format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "a bad chunk",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n0x\r\n\r\n{hidden}"),
        ),
        (
            "a chunk without its end",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\naa\r\n0\r\n\r\n{hidden}"),
        ),
        ("bare line feeds", format!("{head}Content-Length: 0\n\n{hidden}")),
        (
            "a line break in a value",
            format!("{head}X: a\rTransfer-Encoding: chunked\r\n\r\n{hidden}"),
        ),
        (
            "a length named as a connection header",
            format!("{head}Connection: content-length\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        ),
    ] {
        let (server, heard) = server::scripted("HTTP/1.1 204 No Content\r\n\r\n").await;
        let (mut stream, authorization) = field.connect().await;
        let text = request
            .replace("{auth}", &authorization)
            .replace("{at}", &field.path(server.port, ""));
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
        field.until_free(server.port).await;
        // A connection that nothing was sent on is none that could be misread.
        for heard in heard.texts().into_iter().filter(|heard| !heard.is_empty()) {
            assert!(heard.starts_with("POST / HTTP/1.1\r\n"), "{what}: {heard}");
            let (head, body) = heard.split_once("\r\n\r\n").unwrap();
            let head = head.to_lowercase();
            let stated = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map(|length| length.parse::<usize>().unwrap());
            let chunked = head.contains("transfer-encoding: chunked");
            // Exactly one framing, which covers exactly what was sent.
            assert!(!(chunked && stated.is_some()), "{what}: {heard}");
            match stated {
                Some(length) => assert!(body.len() <= length, "{what}: {heard}"),
                None if chunked => assert!(!body.contains("GET /admin"), "{what}: {heard}"),
                None => assert_eq!(body, "", "{what}: {heard}"),
            }
        }
    }
}

#[tokio::test]
async fn connect_is_refused_before_anything_is_sent_to_the_port() {
    let field = Field::start().await;
    let (server, heard) = server::scripted("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await;
    let (mut stream, authorization) = field.connect().await;
    let request = format!(
        "CONNECT {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n",
        field.path(server.port, "/x")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", answer.escape_ascii());
    assert_eq!(heard.texts(), [""; 0]);
}

#[tokio::test]
async fn a_server_that_floods_or_stalls_slows_nobody_else() {
    let field = Field::start().await;
    let stalling = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        std::future::pending::<()>().await;
    })
    .await;
    let flooding = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[0; 65_536]).await.is_ok() {}
    })
    .await;
    // Its reader does not read.
    let flood = field.get(flooding.port, "/").await;
    let stalled = {
        let (mut stream, authorization) = field.connect().await;
        let head = format!(
            "POST {}/ HTTP/1.1\r\nHost: x\r\n{authorization}Content-Length: 100000000\r\n\r\n",
            field.path(stalling.port, "")
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // As much as there is room for on the way.
        while let Ok(Ok(())) = timeout(
            std::time::Duration::from_millis(300),
            stream.write_all(&[0; 65_536]),
        )
        .await
        {}
        stream
    };
    let mirror = server::mirror().await;
    for n in 0..5 {
        assert_eq!(field.get(mirror.port, &format!("/{n}")).await.status(), 200);
        field.command_works().await;
    }
    drop((flood, stalled));
    field.until_free(flooding.port).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_ends_the_servers_connection() {
    let field = Field::start().await;
    let server = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        // Answers nothing, and ends only when told to.
        let mut byte = [0];
        while let Ok(1..) = stream.read(&mut byte).await {}
    })
    .await;
    for method in [Method::GET, Method::POST] {
        let sent = field.request(method, server.port, "/").body("x").send();
        let under_way = async {
            field
                .world
                .eventually("a connection", async || {
                    (super::connections(server.port) > 0).then_some(())
                })
                .await;
        };
        tokio::select! {
            answer = sent => panic!("{answer:?}"),
            () = under_way => {}
        }
        field.until_free(server.port).await;
    }
}
