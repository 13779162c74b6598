//! A node's files, and the node running on them.

use std::{path::PathBuf, sync::Arc};

use axum::http::StatusCode;
use oac_generations::{
    Store,
    layout::{self, Layout},
    lease,
    records::{self, Record as _},
};
use oac_model::Digest;
use oac_node::{
    Clock, CoreClient, Opened, RunError, Surroundings,
    config::Configuration,
    identity::{IdentityError, IdentityStore, Stored},
    metrics::Metrics,
    run_by,
};
use oac_provider::Provider;
use oac_records::{Directory, Lock, LockError};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    provider::{Calls, scripted},
    scripted_core::{Link, ScriptedCore, unauthorized},
};

pub(crate) struct Installation {
    _temp: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) config: Configuration,
}

/// The engine a configuration names.
pub(crate) struct Backend {
    pub(crate) host: String,
    /// 64 hex digits.
    pub(crate) image: String,
    pub(crate) network: String,
}

fn nowhere() -> Backend {
    Backend {
        host: "unix:///nonexistent/docker.sock".into(),
        image: "ab".repeat(32),
        network: "oac-node-1".into(),
    }
}

fn document(core_url: &str, seccomp: &str, backend: &Backend) -> String {
    let Backend { host, image, network } = backend;
    let manifest = "cd".repeat(32);
    format!(
        r#"{{"installation_id":"11111111-1111-4111-8111-111111111111","provider":"docker","core_url":"{core_url}/api/v1","specification":{{"provider":"docker","resources":{{"cpus":1,"memory_mib":512}},"runtime":{{"source_commit":"{}","artifacts":{{"image_id":"sha256:{image}","image_manifest_digest":"sha256:{manifest}"}}}}}},"generation":1,"native":{{"host":"{host}","image":"sha256:{image}","network":"{network}","seccomp_file":"{seccomp}"}}}}"#,
        "a".repeat(40)
    )
}

/// A scripted Core, and a node that has said hello to it: its files, the calls to its provider, itself with eight
/// operations at a time, and its connection.
pub(crate) async fn dialed() -> (ScriptedCore, Installation, Calls, Running, Link) {
    let mut core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let (provider, calls) = scripted();
    let node = installation.start(provider, 8);
    let mut link = core.accept().await;
    link.hello().await;
    (core, installation, calls, node, link)
}

/// The same, and the node was welcomed.
pub(crate) async fn connected() -> (ScriptedCore, Installation, Calls, Running, Link) {
    let (core, installation, calls, node, mut link) = dialed().await;
    link.welcome().await;
    (core, installation, calls, node, link)
}

impl Installation {
    /// A configuration for `core`, unregistered.
    pub(crate) fn new(core: &ScriptedCore) -> Self {
        Self::on(core, &nowhere())
    }

    /// A configuration for `core` and a backend, unregistered.
    pub(crate) fn on(core: &ScriptedCore, backend: &Backend) -> Self {
        Self::of(|seccomp| document(&core.url(), seccomp, backend))
    }

    /// A configuration as `document` writes it, given the path of its seccomp file; unregistered.
    pub(crate) fn of(document: impl FnOnce(&str) -> String) -> Self {
        // Recognisable, for whoever looks for a path where none belongs.
        let temp = tempfile::Builder::new()
            .prefix("canary-of-a-path")
            .tempdir()
            .unwrap();
        let root = Directory::create(&temp.path().join("root")).unwrap();
        let runtime = root.make("runtime").unwrap();
        runtime.write("seccomp.json", b"{}").unwrap();
        let seccomp = runtime.path().join("seccomp.json").display().to_string();
        root.write("provider.json", document(&seccomp).as_bytes())
            .unwrap();
        let config = Configuration::load(&root.path().join("provider.json")).unwrap();
        Self {
            root: root.path().to_owned(),
            state_dir: root.path().join("node"),
            config,
            _temp: temp,
        }
    }

    /// Makes it a node that manages generations and that Core knows: what the installer writes, `state/node` as its state
    /// and the lease of its enrolled generation; releases come from `source_url`.
    pub(crate) fn managing(mut self, core: &ScriptedCore, host_id: Digest) -> Self {
        let config = &self.config;
        let root = Directory::open(&self.root).unwrap();
        let runtime = config.specification.runtime.as_ref().unwrap();
        let record = records::Installation {
            installation_id: config.installation_id,
            provider: config.provider,
            core_url: config.core.api_url(),
            source_commit: runtime.source_commit,
            generation: config.generation,
            specification_digest: config.specification_digest(),
        };
        let source = records::Preparation {
            source_url: core.url(),
        };
        root.write(layout::INSTALLATION, &record.encode()).unwrap();
        let seccomp = std::fs::read(self.root.join("runtime/seccomp.json")).unwrap();
        let artifacts = records::RuntimeArtifacts {
            installation_id: config.installation_id,
            source_commit: runtime.source_commit,
            sha256: [("runtime/seccomp.json".to_owned(), Digest::of(seccomp))].into(),
        };
        root.write(layout::PREPARATION, &source.encode()).unwrap();
        root.write(layout::RUNTIME_ARTIFACTS, &artifacts.encode())
            .unwrap();
        self.state_dir = root
            .make("state")
            .unwrap()
            .make("node")
            .unwrap()
            .path()
            .to_owned();
        let store = Store::open(Layout::new(&self.root), config.installation_id).unwrap();
        let identity = store.identity(config.generation, config.specification_digest());
        drop(lease::create(&store, identity).unwrap());
        let stored = Stored::new(config, host_id).unwrap();
        IdentityStore::create(&self.state_dir)
            .unwrap()
            .store(&stored)
            .unwrap();
        *core.script.identity.lock() =
            Box::new(move |seen| known(&stored, seen.headers.get("authorization")));
        self
    }

    /// A registered node that Core knows.
    pub(crate) fn registered(core: &ScriptedCore) -> Self {
        Self::registered_at(core, &core.url())
    }

    /// A registered node that knows `core` as another origin.
    pub(crate) fn registered_at(core: &ScriptedCore, origin: &str) -> Self {
        let installation = Self::of(|seccomp| document(origin, seccomp, &nowhere()));
        let store = IdentityStore::create(&installation.state_dir).unwrap();
        let stored = Stored::new(&installation.config, Digest::of("host")).unwrap();
        store.store(&stored).unwrap();
        *core.script.identity.lock() =
            Box::new(move |seen| known(&stored, seen.headers.get("authorization")));
        installation
    }

    pub(crate) fn stored(&self) -> Stored {
        oac_node::identity::peek(&self.state_dir).unwrap().unwrap()
    }

    pub(crate) fn start(&self, provider: Arc<dyn Provider>, operations: usize) -> Running {
        self.start_in(Surroundings::default(), provider, operations)
    }

    /// Locked for a node in this process. What another test starts at this moment holds copies of all descriptors here,
    /// a lock that was just given back too, until it executes its program.
    fn opened(&self) -> Opened {
        let begun = std::time::Instant::now();
        loop {
            match Opened::new(&self.config, &self.state_dir) {
                Err(IdentityError::Lock(LockError::Busy(_))) if begun.elapsed().as_secs() < 30 => {
                    std::thread::yield_now();
                }
                opened => return opened.unwrap(),
            }
        }
    }

    pub(crate) fn start_in(
        &self,
        surroundings: Surroundings,
        provider: Arc<dyn Provider>,
        operations: usize,
    ) -> Running {
        let clock = Clock::start();
        let opened = self.opened();
        let metrics = opened.metrics();
        let core = CoreClient::new(opened.core().clone(), surroundings, clock.clone()).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let mut task = JoinSet::new();
        task.spawn(run_by(core, opened, provider, operations, || {}, async move {
            let _ = stopped.await;
        }));
        let state_dir = self.state_dir.clone();
        Running {
            clock,
            stop,
            task,
            state_dir,
            metrics,
        }
    }
}

/// GET identity's answer for the bearer of this node's credential.
pub(crate) fn known(
    stored: &Stored,
    authorization: Option<&axum::http::HeaderValue>,
) -> (StatusCode, String) {
    let expected = format!("Bearer {}", stored.credential.expose());
    if authorization.and_then(|v| v.to_str().ok()) != Some(&expected) {
        return unauthorized();
    }
    (
        StatusCode::OK,
        answer(stored, r#","connected":false,"provider_ready":false"#),
    )
}

/// The members of an enroll or identity answer.
pub(crate) fn answer(stored: &Stored, more: &str) -> String {
    let i = &stored.identity;
    format!(
        r#"{{"node_id":"{}","installation_id":"{}","provider":"docker","deployment_generation":{},"specification_digest":"{}","max_active":3,"max_retained":4{more}}}"#,
        i.node_id, i.installation_id, i.deployment_generation, i.specification_digest
    )
}

pub(crate) struct Running {
    pub(crate) clock: Clock,
    stop: oneshot::Sender<()>,
    task: JoinSet<Result<(), RunError>>,
    state_dir: PathBuf,
    /// What the node counts.
    pub(crate) metrics: Metrics,
}

impl Running {
    /// Lets this much of the node's time pass at once.
    pub(crate) fn skip(&self, seconds: u64) {
        self.clock.skip(std::time::Duration::from_secs(seconds));
    }

    /// Waits for `done` while the node's time passes 30 s at once: no backoff is waited for. A leap takes from the
    /// deadlines of a dial under way too, which needs real time: each leap leaves twice as much of it as the one before.
    pub(crate) async fn hurried<T>(&self, mut done: impl AsyncFnMut() -> T) -> T {
        let mut patience = std::time::Duration::from_millis(200);
        loop {
            self.skip(30);
            if let Ok(value) = tokio::time::timeout(patience, done()).await {
                return value;
            }
            patience *= 2;
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.task.try_join_next().is_none()
    }

    /// The end of a node that ends by itself.
    pub(crate) async fn ended(mut self) -> Result<(), RunError> {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), self.task.join_next());
        ended.await.expect("the node goes on").unwrap().unwrap()
    }

    pub(crate) async fn stop(self) -> Result<(), RunError> {
        let (never, _) = oneshot::channel();
        let Self { stop, .. } = self;
        stop.send(()).unwrap();
        let ended = Self { stop: never, ..self };
        ended.ended().await
    }

    /// Ends the node as a kill would: nothing is closed, nothing is written. A write to the disk that has begun goes on
    /// on a thread of its own here, and ends with the process there: it is waited for.
    pub(crate) async fn kill(mut self) {
        self.task.shutdown().await;
        let state = Directory::open(&self.state_dir).unwrap();
        let unlocked = async {
            while Lock::exclusive(&state, "identity.lock").is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), unlocked)
            .await
            .expect("the node holds its lock after its end");
    }
}
