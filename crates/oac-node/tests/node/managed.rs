//! A node that manages generations and what surrounds it: the program as a process of the service account, an engine, a
//! scripted Core that says which generations there are, and a Runtime release that Core serves.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

use axum::response::{IntoResponse, Response};
use oac_model::{Digest, ImageDigest, NodeId, ProviderKind, SourceCommit, Specification};
use oac_release::{
    layout::{self, Role},
    manifest::{Artifact, Image, Manifest, Unpacked},
    metadata::Metadata,
};
use oac_wire::{
    CoreFrame, NodeFrame, Nullable,
    frames::{
        Deployment, GenerationState, GenerationStatus, RetentionAck, RetentionAckControl, RetentionAnswer,
    },
};
use parking_lot::Mutex;
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;

use crate::{
    docker::{Made, command_of, docker},
    installation::{Backend, Installation},
    program::program,
    scripted_core::{Link, ScriptedCore, Seen},
    scripted_engine::{self, ScriptedEngine},
};

/// Generous: a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Another Runtime release, its image in no engine. Dropped, its image is removed wherever a test had it loaded.
pub(crate) struct OtherRelease {
    /// Of a real engine.
    socket: Option<String>,
    pub(crate) image: ImageDigest,
    pub(crate) metadata: Metadata,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

pub(crate) const OTHER_COMMIT: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// Of the other release.
pub(crate) const PROFILE: &[u8] = b"{\"defaultAction\":\"SCMP_ACT_ALLOW\"}";

impl OtherRelease {
    /// For a real engine.
    fn new(made: &Made) -> Self {
        let socket = made.socket.clone();
        let label = format!("LABEL oac.test.other={}", oac_model::NodeId::random());
        let id = docker(&socket, &["import", "--change", &label, "-"]);
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("archive");
        docker(&socket, &["save", "--output", archive.to_str().unwrap(), &id]);
        docker(&socket, &["image", "rm", &id]);
        let archive = std::fs::read(&archive).unwrap();
        Self::of(OTHER_COMMIT, Some(socket), id.parse().unwrap(), archive)
    }

    /// For a scripted engine: 100 kB that are an image.
    pub(crate) fn scripted(commit: &str) -> Self {
        let archive: Vec<u8> = commit.bytes().cycle().take(100_000).collect();
        Self::of(commit, None, ImageDigest::of(&archive), archive)
    }

    fn of(commit: &str, socket: Option<String>, image: ImageDigest, archive: Vec<u8>) -> Self {
        let commit: SourceCommit = commit.parse().unwrap();
        let image = Image {
            config_digest: image,
            manifest_digest: ImageDigest::of("a manifest"),
        };
        let contents = [
            (layout::NODE, b"a program".to_vec()),
            (layout::INSTALLER, b"an installer".to_vec()),
            (layout::SECCOMP, PROFILE.to_vec()),
            (layout::IMAGE, archive),
        ];
        let (mut artifacts, mut files) = (Vec::new(), BTreeMap::new());
        for (row, bytes) in contents {
            let filename = format!("oac-{commit}-linux-amd64-{}", row.suffix);
            let (size_bytes, sha256) = (bytes.len() as u64, Digest::of(&bytes));
            artifacts.push(Artifact {
                key: row.key.to_owned(),
                filename: filename.clone(),
                role: row.role,
                provider: row.provider,
                size_bytes,
                sha256,
                unpacked: (row.role == Role::Image).then_some(Unpacked { size_bytes, sha256 }),
            });
            files.insert(format!("artifacts/{filename}"), bytes);
        }
        let metadata = Metadata::of(Manifest::of(commit, image, artifacts).unwrap());
        files.insert("manifest.json".to_owned(), metadata.manifest_bytes().to_vec());
        files.insert("SHA256SUMS".to_owned(), metadata.sums_bytes().to_vec());
        Self {
            socket,
            image: image.config_digest,
            metadata,
            files,
        }
    }

    pub(crate) fn remove_image(&self) {
        self.image("rm");
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.image("inspect")
    }

    fn image(&self, verb: &str) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let host = format!("unix://{socket}");
        let output = std::process::Command::new("docker")
            .args(["-H", &host, "image", verb, &self.image.to_string()])
            .output();
        output.is_ok_and(|output| output.status.success())
    }
}

impl Drop for OtherRelease {
    fn drop(&mut self) {
        self.remove_image();
    }
}

/// The engine of a managed node.
pub(crate) enum Engine {
    Docker(Made),
    Scripted(ScriptedEngine),
}

impl Engine {
    fn socket(&self) -> String {
        match self {
            Self::Docker(made) => made.socket.clone(),
            Self::Scripted(engine) => engine.socket.display().to_string(),
        }
    }
}

pub(crate) struct Managed {
    pub(crate) engine: Engine,
    pub(crate) core: ScriptedCore,
    pub(crate) installation: Installation,
    /// Of generation 1 and on: each has memory of its own.
    pub(crate) specifications: Vec<Specification>,
    /// Generations that Core keeps no longer.
    pub(crate) dropped: Arc<Mutex<BTreeSet<i64>>>,
}

/// The file of a release at this path below it, as Core answers it.
pub(crate) type Serve = Box<dyn Fn(&Seen, &str) -> Option<Response> + Send + Sync>;

/// These files, whole.
pub(crate) fn served(files: BTreeMap<String, Vec<u8>>) -> Serve {
    Box::new(move |_, path| files.get(path).cloned().map(IntoResponse::into_response))
}

impl Managed {
    /// Enrolled with generation 1, whose image the engine has.
    pub(crate) async fn new() -> Self {
        let made = Made::new();
        let backend = Backend {
            host: made.backend.host.clone(),
            image: made.backend.image.clone(),
            network: made.backend.network.clone(),
        };
        Self::on(Engine::Docker(made), &backend).await
    }

    async fn on(engine: Engine, backend: &Backend) -> Self {
        let core = ScriptedCore::start().await;
        let installation = Installation::on(&core, backend);
        let host_id = match &engine {
            Engine::Docker(_) => oac_node::backend::host_id(&installation.config).await.unwrap(),
            // Not asked of it: whoever is asked within a bound may be late on a busy machine.
            Engine::Scripted(_) => {
                let machine = std::fs::read_to_string("/etc/machine-id").unwrap();
                oac_provider::host_id_of(&machine, scripted_engine::ID).unwrap()
            }
        };
        let installation = installation.managing(&core, host_id);
        let sized = |n: u64| {
            let mut specification = installation.config.specification.clone();
            specification.resources.memory_mib = 512 + n * 64;
            specification
        };
        let managed = Self {
            engine,
            core,
            specifications: (0..9).map(sized).collect(),
            installation,
            dropped: Arc::default(),
        };
        managed.answer(served(BTreeMap::new()));
        managed
    }

    /// Generation 2 and on select another Runtime release, which Core serves.
    pub(crate) async fn with_release() -> (Self, OtherRelease) {
        let mut managed = Self::new().await;
        let Engine::Docker(made) = &managed.engine else {
            unreachable!("it was made so");
        };
        let release = OtherRelease::new(made);
        managed.select(&release);
        (managed, release)
    }

    /// The same on a scripted engine.
    pub(crate) async fn scripted() -> (Self, OtherRelease) {
        let engine = ScriptedEngine::start();
        let image = "ab".repeat(32);
        engine.held.images.lock().insert(format!("sha256:{image}"));
        let backend = Backend {
            host: format!("unix://{}", engine.socket.display()),
            image,
            network: format!("oac-node-{}", NodeId::random()),
        };
        let mut managed = Self::on(Engine::Scripted(engine), &backend).await;
        let release = OtherRelease::scripted(OTHER_COMMIT);
        managed.select(&release);
        (managed, release)
    }

    fn select(&mut self, release: &OtherRelease) {
        for specification in &mut self.specifications[1..] {
            specification.runtime = release.metadata.manifest().runtime(ProviderKind::Docker);
        }
        self.answer(served(release.files.clone()));
    }

    /// What Core answers beside the connection.
    pub(crate) fn answer(&self, files: Serve) {
        let specifications = self.specifications.clone();
        let (installation_id, url) = (self.installation.config.installation_id, self.core.url());
        let below = format!("/api/v1/sandbox-node/install/releases/{OTHER_COMMIT}/");
        *self.core.script.files.lock() = Box::new(move |seen| {
            if let Some(file) = seen.uri.path().strip_prefix(&below) {
                return files(seen, file);
            }
            let query = seen.uri.query()?.strip_prefix("generation=")?;
            let n: usize = query.parse().ok()?;
            seen.headers.get("x-oac-node-id")?;
            let specification = &specifications[n - 1];
            let answer = json!({
                "installation_id": installation_id, "provider": "docker", "core_url": url, "generation": n,
                "specification": specification, "specification_digest": specification.digest(),
                "max_active": 3, "max_retained": 4,
            });
            Some(answer.to_string().into_response())
        });
    }

    pub(crate) fn scripted_engine(&self) -> &ScriptedEngine {
        match &self.engine {
            Engine::Scripted(engine) => engine,
            Engine::Docker(_) => panic!("a real engine"),
        }
    }

    pub(crate) fn made(&self) -> &Made {
        match &self.engine {
            Engine::Docker(made) => made,
            Engine::Scripted(_) => panic!("a scripted engine"),
        }
    }

    /// `verb` of the program, or of another that is to do the same.
    pub(crate) fn command(&self, verb: &str) -> Command {
        self.command_with(program(), verb)
    }

    pub(crate) fn command_with(&self, program: Command, verb: &str) -> Command {
        command_of(program, self.engine.socket().as_ref(), &self.installation, verb)
    }

    pub(crate) fn deployment(&self, target: i64, serving: Option<i64>) -> Deployment {
        Deployment {
            generation: target.try_into().unwrap(),
            specification_digest: self.specifications[usize::try_from(target - 1).unwrap()].digest(),
            serving_generation: Nullable(serving.map(|n| n.try_into().unwrap())),
        }
    }

    pub(crate) fn start(&self) -> Child {
        self.command("run")
            .stderr(std::process::Stdio::inherit())
            .spawn()
            .unwrap()
    }

    /// The next connection, welcomed with this deployment.
    pub(crate) async fn welcome(&mut self, target: i64, serving: Option<i64>) -> Link {
        let mut link = self.core.accept().await;
        let hello = link.hello().await;
        assert_eq!(hello.generation_management, Some(true));
        link.deployment = Some(self.deployment(target, serving));
        link.welcome().await;
        link
    }

    /// Answers heartbeats and retention requests until a report fits.
    pub(crate) async fn until(&self, link: &mut Link, fits: impl Fn(&[GenerationStatus]) -> bool) {
        self.serve(link, |frame| match frame {
            NodeFrame::Heartbeat(beat) => fits(beat.health.generations.as_deref().unwrap_or_default()),
            _ => false,
        })
        .await;
    }

    /// Answers heartbeats and retention requests until a frame fits.
    pub(crate) async fn serve(&self, link: &mut Link, fits: impl Fn(&NodeFrame) -> bool) {
        let served = async {
            loop {
                let frame = link.next().await;
                self.reply(link, &frame).await;
                if fits(&frame) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, served)
            .await
            .expect("the node says something else");
    }

    /// What Core answers to a heartbeat and to a retention request.
    pub(crate) async fn reply(&self, link: &mut Link, frame: &NodeFrame) {
        match frame {
            NodeFrame::Heartbeat(_) => link.acknowledge().await,
            NodeFrame::Retention(retention) => {
                let asked = &retention.control;
                let dropped = self.dropped.lock().clone();
                let retentions = asked.references.iter().map(|r| RetentionAnswer {
                    generation: r.generation,
                    specification_digest: r.specification_digest,
                    keep: !dropped.contains(&r.generation.get()),
                });
                let ack = RetentionAck {
                    control: RetentionAckControl {
                        id: asked.id,
                        sequence: asked.sequence,
                        connection_id: asked.connection_id,
                        owner_epoch: asked.owner_epoch,
                        retentions: retentions.collect(),
                    },
                    deployment: link.deployment.unwrap(),
                };
                link.send(CoreFrame::RetentionAck(ack).encode().unwrap()).await;
            }
            _ => {}
        }
    }

    pub(crate) fn record(&self, name: &str) -> PathBuf {
        self.installation.state_dir.join("generations").join(name)
    }

    /// Answers the node until the file is there.
    pub(crate) async fn until_there(&self, link: &mut Link, name: &str) {
        let path = self.record(name);
        self.serve(link, |_| path.exists()).await;
    }

    pub(crate) fn images(&self) -> String {
        docker(
            &self.made().socket,
            &[
                "image",
                "inspect",
                "--format",
                "{{.Id}}",
                &format!("sha256:{}", self.made().backend.image),
            ],
        )
    }
}

pub(crate) fn ready(statuses: &[GenerationStatus], n: i64) -> bool {
    state(statuses, n) == Some(GenerationState::Ready)
}

pub(crate) fn state(statuses: &[GenerationStatus], n: i64) -> Option<GenerationState> {
    let found = statuses.iter().find(|s| s.generation.get() == n);
    found.map(|s| s.state)
}

pub(crate) async fn stop(child: Child, signal: Signal) -> std::process::ExitStatus {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap().status);
    ended.await.unwrap()
}

/// Not by closing it: what another test starts at this moment holds a copy until it executes its program.
pub(crate) fn unlock(file: &std::fs::File) {
    flock(file, FlockOperation::Unlock).unwrap();
}
