//! The program itself, as a process of the service account.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use axum::http::StatusCode;
use oac_testkit::scrape::Scrape;

use crate::{
    installation::Installation,
    scripted_core::{ScriptedCore, envelope, unauthorized},
};

/// Any account but root.
pub(crate) const ACCOUNT: u32 = 65532;

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oac-node"));
    command.env_clear().stdin(Stdio::null());
    command
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn give(path: &Path) {
    give_to(path, ACCOUNT);
}

/// Back to this process, for whom it opens then.
pub(crate) fn own(path: &Path) {
    give_to(path, rustix::process::geteuid().as_raw());
}

fn give_to(path: &Path, account: u32) {
    chown(path, Some(account), Some(account)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give_to(&entry.unwrap().path(), account);
        }
    }
}

/// The program as an account that is not root, which owns the installation.
fn as_account(installation: Option<&Installation>) -> Command {
    let mut command = program();
    if is_root() {
        command.uid(ACCOUNT).gid(ACCOUNT);
        if let Some(installation) = installation {
            give(installation.root.parent().unwrap());
        }
    }
    command
}

pub(crate) fn run_of(installation: &Installation) -> Command {
    let mut command = as_account(Some(installation));
    command
        .args(["run", "--config"])
        .arg(installation.root.join("provider.json"))
        .arg("--state-dir")
        .arg(&installation.state_dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub(crate) async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn protocol_version_prints_one_and_what_is_not_for_a_person_refuses_in_one_line() {
    let mut version = as_account(None);
    version.arg("protocol-version");
    let version = output(version).await;
    assert_eq!(
        (version.status.code(), version.stdout.as_slice()),
        (Some(0), b"1\n".as_slice())
    );
    let (id, digest) = ("11111111-1111-4111-8111-111111111111", "ab".repeat(32));
    let mut by_hand = as_account(None);
    by_hand.args(["generation", "collect", "--root", "/r", "--installation-id", id]);
    by_hand.args(["--generation", "2", "--specification-digest", &digest]);
    let mut nowhere = as_account(None);
    nowhere.args(["rebind-host", "--config", "/c", "--state-dir", "/s", "--yes"]);
    for command in [by_hand, nowhere] {
        let refused = output(command).await;
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(said(&refused).lines().count(), 1, "{}", said(&refused));
    }
    let mut extra = as_account(None);
    extra.args(["protocol-version", "extra"]);
    assert_eq!(output(extra).await.status.code(), Some(1));
}

// inv: INV-N15
#[tokio::test]
async fn a_collector_that_was_handed_the_lock_by_anybody_but_the_node_does_nothing() {
    let core = ScriptedCore::start().await;
    let installation = Installation::new(&core).managing(&core, oac_model::Digest::of("host"));
    let config = &installation.config;
    let mut by_hand = as_account(Some(&installation));
    by_hand
        .args(["generation", "collect", "--root"])
        .arg(&installation.root)
        .args(["--installation-id", &config.installation_id.to_string()])
        .args(["--generation", "1"])
        .args([
            "--specification-digest",
            &config.specification_digest().to_string(),
        ])
        .stderr(Stdio::piped());
    // As `flock install.lock oac-node generation collect …` would.
    let lock = std::fs::File::create(installation.root.join("install.lock")).unwrap();
    std::fs::set_permissions(
        installation.root.join("install.lock"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    if is_root() {
        give(&installation.root.join("install.lock"));
    }
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let number = oac_generations::inherit::Number::Three;
    oac_generations::inherit::hand_over(&mut by_hand, std::os::fd::AsFd::as_fd(&lock), number).unwrap();
    let refused = output(by_hand).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("not started by hand"),
        "{}",
        said(&refused)
    );
    let records = installation.state_dir.join("generations");
    assert!(!records.join("1.collecting").exists() && !records.join("1.dropped").exists());
    assert!(installation.root.join("runtime/seccomp.json").exists());
}

#[tokio::test]
async fn every_command_refuses_root() {
    if !is_root() {
        // Only root can be refused as root; any other account proves the opposite above.
        return;
    }
    let mut command = program();
    command.arg("protocol-version");
    let refused = output(command).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("does not run as root"));
    assert!(refused.stdout.is_empty());
}

// req: P-016, P-017
// inv: INV-N36, INV-P22
#[tokio::test]
async fn the_exit_status_is_78_exactly_when_core_answered_401() {
    let core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let secret = installation.stored().credential.expose().to_owned();
    let rows = [
        (unauthorized(), 78),
        ((StatusCode::UNAUTHORIZED, "a proxy".to_owned()), 1),
        ((StatusCode::FORBIDDEN, envelope("invalid_node_credential")), 1),
        ((StatusCode::SERVICE_UNAVAILABLE, envelope("core_standby")), 1),
    ];
    for ((status, body), expected) in rows {
        *core.script.identity.lock() = Box::new(move |_| (status, body.clone()));
        let ended = output(run_of(&installation)).await;
        assert_eq!(ended.status.code(), Some(expected), "{status}: {}", said(&ended));
        assert!(!said(&ended).contains(&secret));
    }
}

// req: G-129
#[tokio::test]
async fn a_sigterm_closes_the_connection_and_exits_0() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let mut child = run_of(&installation).spawn().unwrap();
    let (link, hello) = core.greet().await;
    assert!(!hello.health.provider_ready, "there is no engine at that path");
    let pid = rustix::process::Pid::from_child(&child);
    let listening = listening_sockets(child.id());
    assert_eq!(listening, Some(0), "the node opens no port");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    link.closed().await;
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

// inv: INV-N1
#[tokio::test]
async fn a_second_process_of_one_identity_exits_1_before_it_says_a_word() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let mut first = run_of(&installation).spawn().unwrap();
    let (link, _) = core.greet().await;
    let said_to_core = core.script.seen.lock().len();
    let second = output(run_of(&installation)).await;
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    assert!(
        said(&second).contains("identity.lock is locked"),
        "{}",
        said(&second)
    );
    assert_eq!(core.script.seen.lock().len(), said_to_core);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&first),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    link.closed().await;
    let ended = tokio::task::spawn_blocking(move || first.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(ended.code(), Some(0), "the first is untouched");
}

/// The address that the program says it answers scrapes on.
fn scraped(child: &mut Child) -> SocketAddr {
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        if line.contains("answering scrapes") {
            let at = line.find("127.0.0.1:").unwrap();
            let end = line[at..].find('"').unwrap();
            return line[at..at + end].parse().unwrap();
        }
    }
    panic!("it answers no scrapes");
}

#[tokio::test]
async fn scrapes_are_answered_where_the_flag_says_and_an_address_that_is_taken_is_refused() {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let secret = installation.stored().credential;
    let mut command = run_of(&installation);
    command.args(["--metrics-listen", "127.0.0.1:0"]);
    let mut child = command.spawn().unwrap();
    let (link, _) = core.greet().await;
    // Nobody reads its log from here on, which must not end it.
    let (mut child, address) = tokio::task::spawn_blocking(move || {
        let address = scraped(&mut child);
        (child, address)
    })
    .await
    .unwrap();
    oac_testkit::wait::until("the welcome arrived", Duration::from_secs(40), async || {
        let scrape = Scrape::of(address).await;
        (scrape.value("oac_node_connected", &[]) == Some(1.0)).then_some(scrape)
    })
    .await
    .map(|scrape| {
        assert_eq!(scrape.value("oac_node_provider_ready", &[]), Some(0.0));
        assert_eq!(
            scrape.value("oac_node_dials_total", &[("outcome", "welcomed")]),
            Some(1.0)
        );
        assert!(!scrape.0.contains(secret.expose()) && !scrape.0.contains("canary"));
    })
    .unwrap();
    assert_eq!(listening_sockets(child.id()), Some(1));

    let other = Installation::registered(&core);
    let mut command = run_of(&other);
    command.args(["--metrics-listen", &address.to_string()]);
    let refused = output(command).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("--metrics-listen"), "{}", said(&refused));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    link.closed().await;
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

/// TCP sockets in state LISTEN that the process holds.
fn listening_sockets(pid: u32) -> Option<usize> {
    let held: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|target| {
            Some(
                target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .collect();
    let mut listening = 0;
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?;
        listening += text
            .lines()
            .skip(1)
            .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
            .filter(|f| {
                f.get(3) == Some(&"0A") && f.get(9).is_some_and(|inode| held.iter().any(|h| h == inode))
            })
            .count();
    }
    Some(listening)
}
