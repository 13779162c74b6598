//! What the installer writes so that a node manages generations: who it is, where releases come from, the hashes of the
//! files it placed, and the lease of the first generation.

use std::path::Path;

use oac_generations::{
    Store,
    layout::{self, Layout},
    lease,
    records::{Configuration, Installation, Preparation, Record, RuntimeArtifacts},
};
use oac_model::Digest;
use oac_records::Directory;

use crate::installation::InstallationError;

const SECCOMP: &str = "runtime/seccomp.json";

/// Of the node in `root`, whose `provider.json` and files are there.
pub(crate) fn manage(root: &Path, source_url: &str) -> Result<(), InstallationError> {
    written(root, source_url).map_err(|error| InstallationError::Generations(error.to_string()))
}

fn written(root: &Path, source_url: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let directory = Directory::open(root)?;
    let bytes = std::fs::read(root.join(layout::ENROLLED_CONFIGURATION))?;
    let configuration = Configuration::decode(&bytes)?;
    let source_commit = configuration.source_commit().ok_or("no Runtime release")?;
    let identity = configuration.identity();
    let installation = Installation {
        installation_id: identity.installation_id,
        provider: configuration.provider,
        core_url: configuration.core_url,
        source_commit,
        generation: identity.generation,
        specification_digest: identity.specification_digest,
    };
    let preparation = Preparation {
        source_url: source_url.to_owned(),
    };
    let artifacts = RuntimeArtifacts {
        installation_id: identity.installation_id,
        source_commit,
        sha256: [(SECCOMP.to_owned(), Digest::of(std::fs::read(root.join(SECCOMP))?))].into(),
    };
    directory.publish(layout::INSTALLATION, &installation.encode())?;
    directory.publish(layout::PREPARATION, &preparation.encode())?;
    directory.publish(layout::RUNTIME_ARTIFACTS, &artifacts.encode())?;
    let store = Store::open(Layout::new(root), identity.installation_id)?;
    drop(lease::create(&store, identity)?);
    Ok(())
}
