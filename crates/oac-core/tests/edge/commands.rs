//! The commands that operators paste on hosts, as Core answers them.

use oac_model::Secret;
use oac_release::{
    layout,
    made::{commit, made, made_of},
};
use oac_testkit::core::{CoreOptions, TestCore};
use reqwest::Method;
use serde_json::{Value, json};

use crate::releases::{publish, settled};

const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const CLEANUP: &str = "/core/v1/sandbox/cleanup-commands";
const ENROLL: &str = "/api/v1/sandbox-node/enroll";

async fn token(core: &TestCore) -> Value {
    core.operator(Method::POST, TOKENS, Some(&json!({})))
        .await
        .expect(201)
}

/// The words of a command after its script, without their quotes.
fn words(command: &str) -> Vec<&str> {
    let (_, tail) = command.split_once("' oac-node-bootstrap ").unwrap();
    tail.split(' ').map(|word| word.trim_matches('\'')).collect()
}

// req: G-010, G-052, G-073
#[tokio::test]
async fn a_token_comes_with_the_command_that_carries_it_once_core_has_every_file_a_host_needs() {
    let core = TestCore::start().await;
    core.deploy(2, 2048).await;
    assert_eq!(token(&core).await["command"], Value::Null, "no release");
    // Without the seccomp profile, which nodes of Docker need.
    let rows = [layout::NODE, layout::INSTALLER, layout::IMAGE];
    publish(
        &core,
        &made_of(commit('a'), &rows, |row| row.suffix.as_bytes().to_vec()),
        false,
    );
    settled(&core, 'a').await;
    assert_eq!(token(&core).await["command"], Value::Null, "no files for Docker");

    let release = made(commit('b'), "whole");
    publish(&core, &release, false);
    settled(&core, 'b').await;
    let created = token(&core).await;
    let (text, command) = (
        created["token"].as_str().unwrap(),
        created["command"].as_str().unwrap(),
    );
    assert!(
        command.starts_with(&format!(" echo '{text}' | sh -c 'umask 077; ")),
        "{command}"
    );
    assert_eq!(command.matches(text).count(), 1);
    let deployment = core
        .operator(Method::GET, "/core/v1/sandbox/deployment", None)
        .await
        .expect(200);
    let public = core.public_url.as_deref().unwrap();
    let filename = layout::INSTALLER.filename(commit('b'));
    let url = format!(
        "{public}/api/v1/sandbox-node/install/releases/{}/artifacts/{filename}",
        commit('b')
    );
    let installer = release
        .metadata
        .manifest()
        .named(&filename)
        .unwrap()
        .sha256
        .to_string();
    let manifest = release.metadata.manifest_sha256().to_string();
    let expected = [
        installer.as_str(),
        &url,
        "--core-url",
        public,
        "--installation-id",
        deployment["installation_id"].as_str().unwrap(),
        "--provider",
        "docker",
        "--manifest-sha256",
        &manifest,
        "--enrollment-token-stdin",
    ];
    assert_eq!(words(command), expected);

    // The token in it registers one node, once.
    let token = Secret::new(text);
    let (body, _) = core.enrollment().await;
    core.call(Method::POST, ENROLL, Some(&token), Some(&body))
        .await
        .expect(201);
    let again = core.call(Method::POST, ENROLL, Some(&token), Some(&body)).await;
    assert_eq!(again.status.as_u16(), 401);
}

#[tokio::test]
async fn a_host_is_given_back_by_one_command_that_needs_an_address_and_an_installer() {
    let nowhere = TestCore::with(CoreOptions {
        public_url: Some(None),
        ..CoreOptions::default()
    })
    .await;
    let core = TestCore::start().await;
    for (core, said) in [
        (
            &nowhere,
            "Set a public address other machines can reach before adding nodes",
        ),
        (
            &core,
            "This console serves no node installer: publish a release that holds it.",
        ),
    ] {
        let answer = core.operator(Method::GET, CLEANUP, None).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (409, "sandbox_configuration_error")
        );
        assert_eq!(answer.body["error"]["message"], said);
    }
    publish(&core, &made(commit('a'), "x"), false);
    settled(&core, 'a').await;
    // Without a configuration too: a host may be left from the one before.
    let commands = core.operator(Method::GET, CLEANUP, None).await.expect(200);
    let (command, forced) = (&commands["command"], &commands["forced_command"]);
    let command = command.as_str().unwrap();
    assert!(command.starts_with(" sh -c 'umask 077; "), "{command}");
    let words = words(command);
    assert_eq!(words[2..4], ["--uninstall", "--installation-id"]);
    assert_eq!(words.len(), 5);
    assert_eq!(forced.as_str().unwrap(), format!("{command} --force"));
}
