//! From the command line of an operator to a host: what `oac node add` prints is what a host runs.

use std::net::IpAddr;

use oac_model::{Digest, Secret, SourceCommit};
use oac_release::{
    layout,
    made::{commit, made_of},
};
use oac_testkit::{
    host::{Host, Shell, Sudo},
    installation::Installation,
    program::{Tie, built_programs},
};
use serde_json::json;

use crate::stand_in::{Given, RAN, STAND_IN};

/// Core beside a host, reachable from it, with a Docker deployment and a release whose installer is the stand-in.
async fn installation(host: &Host, folder: &std::path::Path) -> Installation {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = IpAddr::V4(host.outside());
    let installation = Installation::start(&built_programs(), folder, address, None, Tie::Bound)
        .await
        .unwrap();
    let made = made_of(commit('a'), &layout::ROWS, |row| {
        if *row == layout::INSTALLER {
            STAND_IN.into()
        } else {
            row.suffix.into()
        }
    });
    let offer = tempfile::tempdir().unwrap();
    made.write(offer.path());
    installation.publish(offer.path()).await.unwrap();
    let image = made
        .metadata
        .manifest()
        .runtime(oac_model::ProviderKind::Docker)
        .unwrap();
    let source: SourceCommit = commit('a');
    let runtime = json!({ "source_commit": source, "artifacts": image.artifacts });
    installation.deploy(1, 512, &runtime).await.unwrap();
    installation
}

// req: G-063, G-073
#[tokio::test]
async fn host_what_oac_node_add_prints_makes_the_host_run_cores_installer_with_a_token_that_registers() {
    let host = Host::boot("added").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(&host, folder.path()).await;
    let config = installation.write_cli_config(&Secret::new("")).unwrap();
    let oac = |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(installation.program("oac"));
        command
            .arg("--config")
            .arg(&config)
            .args(arguments)
            .kill_on_drop(true);
        command
    };
    let printed = async |arguments: &[&str]| {
        let output = oac(arguments).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let line = printed(&["node", "add", "--active", "3", "--no-wait"]).await;
    let ran = ada
        .paste(Shell::Bash, line.trim_end_matches('\n'))
        .await
        .unwrap()
        .ended(0);
    assert!(ran.out.contains(RAN), "{ran:#?}");
    let given = Given::read(&host).await.unwrap();
    let id = installation.installation_id().await.unwrap().to_string();
    let arguments = given.all("argument");
    assert_eq!(
        arguments[..4],
        ["--core-url", &installation.url, "--installation-id", &id]
    );
    assert_eq!(given.all("leak"), [""; 0]);
    // The token that arrived is the one that Core gave out: it is asked what it would set up.
    let token = line.split('\'').nth(1).unwrap();
    assert_eq!(given.all("token"), [Digest::of(token).to_string()]);
    let path = "/api/v1/sandbox-node/configuration";
    let configuration = installation
        .call("GET", path, &Secret::new(token), None)
        .await
        .unwrap();
    assert_eq!(configuration["max_active"], 3);

    let line = printed(&["node", "cleanup-command"]).await;
    ada.paste(Shell::Bash, line.trim_end_matches('\n'))
        .await
        .unwrap()
        .ended(0);
    let given = Given::read(&host).await.unwrap();
    assert_eq!(given.all("argument"), ["--uninstall", "--installation-id", &id]);
    assert_eq!(given.all("input"), ["terminal"]);
    let line = printed(&["node", "cleanup-command", "--force"]).await;
    ada.paste(Shell::Bash, line.trim_end_matches('\n'))
        .await
        .unwrap()
        .ended(0);
    assert_eq!(
        Given::read(&host).await.unwrap().all("argument").last(),
        Some(&"--force")
    );
    host.end().await.unwrap();
}
