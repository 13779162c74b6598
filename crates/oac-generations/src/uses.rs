//! What the other generations use of what one generation would take with it (node.md section 8). Pure.

use std::collections::{BTreeMap, BTreeSet};

use oac_model::Generation;

use crate::{records::Configuration, state::State, store::Found};

/// Of one generation's files, image and store: what stays, because another generation uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shared {
    /// `releases/<source>` and the original files of that source.
    pub source: bool,
    pub image: bool,
    pub store: bool,
    /// Paths that the others' configurations and plans name, wherever they are.
    pub paths: BTreeSet<String>,
}

/// A generation uses its files from Planned to Collecting, planned files included; its image and store with a
/// configuration or a started import, up to Collecting. Purging and Dropped use nothing.
pub fn shared(all: &BTreeMap<Generation, Found>, of: &Configuration) -> Shared {
    let mut shared = Shared::default();
    let others = all
        .iter()
        .filter(|(generation, _)| **generation != of.generation)
        .filter(|(_, found)| (State::Planned..=State::Collecting).contains(&found.state));
    for (_, other) in others {
        let Some(selection) = other.selection() else {
            continue;
        };
        shared.source |= selection.source_commit() == of.source_commit();
        shared
            .paths
            .extend(selection.native.files().into_iter().map(str::to_owned));
        if other.may_have_image() {
            shared.image |= image(selection) == image(of);
            shared.store |= selection.native.store() == of.native.store();
        }
    }
    shared
}

fn image(configuration: &Configuration) -> Option<&str> {
    configuration
        .specification
        .runtime
        .as_ref()
        .and_then(|runtime| runtime.artifacts.microsandbox_ref.as_deref())
}
