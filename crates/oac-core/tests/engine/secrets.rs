//! What Core's log may not hold, whatever a node sends or is sent.

use futures_util::SinkExt as _;
use oac_core::hub::{CallOutcome, Refusal};
use oac_testkit::log::Log;
use oac_wire::{CoreFrame, NodeFrame, frames::Response};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    calls,
    node::{self, Node, greet, health, receive, send},
    world::{self, On},
};

// inv: INV-P20, INV-P25
#[tokio::test]
async fn cores_log_repeats_no_value_of_a_frame_and_no_credential() {
    const MARKER: &str = "text_of_the_engine_at_var_lib";
    let log = Log::of_process("info,oac_core=trace,oac_store=trace,oac_peer=trace");
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    // A create delivers a link credential; its answer carries a code that no table holds.
    let create = calls::request(&core, &node, calls::create(calls::reference())).await;
    let (outcome, ()) = tokio::join!(core.core().hub.call(&core.core().owner, create), async {
        let Some(CoreFrame::Request(request)) = receive(&mut greeted.socket).await else {
            panic!("no request")
        };
        let response = Response {
            id: request.id,
            connection_id: greeted.welcome.connection_id,
            error_code: Some(MARKER.to_owned()),
            result: Ok(None),
        };
        send(&mut greeted.socket, &NodeFrame::Response(Box::new(response))).await;
    });
    assert!(
        matches!(
            outcome,
            CallOutcome::Unconfirmed
                | CallOutcome::Refused {
                    code: Refusal::Unconfirmed,
                    ..
                }
        ),
        "{outcome:?}"
    );
    // Frames that close, each with the text as a value, at every stage of reading.
    let good = node::heartbeat(&greeted, health(true)).encode().unwrap();
    let spoiled = [
        good.replace(
            r#""provider_ready":true"#,
            &format!(r#""provider_ready":"{MARKER}""#),
        ),
        good.replace(r#""type":"heartbeat""#, &format!(r#""type":"{MARKER}""#)),
        good.replace(
            r#""provider_ready":true"#,
            &format!(r#""provider_ready":false,"diagnostic":"/{MARKER}""#),
        ),
        MARKER.to_owned(),
    ];
    for text in spoiled {
        assert!(text.contains(MARKER), "{text}");
        greeted.socket.send(Message::text(text)).await.unwrap();
        assert_eq!(receive(&mut greeted.socket).await, None);
        greeted = loop {
            if let Ok(greeted) = greet(&core, &node.enrolled, &health(true)).await {
                break greeted;
            }
        };
    }
    let said = log.take();
    assert_eq!(said.matches("node connection closed").count(), 4, "{said}");
    for private in [
        MARKER,
        node.enrolled.credential.expose(),
        calls::LINK_CREDENTIAL,
        core.core_key.expose(),
        core.project_key.expose(),
    ] {
        let line = said.lines().find(|line| line.contains(private));
        assert_eq!(line, None);
    }
}
