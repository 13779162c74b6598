//! The way to Core through an HTTP proxy.

use std::{ffi::OsString, process::Stdio};

use oac_node::Surroundings;
use oac_proxy::Proxies;
use oac_testkit::between::{ConnectProxy, Reply};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    installation::{Installation, Running},
    limits::{again, is_served},
    program::{output, run_of, said},
    provider::scripted,
    scripted_core::ScriptedCore,
};

/// What the nodes here know Core as; nobody resolves it, since a proxy is told the name.
const ORIGIN: &str = "http://core.test";
const PASSWORD: &str = "p:ss%w0rd";
const IN_URL: &str = "us%40er:p%3Ass%25w0rd";
/// `us@er:p:ss%w0rd`.
const AUTHORIZATION: &str = "Basic dXNAZXI6cDpzcyV3MHJk";

/// A proxy given with credentials, for both schemes.
pub(crate) fn through(proxy: &ConnectProxy, exceptions: &str) -> Surroundings {
    let url = OsString::from(format!("http://{IN_URL}@{}", proxy.address));
    let proxies = Proxies::from_variables(|name| match name {
        "http_proxy" | "https_proxy" => Some(url.clone()),
        "no_proxy" => Some(exceptions.into()),
        _ => None,
    });
    Surroundings {
        proxies: proxies.unwrap(),
        ..Surroundings::default()
    }
}

// inv: INV-P25
#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel_with_its_own_credentials_and_sees_none_of_the_nodes() {
    let mut core = ScriptedCore::start().await;
    let proxy = ConnectProxy::to(core.address).await;
    proxy.want(AUTHORIZATION);
    let installation = Installation::registered_at(&core, ORIGIN);
    let (provider, mut calls) = scripted();
    let node = installation.start_in(through(&proxy, "other.test, 10.0.0.0/8"), provider, 8);
    let (mut link, _) = core.greet().await;
    is_served(&mut link, &mut calls).await;
    let secret = installation.stored().credential.expose().to_owned();
    let asked = proxy.asked();
    assert_eq!(asked.len(), 2, "GET identity and the WebSocket: {asked:?}");
    for asked in asked {
        assert_eq!(asked.line, "CONNECT core.test:80 HTTP/1.1");
        assert_eq!(asked.authorization.as_deref(), Some(AUTHORIZATION));
        assert!(!asked.head.contains(&secret), "{}", asked.head);
    }
    for seen in core.script.seen.lock().iter() {
        assert_eq!(seen.headers["host"], "core.test");
        assert!(!seen.headers.contains_key("proxy-authorization"));
    }
    node.stop().await.unwrap();
}

#[tokio::test]
async fn an_origin_that_no_proxy_names_is_reached_directly() {
    let mut core = ScriptedCore::start().await;
    let proxy = ConnectProxy::to(core.address).await;
    // Not loopback, so that the exception alone decides, and reached all the same: this host's own address.
    let here = format!("http://0.0.0.0:{}", core.address.port());
    for (exceptions, asked) in [("0.0.0.0/8", 0), ("0.0.0.0:1", 2)] {
        let installation = Installation::registered_at(&core, &here);
        let (provider, _calls) = scripted();
        let node = installation.start_in(through(&proxy, exceptions), provider, 8);
        let (link, _) = core.greet().await;
        assert_eq!(proxy.asked().len(), asked, "{exceptions}");
        drop(link);
        node.kill().await;
    }
}

/// Waits for one more request for a tunnel; the backoff before it passes at once.
pub(crate) async fn asked_again(proxy: &ConnectProxy, node: &Running) {
    let before = proxy.asked().len();
    node.hurried(async || proxy.until_asked(before + 1).await).await;
}

// req: P-016, P-017
// inv: INV-P22, INV-N36
#[tokio::test]
async fn whatever_a_proxy_answers_the_node_goes_on_and_connects_once_it_is_let() {
    let mut core = ScriptedCore::start().await;
    let proxy = ConnectProxy::to(core.address).await;
    let installation = Installation::registered_at(&core, ORIGIN);
    let (provider, mut calls) = scripted();
    let mut node = installation.start_in(through(&proxy, ""), provider, 8);
    let (link, _) = core.greet().await;
    let upgrades = core.seen("/connect").len();
    let replies = [
        Reply::Status(401),
        Reply::Status(403),
        Reply::Status(407),
        Reply::Status(302),
        Reply::Status(503),
        Reply::End,
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Bytes([b"HTTP/1.1 200 OK\r\nx: ", &vec![b'x'; 1 << 20][..]].concat()),
        // Taken for a tunnel, it ends in it.
        Reply::Bytes(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        Reply::Silence,
    ];
    proxy.reply(Reply::End);
    drop(link);
    for reply in replies {
        proxy.reply(reply.clone());
        asked_again(&proxy, &node).await;
        asked_again(&proxy, &node).await;
        assert!(node.is_running(), "{reply:?}");
    }
    assert_eq!(core.seen("/connect").len(), upgrades, "none of them led to Core");
    proxy.reply(Reply::Tunnel);
    let mut link = again(&mut core, &node).await;
    link.hello().await;
    link.welcome().await;
    is_served(&mut link, &mut calls).await;
    node.stop().await.unwrap();
}

// req: P-017
// inv: INV-P22, INV-N36, INV-P25
#[tokio::test]
async fn the_program_says_which_proxy_refuses_and_what_to_do_and_repeats_no_password() {
    let core = ScriptedCore::start().await;
    let proxy = ConnectProxy::to(core.address).await;
    let installation = Installation::registered_at(&core, ORIGIN);
    let url = format!("http://{IN_URL}@{}", proxy.address);
    let is_silent = |text: &str| {
        for secret in [
            IN_URL,
            PASSWORD,
            "us@er",
            "p%3Ass",
            AUTHORIZATION,
            &AUTHORIZATION[6..],
        ] {
            assert!(!text.contains(secret), "{text}");
        }
    };
    for (status, hint) in [
        (401, ": give the proxy's user and password in its URL"),
        (407, ": give the proxy's user and password in its URL"),
        (403, ": it must allow CONNECT to this host and port"),
        (502, ""),
    ] {
        proxy.reply(Reply::Status(status));
        let mut command = run_of(&installation);
        command.env("HTTP_PROXY", &url).env("OAC_LOG", "trace");
        let ended = output(command).await;
        let text = said(&ended);
        assert_eq!(ended.status.code(), Some(1), "{text}");
        let expected = format!(
            "the proxy {} refused a connection to core.test:80 (HTTP {status}",
            proxy.address
        );
        assert!(text.contains(&expected) && text.contains(hint), "{text}");
        is_silent(&text);
    }
    for (name, value) in [
        ("http_proxy", "socks5://h0st:p4ss@proxy"),
        ("HTTPS_PROXY", "h0st:p4ss"),
    ] {
        let mut command = run_of(&installation);
        command.env(name, value);
        let ended = output(command).await;
        assert_eq!(ended.status.code(), Some(1));
        assert!(
            said(&ended).contains(&format!("{name} is not an HTTP proxy URL.")),
            "{}",
            said(&ended)
        );
        assert!(!said(&ended).contains("h0st") && !said(&ended).contains("p4ss"));
    }
}

// inv: INV-P25
#[tokio::test]
async fn the_programs_log_holds_neither_credential_while_it_serves_through_a_proxy() {
    let mut core = ScriptedCore::start().await;
    let proxy = ConnectProxy::to(core.address).await;
    proxy.want(AUTHORIZATION);
    let installation = Installation::registered_at(&core, ORIGIN);
    let own = installation.stored().credential.expose().to_owned();
    let mut command = tokio::process::Command::from(run_of(&installation));
    command
        .env("http_proxy", format!("http://{IN_URL}@{}", proxy.address))
        .env("OAC_LOG", "trace")
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut program = command.spawn().unwrap();
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
    let (link, _) = core.greet().await;
    let mut log = String::new();
    while !log.contains("connected to Core") {
        log += &lines.next_line().await.unwrap().unwrap();
    }
    drop(link);
    while !log.contains("the connection to Core ended") {
        log += &lines.next_line().await.unwrap().unwrap();
    }
    let arguments = std::fs::read(format!("/proc/{}/cmdline", program.id().unwrap())).unwrap();
    let told = log + &String::from_utf8_lossy(&arguments);
    assert!(told.contains(&proxy.address.to_string()), "{told}");
    for secret in [
        IN_URL,
        PASSWORD,
        "us@er",
        AUTHORIZATION,
        &AUTHORIZATION[6..],
        &own,
    ] {
        assert!(!told.contains(secret), "{told}");
    }
    program.kill().await.unwrap();
}
