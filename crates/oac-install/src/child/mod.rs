//! What happens as `oac-node`: everything that speaks to Core, Docker or a release server, and everything below the
//! account's home.

pub(crate) mod ask;
pub(crate) mod check;
pub(crate) mod payload;
pub(crate) mod prepare;
pub(crate) mod ready;
pub(crate) mod remove;

use std::path::Path;

use oac_dial::Origin;
use oac_generations::{
    layout::{ENROLLED_CONFIGURATION, Layout, REGISTERED},
    records::{self, Record},
};
use oac_model::{Digest, InstallationId, NodeId, Secret};
use oac_records::{Directory, RecordError};
use oac_wire::{frames::Identity, strict};
use serde::Deserialize;

use crate::{
    hint::Hint,
    plan::inspection::{Retained, Root},
};

const RECORD_BYTES: usize = 16 * 1024;
pub(crate) const IDENTITY: &str = "identity.json";

/// `identity.json`, as the node program writes it (node.md section 4).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredIdentity {
    identity: Identity,
    credential: Secret,
    core_url: String,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    owner_epoch: i64,
    #[allow(
        dead_code,
        reason = "named so that anything unknown is refused; nothing here asks for it"
    )]
    host_id: Digest,
}

/// The identity that a node root keeps.
pub(crate) struct Kept {
    pub(crate) installation: InstallationId,
    pub(crate) node: NodeId,
    pub(crate) credential: Secret,
    pub(crate) core: Origin,
    pub(crate) identity: Identity,
}

pub(crate) fn damaged(path: &Path) -> Hint {
    Hint::RecordDamaged {
        file: path.display().to_string(),
    }
}

pub(crate) fn file_failed(error: &RecordError) -> Hint {
    match error {
        RecordError::Refused { path, .. } | RecordError::Differs { path } => damaged(path),
        error => Hint::failed("A file of the node could not be used", error),
    }
}

/// The folder, if it is there.
pub(crate) fn open(path: &Path) -> Result<Option<Directory>, Hint> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => Directory::open(path)
            .map(Some)
            .map_err(|error| file_failed(&error)),
    }
}

/// A record below `root`; `None` when there is none.
pub(crate) fn record<T: Record>(root: &Directory, name: &str) -> Result<Option<T>, Hint> {
    let Some(bytes) = root
        .read(name, 1024 * 1024)
        .map_err(|error| file_failed(&error))?
    else {
        return Ok(None);
    };
    T::decode(&bytes)
        .map(Some)
        .map_err(|_| damaged(&root.path().join(name)))
}

pub(crate) fn kept(root: &Path) -> Result<Option<Kept>, Hint> {
    let state = Layout::new(root).state();
    let Some(directory) = open(&state)? else {
        return Ok(None);
    };
    let Some(bytes) = directory
        .read(IDENTITY, RECORD_BYTES)
        .map_err(|error| file_failed(&error))?
    else {
        return Ok(None);
    };
    let stored: StoredIdentity = strict::from_slice(&bytes).map_err(|_| damaged(&state.join(IDENTITY)))?;
    let core = Origin::parse(&stored.core_url).map_err(|_| damaged(&state.join(IDENTITY)))?;
    Ok(Some(Kept {
        installation: stored.identity.installation_id,
        node: stored.identity.node_id,
        credential: stored.credential,
        core,
        identity: stored.identity,
    }))
}

/// What [`crate::plan::inspection`] goes by.
pub(crate) fn inspected(root: &Path, recorded: bool) -> Result<(Root, Option<Kept>), Hint> {
    let kept = kept(root)?;
    let has_mark = root.join(REGISTERED).symlink_metadata().is_ok();
    let facts = Root {
        path: root.display().to_string(),
        recorded,
        has_mark,
        identity: kept.as_ref().map(|kept| Retained {
            installation: kept.installation,
            core: kept.core.clone(),
        }),
    };
    Ok((facts, kept))
}

/// The node root of a host whose home is nobody's yet.
pub(crate) fn unseen(root: &Path, recorded: bool) -> Root {
    Root {
        path: root.display().to_string(),
        recorded,
        has_mark: false,
        identity: None,
    }
}

/// The enrolled generation's configuration.
pub(crate) fn enrolled(root: &Path) -> Result<Option<records::Configuration>, Hint> {
    match open(root)? {
        Some(directory) => record(&directory, ENROLLED_CONFIGURATION),
        None => Ok(None),
    }
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Hint> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Hint::failed("Waiting for the network could not be prepared", &error))
}
