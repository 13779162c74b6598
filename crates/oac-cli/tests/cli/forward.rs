//! `oac session port-forward` against a scripted Core.

use axum::{
    Router,
    body::Body,
    extract::{
        Request,
        ws::{Message, WebSocketUpgrade},
    },
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use futures_util::{SinkExt, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr},
};

use crate::{
    program::Oac,
    script::{SESSION, Script, answer, session, session_path, usual},
};

/// A running forward of port 8000.
struct Running {
    child: Child,
    local: String,
    told: Lines<BufReader<ChildStderr>>,
    _oac: Oac,
}

impl Running {
    async fn start(core: &str) -> Self {
        let oac = Oac::of(core);
        let mut child = oac
            .command(&["--json", "session", "port-forward", SESSION, "0:8000"])
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("a line when it listens");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["remote"], 8000);
        Self {
            told: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
            local: format!("127.0.0.1:{}", line["local"]),
            _oac: oac,
        }
    }

    /// One request as it is written; the whole answer.
    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.local).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn stop(mut self) {
        let pid = Pid::from_raw(self.child.id().unwrap() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn a_request_reaches_the_port_with_the_key_and_its_answer_comes_back() {
    let script = Script::start(|asked, _| async move {
        if let Some(usual) = usual(&asked) {
            return usual;
        }
        Response::builder()
            .status(201)
            .header("x-sandbox", "yes")
            .header(header::LOCATION, session_path("/ports/8000/next"))
            .body(Body::from("made"))
            .unwrap()
    })
    .await;
    let forward = Running::start(&script.url).await;
    let answer = forward
        .raw(
            &(request(
                "POST /a//b?c=%20d",
                "Host: localhost:1\r\nContent-Length: 4\r\nAuthorization: Basic mine\r\nCookie: a=b\r\n",
            ) + "body"),
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 201") && answer.ends_with("made"),
        "{answer}"
    );
    assert!(
        answer.contains("x-sandbox: yes") && answer.contains("location: /next"),
        "{answer}"
    );
    let asked = script.asked();
    let asked = asked.last().unwrap();
    assert_eq!(asked.target, session_path("/ports/8000/a//b?c=%20d"));
    assert_eq!(
        (asked.method.clone(), &*asked.body, asked.header("cookie")),
        (Method::POST, &b"body"[..], Some("a=b"))
    );
    assert_eq!(asked.header("authorization"), Some("Bearer oac_key_0"));
    forward.stop().await;
}

#[tokio::test]
async fn a_request_made_to_another_host_or_out_of_the_port_goes_nowhere() {
    let script = Script::start(|asked, _| async move {
        usual(&asked).unwrap_or_else(|| answer(200, session(serde_json::json!({}))))
    })
    .await;
    let mut forward = Running::start(&script.url).await;
    let before = script.asked().len();
    for (line, headers, status) in [
        ("GET /", "Host: evil.example\r\n", "421"),
        ("GET /", "Host: 127.0.0.1.evil.example:80\r\n", "421"),
        ("GET /", "", "421"),
        ("GET /", "Host: localhost\r\nHost: evil.example\r\n", "421"),
        ("GET http://evil.example/", "Host: localhost\r\n", "421"),
        ("CONNECT evil.example:80", "Host: localhost\r\n", "421"),
        ("GET /../../../sessions", "Host: localhost\r\n", "400"),
        ("GET /%2e%2e/%2E%2e/x", "Host: localhost\r\n", "400"),
        ("GET /a\\..\\..\\x", "Host: localhost\r\n", "400"),
    ] {
        let answer = forward.raw(&request(line, headers)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{line}: {answer}"
        );
    }
    assert_eq!(script.asked().len(), before);
    // However many, one line.
    let told = forward.told.next_line().await.unwrap().unwrap();
    assert!(told.contains("localhost"), "{told}");
    forward.stop().await;
}

#[tokio::test]
async fn a_websocket_passes_both_ways() {
    async fn echo(upgrade: WebSocketUpgrade) -> Response {
        upgrade.protocols(["chat"]).on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                let closing = matches!(message, Message::Close(_));
                if closing || socket.send(message).await.is_err() {
                    return;
                }
            }
        })
    }
    let app = Router::new()
        .route(&session_path("/ports/8000/ws"), any(echo))
        .route(
            &session_path(""),
            get(|| async { answer(200, session(serde_json::json!({}))) }),
        )
        .fallback(|_: Request| async { StatusCode::NOT_FOUND.into_response() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await.unwrap() });
    let forward = Running::start(&url).await;
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/ws", forward.local))
        .await
        .unwrap();
    for size in [1, 70_000] {
        let text = "x".repeat(size);
        socket.send(text.clone().into()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap(), text);
    }
    drop(socket);
    forward.stop().await;
}

#[tokio::test]
async fn a_problem_is_told_in_one_line_and_the_forward_goes_on() {
    let script = Script::start(|asked, before| async move {
        match usual(&asked) {
            Some(usual) => usual,
            None if before < 2 => crate::script::refuse(502, "sandbox_unreachable"),
            None => Response::new(Body::from("up")),
        }
    })
    .await;
    let mut forward = Running::start(&script.url).await;
    let get = request("GET /", "Host: 127.0.0.1\r\n");
    for status in ["502", "502", "200"] {
        let answer = forward.raw(&get).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    let told = forward.told.next_line().await.unwrap().unwrap();
    assert!(told.contains("listening on that port"), "{told}");
    forward.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_said() {
    let script = Script::start(|asked, _| async move { usual(&asked).unwrap() }).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = format!("{}:80", taken.local_addr().unwrap().port());
    let said = Oac::of(&script.url)
        .run(&["session", "port-forward", SESSION, &pair])
        .await
        .expect(1);
    assert!(said.err.contains("cannot listen"), "{said:?}");
}
