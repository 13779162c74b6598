//! `oac-core setup` on a host of its own (core.md section 1).

use oac_model::Secret;
use oac_testkit::{
    host::{Host, Noise, Sudo},
    program::built_programs,
    wait,
};
use oac_tests::story::PATIENCE;
use serde_json::Value;

/// Makes the host Core's, and what it printed.
async fn set_up(host: &Host, arguments: &str) -> String {
    host.output(&format!("oac-core setup {arguments}")).await.unwrap()
}

#[tokio::test]
async fn host_setup_makes_a_host_cores_and_again_changes_nothing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
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
        ran.err.contains("Account oac-node differs (its UID is 4000)"),
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
    let database = [Noise {
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
