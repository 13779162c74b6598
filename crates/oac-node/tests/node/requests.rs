use oac_model::DiagnosticCode;
use oac_provider::{Cause, Failure};
use oac_wire::{
    frames::{Arguments, NodeFrame, ResponseResult},
    shapes::Operation,
};

use crate::{
    installation::{Installation, connected},
    provider::{PRIVATE_TEXT, Reply, scripted},
    scripted_core::ScriptedCore,
    shapes::{command, create, output, reference, response, running},
};

// req: P-038, P-043, P-045, P-059, P-060, P-061, P-067
// inv: INV-P8, INV-P19, INV-P20, INV-N35
#[tokio::test]
async fn each_request_gets_one_answer_with_its_result_or_a_code_and_no_text() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let here = reference(0);
    let secret = || Cause::new(PRIVATE_TEXT);
    let info = Some(ResponseResult::Info(running(here)));
    type Row = (
        Arguments,
        Operation,
        Reply,
        Option<&'static str>,
        Option<ResponseResult>,
    );
    let rows: Vec<Row> = vec![
        (
            create(here),
            Operation::Create,
            Reply::Info(running(here)),
            None,
            info.clone(),
        ),
        (
            Arguments::Info,
            Operation::Info,
            Reply::Info(running(here)),
            None,
            info.clone(),
        ),
        (
            Arguments::Renew,
            Operation::Renew,
            Reply::Info(running(here)),
            None,
            info.clone(),
        ),
        (Arguments::Kill, Operation::Kill, Reply::Nothing, None, None),
        (
            command(None),
            Operation::Command,
            Reply::Command(output(vec![0xff, 0])),
            None,
            Some(ResponseResult::Command(output(vec![0xff, 0]))),
        ),
        (
            create(here),
            Operation::Create,
            Reply::Failed(Failure::Invalid(secret()), Some(running(here))),
            Some("invalid"),
            info,
        ),
        (
            create(here),
            Operation::Create,
            Reply::Failed(Failure::Exists(secret()), Some(running(reference(1)))),
            Some("exists"),
            None,
        ),
        (
            Arguments::Kill,
            Operation::Kill,
            Reply::Failed(Failure::Ownership(secret()), None),
            Some("ownership"),
            None,
        ),
        (
            Arguments::Info,
            Operation::Info,
            Reply::Failed(Failure::NotFound, None),
            Some("not_found"),
            None,
        ),
        (
            command(None),
            Operation::Command,
            Reply::Failed(Failure::CommandUnconfirmed(secret()), None),
            Some("command_unconfirmed"),
            None,
        ),
        (
            Arguments::Info,
            Operation::Info,
            Reply::Failed(Failure::Unconfirmed(secret()), None),
            Some("unconfirmed"),
            None,
        ),
    ];
    for (arguments, operation, reply, code, result) in rows {
        let id = link.call(0, arguments).await;
        let called = calls.recv().await.unwrap();
        assert_eq!((called.operation, called.reference), (operation, here));
        called.reply(reply);
        let answer = response(link.next().await);
        let text = NodeFrame::Response(Box::new(answer.clone())).encode().unwrap();
        assert!(!text.contains("secret") && !text.contains("/var/lib"), "{text}");
        assert_eq!((answer.id, answer.connection_id), (id, link.connection_id));
        assert_eq!(answer.error_code.as_deref(), code, "{operation:?}");
        assert_eq!(answer.result, Ok(result), "{operation:?}");
    }
    node.stop().await.unwrap();
}

// inv: INV-N24
#[tokio::test]
async fn one_allocation_runs_in_order_and_the_others_do_not_wait_for_it() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted();
    let node = installation.start(provider.clone(), 2);
    let (mut link, _) = core.greet().await;
    link.call(0, create(reference(0))).await;
    let first = calls.recv().await.unwrap();
    link.call(0, Arguments::Kill).await;
    link.call(1, Arguments::Info).await;
    let other = calls.recv().await.unwrap();
    assert_eq!(
        other.reference,
        reference(1),
        "the other allocation passes the one that waits"
    );
    other.reply(Reply::Info(running(reference(1))));
    response(link.next().await);
    // The create is answered, but its native work has not ended: the kill still waits.
    provider.busy.send_replace(true);
    first.reply(Reply::Info(running(reference(0))));
    response(link.next().await);
    link.call(2, Arguments::Info).await;
    let third = calls.recv().await.unwrap();
    assert_eq!(third.reference, reference(2), "the kill has not started");
    third.reply(Reply::Info(running(reference(2))));
    response(link.next().await);
    provider.busy.send_replace(false);
    let kill = calls.recv().await.unwrap();
    assert_eq!((kill.operation, kill.reference), (Operation::Kill, reference(0)));
    kill.reply(Reply::Nothing);
    response(link.next().await);
    node.stop().await.unwrap();
}

// req: P-056, P-063
// inv: INV-N25
#[tokio::test]
async fn a_budget_runs_while_its_request_waits_and_one_that_ended_there_runs_nothing() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    link.call(0, Arguments::Info).await;
    let first = calls.recv().await.unwrap();
    let (expired, request) = link.request(0, 1, Arguments::Kill);
    link.send(request).await;
    let answer = response(link.next().await);
    assert_eq!(
        (answer.id, answer.error_code.as_deref()),
        (expired, Some("unconfirmed"))
    );
    first.reply(Reply::Info(running(reference(0))));
    response(link.next().await);
    link.call(0, Arguments::Info).await;
    let next = calls.recv().await.unwrap();
    assert_eq!(next.operation, Operation::Info, "the expired kill never ran");
    next.reply(Reply::Info(running(reference(0))));
    response(link.next().await);
    node.stop().await.unwrap();
}

// inv: INV-P8
#[tokio::test]
async fn a_budget_that_ends_while_its_command_runs_is_answered_once() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let (id, request) = link.request(0, 200, command(None));
    link.send(request).await;
    let called = calls.recv().await.unwrap();
    let answer = response(link.next().await);
    assert_eq!(
        (answer.id, answer.error_code.as_deref()),
        (id, Some("command_unconfirmed"))
    );
    called.reply(Reply::Command(output(Vec::new())));
    // The late answer is dropped: the next thing said is the next request's answer.
    let next = link.call(0, Arguments::Kill).await;
    calls.recv().await.unwrap().reply(Reply::Nothing);
    assert_eq!(response(link.next().await).id, next);
    node.stop().await.unwrap();
}

// inv: INV-N27
#[tokio::test]
async fn a_disconnect_discards_what_waits_and_drops_the_answers_of_what_runs() {
    let (mut core, _installation, mut calls, node, mut link) = connected().await;
    link.call(0, Arguments::Info).await;
    let first = calls.recv().await.unwrap();
    link.call(0, Arguments::Kill).await;
    // The node has read the kill once it answers a later request of another allocation.
    link.call(1, Arguments::Info).await;
    let other = calls.recv().await.unwrap();
    other.reply(Reply::Info(running(reference(1))));
    response(link.next().await);
    drop(link);
    let (mut link, _) = core.greet().await;
    first.reply(Reply::Info(running(reference(0))));
    let id = link.call(0, Arguments::Renew).await;
    let next = calls.recv().await.unwrap();
    assert_eq!(next.operation, Operation::Renew, "the discarded kill never runs");
    next.reply(Reply::Info(running(reference(0))));
    let answer = response(link.next().await);
    assert_eq!((answer.id, answer.connection_id), (id, link.connection_id));
    node.stop().await.unwrap();
}

// inv: INV-P11
#[tokio::test]
async fn create_starts_nothing_while_the_latest_probe_failed() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, mut calls) = scripted();
    *provider.probe.lock() = Err(DiagnosticCode::ProviderUnavailable);
    let node = installation.start(provider, 8);
    let (mut link, hello) = core.greet().await;
    assert!(!hello.health.provider_ready);
    link.call(0, create(reference(0))).await;
    assert_eq!(
        response(link.next().await).error_code.as_deref(),
        Some("unconfirmed")
    );
    assert!(calls.try_recv().is_err());
    link.call(0, Arguments::Kill).await;
    calls.recv().await.unwrap().reply(Reply::Nothing);
    assert_eq!(response(link.next().await).error_code, None);
    node.stop().await.unwrap();
}

// req: P-051, P-062
// inv: INV-P28
#[tokio::test]
async fn a_malformed_request_is_answered_invalid_and_the_connection_stays() {
    let (_core, _installation, mut calls, node, mut link) = connected().await;
    let (id, request) = link.request(0, 1_000, Arguments::Info);
    link.send(request.replace(r#""operation":"info""#, r#""operation":"unheard_of""#))
        .await;
    let answer = response(link.next().await);
    assert_eq!((answer.id, answer.error_code.as_deref()), (id, Some("invalid")));
    link.call(0, Arguments::Kill).await;
    calls.recv().await.unwrap().reply(Reply::Nothing);
    response(link.next().await);
    node.stop().await.unwrap();
}

// req: P-058
#[tokio::test]
async fn a_full_queue_closes_the_connection() {
    let (mut core, _installation, mut calls, node, mut link) = connected().await;
    for _ in 0..34 {
        link.call(0, Arguments::Info).await;
    }
    link.closed().await;
    assert_eq!(calls.recv().await.unwrap().operation, Operation::Info);
    assert!(calls.try_recv().is_err(), "nothing that waited runs");
    core.greet().await;
    node.kill().await;
}

// inv: INV-N27, INV-P8
#[tokio::test]
async fn a_node_killed_during_an_operation_comes_back_and_runs_nothing_of_the_past() {
    let (mut core, installation, mut calls, node, mut link) = connected().await;
    let lost = link.call(0, create(reference(0))).await;
    let called = calls.recv().await.unwrap();
    assert_eq!(called.operation, Operation::Create);
    link.call(0, Arguments::Kill).await;
    node.kill().await;
    link.closed().await;

    let (provider, mut calls) = scripted();
    let node = installation.start(provider, 8);
    let (mut link, hello) = core.greet().await;
    assert_eq!(hello.health.active_operations, 0);
    let observed = link.call(0, Arguments::Info).await;
    let called = calls.recv().await.unwrap();
    assert_eq!(
        called.operation,
        Operation::Info,
        "neither the create nor the kill is repeated"
    );
    called.reply(Reply::Failed(Failure::NotFound, None));
    let answer = response(link.next().await);
    assert_eq!(answer.id, observed);
    assert_ne!(answer.id, lost);
    assert_eq!(answer.error_code.as_deref(), Some("not_found"));
    node.stop().await.unwrap();
}

// req: P-079
#[tokio::test]
async fn a_node_without_generation_management_serves_its_enrolled_generation_alone_whatever_core_has_selected()
 {
    let (core, _installation, mut calls, node, mut link) = connected().await;
    link.call(0, Arguments::Info).await;
    let served = calls.recv().await.unwrap();
    served.reply(Reply::Info(running(reference(0))));
    assert_eq!(response(link.next().await).error_code, None);
    let (_, other) = link.request_of(2, 0, 30_000, Arguments::Info);
    link.send(other).await;
    link.closed().await;
    assert!(calls.try_recv().is_err(), "nothing ran for another generation");
    assert!(
        core.seen("configuration").is_empty(),
        "its configuration is fixed"
    );
    node.stop().await.unwrap();
}
