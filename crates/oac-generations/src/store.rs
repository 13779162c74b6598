//! The generation records of one installation, read together and checked against each other.

use std::{collections::BTreeMap, path::PathBuf};

use oac_model::{Digest, Generation, InstallationId};
use oac_records::{Directory, RecordError};

use crate::{
    layout::{self, Kind, Layout, Name},
    limits,
    records::{Collecting, Configuration, Identity, Installation, Invalid, Plan, Record, RuntimeArtifacts},
    state::{Files, State},
};

/// Why records cannot be used. At start every one of them ends the process with 1 (node.md section 9).
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    File(#[from] RecordError),
    #[error("{path} is not a valid record; restore it from the installation")]
    Invalid {
        path: PathBuf,
        #[source]
        source: Invalid,
    },
    #[error("{0} is missing; run the installer again")]
    Missing(PathBuf),
    #[error("{path} belongs to another {what}; restore it from the installation")]
    Differs { path: PathBuf, what: &'static str },
}

/// One generation as its files tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub identity: Identity,
    pub state: State,
    pub configuration: Option<Configuration>,
    pub plan: Option<Plan>,
}

impl Found {
    /// What says which files, image and store are its own: the configuration, or the plan before there is one.
    pub fn selection(&self) -> Option<&Configuration> {
        self.configuration
            .as_ref()
            .or_else(|| self.plan.as_ref().map(|plan| &plan.configuration))
    }

    /// An image of it may be in the native store: it has a configuration, or its import has begun.
    pub fn may_have_image(&self) -> bool {
        self.configuration.is_some() || self.plan.as_ref().is_some_and(|plan| plan.import_started)
    }
}

/// The records of one installation, its directories held open.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    root: Directory,
    generations: Directory,
    installation: Installation,
}

impl Store {
    /// Opens the root and verifies that it is `installation`'s.
    pub fn open(layout: Layout, installation: InstallationId) -> Result<Self, StoreError> {
        let root = Directory::open(layout.root())?;
        let record: Installation = read(&root, layout::INSTALLATION, limits::CONFIGURATION_BYTES)?
            .ok_or_else(|| StoreError::Missing(root.path().join(layout::INSTALLATION)))?;
        if record.installation_id != installation {
            return Err(StoreError::Differs {
                path: root.path().join(layout::INSTALLATION),
                what: "installation",
            });
        }
        let generations = Directory::create(&layout.generations())?;
        Ok(Self {
            layout,
            root,
            generations,
            installation: record,
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn root(&self) -> &Directory {
        &self.root
    }

    /// `state/node/generations`.
    pub fn directory(&self) -> &Directory {
        &self.generations
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Makes durable what a killed predecessor renamed or removed, before anything is decided from it (INV-N44).
    pub fn sync(&self) -> Result<(), RecordError> {
        self.root.sync()?;
        self.generations.sync()
    }

    /// The original Runtime files, as the installer recorded them.
    pub fn runtime_artifacts(&self) -> Result<Option<RuntimeArtifacts>, StoreError> {
        let found: Option<RuntimeArtifacts> =
            read(&self.root, layout::RUNTIME_ARTIFACTS, limits::MANIFEST_BYTES)?;
        match found {
            Some(record) if record.installation_id != self.installation.installation_id => {
                Err(StoreError::Differs {
                    path: self.root.path().join(layout::RUNTIME_ARTIFACTS),
                    what: "installation",
                })
            }
            found => Ok(found),
        }
    }

    /// Every generation of which a record exists, the enrolled one included.
    pub fn load_all(&self) -> Result<BTreeMap<Generation, Found>, StoreError> {
        let names = self.generations.names()?;
        let mut numbers: Vec<Generation> = names
            .iter()
            .filter_map(|name| name.parse().ok())
            .map(|Name(generation, _)| generation)
            .chain([self.installation.generation])
            .collect();
        numbers.sort();
        numbers.dedup();
        let mut all = BTreeMap::new();
        for generation in numbers {
            if let Some(found) = self.load(generation)? {
                all.insert(generation, found);
            }
        }
        Ok(all)
    }

    /// A generation's records; `None` where there is neither configuration nor journal.
    pub fn load(&self, generation: Generation) -> Result<Option<Found>, StoreError> {
        let configuration = self.configuration(generation)?;
        let plan: Option<Plan> = self.record(generation, Kind::Preparing)?;
        let collecting: Option<Collecting> = self.record(generation, Kind::Collecting)?;
        let dropped: Option<Identity> = self.record(generation, Kind::Dropped)?;
        let state = State::of(Files {
            configuration: configuration.is_some(),
            preparing: plan.as_ref().map(|plan| plan.import_started),
            collecting: collecting.map(|journal| journal.native_complete),
            dropped: dropped.is_some(),
        });
        let identities = [
            (
                Kind::Configuration,
                configuration.as_ref().map(Configuration::identity),
            ),
            (Kind::Preparing, plan.as_ref().map(|plan| plan.identity)),
            (Kind::Collecting, collecting.map(|journal| journal.identity)),
            (Kind::Dropped, dropped),
        ];
        let Some(identity) = identities.iter().find_map(|(_, identity)| *identity) else {
            return Ok(None);
        };
        for (kind, found) in identities {
            if let Some(found) = found {
                self.check(generation, kind, found, identity)?;
            }
        }
        if let (Some(plan), Some(configuration)) = (&plan, &configuration)
            && !plan.configuration.agrees(configuration)
        {
            return Err(self.differs(generation, Kind::Preparing, "plan than its configuration"));
        }
        Ok(Some(Found {
            identity,
            state,
            configuration,
            plan,
        }))
    }

    fn configuration(&self, generation: Generation) -> Result<Option<Configuration>, StoreError> {
        let found: Option<Configuration> = if generation == self.installation.generation {
            let name = layout::ENROLLED_CONFIGURATION;
            let enrolled = read(&self.root, name, limits::CONFIGURATION_BYTES)?;
            let enrolled: Configuration =
                enrolled.ok_or_else(|| StoreError::Missing(self.root.path().join(name)))?;
            if enrolled.specification.digest() != self.installation.specification_digest {
                return Err(StoreError::Differs {
                    path: self.root.path().join(name),
                    what: "specification",
                });
            }
            Some(enrolled)
        } else {
            self.record(generation, Kind::Configuration)?
        };
        if let Some(found) = &found
            && found.provider != self.installation.provider
        {
            return Err(self.differs(generation, Kind::Configuration, "provider"));
        }
        Ok(found)
    }

    fn check(
        &self,
        generation: Generation,
        kind: Kind,
        found: Identity,
        first: Identity,
    ) -> Result<(), StoreError> {
        let what = if found.installation_id != self.installation.installation_id {
            "installation"
        } else if found.generation != generation {
            "generation"
        } else if found.specification_digest != first.specification_digest {
            "specification"
        } else {
            return Ok(());
        };
        Err(self.differs(generation, kind, what))
    }

    fn differs(&self, generation: Generation, kind: Kind, what: &'static str) -> StoreError {
        StoreError::Differs {
            path: self.generations.path().join(Name(generation, kind).to_string()),
            what,
        }
    }

    pub(crate) fn record<T: Record>(
        &self,
        generation: Generation,
        kind: Kind,
    ) -> Result<Option<T>, StoreError> {
        read(
            &self.generations,
            &Name(generation, kind).to_string(),
            kind.limit_bytes(),
        )
    }

    /// Writes a journal in the place of what it was.
    pub(crate) fn write(
        &self,
        generation: Generation,
        kind: Kind,
        record: &impl Record,
    ) -> Result<(), RecordError> {
        self.generations
            .write(&Name(generation, kind).to_string(), &record.encode())
    }

    /// Publishes a write-once record.
    pub(crate) fn publish(
        &self,
        generation: Generation,
        kind: Kind,
        record: &impl Record,
    ) -> Result<(), RecordError> {
        self.generations
            .publish(&Name(generation, kind).to_string(), &record.encode())
    }

    pub(crate) fn remove(&self, generation: Generation, kind: Kind) -> Result<(), RecordError> {
        self.generations.remove(&Name(generation, kind).to_string())
    }

    /// The identity of `generation` of this installation.
    pub fn identity(&self, generation: Generation, specification_digest: Digest) -> Identity {
        Identity {
            installation_id: self.installation.installation_id,
            generation,
            specification_digest,
        }
    }
}

pub(crate) fn read<T: Record>(
    directory: &Directory,
    name: &str,
    limit: usize,
) -> Result<Option<T>, StoreError> {
    let Some(bytes) = directory.read(name, limit)? else {
        return Ok(None);
    };
    T::decode(&bytes).map(Some).map_err(|source| StoreError::Invalid {
        path: directory.path().join(name),
        source,
    })
}
