//! One host: a root with an enrolled generation, a release server, and an engine whose state is files, so that it
//! outlives whatever process is killed. Used by the tests and by the program they kill.

#![allow(dead_code, reason = "each of its programs uses a part")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use oac_generations::{
    Configuration, Connection, Deployment, Generations, Identity, InheritedLock, InstallLock, Order, State,
    Store,
    layout::{self, Layout},
    lease,
    native::{Access, DockerNative, MicrosandboxNative, Native, NetworkPolicy},
    outside::{Cause, Engine, Release, Selected, Supply, SupplyError},
    records::{Installation, Record, RuntimeArtifacts},
};
use oac_model::{
    Artifacts, ConnectionId, Digest, Generation, ImageDigest, InstallationId, ProviderKind, Resources,
    RuntimeRelease, SourceCommit, Specification,
};
use oac_records::{
    FileMode,
    steps::{Step, announce},
};
use oac_release::{
    layout::{self as files, Row},
    manifest::{Artifact, Unpacked},
    source::{ReadError, Sink, Source},
};

const CORE_URL: &str = "https://core.example.org/api/v1";
/// What a file of a release is cut into on its way.
const PIECE_BYTES: usize = 700;

pub(crate) fn generation(n: i64) -> Generation {
    Generation::try_from(n).expect("positive")
}

pub(crate) fn installation() -> InstallationId {
    "11111111-1111-4111-8111-111111111111".parse().expect("an id")
}

/// The source of a generation: 1 and 5 share one, 2 and 3 another, 4 has its own.
pub(crate) fn source(n: i64) -> SourceCommit {
    let letter = match n {
        1 | 5 => "a",
        2 | 3 => "b",
        _ => "d",
    };
    letter.repeat(40).parse().expect("a commit")
}

#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) base: PathBuf,
    pub(crate) provider: ProviderKind,
}

impl Scene {
    /// A host that was just enrolled with generation 1.
    pub(crate) fn create(base: &Path, provider: ProviderKind) -> Self {
        let scene = Self {
            base: base.to_owned(),
            provider,
        };
        for directory in [
            "root",
            "root/state",
            "root/state/node",
            "root/state/node/generations",
            "outside",
            "m",
        ] {
            make(&base.join(directory));
        }
        let enrolled = scene.enrolled();
        let root = scene.root();
        let mut sha256 = BTreeMap::new();
        for (artifact, bytes) in scene.files(1) {
            let path = root.join(&artifact.key);
            make_parents(&path);
            write(&path, &bytes, artifact.role.mode().expect("a placed file"));
            sha256.insert(artifact.key, artifact.sha256);
        }
        let record = Installation {
            installation_id: installation(),
            provider,
            core_url: CORE_URL.to_owned(),
            source_commit: source(1),
            generation: generation(1),
            specification_digest: enrolled.specification.digest(),
        };
        let artifacts = RuntimeArtifacts {
            installation_id: installation(),
            source_commit: source(1),
            sha256,
        };
        write(&root.join(layout::INSTALLATION), &record.encode(), FileMode::Data);
        write(
            &root.join(layout::ENROLLED_CONFIGURATION),
            &enrolled.encode(),
            FileMode::Data,
        );
        write(
            &root.join(layout::RUNTIME_ARTIFACTS),
            &artifacts.encode(),
            FileMode::Data,
        );
        if let Native::Microsandbox(native) = &enrolled.native {
            make(native.runtime_home.as_ref());
            let owner = format!("{{\"installation_id\":\"{}\"}}", installation());
            let path = Path::new(&native.runtime_home).join(layout::STORE_OWNER);
            write(&path, owner.as_bytes(), FileMode::Data);
        }
        scene.outside().set_images(&[scene.image_name(1)]);
        drop(lease::create(&scene.store(), scene.identity(1)).expect("the first lease"));
        scene
    }

    pub(crate) fn at(base: &Path, provider: ProviderKind) -> Self {
        Self {
            base: base.to_owned(),
            provider,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.base.join("root")
    }

    pub(crate) fn generations(&self) -> PathBuf {
        Layout::new(self.root()).generations()
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(Layout::new(self.root()), installation()).expect("the store")
    }

    pub(crate) fn outside(&self) -> Outside {
        Outside {
            scene: self.clone(),
            directory: self.base.join("outside"),
        }
    }

    pub(crate) fn identity(&self, n: i64) -> Identity {
        Identity {
            installation_id: installation(),
            generation: generation(n),
            specification_digest: self.specification(n).digest(),
        }
    }

    pub(crate) fn state(&self, n: i64) -> State {
        let found = self.store().load(generation(n)).expect("records that agree");
        found.map_or(State::Unknown, |found| found.state)
    }

    pub(crate) fn specification(&self, n: i64) -> Specification {
        let content = |key: &str| Digest::of(content(source(n), key));
        let source_commit = source(n);
        let name = |what: &str| ImageDigest::of(format!("{what} of {source_commit}"));
        let docker = self.provider == ProviderKind::Docker;
        let artifacts = if docker {
            Artifacts {
                image_id: Some(name("id")),
                image_manifest_digest: Some(name("manifest")),
                ..Artifacts::default()
            }
        } else {
            Artifacts {
                microsandbox_ref: Some(format!("oac-runtime@{}", name("manifest"))),
                runtime_sha256: Some(content("native/microsandbox/msb")),
                firmware_sha256: Some(content("native/microsandbox/libkrunfw.so.5")),
                ..Artifacts::default()
            }
        };
        Specification {
            provider: self.provider,
            resources: Resources {
                cpus: u32::try_from(n).expect("small"),
                memory_mib: 512,
                root_disk_mib: (!docker).then_some(1024),
                environment_disk_mib: (!docker).then_some(1024),
            },
            runtime: Some(RuntimeRelease {
                source_commit,
                artifacts,
            }),
            workspace: None,
        }
    }

    fn enrolled(&self) -> Configuration {
        let specification = self.specification(1);
        let below = |key: &str| self.root().join(key).to_string_lossy().into_owned();
        let native = match self.provider {
            ProviderKind::Docker => Native::Docker(DockerNative {
                host: "unix:///var/run/docker.sock".to_owned(),
                image: specification
                    .runtime
                    .as_ref()
                    .and_then(|r| r.artifacts.image_id)
                    .expect("an image"),
                network: "oac-node-1".to_owned(),
                seccomp_file: below("runtime/seccomp.json"),
            }),
            _ => Native::Microsandbox(MicrosandboxNative {
                helper_path: below("native/bin/oac-microsandbox-helper"),
                runtime_path: below("native/microsandbox/msb"),
                firmware_path: below("native/microsandbox/libkrunfw.so.5"),
                runtime_home: self
                    .base
                    .join("m")
                    .join(layout::store_name(installation(), None))
                    .to_string_lossy()
                    .into_owned(),
                checkpoint_root: below("state/node/checkpoints"),
                network: NetworkPolicy {
                    default_egress: Access::Allow,
                    default_ingress: Access::Deny,
                    rules: Vec::new(),
                },
            }),
        };
        Configuration {
            installation_id: installation(),
            provider: self.provider,
            core_url: CORE_URL.to_owned(),
            specification,
            generation: generation(1),
            native,
        }
    }

    pub(crate) fn files(&self, n: i64) -> Vec<(Artifact, Vec<u8>)> {
        let rows: &[Row] = match self.provider {
            ProviderKind::Docker => &[files::SECCOMP, files::IMAGE],
            _ => &[files::HELPER, files::MSB, files::FIRMWARE, files::IMAGE],
        };
        rows.iter()
            .map(|row| {
                let key = format!("{}{}", row.key, if row.versioned { "5" } else { "" });
                let bytes = content(source(n), &key);
                let (size_bytes, sha256) = (bytes.len() as u64, Digest::of(&bytes));
                let artifact = Artifact {
                    filename: row.filename(source(n)),
                    role: row.role,
                    provider: row.provider,
                    size_bytes,
                    sha256,
                    unpacked: (*row == files::IMAGE).then_some(Unpacked { size_bytes, sha256 }),
                    key,
                };
                (artifact, bytes)
            })
            .collect()
    }

    pub(crate) fn image_name(&self, n: i64) -> String {
        let artifacts = self.specification(n).runtime.expect("a runtime").artifacts;
        match artifacts.microsandbox_ref {
            Some(reference) => reference,
            None => artifacts.image_id.expect("an image").to_string(),
        }
    }

    /// Whether a probe of a published generation succeeds: its files and image are there.
    pub(crate) fn is_complete(&self, n: i64) -> bool {
        let found = self.store().load(generation(n)).expect("readable");
        let configuration = found.and_then(|found| found.configuration);
        let files =
            configuration.is_some_and(|c| c.native.files().iter().all(|file| Path::new(file).exists()));
        files && self.outside().held().contains(&self.image_name(n))
    }

    /// What a deletion could take away.
    pub(crate) fn payload_and_images(&self) -> (Vec<PathBuf>, Vec<String>) {
        let mut files = Vec::new();
        let mut left = vec![self.root()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    left.push(path.clone());
                }
                if !path.starts_with(self.generations()) {
                    files.push(path);
                }
            }
        }
        files.sort();
        (files, self.outside().held())
    }

    /// A use of the node's preparer: the lease is made where it is missing, and the whole run performed.
    pub(crate) fn prepare(&self, n: i64) -> Result<(), oac_generations::PrepareError> {
        let store = Store::open(Layout::new(self.root()), installation())?;
        let lock = InheritedLock::within(InstallLock::take(&store)?);
        if lease::is_absent(&store, generation(n))? {
            drop(lease::create(&store, self.identity(n))?);
        }
        let (mut supply, mut engine) = (self.outside(), self.outside());
        oac_generations::Preparation::begin(&store, self.identity(n), &lock, &mut supply, &mut engine)?.run()
    }

    /// A collection with both keys, as a node makes them from Core's answer and its own table.
    pub(crate) fn collect(&self, n: i64) -> Result<(), oac_generations::CollectError> {
        let store = Store::open(Layout::new(self.root()), installation())?;
        let lock = InstallLock::take(&store)?;
        let order = self.order(&store, n, &lock);
        let lock = InheritedLock::within(lock);
        let mut engine = self.outside();
        oac_generations::Collection::begin(&store, order, &lock, &mut engine)?.run()
    }

    fn order(&self, store: &Store, n: i64, lock: &InstallLock) -> Order {
        let mut table = Generations::default();
        let identity = self.identity(n);
        // A generation without records is asked about by nobody; a collector told of it all the same does nothing.
        let found = store.load(generation(n)).expect("records that agree");
        let held = found
            .map_or(State::Planned, |found| found.state)
            .min(State::Purging);
        table.loaded(identity, held);
        table.deployed(Deployment {
            target: generation(99),
            serving: None,
        });
        let id = ConnectionId::random();
        let connection = Connection::new(id);
        let grant = connection.granted(id, identity.generation, identity.specification_digest);
        let grant = grant.expect("of this connection");
        let proof = table.prove(&grant).expect("nothing uses it");
        Order::of(grant, proof, lock).expect("both keys")
    }
}

/// The bytes of a file of a release.
pub(crate) fn content(source: SourceCommit, key: &str) -> Vec<u8> {
    format!("{key} of {source}\n").repeat(20).into_bytes()
}

/// Core, the release server and the engine.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    scene: Scene,
    directory: PathBuf,
}

impl Outside {
    pub(crate) fn held(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("images")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn set_images(&self, images: &[String]) {
        let text: String = images.iter().map(|image| format!("{image}\n")).collect();
        fs::write(self.directory.join("images"), text).expect("the engine's disk");
    }

    /// What the store says of its sandboxes.
    pub(crate) fn set_sandboxes(&self, text: &str) {
        fs::write(self.directory.join("sandboxes"), text).expect("the engine's disk");
    }

    /// What the store says of its images instead of the list.
    pub(crate) fn set_inventory(&self, text: &str) {
        fs::write(self.directory.join("inventory"), text).expect("the engine's disk");
    }

    /// Core's answer for every generation, and the bytes of every file, become another's.
    pub(crate) fn set_wrong(&self, what: &str) {
        fs::write(self.directory.join("wrong"), what).expect("the engine's disk");
    }

    fn is_wrong(&self, what: &str) -> bool {
        fs::read_to_string(self.directory.join("wrong")).is_ok_and(|wrong| wrong == what)
    }

    fn ask(&self, what: String) -> Result<(), Cause> {
        announce(Step::Outside { what }).map_err(Cause::from)
    }

    fn wanted(&self, configuration: &Configuration) -> String {
        self.scene.image_name(configuration.generation.get())
    }
}

impl Supply for Outside {
    fn configuration(&mut self, identity: &Identity) -> Result<Selected, SupplyError> {
        self.ask("Core's configuration".to_owned())
            .map_err(SupplyError::Core)?;
        let n = identity.generation.get();
        Ok(Selected {
            core_url: CORE_URL.to_owned(),
            specification: self
                .scene
                .specification(if self.is_wrong("specification") { n + 1 } else { n }),
        })
    }

    fn release(&mut self, specification: &Specification) -> Result<Release, SupplyError> {
        self.ask("the release's metadata".to_owned())
            .map_err(SupplyError::Transfer)?;
        let wanted = specification
            .runtime
            .as_ref()
            .map(|runtime| runtime.source_commit);
        let n = [1, 2, 4].into_iter().find(|n| Some(source(*n)) == wanted);
        let n = n.ok_or_else(|| SupplyError::Transfer("no such release".into()))?;
        Ok(Release {
            source_commit: source(n),
            manifest: format!("manifest of {}", source(n)).into_bytes(),
            artifacts: self
                .scene
                .files(n)
                .into_iter()
                .map(|(artifact, _)| artifact)
                .collect(),
        })
    }

    fn source(&mut self) -> &mut dyn Source {
        self
    }
}

impl Source for Outside {
    fn metadata(&mut self, commit: SourceCommit) -> Result<(Vec<u8>, Vec<u8>), ReadError> {
        Err(ReadError::NoRelease(commit))
    }

    fn artifact(
        &mut self,
        commit: SourceCommit,
        artifact: &Artifact,
        from: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), ReadError> {
        self.ask(format!("fetch {}", artifact.key))
            .map_err(|cause| ReadError::Broken {
                file: artifact.filename.clone(),
                cause,
            })?;
        let n = [1, 2, 4].into_iter().find(|n| source(*n) == commit);
        let files = n.map_or_else(Vec::new, |n| self.scene.files(n));
        let bytes = files.into_iter().find(|(found, _)| found == artifact);
        let (_, mut bytes) = bytes.ok_or(ReadError::NoRelease(commit))?;
        if self.is_wrong("bytes") {
            bytes[0] ^= 1;
        }
        let from = usize::try_from(from).expect("small");
        for piece in bytes[from..].chunks(PIECE_BYTES) {
            sink.append(piece).map_err(ReadError::Sink)?;
        }
        Ok(())
    }
}

impl Engine for Outside {
    fn image(&mut self, configuration: &Configuration) -> Result<Option<ImageDigest>, Cause> {
        let wanted = self.wanted(configuration);
        let digest = wanted.rsplit('@').next().unwrap_or(&wanted).parse()?;
        Ok(self.held().contains(&wanted).then_some(digest))
    }

    fn import(&mut self, configuration: &Configuration, archive: &Path) -> Result<(), Cause> {
        self.ask("import".to_owned())?;
        let source = configuration.source_commit().ok_or("no source")?;
        if fs::read(archive)? != content(source, "images/runtime.tar.gz") {
            return Err("another archive".into());
        }
        let mut images = self.held();
        images.push(self.wanted(configuration));
        images.sort();
        images.dedup();
        self.set_images(&images);
        Ok(())
    }

    fn images(&mut self, configuration: &Configuration) -> Result<String, Cause> {
        self.native(configuration)?;
        match fs::read_to_string(self.directory.join("inventory")) {
            Ok(text) => Ok(text),
            Err(_) => Ok(self.held().iter().map(|image| format!("{image}\n")).collect()),
        }
    }

    fn sandboxes(&mut self, configuration: &Configuration) -> Result<String, Cause> {
        self.native(configuration)?;
        Ok(fs::read_to_string(self.directory.join("sandboxes")).unwrap_or_else(|_| "[]".to_owned()))
    }

    fn remove_image(&mut self, configuration: &Configuration, reference: &str) -> Result<(), Cause> {
        self.native(configuration)?;
        self.ask("remove image".to_owned())?;
        let mut images = self.held();
        images.retain(|image| image != reference);
        self.set_images(&images);
        Ok(())
    }
}

impl Outside {
    /// The generation's own program has to be there to be run.
    fn native(&self, configuration: &Configuration) -> Result<(), Cause> {
        match &configuration.native {
            Native::Microsandbox(native) if Path::new(&native.runtime_path).exists() => Ok(()),
            Native::Microsandbox(_) => Err("the native program is missing".into()),
            Native::Docker(_) => Err("Docker has no store of ours".into()),
        }
    }
}

pub(crate) fn make(path: &Path) {
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
        .expect("a directory");
}

fn make_parents(path: &Path) {
    make(path.parent().expect("a parent"));
}

pub(crate) fn write(path: &Path, bytes: &[u8], mode: FileMode) {
    let mode = match mode {
        FileMode::Data => 0o600,
        FileMode::Program => 0o700,
    };
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(path)
        .expect("a file");
    std::io::Write::write_all(&mut file, bytes).expect("written");
}
