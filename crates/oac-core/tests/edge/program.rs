//! The program `oac-core` itself.

use std::{path::Path, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use oac_core::config::Config;
use oac_model::{NodeId, Secret};
use oac_testkit::{
    core::{new_secret, send},
    program::Program,
};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_tungstenite::tungstenite::Message;

const LONG: Duration = Duration::from_secs(60);
const EXE: &str = env!("CARGO_BIN_EXE_oac-core");

/// A configuration in `folder` whose Core listens on a free port.
fn configure(folder: &Path, more: &str) -> (std::path::PathBuf, String) {
    let port = oac_testkit::port::unused(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    let path = folder.join("config.toml");
    let database = folder.join("core.db");
    let text = format!(
        "listen = [\"127.0.0.1:{port}\"]\nmetrics_listen = \"\"\npublic_url = \"http://core.test:{port}\"\n{more}\n\
         [database]\nurl = \"sqlite://{}\"\n",
        database.display()
    );
    std::fs::write(&path, text).unwrap();
    (path, format!("http://127.0.0.1:{port}"))
}

async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(EXE).args(arguments).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Waits until the program serves; a client that speaks plain http.
async fn until_serving(core: &mut Program, url: &str) -> reqwest::Client {
    // Only for its provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ready = format!("{url}/readyz");
    core.until("Core serves", LONG, async || {
        http.get(&ready)
            .send()
            .await
            .ok()
            .filter(|r| r.status().is_success())
            .map(drop)
    })
    .await
    .unwrap();
    http
}

/// Why a Core that logs did not start: all it said, as one line of its log.
async fn refused(config: &str) -> String {
    let (code, out, err) = run(&["run", "--config", config]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    let line: Value = serde_json::from_str(&err).unwrap_or_else(|error| panic!("{error}: {err}"));
    assert_eq!(err.lines().count(), 1, "{err}");
    assert_eq!(
        (&line["level"], &line["fields"]["event"]),
        (&json!("ERROR"), &json!("program_failed"))
    );
    line["fields"]["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_not_built_or_not_configured_refuses_in_one_line_of_the_log_and_serves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _) = configure(folder.path(), "colour = \"blue\"");
    let path = config.to_str().unwrap();
    let error = refused(path).await;
    assert!(error.contains("line 4: unknown field `colour`"), "{error}");
    // Whoever asks for something else is a person or a script.
    let (code, _, err) = run(&["core-key", "list", "--config", path]).await;
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with("oac-core: ") && err.contains("line 4: unknown field `colour`"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    configure(folder.path(), "tls = 'a secret'");
    let error = refused(path).await;
    assert!(
        error.contains("line 4: expected ") && !error.contains("secret"),
        "{error}"
    );
    configure(folder.path(), "seal_key_file = \"/x\"");
    let error = refused(path).await;
    assert!(
        error.ends_with("`seal_key_file` is not supported by this build: remove it from the configuration"),
        "{error}"
    );
    assert!(!folder.path().join("core.db").exists(), "nothing was opened");
}

// inv: INV-C14, INV-P25, INV-S12
#[tokio::test]
async fn a_core_serves_until_sigterm_and_its_log_arguments_and_environment_hold_no_credential() {
    let folder = tempfile::tempdir().unwrap();
    let (config, url) = configure(folder.path(), "");
    let path = config.to_str().unwrap();
    let mut command = Command::new(EXE);
    command.args(["run", "--config", path]).env("OAC_LOG", "trace");
    let mut core = Program::start("oac-core", command, &folder.path().join("core.log")).unwrap();
    let http = until_serving(&mut core, &url).await;

    // Keys are made and revoked beside the serving Core.
    let (code, out, err) = run(&["core-key", "create", "--config", path, "--name", "tests"]).await;
    assert_eq!(code, Some(0), "{err}");
    let core_key = Secret::new(out.trim_end());
    assert!(core_key.expose().starts_with("oac_core_") && core_key.expose().len() == "oac_core_".len() + 64);
    let post = |path: &str, credential: &Secret, body: Value| {
        send(
            http.post(format!("{url}{path}"))
                .bearer_auth(credential.expose())
                .json(&body),
        )
    };
    let selection = oac_testkit::core::docker_selection(0, 2, 2048);
    let saved = post("/core/v1/sandbox/deployment", &core_key, selection)
        .await
        .expect(200);
    let token = post("/core/v1/sandbox/enrollment-tokens", &core_key, json!({}))
        .await
        .expect(201);
    let token = Secret::new(token["token"].as_str().unwrap());
    let credential = new_secret("");
    let body = json!({
        "node_id": NodeId::random(),
        "credential": credential.expose(),
        "name": "node",
        "provider": "docker",
        "backend_fingerprint": "ab".repeat(32),
        "deployment_generation": 1,
        "specification_digest": saved["specification_digest"],
        "core_url": saved["core_url"],
    });
    post("/api/v1/sandbox-node/enroll", &token, body)
        .await
        .expect(201);

    // A sandbox's first message, which opens nothing.
    let link = new_secret("");
    let hello = json!({
        "version": 1, "type": "hello", "credential": link.expose(), "runtime_version": "1",
        "instance_id": NodeId::random(),
        "resource": {
            "tenant_id": NodeId::random(), "environment_id": NodeId::random(), "kind": "allocation",
            "id": NodeId::random(), "generation": 1,
        },
    });
    let address = url.replacen("http", "ws", 1) + "/api/v1/sandbox-link";
    let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
    socket.send(Message::text(hello.to_string())).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(answer.contains("link_credential_rejected"), "{answer}");

    let id = err.split_whitespace().nth(2).unwrap();
    let listed = async || run(&["core-key", "list", "--config", path]).await.1;
    let before = listed().await;
    let words: Vec<&str> = before.split_whitespace().collect();
    assert_eq!(
        (words.len(), words[0], words[2], words[3]),
        (4, id, "-", "tests"),
        "{before}"
    );
    assert_eq!(
        run(&["core-key", "revoke", "--config", path, id]).await.0,
        Some(0)
    );
    assert_eq!(
        run(&["core-key", "revoke", "--config", path, id]).await.0,
        Some(1)
    );
    let after = listed().await;
    assert_eq!(after.split_whitespace().next(), Some(id));
    assert_ne!(after.split_whitespace().nth(2), Some("-"), "{after}");
    let answer = post("/core/v1/projects", &core_key, json!({ "name": "late" })).await;
    assert_eq!(answer.status.as_u16(), 401);

    let proc = format!("/proc/{}", core.pid().unwrap());
    let told = [format!("{proc}/cmdline"), format!("{proc}/environ")]
        .map(|p| std::fs::read(p).unwrap())
        .concat();
    let told = String::from_utf8_lossy(&told).into_owned() + &core.log_text();
    assert!(told.contains("sqlite") || told.contains("run"));
    for secret in [&core_key, &token, &credential, &link] {
        let text = secret.expose().rsplit('_').next().unwrap();
        assert!(!told.contains(text));
    }

    assert_eq!(core.stop().await, Some(0));
    // The lease was given up: another holder need not wait for it.
    let config = Config::load(&config).unwrap();
    let options = oac_store::StoreOptions::new(config.database);
    let store = oac_store::Store::open(options).await.unwrap();
    assert!(store.single().owner().await.unwrap().expired());
}
