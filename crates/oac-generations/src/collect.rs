//! Collection of one generation (node.md section 8), one step at a time.
//!
//! | durable | known | step |
//! | --- | --- | --- |
//! | Unknown, Dropped | – | done |
//! | Planned to Published | – | write the journal: Collecting |
//! | Collecting, Purging | – | verify every file that would go |
//! | Collecting | verified; nothing native | record it: Purging |
//! | Collecting | verified | verify the store and its programs |
//! | Collecting | store ours, shared by none | prove that it holds no sandbox |
//! | Collecting | … | image used by none: find it |
//! | Collecting | image found | remove it, find it again |
//! | Collecting | image absent or used | record it: Purging |
//! | Purging | verified | remove the files |
//! | Purging | files gone | write the marker: Dropped |
//!
//! Nothing is deleted before the journal is durable and every file verified; no native program runs again once its
//! removal is recorded, since it may be gone by then. What cannot be proven keeps everything.

mod table;

use oac_model::Digest;
use oac_records::{Directory, FileMode, LockError, RecordError};

use crate::{
    keys::{InheritedLock, Order},
    layout::{self, Kind},
    lease::{self, ExclusiveLease, LeaseError},
    limits,
    native::{MicrosandboxNative, Native},
    numbered::numbered,
    outside::{Cause, Engine},
    payload::{self, Payload, PayloadError},
    records::{Collecting, Configuration, Identity, RuntimeArtifacts, StoreOwner},
    state::{Event, State},
    store::{Found, Store, StoreError},
    uses::{self, Shared},
};

pub use table::{Known, Outcome, Step, learn, next};

/// Why a collection ended early. Everything that was not proven needless is still there.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("the digest differs from the generation's own")]
    Digest,
    #[error("{0} belongs to no known hash; nothing was deleted")]
    UnknownHash(String),
    #[error("{0} has other bytes than were recorded; nothing was deleted")]
    Changed(String),
    #[error(
        "runtime-artifacts.json is missing, so that no original file can be verified; nothing was deleted"
    )]
    NoMetadata,
    #[error("the store is not provably this installation's; nothing native was removed")]
    Store(#[source] Option<StoreError>),
    #[error("the native program is missing or has other bytes; missing files never prove native absence")]
    NativeProgram,
    #[error("the store still holds sandboxes, or does not say that it holds none")]
    Sandboxes,
    #[error("the store's list of images is malformed")]
    Inventory,
    #[error("the image is still there after its removal")]
    ImageStays,
    #[error("the native program failed")]
    Engine(#[source] Cause),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Records(#[from] StoreError),
    #[error("a step was taken that the state has no place for")]
    OutOfPlace,
}

impl From<RecordError> for CollectError {
    fn from(error: RecordError) -> Self {
        Self::Records(error.into())
    }
}

impl CollectError {
    /// Of the child process: 75 lock or lease busy; else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Lease(LeaseError::Busy(_)) | Self::Lock(LockError::Busy(_)) => 75,
            _ => 1,
        }
    }
}

/// What goes with the generation.
#[derive(Debug, Default)]
struct Doomed {
    /// Files of `releases/<source>`, deepest first; `None` where another generation uses it.
    release: Option<Vec<String>>,
    /// Original files below the root.
    original: Vec<String>,
}

/// One run, with both locks held.
pub struct Collection<'a> {
    store: &'a Store,
    engine: &'a mut dyn Engine,
    identity: Identity,
    known: Known,
    found: Option<Found>,
    shared: Shared,
    doomed: Doomed,
    removals: u8,
    _lease: ExclusiveLease,
    _lock: &'a InheritedLock,
}

/// A removal that was asked for and not seen is not asked for without end.
const REMOVALS: u8 = 1;

impl<'a> Collection<'a> {
    /// Takes the lease and makes durable whatever a killed predecessor left. The order is used up.
    pub fn begin(
        store: &'a Store,
        order: Order,
        lock: &'a InheritedLock,
        engine: &'a mut dyn Engine,
    ) -> Result<Self, CollectError> {
        let identity = order.identity();
        let lease = lease::exclude(store, identity)?;
        store.sync()?;
        let all = store.load_all()?;
        let found = all.get(&identity.generation).cloned();
        if found.as_ref().is_some_and(|found| found.identity != identity) {
            return Err(CollectError::Digest);
        }
        let selection = found.as_ref().and_then(Found::selection);
        let shared = selection.map(|of| uses::shared(&all, of)).unwrap_or_default();
        let native = selection.is_some_and(|selection| selection.native.store().is_some())
            && found.as_ref().is_some_and(Found::may_have_image);
        Ok(Self {
            store,
            engine,
            identity,
            known: Known {
                state: found.as_ref().map_or(State::Unknown, |found| found.state),
                native,
                image_shared: shared.image,
                store_shared: shared.store,
                files_verified: false,
                store_verified: false,
                no_sandboxes: false,
                image: None,
                files_gone: false,
            },
            found,
            shared,
            doomed: Doomed::default(),
            removals: 0,
            _lease: lease,
            _lock: lock,
        })
    }

    /// Performs steps to the end.
    pub fn run(mut self) -> Result<(), CollectError> {
        while self.step()? != Step::Done {}
        Ok(())
    }

    /// Performs the next step, and says which.
    pub fn step(&mut self) -> Result<Step, CollectError> {
        let step = next(&self.known);
        numbered(&step).map_err(|errno| CollectError::Engine(errno.into()))?;
        let outcome = match step {
            Step::Done => return Ok(step),
            Step::WriteJournal => self.journal(false)?,
            Step::VerifyFiles => {
                self.doomed = self.verify_files()?;
                Outcome::FilesVerified
            }
            Step::VerifyStore => {
                verify_store(self.identity, self.native()?, self.selection()?)?;
                Outcome::StoreVerified
            }
            Step::CountSandboxes => {
                let selection = self.selection()?.clone();
                let list = self.engine.sandboxes(&selection).map_err(CollectError::Engine)?;
                let sandboxes: Result<Vec<serde_json::Value>, _> = serde_json::from_str(&list);
                match sandboxes {
                    Ok(sandboxes) if sandboxes.is_empty() => Outcome::NoSandboxes,
                    _ => return Err(CollectError::Sandboxes),
                }
            }
            Step::FindImage => self.find_image()?,
            Step::RemoveImage => {
                self.removals += 1;
                let selection = self.selection()?.clone();
                let reference = reference(&selection)?;
                let removed = self.engine.remove_image(&selection, &reference);
                removed.map_err(CollectError::Engine)?;
                Outcome::RemovalAsked
            }
            Step::RecordNative => self.journal(true)?,
            Step::RemoveFiles => {
                self.remove_files()?;
                Outcome::FilesGone
            }
            Step::WriteDropped => {
                self.store
                    .publish(self.identity.generation, Kind::Dropped, &self.identity)?;
                self.reload(Event::Dropped)?
            }
        };
        self.known = learn(self.known, outcome).ok_or(CollectError::OutOfPlace)?;
        Ok(step)
    }

    fn journal(&mut self, native_complete: bool) -> Result<Outcome, CollectError> {
        let journal = Collecting {
            identity: self.identity,
            native_complete,
        };
        self.store
            .write(self.identity.generation, Kind::Collecting, &journal)?;
        self.reload(if native_complete {
            Event::NativeRemoved
        } else {
            Event::CollectionStarted
        })
    }

    fn reload(&mut self, event: Event) -> Result<Outcome, CollectError> {
        let found = self.store.load(self.identity.generation)?;
        if self.known.state.after(event) != found.as_ref().map(|found| found.state) {
            return Err(CollectError::OutOfPlace);
        }
        Ok(Outcome::Durable(event))
    }

    /// Everything that would go, each verified: original files by their recorded hash, those of a later release by
    /// being private files of ours under its name. Nothing is deleted before all of it was.
    fn verify_files(&self) -> Result<Doomed, CollectError> {
        let selection = self.selection()?;
        let source = selection.source_commit().ok_or(CollectError::OutOfPlace)?;
        let mut doomed = Doomed::default();
        if self.shared.source {
            return Ok(doomed);
        }
        Payload::of(self.store, false, source).sync()?;
        let releases = self.store.root().enter(layout::RELEASES)?;
        let release = releases
            .map(|releases| releases.enter(&source.to_string()))
            .transpose()?;
        doomed.release = Some(match release.flatten() {
            Some(directory) => payload::survey(&directory)?,
            None => Vec::new(),
        });
        let Some(artifacts) = self.original(source)? else {
            return Ok(doomed);
        };
        // A predecessor may have been killed between a removal and its sync: a name that is only seen as missing comes
        // back with the power, and nothing would ever remove it after the marker.
        payload::sync_names(self.store.root(), artifacts.sha256.keys().map(String::as_str))?;
        self.check_known(selection, &artifacts)?;
        for (key, sha256) in &artifacts.sha256 {
            let path = self.store.layout().root().join(key);
            if self.shared.paths.contains(&*path.to_string_lossy()) {
                continue;
            }
            if let Some(found) = original_digest(self.store.root(), key)? {
                if found != *sha256 {
                    return Err(CollectError::Changed(key.clone()));
                }
                doomed.original.push(key.clone());
            }
        }
        Ok(doomed)
    }

    /// The record of the original files, where this generation is of their source.
    fn original(&self, source: oac_model::SourceCommit) -> Result<Option<RuntimeArtifacts>, CollectError> {
        let installation = self.store.installation();
        match self.store.runtime_artifacts()? {
            Some(artifacts) => Ok((artifacts.source_commit == source).then_some(artifacts)),
            None if installation.generation == self.identity.generation => Err(CollectError::NoMetadata),
            None => Ok(None),
        }
    }

    /// A file that the configuration names below the root, outside every release, has a recorded hash.
    fn check_known(
        &self,
        selection: &Configuration,
        artifacts: &RuntimeArtifacts,
    ) -> Result<(), CollectError> {
        let root = self.store.layout().root();
        for file in selection.native.files() {
            let Ok(key) = std::path::Path::new(file).strip_prefix(root) else {
                continue;
            };
            if !key.starts_with(layout::RELEASES) && !artifacts.sha256.contains_key(&*key.to_string_lossy()) {
                return Err(CollectError::UnknownHash(file.to_owned()));
            }
        }
        Ok(())
    }

    fn find_image(&mut self) -> Result<Outcome, CollectError> {
        let selection = self.selection()?.clone();
        let wanted = reference(&selection)?;
        let list = self.engine.images(&selection).map_err(CollectError::Engine)?;
        let found = inventory(&list)?.contains(&wanted.as_str());
        if found && self.removals >= REMOVALS {
            return Err(CollectError::ImageStays);
        }
        Ok(Outcome::Image(found))
    }

    fn remove_files(&self) -> Result<(), CollectError> {
        for key in &self.doomed.original {
            let (parents, name) = match key.rsplit_once('/') {
                Some((parents, name)) => (parents.split('/').collect(), name),
                None => (Vec::new(), key.as_str()),
            };
            let mut place = self.store.root().again()?;
            for parent in parents {
                place = place.enter(parent)?.ok_or(CollectError::OutOfPlace)?;
            }
            place.remove(name)?;
        }
        let source = self
            .selection()?
            .source_commit()
            .ok_or(CollectError::OutOfPlace)?;
        if let Some(release) = &self.doomed.release
            && let Some(releases) = self.store.root().enter(layout::RELEASES)?
        {
            if let Some(directory) = releases.enter(&source.to_string())? {
                payload::remove_tree(&directory, release)?;
            }
            releases.remove_directory(&source.to_string())?;
        }
        Ok(())
    }

    fn selection(&self) -> Result<&Configuration, CollectError> {
        let selection = self.found.as_ref().and_then(Found::selection);
        selection.ok_or(CollectError::OutOfPlace)
    }

    fn native(&self) -> Result<&MicrosandboxNative, CollectError> {
        match &self.selection()?.native {
            Native::Microsandbox(native) => Ok(native),
            Native::Docker(_) => Err(CollectError::OutOfPlace),
        }
    }
}

fn verify_store(
    identity: Identity,
    native: &MicrosandboxNative,
    selection: &Configuration,
) -> Result<(), CollectError> {
    let opened = Directory::open(native.runtime_home.as_ref());
    let directory = opened.map_err(|error| CollectError::Store(Some(error.into())))?;
    let owner = crate::store::read::<StoreOwner>(&directory, layout::STORE_OWNER, limits::JOURNAL_BYTES);
    match owner {
        Ok(Some(owner)) if owner.installation_id == identity.installation_id => {}
        Ok(_) => return Err(CollectError::Store(None)),
        Err(error) => return Err(CollectError::Store(Some(error))),
    }
    let path = std::path::Path::new(&native.runtime_path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(CollectError::NativeProgram);
    };
    let Ok(parent) = Directory::open(parent) else {
        return Err(CollectError::NativeProgram);
    };
    let found = digest_of(&parent, &name.to_string_lossy(), FileMode::Program)?;
    let wanted = selection
        .specification
        .runtime
        .as_ref()
        .and_then(|r| r.artifacts.runtime_sha256);
    match found {
        Some((_, digest)) if Some(digest) == wanted => Ok(()),
        _ => Err(CollectError::NativeProgram),
    }
}

fn original_digest(root: &Directory, key: &str) -> Result<Option<Digest>, CollectError> {
    // The record of hashes names no modes: programs are 0700, everything else 0600.
    let mode = if key.starts_with("native/") {
        FileMode::Program
    } else {
        FileMode::Data
    };
    Ok(digest_of(root, key, mode)?.map(|(_, digest)| digest))
}

fn digest_of(
    directory: &Directory,
    key: &str,
    mode: FileMode,
) -> Result<Option<(u64, Digest)>, PayloadError> {
    Ok(oac_release::payload::digest_of(directory, key, mode)?)
}

/// As the store names the image: `oac-runtime@sha256:<64 hex>`.
fn reference(selection: &Configuration) -> Result<String, CollectError> {
    let runtime = selection.specification.runtime.as_ref();
    let reference = runtime.and_then(|runtime| runtime.artifacts.microsandbox_ref.clone());
    reference.ok_or(CollectError::OutOfPlace)
}

/// The references of a complete list: each line `name@sha256:<64 hex>`, the last one ended too.
fn inventory(list: &str) -> Result<Vec<&str>, CollectError> {
    let Some(lines) = list.strip_suffix('\n') else {
        return if list.is_empty() {
            Ok(Vec::new())
        } else {
            Err(CollectError::Inventory)
        };
    };
    lines
        .split('\n')
        .map(|line| {
            let (name, digest) = line.split_once('@').ok_or(CollectError::Inventory)?;
            let whole = !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_graphic())
                && digest.parse::<oac_model::ImageDigest>().is_ok();
            whole.then_some(line).ok_or(CollectError::Inventory)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_images_is_whole_or_refused() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let line = format!("oac-runtime@{digest}\n");
        assert_eq!(inventory("").unwrap(), Vec::<&str>::new());
        assert_eq!(inventory(&line.repeat(2)).unwrap().len(), 2);
        for bad in [
            line.trim_end().to_owned(),
            format!("{line}\n"),
            format!("{line}oac-runtime\n"),
            format!("@{digest}\n"),
            format!("two words@{digest}\n"),
            line.replace("ab", "AB"),
            "oac-runtime@sha256:abc\n".to_owned(),
        ] {
            assert!(inventory(&bad).is_err(), "{bad:?}");
        }
    }
}
