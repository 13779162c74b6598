//! An installation that ends before Core has registered the node: what is there by then, and what the same command makes
//! of it.

use std::time::Duration;

use oac_testkit::{
    host::{Host, Seen, Sudo, User},
    wait,
};
use oac_tests::{
    gate::{Gate, Rule},
    story::PATIENCE,
};

use crate::site::{Site, manifest, token_of};

const REGISTRATION: &str = "POST /api/v1/sandbox-node/enroll";
const CONFIGURATION: &str = "GET /api/v1/sandbox-node/configuration";
const IDENTITY: &str = "GET /api/v1/sandbox-node/identity";
const UID: u32 = 65532;

/// The processes of a host that run as `oac-node`, as `ps` shows them.
async fn of_the_account(host: &Host) -> String {
    host.output("ps -o pid=,args= -u oac-node || true").await.unwrap()
}

/// Names of a process's environment.
fn names(process: &Seen) -> Vec<&str> {
    let mut names: Vec<&str> = process
        .environment
        .iter()
        .filter_map(|variable| Some(variable.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    names
}

/// The identity that is on the host: its node's id and its credential.
async fn identity(host: &Host, site: &Site) -> (String, String) {
    let path = format!("{}/state/node/identity.json", site.node_root());
    let identity = host.output(&format!("cat {path}")).await.unwrap();
    let identity: serde_json::Value = serde_json::from_str(&identity).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (
        text(&identity["identity"]["node_id"]),
        text(&identity["credential"]),
    )
}

/// Runs the command to where it registers, which the gate holds, and kills root's part there.
async fn killed_at_registration(host: &Host, ada: &User<'_>, command: &str, gate: &Gate) -> String {
    gate.will(REGISTRATION, Rule::Hold);
    let kill = async {
        wait::until("the registration is on its way", PATIENCE, async || {
            (gate.met() > 0).then_some(())
        })
        .await
        .unwrap();
        assert!(of_the_account(host).await.contains("register"));
        host.output("pkill -KILL -u root -f '^/home/ada/.oac/node-bootstrap/[0-9a-f]*[.]run'")
            .await
            .unwrap();
        // The part as oac-node waits for an answer, and would for 30 s more: its parent's end ends it.
        wait::until("nothing of it runs", Duration::from_secs(10), async || {
            of_the_account(host).await.is_empty().then_some(())
        })
        .await
        .unwrap();
    };
    let (ran, ()) = tokio::join!(ada.run(command), kill);
    let ran = ran.unwrap();
    assert_ne!(ran.status, Some(0));
    ran.said()
}

// req: G-065, G-087
// inv: INV-I6, INV-I8, INV-I15, INV-I27
#[tokio::test]
async fn host_until_core_registers_the_node_it_knows_nothing_of_the_host_and_the_same_command_goes_on() {
    let host = Host::boot("cut").await.unwrap();
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let (site, gate) = Site::behind_a_gate(&host).await;
    let command = site.add_command().await;
    let token = token_of(&command);
    // No proxy is at that address, and none is to be asked for Core's.
    let line = format!(
        "export http_proxy=http://192.0.2.1:3128 NO_PROXY={} ALL_PROXY=http://192.0.2.9 OAC_SECRET=of-ada \
         LD_LIBRARY_PATH=/home/ada; {command}",
        host.outside()
    );

    let watch = host.watch();
    let mut said = killed_at_registration(&host, &ada, &line, &gate).await;
    let seen = watch.end();
    // Everything before the registration is done, and nothing after it; Core has no row and the token is as good as new.
    let (root, unit) = (site.node_root(), site.unit());
    let files =
        format!("cd {root} && ls bin/oac-node runtime/seccomp.json provider.json && ! ls registered.json");
    host.output(&files).await.unwrap();
    let image = manifest()["images"]["runtime"]["config_digest"]
        .as_str()
        .unwrap()
        .to_owned();
    host.output(&format!(
        "docker image inspect {image} && docker network inspect oac-node-{}",
        site.id
    ))
    .await
    .unwrap();
    host.output(&format!(
        "! ls /etc/systemd/system/{unit} && ! ls /etc/oac-node/{}.env",
        site.id
    ))
    .await
    .unwrap();
    assert!(site.nodes().await.is_empty());
    assert!(site.accepts(token).await);
    let first = identity(&host, &site).await;

    // Of ada's variables only the proxies went further than her shell.
    let hers = |process: &&Seen| {
        process
            .environment
            .iter()
            .any(|variable| variable == "OAC_SECRET=of-ada")
    };
    assert!(seen.iter().any(|process| hers(&process)), "her shell had it");
    let is_installer = |process: &&Seen| {
        process
            .arguments
            .first()
            .is_some_and(|first| first.ends_with(".run"))
    };
    let roots: Vec<_> = seen
        .iter()
        .filter(is_installer)
        .filter(|process| process.uid == 0)
        .collect();
    assert!(!roots.is_empty());
    for process in seen.iter().filter(|p| p.uid == UID).chain(roots.iter().copied()) {
        let foreign = ["OAC_SECRET", "LD_LIBRARY_PATH", "ALL_PROXY", "all_proxy"];
        assert!(
            names(process).iter().all(|name| !foreign.contains(name)),
            "{process:#?}"
        );
    }
    assert!(
        roots.iter().all(|root| names(root).contains(&"http_proxy")),
        "{roots:#?}"
    );
    let registers: Vec<_> = seen
        .iter()
        .filter(|process| {
            process.uid == UID && process.arguments.iter().any(|argument| argument == "register")
        })
        .collect();
    assert!(!registers.is_empty(), "{seen:#?}");
    let known = [
        "HOME",
        "HTTP_PROXY",
        "LANG",
        "LOGNAME",
        "NO_PROXY",
        "PATH",
        "USER",
        "http_proxy",
        "no_proxy",
    ];
    for process in registers {
        assert_eq!(names(process), known, "{process:#?}");
    }

    // Something that is not Core refuses the identity that was left: nobody's word, so it stays.
    gate.will(IDENTITY, Rule::Answer(401));
    let ran = ada.run(&line).await.unwrap().ended(1);
    let hint = format!(
        "Core at http://{} cannot be reached: check address, network and proxy.",
        gate.address
    );
    assert!(
        ran.said().contains(&hint) && !ran.said().contains(token),
        "{ran:#?}"
    );
    assert_eq!(identity(&host, &site).await, first);
    gate.will(CONFIGURATION, Rule::Answer(401));
    let ran = ada.run(&line).await.unwrap().ended(1);
    assert!(
        ran.said().contains(&hint) && !ran.said().contains(token),
        "{ran:#?}"
    );
    assert_eq!(identity(&host, &site).await, first);

    // The same command, now that nothing is in the way. Core's own word made the first identity nobody's.
    gate.open();
    let ran = ada.run(&line).await.unwrap().ended(0);
    said += &ran.said();
    let nodes = site.nodes().await;
    assert_eq!(nodes.len(), 1, "{nodes:#?}");
    let second = identity(&host, &site).await;
    assert_eq!(nodes[0]["id"], second.0.as_str());
    assert!(second.0 != first.0 && second.1 != first.1);
    assert!(!site.accepts(token).await);

    // The service has the proxies and no more of ada's.
    let main = host.main_process(&unit).await.unwrap();
    let environment = format!("tr '\\0' '\\n' </proc/{main}/environ | cut -d= -f1 | sort");
    let has = host.output(&environment).await.unwrap();
    for name in ["http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"] {
        assert!(has.lines().any(|line| line == name), "{has}");
    }
    for name in ["OAC_SECRET", "LD_LIBRARY_PATH", "ALL_PROXY", "SUDO_USER"] {
        assert!(has.lines().all(|line| line != name), "{has}");
    }

    // What was registered outweighs Core's word: a removed node's identity stays until the host is given back.
    site.said(&["node", "rm", &second.0]).await;
    let ran = ada.run(&line).await.unwrap().ended(1);
    assert!(
        ran.said()
            .contains("Core no longer accepts this node: choose Remove node on Nodes"),
        "{ran:#?}"
    );
    assert_eq!(identity(&host, &site).await, second);
    let cleanup = site.said(&["node", "cleanup-command"]).await;
    ada.run(&cleanup).await.unwrap().ended(0);
    host.output(&format!("! ls -d /etc/oac-node && ! ls -d {root}"))
        .await
        .unwrap();
    host.end().await.unwrap();
}
