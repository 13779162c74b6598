//! The hosts themselves: a test that relies on them must know that they are what they claim to be.

use std::{io::Write as _, path::Path, process::Stdio, time::Duration};

use tokio::io::{AsyncBufReadExt as _, BufReader};

use oac_testkit::{
    host::{Host, Noise, Shell, Sudo},
    wait,
};

const LONG: Duration = Duration::from_secs(60);

/// A container image of one static program, made without any registry.
const IMAGE: &str = "mkdir -p /tmp/image/bin && cp /bin/busybox /tmp/image/bin/ && \
    for tool in sh sleep; do ln /tmp/image/bin/busybox /tmp/image/bin/$tool; done && tar -C /tmp/image -c . | docker import --change 'CMD [\"/bin/sh\"]' - tiny >/dev/null && rm -r /tmp/image";

#[tokio::test]
async fn host_it_runs_services_and_containers_with_limits_and_keeps_both_over_a_reboot() {
    let mut host = Host::boot("rack-7").await.unwrap();
    assert_eq!(host.output("hostname").await.unwrap().trim(), "rack-7");
    assert_eq!(host.output("cat /proc/1/comm").await.unwrap().trim(), "systemd");
    let failed = host.output("systemctl --failed --no-legend").await.unwrap();
    assert_eq!(failed, "", "no unit failed");

    // The engine's limits are the kernel's.
    host.output(IMAGE).await.unwrap();
    let limited = "docker run --rm --memory 64m --cpus 0.5 tiny sh -c \
        'for of in memory/memory.limit_in_bytes memory.max; do read limit 2>/dev/null </sys/fs/cgroup/$of; done; echo $limit'";
    let limit = host.output(limited).await.unwrap();
    assert_eq!(limit.trim(), (64 << 20).to_string());

    // A service with an account of its own, restarted after it was killed, and enabled at boot.
    let unit = "[Service]\\nUser=worker\\nExecStart=/bin/sleep infinity\\nRestart=always\\nRestartSec=100ms\\n\
        MemoryMax=50M\\n[Install]\\nWantedBy=multi-user.target\\n";
    host.output(&format!(
        "useradd --system worker && printf '{unit}' >/etc/systemd/system/work.service && \
         systemctl daemon-reload && systemctl enable --now work.service"
    ))
    .await
    .unwrap();
    let first = host.main_process("work").await.unwrap();
    assert_eq!(
        host.output(&format!("ps -o user= {first}")).await.unwrap().trim(),
        "worker"
    );
    host.output(&format!("kill -KILL {first}")).await.unwrap();
    let again = async || {
        let now = host.main_process("work").await.ok()?;
        (now != 0 && now != first).then_some(())
    };
    wait::until("the service is back", LONG, again).await.unwrap();

    let boots = "journalctl --list-boots --quiet | wc -l";
    let before: u32 = host.output(boots).await.unwrap().trim().parse().unwrap();
    host.output("docker run -d --restart always --name stays tiny sh -c 'while :; do sleep 1; done'")
        .await
        .unwrap();
    let (address, outside) = (host.address(), host.outside());
    host.reboot().await.unwrap();
    assert_eq!((host.address(), host.outside()), (address, outside));
    let after: u32 = host.output(boots).await.unwrap().trim().parse().unwrap();
    assert_eq!(after, before + 1, "the journal knows both boots");
    host.until("the service is up", "systemctl is-active --quiet work.service")
        .await
        .unwrap();
    host.until("the container is up", "docker top stays")
        .await
        .unwrap();
    host.crash().await.unwrap();
    host.until("the container is up after a power failure", "docker top stays")
        .await
        .unwrap();
    host.end().await.unwrap();
}

#[tokio::test]
async fn host_two_reach_this_machine_each_under_an_address_of_its_own() {
    let (one, two) = (Host::boot("one").await.unwrap(), Host::boot("two").await.unwrap());
    assert_ne!(one.address(), two.address());
    let served = oac_tests::served::Served::start(one.outside()).await;
    served.will([], oac_tests::served::Reply::Bytes(b"here".to_vec()));
    for host in [&one, &two] {
        let fetched = host
            .output(&format!("curl -sS {}", served.origin()))
            .await
            .unwrap();
        assert_eq!(fetched, "here", "{}", host.name());
    }
    one.end().await.unwrap();
    two.end().await.unwrap();
}

#[tokio::test]
async fn host_a_line_is_typed_into_every_shell_by_an_ordinary_account() {
    let host = Host::boot("shells").await.unwrap();
    let ada = host.user("ada", Sudo::Anything).await.unwrap();
    let line = " echo in | sh -c 'cat; id -un; exec sudo -- sh -c \"id -u; exit 7\"'";
    for shell in Shell::ALL {
        let ran = ada.paste(shell, line).await.unwrap().ended(7);
        let shown: Vec<&str> = ran.out.lines().map(str::trim).collect();
        let at = shown
            .iter()
            .rposition(|line| line.ends_with("in"))
            .unwrap_or_else(|| panic!("{ran:#?}"));
        assert_eq!(shown[at + 1..at + 3], ["ada", "0"], "{shell:?}: {ran:#?}");
    }
    let bob = host.user("bob", Sudo::Nothing).await.unwrap();
    assert_ne!(bob.run("sudo -n true").await.unwrap().status, Some(0));
    assert_eq!(host.root_user().run("id -u").await.unwrap().ok().out, "0\n");
    host.end().await.unwrap();
}

/// What each line changes on a host, and what a picture calls it.
const CHANGES: &[(&str, &str)] = &[
    ("echo x >>/etc/hosts", "file /etc/hosts"),
    ("chmod 600 /etc/fstab", "file /etc/fstab"),
    ("chown 65532 /srv", "file /srv"),
    ("ln -s /etc/passwd /opt/link", "file /opt/link"),
    ("echo x >'/root/a b'", "file /root/a b"),
    ("touch /usr/bin/planted", "file /usr/bin/planted"),
    ("sed -i 's/ / /' /usr/bin/ldd", "file /usr/bin/ldd"),
    ("useradd --system planted", "user planted"),
    ("groupadd also", "group also"),
    (
        "printf '[Service]\\nExecStart=/bin/sleep 1d\\n' >/etc/systemd/system/planted.service && systemctl start planted",
        "unit planted.service",
    ),
    (
        "systemctl mask --quiet getty@.service",
        "unit-file getty@.service",
    ),
    (
        "iptables -A INPUT -p tcp --dport 99 -j DROP",
        "firewall iptables-save 1 -A INPUT -p tcp -m tcp --dport 99 -j DROP",
    ),
    (
        "sysctl -q net.ipv4.conf.all.log_martians=1",
        "sysctl net.ipv4.conf.all.log_martians",
    ),
    ("docker network create planted", "network planted"),
    ("docker volume create planted", "volume planted"),
    (
        "busybox nc -l -p 4567 >/dev/null 2>&1 </dev/null &",
        "port tcp *:4567",
    ),
];

#[tokio::test]
async fn host_a_picture_shows_each_planted_change_and_nothing_else() {
    let host = Host::boot("pictured").await.unwrap();
    let before = host.picture().await.unwrap();
    assert!(before.all("file").len() > 5000 && before.of("user root").is_some());
    let still = before.changes_and_times(&host.picture().await.unwrap(), &[]);
    assert!(still.is_empty(), "{still:#?}");
    for (script, _) in CHANGES {
        host.output(script).await.unwrap();
    }
    let mut unseen = Vec::new();
    // What runs in the background is there in a moment.
    let all = async || {
        let now = host.picture().await.ok()?;
        let changes = before.changes(&now, &[]);
        let is_seen = |what: &str| changes.iter().any(|change| change.what.starts_with(what));
        unseen = CHANGES
            .iter()
            .map(|(_, what)| *what)
            .filter(|what| !is_seen(what))
            .collect();
        unseen.is_empty().then_some(now)
    };
    let seen = wait::until("every change is seen", LONG, all).await;
    let last = seen.unwrap_or_else(|e| panic!("{e}: {unseen:#?}"));
    host.output("touch /etc/hosts").await.unwrap();
    let now = host.picture().await.unwrap();
    assert_eq!(last.changes(&now, &[]), []);
    let touched = last.changes_and_times(&now, &[]);
    assert!(touched.iter().all(|change| change.what == "file /etc/hosts") && touched.len() == 1);
    let all = [Noise {
        begins: "",
        why: "everything",
    }];
    assert_eq!(before.changes(&now, &all), []);
    host.end().await.unwrap();
}

fn here(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let listed = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut left = Vec::new();
    if folder.exists() {
        left.push(folder.display().to_string());
    }
    let commands = listed("ps", &["-eo", "args"]);
    left.extend(
        commands
            .lines()
            .filter(|line| line.contains(&format!("running/{name}")))
            .map(str::to_owned),
    );
    left
}

/// In the environment of the test that is killed.
const DOOMED: &str = "OAC_TEST_DOOMED";

#[tokio::test]
async fn host_nothing_is_left_of_a_host_when_the_test_is_killed() {
    if std::env::var_os(DOOMED).is_some() {
        let host = Host::boot("doomed").await.unwrap();
        // Not through the test's own output, which is kept back until it ends.
        let line = format!("up {} {}\n", host.folder().display(), host.outside());
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return std::future::pending().await;
    }
    let mut doomed = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "harness::host_nothing_is_left_of_a_host_when_the_test_is_killed",
            "--nocapture",
        ])
        .env(DOOMED, "")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(doomed.stdout.take().unwrap()).lines();
    let (folder, outside) = loop {
        let line = lines.next_line().await.unwrap().expect("it boots");
        if let Some((_, rest)) = line.split_once("up ") {
            let (folder, outside) = rest.split_once(' ').unwrap();
            break (folder.to_owned(), outside.to_owned());
        }
    };
    let folder = Path::new(&folder);
    assert!(!here(folder).is_empty());
    doomed.kill().await.unwrap();
    wait::until("files and processes are gone", LONG, async || {
        here(folder).is_empty().then_some(())
    })
    .await
    .unwrap_or_else(|e| panic!("{e}: {:#?}", here(folder)));
    let addresses = std::process::Command::new("ip")
        .args(["-o", "addr"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&addresses.stdout).contains(&format!("{outside}/")));
}
