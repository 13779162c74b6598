//! What lies under HTTP: TLS, addresses of both families, slow clients, many at once, and proxies before Core.

use std::{
    collections::BTreeMap, net::SocketAddr, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration,
};

use oac_core::http::serve;
use oac_testkit::{
    between::ReverseProxy,
    core::{CoreOptions, TestCore},
    program::Program,
    tls::{self, Files},
    wait,
};
use reqwest::Method;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const LONG: Duration = Duration::from_secs(60);

fn client(versions: &[&'static rustls::SupportedProtocolVersion], protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(tls::AUTHORITY.as_bytes()).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    Arc::new(config).into()
}

pub(crate) fn address(core: &TestCore) -> SocketAddr {
    core.url.split_once("://").unwrap().1.parse().unwrap()
}

async fn shake(core: &TestCore, client: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address(core)).await.unwrap();
    let name = ServerName::try_from("core.test").unwrap();
    tokio::time::timeout(LONG, client.connect(name, stream))
        .await
        .unwrap()
}

/// The certificate that Core shows to new connections.
async fn shown(core: &TestCore) -> CertificateDer<'static> {
    let stream = shake(core, &client(rustls::ALL_VERSIONS, &[])).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

fn certificate(pair: tls::Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}

async fn with_tls(files: &Files) -> TestCore {
    let options = CoreOptions {
        tls: Some(files.clone()),
        ..CoreOptions::default()
    };
    TestCore::with(options).await
}

fn skip(core: &TestCore, seconds: u64) {
    core.core().hub.clock().skip(Duration::from_secs(seconds));
}

/// One request on a connection that stays.
async fn healthy(stream: &mut TlsStream<TcpStream>) {
    stream
        .write_all(b"HEAD /healthz HTTP/1.1\r\nHost: anything\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = tokio::time::timeout(LONG, stream.read_u8()).await;
        head.push(read.unwrap().unwrap());
    }
    assert!(
        head.starts_with(b"HTTP/1.1 200 OK"),
        "{}",
        String::from_utf8_lossy(&head)
    );
}

#[tokio::test]
async fn tls_is_spoken_from_1_2_on_with_http_1_1_alone_and_nothing_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let core = with_tls(&Files::write(folder.path(), tls::FIRST).unwrap()).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for protocols in [&["http/1.1"][..], &["h2", "http/1.1"], &[]] {
            let mut stream = shake(&core, &client(&[version], protocols)).await.unwrap();
            let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            assert_eq!(chosen, (!protocols.is_empty()).then(|| b"http/1.1".to_vec()));
            healthy(&mut stream).await;
        }
        assert!(shake(&core, &client(&[version], &["h2"])).await.is_err());
    }
    let mut plain = TcpStream::connect(address(&core)).await.unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LONG, plain.read_to_end(&mut answer))
        .await
        .unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    core.operator(Method::GET, "/core/v1/projects", None)
        .await
        .expect(200);
}

#[tokio::test]
async fn a_new_pair_is_shown_to_new_connections_and_an_unusable_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::write(folder.path(), tls::FIRST).unwrap();
    let core = with_tls(&files).await;
    let mut old = shake(&core, &client(rustls::ALL_VERSIONS, &[])).await.unwrap();
    let stays = async |pair: tls::Pair, why: &str| {
        for _ in 0..3 {
            skip(&core, 5);
            assert_eq!(shown(&core).await, certificate(pair), "{why}");
        }
    };
    let becomes = async |pair: tls::Pair| {
        wait::until("the new certificate is shown", LONG, async || {
            skip(&core, 5);
            (shown(&core).await == certificate(pair)).then_some(())
        })
        .await
        .unwrap();
    };
    stays(tls::FIRST, "nothing changed").await;
    files.replace_certificate(tls::SECOND.certificate).unwrap();
    stays(tls::FIRST, "the key is still the first one's").await;
    files.replace_key(tls::SECOND.key).unwrap();
    becomes(tls::SECOND).await;
    healthy(&mut old).await;

    files.replace_certificate("no certificate").unwrap();
    stays(tls::SECOND, "no certificate").await;
    std::fs::remove_file(&files.certificate).unwrap();
    stays(tls::SECOND, "no file").await;
    files.replace_certificate(tls::FIRST.certificate).unwrap();
    let loose = folder.path().join("loose");
    std::fs::write(&loose, tls::FIRST.key).unwrap();
    std::fs::set_permissions(&loose, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::rename(&loose, &files.key).unwrap();
    stays(tls::SECOND, "a key that others can read").await;
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    becomes(tls::FIRST).await;
    healthy(&mut old).await;
}

#[tokio::test]
async fn a_core_with_a_pair_that_is_of_no_use_does_not_start_and_says_which_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::write(folder.path(), tls::FIRST).unwrap();
    let config = folder.path().join("config.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nmetrics_listen = \"\"\n[tls]\ncertificate_file = {:?}\nkey_file = {:?}\n[database]\nurl = \"sqlite://{}\"\n",
        files.certificate,
        files.key,
        folder.path().join("core.db").display()
    );
    std::fs::write(&config, text).unwrap();
    let said = async || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_oac-core"));
        let output = command
            .args(["run", "--config"])
            .arg(&config)
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    files.replace_key(tls::SECOND.key).unwrap();
    assert!(said().await.contains("do not go together"));
    files.replace_key(tls::FIRST.certificate).unwrap();
    assert!(said().await.contains("holds no private key in PEM form"));
    files.replace_key(tls::FIRST.key).unwrap();
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(
        said()
            .await
            .contains("core.key.pem has mode 0640: run chmod 0600 on it")
    );
    files.replace_certificate(tls::FIRST.key).unwrap();
    files.replace_key(tls::FIRST.key).unwrap();
    let text = said().await;
    assert!(
        text.contains("core.pem holds no certificate in PEM form"),
        "{text}"
    );
    std::fs::remove_file(&files.certificate).unwrap();
    assert!(said().await.contains("cannot read"));
    let line = tls::FIRST.key.lines().nth(1).unwrap();
    assert!(!text.contains(line));
    assert!(!folder.path().join("core.db").exists(), "nothing was opened");
}

/// Waits until Core has ended the connection.
async fn ended(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut rest));
    // A reset ends it as well.
    let _ = read.await.expect("Core holds on to it");
}

#[tokio::test]
async fn whoever_is_slow_with_tls_or_a_head_is_left_in_the_end_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let core = with_tls(&Files::write(folder.path(), tls::FIRST).unwrap()).await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address(&core)).await.unwrap();
        // The beginning of a handshake, and nothing of the rest.
        stream.write_all(&[22, 3, 1]).await.unwrap();
        slow.push(stream);
    }
    let mut dribbling = Vec::new();
    for _ in 0..200 {
        let mut stream = shake(&core, &client(rustls::ALL_VERSIONS, &[])).await.unwrap();
        stream.write_all(b"GET /healthz HT").await.unwrap();
        stream.flush().await.unwrap();
        dribbling.push(stream);
    }
    core.operator(Method::GET, "/core/v1/projects", None)
        .await
        .expect(200);
    skip(&core, 10);
    for stream in slow {
        ended(stream).await;
    }
    skip(&core, 65);
    for mut stream in dribbling {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(LONG, stream.read_to_end(&mut rest));
        let _ = read.await.expect("Core holds on to it");
    }
    core.operator(Method::GET, "/core/v1/projects", None)
        .await
        .expect(200);
}

#[tokio::test]
async fn a_head_in_pieces_is_read_as_long_as_it_is_whole_in_time() {
    let core = TestCore::start().await;
    let mut stream = TcpStream::connect(address(&core)).await.unwrap();
    let head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for byte in head {
        stream.write_all(&[*byte]).await.unwrap();
        skip(&core, 1);
    }
    let mut answer = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn both_families_can_be_listened_on_with_one_port() {
    let listeners = serve::bind(&["[::1]:0".parse().unwrap()]).await.unwrap();
    let port = listeners[0].local_addr().unwrap().port();
    drop(listeners);
    let both = [
        SocketAddr::from(([0, 0, 0, 0], port)),
        format!("[::]:{port}").parse().unwrap(),
    ];
    let listeners = serve::bind(&both).await.unwrap();
    for (listener, host) in listeners.iter().zip(["127.0.0.1", "::1"]) {
        let (connected, accepted) = tokio::join!(TcpStream::connect((host, port)), listener.accept());
        connected.unwrap();
        accepted.unwrap();
    }
}

#[tokio::test]
async fn the_word_of_a_trusted_proxy_alone_is_believed_about_who_asks() {
    let source = async |trusted: &[&str]| {
        let options = CoreOptions {
            trusted_proxies: trusted.iter().map(|&network| network.to_owned()).collect(),
            ..CoreOptions::default()
        };
        let mut core = TestCore::with(options).await;
        let proxy = ReverseProxy::before(address(&core), "internal.test", "203.0.113.7").await;
        core.url = format!("http://{}", proxy.address);
        core.operator(
            Method::POST,
            "/core/v1/projects",
            Some(&json!({ "name": "asked for" })),
        )
        .await
        .expect(201);
        let log = core.core().store.single().audit_log(None, 100).await.unwrap();
        // The newest comes first.
        log[0].source.clone()
    };
    assert_eq!(source(&[]).await, "127.0.0.1");
    assert_eq!(source(&["10.0.0.0/8", "::1"]).await, "127.0.0.1");
    assert_eq!(source(&["127.0.0.0/8"]).await, "203.0.113.7");
}

#[tokio::test]
async fn the_program_takes_as_many_open_files_as_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let database = folder.path().join("core.db");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nmetrics_listen = \"\"\n[database]\nurl = \"sqlite://{}\"\n",
        database.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = tokio::process::Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -Sn 300 && ulimit -Hn 4000 && exec \"$0\" run --config \"$1\"",
        ])
        .args([env!("CARGO_BIN_EXE_oac-core")])
        .arg(&config);
    let log = folder.path().join("core.log");
    let mut core = Program::start("oac-core", command, &log).unwrap();
    let limits = format!("/proc/{}/limits", core.pid().unwrap());
    let line = core
        .until("Core listens", LONG, async || {
            let listening = std::fs::read_to_string(&log).unwrap().contains("listening");
            let limits = std::fs::read_to_string(&limits).unwrap_or_default();
            let line = limits.lines().find(|line| line.starts_with("Max open files"));
            line.filter(|_| listening).map(str::to_owned)
        })
        .await
        .unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["4000", "4000"]);
    assert_eq!(core.stop().await, Some(0));
}

/// Two thousand at the same moment: every one is answered.
#[tokio::test]
async fn a_storm_of_requests_is_answered_to_the_last_one() {
    let core = TestCore::start().await;
    let to = address(&core);
    let mut storm = JoinSet::new();
    for n in 0..2_000 {
        storm.spawn(async move {
            let mut stream = TcpStream::connect(to).await.unwrap();
            let id = oac_model::NodeId::random();
            let target = match n % 2 {
                0 => format!("/api/v1/sandbox-node/connect?node_id={id}"),
                _ => "/healthz".to_owned(),
            };
            let head = format!(
                "GET {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer[9..12].to_vec()).unwrap()
        });
    }
    let mut answers = BTreeMap::<String, usize>::new();
    while let Some(answer) = storm.join_next().await {
        *answers.entry(answer.unwrap()).or_default() += 1;
    }
    assert_eq!(
        answers,
        BTreeMap::from([("200".to_owned(), 1_000), ("401".to_owned(), 1_000)])
    );
}
