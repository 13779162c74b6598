//! What an installation is to its host: what it changes, with whose rights, and where the token goes.

use oac_testkit::host::{Change, Host, Noise, Seen, Shell, Sudo};

use crate::{
    site::{Site, token_of},
    story::KEPT,
};

const UID: u32 = 65532;
const ENGINE: &str = "/run/docker.sock";

/// What comes with the installation's network: the engine's doing, not the installer's.
const NETWORK: &[Noise] = &[
    Noise {
        begins: "sysctl net.ipv4.conf.br-",
        why: "the network's bridge",
    },
    Noise {
        begins: "sysctl net.ipv4.neigh.br-",
        why: "the network's bridge",
    },
    Noise {
        begins: "sysctl net.ipv6.conf.br-",
        why: "the network's bridge",
    },
    Noise {
        begins: "sysctl net.ipv6.neigh.br-",
        why: "the network's bridge",
    },
    Noise {
        begins: "address br-",
        why: "the network's bridge",
    },
];

/// Whether a change is one that the guide announces.
fn is_announced(change: &Change, site: &Site) -> bool {
    let what = change.what.as_str();
    let unit = site.unit();
    let exact = [
        format!("file /etc/systemd/system/{unit}"),
        format!("file /etc/systemd/system/multi-user.target.wants/{unit}"),
        format!("unit-file {unit}"),
        format!("unit {unit}"),
        "file /etc/oac-node".to_owned(),
        "file /etc/oac-node/account.json".to_owned(),
        format!("file /etc/oac-node/{}.json", site.id),
        "user oac-node".to_owned(),
        "group oac-node".to_owned(),
        "group docker".to_owned(),
        format!("network oac-node-{}", site.id),
    ];
    // The account's line in them; every line but its own and its group's is compared one by one.
    let accounts = ["passwd", "shadow", "group", "gshadow"].map(|name| format!("file /etc/{name}"));
    let below = ["file /var/lib/oac-node", "file /home/ada/.oac", "image "];
    exact.iter().chain(&accounts).any(|known| known == what)
        || below.iter().any(|begin| what.starts_with(begin))
        // The engine filters between its networks.
        || what.starts_with("firewall iptables-save ") && what.contains(" br-")
}

/// The installer's processes: root's, and the part as `oac-node` with whatever it starts.
fn of_installer(seen: &[Seen]) -> (Vec<&Seen>, Vec<&Seen>) {
    let is_installer = |process: &&Seen| {
        let first = process.arguments.first();
        first.is_some_and(|path| path.contains("/.oac/node-bootstrap/"))
    };
    let roots = seen
        .iter()
        .filter(is_installer)
        .filter(|process| process.uid == 0);
    (
        roots.collect(),
        seen.iter().filter(|process| process.uid == UID).collect(),
    )
}

/// Holds the token while it is searched for: it would be found.
const PLANTED: &str = "/var/planted";

/// Where `token` is on the host, below every place that anything writes to.
async fn files_with(host: &Host, token: &str) -> String {
    // Not as an argument of grep, which would find itself; `p` is the file of patterns.
    let script = format!(
        "umask 077; p=$(mktemp -p /dev/shm); cat >$p <<'end'\n{token}\nend\n\
         cp $p /var/planted; grep -arlF -f $p /etc /home /root /var /tmp /opt /srv /run /usr/local 2>/dev/null; \
         rm $p /var/planted"
    );
    host.output(&script).await.unwrap()
}

// req: G-067, G-071, G-081, G-084, G-104, G-109, G-111, G-112, G-115, G-117, G-118, G-119, G-120, G-124, G-125, G-127, G-128, G-161
// inv: INV-I2, INV-I24
#[tokio::test]
async fn host_an_installation_changes_what_is_announced_and_nothing_else_and_the_token_is_nowhere() {
    let host = Host::boot("changed").await.unwrap();
    host.user("ada", Sudo::Anything).await.unwrap();
    let devices = "find /dev -xdev ! -path '/dev/pts/*' ! -path '/dev/shm/*' -printf '%p %m %U:%G\\n' | sort; \
        stat -c '%n %a %U:%G' /run/docker.sock";
    let devices_before = host.output(devices).await.unwrap();
    let before = host.picture().await.unwrap();
    let site = Site::beside(&host).await;
    let command = site.add_command().await;
    let token = token_of(&command).to_owned();

    let (watch, peers) = (host.watch(), host.peers_of(ENGINE).await.unwrap());
    let ada = host.user_again("ada");
    let ran = ada.paste(Shell::Bash, &command).await.unwrap().ended(0);
    let (asked_engine, seen) = (peers.end(&host).await.unwrap(), watch.end());

    // What changed.
    let after = host.picture().await.unwrap();
    let changes = before.changes(&after, NETWORK);
    let unannounced: Vec<_> = changes
        .iter()
        .filter(|change| !is_announced(change, &site))
        .collect();
    assert!(unannounced.is_empty(), "{unannounced:#?}");
    assert_eq!(host.output(devices).await.unwrap(), devices_before);
    let others = |picture: &oac_testkit::host::Picture| {
        let users = picture.all("user").into_iter().filter(|name| *name != "oac-node");
        users
            .map(|name| picture.of(&format!("user {name}")).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(others(&before), others(&after));

    // The account, its groups, its files.
    let passwd = host.output("getent passwd oac-node").await.unwrap();
    let fields: Vec<&str> = passwd.trim().split(':').collect();
    assert_eq!((fields[2], fields[5]), ("65532", "/var/lib/oac-node"), "{passwd}");
    assert!(fields[6].ends_with("/nologin"), "{passwd}");
    assert_eq!(
        host.output("id -Gn oac-node").await.unwrap().trim(),
        "oac-node docker"
    );
    let docker: u32 = host
        .output("getent group docker | cut -d: -f3")
        .await
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let foreign = "find /var/lib/oac-node ! -user oac-node -print";
    assert_eq!(host.output(foreign).await.unwrap(), "");
    let root = site.node_root();
    let files =
        format!("cd {root} && ls bin/oac-node provider.json installation.json state/node/identity.json");
    host.output(&files).await.unwrap();

    // The service.
    let unit = site.unit();
    let path = format!("/etc/systemd/system/{unit}");
    assert_eq!(
        host.output(&format!("stat -c '%a %U:%G' {path}"))
            .await
            .unwrap()
            .trim(),
        "644 root:root"
    );
    let main = host.main_process(&unit).await.unwrap();
    assert_eq!(
        host.output(&format!("ps -o user= -p {main}"))
            .await
            .unwrap()
            .trim(),
        "oac-node"
    );
    let is = format!(
        "systemctl is-active {unit}; systemctl is-enabled {unit}; systemctl show -p User --value {unit}"
    );
    assert_eq!(host.output(&is).await.unwrap(), "active\nenabled\noac-node\n");
    let verified = host
        .run(&format!("systemd-analyze verify {path}"))
        .await
        .unwrap()
        .ended(0);
    assert_eq!(verified.said(), "");
    let network = host
        .output(&format!("docker network inspect oac-node-{}", site.id))
        .await
        .unwrap();
    assert!(
        network.contains(&format!("\"io.oac.installation\": \"{}\"", site.id)),
        "{network}"
    );

    // Root's part never speaks to the engine; the other has no terminal and no right that it was not given.
    assert!(
        !asked_engine.is_empty() && asked_engine.iter().all(|uid| *uid == UID),
        "{asked_engine:?}"
    );
    let (roots, parts) = of_installer(&seen);
    assert!(!roots.is_empty() && !parts.is_empty(), "{seen:#?}");
    let descended: Vec<_> = parts
        .iter()
        .filter(|part| part.arguments == roots[0].arguments)
        .collect();
    assert!(!descended.is_empty(), "{parts:#?}");
    for part in &parts {
        assert!(
            !part.has_terminal && part.session != roots[0].session,
            "{part:#?}"
        );
        let known = [part.gid, docker];
        // Before the account joined its group nothing of it needs the engine.
        assert!(part.groups.iter().all(|gid| known.contains(gid)), "{part:#?}");
        assert!(!part.has_capabilities, "{part:#?}");
    }

    // The token: in no argument, environment, file, log or output.
    for process in &seen {
        let mut words = process.arguments.iter().chain(&process.environment);
        assert!(words.all(|word| !word.contains(&token)), "{process:#?}");
    }
    assert!(
        seen.iter()
            .any(|process| process.name == "curl" || process.name == "sudo"),
        "it was looked often enough"
    );
    assert_eq!(files_with(&host, &token).await.trim(), PLANTED);
    let journal = host
        .output("journalctl --no-pager --output=export")
        .await
        .unwrap();
    assert!(journal.contains("--enrollment-token-stdin") && !journal.contains(&token));
    // Above the first phase the terminal shows the line that was typed.
    let (_, said) = ran.out.split_once("[1/8] ").unwrap_or_else(|| panic!("{ran:#?}"));
    assert!(!said.contains(&token), "{ran:#?}");
    for line in [
        format!("Status: sudo systemctl status {unit}"),
        format!("Logs: sudo journalctl -u {unit}"),
    ] {
        assert!(said.contains(&line), "{line}: {ran:#?}");
    }
    let log = host
        .output(&format!("sudo journalctl -u {unit} --output=cat"))
        .await
        .unwrap();
    assert!(!log.trim().is_empty());

    rerun(&host, &site, &command, main).await;
    host.end().await.unwrap();
}

/// The same command again needs no token, imports nothing, changes nothing and restarts nothing.
async fn rerun(host: &Host, site: &Site, command: &str, main: u32) {
    let ready = host.picture().await.unwrap();
    let begun = host.output("date +%s.%N").await.unwrap();
    let ada = host.user_again("ada");
    ada.paste(Shell::Bash, command).await.unwrap().ended(0);
    assert_eq!(host.main_process(&site.unit()).await.unwrap(), main);
    let changes = ready.changes(&host.picture().await.unwrap(), KEPT);
    assert!(changes.is_empty(), "{changes:#?}");
    let events = format!(
        "docker events --since {} --until \"$(date +%s.%N)\" --filter type=image",
        begun.trim()
    );
    assert_eq!(host.output(&events).await.unwrap(), "");

    // Its record counts: a damaged one stops it.
    let record = format!("/etc/oac-node/{}.json", site.id);
    host.output(&format!("cp -a {record} /root/kept && echo x >{record}"))
        .await
        .unwrap();
    let ran = ada.paste(Shell::Bash, command).await.unwrap().ended(1);
    assert!(
        ran.out.contains(&format!("{record} is damaged: restore it.")),
        "{ran:#?}"
    );
    host.output(&format!("mv /root/kept {record}")).await.unwrap();
}
