//! `oac admin` against a scripted Core.

use std::process::Output;

use axum::{Router, http::StatusCode, routing::post};
use serde_json::json;

const PROJECT: &str = "11111111-1111-4111-8111-111111111111";
const KEY: &str = "22222222-2222-4222-8222-222222222222";

async fn oac(arguments: &[&str]) -> Output {
    let created = || async {
        let key = json!({ "id": KEY, "project_id": PROJECT, "name": "application", "key": "oac_key_0", "created_at": "2026-01-01T00:00:00Z" });
        (StatusCode::CREATED, axum::Json(key))
    };
    let app = Router::new().route(&format!("/core/v1/projects/{PROJECT}/keys"), post(created));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = axum::serve(listener, app).into_future();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let config = oac_cli::config::Config {
        url,
        core_key: Some(oac_model::Secret::new("oac_core_0")),
        project_key: None,
    };
    config.save(&path).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_oac"));
    command
        .arg("--config")
        .arg(&path)
        .args(arguments)
        .kill_on_drop(true);
    tokio::select! {
        output = command.output() => output.unwrap(),
        _ = server => panic!("the server ended"),
    }
}

#[tokio::test]
async fn a_created_project_key_is_alone_on_standard_output_and_its_id_on_standard_error() {
    let output = oac(&["admin", "key", "create", PROJECT, "application"]).await;
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "oac_key_0\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(KEY), "{said}");
    assert!(!said.contains("oac_key_0"), "{said}");
}

#[tokio::test]
async fn a_name_in_place_of_an_id_is_refused_with_what_to_give() {
    for arguments in [
        &["admin", "key", "create", "demo", "application"][..],
        &["admin", "key", "rm", PROJECT, "application"],
        &["admin", "project", "rm", "demo"],
        &["session", "show", "mine"],
    ] {
        let output = oac(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("give the id"), "{arguments:?}: {said}");
    }
}
