//! One backend under test: an engine, scripted or real, behind a tap, and a provider in front of it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use http::{Method, StatusCode};
use oac_model::{
    Artifacts, BootId, DiagnosticCode, Digest, Generation, ImageDigest, InstallationId, ProviderKind,
    Reference, Resources, RuntimeRelease, SourceCommit, Specification,
};
use oac_provider::{
    Declarations, HostIdentity, Provider, Receipt, ReceiptStore, host_id_of,
    suite::{Arrange, Step, World},
};
use oac_provider_docker::{Clock, DockerConfig, DockerProvider, DockerSetup, engine_id};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    http::call,
    image,
    scripted_engine::ScriptedEngine,
    tap::{Fault, Tap, is_listing, is_step},
};

const HERE: &str = "0123456789abcdef0123456789abcdef";
const ELSEWHERE: &str = "ffffffffffffffffffffffffffffffff";

/// A host whose identity and boot the test decides.
pub(crate) struct TestHost {
    pub(crate) machine: Mutex<&'static str>,
    pub(crate) boot: Mutex<BootId>,
    pub(crate) recorded: Digest,
}

impl HostIdentity for TestHost {
    fn current(&self, anchor: &str) -> Option<Digest> {
        host_id_of(&self.machine.lock(), anchor)
    }
    fn recorded(&self) -> Option<Digest> {
        Some(self.recorded)
    }
    fn boot_id(&self) -> Option<BootId> {
        Some(*self.boot.lock())
    }
}

pub(crate) struct DockerWorld {
    /// The engine itself; changes made here are those of someone else.
    pub(crate) engine: PathBuf,
    pub(crate) tap: Tap,
    pub(crate) scripted: Option<ScriptedEngine>,
    pub(crate) installation: InstallationId,
    pub(crate) host: Arc<TestHost>,
    pub(crate) image: Mutex<ImageDigest>,
    resources: Mutex<Resources>,
    network: String,
    elapsed: Arc<Mutex<Duration>>,
    start: Instant,
    provider: Mutex<Arc<DockerProvider>>,
    directory: tempfile::TempDir,
}

pub(crate) fn seccomp_file() -> PathBuf {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oac-release/assets/seccomp.json");
    assets
        .canonicalize()
        .expect("the release's seccomp profile is in crates/oac-release/assets")
}

/// The real engine's socket.
pub(crate) fn real_engine() -> PathBuf {
    let host = std::env::var("OAC_TEST_DOCKER")
        .expect("OAC_TEST_DOCKER names no Docker Engine: run through cargo xtask test");
    host.strip_prefix("unix://")
        .expect("OAC_TEST_DOCKER is unix:// and a path")
        .into()
}

impl DockerWorld {
    pub(crate) async fn scripted() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = directory.path().join("engine.sock");
        let image = ImageDigest::of("image");
        let network = "oac-test".to_owned();
        let scripted = ScriptedEngine::start(&engine, &image.to_string(), &network);
        Self::new(directory, engine, Some(scripted), image, network).await
    }

    pub(crate) async fn real() -> Self {
        Self::real_with(image::Variant::Plain).await
    }

    pub(crate) async fn real_with(variant: image::Variant) -> Self {
        let engine = real_engine();
        let image = image::ensure(&engine, variant).await;
        let network = format!("oac-test-{}", &InstallationId::random().to_string()[..8]);
        let body = json!({
            "Name": network, "CheckDuplicate": true, "Labels": {"io.oac.test": "docker"},
            "Options": {"com.docker.network.bridge.enable_icc": "false"},
        });
        let (status, answer) = call(&engine, Method::POST, "/networks/create", Some(body)).await;
        assert!(status.is_success(), "{answer}");
        Self::new(tempfile::tempdir().unwrap(), engine, None, image, network).await
    }

    async fn new(
        directory: tempfile::TempDir,
        engine: PathBuf,
        scripted: Option<ScriptedEngine>,
        image: ImageDigest,
        network: String,
    ) -> Self {
        let tap = Tap::new(directory.path().join("tap.sock"), engine.clone());
        let by = Instant::now() + Duration::from_secs(30);
        let anchor = engine_id(&format!("unix://{}", tap.socket.display()), by)
            .await
            .unwrap();
        let host = Arc::new(TestHost {
            machine: Mutex::new(HERE),
            boot: Mutex::new(BootId::random()),
            recorded: host_id_of(HERE, &anchor).unwrap(),
        });
        let (elapsed, start) = (Arc::new(Mutex::new(Duration::ZERO)), Instant::now());
        let installation = InstallationId::random();
        let resources = sandbox(1, 512);
        let parts = (&tap, &host, &elapsed, start);
        let provider = build(
            directory.path(),
            (image, resources),
            &network,
            installation,
            parts,
        );
        Self {
            engine,
            tap,
            scripted,
            installation,
            host,
            image: Mutex::new(image),
            resources: Mutex::new(resources),
            network,
            elapsed,
            start,
            provider: Mutex::new(provider),
            directory,
        }
    }

    pub(crate) fn restart_node(&self) {
        let parts = (&self.tap, &self.host, &self.elapsed, self.start);
        let what = (*self.image.lock(), *self.resources.lock());
        let fresh = build(
            self.directory.path(),
            what,
            &self.network,
            self.installation,
            parts,
        );
        *self.provider.lock() = fresh;
    }

    /// The next generation's sandboxes have another size.
    pub(crate) fn resize(&self, cpus: u32, memory_mib: u64) {
        *self.resources.lock() = sandbox(cpus, memory_mib);
        self.restart_node();
    }

    /// The generation names another image.
    pub(crate) fn use_image(&self, image: ImageDigest) {
        *self.image.lock() = image;
        self.restart_node();
    }

    pub(crate) fn receipt_file(&self, r: &Reference) -> PathBuf {
        self.directory
            .path()
            .join(format!("receipts/{}.json", r.allocation_id))
    }

    pub(crate) fn name(&self, r: &Reference) -> String {
        format!("oac-runtime-{}", r.native_hash(self.installation))
    }

    fn labels(&self, r: &Reference) -> Value {
        json!({
            "io.oac.installation": self.installation.to_string(),
            "io.oac.tenant": r.tenant_id.to_string(),
            "io.oac.environment": r.environment_id.to_string(),
            "io.oac.allocation": r.allocation_id.to_string(),
        })
    }

    /// What stands natively of this installation: containers, whether one runs, volumes.
    pub(crate) async fn standing(&self) -> (usize, bool, usize) {
        let filter = format!(
            "filters=%7B%22label%22%3A%5B%22io.oac.installation%3D{}%22%5D%7D",
            self.installation
        );
        let path = format!("/containers/json?all=true&{filter}");
        let containers = self.engine_call(Method::GET, &path, None).await.1;
        let containers = containers.as_array().unwrap();
        let volumes = self
            .engine_call(Method::GET, &format!("/volumes?{filter}"), None)
            .await
            .1;
        let running = containers.iter().any(|c| c["State"] == "running");
        (
            containers.len(),
            running,
            volumes["Volumes"].as_array().map_or(0, Vec::len),
        )
    }

    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    pub(crate) async fn engine_call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        call(&self.engine, method, path, body).await
    }

    /// Makes a container beside the provider.
    async fn plain_container(&self, name: &str, labels: Value, volumes: &[(String, &str)]) {
        let mounts: Vec<_> = volumes
            .iter()
            .map(|(source, target)| json!({"Type": "volume", "Source": source, "Target": target}))
            .collect();
        let body = json!({
            "Image": self.image.lock().to_string(), "Entrypoint": ["/usr/local/bin/oac-runtime"], "Labels": labels,
            "HostConfig": {"NetworkMode": self.network, "Mounts": mounts},
        });
        let path = format!("/containers/create?name={name}");
        let (status, answer) = self.engine_call(Method::POST, &path, Some(body)).await;
        assert_eq!(status, 201, "{answer}");
    }

    async fn plain_volume(&self, name: &str, labels: Value) {
        let body = json!({"Name": name, "Labels": labels});
        let (status, answer) = self
            .engine_call(Method::POST, "/volumes/create", Some(body))
            .await;
        assert_eq!(status, 201, "{answer}");
    }

    async fn foreign_part(&self, r: &Reference) {
        let name = self.name(r);
        let (home, environment) = (format!("{name}-home"), format!("{name}-environment"));
        self.engine_call(Method::DELETE, &format!("/containers/{name}?force=true"), None)
            .await;
        self.engine_call(Method::DELETE, &format!("/volumes/{environment}"), None)
            .await;
        let mut foreign = self.labels(r);
        foreign["io.oac.environment"] = "another".into();
        self.plain_volume(&environment, foreign).await;
        let volumes = [(home, "/home"), (environment, "/environment")];
        self.plain_container(&name, self.labels(r), &volumes).await;
    }

    async fn wait_for_status(&self, name: &str, status: &str) {
        let path = format!("/containers/{name}/json");
        for _ in 0..2000 {
            let (_, container) = self.engine_call(Method::GET, &path, None).await;
            if container["State"]["Status"] == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} does not become {status}");
    }
}

fn sandbox(cpus: u32, memory_mib: u64) -> Resources {
    Resources {
        cpus,
        memory_mib,
        root_disk_mib: None,
        environment_disk_mib: None,
    }
}

type Parts<'a> = (&'a Tap, &'a Arc<TestHost>, &'a Arc<Mutex<Duration>>, Instant);

fn build(
    directory: &Path,
    (image, resources): (ImageDigest, Resources),
    network: &str,
    installation_id: InstallationId,
    (tap, host, elapsed, start): Parts<'_>,
) -> Arc<DockerProvider> {
    let elapsed = elapsed.clone();
    let clock: Clock = Arc::new(move || start + *elapsed.lock());
    DockerProvider::new(DockerSetup {
        config: DockerConfig {
            host: format!("unix://{}", tap.socket.display()),
            image,
            network: network.to_owned(),
            seccomp_file: seccomp_file(),
        },
        specification: Specification {
            provider: ProviderKind::Docker,
            resources,
            runtime: Some(RuntimeRelease {
                source_commit: SourceCommit::from_bytes([1; 20]),
                artifacts: Artifacts {
                    image_id: Some(image),
                    image_manifest_digest: Some(ImageDigest::of("manifest")),
                    ..Artifacts::default()
                },
            }),
            workspace: None,
        },
        installation_id,
        deployment_generation: Generation::FIRST,
        receipts_dir: directory.join("receipts"),
        host: host.clone(),
        clock,
    })
    .unwrap()
}

#[async_trait]
impl World for DockerWorld {
    fn provider(&self) -> Arc<dyn Provider> {
        self.provider.lock().clone()
    }

    async fn arrange(&self, what: Arrange) {
        match what {
            Arrange::ForeignHolder(r) => self.plain_container(&self.name(&r), json!({"a": "b"}), &[]).await,
            Arrange::ForeignPart(r) => self.foreign_part(&r).await,
            Arrange::ForeignTwin(r) => {
                let mut labels = self.labels(&r);
                labels["io.oac.tenant"] = oac_model::ProjectId::random().to_string().into();
                self.plain_container(&self.name(&r), labels.clone(), &[]).await;
                self.plain_volume(&format!("{}-home", self.name(&r)), labels)
                    .await;
            }
            Arrange::Spoil(step) => self.tap.once(
                is_step(step),
                Fault::Falsify(|body| body["HostConfig"]["NanoCpus"] = 500_000_000.into()),
            ),
            Arrange::Reject(step) => self.tap.once(is_step(step), Fault::Refuse(500)),
            Arrange::Lose(step, lost) => self.tap.once(is_step(step), Fault::Lose(lost)),
            Arrange::Hold(step) => self.tap.once(is_step(step), Fault::Hold),
            Arrange::AwaitHeld => self.tap.await_held().await,
            Arrange::Release => self.tap.release(),
            Arrange::Delay(step) => self.tap.once(is_step(step), Fault::Delay),
            Arrange::Deliver => {
                let answers = self.tap.deliver().await;
                assert!(answers.iter().all(StatusCode::is_success), "{answers:?}");
                assert_eq!(answers.len(), 1);
            }
            Arrange::FailInventory(true) => self.tap.always(is_listing(), Fault::Refuse(500)),
            Arrange::KeepOnRemoval(true) => self
                .tap
                .always(is_step(Step::Remove), Fault::Pretend(StatusCode::NO_CONTENT)),
            Arrange::FailInventory(false) | Arrange::KeepOnRemoval(false) => self.tap.clear(),
            Arrange::RemoveCompute(r) => {
                let path = format!("/containers/{}?force=true", self.name(&r));
                assert!(self.engine_call(Method::DELETE, &path, None).await.0.is_success());
            }
            Arrange::EndCompute(r) => {
                let path = format!("/containers/{}/kill", self.name(&r));
                assert!(self.engine_call(Method::POST, &path, None).await.0.is_success());
                self.wait_for_status(&self.name(&r), "exited").await;
            }
            Arrange::RestartCompute(r) => {
                let path = format!("/containers/{}/start", self.name(&r));
                assert!(self.engine_call(Method::POST, &path, None).await.0.is_success());
            }
            Arrange::Reboot => {
                *self.host.boot.lock() = BootId::random();
                self.restart_node();
            }
            Arrange::Steady => {
                for _ in 0..7 {
                    let by = Instant::now() + Duration::from_secs(30);
                    let _ = self.provider().probe(by).await;
                    *self.elapsed.lock() += Duration::from_secs(10);
                }
            }
            Arrange::OtherHost(other) => *self.host.machine.lock() = if other { ELSEWHERE } else { HERE },
            Arrange::RestartNode => self.restart_node(),
            Arrange::FaultAt(n, fault) => self.tap.at(n, false, fault.into()),
            Arrange::FaultAtEffect(n, fault) => self.tap.at(n, true, fault.into()),
            Arrange::Calm => self.tap.clear(),
            Arrange::AwaitWork(r) => self.provider().idle(&r).await,
            Arrange::FailChecks(first) => {
                crate::checks::fail_from(&self.tap, first);
                // The next call greets the engine anew.
                self.tap.cut().await;
            }
            other => panic!("Docker is never asked for {other:?}"),
        }
    }

    fn is_quick(&self) -> bool {
        self.scripted.is_some()
    }

    fn declared(&self) -> Declarations {
        oac_provider_docker::registered().unwrap().declarations().clone()
    }

    fn calls(&self) -> usize {
        self.tap.calls().len()
    }

    fn effects(&self) -> usize {
        self.tap.effects()
    }

    fn made(&self, step: Step) -> usize {
        self.tap.passed(step)
    }

    fn receipt(&self, r: &Reference) -> Option<Receipt> {
        let receipts = ReceiptStore::open(&self.directory.path().join("receipts")).unwrap();
        receipts.read(r).unwrap()
    }

    async fn live(&self, r: &Reference) -> Vec<String> {
        let path = format!("/containers/{}/json", self.name(r));
        let (_, container) = self.engine_call(Method::GET, &path, None).await;
        let status = container["State"]["Status"].as_str();
        let live = status.filter(|status| !["exited", "dead"].contains(status));
        live.map(|_| self.name(r)).into_iter().collect()
    }

    async fn policy(&self, r: &Reference) -> String {
        let path = format!("/containers/{}/json", self.name(r));
        let (_, container) = self.engine_call(Method::GET, &path, None).await;
        container["HostConfig"]["NetworkMode"].to_string()
    }

    fn checks(&self) -> Vec<DiagnosticCode> {
        crate::checks::codes()
    }

    async fn present(&self, r: &Reference) -> Vec<String> {
        let name = self.name(r);
        let mut found = Vec::new();
        for path in [
            format!("/containers/{name}/json"),
            format!("/volumes/{name}-home"),
            format!("/volumes/{name}-environment"),
        ] {
            let (status, value) = self.engine_call(Method::GET, &path, None).await;
            if status.is_success() {
                let id = value["Id"].as_str().unwrap_or_default();
                found.push(format!("{path} {id} {}", value["CreatedAt"]));
            }
        }
        found
    }

    async fn shown(&self, r: &Reference) -> String {
        let name = self.name(r);
        let mut all = String::new();
        for path in [
            format!("/containers/{name}/json"),
            format!("/containers/{name}/top"),
            format!("/containers/{name}/logs?stdout=1&stderr=1"),
            format!("/volumes/{name}-home"),
            format!("/volumes/{name}-environment"),
        ] {
            all.push_str(&self.engine_call(Method::GET, &path, None).await.1.to_string());
        }
        all
    }

    fn tool(&self) -> String {
        image::TOOL.into()
    }

    fn observed_as(&self) -> InstallationId {
        self.installation
    }
}

/// Removes everything of this test from the real engine, also after a failed assertion.
impl Drop for DockerWorld {
    fn drop(&mut self) {
        if self.scripted.is_some() {
            return;
        }
        let (engine, network) = (self.engine.clone(), self.network.clone());
        let label = format!("io.oac.installation={}", self.installation);
        // A runtime of its own: this may run while the test's unwinds.
        let cleanup = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let labelled = format!(
                    "filters=%7B%22label%22%3A%5B%22{}%22%5D%7D",
                    label.replace('=', "%3D")
                );
                let on_network = format!("filters=%7B%22network%22%3A%5B%22{network}%22%5D%7D");
                for filter in [&labelled, &on_network] {
                    let path = format!("/containers/json?all=1&{filter}");
                    let (_, containers) = call(&engine, Method::GET, &path, None).await;
                    for c in containers.as_array().into_iter().flatten() {
                        let path = format!("/containers/{}?force=1", c["Id"].as_str().unwrap_or_default());
                        call(&engine, Method::DELETE, &path, None).await;
                    }
                }
                let (_, list) = call(&engine, Method::GET, &format!("/volumes?{labelled}"), None).await;
                for v in list["Volumes"].as_array().into_iter().flatten() {
                    let path = format!("/volumes/{}", v["Name"].as_str().unwrap_or_default());
                    call(&engine, Method::DELETE, &path, None).await;
                }
                call(&engine, Method::DELETE, &format!("/networks/{network}"), None).await;
            });
        });
        let _ = cleanup.join();
    }
}
