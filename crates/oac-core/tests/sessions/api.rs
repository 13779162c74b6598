//! Sessions, inputs and archive as an application sees them.

use oac_model::{NetworkAccess, SessionId, TurnId};
use oac_testkit::core::{TestCore, send};
use oac_wire::shapes::Operation;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    node::Act,
    world::{World, id, stored_sessions},
};

async fn keyed(core: &TestCore, path: &str, key: &str, body: &Value) -> oac_testkit::core::Answer {
    let request = core
        .request(Method::POST, path)
        .bearer_auth(core.project_key.expose())
        .header("idempotency-key", key)
        .json(body);
    send(request).await
}

// req: G-004
#[tokio::test]
async fn a_session_appears_with_its_placement_and_its_sandbox_starts_at_once() {
    let world = World::start().await;
    let body = json!({ "name": "one", "metadata": { "k": "v" } });
    let created = world.post("/v1/sessions", &body).await.expect(201);
    assert_eq!(created["name"], "one");
    assert_eq!(created["state"], "idle");
    assert_eq!(created["reason"], Value::Null);
    assert_eq!(created["metadata"], json!({ "k": "v" }));
    assert_eq!(
        created["network"],
        json!({ "access": "public", "allowed_domains": [] })
    );
    assert_eq!(created["placement"]["backend"], "docker");
    assert_eq!(created["placement"]["node_id"], world.node.id().to_string());
    assert_eq!(created["placement"]["generation"], 1);
    assert_eq!(created["placement"]["online"], true);
    assert_eq!(created["sandbox"]["state"], "starting");
    assert_eq!(created["turns"], json!({ "queued": 0, "running": 0 }));

    let placed = world.sandbox_of(id(&created["id"])).await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    world.until_linked(&placed).await;
    let shown = world.session(placed.session).await;
    assert_eq!(shown["sandbox"]["state"], "running");
    assert_eq!(shown["sandbox"]["diagnostic"], "");
    let list = world.get("/v1/sessions").await.expect(200);
    assert_eq!(list["data"], json!([shown]));
    assert_eq!(list["next"], Value::Null);
    assert_eq!(
        world.get("/v1/sessions?state=busy").await.expect(200)["data"],
        json!([])
    );
    connection.close().await;
}

#[tokio::test]
async fn sessions_and_turns_are_listed_in_pages() {
    let world = World::start().await;
    let mut created = Vec::new();
    for _ in 0..3 {
        created.push(world.post("/v1/sessions", &json!({})).await.expect(201)["id"].clone());
    }
    let first = world.get("/v1/sessions?limit=2").await.expect(200);
    let cursor = first["next"].as_str().unwrap();
    let second = world
        .get(&format!("/v1/sessions?limit=2&cursor={cursor}"))
        .await
        .expect(200);
    assert_eq!(second["next"], Value::Null);
    let mut seen: Vec<Value> = [&first, &second]
        .iter()
        .flat_map(|page| page["data"].as_array().unwrap().iter().map(|s| s["id"].clone()))
        .collect();
    assert_eq!(seen.len(), 3);
    seen.sort_by_key(Value::to_string);
    created.sort_by_key(Value::to_string);
    assert_eq!(seen, created);
    assert_eq!(world.get("/v1/sessions?limit=0").await.status, 400);
    assert_eq!(world.get("/v1/sessions?cursor=x").await.status, 400);

    let session = id(&created[0]);
    for _ in 0..3 {
        world.submit(session, "true").await;
    }
    let path = format!("/v1/sessions/{session}/turns");
    let first = world.get(&format!("{path}?limit=2")).await.expect(200);
    let rest = world
        .get(&format!(
            "{path}?limit=2&cursor={}",
            first["next"].as_str().unwrap()
        ))
        .await
        .expect(200);
    let sequences: Vec<_> = [&first, &rest]
        .iter()
        .flat_map(|page| {
            page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| t["sequence"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(sequences, [1, 2, 3]);
}

// inv: INV-C11
#[tokio::test]
async fn a_refused_creation_leaves_no_row_and_its_key_works_later() {
    let core = TestCore::start().await;
    let refused = keyed(&core, "/v1/sessions", "k", &json!({})).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (503, "runtime_node_unavailable")
    );
    assert_eq!(stored_sessions(&core, core.project_id).await, 0);
    core.deploy(1, 512).await;
    oac_core::placement::refresh_deployment(core.core()).await;
    let _node = crate::node::Node::start(&core, 1).await;
    keyed(&core, "/v1/sessions", "k", &json!({})).await.expect(201);
    let full = keyed(&core, "/v1/sessions", "other", &json!({})).await;
    assert_eq!(
        (full.status.as_u16(), full.code()),
        (503, "runtime_node_unavailable")
    );
    assert_eq!(stored_sessions(&core, core.project_id).await, 1);
}

#[tokio::test]
async fn a_session_and_each_of_its_sandboxes_go_only_to_a_node_with_its_labels() {
    let mut world = World::start().await;
    let wanted = json!({ "node_labels": { "zone": "a" } });
    let unplaced = world.post("/v1/sessions", &wanted).await;
    assert_eq!(
        (unplaced.status.as_u16(), unplaced.code()),
        (503, "runtime_node_unavailable")
    );
    assert_eq!(stored_sessions(&world.core, world.core.project_id).await, 0);
    world.label_node(&[("zone", "a"), ("disk", "fast")]).await;
    let session = world.post("/v1/sessions", &wanted).await.expect(201);
    let placed = world.sandbox_of(id(&session["id"])).await;

    // Its next sandbox is no less particular.
    world.label_node(&[("zone", "b")]).await;
    world.lose_sandbox(&placed).await;
    let unplaced = world.input(placed.session, "true").await;
    assert_eq!(
        (unplaced.status.as_u16(), unplaced.code()),
        (503, "runtime_node_unavailable")
    );
    world.label_node(&[("zone", "a")]).await;
    world
        .eventually("an admitted input", async || {
            (world.input(placed.session, "true").await.status == 202).then_some(())
        })
        .await;
}

/// Three creates came to nothing. Two more after the input do not fail it again: they are counted anew.
#[tokio::test]
async fn a_failed_session_starts_over_with_its_next_input() {
    let world = World::start().await;
    world.node.plan(Operation::Create, &[Act::Reject; 5]);
    let session: SessionId = id(&world.post("/v1/sessions", &json!({})).await.expect(201)["id"]);
    let failed = world
        .eventually("a failed Session", async || {
            let shown = world.session(session).await;
            (shown["state"] == "failed").then_some(shown)
        })
        .await;
    assert!(failed["reason"].is_string(), "{failed}");
    assert_eq!(
        (&failed["placement"], &failed["sandbox"]["state"]),
        (&Value::Null, &json!("none"))
    );
    let turn = world.submit(session, "true").await;
    let placed = world.sandbox_of(session).await;
    let _connection = placed.sandbox.connect(&world.core.url).await;
    assert_eq!(placed.sandbox.started(0).await, turn);
    assert_eq!(world.node.count(Operation::Create), 6);
    let shown = world.session(session).await;
    assert_eq!(
        (&shown["state"], &shown["reason"]),
        (&json!("busy"), &Value::Null)
    );
}

#[tokio::test]
async fn a_network_access_that_docker_does_not_enforce_is_refused() {
    let world = World::start().await;
    for access in [NetworkAccess::None, NetworkAccess::Restricted] {
        let refused = world
            .post("/v1/sessions", &json!({ "network": { "access": access } }))
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (400, "network_access_unsupported")
        );
    }
    assert_eq!(stored_sessions(&world.core, world.core.project_id).await, 0);
}

#[tokio::test]
async fn the_same_key_and_body_replay_the_stored_answer_and_another_body_conflicts() {
    replays(World::start().await).await;
}

#[tokio::test]
async fn pg_the_same_key_and_body_replay_the_stored_answer_and_another_body_conflicts() {
    replays(World::start_postgres().await).await;
}

async fn replays(mut world: World) {
    let body = json!({ "name": "one" });
    let first = keyed(&world.core, "/v1/sessions", "key one", &body)
        .await
        .expect(201);
    let path = format!("/v1/sessions/{}/inputs", first["id"].as_str().unwrap());
    let input = keyed(&world.core, &path, "key one", &json!({ "args": ["true"] }))
        .await
        .expect(202);
    // A replay is the stored answer, even when nothing could be placed now.
    world.node.kill().await;
    assert_eq!(
        keyed(&world.core, "/v1/sessions", "key one", &body)
            .await
            .expect(201),
        first
    );
    assert_eq!(
        keyed(&world.core, &path, "key one", &json!({ "args": ["true"] }))
            .await
            .expect(202),
        input
    );
    for (path, other) in [
        ("/v1/sessions", json!({})),
        (path.as_str(), json!({ "args": ["false"] })),
    ] {
        let conflict = keyed(&world.core, path, "key one", &other).await;
        assert_eq!(
            (conflict.status.as_u16(), conflict.code()),
            (409, "idempotency_conflict")
        );
    }
    assert_eq!(stored_sessions(&world.core, world.core.project_id).await, 1);
    let turns = world
        .get(&format!("{}/turns", path.trim_end_matches("/inputs")))
        .await
        .expect(200);
    assert_eq!(turns["data"].as_array().unwrap().len(), 1);
    for bad in ["", &"k".repeat(129), "tab\there"] {
        let refused = keyed(&world.core, "/v1/sessions", bad, &body).await;
        assert_eq!(refused.status, 400, "{bad:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_with_one_key_are_one_request() {
    one_key(World::start().await).await;
}

#[tokio::test]
async fn pg_concurrent_requests_with_one_key_are_one_request() {
    one_key(World::start_postgres().await).await;
}

async fn one_key(world: World) {
    let body = json!({});
    let all = (0..4).map(|_| keyed(&world.core, "/v1/sessions", "k", &body));
    let answers = futures_util::future::join_all(all).await;
    let first = answers[0].clone().expect(201);
    for answer in answers {
        assert_eq!(answer.expect(201), first);
    }
    assert_eq!(stored_sessions(&world.core, world.core.project_id).await, 1);
}

// inv: INV-S9
#[tokio::test]
async fn sixty_four_turns_are_admitted_the_next_is_refused_and_leaves_nothing() {
    queue_of_64(World::start().await).await;
}

// inv: INV-S9
#[tokio::test]
async fn pg_sixty_four_turns_are_admitted_the_next_is_refused_and_leaves_nothing() {
    queue_of_64(World::start_postgres().await).await;
}

async fn queue_of_64(world: World) {
    let placed = world.place().await;
    for n in 1..=64 {
        let admitted = world.input(placed.session, "true").await.expect(202);
        let state = if n == 1 { "waiting" } else { "queued" };
        assert_eq!(admitted["turn"]["state"], state);
        assert_eq!(admitted["turn"]["sequence"], n);
        assert_eq!(admitted["turn"]["input"], admitted["input"]);
        assert!(admitted["input"].get("stdin").is_none());
    }
    let refused = world.input(placed.session, "true").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (429, "turn_queue_full")
    );
    let shown = world.session(placed.session).await;
    assert_eq!(shown["state"], "busy");
    assert_eq!(shown["turns"], json!({ "queued": 64, "running": 0 }));
    let turns = world
        .get(&format!("/v1/sessions/{}/turns", placed.session))
        .await
        .expect(200);
    assert_eq!(turns["data"].as_array().unwrap().len(), 64);
    // One leaves, one more fits.
    let first: TurnId = id(&turns["data"][0]["id"]);
    assert_eq!(world.cancel(placed.session, first).await["state"], "canceled");
    world.input(placed.session, "true").await.expect(202);
}

// req: G-243, G-247
// inv: INV-S9, INV-C11
#[tokio::test]
async fn an_input_that_nothing_can_run_is_refused_and_leaves_nothing() {
    let mut world = World::start().await;
    let placed = world.place().await;
    world.node.kill().await;
    world
        .eventually("the node is offline", async || {
            let row = world.core.core().store.single().node(world.node.id()).await;
            row.unwrap().unwrap().connection_id.is_none().then_some(())
        })
        .await;
    // The Environment's allocation is gone for good; no other can be placed.
    let tx = world.core.core().begin().await.unwrap();
    let mut row = tx.lock_allocation(placed.allocation).await.unwrap().unwrap();
    row.state = oac_model::AllocationState::Released;
    row.cause = Some(oac_store::CleanupCause::ComputeLost);
    row.released_at = Some(tx.now());
    tx.save_allocation(&mut row).await.unwrap();
    tx.release_placement(row.placement_id).await.unwrap();
    tx.commit().await.unwrap();
    let refused = world.input(placed.session, "true").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (503, "runtime_node_unavailable")
    );
    let turns = world
        .get(&format!("/v1/sessions/{}/turns", placed.session))
        .await
        .expect(200);
    assert_eq!(turns["data"], json!([]));
    assert_eq!(world.session(placed.session).await["state"], "idle");
    // With a node the same input brings a new sandbox.
    world.node.connect(&world.core).await;
    world
        .eventually("an admitted input", async || {
            (world.input(placed.session, "true").await.status == 202).then_some(())
        })
        .await;
    assert_ne!(
        world.sandbox_of(placed.session).await.allocation,
        placed.allocation
    );
}

// inv: INV-S19, INV-S3
#[tokio::test]
async fn an_archive_cancels_every_turn_ends_the_link_and_can_be_repeated() {
    archive_cancels(World::start().await).await;
}

// inv: INV-S19, INV-S3
#[tokio::test]
async fn pg_an_archive_cancels_every_turn_ends_the_link_and_can_be_repeated() {
    archive_cancels(World::start_postgres().await).await;
}

async fn archive_cancels(world: World) {
    let placed = world.place().await;
    let connection = placed.sandbox.connect(&world.core.url).await;
    let running = world.submit(placed.session, "sleep").await;
    placed.sandbox.started(0).await;
    let queued = world.submit(placed.session, "true").await;
    let path = format!("/v1/sessions/{}", placed.session);
    let archived = world.delete(&path).await.expect(202);
    assert_eq!(archived["state"], "archived");
    assert!(archived["archived_at"].is_string());
    for turn in [running, queued] {
        assert_eq!(world.turn(placed.session, turn).await["state"], "canceled");
    }
    let end = connection.ended().await;
    assert!(
        matches!(
            end,
            oac_link::LinkEnd::ClosedByPeer(Some(oac_link::CloseReason::Revoked))
        ),
        "{end}"
    );
    let refused = world.input(placed.session, "true").await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (409, "session_archived")
    );
    let again = world.delete(&path).await.expect(202);
    assert_eq!(again["archived_at"], archived["archived_at"]);
    world
        .eventually("an empty node", async || {
            (world.session(placed.session).await["placement"].is_null()).then_some(())
        })
        .await;
    assert_eq!(world.session(placed.session).await["sandbox"]["state"], "none");
    for turn in [running, queued] {
        assert_eq!(world.turn(placed.session, turn).await["state"], "canceled");
    }
    let audit = world
        .core
        .core()
        .store
        .single()
        .audit_log(None, 100)
        .await
        .unwrap();
    let entries = audit
        .iter()
        .filter(|a| a.action == "archive" && a.resource_id == placed.session.to_string());
    assert_eq!(entries.count(), 1);
}

// req: G-190
#[tokio::test]
async fn an_operator_archives_a_session_knowing_the_deployment() {
    let world = World::start().await;
    let placed = world.place().await;
    let project = world.core.project_id;
    let path = format!("/core/v1/projects/{project}/sessions/{}/archive", placed.session);
    let shown = world.core.operator(Method::GET, &path, None).await.expect(200);
    assert_eq!(shown["state"], "active");
    let stale = world
        .core
        .operator(Method::POST, &path, Some(&json!({ "expected_generation": 0 })))
        .await;
    assert_eq!(
        (stale.status.as_u16(), stale.code()),
        (409, "sandbox_generation_stale")
    );
    assert_eq!(stale.body["error"]["details"]["current_generation"], 1);
    let body = json!({ "expected_generation": 1 });
    let archived = world
        .core
        .operator(Method::POST, &path, Some(&body))
        .await
        .expect(202);
    assert_eq!(archived["state"], "cleanup_pending");
    assert_eq!(archived["environment_id"], shown["environment_id"]);
    world
        .core
        .operator(Method::POST, &path, Some(&body))
        .await
        .expect(202);
    world
        .eventually("a released archive", async || {
            let shown = world.core.operator(Method::GET, &path, None).await.expect(200);
            (shown["state"] == "released").then_some(())
        })
        .await;
    let (other, _) = world.core.new_project("other").await;
    let foreign = format!("/core/v1/projects/{other}/sessions/{}/archive", placed.session);
    assert_eq!(world.core.operator(Method::GET, &foreign, None).await.status, 404);
    assert_eq!(
        world
            .core
            .operator(Method::POST, &foreign, Some(&body))
            .await
            .status,
        404
    );
}
