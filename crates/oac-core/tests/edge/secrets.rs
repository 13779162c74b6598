//! No credential is stored, logged or answered but once.

use oac_store::AuditRow;
use oac_testkit::core::TestCore;
use reqwest::Method;
use serde_json::json;

/// The audit log, oldest first.
pub(crate) async fn audit(core: &TestCore) -> Vec<AuditRow> {
    let mut rows = core.core().store.single().audit_log(None, 1000).await.unwrap();
    rows.reverse();
    rows
}

/// What is in the database's files, the write-ahead log included.
pub(crate) fn database_bytes(core: &TestCore) -> Vec<u8> {
    let path = core.database_url().strip_prefix("sqlite://").unwrap().to_owned();
    let folder = std::path::Path::new(&path).parent().unwrap();
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    bytes
}

// inv: INV-C14
#[tokio::test]
async fn no_credential_reaches_the_database_the_audit_log_or_a_second_answer() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    let node = core.enroll(&json!({})).await;
    let token = core.enrollment_token(&json!({})).await;
    let secrets = [&core.core_key, &core.project_key, &node.credential, &token];
    let stored = database_bytes(&core);
    assert!(!stored.is_empty());
    let told = format!("{:?}", audit(&core).await);
    let mut answers = node.identity.to_string();
    for path in [
        "/core/v1/projects".to_owned(),
        "/core/v1/sandbox/deployment".to_owned(),
        "/core/v1/sandbox/nodes".to_owned(),
        format!("/core/v1/sandbox/nodes/{}", node.node_id),
    ] {
        answers += &core
            .operator(Method::GET, &path, None)
            .await
            .expect(200)
            .to_string();
    }
    for secret in secrets {
        // The prefix tells nothing; the random part must not appear.
        let text = secret.expose().rsplit('_').next().unwrap();
        assert_eq!(text.len(), 64);
        assert!(
            !stored.windows(text.len()).any(|w| w == text.as_bytes()),
            "in the database"
        );
        assert!(!told.contains(text), "in the audit log");
        assert!(!answers.contains(text), "in an answer");
    }
}
