//! A node whose host holds 200 generations: how long it takes to know them, and to collect each, against removing the
//! same files durably without a record.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use oac_generations::{
    Collection, Configuration, Connection, Deployment, Generations, InheritedLock, InstallLock, Order, State,
    Store,
    layout::{self, Layout},
    lease,
    native::{DockerNative, Native},
    outside::{Cause, Engine},
    records::{Installation, Record as _, RuntimeArtifacts},
    recovery,
};
use oac_model::{
    Artifacts, ConnectionId, Generation, ImageDigest, InstallationId, ProviderKind, Resources,
    RuntimeRelease, SourceCommit, Specification,
};
use oac_release::SECCOMP_PROFILE;

use crate::{
    figure::median,
    gauge::{Budget, Gauge, Unit},
};

const GENERATIONS: i64 = 200;
const SECCOMP: &str = "runtime/seccomp.json";

pub(crate) async fn measure() -> Result<Vec<Gauge>> {
    tokio::task::spawn_blocking(collected).await?
}

fn collected() -> Result<Vec<Gauge>> {
    let folder = tempfile::Builder::new().prefix("oac-bench-").tempdir()?;
    let host = Host::new(&folder.path().join("root"))?;
    let store = host.store()?;
    for n in 2..=GENERATIONS + 1 {
        host.prepare(&store, n)?;
    }
    let began = Instant::now();
    let recovery = recovery::recover(&store)?;
    let known = began.elapsed();
    drop(recovery);
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for n in 2..=GENERATIONS + 1 {
        // The same files beside the root.
        let copy = folder.path().join(format!("plain-{n}"));
        host.payload(&copy, n)?;
        let began = Instant::now();
        fs::remove_dir_all(&copy)?;
        File::open(folder.path())?.sync_all()?;
        plain.push(began.elapsed());
        let began = Instant::now();
        host.collect(&store, n)?;
        ours.push(began.elapsed());
    }
    let left = store.load_all()?;
    let dropped = left
        .values()
        .filter(|found| found.state == State::Dropped)
        .count();
    ensure!(
        dropped == GENERATIONS as usize,
        "{dropped} of {GENERATIONS} are gone"
    );
    let gauge = |what: String, ours: Duration, baseline: Option<Duration>| Gauge {
        name: "collect",
        what,
        unit: Unit::Millis,
        ours: ours.as_secs_f64() * 1000.0,
        baseline: baseline.map(|baseline| baseline.as_secs_f64() * 1000.0),
        budget: Budget::None,
    };
    Ok(vec![
        gauge(
            format!("{GENERATIONS} generations on disk: all read"),
            known,
            None,
        ),
        gauge(
            format!("{GENERATIONS} generations on disk: one collected"),
            median(&ours),
            Some(median(&plain)),
        ),
        gauge(
            "all of them".to_owned(),
            ours.iter().sum(),
            Some(plain.iter().sum()),
        ),
    ])
}

struct Host {
    root: PathBuf,
    installation: InstallationId,
}

impl Host {
    /// Enrolled with generation 1.
    fn new(root: &Path) -> Result<Self> {
        for below in ["", "state", "state/node", "state/node/generations", "releases"] {
            directory(&root.join(below))?;
        }
        let host = Self {
            root: root.to_owned(),
            installation: InstallationId::random(),
        };
        host.payload(root, 1)?;
        let configuration = host.configuration(1)?;
        let record = Installation {
            installation_id: host.installation,
            provider: ProviderKind::Docker,
            core_url: configuration.core_url.clone(),
            source_commit: source(1),
            generation: configuration.generation,
            specification_digest: configuration.specification.digest(),
        };
        let artifacts = RuntimeArtifacts {
            installation_id: host.installation,
            source_commit: source(1),
            sha256: [(SECCOMP.to_owned(), oac_model::Digest::of(SECCOMP_PROFILE))].into(),
        };
        file(&root.join(layout::INSTALLATION), &record.encode())?;
        file(&root.join(layout::RUNTIME_ARTIFACTS), &artifacts.encode())?;
        file(
            &root.join(layout::ENROLLED_CONFIGURATION),
            &configuration.encode(),
        )?;
        Ok(host)
    }

    fn store(&self) -> Result<Store> {
        Ok(Store::open(Layout::new(&self.root), self.installation)?)
    }

    fn configuration(&self, n: i64) -> Result<Configuration> {
        let payload = match n {
            1 => self.root.clone(),
            _ => self.root.join("releases").join(source(n).to_string()),
        };
        let specification = Specification {
            provider: ProviderKind::Docker,
            resources: Resources {
                cpus: 1,
                memory_mib: 512,
                root_disk_mib: None,
                environment_disk_mib: None,
            },
            runtime: Some(RuntimeRelease {
                source_commit: source(n),
                artifacts: Artifacts {
                    image_id: Some(ImageDigest::of(n.to_string())),
                    image_manifest_digest: Some(ImageDigest::of(format!("manifest {n}"))),
                    ..Artifacts::default()
                },
            }),
            workspace: None,
        };
        Ok(Configuration {
            installation_id: self.installation,
            provider: ProviderKind::Docker,
            core_url: "https://core.example.org/api/v1".to_owned(),
            specification,
            generation: Generation::try_from(n)?,
            native: Native::Docker(DockerNative {
                host: "unix:///var/run/docker.sock".to_owned(),
                image: ImageDigest::of(n.to_string()),
                network: "oac-node".to_owned(),
                seccomp_file: payload.join(SECCOMP).to_string_lossy().into_owned(),
            }),
        })
    }

    /// The files of a release in `folder`.
    fn payload(&self, folder: &Path, n: i64) -> Result<()> {
        directory(&folder.join("runtime"))?;
        file(&folder.join(layout::MANIFEST), format!("manifest {n}").as_bytes())?;
        file(&folder.join(SECCOMP), SECCOMP_PROFILE.as_bytes())
    }

    /// As a preparation leaves a generation.
    fn prepare(&self, store: &Store, n: i64) -> Result<()> {
        let configuration = self.configuration(n)?;
        drop(lease::create(store, configuration.identity())?);
        self.payload(&self.root.join("releases").join(source(n).to_string()), n)?;
        file(
            &self.root.join("state/node/generations").join(format!("{n}.json")),
            &configuration.encode(),
        )
    }

    /// With both keys, as a node makes them from Core's answer and its own table.
    fn collect(&self, store: &Store, n: i64) -> Result<()> {
        let lock = InstallLock::take(store)?;
        let identity = self.configuration(n)?.identity();
        let mut table = Generations::default();
        table.loaded(identity, State::Published);
        table.deployed(Deployment {
            target: Generation::try_from(GENERATIONS + 2)?,
            serving: None,
        });
        let id = ConnectionId::random();
        let connection = Connection::new(id);
        let grant = connection
            .granted(id, identity.generation, identity.specification_digest)
            .context("of another connection")?;
        let proof = table
            .prove(&grant)
            .map_err(|refusal| anyhow::anyhow!("it is needed: {refusal:?}"))?;
        let order = Order::of(grant, proof, &lock).map_err(|void| anyhow::anyhow!("no order: {void:?}"))?;
        let lock = InheritedLock::within(lock);
        Ok(Collection::begin(store, order, &lock, &mut NoEngine)?.run()?)
    }
}

/// A release of its own for each generation.
fn source(n: i64) -> SourceCommit {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    SourceCommit::from_bytes(bytes)
}

fn directory(path: &Path) -> Result<()> {
    Ok(DirBuilder::new().recursive(true).mode(0o700).create(path)?)
}

fn file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(bytes)?)
}

/// Docker's images are nobody's to remove, so nothing is asked of an engine.
struct NoEngine;

impl Engine for NoEngine {
    fn image(&mut self, _: &Configuration) -> Result<Option<ImageDigest>, Cause> {
        Err("no engine".into())
    }

    fn import(&mut self, _: &Configuration, _: &Path) -> Result<(), Cause> {
        Err("no engine".into())
    }

    fn images(&mut self, _: &Configuration) -> Result<String, Cause> {
        Err("no engine".into())
    }

    fn sandboxes(&mut self, _: &Configuration) -> Result<String, Cause> {
        Err("no engine".into())
    }

    fn remove_image(&mut self, _: &Configuration, _: &str) -> Result<(), Cause> {
        Err("no engine".into())
    }
}
