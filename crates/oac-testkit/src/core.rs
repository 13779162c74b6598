//! A Core in this process on a free port, with a database of its own, a Core key, a Project and its key.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    path::PathBuf,
    sync::Arc,
};

use oac_core::{
    Core,
    config::{Config, TlsFiles, TrustedProxies},
    entropy,
    http::serve,
    run::{self, Running},
};
use oac_model::{CoreKeyId, NodeId, ProjectId, Secret};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{postgres::TestDatabase, scrape::Scrape};

/// How a [`TestCore`] is started.
#[derive(Debug, Default)]
pub struct CoreOptions {
    /// A fresh PostgreSQL database instead of SQLite; needs `OAC_TEST_POSTGRES`.
    pub postgres: bool,
    /// Instead of this host's own address; `None` within means unset.
    pub public_url: Option<Option<String>>,
    /// Added to the database's clock.
    pub clock_offset_millis: i64,
    /// Do not wait for ownership, and make neither Project nor its key.
    pub standby: bool,
    /// What it shows as its certificate; then `url` is `https`.
    pub tls: Option<crate::tls::Files>,
    /// Networks whose word about a client's address it believes.
    pub trusted_proxies: Vec<String>,
    /// Where nodes are sent for files of releases that it does not hold.
    pub release_url: Option<String>,
    /// The collector that takes its spans, all of them.
    pub collector: Option<SocketAddr>,
}

/// Where the data is; kept over [`TestCore::restart`].
#[derive(Debug)]
pub struct Data {
    folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

/// A running Core. Dropped, it stops serving; [`TestCore::stop`] stops it cleanly.
pub struct TestCore {
    running: Option<Running>,
    config: Config,
    /// `http://127.0.0.1:port`, or `https`.
    pub url: String,
    /// What nodes and sandboxes are told; this host's own address unless set otherwise.
    pub public_url: Option<String>,
    pub core_key: Secret,
    pub core_key_id: CoreKeyId,
    pub project_id: ProjectId,
    pub project_key: Secret,
    http: reqwest::Client,
    data: Arc<Data>,
}

/// An answer: its status and its document, null when there is none.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
    pub headers: reqwest::header::HeaderMap,
}

impl Answer {
    /// `error.code`, empty when there is none.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    /// The document, if the status is `status`.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }
}

/// An enrolled node's name and credential.
#[derive(Debug, Clone)]
pub struct EnrolledNode {
    pub node_id: NodeId,
    pub credential: Secret,
    /// The answer to enroll.
    pub identity: Value,
}

impl TestCore {
    /// On SQLite, owning its installation.
    pub async fn start() -> Self {
        Self::with(CoreOptions::default()).await
    }

    /// On PostgreSQL, owning its installation.
    pub async fn start_postgres() -> Self {
        Self::with(CoreOptions {
            postgres: true,
            ..CoreOptions::default()
        })
        .await
    }

    pub async fn with(options: CoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let database = if options.postgres {
            Some(TestDatabase::create().await)
        } else {
            None
        };
        Self::on(Arc::new(Data { folder, database }), options).await
    }

    /// Another Core on the same database: for PostgreSQL a standby, for SQLite after [`Self::stop`] a restart.
    pub async fn beside(&self, options: CoreOptions) -> Self {
        Self::on(self.data.clone(), options).await
    }

    async fn on(data: Arc<Data>, options: CoreOptions) -> Self {
        log();
        let listeners = serve::bind(&[SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))])
            .await
            .unwrap_or_else(|e| panic!("cannot listen: {e}"));
        let port = listeners[0]
            .local_addr()
            .unwrap_or_else(|e| panic!("no address: {e}"))
            .port();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let public_url = match options.public_url {
            Some(url) => url,
            None => Some(format!("{scheme}://{}", SocketAddr::new(own_address(), port))),
        };
        let config = Config {
            listen: Vec::new(),
            metrics_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            public_url: public_url
                .as_deref()
                .map(|u| u.parse().unwrap_or_else(|e| panic!("{u}: {e}"))),
            database: data
                .database_url()
                .parse()
                .unwrap_or_else(|e| panic!("database: {e}")),
            database_password: data.password(),
            tls: options.tls.as_ref().map(|files| TlsFiles {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            }),
            trusted_proxies: TrustedProxies::parse(&options.trusted_proxies)
                .unwrap_or_else(|e| panic!("trusted proxies: {e}")),
            release_dir: data.release_dir(),
            release_url: options
                .release_url
                .as_deref()
                .map(|url| url.parse().unwrap_or_else(|e| panic!("{url}: {e}"))),
            traces: options.collector.map(crate::collector::settings),
        };
        let running = run::start_on(config.clone(), listeners, options.clock_offset_millis)
            .await
            .unwrap_or_else(|e| panic!("Core does not start: {e:?}"));
        let store = &running.core.store;
        let core_key = new_secret(entropy::CORE_KEY_PREFIX);
        let row = store
            .create_core_key("test", core_key.digest())
            .await
            .unwrap_or_else(|e| panic!("no Core key: {e:?}"));
        let mut core = Self {
            running: Some(running),
            config,
            url: format!("{scheme}://127.0.0.1:{port}"),
            public_url,
            core_key,
            core_key_id: row.id,
            project_id: ProjectId::random(),
            project_key: Secret::new(""),
            http: client(),
            data,
        };
        if !options.standby {
            core.core().owner.owned().await;
            (core.project_id, core.project_key) = core.new_project("test").await;
        }
        core
    }

    /// The Core itself, for what its routes do not show.
    pub fn core(&self) -> &Arc<Core> {
        match &self.running {
            Some(running) => &running.core,
            None => panic!("this Core was stopped"),
        }
    }

    /// Where it looks for releases; nothing is there at first.
    pub fn release_dir(&self) -> std::path::PathBuf {
        self.data.release_dir()
    }

    /// `database.url` of this Core's configuration.
    pub fn database_url(&self) -> String {
        self.data.database_url()
    }

    /// The password beside it, as `database.password_file` would give it.
    pub fn database_password(&self) -> Option<Secret> {
        self.data.password()
    }

    /// Runs one statement on the PostgreSQL database, as a stranger's connection would.
    ///
    /// # Panics
    /// On SQLite.
    pub async fn execute(&self, sql: &str) {
        match &self.data.database {
            Some(database) => database.execute(sql).await,
            None => panic!("only a PostgreSQL database takes strangers"),
        }
    }

    /// Stops cleanly, expiring the lease.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }

    /// Stops cleanly, then starts a Core on the same database and port, with the same keys.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
        self.core().owner.owned().await;
    }

    /// After [`Self::stop`]: a Core on the same database and port, with the same keys. It owns the installation when it
    /// can, and stands by otherwise.
    pub async fn start_again(&mut self) {
        let port = self
            .url
            .rsplit_once(':')
            .and_then(|(_, port)| port.parse().ok())
            .unwrap_or(0);
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let listeners = serve::bind(&[address])
            .await
            .unwrap_or_else(|e| panic!("cannot listen: {e}"));
        let running = run::start_on(self.config.clone(), listeners, 0)
            .await
            .unwrap_or_else(|e| panic!("no restart: {e:?}"));
        self.running = Some(running);
    }

    /// Where it answers scrapes.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.running.as_ref().and_then(|running| running.metrics_address)
    }

    /// What it says to Prometheus.
    ///
    /// # Panics
    /// When it was stopped.
    pub async fn scrape(&self) -> Scrape {
        match self.metrics_address() {
            Some(address) => Scrape::of(address).await,
            None => panic!("this Core answers no scrapes"),
        }
    }

    /// A Project and a key of it.
    pub async fn new_project(&self, name: &str) -> (ProjectId, Secret) {
        let body = json!({ "name": name });
        let project = self
            .operator(Method::POST, "/core/v1/projects", Some(&body))
            .await
            .expect(201);
        let id: ProjectId = parse(&project["id"]);
        let path = format!("/core/v1/projects/{id}/keys");
        let key = self.operator(Method::POST, &path, Some(&body)).await.expect(201);
        (id, Secret::new(key["key"].as_str().unwrap_or("")))
    }

    /// A request with the Core key.
    pub async fn operator(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.call(method, path, Some(&self.core_key), body).await
    }

    /// A request with the Project's key.
    pub async fn application(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.call(method, path, Some(&self.project_key), body).await
    }

    /// A request with `credential`, or none.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        credential: Option<&Secret>,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(credential) = credential {
            request = request.bearer_auth(credential.expose());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        send(request).await
    }

    /// A request to be completed by the caller and passed to [`send`].
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// Saves a Docker deployment of made-up images, in place of the present one; the safe deployment.
    pub async fn deploy(&self, cpus: u32, memory_mib: u64) -> Value {
        let path = "/core/v1/sandbox/deployment";
        let now = self.operator(Method::GET, path, None).await.expect(200);
        let method = if now["provider"].is_null() {
            Method::POST
        } else {
            Method::PUT
        };
        let generation = now["generation"].as_u64().unwrap_or(0);
        self.operator(
            method,
            path,
            Some(&docker_selection(generation, cpus, memory_mib)),
        )
        .await
        .expect(200)
    }

    /// An enrollment token; `limits` as its route takes it.
    pub async fn enrollment_token(&self, limits: &Value) -> Secret {
        let path = "/core/v1/sandbox/enrollment-tokens";
        let token = self.operator(Method::POST, path, Some(limits)).await.expect(201);
        Secret::new(token["token"].as_str().unwrap_or(""))
    }

    /// A body for enroll that fits the present deployment, and the credential in it.
    pub async fn enrollment(&self) -> (Value, Secret) {
        let now = self
            .operator(Method::GET, "/core/v1/sandbox/deployment", None)
            .await
            .expect(200);
        let credential = new_secret("");
        let body = json!({
            "node_id": NodeId::random(),
            "credential": credential.expose(),
            "name": "test node",
            "provider": now["provider"],
            "backend_fingerprint": oac_model::backend_fingerprint(
                oac_model::ProviderKind::Docker,
                "unix:///var/run/docker.sock",
            ),
            "deployment_generation": now["generation"],
            "specification_digest": now["specification_digest"],
            "core_url": self.public_url,
        });
        (body, credential)
    }

    /// Enrolls a node that no program runs behind; it needs a deployment.
    pub async fn enroll(&self, limits: &Value) -> EnrolledNode {
        let token = self.enrollment_token(limits).await;
        let (body, credential) = self.enrollment().await;
        let path = "/api/v1/sandbox-node/enroll";
        let identity = self
            .call(Method::POST, path, Some(&token), Some(&body))
            .await
            .expect(201);
        EnrolledNode {
            node_id: parse(&identity["node_id"]),
            credential,
            identity,
        }
    }
}

impl Data {
    fn release_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("releases")
    }

    fn database_url(&self) -> String {
        match &self.database {
            Some(database) => database.url(),
            None => format!("sqlite://{}", self.sqlite_file().display()),
        }
    }

    fn password(&self) -> Option<Secret> {
        self.database
            .as_ref()
            .and_then(TestDatabase::password)
            .map(Secret::new)
    }

    fn sqlite_file(&self) -> PathBuf {
        self.folder.path().join("core.db")
    }
}

impl Drop for TestCore {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.core.tasks.stop();
        }
    }
}

/// What the Cores of this process say goes to the test's captured output, so that a failed test shows why. `OAC_LOG`
/// chooses as it does for the program.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("OAC_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // The first one in the process wins; all are the same.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_test_writer()
        .with_ansi(false)
        .try_init();
}

/// The answer to a request.
///
/// # Panics
/// When there is none.
pub async fn send(request: reqwest::RequestBuilder) -> Answer {
    try_send(request)
        .await
        .unwrap_or_else(|e| panic!("no whole answer: {e:?}"))
}

/// The answer to a request that may get none.
pub async fn try_send(request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
    let response = request.send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await?;
    Ok(Answer {
        status,
        headers,
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
    })
}

/// A client that follows no redirect, takes no proxy and believes the test authority alone.
pub(crate) fn client() -> reqwest::Client {
    // The first one in the process wins; all are the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(reqwest::Certificate::from_pem(crate::tls::AUTHORITY.as_bytes()))
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap_or_else(|e| panic!("no HTTP client: {e:?}"))
}

/// A Docker selection of made-up images.
pub fn docker_selection(expected_generation: u64, cpus: u32, memory_mib: u64) -> Value {
    json!({
        "expected_generation": expected_generation,
        "provider": "docker",
        "resources": { "cpus": cpus, "memory_mib": memory_mib },
        "runtime": {
            "source_commit": "1".repeat(40),
            "artifacts": {
                "image_id": format!("sha256:{}", "ab".repeat(32)),
                "image_manifest_digest": format!("sha256:{}", "cd".repeat(32)),
            },
        },
    })
}

/// A fresh key, token or credential.
pub fn new_secret(prefix: &str) -> Secret {
    entropy::secret(prefix).unwrap_or_else(|e| panic!("no randomness: {e}"))
}

/// The address of this host's default route: usable as a public address, where loopback is not. Nothing is sent.
fn own_address() -> IpAddr {
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket
            .connect((Ipv4Addr::new(192, 0, 2, 1), 9))
            .and_then(|()| socket.local_addr())
    });
    match asked {
        Ok(address) if !address.ip().is_loopback() => address.ip(),
        // Without a network nothing but this process can reach Core; the address is then only a name.
        _ => IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    }
}

fn parse<T: std::str::FromStr>(value: &Value) -> T {
    match value.as_str().and_then(|text| text.parse().ok()) {
        Some(id) => id,
        None => panic!("not an id: {value}"),
    }
}
