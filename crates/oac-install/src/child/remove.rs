//! What an uninstall does as `oac-node` (installer.md section 11, 2 to 4 and the home of 6).

use std::{
    io,
    path::{Path, PathBuf},
};

use oac_model::InstallationId;
use oac_provider_docker::{HostEngineError, holds_containers, network_labels, remove_network};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{ask::word, check::ENGINE, enrolled, inspected, runtime};
use crate::{
    delete::delete,
    hint::Hint,
    host::Host,
    plan::{inspection::Word, place::LABEL},
};

/// A checkpoint store's own mark (providers.md); a store that holds no more is empty.
const CHECKPOINT_MARKER: &str = ".oac-checkpoint-store";

/// What a look into the node root gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inspected {
    /// The address of the identity, if there is one.
    pub(crate) core: Option<String>,
    pub(crate) has_mark: bool,
    /// What Core said, if it was asked.
    pub(crate) word: Option<Word>,
    /// The Runtime image, as Docker knows it.
    pub(crate) image: Option<String>,
}

/// Looks, and asks Core at the identity's address unless `force`.
pub(crate) fn inspect(root: &Path, force: bool) -> Result<Inspected, Hint> {
    let (facts, kept) = inspected(root, false)?;
    let word = match kept.as_ref().filter(|_| !force) {
        Some(kept) => Some(runtime()?.block_on(word(kept))?),
        None => None,
    };
    Ok(Inspected {
        core: kept.map(|kept| kept.core.to_string()),
        has_mark: facts.has_mark,
        word,
        image: image(root),
    })
}

/// Of the enrolled configuration; a damaged one names none.
pub(crate) fn image(root: &Path) -> Option<String> {
    match enrolled(root).ok().flatten()?.native {
        oac_generations::native::Native::Docker(docker) => Some(docker.image.to_string()),
        oac_generations::native::Native::Microsandbox(_) => None,
    }
}

/// What became of the Docker network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NetworkEnd {
    Removed,
    /// There was none of ours.
    Absent,
    /// Containers of this installation are left.
    Kept,
    /// The engine has no socket any more.
    GoneWithEngine,
}

pub(crate) fn drop_network(host: &Host, installation: InstallationId) -> Result<NetworkEnd, Hint> {
    let engine = host.docker();
    let name = Host::network(installation);
    let id = installation.to_string();
    let work = async {
        let labels = network_labels(&engine, &name).await?;
        if labels.is_none_or(|labels| labels.get(LABEL) != Some(&id)) {
            return Ok(NetworkEnd::Absent);
        }
        if holds_containers(&engine, (LABEL, &id)).await? {
            return Ok(NetworkEnd::Kept);
        }
        remove_network(&engine, &name).await?;
        Ok(NetworkEnd::Removed)
    };
    match runtime()?.block_on(async { timeout(ENGINE, work).await }) {
        Ok(Ok(end)) => Ok(end),
        Ok(Err(HostEngineError::Unreachable(error))) if error.kind() == io::ErrorKind::NotFound => {
            Ok(NetworkEnd::GoneWithEngine)
        }
        Ok(Err(_)) | Err(_) => Err(Hint::DockerSilent),
    }
}

/// What is left of a node root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) mounts: Vec<PathBuf>,
    /// Checkpoints that a forced removal kept.
    pub(crate) checkpoints: Option<PathBuf>,
    /// microsandbox stores of this installation.
    pub(crate) stores: Vec<PathBuf>,
}

/// Deletes the node root; a forced removal keeps checkpoints that are more than their marker.
pub(crate) fn drop_root(host: &Host, installation: InstallationId, forced: bool) -> Result<Left, Hint> {
    let root = host.node_root(installation);
    let checkpoints = root.join("state/node/checkpoints");
    let kept = Some(checkpoints).filter(|path| forced && holds_checkpoints(path));
    let mounts = delete(&root, &|path| kept.as_deref() == Some(path))
        .map_err(|error| Hint::failed("The node's state", &error))?;
    Ok(Left {
        mounts,
        checkpoints: kept,
        stores: stores(host, installation),
    })
}

/// Whether a node root holds kept checkpoints, and whether anything else.
pub(crate) fn root_holds(root: &Path) -> (bool, bool) {
    let checkpoints = root.join("state/node/checkpoints");
    let mut has_more = false;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match checkpoints.starts_with(&path) && is_folder {
                true if path != checkpoints => folders.push(path),
                true => {}
                false => has_more = true,
            }
        }
    }
    (holds_checkpoints(&checkpoints), has_more)
}

fn holds_checkpoints(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name() != CHECKPOINT_MARKER)
        .count()
        > 0
}

/// The microsandbox stores whose owner file names this installation.
fn stores(host: &Host, installation: InstallationId) -> Vec<PathBuf> {
    use oac_generations::{
        layout::STORE_OWNER,
        records::{Record as _, StoreOwner},
    };
    let entries = std::fs::read_dir(host.stores()).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let bytes = std::fs::read(path.join(STORE_OWNER)).unwrap_or_default();
        StoreOwner::decode(&bytes).is_ok_and(|owner| owner.installation_id == installation)
    };
    paths.filter(is_ours).collect()
}

/// A confirmed removal's stores, unless a process of the account uses one, or the node root.
pub(crate) fn drop_stores(host: &Host, installation: InstallationId) -> Result<(Vec<PathBuf>, Left), Hint> {
    let mut left = Left::default();
    let mut gone = Vec::new();
    for store in stores(host, installation) {
        if is_used(&store) || is_used(&host.node_root(installation)) {
            left.stores.push(store);
            continue;
        }
        let mounts = delete(&store, &|_| false).map_err(|error| Hint::failed("The node's store", &error))?;
        if mounts.is_empty() {
            gone.push(store);
        }
        left.mounts.extend(mounts);
    }
    Ok((gone, left))
}

/// Whether a process of this account has its program or an open file below `path`.
fn is_used(path: &Path) -> bool {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = processes.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.bytes().all(|b| b.is_ascii_digit()) && name != own
    });
    processes.any(|process| {
        let folder = process.path();
        let files = std::fs::read_dir(folder.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links = files.map(|file| file.path()).chain([folder.join("exe")]);
        links.any(|link| std::fs::read_link(link).is_ok_and(|target| target.starts_with(path)))
    })
}

/// Empties the account's home; what is kept in it: mounts, stores and checkpoints of no record.
pub(crate) fn empty_home(host: &Host) -> Result<Vec<PathBuf>, Hint> {
    let home = host.home();
    let mut kept = Vec::new();
    for entry in std::fs::read_dir(&home).into_iter().flatten().flatten() {
        let path = entry.path();
        let failed = |error: &(dyn std::error::Error + 'static)| Hint::failed("The account's home", error);
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            kept.extend(delete(&path, &|_| false).map_err(|error| failed(&error))?);
        } else {
            std::fs::remove_file(&path).map_err(|error| failed(&error))?;
        }
    }
    Ok(kept)
}

/// Whether stores or checkpoints are left below the home, whosesoever.
pub(crate) fn home_holds(host: &Host) -> bool {
    let has_store = std::fs::read_dir(host.stores()).is_ok_and(|mut entries| entries.next().is_some());
    let roots = std::fs::read_dir(host.nodes()).into_iter().flatten().flatten();
    let has_root = roots
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .count()
        > 0;
    has_store || has_root
}
