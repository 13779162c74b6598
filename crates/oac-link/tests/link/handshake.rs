use futures_util::{SinkExt, StreamExt};
use oac_link::{CloseReason, HelloError, IntroduceError, LinkEnd, Opening, Refusal, Socket, introduce};
use tokio_tungstenite::tungstenite::Message;

use crate::pair::{end, hello, link, sockets, welcome};

fn nothing(_: &hyper::Request<hyper::body::Incoming>) -> hyper::Response<http_body_util::Full<bytes::Bytes>> {
    hyper::Response::default()
}

#[test]
fn a_hello_never_shows_its_credential() {
    let hello = hello();
    let shown = format!("{hello:?}");
    assert!(shown.contains("***"), "{shown}");
    assert!(!shown.contains("c0ffee"), "{shown}");
}

#[tokio::test]
async fn each_refusal_reaches_the_runtime_as_its_code() {
    for code in [
        Refusal::CredentialRejected,
        Refusal::Revoked,
        Refusal::VersionUnsupported,
        Refusal::Busy,
        Refusal::EpochChanged,
    ] {
        let (core, sandbox) = sockets().await;
        let said = hello();
        let mut opening = Opening::new(Socket::from_tungstenite(core));
        let (answer, ()) = tokio::join!(introduce(Socket::from_tungstenite(sandbox), &said), async {
            opening.hello().await.unwrap();
            opening.refuse(code).await;
        });
        match answer {
            Err(IntroduceError::Refused(heard)) => assert_eq!(heard, code),
            other => panic!("{code}: {:?}", other.err()),
        }
    }
}

async fn heard(text: &str) -> Result<oac_link::Hello, HelloError> {
    let (core, mut sandbox) = sockets().await;
    sandbox.send(Message::text(text)).await.unwrap();
    Opening::new(Socket::from_tungstenite(core)).hello().await
}

#[tokio::test]
async fn only_an_exact_hello_is_one() {
    let id = "11111111-1111-4111-8111-111111111111";
    let credential = "ab".repeat(32);
    let resource = format!(
        r#"{{"tenant_id":"{id}","environment_id":"{id}","kind":"allocation","id":"{id}","generation":1}}"#
    );
    let good = format!(
        r#"{{"version":1,"type":"hello","credential":"{credential}","resource":{resource},"runtime_version":"1","instance_id":"{id}"}}"#
    );
    heard(&good).await.unwrap();
    for (what, text) in [
        ("extra member", good.replacen('{', r#"{"x":1,"#, 1)),
        ("duplicate", good.replacen('{', r#"{"version":1,"#, 1)),
        ("missing", good.replace(r#""runtime_version":"1","#, "")),
        (
            "null",
            good.replace(r#""runtime_version":"1""#, r#""runtime_version":null"#),
        ),
        ("case", good.replace("runtime_version", "Runtime_version")),
        ("nested extra", good.replace(r#""kind""#, r#""x":1,"kind""#)),
        ("another type", good.replace(r#""hello""#, r#""welcome""#)),
        ("short credential", good.replace(&credential, &"ab".repeat(31))),
        (
            "upper case credential",
            good.replace(&credential, &"AB".repeat(32)),
        ),
        (
            "long version text",
            good.replace(r#":"1""#, &format!(r#":"{}""#, "v".repeat(65))),
        ),
        ("not JSON", "hello".to_owned()),
        (
            "too large",
            good.replace(r#":"1""#, &format!(r#":"{}""#, "v".repeat(8192))),
        ),
    ] {
        assert!(matches!(heard(&text).await, Err(HelloError::Malformed)), "{what}");
    }
    let newer = good.replacen("1", "2", 1).replacen('{', r#"{"more":[],"#, 1);
    assert!(matches!(heard(&newer).await, Err(HelloError::VersionUnsupported)));
}

#[tokio::test]
async fn nothing_but_a_welcome_opens_the_link_for_core() {
    for first in [
        Message::binary(vec![0; 12]),
        Message::text("{}"),
        Message::text(r#"{"version":1,"type":"welcome"}"#),
    ] {
        let (mut core, sandbox) = sockets().await;
        core.send(first.clone()).await.unwrap();
        let answer = introduce(Socket::from_tungstenite(sandbox), &hello()).await;
        assert!(matches!(answer, Err(IntroduceError::Malformed)), "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_or_its_answer_that_does_not_come_is_waited_for_10_s() {
    let (core, sandbox) = sockets().await;
    let start = tokio::time::Instant::now();
    let mut opening = Opening::new(Socket::from_tungstenite(core));
    assert!(matches!(opening.hello().await, Err(HelloError::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), 10);
    let answer = introduce(Socket::from_tungstenite(sandbox), &hello()).await;
    assert!(matches!(answer, Err(IntroduceError::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test]
async fn a_text_message_after_the_welcome_closes_the_link() {
    let (core, mut sandbox) = sockets().await;
    let mut opening = Opening::new(Socket::from_tungstenite(core));
    let said = serde_json::json!({
        "version": 1, "type": "hello", "credential": "ab".repeat(32), "resource": hello().resource,
        "runtime_version": "1", "instance_id": hello().instance_id,
    });
    sandbox.send(Message::text(said.to_string())).await.unwrap();
    opening.hello().await.unwrap();
    let (_client, driver) = opening.welcome(welcome()).await.unwrap();
    sandbox.next().await.unwrap().unwrap();
    sandbox.send(Message::text("more")).await.unwrap();
    let (end, ()) = tokio::join!(driver.run(), async {
        while let Some(Ok(_)) = sandbox.next().await {}
    });
    assert!(matches!(end, LinkEnd::Violation(_)), "{end}");
}

#[tokio::test]
async fn a_close_reason_reaches_the_other_end_and_no_stream_opens_after_it() {
    for reason in [
        CloseReason::Superseded,
        CloseReason::Revoked,
        CloseReason::Parked,
        CloseReason::EpochChanged,
    ] {
        let mut link = link(nothing).await;
        link.client.close(reason);
        assert!(!link.client.is_open());
        assert!(link.client.status().await.is_err());
        match end(&mut link.sandbox_end).await {
            LinkEnd::ClosedByPeer(heard) => assert_eq!(heard, Some(reason)),
            other => panic!("{reason}: {other}"),
        }
        link.client.closed().await;
        assert!(matches!(end(&mut link.core_end).await, LinkEnd::ClosedHere(r) if r == reason));
    }
}
