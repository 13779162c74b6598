//! The permanent lease of a generation (node.md section 6): an empty file whose lock says that a native helper lives.
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | None | [`create`] | Bare, then Exclusive once the identity record is durable |
//! | Bare | creator ends early | Bare: every later open refuses |
//! | Ready | [`share`] | Shared 1, 2, … |
//! | Shared n | a helper was waited for and the node's copy closed | n−1; Ready at 0 |
//! | Ready | [`exclude`] | Exclusive |
//! | Shared n | [`exclude`] | unchanged: busy |
//! | Exclusive | [`share`] | unchanged: busy |
//! | any | file rule or record mismatch | refused, nothing is changed or repaired |
//!
//! The lock belongs to the open file, not to a process: a helper that inherited the descriptor holds it to its own
//! end, whatever becomes of the node. Nothing here ever removes, replaces or adopts a lease or its record.

use std::{io, os::fd::AsFd, path::PathBuf, process::Command};

use oac_model::Generation;
use oac_records::{Directory, Hold, Lock, LockError, RecordError};

use crate::{
    inherit::{self, Number},
    layout::{Kind, Name},
    records::{Identity, LeaseIdentity},
    store::{Store, StoreError, read},
};

/// What tells a helper that descriptor 3 is its lease; its value is `3`.
pub const ENVIRONMENT: &str = "OAC_NODE_GENERATION_LEASE_FD";

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("the lease of generation {0} is held: a helper, a preparer or a collector of it runs")]
    Busy(Generation),
    #[error("generation {0} has no lease")]
    Missing(Generation),
    /// Also where the record alone exists.
    #[error(
        "the lease of generation {0} has no identity record; uninstall and add the node again, or select a new generation"
    )]
    Bare(Generation),
    #[error(
        "the lease of generation {generation} and its record {path} do not belong together; it is kept for inspection"
    )]
    Differs { generation: Generation, path: PathBuf },
    #[error("generation {0} is not published, or is being collected")]
    NotPublished(Generation),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no lease was handed over")]
    NotInherited(#[source] io::Error),
}

impl From<RecordError> for LeaseError {
    fn from(error: RecordError) -> Self {
        Self::Store(error.into())
    }
}

/// The lock of a preparer or collector: no helper of the generation lives while it is held.
#[derive(Debug)]
pub struct ExclusiveLease {
    identity: Identity,
    _lock: Lock,
}

impl ExclusiveLease {
    pub fn identity(&self) -> Identity {
        self.identity
    }
}

/// The lock of a helper, or of a probe that runs native code. The node keeps it until it has waited for the helper.
#[derive(Debug)]
pub struct SharedLease {
    identity: Identity,
    lock: Lock,
}

impl SharedLease {
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Has `command` start with the lease as descriptor 3 and say so in its environment.
    pub fn hand_over(&self, command: &mut Command) -> io::Result<()> {
        command.env(ENVIRONMENT, "3");
        inherit::hand_over(command, self.lock.as_fd(), Number::Three)
    }
}

/// Creates lease and record of a generation that has neither; held by the creator. The caller holds `install.lock`.
pub fn create(store: &Store, identity: Identity) -> Result<ExclusiveLease, LeaseError> {
    let directory = store.directory();
    let generation = identity.generation;
    let record = Name(generation, Kind::LeaseIdentity).to_string();
    if directory
        .read(&record, Kind::LeaseIdentity.limit_bytes())?
        .is_some()
    {
        return Err(LeaseError::Bare(generation));
    }
    let lock = Lock::create_new(directory, &Name(generation, Kind::Lease).to_string());
    let lock = lock.map_err(|error| lock_error(error, generation))?;
    // Until here the lease is Bare. A creator killed now leaves it so, and nobody mends it: that the lease was never
    // used cannot be seen from it.
    let bound = LeaseIdentity {
        identity,
        device: lock.device(),
        inode: lock.inode(),
    };
    store.publish(generation, Kind::LeaseIdentity, &bound)?;
    Ok(ExclusiveLease {
        identity,
        _lock: lock,
    })
}

/// Whether neither lease nor record exists, so that [`create`] may make both.
pub fn is_absent(store: &Store, generation: Generation) -> Result<bool, LeaseError> {
    let names = store.directory().names()?;
    let exists = |kind| names.contains(&Name(generation, kind).to_string());
    Ok(!exists(Kind::Lease) && !exists(Kind::LeaseIdentity))
}

/// The generations whose lease has no record: every open of them refuses, and an operator has to know.
pub fn bare(store: &Store) -> Result<Vec<Generation>, LeaseError> {
    let names = store.directory().names()?;
    let leases = names.iter().filter_map(|name| match name.parse() {
        Ok(Name(generation, Kind::Lease)) => Some(generation),
        _ => None,
    });
    let has_record = |generation| names.contains(&Name(generation, Kind::LeaseIdentity).to_string());
    Ok(leases.filter(|generation| !has_record(*generation)).collect())
}

/// The exclusive lock, without waiting. The caller holds `install.lock`.
pub fn exclude(store: &Store, identity: Identity) -> Result<ExclusiveLease, LeaseError> {
    let lock = open(store.directory(), identity, Hold::Exclusive)?;
    Ok(ExclusiveLease {
        identity,
        _lock: lock,
    })
}

/// A shared lock, without waiting, of a generation that is published and not being collected.
pub fn share(store: &Store, identity: Identity) -> Result<SharedLease, LeaseError> {
    let lock = open(store.directory(), identity, Hold::Shared)?;
    // Under the lock: a collector that wrote its journal before is seen, and a later one is kept out.
    let found = store.load(identity.generation)?;
    match found {
        Some(found) if found.state.is_published() && found.identity == identity => {
            Ok(SharedLease { identity, lock })
        }
        _ => Err(LeaseError::NotPublished(identity.generation)),
    }
}

/// In a helper: the lease that the node handed over as descriptor 3, verified against the record. From now on no
/// program this process starts holds it.
pub fn inherited(generations: &Directory, identity: Identity) -> Result<SharedLease, LeaseError> {
    let fd = inherit::take(Number::Three).map_err(LeaseError::NotInherited)?;
    let name = Name(identity.generation, Kind::Lease).to_string();
    let lock = Lock::inherited(generations, &name, fd, Hold::Shared);
    let lock = lock.map_err(|error| lock_error(error, identity.generation))?;
    verify(generations, identity, &lock)?;
    Ok(SharedLease { identity, lock })
}

fn open(generations: &Directory, identity: Identity, hold: Hold) -> Result<Lock, LeaseError> {
    let generation = identity.generation;
    let name = Name(generation, Kind::Lease).to_string();
    let lock = Lock::existing(generations, &name, hold).map_err(|error| lock_error(error, generation))?;
    verify(generations, identity, &lock)?;
    Ok(lock)
}

fn verify(generations: &Directory, identity: Identity, lock: &Lock) -> Result<(), LeaseError> {
    let generation = identity.generation;
    let name = Name(generation, Kind::LeaseIdentity).to_string();
    let record: Option<LeaseIdentity> = read(generations, &name, Kind::LeaseIdentity.limit_bytes())?;
    let record = record.ok_or(LeaseError::Bare(generation))?;
    let expected = LeaseIdentity {
        identity,
        device: lock.device(),
        inode: lock.inode(),
    };
    if record == expected {
        Ok(())
    } else {
        Err(LeaseError::Differs {
            generation,
            path: generations.path().join(name),
        })
    }
}

fn lock_error(error: LockError, generation: Generation) -> LeaseError {
    match error {
        LockError::Busy(_) => LeaseError::Busy(generation),
        LockError::Missing(_) => LeaseError::Missing(generation),
        LockError::Record(error) => error.into(),
    }
}
