//! What an uninstall does as `oac-node` (installer.md section 11, 2 to 4 and the home of 6).

use std::{
    io,
    path::{Path, PathBuf},
};

use oac_generations::{
    layout::STORE_OWNER,
    records::{Record as _, StoreOwner},
};
use oac_model::InstallationId;
use oac_provider_docker::{HostEngineError, holds_containers, network_labels, remove_network};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{ask::word, check::ENGINE, enrolled, inspected, runtime};
use crate::{
    delete::{DeleteError, delete, delete_empty, empty},
    hint::Hint,
    host::Host,
    plan::{inspection::Word, place::LABEL},
    points::pass,
    records::Removal,
};

/// A checkpoint store's own mark (providers.md); a store that holds no more is empty.
const CHECKPOINT_MARKER: &str = ".oac-checkpoint-store";

/// What a look into the node root gives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Inspected {
    /// The address of the identity, if there is one.
    pub(crate) core: Option<String>,
    pub(crate) has_mark: bool,
    /// What Core said, if it was asked.
    pub(crate) word: Option<Word>,
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
    })
}

/// The Runtime image, as Docker knows it, of the enrolled configuration; a damaged one names none.
pub(crate) fn image_of(root: &Path) -> Option<String> {
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

/// What a removal deleted below the home, and what it left there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) gone: Gone,
    pub(crate) mounts: Vec<PathBuf>,
    /// Checkpoints that a forced removal kept.
    pub(crate) checkpoints: Option<PathBuf>,
    /// microsandbox stores of this installation that were kept.
    pub(crate) stores: Vec<PathBuf>,
    /// A process of the account uses the node root or a store, which therefore stayed.
    pub(crate) is_used: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) stores: Vec<PathBuf>,
    pub(crate) root: bool,
}

/// Deletes a confirmed removal's stores and then the node root, neither while a process of the account uses one of them;
/// a forced removal keeps the stores, and checkpoints that are more than their marker.
pub(crate) fn drop_state(host: &Host, installation: InstallationId, removal: Removal) -> Result<State, Hint> {
    let home = host.home();
    let root = host.node_root(installation);
    let mut state = State {
        is_used: is_used(&root),
        ..State::default()
    };
    for store in stores(host, installation) {
        let is_used = is_used(&store);
        if removal == Removal::Forced || state.is_used || is_used {
            state.is_used |= is_used && removal == Removal::Confirmed;
            state.stores.push(store);
            continue;
        }
        let mounts = drop_store(&home, &store).map_err(|error| Hint::failed("The node's store", &error))?;
        match mounts.is_empty() {
            true => state.gone.stores.push(store),
            false => state.mounts.extend(mounts),
        }
    }
    // What an earlier run was ended in, when nothing but the folder was left. Anything else is not empty.
    delete_empty(&home, &host.stores());
    pass("u3");
    if state.is_used {
        return Ok(state);
    }
    let checkpoints = root.join("state/node/checkpoints");
    let kept = Some(checkpoints).filter(|path| removal == Removal::Forced && holds_checkpoints(path));
    let mounts = delete(&home, &root, &|path| kept.as_deref() == Some(path))
        .map_err(|error| Hint::failed("The node's state", &error))?;
    state.gone.root = kept.is_none() && mounts.is_empty();
    state.mounts.extend(mounts);
    state.checkpoints = kept;
    Ok(state)
}

/// The owner file goes last: a run that is ended before still finds the store.
fn drop_store(home: &Path, store: &Path) -> Result<Vec<PathBuf>, DeleteError> {
    let owner = store.join(STORE_OWNER);
    let mounts = delete(home, store, &|path| path == owner)?;
    match mounts.is_empty() {
        true => delete(home, store, &|_| false),
        false => Ok(mounts),
    }
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
    let entries = std::fs::read_dir(host.stores()).into_iter().flatten().flatten();
    // A link is no store.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let paths = folders.map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let bytes = std::fs::read(path.join(STORE_OWNER)).unwrap_or_default();
        StoreOwner::decode(&bytes).is_ok_and(|owner| owner.installation_id == installation)
    };
    paths.filter(is_ours).collect()
}

/// Whether a process of this account has its program or an open file below `path`.
fn is_used(path: &Path) -> bool {
    // As the kernel names it, whatever links lead there.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
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

/// Empties the account's home; the mounts that are kept in it.
pub(crate) fn empty_home(host: &Host) -> Result<Vec<PathBuf>, Hint> {
    empty(&host.home()).map_err(|error| Hint::failed("The account's home", &error))
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
