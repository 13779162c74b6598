//! What a node finds when it starts, and again after every end of a child (node.md section 9).

use std::path::{Path, PathBuf};

use crate::{
    state::State,
    store::{Found, Store, StoreError},
};

/// How a generation stands before anything was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A collection is unfinished; only a fresh grant resumes it. Nothing is built, probed, acquired or reported.
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

/// Every generation but the dropped ones, from what is durable. An error ends the process: a record disagrees with
/// another, and which is right cannot be seen.
pub fn recover(store: &Store) -> Result<Vec<Recovered>, StoreError> {
    store.sync()?;
    let all = store.load_all()?;
    let held = all.into_values().filter(|found| found.state.is_held());
    Ok(held
        .map(|found| Recovered {
            standing: standing(&found),
            found,
        })
        .collect())
}

fn standing(found: &Found) -> Standing {
    match (found.state, &found.configuration) {
        (state, _) if state.is_going() => Standing::Stalled,
        (State::Published, Some(configuration)) => {
            let files = configuration.native.files();
            let missing = files.into_iter().find(|file| !Path::new(file).exists());
            missing.map_or(Standing::Published, |file| Standing::Incomplete(file.into()))
        }
        _ => Standing::Unfinished,
    }
}
