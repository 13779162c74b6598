//! Opening, presence, heartbeats and their end (protocol.md sections 4 to 6 and 12).

use oac_model::{Generation, NodeId};
use oac_store::{GenerationState, NodeRow};
use oac_testkit::core::{TestCore, new_secret, send as http};
use oac_wire::{CoreFrame, NodeFrame, frames::Identity};
use reqwest::Method;
use serde_json::json;

use crate::{
    node::{self, Greeted, Node, dial, greet, health, hello, receive, send},
    world::{self, On},
};

async fn stored(core: &TestCore, id: NodeId) -> NodeRow {
    core.core().store.single().node(id).await.unwrap().unwrap()
}

async fn ack(greeted: &mut Greeted) -> bool {
    matches!(
        receive(&mut greeted.socket).await,
        Some(CoreFrame::HeartbeatAck(_))
    )
}

fn path(node: &Node) -> String {
    format!("/api/v1/sandbox-node/connect?node_id={}", node.id())
}

// req: P-012, P-014, P-015
#[tokio::test]
async fn only_the_nodes_own_credential_in_the_header_opens_its_connection() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let other = Node::enroll(&core, 1).await;
    let get = |path: &str| core.request(Method::GET, path);
    let own = node.enrolled.credential.expose();
    let refused = [
        get(&path(&node)),
        get(&path(&node)).bearer_auth(new_secret("").expose()),
        get(&path(&node)).bearer_auth(other.enrolled.credential.expose()),
        get(&path(&node)).bearer_auth(core.core_key.expose()),
        get(&path(&node)).header("authorization", format!("bearer {own}")),
        get(&path(&node)).header("authorization", format!("Bearer {own} more")),
        get(&path(&node))
            .bearer_auth(own)
            .header("authorization", format!("Bearer {own}")),
        get("/api/v1/sandbox-node/connect").bearer_auth(own),
        get(&format!("{}&node_id={}", path(&node), node.id())).bearer_auth(own),
        get(&path(&node).to_uppercase().replace(
            "/API/V1/SANDBOX-NODE/CONNECT?NODE_ID",
            "/api/v1/sandbox-node/connect?node_id",
        ))
        .bearer_auth(own),
        get(&format!("{}&credential={own}", path(&node))),
    ];
    for request in refused {
        let answer = http(request).await;
        assert_eq!(answer.status.as_u16(), 401, "{}", answer.body);
        assert_eq!(answer.code(), "invalid_node_credential");
    }
    greet(&core, &node.enrolled, &health(true)).await.unwrap();
}

#[tokio::test]
async fn a_browser_is_refused_before_the_identity_and_a_malformed_upgrade_frees_it() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let own = node.enrolled.credential.expose();
    let get = || core.request(Method::GET, &path(&node)).bearer_auth(own);
    assert_eq!(http(get()).await.status.as_u16(), 400);
    assert_eq!(
        http(
            get()
                .header("upgrade", "websocket")
                .header("connection", "upgrade")
        )
        .await
        .status
        .as_u16(),
        400
    );
    let _first = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    assert_eq!(
        http(get().header("origin", "http://example.org"))
            .await
            .status
            .as_u16(),
        403
    );
    assert_eq!(http(get()).await.status.as_u16(), 409);
}

// inv: INV-P3
// req: P-018
#[tokio::test]
async fn a_second_dial_is_refused_while_the_first_opens_or_lives_and_leaves_it_untouched() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut opening = dial(&core, &node.enrolled).await.unwrap();
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 409);
    send(
        &mut opening,
        &NodeFrame::Hello(Box::new(hello(&node.enrolled, &health(true)))),
    )
    .await;
    let Some(CoreFrame::Welcome(welcome)) = receive(&mut opening).await else {
        panic!("no welcome")
    };
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 409);
    let mut first = Greeted {
        socket: opening,
        welcome,
    };
    let beat = node::heartbeat(&first, health(true));
    send(&mut first.socket, &beat).await;
    assert!(ack(&mut first).await, "the first connection lives on");
    drop(first);
    let mut again = Err(reqwest::StatusCode::CONFLICT);
    world::eventually("the identity is free again", async || {
        again = dial(&core, &node.enrolled)
            .await
            .map(drop)
            .map_err(|s| reqwest::StatusCode::from_u16(s.as_u16()).unwrap());
        again.is_ok()
    })
    .await;
}

// inv: INV-P4
// req: P-020, P-022
#[tokio::test]
async fn a_hello_of_another_identity_stores_nothing_and_gets_no_frame() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let right = node::identity(&node.enrolled);
    let wrong: Vec<Identity> = vec![
        Identity {
            node_id: NodeId::random(),
            ..right.clone()
        },
        Identity {
            installation_id: oac_model::InstallationId::random(),
            ..right.clone()
        },
        Identity {
            backend_fingerprint: oac_model::Digest::of("x"),
            ..right.clone()
        },
        Identity {
            deployment_generation: Generation::try_from(7).unwrap(),
            ..right.clone()
        },
        Identity {
            specification_digest: oac_model::Digest::of("x"),
            ..right.clone()
        },
        Identity {
            provider: oac_model::ProviderKind::Microsandbox,
            ..right.clone()
        },
    ];
    for identity in wrong {
        let mut socket = loop {
            if let Ok(socket) = dial(&core, &node.enrolled).await {
                break socket;
            }
        };
        let hello = oac_wire::frames::Hello {
            identity,
            ..hello(&node.enrolled, &health(true))
        };
        send(&mut socket, &NodeFrame::Hello(Box::new(hello))).await;
        assert_eq!(receive(&mut socket).await, None);
        let row = stored(&core, node.id()).await;
        assert_eq!(
            (row.connection_id, row.last_seen_at, row.provider_ready),
            (None, None, false)
        );
    }
    // The limits are informative: they are not compared.
    let mut socket = loop {
        if let Ok(socket) = dial(&core, &node.enrolled).await {
            break socket;
        }
    };
    let limits = Identity {
        max_active: 77,
        max_retained: 99,
        ..right
    };
    let hello = oac_wire::frames::Hello {
        identity: limits,
        ..hello(&node.enrolled, &health(true))
    };
    send(&mut socket, &NodeFrame::Hello(Box::new(hello))).await;
    assert!(matches!(receive(&mut socket).await, Some(CoreFrame::Welcome(_))));
}

async fn presence(on: On) {
    let core = world::core(on).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let row = stored(&core, node.id()).await;
    let epoch = core.core().owner.ownership().unwrap().epoch;
    assert_eq!(row.connection_id, Some(greeted.welcome.connection_id));
    assert_eq!(
        (row.connection_epoch, greeted.welcome.owner_epoch),
        (Some(epoch), epoch)
    );
    assert_eq!(greeted.welcome.deployment, None, "for managing nodes alone");
    assert!(row.provider_ready && row.last_seen_at.is_some());
    assert_eq!(
        (row.total_memory_bytes, row.effective_cpu_cores),
        (Some(16 << 30), Some(8.0))
    );
    assert!(core.core().hub.is_ready(node.id(), row.enrolled_generation));

    let sick = oac_wire::frames::Health {
        diagnostic: Some(oac_wire::frames::Token("made_up_code".to_owned())),
        ..health(false)
    };
    let beat = node::heartbeat(&greeted, sick);
    send(&mut greeted.socket, &beat).await;
    assert!(ack(&mut greeted).await);
    let row = stored(&core, node.id()).await;
    assert!(!row.provider_ready);
    assert_eq!(
        row.diagnostic,
        Some(oac_model::DiagnosticCode::ProviderUnavailable)
    );
    let statuses = core
        .core()
        .store
        .single()
        .generation_statuses(node.id())
        .await
        .unwrap();
    assert_eq!(statuses.len(), 1);
    assert_eq!(statuses[0].state, GenerationState::Failed);
    assert!(matches!(
        world::session(&core).await,
        Err(oac_core::placement::PlaceError::Refused(_))
    ));

    drop(greeted);
    world::eventually("presence is removed", async || {
        stored(&core, node.id()).await.connection_id.is_none()
    })
    .await;
    assert!(
        stored(&core, node.id()).await.last_seen_at.is_some(),
        "what it last said stays"
    );
    assert!(core.core().hub.connected(node.id()).is_none());
}

// inv: INV-P5, INV-P27
// req: P-023, P-024, P-028, P-029, P-031, P-033
#[tokio::test]
async fn presence_and_health_are_stored_before_welcome_and_with_each_heartbeat_and_end_with_the_connection() {
    presence(On::Sqlite).await;
}

// inv: INV-P5
// req: P-023, P-029
#[tokio::test]
async fn pg_presence_and_health_are_stored_before_welcome_and_with_each_heartbeat_and_end_with_the_connection()
 {
    presence(On::Postgres).await;
}

// req: P-037
// inv: INV-P27
#[tokio::test]
async fn a_fixed_node_is_listed_with_the_generation_it_enrolled_with_and_its_first_failed_check() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let listed = async || {
        let list = core
            .operator(Method::GET, "/core/v1/sandbox/nodes", None)
            .await
            .expect(200);
        list["data"][0].clone()
    };
    let enrolled = node.enrolled.identity["deployment_generation"].clone();
    assert!(enrolled.is_u64());
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let ready = json!({ "state": "ready", "ready_generation": enrolled });
    assert_eq!(listed().await["rollout"], ready);
    for (told, shown) in [
        ("capacity_insufficient", "capacity_insufficient"),
        ("made_up_code", "provider_unavailable"),
    ] {
        let sick = oac_wire::frames::Health {
            diagnostic: Some(oac_wire::frames::Token(told.to_owned())),
            ..health(false)
        };
        let beat = node::heartbeat(&greeted, sick);
        send(&mut greeted.socket, &beat).await;
        assert!(ack(&mut greeted).await);
        let seen = listed().await;
        assert_eq!(
            seen["rollout"],
            json!({ "state": "failed", "ready_generation": enrolled, "diagnostic": shown })
        );
        assert_eq!(seen["diagnostic"], shown);
    }
    let beat = node::heartbeat(&greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    assert!(ack(&mut greeted).await);
    let seen = listed().await;
    assert_eq!((&seen["rollout"], seen.get("diagnostic")), (&ready, None));
    // It serves on as it enrolled, whatever the target is meanwhile.
    core.deploy(2, 1024).await;
    assert_eq!(
        listed().await["rollout"],
        json!({ "state": "update_required", "ready_generation": enrolled })
    );
}

// inv: INV-P26
// req: P-028
#[tokio::test]
async fn a_removed_nodes_connection_ends_at_its_next_heartbeat_and_its_credential_opens_no_other() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    let tx = world::begin(&core).await;
    tx.lock_node(node.id()).await.unwrap();
    assert!(tx.retire_node(node.id()).await.unwrap());
    tx.commit().await.unwrap();
    let beat = node::heartbeat(&greeted, health(true));
    send(&mut greeted.socket, &beat).await;
    assert_eq!(receive(&mut greeted.socket).await, None);
    assert_eq!(dial(&core, &node.enrolled).await.unwrap_err().as_u16(), 401);
}

// req: P-003, P-011
// inv: INV-P1
#[tokio::test]
async fn an_invalid_heartbeat_closes_and_stores_nothing() {
    use futures_util::SinkExt as _;
    use tokio_tungstenite::tungstenite::Message;

    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let spoiled: [fn(String) -> Message; 3] = [
        |good| Message::text(good.replacen("\"provider_ready\"", "\"extra\":1,\"provider_ready\"", 1)),
        |good| Message::text(format!("{good}{good}")),
        // The frame is right; a binary message is none.
        |good| Message::binary(good.into_bytes()),
    ];
    for spoil in spoiled {
        let mut greeted = loop {
            if let Ok(greeted) = greet(&core, &node.enrolled, &health(true)).await {
                break greeted;
            }
        };
        let good = node::heartbeat(&greeted, health(false)).encode().unwrap();
        greeted.socket.send(spoil(good)).await.unwrap();
        assert_eq!(receive(&mut greeted.socket).await, None);
        assert!(stored(&core, node.id()).await.provider_ready);
    }
}

// req: P-050
#[tokio::test]
async fn a_heartbeat_of_another_connection_or_epoch_closes() {
    let core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    for wrong_epoch in [false, true] {
        let mut greeted = loop {
            if let Ok(greeted) = greet(&core, &node.enrolled, &health(true)).await {
                break greeted;
            }
        };
        let NodeFrame::Heartbeat(mut beat) = node::heartbeat(&greeted, health(true)) else {
            unreachable!()
        };
        if wrong_epoch {
            beat.owner_epoch = beat.owner_epoch.next().unwrap();
        } else {
            beat.connection_id = oac_model::ConnectionId::random();
        }
        send(&mut greeted.socket, &NodeFrame::Heartbeat(beat)).await;
        assert_eq!(receive(&mut greeted.socket).await, None);
    }
}

// inv: INV-C25
#[tokio::test]
async fn recommended_limits_are_set_once_by_the_first_report_that_has_the_measurements_and_audited() {
    let core = world::core(On::Sqlite).await;
    let enrolled = core.enroll(&json!({ "recommended": true })).await;
    let bare = oac_wire::frames::Health {
        total_memory_bytes: oac_wire::Nullable(None),
        available_memory_bytes: oac_wire::Nullable(None),
        ..health(true)
    };
    let mut greeted = greet(&core, &enrolled, &bare).await.unwrap();
    assert_eq!(stored(&core, enrolled.node_id).await.max_active, 1);
    for cores in [8.0, 64.0] {
        let full = oac_wire::frames::Health {
            effective_cpu_cores: oac_wire::Nullable(Some(cores)),
            ..health(true)
        };
        let beat = node::heartbeat(&greeted, full);
        send(&mut greeted.socket, &beat).await;
        assert!(ack(&mut greeted).await);
        let row = stored(&core, enrolled.node_id).await;
        assert_eq!((row.max_active, row.max_retained), (7, 7));
    }
    let log = core.core().store.single().audit_log(None, 100).await.unwrap();
    assert_eq!(
        log.iter()
            .filter(|entry| entry.action == "limits_recommended")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_core_that_stops_closes_its_nodes_and_removes_their_presence() {
    let mut core = world::core(On::Sqlite).await;
    let node = Node::enroll(&core, 1).await;
    let mut greeted = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    core.restart().await;
    assert_eq!(receive(&mut greeted.socket).await, None);
    assert_eq!(stored(&core, node.id()).await.connection_id, None);
    let again = greet(&core, &node.enrolled, &health(true)).await.unwrap();
    assert!(again.welcome.owner_epoch > greeted.welcome.owner_epoch);
}
