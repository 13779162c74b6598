//! The node and a real Core, with what lies between them on real networks.

use std::{net::SocketAddr, time::Duration};

use oac_model::{ConnectionId, Digest, NodeId, Secret};
use oac_node::{Clock, CoreClient, Registration, Surroundings, register_by};
use oac_testkit::{
    between::{ConnectProxy, ReverseProxy},
    core::{CoreOptions, TestCore},
    tls, wait,
};
use reqwest::Method;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::{Value, json};

use crate::{
    installation::{Installation, Running},
    provider::{Calls, scripted},
    proxies::{asked_again, through},
};

/// Far beyond what anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// A host that only what stands in between finds.
const NAME: &str = "core.test";

/// A Core that nodes are told to reach at `origin`.
async fn core_at(origin: &str, tls: Option<tls::Files>) -> TestCore {
    let options = CoreOptions {
        public_url: Some(Some(origin.to_owned())),
        tls,
        ..CoreOptions::default()
    };
    let core = TestCore::with(options).await;
    core.deploy(1, 512).await;
    core
}

fn address(core: &TestCore) -> SocketAddr {
    let (_, address) = core.url.split_once("://").unwrap();
    address.parse().unwrap()
}

fn trusting(mut surroundings: Surroundings) -> Surroundings {
    let authority = CertificateDer::from_pem_slice(tls::AUTHORITY.as_bytes()).unwrap();
    surroundings.roots = RootCertStore::empty();
    surroundings.roots.add(authority).unwrap();
    surroundings
}

/// What the installer would write for a node of `core`.
async fn installation(core: &TestCore) -> Installation {
    let path = "/core/v1/sandbox/deployment";
    let deployment: Value = core.operator(Method::GET, path, None).await.expect(200);
    Installation::of(|seccomp| {
        json!({
            "installation_id": deployment["installation_id"],
            "provider": "docker",
            "core_url": format!("{}/api/v1", core.public_url.as_deref().unwrap()),
            "specification": deployment["specification"],
            "generation": deployment["generation"],
            "native": {
                "host": "unix:///nonexistent/docker.sock",
                "image": deployment["specification"]["runtime"]["artifacts"]["image_id"],
                "network": "oac-node-1",
                "seccomp_file": seccomp,
            },
        })
        .to_string()
    })
}

/// A node that was registered, and serves, in these surroundings.
struct Real {
    core: TestCore,
    _installation: Installation,
    node: Running,
    id: NodeId,
    _calls: Calls,
}

impl Real {
    async fn start(core: TestCore, surroundings: Surroundings) -> Self {
        let installation = installation(&core).await;
        let token = core
            .enrollment_token(&json!({ "max_active": 3, "max_retained": 3 }))
            .await;
        register(&installation, &token, surroundings.clone())
            .await
            .unwrap();
        let (provider, calls) = scripted();
        let node = installation.start_in(surroundings, provider, 8);
        let id = installation.stored().identity.node_id;
        let real = Self {
            core,
            _installation: installation,
            node,
            id,
            _calls: calls,
        };
        real.connected_anew(None).await;
        real
    }

    fn connection(&self) -> Option<ConnectionId> {
        let connected = self.core.core().hub.connected(self.id);
        connected.map(|connected| connected.connection_id)
    }

    /// Waits for a connection other than `before`.
    async fn connected_anew(&self, before: Option<ConnectionId>) {
        wait::until("the node is connected", LONG, async || {
            self.connection().filter(|now| Some(*now) != before)
        })
        .await
        .unwrap();
    }

    /// Waits for the connection after `before`; the node's backoff passes at once.
    async fn connected(&self, before: ConnectionId) {
        self.node
            .hurried(async || self.connected_anew(Some(before)).await)
            .await;
    }

    fn skip_at_core(&self, seconds: u64) {
        self.core.core().hub.clock().skip(Duration::from_secs(seconds));
    }
}

async fn register(
    installation: &Installation,
    token: &Secret,
    surroundings: Surroundings,
) -> Result<(), oac_node::RegisterError> {
    let core = installation.config.core.clone();
    let client = CoreClient::new(core.clone(), surroundings, Clock::start()).unwrap();
    let registration = Registration {
        config: &installation.config,
        state_dir: &installation.state_dir,
        core: &core,
        name: "node one",
        token,
        host_id: Digest::of("host"),
    };
    register_by(&client, &registration, scripted().0).await.map(drop)
}

// req: P-013
#[tokio::test]
async fn a_node_reaches_a_core_under_tls_through_a_proxy_and_no_core_that_it_cannot_tell() {
    let folder = tempfile::tempdir().unwrap();
    let files = tls::Files::write(folder.path(), tls::FIRST).unwrap();
    let core = core_at(&format!("https://{NAME}"), Some(files.clone())).await;
    let proxy = ConnectProxy::to(address(&core)).await;
    let strangers = installation(&core).await;
    let token = core.enrollment_token(&json!({})).await;
    let refused = register(&strangers, &token, through(&proxy, ""))
        .await
        .unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.contains("UnknownIssuer"), "{text}");

    let real = Real::start(core, trusting(through(&proxy, ""))).await;
    for asked in proxy.asked() {
        assert_eq!(asked.line, format!("CONNECT {NAME}:443 HTTP/1.1"));
    }
    // The certificate is replaced under it; the connection stays, and the next one is made with the new one.
    files.replace_certificate(tls::SECOND.certificate).unwrap();
    files.replace_key(tls::SECOND.key).unwrap();
    real.skip_at_core(5);
    let first = real.connection().unwrap();
    proxy.passage.cut();
    real.connected(first).await;
    real.node.stop().await.unwrap();
}

#[tokio::test]
async fn an_ipv6_literal_is_an_origin_with_tls_and_without() {
    let folder = tempfile::tempdir().unwrap();
    for files in [None, Some(tls::Files::write(folder.path(), tls::FIRST).unwrap())] {
        let scheme = if files.is_some() { "https" } else { "http" };
        let core = core_at(&format!("{scheme}://[fd00::1]:8443"), files).await;
        let proxy = ConnectProxy::to(address(&core)).await;
        let real = Real::start(core, trusting(through(&proxy, ""))).await;
        assert_eq!(proxy.asked()[0].line, "CONNECT [fd00::1]:8443 HTTP/1.1");
        real.node.stop().await.unwrap();
    }
}

// req: P-027
#[tokio::test]
async fn behind_a_reverse_proxy_that_rewrites_host_and_ends_idle_connections_heartbeats_keep_one_connection()
{
    let core = core_at(&format!("http://{NAME}"), None).await;
    let reverse = ReverseProxy::before(address(&core), "internal.test:8080", "203.0.113.7").await;
    let tunnel = ConnectProxy::to(reverse.address).await;
    let real = Real::start(core, through(&tunnel, "")).await;
    reverse.passage.cut_idle_after(Duration::from_secs(60));
    let connection = real.connection().unwrap();
    let mut passed = reverse.passage.passed();
    for _ in 0..20 {
        real.node.skip(10);
        // A heartbeat and its answer.
        for _ in 0..2 {
            let more = reverse.passage.more_than(passed);
            tokio::time::timeout(LONG, more).await.unwrap();
            passed = reverse.passage.passed();
        }
        real.skip_at_core(10);
        reverse.passage.skip(Duration::from_secs(10));
    }
    assert_eq!(real.connection(), Some(connection), "200 s and one connection");
    // Without heartbeats the proxy ends it, which costs no more than another connection.
    reverse.passage.skip(Duration::from_secs(60));
    real.connected(connection).await;
    real.node.stop().await.unwrap();
}

// req: P-030
// inv: INV-P21
#[tokio::test]
async fn a_line_that_goes_dead_without_an_end_is_noticed_by_each_side_alone() {
    let core = core_at(&format!("http://{NAME}"), None).await;
    let line = ConnectProxy::to(address(&core)).await;
    let real = Real::start(core, through(&line, "")).await;
    let first = real.connection().unwrap();
    line.passage.freeze();
    asked_again(&line, &real.node).await;
    assert_eq!(
        real.connection(),
        Some(first),
        "the node's end of it is not passed on"
    );
    wait::until("Core notices", LONG, async || {
        real.skip_at_core(35);
        real.connection().is_none().then_some(())
    })
    .await
    .unwrap();
    line.passage.thaw();
    real.connected(first).await;
    real.node.stop().await.unwrap();
}
