//! Preparation and repair of one generation (node.md section 7), one step at a time.
//!
//! [`next`] is the table: from what is durable and what this run found out, the next step. [`Preparation`] performs it
//! on the disk and outside, and learns from it. A run that was killed is repeated from the beginning: it finds what is
//! durable and goes on from there, so that resuming is not a case of its own.
//!
//! | durable | known | step |
//! | --- | --- | --- |
//! | Collecting, Purging, Dropped | – | refused |
//! | any other | nothing | ask Core for this exact generation |
//! | Unknown | Core's answer | look for a published generation to reuse |
//! | Unknown | reusable | publish: Published |
//! | Publishing | Core's answer | compare the plan, remove the journal: Published |
//! | any other | Core's answer | fetch the release's metadata |
//! | Unknown | metadata | write the plan: Planned |
//! | Planned, Importing | metadata | compare the plan |
//! | up to Published | plan compared | verify every file that is here |
//! | … | no conflict | fetch what is missing, but for the archive |
//! | … | files complete | own the store, find the image |
//! | … | no image | fetch the archive |
//! | Planned | archive | mark the import: Importing |
//! | Importing, Published | archive | import, find the image |
//! | … | image, own archive | delete the archive |
//! | Planned, Importing | image | publish: Publishing; remove the journal: Published |
//! | Published | image | done |
//!
//! A published generation passes the same rows as a repair: without a journal, and its configuration stays.

mod table;

use oac_records::{LockError, RecordError};
use oac_release::{layout::Role, manifest::Artifact};

use crate::{
    keys::InheritedLock,
    layout::{self, Kind},
    lease::{self, ExclusiveLease, LeaseError},
    limits,
    native::Native,
    numbered::numbered,
    outside::{Cause, Engine, Release, Selected, Supply, SupplyError},
    payload::{Payload, PayloadError},
    planned,
    records::{Configuration, Identity, Plan, StoreOwner},
    state::{Event, State},
    store::{Found, Store, StoreError},
};

pub use table::{Known, Outcome, Step, learn, next};

/// Why a preparation ended early. What it made durable stays for the next.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("the generation is being removed or was removed")]
    Going,
    #[error("Core answers another specification for this generation than the one asked for")]
    Specification,
    #[error(
        "this generation's plan or configuration differs from what Core and the release say; it is kept as it is"
    )]
    Drift,
    #[error(transparent)]
    Plan(#[from] planned::PlanError),
    #[error("the store {0} belongs to another installation, or is not empty and says no owner")]
    StoreOwner(String),
    #[error("the engine does not have the image after its import")]
    NotImported,
    #[error("the engine names another image than the generation's")]
    OtherImage,
    #[error("the engine failed")]
    Engine(#[source] Cause),
    #[error(transparent)]
    Payload(#[from] PayloadError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a step was taken that the state has no place for")]
    OutOfPlace,
}

impl From<RecordError> for PrepareError {
    fn from(error: RecordError) -> Self {
        Self::Store(error.into())
    }
}

impl From<SupplyError> for PrepareError {
    fn from(error: SupplyError) -> Self {
        Self::Payload(error.into())
    }
}

impl PrepareError {
    /// Of the child process: 65 artifact transfer, checksum or provenance; 75 lock or lease busy; else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Lease(LeaseError::Busy(_)) | Self::Lock(LockError::Busy(_)) => 75,
            Self::Payload(error) if error.is_of_artifact() => 65,
            Self::Plan(
                planned::PlanError::OtherRelease | planned::PlanError::NoFile(_) | planned::PlanError::Path,
            ) => 65,
            _ => 1,
        }
    }
}

/// One run, with both locks held.
pub struct Preparation<'a> {
    store: &'a Store,
    supply: &'a mut dyn Supply,
    engine: &'a mut dyn Engine,
    identity: Identity,
    known: Known,
    found: Option<Found>,
    selected: Option<Selected>,
    reuse: Option<Configuration>,
    release: Option<Release>,
    missing: Vec<Artifact>,
    _lease: ExclusiveLease,
    _lock: &'a InheritedLock,
}

impl<'a> Preparation<'a> {
    /// Takes the lease, which exists, and makes durable whatever a killed predecessor left.
    pub fn begin(
        store: &'a Store,
        identity: Identity,
        lock: &'a InheritedLock,
        supply: &'a mut dyn Supply,
        engine: &'a mut dyn Engine,
    ) -> Result<Self, PrepareError> {
        let lease = lease::exclude(store, identity)?;
        store.sync()?;
        let found = store.load(identity.generation)?;
        if found.as_ref().is_some_and(|found| found.identity != identity) {
            return Err(PrepareError::Drift);
        }
        let state = found.as_ref().map_or(State::Unknown, |found| found.state);
        Ok(Self {
            store,
            supply,
            engine,
            identity,
            known: Known::of(state),
            found,
            selected: None,
            reuse: None,
            release: None,
            missing: Vec::new(),
            _lease: lease,
            _lock: lock,
        })
    }

    /// Performs steps to the end.
    pub fn run(mut self) -> Result<(), PrepareError> {
        while self.step()? != Step::Done {}
        Ok(())
    }

    /// Performs the next step, and says which.
    pub fn step(&mut self) -> Result<Step, PrepareError> {
        let step = next(&self.known);
        numbered(&step).map_err(|errno| PrepareError::Engine(errno.into()))?;
        if let Some(outcome) = self.perform(step)? {
            self.known = learn(self.known, outcome).ok_or(PrepareError::OutOfPlace)?;
        }
        Ok(step)
    }

    fn perform(&mut self, step: Step) -> Result<Option<Outcome>, PrepareError> {
        let outcome = match step {
            Step::Refuse => return Err(PrepareError::Going),
            Step::Done => return Ok(None),
            Step::AskCore => self.ask_core()?,
            Step::LookForReuse => self.look_for_reuse()?,
            Step::FetchRelease => self.fetch_release()?,
            Step::WritePlan => {
                let plan = Plan::of(self.planned()?);
                self.store
                    .write(self.identity.generation, Kind::Preparing, &plan)?;
                self.reload(Event::Planned)?
            }
            Step::ComparePlan => self.compare_plan()?,
            Step::VerifyFiles => {
                let release = self.release()?;
                let missing = self.payload()?.verify(release)?;
                let archive_here = !missing.iter().any(is_archive);
                self.missing = missing;
                // The archive of a later release is fetched for its import alone: a killed predecessor left it. The
                // enrolled generation's came with the installer.
                let archive_owned = !self.is_enrolled_payload()?;
                Outcome::FilesVerified {
                    archive_here,
                    archive_owned,
                }
            }
            Step::FetchFiles => {
                self.fetch(false)?;
                Outcome::FilesComplete
            }
            Step::OwnStore => {
                self.own_store()?;
                Outcome::StoreOwned
            }
            Step::FindImage => self.find_image()?,
            Step::FetchArchive => {
                self.fetch(true)?;
                Outcome::ArchiveHere
            }
            Step::MarkImport => {
                let mut plan = self.plan()?.clone();
                plan.import_started = true;
                self.store
                    .write(self.identity.generation, Kind::Preparing, &plan)?;
                self.reload(Event::ImportStarted)?
            }
            Step::Import => self.import()?,
            Step::DeleteArchive => {
                let key = self.archive()?.key.clone();
                self.payload()?.remove(&key)?;
                Outcome::ArchiveDeleted
            }
            Step::Publish => {
                let configuration = self.resolved()?;
                self.store
                    .publish(self.identity.generation, Kind::Configuration, &configuration)?;
                self.reload(Event::Configured)?
            }
            Step::RemoveJournal => {
                self.store.remove(self.identity.generation, Kind::Preparing)?;
                self.reload(Event::JournalRemoved)?
            }
        };
        Ok(Some(outcome))
    }

    /// The files are what the event says they are; whatever else they are is a defect of the disk or of this program.
    fn reload(&mut self, event: Event) -> Result<Outcome, PrepareError> {
        self.found = self.store.load(self.identity.generation)?;
        let state = self.found.as_ref().map(|found| found.state);
        if self.known.state.after(event) != state {
            return Err(PrepareError::OutOfPlace);
        }
        Ok(Outcome::Durable(event))
    }

    fn ask_core(&mut self) -> Result<Outcome, PrepareError> {
        let selected = self.supply.configuration(&self.identity)?;
        if selected.specification.digest() != self.identity.specification_digest {
            return Err(PrepareError::Specification);
        }
        let existing = self.found.as_ref().and_then(Found::selection);
        if let Some(existing) = existing
            && (existing.specification != selected.specification || existing.core_url != selected.core_url)
        {
            return Err(PrepareError::Drift);
        }
        self.selected = Some(selected);
        Ok(Outcome::CoreAnswered)
    }

    fn look_for_reuse(&mut self) -> Result<Outcome, PrepareError> {
        let selected = self.selected()?.clone();
        let all = self.store.load_all()?;
        let candidates = all
            .values()
            .filter(|found| found.state.is_published())
            .filter_map(|found| found.configuration.as_ref())
            .filter(|c| c.specification.runtime == selected.specification.runtime)
            .filter(|c| c.specification.provider == selected.specification.provider);
        for candidate in candidates {
            let configuration = Configuration {
                generation: self.identity.generation,
                specification: selected.specification.clone(),
                core_url: selected.core_url.clone(),
                ..candidate.clone()
            };
            // An engine that cannot say is no reason to fail: the generation is then prepared with files of its own.
            if let Ok(Some(_)) = self.engine.image(&configuration) {
                self.reuse = Some(configuration);
                return Ok(Outcome::Reusable(true));
            }
        }
        Ok(Outcome::Reusable(false))
    }

    fn fetch_release(&mut self) -> Result<Outcome, PrepareError> {
        let selected = self.selected()?.clone();
        let release = self.supply.release(&selected.specification)?;
        planned::check(&release, &selected.specification)?;
        self.release = Some(release);
        self.payload()?.sync()?;
        Ok(Outcome::ReleaseVerified)
    }

    fn compare_plan(&self) -> Result<Outcome, PrepareError> {
        let plan = &self.plan()?.configuration;
        let against = match &self.found {
            Some(Found {
                configuration: Some(published),
                ..
            }) => published.clone(),
            _ => self.planned()?,
        };
        if plan.agrees(&against) {
            Ok(Outcome::PlanEqual)
        } else {
            Err(PrepareError::Drift)
        }
    }

    /// Fetches what verification found missing: the archive, or everything else.
    fn fetch(&mut self, archive: bool) -> Result<(), PrepareError> {
        let payload = self.payload()?;
        let release = self.release.as_ref().ok_or(PrepareError::OutOfPlace)?;
        let missing: Vec<&Artifact> = self.missing.iter().filter(|a| is_archive(a) == archive).collect();
        Ok(payload.fetch(release, &missing, self.supply.source())?)
    }

    /// Verifies the store's owner, or becomes it where the store is empty.
    fn own_store(&self) -> Result<(), PrepareError> {
        let configuration = self.chosen()?;
        let Native::Microsandbox(native) = &configuration.native else {
            return Ok(());
        };
        let refused = || PrepareError::StoreOwner(native.runtime_home.clone());
        if native.runtime_home.len() > layout::STORE_PATH_BYTES {
            return Err(refused());
        }
        let directory = oac_records::Directory::create(native.runtime_home.as_ref())?;
        directory.sync()?;
        let owner = StoreOwner {
            installation_id: self.identity.installation_id,
        };
        match crate::store::read::<StoreOwner>(&directory, layout::STORE_OWNER, limits::JOURNAL_BYTES)? {
            Some(found) if found == owner => return Ok(()),
            Some(_) => return Err(refused()),
            None => {}
        }
        let partial = format!(".{}.partial", layout::STORE_OWNER);
        if directory.names()?.iter().any(|name| *name != partial) {
            return Err(refused());
        }
        let bytes = crate::records::Record::encode(&owner);
        Ok(directory.publish(layout::STORE_OWNER, &bytes)?)
    }

    fn find_image(&mut self) -> Result<Outcome, PrepareError> {
        let configuration = self.chosen()?;
        let image = self.engine.image(&configuration).map_err(PrepareError::Engine)?;
        if let Some(image) = image {
            self.check_image(&configuration, image)?;
        }
        Ok(Outcome::Image(image.is_some()))
    }

    fn check_image(
        &self,
        configuration: &Configuration,
        image: oac_model::ImageDigest,
    ) -> Result<(), PrepareError> {
        let Native::Docker(docker) = &configuration.native else {
            return Ok(());
        };
        let runtime = configuration.specification.runtime.as_ref();
        let release = runtime.map(|r| [r.artifacts.image_id, r.artifacts.image_manifest_digest]);
        let named = release.is_some_and(|release| release.contains(&Some(image)));
        let published = self
            .found
            .as_ref()
            .is_some_and(|found| found.configuration.is_some());
        if !named || (published && docker.image != image) {
            return Err(PrepareError::OtherImage);
        }
        Ok(())
    }

    fn import(&mut self) -> Result<Outcome, PrepareError> {
        let configuration = self.chosen()?;
        let key = self.archive()?.key.clone();
        let path = self.payload_path(&configuration)?.join(key);
        self.engine
            .import(&configuration, &path)
            .map_err(PrepareError::Engine)?;
        // Whether it is there now is asked of the engine, not believed of the importer.
        match self.find_image()? {
            Outcome::Image(false) => Err(PrepareError::NotImported),
            found => Ok(found),
        }
    }

    /// The final configuration: the plan's, with the image as the engine resolved it; or the reused one.
    fn resolved(&mut self) -> Result<Configuration, PrepareError> {
        let mut configuration = match &self.reuse {
            Some(reuse) => reuse.clone(),
            None => self.plan()?.configuration.clone(),
        };
        if let Native::Docker(docker) = &configuration.native {
            let mut docker = docker.clone();
            let image = self.engine.image(&configuration).map_err(PrepareError::Engine)?;
            let image = image.ok_or(PrepareError::NotImported)?;
            self.check_image(&configuration, image)?;
            docker.image = image;
            configuration.native = Native::Docker(docker);
        }
        Ok(configuration)
    }

    /// The published configuration, else the plan's.
    fn chosen(&self) -> Result<Configuration, PrepareError> {
        let selection = self.found.as_ref().and_then(Found::selection);
        selection.cloned().ok_or(PrepareError::OutOfPlace)
    }

    fn planned(&self) -> Result<Configuration, PrepareError> {
        let enrolled = self.store.load(self.store.installation().generation)?;
        let enrolled = enrolled
            .and_then(|found| found.configuration)
            .ok_or(PrepareError::OutOfPlace)?;
        Ok(planned::configuration(
            self.store.layout(),
            &enrolled,
            self.identity,
            self.selected()?,
            self.release()?,
        )?)
    }

    fn payload(&self) -> Result<Payload<'a>, PrepareError> {
        let source = self.release()?.source_commit;
        Ok(Payload::of(self.store, self.is_enrolled_payload()?, source))
    }

    /// The original files: of the enrolled generation, and of whatever reuses its paths.
    fn is_enrolled_payload(&self) -> Result<bool, PrepareError> {
        let generation = self.identity.generation;
        if generation == self.store.installation().generation {
            return Ok(true);
        }
        let Some(Found {
            configuration: Some(own),
            ..
        }) = &self.found
        else {
            return Ok(false);
        };
        let releases = self.store.layout().root().join(layout::RELEASES);
        let apart = own
            .native
            .files()
            .iter()
            .any(|file| std::path::Path::new(file).starts_with(&releases));
        Ok(!apart)
    }

    fn payload_path(&self, configuration: &Configuration) -> Result<std::path::PathBuf, PrepareError> {
        let source = configuration.source_commit().ok_or(PrepareError::OutOfPlace)?;
        Ok(if self.is_enrolled_payload()? {
            self.store.layout().root().to_owned()
        } else {
            self.store.layout().release(source)
        })
    }

    fn plan(&self) -> Result<&Plan, PrepareError> {
        let plan = self.found.as_ref().and_then(|found| found.plan.as_ref());
        plan.ok_or(PrepareError::OutOfPlace)
    }

    fn selected(&self) -> Result<&Selected, PrepareError> {
        self.selected.as_ref().ok_or(PrepareError::OutOfPlace)
    }

    fn release(&self) -> Result<&Release, PrepareError> {
        self.release.as_ref().ok_or(PrepareError::OutOfPlace)
    }

    fn archive(&self) -> Result<&Artifact, PrepareError> {
        let mut artifacts = self.release()?.artifacts.iter();
        let archive = artifacts.find(|artifact| is_archive(artifact));
        archive.ok_or(PrepareError::OutOfPlace)
    }
}

/// Fetched only for an import, deleted after it.
fn is_archive(artifact: &Artifact) -> bool {
    artifact.role == Role::Image
}
