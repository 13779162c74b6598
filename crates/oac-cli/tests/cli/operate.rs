//! Operating nodes, what they hold, and the log of it, against a real Core.

use oac_testkit::core::TestCore;
use serde_json::json;

use crate::program::Oac;

async fn installation() -> (TestCore, Oac, String) {
    let core = TestCore::start().await;
    core.deploy(1, 512).await;
    let node = core.enroll(&json!({ "max_active": 2, "max_retained": 2 })).await;
    let oac = Oac::with(&format!(
        "url = \"{}\"\ncore_key = \"{}\"\n",
        core.url,
        core.core_key.expose()
    ));
    (core, oac, node.node_id.to_string())
}

#[tokio::test]
async fn an_edit_changes_what_is_given_and_keeps_the_rest() {
    let (_core, oac, node) = installation().await;
    let edit = async |more: &[&str]| {
        let arguments = [&["--json", "node", "edit", &node], more].concat();
        let shown = oac.run(&arguments).await.expect(0).json();
        (
            shown["name"].clone(),
            shown["max_active"].clone(),
            shown["max_retained"].clone(),
        )
    };
    assert_eq!(
        edit(&["--name", "rack 7"]).await,
        (json!("rack 7"), json!(2), json!(2))
    );
    assert_eq!(
        edit(&["--max-active", "8"]).await,
        (json!("rack 7"), json!(8), json!(8))
    );
    let said = oac
        .run(&["node", "edit", &node, "--max-active", "0"])
        .await
        .expect(1);
    assert!(said.err.contains("invalid_node_capacity"), "{said:?}");
    let said = oac.run(&["node", "edit", &node]).await.expect(2);
    assert!(said.err.contains("--max-active"), "{said:?}");
    let said = oac.run(&["node", "edit", &node, "--recommended"]).await.expect(2);
    assert!(said.err.contains("no recommendation"), "{said:?}");
    let said = oac.run(&["node", "edit", "rack", "--name", "n"]).await.expect(2);
    assert!(said.err.contains("give the id"), "{said:?}");
}

#[tokio::test]
async fn labels_are_set_and_removed_one_by_one() {
    let (_core, oac, node) = installation().await;
    oac.run(&["node", "label", &node, "zone=a", "disk=ssd"])
        .await
        .expect(0);
    let said = oac
        .run(&["--json", "node", "label", &node, "zone=b", "disk-", "gpu="])
        .await
        .expect(0);
    assert_eq!(said.json()["labels"], json!({ "zone": "b", "gpu": "" }));
    let shown = oac.run(&["node", "show", &node]).await.expect(0).out;
    assert!(shown.contains("gpu= zone=b"), "{shown}");
    oac.run(&["node", "label", &node, "Zone=b"]).await.expect(1);
    oac.run(&["node", "label", &node, "zone"]).await.expect(2);
}

#[tokio::test]
async fn a_node_is_cordoned_drained_and_removed_and_the_log_tells_it() {
    let (core, oac, node) = installation().await;
    oac.run(&["node", "cordon", &node]).await.expect(0);
    let listed = oac.run(&["node", "ls"]).await.expect(0).out;
    assert!(listed.contains("offline, cordoned"), "{listed}");
    // It holds nothing, so a drain is over at once; the answer still shows it.
    let drain = ["node", "drain", &node, "--deadline", "60", "--then", "terminate"];
    let said = oac.run(&drain).await.expect(0);
    assert!(
        said.out.contains("draining") && said.out.contains("then terminate"),
        "{said:?}"
    );
    oac.run(&["node", "drain", &node, "--cancel"]).await.expect(0);
    oac.run(&["node", "drain", &node, "--cancel", "--deadline", "60"])
        .await
        .expect(2);
    oac.run(&["node", "drain", &node, "--deadline", "59"])
        .await
        .expect(2);
    oac.run(&["node", "uncordon", &node]).await.expect(0);
    let said = oac
        .run(&["allocation", "ls", "--node", &node, "--json"])
        .await
        .expect(0);
    assert_eq!(said.json(), json!({ "data": [] }));
    oac.run(&["allocation", "list"]).await.expect(0);
    oac.run(&["node", "rm", &node]).await.expect(0);
    let said = oac.run(&["node", "rm", &node]).await.expect(1);
    assert!(said.err.contains("not_found_error"), "{said:?}");

    let newest = oac
        .run(&["--json", "audit", "--limit", "1"])
        .await
        .expect(0)
        .json();
    let entries = newest["data"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (&entries[0]["action"], &entries[0]["resource_id"]),
        (&json!("remove"), &json!(node))
    );
    let all = oac.run(&["audit", "--limit", "1000"]).await.expect(0).out;
    for action in [
        "node cordon",
        "node drain_start",
        "node uncordon",
        "node remove",
        "project create",
    ] {
        assert!(all.contains(action), "{action}: {all}");
    }
    assert!(all.contains(&format!("core_key:{}", core.core_key_id)));
}

#[tokio::test]
async fn a_discard_wants_the_loss_accepted_and_an_allocation_that_is_there() {
    let (_core, oac, node) = installation().await;
    let said = oac.run(&["allocation", "discard", &node]).await.expect(2);
    assert!(said.err.contains("--accept-loss"), "{said:?}");
    let both = [
        "allocation",
        "discard",
        &node,
        "--accept-loss",
        "--former-computes",
    ];
    oac.run(&both).await.expect(2);
    for loss in ["--accept-loss", "--former-computes"] {
        let said = oac
            .run(&["--json", "allocation", "discard", &node, loss])
            .await
            .expect(1);
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["error"]["code"], "not_found_error", "{loss}");
    }
}

#[tokio::test]
async fn usage_of_sandboxes_and_the_history_of_a_host_are_shown() {
    let (_core, oac, node) = installation().await;
    let usage = oac.run(&["--json", "allocation", "usage"]).await.expect(0).json();
    assert_eq!(usage["data"], json!([]));
    let usage = oac
        .run(&["allocation", "usage", "--session", &node])
        .await
        .expect(0);
    assert!(usage.out.starts_with("ALLOCATION"), "{usage:?}");
    let history = oac
        .run(&["--json", "node", "history", &node, "--range", "6h"])
        .await
        .expect(0)
        .json();
    assert_eq!(history["history"]["resolution_seconds"], 300);
    let history = oac.run(&["node", "history", &node]).await.expect(0);
    assert_eq!(history.out.lines().count(), 61, "{history:?}");
    let said = oac
        .run(&["node", "history", &node, "--range", "7d"])
        .await
        .expect(2);
    assert!(said.err.contains("24h"), "{said:?}");
}
