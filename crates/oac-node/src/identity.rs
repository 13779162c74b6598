//! `identity.json` and `identity.lock`: who this node is, and that only one process is it (node.md section 4).

use std::path::Path;

use oac_dial::Origin;
use oac_model::{Digest, NodeId, OwnerEpoch, Secret};
use oac_records::{Directory, Lock, LockError, RecordError};
use oac_wire::{
    frames::Identity,
    strict::{self, StrictError},
};
use serde::{Deserialize, Serialize};

use crate::{config::Configuration, limits::RECORD_BYTES};

const FILE: &str = "identity.json";
const LOCK: &str = "identity.lock";

/// The node as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub identity: Identity,
    pub credential: Secret,
    pub core: Origin,
    /// The highest epoch ever welcomed; 0 before the first. Never decreases.
    pub owner_epoch: i64,
    /// The host this state belongs to.
    pub host_id: Digest,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(
        "identity.json is not valid; restore it from a backup of this host, or remove the node and add it again"
    )]
    Invalid(#[source] StrictError),
    #[error("identity.json holds values out of bounds: {0}")]
    Bounds(&'static str),
    #[error("this node is not registered; run `oac-node register` first")]
    Missing,
    #[error(
        "identity.json belongs to another {0} than the configuration; use the state directory that goes with it"
    )]
    Differs(&'static str),
    #[error("the owner epoch {new} is below the stored {stored}")]
    EpochDecreases { stored: i64, new: i64 },
    #[error("no randomness for a new identity")]
    Entropy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    identity: Identity,
    credential: Secret,
    core_url: String,
    owner_epoch: i64,
    host_id: Digest,
}

/// The one place that writes the credential out.
#[derive(Serialize)]
struct RecordOut<'a> {
    identity: &'a Identity,
    credential: &'a str,
    core_url: &'a str,
    owner_epoch: i64,
    host_id: Digest,
}

/// The locked identity of a state directory. The lock lasts as long as this value.
#[derive(Debug)]
pub struct IdentityStore {
    directory: Directory,
    _lock: Lock,
}

impl IdentityStore {
    /// Locks the identity of an existing state directory; a second process is refused before it does anything.
    pub fn open(state_dir: &Path) -> Result<Self, IdentityError> {
        Self::locked(Directory::open(state_dir)?)
    }

    /// As `open`, creating the last component of the directory when it is missing.
    pub fn create(state_dir: &Path) -> Result<Self, IdentityError> {
        Self::locked(Directory::create(state_dir)?)
    }

    fn locked(directory: Directory) -> Result<Self, IdentityError> {
        let lock = Lock::exclusive(&directory, LOCK)?;
        // Whatever a killed predecessor renamed is durable before anything is decided from it.
        directory.sync()?;
        Ok(Self {
            directory,
            _lock: lock,
        })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn load(&self) -> Result<Option<Stored>, IdentityError> {
        load(&self.directory)
    }

    pub fn store(&self, stored: &Stored) -> Result<(), IdentityError> {
        let record = RecordOut {
            identity: &stored.identity,
            credential: stored.credential.expose(),
            core_url: stored.core.as_str(),
            owner_epoch: stored.owner_epoch,
            host_id: stored.host_id,
        };
        let text =
            serde_json::to_vec_pretty(&record).map_err(|_| IdentityError::Bounds("it has no JSON form"))?;
        Ok(self.directory.write(FILE, &text)?)
    }

    /// Makes a higher owner epoch durable (INV-P6).
    pub fn store_epoch(&self, epoch: OwnerEpoch) -> Result<(), IdentityError> {
        let mut stored = self.load()?.ok_or(IdentityError::Missing)?;
        if epoch.get() < stored.owner_epoch {
            return Err(IdentityError::EpochDecreases {
                stored: stored.owner_epoch,
                new: epoch.get(),
            });
        }
        stored.owner_epoch = epoch.get();
        self.store(&stored)
    }

    /// Stores the capacity that Core has; the rest of an identity never changes.
    pub fn store_capacity(&self, max_active: i64, max_retained: i64) -> Result<Stored, IdentityError> {
        let mut stored = self.load()?.ok_or(IdentityError::Missing)?;
        if (stored.identity.max_active, stored.identity.max_retained) != (max_active, max_retained) {
            stored.identity.max_active = max_active;
            stored.identity.max_retained = max_retained;
            check(&stored)?;
            self.store(&stored)?;
        }
        Ok(stored)
    }
}

fn load(directory: &Directory) -> Result<Option<Stored>, IdentityError> {
    let Some(bytes) = directory.read(FILE, RECORD_BYTES)? else {
        return Ok(None);
    };
    let record: Record = strict::from_slice(&bytes).map_err(IdentityError::Invalid)?;
    let stored = Stored {
        identity: record.identity,
        credential: record.credential,
        core: Origin::parse(&record.core_url).map_err(|_| IdentityError::Bounds("core_url is an origin"))?,
        owner_epoch: record.owner_epoch,
        host_id: record.host_id,
    };
    check(&stored)?;
    Ok(Some(stored))
}

/// The identity stored in `state_dir`, read without taking the lock; for `doctor`.
pub fn peek(state_dir: &Path) -> Result<Option<Stored>, IdentityError> {
    load(&Directory::open(state_dir)?)
}

fn check(stored: &Stored) -> Result<(), IdentityError> {
    let Identity {
        max_active,
        max_retained,
        ..
    } = stored.identity;
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let credential = stored.credential.expose();
    if credential.len() != 64 || !credential.bytes().all(hex) {
        return Err(IdentityError::Bounds("credential is 64 hex digits"));
    }
    if stored.owner_epoch < 0 {
        return Err(IdentityError::Bounds("owner_epoch is at least 0"));
    }
    if max_active < 1 || max_retained < max_active || max_retained > oac_wire::limits::CAPACITY {
        return Err(IdentityError::Bounds(
            "max_active and max_retained are from 1 to 1000000, the second not below the first",
        ));
    }
    Ok(())
}

impl Stored {
    /// A fresh node for this configuration. Core sets the capacity; until it answered, 1 and 1 stand for it.
    pub fn new(config: &Configuration, host_id: Digest) -> Result<Self, IdentityError> {
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|_| IdentityError::Entropy)?;
        Ok(Self {
            identity: Identity {
                node_id: NodeId::random(),
                installation_id: config.installation_id,
                provider: config.provider,
                backend_fingerprint: config.backend_fingerprint(),
                deployment_generation: config.generation,
                specification_digest: config.specification_digest(),
                max_active: 1,
                max_retained: 1,
            },
            credential: Secret::from_entropy("", entropy),
            core: config.core.clone(),
            owner_epoch: 0,
            host_id,
        })
    }

    /// Refuses a state directory that goes with another configuration.
    pub fn verify(&self, config: &Configuration) -> Result<(), IdentityError> {
        let identity = &self.identity;
        let same = [
            (identity.installation_id == config.installation_id, "installation"),
            (identity.provider == config.provider, "provider"),
            (
                identity.backend_fingerprint == config.backend_fingerprint(),
                "backend",
            ),
            (identity.deployment_generation == config.generation, "generation"),
            (
                identity.specification_digest == config.specification_digest(),
                "specification",
            ),
            (self.core == config.core, "Core address"),
        ];
        match same.into_iter().find(|(equal, _)| !equal) {
            Some((_, what)) => Err(IdentityError::Differs(what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> (tempfile::TempDir, IdentityStore, Stored) {
        let temp = tempfile::tempdir().unwrap();
        let root = Directory::create(&temp.path().join("root")).unwrap();
        root.write("provider.json", crate::config::tests::document().as_bytes())
            .unwrap();
        let config = Configuration::load(&root.path().join("provider.json")).unwrap();
        let store = IdentityStore::create(&temp.path().join("state")).unwrap();
        let stored = Stored::new(&config, Digest::of("host")).unwrap();
        stored.verify(&config).unwrap();
        store.store(&stored).unwrap();
        (temp, store, stored)
    }

    #[test]
    fn an_identity_is_read_back_as_stored_and_its_credential_is_in_no_debug_text() {
        let (_temp, store, stored) = stored();
        assert_eq!(store.load().unwrap().as_ref(), Some(&stored));
        assert!(!format!("{stored:?}").contains(stored.credential.expose()));
    }

    // req: P-026
    // inv: INV-P6
    #[test]
    fn a_higher_epoch_is_stored_and_a_lower_one_refused() {
        let (_temp, store, _) = stored();
        let epoch = |n: i64| OwnerEpoch::try_from(n).unwrap();
        store.store_epoch(epoch(7)).unwrap();
        assert!(matches!(
            store.store_epoch(epoch(6)),
            Err(IdentityError::EpochDecreases { stored: 7, new: 6 })
        ));
        assert_eq!(store.load().unwrap().unwrap().owner_epoch, 7);
    }

    #[test]
    fn capacity_is_the_only_part_that_changes() {
        let (_temp, store, before) = stored();
        let after = store.store_capacity(3, 5).unwrap();
        assert_eq!((after.identity.max_active, after.identity.max_retained), (3, 5));
        assert_eq!(after.credential, before.credential);
        assert!(store.store_capacity(3, 2).is_err());
        assert_eq!(store.load().unwrap().unwrap(), after);
    }

    // inv: INV-N3
    #[test]
    fn a_record_that_is_not_strict_is_refused_and_kept() {
        let (_temp, store, _) = stored();
        let path = store.directory().path().join(FILE);
        let good = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [
            (r#""owner_epoch": 0"#, r#""owner_epoch": -1"#),
            (r#""owner_epoch": 0"#, r#""owner_epoch": 0, "owner_epoch": 0"#),
            (r#""owner_epoch": 0"#, r#""owner_epoch": 0, "more": 1"#),
            (r#""owner_epoch""#, r#""OWNER_EPOCH""#),
            (r#""max_active": 1"#, r#""max_active": 2"#),
            (r#""credential": ""#, r#""credential": "A"#),
        ] {
            assert!(good.contains(from), "{from}");
            let bad = good.replacen(from, to, 1);
            std::fs::write(&path, &bad).unwrap();
            assert!(store.load().is_err(), "{to}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
        }
    }
}
