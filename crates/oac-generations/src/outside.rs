//! What a preparer or collector needs from outside its files: Core, a release server, an engine. The node implements
//! these with its HTTP client and its backends; all calls block.

use std::{error::Error, path::Path};

use oac_model::{ImageDigest, SourceCommit, Specification};
use oac_release::{manifest::Artifact, source::Source};

use crate::records::{Configuration, Identity};

/// The cause of a failure, for the local log alone; it never leaves the host.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why something could not be got.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    /// Transfer, checksum or provenance of a release: exit status 65.
    #[error("the release could not be fetched or is not the selected one")]
    Transfer(#[source] Cause),
    #[error("Core did not answer for this generation")]
    Core(#[source] Cause),
}

/// What Core answers for one exact generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    pub core_url: String,
    pub specification: Specification,
}

/// What of a release goes on this host for its provider. It matches the specification it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    pub source_commit: SourceCommit,
    /// `manifest.json`, whole.
    pub manifest: Vec<u8>,
    pub artifacts: Vec<Artifact>,
}

/// Core's configuration route and the release server (releases.md section 7).
pub trait Supply {
    /// The configuration of exactly this generation.
    fn configuration(&mut self, identity: &Identity) -> Result<Selected, SupplyError>;
    /// The verified metadata of the release that the specification selects; never another one.
    fn release(&mut self, specification: &Specification) -> Result<Release, SupplyError>;
    /// Where the files of that release come from.
    fn source(&mut self) -> &mut dyn Source;
}

/// The engine, or the native program of the generation. What an answer cannot prove is an error.
pub trait Engine {
    /// The local id of the exact image of the configuration; `None` where the engine proves that it has none.
    fn image(&mut self, configuration: &Configuration) -> Result<Option<ImageDigest>, Cause>;
    /// Loads the archive.
    fn import(&mut self, configuration: &Configuration, archive: &Path) -> Result<(), Cause>;
    /// The store's images, as the native program prints them: a line `name@sha256:<64 hex>` for each.
    fn images(&mut self, configuration: &Configuration) -> Result<String, Cause>;
    /// The store's sandboxes, as the native program prints them: a JSON array.
    fn sandboxes(&mut self, configuration: &Configuration) -> Result<String, Cause>;
    /// Asks for the removal of one image of the store; an image in use is an error.
    fn remove_image(&mut self, configuration: &Configuration, reference: &str) -> Result<(), Cause>;
}
