//! Who may reach what, and how much of it.

use reqwest::Method;
use serde_json::json;
use tokio::{io::AsyncReadExt, time::timeout};

use super::{Field, LONG, connections, path, server};
use crate::{
    runtime::Runtime,
    world::{World, id},
};

#[tokio::test]
async fn a_port_without_a_listener_is_502_and_a_number_that_is_no_port_400() {
    let field = Field::start().await;
    let (listener, port) = server::listen().await;
    drop(listener);
    let refused = field.world.get(&field.path(port, "/")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (502, "sandbox_port_refused")
    );
    assert_eq!(refused.body["error"]["type"], "server_error");
    let session = field.placed.session;
    for bad in ["0", "65536", "-1", "080", "http", "80%20", "%38%30%30%30%30"] {
        let answer = field
            .world
            .get(&format!("/v1/sessions/{session}/ports/{bad}/x"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, "invalid_request_error"),
            "{bad}"
        );
        assert_eq!(answer.body["error"]["param"], "port");
    }
    let none = field.world.get(&format!("/v1/sessions/{session}/ports")).await;
    assert_eq!(none.status, 404);
}

// inv: INV-S10
#[tokio::test]
async fn only_the_projects_own_key_reaches_a_port() {
    let field = Field::start().await;
    let (server, heard) = server::scripted("HTTP/1.1 204 No Content\r\n\r\n").await;
    let core = &field.world.core;
    let (_, other) = core.new_project("other").await;
    for port in [server.port.to_string(), "0".to_owned()] {
        for rest in ["", "/", "/a?b=c"] {
            let path = format!("/v1/sessions/{}/ports/{port}{rest}", field.placed.session);
            for method in [
                Method::GET,
                Method::POST,
                Method::HEAD,
                Method::CONNECT,
                Method::TRACE,
            ] {
                if method == Method::CONNECT {
                    continue;
                }
                let answer = core.call(method.clone(), &path, Some(&other), None).await;
                assert_eq!(answer.status.as_u16(), 404, "{method} {path}");
            }
            for key in [None, Some(&core.core_key)] {
                let answer = core.call(Method::GET, &path, key, None).await;
                assert_eq!(
                    (answer.status.as_u16(), answer.code()),
                    (401, "invalid_api_key"),
                    "{path}"
                );
            }
        }
    }
    assert!(heard.texts().is_empty());
    assert_eq!(field.get(server.port, "/").await.status(), 204);
}

#[tokio::test]
async fn a_session_has_32_port_streams_and_the_next_is_429_until_one_ends() {
    let field = Field::start().await;
    let server = server::each(|mut stream| async move {
        let mut byte = [0];
        while let Ok(1..) = stream.read(&mut byte).await {}
    })
    .await;
    let other = server::mirror().await;
    let mut waiting = Vec::new();
    for _ in 0..32 {
        let (mut stream, authorization) = field.connect().await;
        let head = format!(
            "GET {}/ HTTP/1.1\r\nHost: x\r\n{authorization}\r\n",
            field.path(server.port, "")
        );
        tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
            .await
            .unwrap();
        waiting.push(stream);
    }
    field
        .world
        .eventually("all connected", async || {
            (connections(server.port) >= 32).then_some(())
        })
        .await;
    let full = field.world.get(&field.path(other.port, "/")).await;
    assert_eq!((full.status.as_u16(), full.code()), (429, "invalid_request"));
    assert!(full.headers.contains_key("retry-after"));
    // Turns go on meanwhile, and so do ports of other Sessions.
    field.command_works().await;
    let (second, _runtime) = Runtime::place(&field.world).await;
    assert_eq!(
        field
            .world
            .get(&path(second.session, other.port, "/"))
            .await
            .status,
        200
    );
    // A client that leaves gives its place back, also while the server never answers.
    waiting.pop();
    field
        .world
        .eventually("a place", async || {
            let answer = field.world.get(&field.path(other.port, "/")).await;
            (answer.status == 200).then_some(())
        })
        .await;
    drop(waiting);
    field.until_free(server.port).await;
}

#[tokio::test]
async fn a_request_waits_for_its_sandbox_and_is_told_when_there_will_be_none() {
    let world = World::start().await;
    let server = server::mirror().await;
    let placed = world.place().await;
    let url = path(placed.session, server.port, "/first");
    let (answer, _runtime) = tokio::join!(world.get(&url), async {
        // Nothing is linked before the request is under way.
        world
            .eventually("an open port stream", async || {
                let read = world.core.core().store.single();
                let open = read.file_operations(placed.session).await.unwrap();
                (!open.is_empty()).then_some(())
            })
            .await;
        Runtime::start(&world, &placed)
    });
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body["target"], "/first");
    world
        .delete(&format!("/v1/sessions/{}", placed.session))
        .await
        .expect(202);
    let gone = world.get(&url).await;
    assert_eq!((gone.status.as_u16(), gone.code()), (409, "session_archived"));
}

#[tokio::test]
async fn archiving_ends_open_port_streams() {
    let field = Field::start().await;
    let server = server::each(|mut stream| async move {
        server::read_head(&mut stream, |_| {}).await;
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, head)
            .await
            .unwrap();
        let mut byte = [0];
        let _ = stream.read(&mut byte).await;
    })
    .await;
    let mut answer = field.get(server.port, "/").await;
    assert_eq!(
        timeout(LONG, answer.chunk()).await.unwrap().unwrap().unwrap(),
        "a"
    );
    let session = format!("/v1/sessions/{}", field.placed.session);
    field.world.delete(&session).await.expect(202);
    assert!(timeout(LONG, answer.chunk()).await.unwrap().is_err());
    field.until_free(server.port).await;
    // Its id still says nothing to others.
    let created = field.world.post("/v1/sessions", &json!({})).await.expect(201);
    assert_ne!(id::<oac_model::SessionId>(&created["id"]), field.placed.session);
}
