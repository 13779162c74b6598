use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Response, StatusCode};
use oac_link::{
    CallError, CloseReason, LinkEnd, LinkError, OutputError, OutputItem, StopAccepting, StreamClass, empty,
    full, limits,
    service::{Exit, OutputStreamName, Run},
};
use oac_model::TurnId;

use crate::pair::{end, link};

fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

#[tokio::test]
async fn one_stream_carries_one_exchange_and_names_the_host() {
    let link = link(|request| {
        assert_eq!(request.headers()["host"], "runtime");
        assert!(request.headers().get("authorization").is_none());
        answer(200, request.uri().path().to_owned())
    })
    .await;
    for path in ["/v1/status", "/v1/turns/x"] {
        let request = http::Request::get(path).body(empty()).unwrap();
        let response = link.client.request(StreamClass::Control, request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, path);
    }
}

#[tokio::test]
async fn bodies_beyond_every_window_pass_whole_in_both_directions() {
    use std::convert::Infallible;
    let (core, sandbox) = crate::pair::sockets().await;
    let said = crate::pair::hello();
    let mut opening = oac_link::Opening::new(oac_link::Socket::from_tungstenite(core));
    let (sandbox, (client, driver)) = tokio::join!(
        oac_link::introduce(oac_link::Socket::from_tungstenite(sandbox), &said),
        async {
            opening.hello().await.unwrap();
            opening.welcome(crate::pair::welcome()).await.unwrap()
        }
    );
    let (_ask, asked) = tokio::sync::mpsc::channel(1);
    let echo = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let bytes: Bytes = (0..20 << 20)
        .map(|n: u32| (n % 251) as u8)
        .collect::<Vec<_>>()
        .into();
    let exchange = async {
        let request = http::Request::put("/echo").body(full(bytes.clone())).unwrap();
        let response = client.request(StreamClass::Bulk, request).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    };
    tokio::select! {
        back = exchange => assert!(back == bytes),
        end = driver.run() => panic!("{end}"),
        end = sandbox.unwrap().1.serve(echo, asked) => panic!("{end}"),
    }
}

#[tokio::test]
async fn files_and_ports_leave_16_of_64_streams_to_control_and_output() {
    let link = link(|_| answer(200, "kept open by its reader")).await;
    let get = || http::Request::get("/").body(empty()).unwrap();
    let mut open = Vec::new();
    for _ in 0..limits::STREAMS - limits::RESERVED_STREAMS {
        open.push(link.client.request(StreamClass::Bulk, get()).await.unwrap());
    }
    let refused = link.client.request(StreamClass::Bulk, get()).await;
    assert!(matches!(refused, Err(LinkError::TooManyStreams)));
    for class in [StreamClass::Control, StreamClass::Output].repeat(limits::RESERVED_STREAMS / 2) {
        open.push(link.client.request(class, get()).await.unwrap());
    }
    let refused = link.client.request(StreamClass::Control, get()).await;
    assert!(matches!(refused, Err(LinkError::TooManyStreams)));
    open.clear();
    link.client.request(StreamClass::Bulk, get()).await.unwrap();
}

#[tokio::test]
async fn a_stopping_runtime_takes_no_new_stream_and_says_why_it_leaves() {
    let mut link = link(|_| answer(200, "")).await;
    link.client
        .request(
            StreamClass::Control,
            http::Request::get("/").body(empty()).unwrap(),
        )
        .await
        .unwrap();
    link.ask.send(StopAccepting::NewStreams).await.unwrap();
    link.ask.reserve().await.unwrap();
    assert!(link.client.status().await.is_err());
    link.ask
        .send(StopAccepting::Everything(CloseReason::GoingAway))
        .await
        .unwrap();
    assert!(matches!(
        end(&mut link.core_end).await,
        LinkEnd::ClosedByPeer(Some(CloseReason::GoingAway))
    ));
}

fn lines(offset: u64) -> String {
    let all = [
        format!(r#"{{"offset":{offset},"stream":"stdout","data":"aGVsbG8="}}"#),
        format!(r#"{{"offset":{},"stream":"stderr","data":"IQ=="}}"#, offset + 5),
        format!(
            r#"{{"offset":{},"exit":{{"code":0,"signal":null,"timed_out":false,"canceled":false,"error":null}}}}"#,
            offset + 6
        ),
    ];
    all.map(|line| line + "\n").concat()
}

#[tokio::test]
async fn output_is_read_from_the_offset_asked_for_to_its_end() {
    let link = link(|request| {
        assert_eq!(request.uri().query(), Some("offset=7"));
        answer(200, lines(7))
    })
    .await;
    let mut output = link.client.output(TurnId::random(), 7).await.unwrap();
    let items = output.next_batch(usize::MAX).await.unwrap();
    assert_eq!(
        items,
        [
            OutputItem::Data {
                offset: 7,
                stream: OutputStreamName::Stdout,
                data: "hello".into()
            },
            OutputItem::Data {
                offset: 12,
                stream: OutputStreamName::Stderr,
                data: "!".into()
            },
            OutputItem::End {
                offset: 13,
                exit: Exit {
                    code: Some(0).into(),
                    signal: None.into(),
                    timed_out: false,
                    canceled: false,
                    error: None.into()
                }
            },
        ]
    );
    assert_eq!(output.next().await.unwrap(), None);
}

#[tokio::test]
async fn output_with_a_gap_a_repetition_or_a_torn_end_is_refused() {
    for (what, body) in [
        ("another offset", lines(1)),
        (
            "repetition",
            format!(
                "{}{}",
                lines(0).lines().next().unwrap().to_owned() + "\n",
                lines(0)
            ),
        ),
        (
            "record and exit in one",
            lines(0).replace(r#""exit""#, r#""data":"IQ==","exit""#),
        ),
        ("torn end", lines(0)[..30].to_owned()),
        ("no exit", lines(0).lines().next().unwrap().to_owned() + "\n"),
    ] {
        let link = link(move |_| answer(200, body.clone())).await;
        let mut output = link.client.output(TurnId::random(), 0).await.unwrap();
        let failed = loop {
            match output.next().await {
                Ok(Some(OutputItem::Data { .. })) => {}
                Ok(other) => panic!("{what}: {other:?}"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(failed, CallError::Malformed | CallError::Link(_)),
            "{what}: {failed}"
        );
    }
}

#[tokio::test]
async fn error_answers_are_told_apart_by_code() {
    let link = link(|_| answer(416, r#"{"code":"offset_out_of_range","message":"m"}"#)).await;
    let refused = link.client.output(TurnId::random(), 0).await.unwrap_err();
    assert!(matches!(refused, OutputError::OutOfRange));
    let refused = link.client.status().await.unwrap_err();
    assert!(matches!(refused, CallError::Answered { code, .. } if code == "offset_out_of_range"));
}

#[test]
fn a_runs_digest_covers_every_member_in_a_fixed_order() {
    let run = Run {
        args: vec!["sh".into(), "-c".into()],
        cwd: "/workspace".into(),
        env: [("B".to_owned(), "2".to_owned()), ("A".to_owned(), "1".to_owned())].into(),
        stdin: b"hi".to_vec().into(),
        timeout_ms: 5,
    };
    let text =
        r#"{"args":["sh","-c"],"cwd":"/workspace","env":{"A":"1","B":"2"},"stdin":"aGk=","timeout_ms":5}"#;
    assert_eq!(run.digest(), oac_model::Digest::of(text));
}
