//! Nodes and allocations as an operator sees them.

use oac_model::{ConnectionId, DiagnosticCode};
use oac_store::{GenerationState, GenerationStatusRow, NodeHealth, NodeReport};
use oac_testkit::core::{TestCore, send};
use reqwest::Method;
use serde_json::json;

use crate::golden::NOBODY;

const NODES: &str = "/core/v1/sandbox/nodes";

#[tokio::test]
async fn an_enrolled_node_that_never_connected_is_listed_offline() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({ "max_active": 4, "max_retained": 4 })).await;
    let list = core.operator(Method::GET, NODES, None).await.expect(200);
    assert_eq!(list["old_addresses"], json!([]));
    let shown = &list["data"][0];
    assert_eq!(shown["id"], node.node_id.to_string());
    assert_eq!(shown["online"], false);
    assert_eq!(shown["provider_ready"], false);
    assert_eq!(
        (&shown["max_active"], &shown["max_retained"]),
        (&json!(4), &json!(4))
    );
    assert_eq!(
        shown["rollout"],
        json!({ "state": "unknown", "ready_generation": null })
    );
    assert_eq!(shown["core_url"], json!(core.public_url));
    for member in [
        "active",
        "reserved",
        "running",
        "retained",
        "snapshots",
        "cleanup_pending",
        "issues",
    ] {
        assert_eq!(shown[member], 0, "{member}");
    }
    for member in [
        "last_seen_at",
        "recommended",
        "cpu_count",
        "drain",
        "available_memory_bytes",
    ] {
        assert!(
            shown.get(member).is_some_and(serde_json::Value::is_null),
            "{member}"
        );
    }
    let deployment = core
        .operator(Method::GET, "/core/v1/sandbox/deployment", None)
        .await
        .expect(200);
    assert_eq!(deployment["rollout"]["nodes"]["unknown"], 1);
    assert_eq!(deployment["rollout"]["state"], "settled");

    for (range, resolution, points) in [("", 60, 60), ("?range=6h", 300, 72), ("?range=24h", 900, 96)] {
        let path = format!("{NODES}/{}{range}", node.node_id);
        let detail = core.operator(Method::GET, &path, None).await.expect(200);
        assert_eq!(detail["id"], shown["id"]);
        assert!(detail["host"]["total_memory_bytes"].is_null());
        assert_eq!(detail["history"]["resolution_seconds"], resolution);
        assert_eq!(detail["history"]["points"].as_array().unwrap().len(), points);
    }
    assert_eq!(
        core.operator(Method::GET, &format!("{NODES}/{NOBODY}"), None)
            .await
            .status
            .as_u16(),
        404
    );
    let wrong = format!("{NODES}/{}?range=2h", node.node_id);
    assert_eq!(
        core.operator(Method::GET, &wrong, None).await.status.as_u16(),
        400
    );
}

// req: G-252
#[tokio::test]
async fn the_reason_of_a_failed_preparation_is_listed_beside_the_generation_still_served() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({})).await;
    core.deploy(4, 4096).await;
    let tx = core.core().begin().await.unwrap();
    let pin = tx.node(node.node_id).await.unwrap().unwrap().enrolled_generation;
    let target = tx.deployment().await.unwrap().target().unwrap();
    assert!(pin < target);
    let connection_id = ConnectionId::random();
    let hello = NodeReport {
        node_id: node.node_id,
        connection_id,
        hello: Some(true),
        health: NodeHealth::default(),
    };
    assert_eq!(tx.record_reports(&[hello]).await.unwrap(), 1);
    tx.set_serving_generation(node.node_id, pin).await.unwrap();
    let failed = GenerationStatusRow {
        node_id: node.node_id,
        generation: target,
        digest: tx.generation(target).await.unwrap().unwrap().digest,
        state: GenerationState::Failed,
        diagnostic: Some(DiagnosticCode::RuntimeDownloadFailed),
        connection_id,
        owner_epoch: tx.ownership().epoch,
    };
    tx.save_generation_statuses(&[failed]).await.unwrap();
    tx.commit().await.unwrap();
    let list = core.operator(Method::GET, NODES, None).await.expect(200);
    assert_eq!(
        list["data"][0]["rollout"],
        json!({ "state": "failed", "ready_generation": pin, "diagnostic": "runtime_download_failed" })
    );
}

#[tokio::test]
async fn the_list_answers_304_to_its_own_etag_until_something_changes() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    core.enroll(&json!({})).await;
    let get = || {
        core.request(Method::GET, NODES)
            .bearer_auth(core.core_key.expose())
    };
    let etag = send(get()).await.headers["etag"].clone();
    let again = send(get().header("if-none-match", &etag)).await;
    assert_eq!((again.status.as_u16(), &again.headers["etag"]), (304, &etag));
    assert!(again.body.is_null());
    let weak = format!("\"x\", W/{}", etag.to_str().unwrap());
    assert_eq!(
        send(get().header("if-none-match", weak)).await.status.as_u16(),
        304
    );
    core.enroll(&json!({})).await;
    let changed = send(get().header("if-none-match", &etag)).await;
    assert_eq!(changed.status.as_u16(), 200);
    assert_ne!(changed.headers["etag"], etag);
}

#[tokio::test]
async fn allocation_lists_are_pages_and_a_node_without_any_has_none() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({})).await;
    let own = format!("{NODES}/{}/allocations", node.node_id);
    for path in ["/core/v1/sandbox/allocations", own.as_str()] {
        assert_eq!(
            core.operator(Method::GET, path, None).await.expect(200),
            json!({ "data": [], "next": null })
        );
        for query in ["?limit=0", "?limit=101", "?cursor=x", "?limit=1&limit=1"] {
            let answer = core.operator(Method::GET, &format!("{path}{query}"), None).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, "invalid_request_error"),
                "{query}"
            );
        }
    }
    let other = format!("{NODES}/{NOBODY}/allocations");
    assert_eq!(
        core.operator(Method::GET, &other, None).await.status.as_u16(),
        404
    );
}
