//! A host's whole life as a node: one pasted command makes it one, another gives it back.

use std::process::Stdio;

use oac_testkit::{
    host::{Host, Noise, Shell, Sudo},
    wait,
};
use oac_tests::story::PATIENCE;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::site::Site;

/// What a host keeps by design when it is given back.
pub(crate) const KEPT: &[Noise] = &[
    Noise {
        begins: "file /home/ada/.oac",
        why: "the downloaded installer is the account's",
    },
    Noise {
        begins: "file /var/tmp/systemd-private-",
        why: "systemd's own, made anew by each boot",
    },
    Noise {
        begins: "image ",
        why: "images are the host's",
    },
];

// req: G-008, G-066, G-114, G-222, G-224, G-227, G-228, G-234, G-236
#[tokio::test]
async fn host_a_host_becomes_a_node_runs_a_session_survives_and_is_given_back_as_it_was() {
    let mut host = Host::boot("rack-7").await.unwrap();
    host.user("ada", Sudo::Anything).await.unwrap();
    host.output("docker volume create hers").await.unwrap();
    let before = host.picture().await.unwrap();
    let site = Site::beside(&host).await;
    let unit = site.unit();

    // The operator's command line follows what ada does on the host.
    let mut adding = site.oac(&["--json", "node", "add", "--active", "2"]);
    let mut adding = adding.stdout(Stdio::piped()).spawn().unwrap();
    let mut news = BufReader::new(adding.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = news.next_line().await.unwrap().expect("one more line");
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let command = next().await["command"].as_str().unwrap().to_owned();
    let ada = host.user_again("ada");
    let ran = ada.paste(Shell::Bash, &command).await.unwrap().ended(0);
    // The installer said so only once Core did.
    let nodes = site.nodes().await;
    assert_eq!(nodes.len(), 1, "{nodes:#?}");
    let node = nodes[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(site.is_ready(&node).await, Some(()), "{ran:#?}");
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "ready") {
        let line = next().await;
        kinds.push(line["type"].as_str().unwrap().to_owned());
        assert!(
            line["node"].is_null() || line["node"]["id"] == node.as_str(),
            "{line}"
        );
    }
    assert_eq!(kinds, ["registered", "connected", "ready"], "{ran:#?}");
    assert!(adding.wait().await.unwrap().success());

    let session = site.said(&["session", "create", "--name", "work"]).await;
    let exec = async |word: &str| {
        let arguments = ["session", "exec", session.as_str(), "--", "echo", word];
        assert_eq!(site.said(&arguments).await, word);
    };
    exec("hello").await;

    // Killed, it is back as the same node; the sandbox never noticed.
    let identity = format!("sha256sum {}/state/node/identity.json", site.node_root());
    let first_identity = host.output(&identity).await.unwrap();
    let main = host.main_process(&unit).await.unwrap();
    host.output(&format!("kill -KILL {main}")).await.unwrap();
    wait::until("the service is back", PATIENCE, async || {
        let now = host.main_process(&unit).await.ok()?;
        (now != 0 && now != main).then_some(())
    })
    .await
    .unwrap();
    let ready_again = async |what: &str| {
        wait::until(what, PATIENCE, async || site.is_ready(&node).await)
            .await
            .unwrap();
    };
    ready_again("the node is ready after it was killed").await;
    exec("again").await;
    host.reboot().await.unwrap();
    ready_again("the node is ready after a reboot").await;
    assert_eq!(host.output(&identity).await.unwrap(), first_identity);
    assert_eq!(site.nodes().await.len(), 1);

    // Removed, its service ends for good: nothing starts it again after the credential was refused.
    site.said(&["session", "rm", "--yes", &session]).await;
    wait::until("the node holds nothing", PATIENCE, async || {
        let removed = site.oac(&["node", "rm", &node]).output().await.ok()?;
        removed.status.success().then_some(())
    })
    .await
    .unwrap();
    host.until(
        "the service ended with Core's refusal",
        &format!("systemctl show -p ExecMainStatus --value {unit} | grep -qx 78 && ! systemctl is-active --quiet {unit}"),
    )
    .await
    .unwrap();
    // Not `activating`, which it would be while a restart is due.
    let state = format!("systemctl show -p SubState --value {unit}");
    assert_eq!(host.output(&state).await.unwrap().trim(), "failed");

    let cleanup = site.said(&["node", "cleanup-command"]).await;
    let ada = host.user_again("ada");
    let ran = ada.paste(Shell::Bash, &cleanup).await.unwrap().ended(0);
    let (_, told) = ran
        .out
        .split_once("Deleted:")
        .unwrap_or_else(|| panic!("{ran:#?}"));
    let (deleted, kept) = told.split_once("Kept:").unwrap_or_else(|| panic!("{ran:#?}"));
    for what in [
        unit.as_str(),
        &format!("oac-node-{}", site.id),
        &site.node_root(),
        "the account oac-node",
    ] {
        assert!(deleted.contains(what), "{what}: {ran:#?}");
    }
    for what in [
        "rm -f /home/ada/.oac/node-bootstrap/*.run",
        "sudo docker image rm sha256:",
    ] {
        assert!(kept.contains(what), "{what}: {ran:#?}");
    }
    let after = host.picture().await.unwrap();
    let changes = before.changes(&after, KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    assert_eq!(after.all("image").len(), before.all("image").len() + 1);
    assert_eq!(after.all("volume"), ["hers"]);
    let again = ada.paste(Shell::Bash, &cleanup).await.unwrap().ended(0);
    let nothing = format!("Nothing of installation {} is on this host.", site.id);
    assert!(again.out.contains(&nothing), "{again:#?}");
    host.end().await.unwrap();
}
