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
    wait,
};
use oac_tests::story::PATIENCE;
use serde_json::{Value, json};

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

/// Makes the host Core's, and what it printed.
async fn set_up(host: &Host, arguments: &str) -> String {
    host.output(&format!("oac-core setup {arguments}")).await.unwrap()
}

#[tokio::test]
async fn host_setup_makes_a_host_cores_and_again_changes_nothing() {
    let mut host = Host::boot("core").await.unwrap();
    let program = built_programs().join("oac-core");
    host.put(&program, "/usr/local/bin/oac-core", "0755")
        .await
        .unwrap();

    // Refusals come before any change.
    let bob = host.user("bob", Sudo::Nothing).await.unwrap();
    let before = host.picture().await.unwrap();
    let ran = bob.run("oac-core setup").await.unwrap().ended(1);
    assert!(
        ran.err.contains("Run this command as root or with sudo."),
        "{ran:#?}"
    );
    host.output("useradd --uid 65532 --no-create-home other")
        .await
        .unwrap();
    let ran = host.run("oac-core setup").await.unwrap().ended(1);
    assert!(ran.err.contains("UID 65532 belongs to other"), "{ran:#?}");
    host.output("userdel other; useradd --uid 4000 --no-create-home oac-node")
        .await
        .unwrap();
    let ran = host.run("oac-core setup").await.unwrap().ended(1);
    assert!(
        ran.err
            .contains("Account oac-node differs (its UID is not 65532)"),
        "{ran:#?}"
    );
    host.output("userdel oac-node; groupadd oac-node").await.unwrap();
    let ran = host.run("oac-core setup").await.unwrap().ended(1);
    assert!(
        ran.err.contains("Group oac-node exists without the account"),
        "{ran:#?}"
    );
    host.output("groupdel oac-node").await.unwrap();
    host.output("install -D -m 700 /usr/local/bin/oac-core /root/oac-core")
        .await
        .unwrap();
    let ran = host.run("/root/oac-core setup").await.unwrap().ended(1);
    assert!(ran.err.contains("cannot be run by another account"), "{ran:#?}");
    host.output("rm /root/oac-core").await.unwrap();
    let changes = before.changes(&host.picture().await.unwrap(), &[]);
    assert!(changes.is_empty(), "{changes:#?}");

    let url = format!("http://{}:8080", host.address());
    let said = set_up(
        &host,
        &format!("--public-url {url} --listen {}:8080", host.address()),
    )
    .await;
    let key = said
        .split_whitespace()
        .find(|word| word.starts_with("oac_core_"))
        .unwrap();
    let key = Secret::new(key);
    let http = reqwest::Client::new();
    let deployment = async || {
        let request = http
            .get(format!("{url}/core/v1/sandbox/deployment"))
            .bearer_auth(key.expose());
        let answer = request.send().await.ok()?;
        answer.status().is_success().then_some(())?;
        answer.json::<Value>().await.ok()
    };
    let serves = async |what: &str| wait::until(what, PATIENCE, &deployment).await.unwrap();
    let first = serves("Core serves").await;
    let account = host.output("getent passwd oac-node").await.unwrap();
    assert!(
        account.starts_with("oac-node:x:65532:") && account.contains(":/var/lib/oac-node:"),
        "{account}"
    );
    let main = host.main_process("oac-core").await.unwrap();
    assert_eq!(
        host.output(&format!("ps -o uid= {main}")).await.unwrap().trim(),
        "65532"
    );
    let modes = "stat -c '%a %U' /var/lib/oac-node /var/lib/oac-core /var/lib/oac-core/releases \
        /var/lib/oac-core/core.db /etc/oac-core/config.toml";
    let modes = host.output(modes).await.unwrap();
    assert_eq!(
        modes,
        "700 oac-node\n700 oac-node\n755 oac-node\n600 oac-node\n644 root\n"
    );
    // The key is nowhere but in what was printed.
    let text = key.expose();
    host.output(&format!(
        "! grep -rlF {text} /etc /root /home /var/lib/oac-core /var/log"
    ))
    .await
    .unwrap();

    // Again: nothing is made anew, nothing restarted, no key printed.
    let before = host.picture().await.unwrap();
    let said = set_up(&host, "").await;
    assert!(
        !said.contains("oac_core_") && said.contains("There is a Core key already"),
        "{said}"
    );
    assert_eq!(host.main_process("oac-core").await.unwrap(), main);
    let database = [oac_testkit::host::Noise {
        begins: "file /var/lib/oac-core/core.db",
        why: "Core works",
    }];
    let changes = before.changes(&host.picture().await.unwrap(), &database);
    assert!(changes.is_empty(), "{changes:#?}");

    // It comes back after a crash and after a reboot, and is the same installation.
    host.output(&format!("kill -KILL {main}")).await.unwrap();
    assert_eq!(
        serves("Core is back").await["installation_id"],
        first["installation_id"]
    );
    host.reboot().await.unwrap();
    assert_eq!(
        serves("Core starts with its host").await["installation_id"],
        first["installation_id"]
    );
    host.end().await.unwrap();
}
