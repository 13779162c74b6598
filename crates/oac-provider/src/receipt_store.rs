//! Receipts as files: `<directory>/<allocation_id>.json` (providers.md section 4).

use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use oac_model::{AllocationId, Digest, Reference};
use oac_records::{Directory, RecordError};

use crate::receipt::{Phase, Receipt};

/// Retained data is at most 64 KiB; the rest is small.
const LIMIT_BYTES: usize = 256 * 1024;

/// What makes a receipt's bytes no receipt.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    #[error("the receipt is not strict JSON of its format")]
    Json(#[source] oac_wire::strict::StrictError),
    #[error("the receipt's member {0} is out of its bounds")]
    Member(&'static str),
    #[error("the receipt names another reference")]
    Reference,
}

#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    #[error("a receipt of allocation {0} is already present")]
    Exists(AllocationId),
    #[error("the receipt of allocation {allocation} cannot be read")]
    Read {
        allocation: AllocationId,
        #[source]
        source: RecordError,
    },
    #[error("the receipt of allocation {allocation} is invalid")]
    Invalid {
        allocation: AllocationId,
        #[source]
        source: Invalid,
    },
    #[error("the receipt of allocation {allocation} cannot be written")]
    Write {
        allocation: AllocationId,
        #[source]
        source: RecordError,
    },
    #[error("a receipt of allocation {allocation} has no JSON form")]
    Form {
        allocation: AllocationId,
        #[source]
        source: serde_json::Error,
    },
    #[error("the age of the receipt of allocation {allocation} cannot be read")]
    Age {
        allocation: AllocationId,
        #[source]
        source: io::Error,
    },
    #[error("the directory of receipts cannot be used")]
    Directory(#[source] RecordError),
}

/// Why a rebind stopped; it can be repeated.
pub type RebindError = ReceiptError;

/// The receipts of one node. All calls block on the disk. The caller's lane makes it the only writer of a reference.
pub struct ReceiptStore {
    directory: Directory,
}

impl ReceiptStore {
    /// Opens the private directory, creating its last component when it is missing.
    pub fn open(path: &Path) -> Result<Self, ReceiptError> {
        let directory = Directory::create(path).map_err(ReceiptError::Directory)?;
        Ok(Self { directory })
    }

    /// The receipt of `reference`, or `None` where there is none. Unreadable, invalid or of another reference is an
    /// error, which makes every operation on the reference unconfirmed.
    pub fn read(&self, reference: &Reference) -> Result<Option<Receipt>, ReceiptError> {
        let allocation = reference.allocation_id;
        let Some(receipt) = self.read_of(allocation)? else {
            return Ok(None);
        };
        if receipt.reference != *reference {
            return Err(ReceiptError::Invalid {
                allocation,
                source: Invalid::Reference,
            });
        }
        Ok(Some(receipt))
    }

    fn read_of(&self, allocation: AllocationId) -> Result<Option<Receipt>, ReceiptError> {
        let invalid = |source| ReceiptError::Invalid { allocation, source };
        let bytes = self
            .directory
            .read(&file_name(allocation), LIMIT_BYTES)
            .map_err(|source| ReceiptError::Read { allocation, source })?;
        let Some(bytes) = bytes else { return Ok(None) };
        let receipt: Receipt = oac_wire::strict::from_slice(&bytes).map_err(|e| invalid(Invalid::Json(e)))?;
        if let Some(member) = receipt.defect() {
            return Err(invalid(Invalid::Member(member)));
        }
        if receipt.reference.allocation_id != allocation {
            return Err(invalid(Invalid::Reference));
        }
        Ok(Some(receipt))
    }

    /// Makes a reference's first receipt, durably; `Exists` where one is present, valid or not.
    pub fn create(&self, receipt: &Receipt) -> Result<(), ReceiptError> {
        let allocation = receipt.reference.allocation_id;
        self.directory
            .create_new(&file_name(allocation), &bytes_of(receipt)?)
            .map_err(|source| match source {
                RecordError::Exists { .. } => ReceiptError::Exists(allocation),
                source => ReceiptError::Write { allocation, source },
            })
    }

    /// Replaces a reference's receipt, durably.
    pub fn replace(&self, receipt: &Receipt) -> Result<(), ReceiptError> {
        let allocation = receipt.reference.allocation_id;
        self.directory
            .write(&file_name(allocation), &bytes_of(receipt)?)
            .map_err(|source| ReceiptError::Write { allocation, source })
    }

    /// The allocations that have a receipt file. Other names in the directory are left alone.
    pub fn allocations(&self) -> Result<Vec<AllocationId>, ReceiptError> {
        let names = self.directory.names().map_err(ReceiptError::Directory)?;
        let ids = names.iter().filter_map(|name| name.strip_suffix(".json"));
        let mut found: Vec<AllocationId> = ids.filter_map(|id| id.parse().ok()).collect();
        found.sort();
        Ok(found)
    }

    /// Every receipt, each valid or with its error; changes none (node.md section 11, start).
    pub fn check(&self) -> Result<Vec<Result<Receipt, ReceiptError>>, ReceiptError> {
        let all = self.allocations()?;
        Ok(all
            .into_iter()
            .filter_map(|id| self.read_of(id).transpose())
            .collect())
    }

    /// Stores `present` as host_id in every receipt that has another one; the number changed. The service is stopped
    /// and an operator confirmed that the former host is off (node.md section 4).
    pub fn rebind(&self, present: Digest) -> Result<usize, RebindError> {
        let mut changed = 0;
        for allocation in self.allocations()? {
            let Some(mut receipt) = self.read_of(allocation)? else {
                continue;
            };
            if receipt.host_id.0.is_some_and(|host| host != present) {
                receipt.host_id = Some(present).into();
                self.replace(&receipt)?;
                changed += 1;
            }
        }
        Ok(changed)
    }

    /// Removes a tombstone last written `age` or longer before `now`; `false` where it is younger or no tombstone.
    pub fn forget_tombstone(
        &self,
        reference: &Reference,
        age: Duration,
        now: SystemTime,
    ) -> Result<bool, ReceiptError> {
        let allocation = reference.allocation_id;
        let name = file_name(allocation);
        match self.read(reference)? {
            Some(receipt) if receipt.phase() == Phase::Tombstone => {}
            _ => return Ok(false),
        }
        let old = std::fs::symlink_metadata(self.directory.path().join(&name))
            .and_then(|m| m.modified())
            .map_err(|source| ReceiptError::Age { allocation, source })?;
        if now.duration_since(old).is_ok_and(|elapsed| elapsed >= age) {
            self.directory
                .remove(&name)
                .map_err(|source| ReceiptError::Write { allocation, source })?;
            return Ok(true);
        }
        Ok(false)
    }
}

fn bytes_of(receipt: &Receipt) -> Result<Vec<u8>, ReceiptError> {
    serde_json::to_vec(receipt).map_err(|source| ReceiptError::Form {
        allocation: receipt.reference.allocation_id,
        source,
    })
}

fn file_name(allocation: AllocationId) -> String {
    format!("{allocation}.json")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use oac_model::{BootId, Generation};

    use super::*;
    use crate::receipt::{PhaseEvent, tests::reference};

    fn receipt(n: u8) -> Receipt {
        Receipt::begin(
            PhaseEvent::CreateStarted,
            reference(n),
            Generation::FIRST,
            Some(Digest::of("host")),
            Some(BootId::random()),
        )
        .unwrap()
    }

    fn store() -> (tempfile::TempDir, ReceiptStore) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let store = ReceiptStore::open(dir.path()).unwrap();
        (dir, store)
    }

    #[test]
    fn a_receipt_is_created_once_and_then_replaced() {
        let (dir, store) = store();
        let first = receipt(1);
        assert_eq!(store.read(&first.reference).unwrap(), None);
        store.create(&first).unwrap();
        assert!(matches!(store.create(&first), Err(ReceiptError::Exists(_))));
        let settled = first.clone().apply(PhaseEvent::CreateVerified).unwrap();
        store.replace(&settled).unwrap();
        assert_eq!(store.read(&first.reference).unwrap(), Some(settled));
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no partial is left");
        let mode = names[0]
            .as_ref()
            .unwrap()
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn a_leftover_partial_is_replaced_and_never_read() {
        let (dir, store) = store();
        let first = receipt(1);
        let partial = dir
            .path()
            .join(format!(".{}.json.partial", first.reference.allocation_id));
        std::fs::write(&partial, b"half").unwrap();
        assert_eq!(store.read(&first.reference).unwrap(), None);
        assert!(store.allocations().unwrap().is_empty());
        store.create(&first).unwrap();
        assert!(!partial.exists());
        assert_eq!(store.read(&first.reference).unwrap(), Some(first));
    }

    // inv: INV-N3
    #[test]
    fn a_receipt_that_is_not_exactly_one_private_strict_file_is_refused_unchanged() {
        let good = serde_json::to_string(&receipt(1)).unwrap();
        let path_of = |dir: &tempfile::TempDir| dir.path().join(file_name(reference(1).allocation_id));
        let bad_texts = [
            good[..good.len() - 1].to_owned(),
            good.replacen("\"format\":1", "\"format\":2", 1),
            good.replacen("\"phase\":\"creating\"", "\"phase\":\"Creating\"", 1),
            good.replacen("\"operation_id\":null,", "", 1),
            good.replacen("{\"format\":1", "{\"format\":1,\"format\":1", 1),
            good.replacen("{\"format\":1", "{\"extra\":1,\"format\":1", 1),
            format!("{good} {good}"),
            serde_json::to_string(&receipt(2)).unwrap(),
            " ".repeat(LIMIT_BYTES + 1),
        ];
        for text in bad_texts {
            let (dir, store) = store();
            std::fs::write(path_of(&dir), &text).unwrap();
            std::fs::set_permissions(path_of(&dir), std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(store.read(&reference(1)).is_err(), "{text:.80}");
            assert!(matches!(store.create(&receipt(1)), Err(ReceiptError::Exists(_))));
            assert_eq!(std::fs::read_to_string(path_of(&dir)).unwrap(), text);
        }

        let (dir, store) = store();
        store.create(&receipt(1)).unwrap();
        std::fs::set_permissions(path_of(&dir), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.read(&reference(1)).is_err(), "mode");
        std::fs::set_permissions(path_of(&dir), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(store.read(&reference(1)).is_ok());
        std::fs::hard_link(path_of(&dir), dir.path().join("second")).unwrap();
        assert!(store.read(&reference(1)).is_err(), "links");
        std::fs::remove_file(path_of(&dir)).unwrap();
        symlink(dir.path().join("second"), path_of(&dir)).unwrap();
        assert!(store.read(&reference(1)).is_err(), "symbolic link");
    }

    #[test]
    fn rebind_changes_the_host_of_differing_receipts_alone() {
        let (_dir, store) = store();
        let (here, other) = (Digest::of("here"), Digest::of("host"));
        for n in 1..=2 {
            store.create(&receipt(n)).unwrap();
        }
        let mut mine = receipt(3);
        mine.host_id = Some(here).into();
        store.create(&mine).unwrap();
        assert_eq!(store.check().unwrap().len(), 3);
        assert_eq!(store.rebind(here).unwrap(), 2);
        assert_eq!(store.rebind(here).unwrap(), 0);
        assert_ne!(here, other);
        assert_eq!(store.read(&reference(1)).unwrap().unwrap().host_id.0, Some(here));
    }

    #[test]
    fn only_an_old_tombstone_is_forgotten() {
        let (_dir, store) = store();
        let month = Duration::from_secs(30 * 24 * 3600);
        let later = SystemTime::now() + month + Duration::from_secs(60);
        let first = receipt(1);
        store.create(&first).unwrap();
        assert!(!store.forget_tombstone(&first.reference, month, later).unwrap());
        store
            .replace(&first.clone().apply(PhaseEvent::CreateMadeNothing).unwrap())
            .unwrap();
        assert!(
            !store
                .forget_tombstone(&first.reference, month, SystemTime::now())
                .unwrap()
        );
        assert!(store.forget_tombstone(&first.reference, month, later).unwrap());
        assert_eq!(store.read(&first.reference).unwrap(), None);
    }
}
