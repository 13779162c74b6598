//! What a node finds when it starts, and again after every end of a child (node.md section 9).

use std::path::{Path, PathBuf};

use oac_model::Generation;

use crate::{
    payload,
    records::Identity,
    state::State,
    store::{Found, Store, StoreError},
};

/// How a generation stands before anything was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A collection is unfinished, or done; only a fresh grant resumes it. Nothing is built, probed, acquired or reported.
    Stalled,
    /// Listed for recovery and collection; never built, probed or acquired.
    Unfinished,
    /// Ready for a probe.
    Published,
    /// A file that its provider opens is missing: a placeholder provider, and a repair.
    Incomplete(PathBuf),
}

/// A generation that is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub found: Found,
    pub standing: Standing,
}

/// What is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Every generation but the dropped ones.
    pub held: Vec<Recovered>,
    /// Numbers that are used up: Core never names one as target or serving again.
    pub dropped: Vec<Identity>,
}

/// Every generation, from what is durable. An error ends the process: a record disagrees with another, and which is
/// right cannot be seen.
pub fn recover(store: &Store) -> Result<Recovery, StoreError> {
    store.sync()?;
    let mut recovery = Recovery {
        held: Vec::new(),
        dropped: Vec::new(),
    };
    for found in store.load_all()?.into_values() {
        match found.state {
            State::Dropped => recovery.dropped.push(found.identity),
            State::Unknown => {}
            _ => recovery.held.push(recovered(store, found)),
        }
    }
    Ok(recovery)
}

/// One generation, after a child that worked on it ended; `None` where no record of it exists.
pub fn again(store: &Store, generation: Generation) -> Result<Option<Recovered>, StoreError> {
    store.sync()?;
    Ok(store.load(generation)?.map(|found| recovered(store, found)))
}

fn recovered(store: &Store, found: Found) -> Recovered {
    Recovered {
        standing: standing(store, &found),
        found,
    }
}

fn standing(store: &Store, found: &Found) -> Standing {
    match (found.state, &found.configuration) {
        (state, _) if state.is_going() => Standing::Stalled,
        (State::Published, Some(configuration)) => {
            let files = configuration.native.files();
            // What a killed child made visible alone is not there yet: a name is synced before it is believed.
            let root = store.layout().root();
            let below = files
                .iter()
                .filter_map(|file| Path::new(*file).strip_prefix(root).ok()?.to_str());
            let unsure = payload::sync_names(store.root(), below).is_err();
            let missing = files.into_iter().find(|file| unsure || !Path::new(file).exists());
            missing.map_or(Standing::Published, |file| Standing::Incomplete(file.into()))
        }
        _ => Standing::Unfinished,
    }
}
