//! Another Project's key.

use reqwest::Method;
use serde_json::json;

use crate::{
    reader::Reader,
    world::{World, stored_sessions},
};

// inv: INV-S10
#[tokio::test]
async fn another_projects_key_obtains_nothing_but_404_on_every_route() {
    let world = World::start().await;
    let placed = world.place().await;
    let turn = world.submit(placed.session, "true").await;
    let (other, key) = world.core.new_project("other").await;
    let session = format!("/v1/sessions/{}", placed.session);
    let input = json!({ "args": ["true"] });
    let empty = json!({});
    let routes = [
        (Method::GET, session.clone(), None),
        (Method::DELETE, session.clone(), None),
        (Method::POST, format!("{session}/inputs"), Some(&input)),
        (Method::GET, format!("{session}/turns"), None),
        (Method::GET, format!("{session}/turns/{turn}"), None),
        (
            Method::POST,
            format!("{session}/turns/{turn}/cancel"),
            Some(&empty),
        ),
        (Method::GET, format!("{session}/turns/{turn}/output"), None),
        (Method::GET, format!("{session}/events"), None),
        (Method::GET, format!("{session}/files?path=x"), None),
        (Method::PUT, format!("{session}/files?path=x"), Some(&input)),
        (Method::DELETE, format!("{session}/files?path=x"), None),
        (Method::GET, format!("{session}/files/list?path=x"), None),
        (
            Method::POST,
            format!("{session}/ports/80/path?query=1"),
            Some(&input),
        ),
    ];
    let table = oac_core::http::router::table();
    let one_session = table
        .iter()
        .filter(|r| r.name().1.starts_with("/v1/sessions/{"))
        .count();
    assert_eq!(
        routes.len(),
        one_session,
        "a route of a Session is not tried here"
    );
    for (method, path, body) in routes {
        let answer = world.core.call(method.clone(), &path, Some(&key), body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (404, "not_found_error"),
            "{method} {path}"
        );
    }
    assert_eq!(
        world
            .core
            .call(Method::GET, "/v1/sessions", Some(&key), None)
            .await
            .expect(200)["data"],
        json!([])
    );
    assert_eq!(stored_sessions(&world.core, other).await, 0);
    // Nothing happened to it; its own key still opens it, also with another Session of the Project in the path.
    assert_eq!(world.turn(placed.session, turn).await["state"], "waiting");
    let second = world.place().await;
    let mixed = format!("/v1/sessions/{}/turns/{turn}", second.session);
    assert_eq!(world.get(&mixed).await.status, 404);
    let response = Reader::request(
        &world.core,
        &world.core.project_key,
        &format!("{mixed}/output"),
        None,
    )
    .await;
    assert_eq!(response.status(), 404);
}
