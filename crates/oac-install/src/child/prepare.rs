//! Steps 18 to 25: the node root, its files, the image, the network and the registration. Each step looks at what is
//! there and does what is missing, so that it makes no difference where an earlier run ended.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use oac_dial::Origin;
use oac_generations::{
    LeaseError, Store,
    layout::{self as names, Layout},
    lease,
    native::{DockerNative, Native},
    records::{self, Installation, Record as _},
};
use oac_model::{ImageDigest, InstallationId, NodeId, ProviderKind, Secret, SourceCommit};
use oac_provider_docker::{create_network, find_image, load_image, network_labels};
use oac_records::{Directory, FileMode, Lock, LockError};
use oac_release::{
    layout::{IMAGE, NODE, SECCOMP},
    manifest::Artifact,
    payload,
    source::Source,
};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, time::timeout};

use super::{
    ask::Question,
    check::ENGINE,
    damaged, enrolled, file_failed, kept,
    payload::{Files, payload_hint, recorded, source, write},
    record, runtime,
};
use crate::{
    arguments::Releases,
    core::registration_hint,
    descend::{Told, moment},
    hint::Hint,
    host::Host,
    plan::{
        inspection::Standing,
        place::{LABEL, disk_full, network},
    },
    points::pass,
    report::Relay,
};

const IMPORT: Duration = Duration::from_secs(1800);
const REGISTER: Duration = Duration::from_secs(30);
/// A node that prepares a generation holds the lock for the time of that.
const LOCK: Duration = Duration::from_secs(600);
const UNPACKED: &str = "runtime.tar";
const ARCHIVE: &str = "runtime.tar.gz";

pub(crate) struct Task<'a> {
    pub(crate) host: &'a Host,
    pub(crate) question: &'a Question,
    pub(crate) releases: &'a Releases,
    pub manifest_sha256: Option<oac_model::Digest>,
    pub(crate) own_commit: SourceCommit,
    pub(crate) standing: Standing,
    /// How the node is to be called.
    pub(crate) name: &'a str,
}

/// The node as it stands after step 25.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    pub(crate) node: NodeId,
    pub(crate) image: ImageDigest,
}

/// What the steps share.
struct Work<'a> {
    task: &'a Task<'a>,
    told: &'a Told,
    runtime: Runtime,
    root: Directory,
    _lock: Lock,
}

impl Task<'_> {
    fn installation(&self) -> InstallationId {
        self.question.installation
    }

    fn is_bundle(&self) -> bool {
        matches!(self.releases, Releases::Bundle(_))
    }

    /// Where the node itself looks for later releases.
    fn source_url(&self) -> &Origin {
        match self.releases {
            Releases::At(origin) => origin,
            Releases::Bundle(_) => &self.question.core,
        }
    }

    pub(crate) fn run(&self, told: &Told) -> Result<Prepared, Hint> {
        told.phase(4);
        let mut folder = Directory::open(&self.host.home()).map_err(|error| file_failed(&error))?;
        for name in [".oac", "nodes", &self.installation().to_string()] {
            folder = folder.make(name).map_err(|error| file_failed(&error))?;
        }
        let lock = take_lock(&folder)?;
        let work = Work {
            task: self,
            told,
            runtime: runtime()?,
            root: folder,
            _lock: lock,
        };
        match self.standing {
            Standing::Registered => work.registered(),
            Standing::Unregistered { drops_identity } => work.fresh(drops_identity),
        }
    }
}

fn take_lock(root: &Directory) -> Result<Lock, Hint> {
    let end = Instant::now() + LOCK;
    loop {
        match Lock::exclusive(root, names::INSTALL_LOCK) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Busy(_)) if Instant::now() < end => moment(&mut []),
            Err(LockError::Busy(_)) => return Err(Hint::HostBusy),
            Err(LockError::Record(error)) => return Err(file_failed(&error)),
            Err(LockError::Missing(path)) => return Err(damaged(&path)),
        }
    }
}

impl Work<'_> {
    fn path(&self) -> &Path {
        self.root.path()
    }

    /// Steps 18 to 25 of a node that Core does not know.
    fn fresh(&self, drops_identity: bool) -> Result<Prepared, Hint> {
        let state = self.make_state()?;
        if drops_identity {
            // Its id may be a removed node's, which would conflict for ever (INV-I27).
            state
                .remove(super::IDENTITY)
                .map_err(|error| file_failed(&error))?;
        }
        let configuration = self.runtime.block_on(self.task.question.configuration())?;
        let specification = &configuration.specification;
        pass("18");
        let mut source = source(self.task.releases)?;
        let files = Files::selected(
            source.as_mut(),
            self.task.is_bundle(),
            self.task.own_commit,
            self.task.manifest_sha256,
            specification,
        )?;
        pass("19");
        let installation = Installation {
            installation_id: configuration.installation_id,
            provider: configuration.provider,
            core_url: self.task.question.core.api_url(),
            source_commit: files.runtime_commit,
            generation: configuration.generation,
            specification_digest: configuration.specification_digest,
        };
        self.replace_earlier(&installation, &files)?;
        files.write_records(&self.root, &installation, self.task.source_url().as_str())?;
        pass("20");

        let digests = digests(specification.runtime.as_ref().map(|runtime| &runtime.artifacts));
        let mut image = self.find(&digests)?;
        self.place(source.as_mut(), &files, image.is_none())?;
        pass("21");
        self.told.phase(5);
        let store = Store::open(Layout::new(self.path()), self.task.installation());
        let store = store.map_err(|error| Hint::failed("The generation's records", &error))?;
        let identity = store.identity(configuration.generation, configuration.specification_digest);
        let held = match lease::is_absent(&store, identity.generation) {
            Ok(true) => lease::create(&store, identity),
            Ok(false) => lease::exclude(&store, identity),
            Err(error) => Err(error),
        };
        let _lease = held.map_err(|error| lease_hint(&store, &error))?;
        pass("22");
        if image.is_none() {
            self.import()?;
            pass("23 imported");
            image = self.find(&digests)?;
        }
        let image = image.ok_or_else(|| Hint::ImportFailed {
            reason: "Docker does not know it afterwards".to_owned(),
        })?;
        self.drop_archives()?;
        pass("23");
        self.make_network()?;
        let network = Host::network(self.task.installation());
        let provider = records::Configuration {
            installation_id: configuration.installation_id,
            provider: configuration.provider,
            core_url: self.task.question.core.api_url(),
            specification: configuration.specification.clone(),
            generation: configuration.generation,
            native: Native::Docker(DockerNative {
                host: self.task.host.docker(),
                image,
                network,
                seccomp_file: self.path().join(SECCOMP.key).display().to_string(),
            }),
        };
        write(&self.root, names::ENROLLED_CONFIGURATION, &provider.encode())?;
        pass("24");
        self.told.phase(6);
        let token = self.task.question.token.as_ref().ok_or(Hint::Expired)?;
        self.register(token)?;
        pass("25 confirmed");
        write(&self.root, names::REGISTERED, &installation.encode())?;
        pass("25");
        self.prepared(image)
    }

    /// Of a registered node what is missing comes again from the recorded commits; nothing else is touched.
    fn registered(&self) -> Result<Prepared, Hint> {
        let installation: Installation = record(&self.root, names::INSTALLATION)?
            .ok_or_else(|| damaged(&self.path().join(names::INSTALLATION)))?;
        let configuration = enrolled(self.path())?
            .ok_or_else(|| damaged(&self.path().join(names::ENROLLED_CONFIGURATION)))?;
        let runtime = configuration.specification.runtime.as_ref();
        let digests = digests(runtime.map(|runtime| &runtime.artifacts));
        let image = self.find(&digests)?;
        if image.is_none() || !self.holds_recorded()? {
            let (program, artifacts) = recorded(&self.root)?;
            self.drop_changed_program(&program)?;
            let mut source = source(self.task.releases)?;
            let files = Files::selected(
                source.as_mut(),
                self.task.is_bundle(),
                program.source_commit,
                None,
                &configuration.specification,
            )?;
            let same = files.program.sha256 == program.sha256
                && files
                    .runtime
                    .iter()
                    .all(|file| artifacts.sha256.get(&file.key) == Some(&file.sha256));
            if !same {
                return Err(Hint::ReleaseDiffers);
            }
            self.place(source.as_mut(), &files, image.is_none())?;
        }
        self.told.phase(5);
        let image = match image {
            Some(image) => image,
            None => {
                self.import()?;
                self.find(&digests)?.ok_or_else(|| Hint::ImportFailed {
                    reason: "Docker does not know it afterwards".to_owned(),
                })?
            }
        };
        self.drop_archives()?;
        self.make_network()?;
        // A run that was ended between Core's answer and this record.
        write(&self.root, names::REGISTERED, &installation.encode())?;
        self.prepared(image)
    }

    fn prepared(&self, image: ImageDigest) -> Result<Prepared, Hint> {
        let kept = kept(self.path())?.ok_or_else(|| Hint::StateMissing {
            root: self.path().display().to_string(),
        })?;
        Ok(Prepared {
            node: kept.node,
            image,
        })
    }

    fn make_state(&self) -> Result<Directory, Hint> {
        let state = self.root.make("state").and_then(|state| state.make("node"));
        state.map_err(|error| file_failed(&error))
    }

    /// What an earlier attempt, which Core knows nothing of, left for another configuration or program goes; what
    /// matches stays. The records that are written next end with `installation.json`, so that a run that is ended
    /// meanwhile is seen as one that was about to do this.
    fn replace_earlier(&self, wanted: &Installation, files: &Files) -> Result<(), Hint> {
        let same_node: Option<records::Program> = record(&self.root, names::PROGRAM).ok().flatten();
        let earlier: Option<Installation> = record(&self.root, names::INSTALLATION).ok().flatten();
        let provider = enrolled(self.path()).ok().flatten();
        let is_same = earlier.as_ref() == Some(wanted)
            && same_node.is_some_and(|program| program.source_commit == files.program_commit)
            && provider.is_none_or(|provider| {
                provider.specification.digest() == wanted.specification_digest
                    && provider.generation == wanted.generation
            });
        if is_same {
            return Ok(());
        }
        let removed = self.root.remove(names::ENROLLED_CONFIGURATION);
        removed.map_err(|error| file_failed(&error))?;
        for folder in ["bin", "native", "runtime", "images"] {
            if let Some(directory) = self.root.enter(folder).map_err(|error| file_failed(&error))? {
                self.drop_other_files(&directory, folder, files)?;
            }
        }
        Ok(())
    }

    fn drop_other_files(&self, directory: &Directory, folder: &str, files: &Files) -> Result<(), Hint> {
        let failed = |error| file_failed(&error);
        for name in directory.names().map_err(failed)? {
            let key = format!("{folder}/{name}");
            if directory
                .path()
                .join(&name)
                .symlink_metadata()
                .is_ok_and(|meta| meta.is_dir())
            {
                if let Some(inner) = directory.enter(&name).map_err(failed)? {
                    self.drop_other_files(&inner, &key, files)?;
                }
                continue;
            }
            let mut wanted = files.runtime.iter().chain([&files.program]);
            let keeps = wanted
                .find(|artifact| artifact.key == key)
                .is_some_and(|artifact| {
                    let missing =
                        payload::missing(&self.root, [artifact], &mut oac_release::progress::Silent);
                    missing.is_ok_and(|missing| missing.is_empty())
                });
            if !keeps {
                directory.remove(&name).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// A program of other bytes than recorded is fetched again; anything else of other bytes stops.
    fn drop_changed_program(&self, program: &records::Program) -> Result<(), Hint> {
        if self
            .digest(NODE.key, FileMode::Program)?
            .is_some_and(|found| found != program.sha256)
        {
            let bin = self.root.enter("bin").map_err(|error| file_failed(&error))?;
            if let Some(bin) = bin {
                bin.remove("oac-node").map_err(|error| file_failed(&error))?;
            }
        }
        Ok(())
    }

    /// Whether every recorded file but the image's archive is here with its recorded bytes.
    fn holds_recorded(&self) -> Result<bool, Hint> {
        let (program, artifacts) = recorded(&self.root)?;
        let mut whole = self.digest(NODE.key, FileMode::Program)? == Some(program.sha256);
        for (key, sha256) in artifacts.sha256.iter().filter(|(key, _)| !IMAGE.is(key)) {
            let mode = if key.starts_with("native/") {
                FileMode::Program
            } else {
                FileMode::Data
            };
            match self.digest(key, mode)? {
                None => whole = false,
                Some(found) if found == *sha256 => {}
                Some(_) => {
                    return Err(Hint::FileDiffers {
                        file: self.path().join(key).display().to_string(),
                    });
                }
            }
        }
        Ok(whole)
    }

    fn digest(&self, key: &str, mode: FileMode) -> Result<Option<oac_model::Digest>, Hint> {
        payload::digest_of(&self.root, key, mode)
            .map(|found| found.map(|(_, digest)| digest))
            .map_err(|error| payload_hint(error, &self.root, false))
    }

    /// Step 21: what is missing is fetched, the image's archive only if Docker has no image, and unpacked.
    fn place(&self, source: &mut dyn Source, files: &Files, wants_image: bool) -> Result<(), Hint> {
        let is_bundle = self.task.is_bundle();
        let told = |error| payload_hint(error, &self.root, is_bundle);
        let mut progress = Relay::new(self.told);
        let archive = files.image().filter(|_| wants_image);
        let fetch =
            |source: &mut dyn Source, commit, artifacts: Vec<&Artifact>, progress: &mut Relay<'_, _>| {
                let missing = payload::missing(&self.root, artifacts, progress).map_err(told)?;
                payload::fetch(&self.root, source, commit, &missing, progress).map_err(told)
            };
        fetch(source, files.program_commit, vec![&files.program], &mut progress)?;
        fetch(
            source,
            files.runtime_commit,
            files.placed().collect(),
            &mut progress,
        )?;
        let Some((archive, unpacked)) = archive.and_then(|archive| Some((archive, archive.unpacked?))) else {
            return Ok(());
        };
        self.holds_room_for(archive.size_bytes, unpacked.size_bytes)?;
        fetch(source, files.runtime_commit, vec![archive], &mut progress)?;
        let images = self.images()?;
        let is_unpacked = images
            .open_file(UNPACKED, FileMode::Data)
            .map_err(|error| file_failed(&error))?;
        match is_unpacked {
            // It has its name only when it is whole and right.
            Some(_) => Ok(()),
            None => payload::unpack(&images, ARCHIVE, UNPACKED, unpacked).map_err(told),
        }
    }

    fn images(&self) -> Result<Directory, Hint> {
        self.root.make("images").map_err(|error| file_failed(&error))
    }

    fn holds_room_for(&self, archive: u64, unpacked: u64) -> Result<(), Hint> {
        let held = |name: &str| {
            let path = self.path().join("images").join(name);
            std::fs::symlink_metadata(path).map_or(0, |meta| meta.len())
        };
        let stored = held(ARCHIVE) + held(&format!(".{ARCHIVE}.partial")) + held(UNPACKED);
        let needed = (archive + unpacked).saturating_sub(stored);
        let disk = rustix::fs::statvfs(self.path());
        let disk = disk.map_err(|errno| Hint::failed("The disk's free space cannot be read", &errno))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match free >= needed {
            true => Ok(()),
            false => Err(disk_full(&self.path().display().to_string(), needed, free)),
        }
    }

    fn find(&self, digests: &[ImageDigest]) -> Result<Option<ImageDigest>, Hint> {
        let host = self.task.host.docker();
        let found = async { timeout(ENGINE, find_image(&host, digests)).await };
        match self.runtime.block_on(found) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Hint::failed("Docker does not say which images it has", &error)),
            Err(_) => Err(Hint::DockerDown),
        }
    }

    /// Step 23.
    fn import(&self) -> Result<(), Hint> {
        let host = self.task.host.docker();
        let archive = self.path().join("images").join(UNPACKED);
        let loaded = async { timeout(IMPORT, load_image(&host, &archive)).await };
        let reason = match self.runtime.block_on(loaded) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took more than half an hour".to_owned(),
        };
        Err(Hint::ImportFailed { reason })
    }

    fn drop_archives(&self) -> Result<(), Hint> {
        let images = self.root.enter("images").map_err(|error| file_failed(&error))?;
        if let Some(images) = images {
            for name in images.names().map_err(|error| file_failed(&error))? {
                images.remove(&name).map_err(|error| file_failed(&error))?;
            }
        }
        Ok(())
    }

    /// Step 24.
    fn make_network(&self) -> Result<(), Hint> {
        let host = self.task.host.docker();
        let name = Host::network(self.task.installation());
        let id = self.task.installation().to_string();
        let failed = |error| Hint::failed("The Docker network could not be made", &error);
        self.runtime.block_on(async {
            let labels = network_labels(&host, &name).await.map_err(failed)?;
            network(&name, &id, labels.as_ref(), true)?;
            match labels {
                Some(_) => Ok(()),
                None => create_network(&host, &name, (LABEL, &id)).await.map_err(failed),
            }
        })
    }

    /// Step 25. The token goes through a pipe.
    fn register(&self, token: &Secret) -> Result<(), Hint> {
        let state = Layout::new(self.path()).state();
        let mut command = Command::new(self.path().join(NODE.key));
        command
            .arg("register")
            .arg("--config")
            .arg(self.path().join(names::ENROLLED_CONFIGURATION))
            .arg("--state-dir")
            .arg(&state)
            .args(["--core-url", self.task.question.core.as_str()])
            .args(["--name", self.task.name, "--enrollment-token-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        oac_generations::inherit::die_with_parent(&mut command);
        let failed = |error| Hint::failed("oac-node register could not be started", &error);
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that refuses early closes its input; what it says is worth more than that.
            let _ = stdin
                .write_all(token.expose().as_bytes())
                .and_then(|()| stdin.write_all(b"\n"));
        }
        let end = Instant::now() + REGISTER;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status.code(),
                Ok(None) if Instant::now() < end => moment(&mut []),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        if status == Some(0) {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut std::io::Read::take(stderr, 64 * 1024), &mut said);
        }
        Err(registration_hint(status, &said))
    }
}

fn digests(artifacts: Option<&oac_model::Artifacts>) -> Vec<ImageDigest> {
    let digests = artifacts
        .into_iter()
        .flat_map(|a| [a.image_id, a.image_manifest_digest]);
    digests.flatten().collect()
}

fn lease_hint(store: &Store, error: &LeaseError) -> Hint {
    match error {
        LeaseError::Bare(generation) | LeaseError::Differs { generation, .. } => Hint::LeaseLeft {
            file: store
                .directory()
                .path()
                .join(format!("{generation}.lease"))
                .display()
                .to_string(),
        },
        LeaseError::Busy(_) => Hint::HostBusy,
        error => Hint::failed("The generation's lease", error),
    }
}

/// What this program prepares: microsandbox's files follow.
pub(crate) fn is_prepared_here(provider: ProviderKind) -> Result<(), Hint> {
    match provider {
        ProviderKind::Docker => Ok(()),
        _ => Err(Hint::MicrosandboxLater),
    }
}
