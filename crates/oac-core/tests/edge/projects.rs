//! Projects and their keys.

use oac_model::Secret;
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::json;

use crate::secrets::audit;

// inv: INV-C15
#[tokio::test]
async fn a_project_and_its_keys_come_and_go_each_with_one_audit_entry() {
    let core = TestCore::start().await;
    let before = audit(&core).await.len();
    let project = core
        .operator(Method::POST, "/core/v1/projects", Some(&json!({ "name": "p" })))
        .await
        .expect(201);
    let path = format!("/core/v1/projects/{}", project["id"].as_str().unwrap());
    let list = core
        .operator(Method::GET, "/core/v1/projects", None)
        .await
        .expect(200);
    assert!(list["data"].as_array().unwrap().contains(&project));
    let keys = format!("{path}/keys");
    let key = core
        .operator(Method::POST, &keys, Some(&json!({ "name": "k" })))
        .await
        .expect(201);
    let secret = Secret::new(key["key"].as_str().unwrap());
    assert!(secret.expose().starts_with("oac_key_") && secret.expose().len() == "oac_key_".len() + 64);
    let read = core.core().store.single();
    let stored = read.authenticate_project_key(&secret).await.unwrap().unwrap();
    assert_eq!(stored.project_id.to_string(), project["id"].as_str().unwrap());

    let revoke = format!("{keys}/{}", key["id"].as_str().unwrap());
    core.operator(Method::DELETE, &revoke, None).await.expect(204);
    assert_eq!(
        core.operator(Method::DELETE, &revoke, None).await.status.as_u16(),
        404
    );
    assert!(read.authenticate_project_key(&secret).await.unwrap().is_none());

    let key = core
        .operator(Method::POST, &keys, Some(&json!({ "name": "k" })))
        .await
        .expect(201);
    let secret = Secret::new(key["key"].as_str().unwrap());
    core.operator(Method::DELETE, &path, None).await.expect(204);
    assert!(
        read.authenticate_project_key(&secret).await.unwrap().is_none(),
        "a deleted Project's key"
    );
    assert_eq!(
        core.operator(Method::DELETE, &path, None).await.status.as_u16(),
        404
    );
    assert_eq!(
        core.operator(Method::POST, &keys, Some(&json!({ "name": "k" })))
            .await
            .status
            .as_u16(),
        404
    );

    let entries: Vec<_> = audit(&core).await[before..]
        .iter()
        .map(|e| format!("{} {} {}", e.resource_type, e.action, e.actor))
        .collect();
    let actor = format!("core_key:{}", core.core_key_id);
    let expected: Vec<_> = [
        "project create",
        "key create",
        "key delete",
        "key create",
        "project delete",
    ]
    .iter()
    .map(|what| format!("{what} {actor}"))
    .collect();
    assert_eq!(entries, expected);
}
