use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use oac_model::{DiagnosticCode, OwnerEpoch};
use oac_wire::frames::{Arguments, NodeFrame};

use crate::{
    installation::{Installation, connected, dialed},
    provider::{PRIVATE_TEXT, Reply, scripted},
    scripted_core::{ScriptedCore, envelope, unauthorized},
    shapes::{command, output, reference, response, running},
};

// req: P-012, P-014, P-019, P-020, P-031, P-033
// inv: INV-P25
#[tokio::test]
async fn the_node_dials_its_core_with_its_credential_in_the_header_alone_and_says_who_it_is() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, _calls) = scripted();
    let node = installation.start(provider, 8);
    let (_link, hello) = core.greet().await;
    let stored = installation.stored();
    let dials = core.seen("/connect");
    let secret = stored.credential.expose();
    assert_eq!(
        dials[0].uri.to_string(),
        format!("/api/v1/sandbox-node/connect?node_id={}", stored.identity.node_id)
    );
    assert_eq!(dials[0].headers["authorization"], format!("Bearer {secret}"));
    assert!(!dials[0].headers.contains_key("origin"));
    for seen in core.script.seen.lock().iter() {
        assert!(!seen.uri.to_string().contains(secret));
    }
    assert_eq!(hello.identity, stored.identity);
    assert_eq!(
        (hello.identity.max_active, hello.identity.max_retained),
        (3, 4),
        "capacity as edited at Core"
    );
    assert!(hello.health.provider_ready);
    assert_eq!(
        hello.health.cpu_utilization.0, None,
        "a first report has no interval"
    );
    assert!(hello.health.total_memory_bytes.0.unwrap() > 0);
    assert!(hello.health.available_disk_bytes.0.is_some());
    assert!(hello.health.boot_id.0.is_some());
    assert_eq!(
        (hello.health.execution_class.0, hello.health.checkpoint_store.0),
        (None, None)
    );
    node.stop().await.unwrap();
}

// req: P-027, P-034, P-036, G-255
// inv: INV-P20, INV-N35
#[tokio::test]
async fn every_heartbeat_follows_a_probe_of_its_own_and_carries_its_code_alone() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted();
    let node = installation.start(provider.clone(), 8);
    let (mut link, _) = core.greet().await;
    // What comes after the welcome was taken is counted from there.
    link.call(0, Arguments::Info).await;
    calls
        .recv()
        .await
        .unwrap()
        .reply(Reply::Info(running(reference(0))));
    response(link.next().await);
    let before = provider.probes.load(Ordering::Relaxed);
    *provider.probe.lock() = Err(DiagnosticCode::RuntimeImageUnavailable);
    node.skip(10);
    let NodeFrame::Heartbeat(heartbeat) = link.next().await else {
        panic!("a heartbeat is due");
    };
    assert_eq!(provider.probes.load(Ordering::Relaxed), before + 1);
    assert_eq!(
        (heartbeat.connection_id, heartbeat.owner_epoch),
        (link.connection_id, link.owner_epoch)
    );
    assert!(!heartbeat.health.provider_ready);
    assert_eq!(
        heartbeat.health.diagnostic.as_ref().unwrap().code(),
        Some(DiagnosticCode::RuntimeImageUnavailable)
    );
    let text = NodeFrame::Heartbeat(heartbeat).encode().unwrap();
    assert!(!text.contains(PRIVATE_TEXT));
    node.stop().await.unwrap();
}

// req: P-026
// inv: INV-P6
#[tokio::test]
async fn the_owner_epoch_is_durable_before_the_first_request_runs() {
    let (_core, installation, mut calls, node, mut link) = dialed().await;
    link.owner_epoch = OwnerEpoch::try_from(41).unwrap();
    // Welcome and request leave together: the node may hold both before it has stored anything.
    let (_, request) = link.request(0, 60_000, Arguments::Info);
    link.welcome().await;
    link.send(request).await;
    let called = calls.recv().await.unwrap();
    assert_eq!(installation.stored().owner_epoch, 41);
    called.reply(Reply::Info(running(reference(0))));
    assert_eq!(response(link.next().await).error_code, None);
    node.kill().await;
    assert_eq!(installation.stored().owner_epoch, 41);
}

// req: P-026
#[tokio::test]
async fn a_lower_owner_epoch_is_refused_and_the_identity_confirmed_before_the_next_dial() {
    let (mut core, installation, _calls, node, mut link) = dialed().await;
    link.owner_epoch = OwnerEpoch::try_from(5).unwrap();
    link.welcome().await;
    drop(link);
    let mut link = core.accept().await;
    link.hello().await;
    let confirmed = core.seen("/identity").len();
    link.owner_epoch = OwnerEpoch::try_from(4).unwrap();
    link.welcome().await;
    link.closed().await;
    core.accept().await;
    assert_eq!(core.seen("/identity").len(), confirmed + 1);
    assert_eq!(installation.stored().owner_epoch, 5);
    node.stop().await.unwrap();
}

// req: P-003, P-011
// inv: INV-P1
#[tokio::test]
async fn a_bad_greeting_closes_and_the_node_dials_again() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, _calls) = scripted();
    let node = installation.start(provider, 8);
    let padded = |link: &crate::scripted_core::Link| {
        // Valid JSON with white space, but over the 32 KiB a node reads before its welcome.
        format!(
            r#"{{"version":1,"type":"welcome","connection_id":"{}","owner_epoch":1{}}}"#,
            link.connection_id,
            " ".repeat(33 * 1024)
        )
    };
    for case in 0..4 {
        let mut link = core.accept().await;
        link.hello().await;
        match case {
            0 => link.send("{}".into()).await,
            1 => {
                let text = padded(&link);
                link.send(text).await;
            }
            2 => {
                let binary = axum::extract::ws::Message::binary(b"{}".to_vec());
                link.socket.send(binary).await.unwrap();
            }
            _ => {
                let (_, request) = link.request(0, 1_000, Arguments::Info);
                link.send(request).await;
            }
        }
        link.closed().await;
    }
    core.greet().await;
    node.stop().await.unwrap();
}

// req: P-016
// inv: INV-P22, INV-N36
#[tokio::test]
async fn a_401_at_the_upgrade_ends_the_node_only_when_get_identity_confirms_it() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, _calls) = scripted();
    *core.script.connect.lock() = Some((StatusCode::UNAUTHORIZED, "a proxy wants a password".into()));
    let node = installation.start(provider.clone(), 8);
    // The proxy's 401 is refuted by Core, and the node goes on.
    core.until_seen("/connect", 2).await;
    assert!(core.seen("/identity").len() >= 2);
    *core.script.connect.lock() = None;
    let (link, _) = core.greet().await;
    // Removed at Core: both answer 401 now.
    *core.script.identity.lock() = Box::new(|_| unauthorized());
    *core.script.connect.lock() = Some(unauthorized());
    drop(link);
    let dials = core.seen("/connect").len();
    let error = node.ended().await.unwrap_err();
    assert!(error.is_unauthorized(), "{error}");
    assert_eq!(core.seen("/connect").len(), dials + 1, "it never dials again");
}

// req: P-017
// inv: INV-P22
#[tokio::test]
async fn every_other_answer_is_retried_and_no_redirect_is_followed() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, _calls) = scripted();
    let node = installation.start(provider, 8);
    let answers = [
        (StatusCode::FORBIDDEN, "a proxy".to_owned()),
        (StatusCode::CONFLICT, envelope("conflict")),
        (StatusCode::FOUND, String::new()),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        *core.script.connect.lock() = Some(answer);
        let before = core.seen("/connect").len();
        core.until_seen("/connect", before + 1).await;
        assert!(core.seen("/elsewhere").is_empty(), "answer {index}");
    }
    *core.script.connect.lock() = None;
    core.greet().await;
    node.stop().await.unwrap();
}

// req: P-050
#[tokio::test]
async fn a_violation_closes_and_the_process_goes_on_after_confirming_its_identity() {
    let (mut core, _installation, mut calls, node, mut link) = connected().await;
    let confirmed = core.seen("/identity").len();
    link.sequence = 7;
    link.call(0, Arguments::Kill).await;
    link.closed().await;
    let (mut link, _) = core.greet().await;
    assert_eq!(core.seen("/identity").len(), confirmed + 1);
    link.call(0, Arguments::Info).await;
    let called = calls.recv().await.unwrap();
    assert_eq!(
        called.operation,
        oac_wire::shapes::Operation::Info,
        "the request out of sequence reached no provider"
    );
    node.kill().await;
}

#[tokio::test]
async fn a_request_of_fifty_mebibytes_passes_right_after_the_welcome() {
    let (_core, _installation, mut calls, node, mut link) = dialed().await;
    let stdin = vec![b'x'; 50 * 1024 * 1024];
    let (_, request) = link.request(0, 100_000, command(Some(stdin)));
    link.welcome().await;
    let (_, called) = tokio::join!(link.send(request), calls.recv());
    let called = called.unwrap();
    assert_eq!(called.stdin, 50 * 1024 * 1024);
    called.reply(Reply::Command(output(vec![0xff; 1024 * 1024])));
    assert_eq!(response(link.next().await).error_code, None);
    node.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_closes_the_connection_and_waits_for_what_runs() {
    let (_core, installation, mut calls, node, mut link) = connected().await;
    link.call(0, Arguments::Kill).await;
    let called = calls.recv().await.unwrap();
    let (stopped, ()) = tokio::join!(node.stop(), async {
        link.closed().await;
        called.reply(Reply::Nothing);
    });
    stopped.unwrap();
    // The lock is free again: nothing of the node is left.
    let (provider, _calls) = scripted();
    installation.start(provider, 8).kill().await;
}
