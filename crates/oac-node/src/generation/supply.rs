use std::sync::Arc;

use http::HeaderValue;
use oac_dial::Surroundings;
use oac_dial::{Origin, ParseOriginError};
use oac_generations::{
    Identity,
    outside::{Artifact, Release, Selected, Sink, Supply, SupplyError},
    records,
};
use oac_model::{NodeId, Secret, Specification};
use oac_release::{
    fetch::{Clock, Remote, RemoteError},
    layout::Role,
    manifest::Mismatch,
    metadata::Metadata,
    source::{AppendOnly, ReadError, Source, runtime_release},
};
use tokio::runtime::Runtime;

use crate::{core::CoreClient, identity::Stored};

/// How this program names itself to a release server.
const PROGRAM: HeaderValue = HeaderValue::from_static(concat!("oac-node/", env!("CARGO_PKG_VERSION")));

/// Core's configuration route, with the node's credential, and the release server that `preparation.json` names.
pub(super) struct HttpSupply<'a> {
    runtime: &'a Runtime,
    core: CoreClient,
    node: NodeId,
    credential: Secret,
    releases: Remote,
    /// Of the release that was asked for; its artifacts come from there alone.
    metadata: Option<Metadata>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("source_url of preparation.json is no origin")]
    Origin(#[from] ParseOriginError),
    #[error("releases cannot be read")]
    Remote(#[from] RemoteError),
}

#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("Core answers for another installation")]
    Installation,
    #[error("{0} is no file of the release")]
    Unknown(String),
}

impl<'a> HttpSupply<'a> {
    pub(super) fn new(runtime: &'a Runtime, core: CoreClient, stored: &Stored, releases: Remote) -> Self {
        Self {
            runtime,
            core,
            node: stored.identity.node_id,
            credential: stored.credential.clone(),
            releases,
            metadata: None,
        }
    }
}

/// Where `preparation.json` says that releases come from; `clock` judges how fast.
pub(super) fn releases(
    preparation: &records::Preparation,
    surroundings: Surroundings,
    clock: Arc<dyn Clock>,
) -> Result<Remote, SourceError> {
    let origin = Origin::parse(&preparation.source_url)?;
    Ok(Remote::by(origin.url(), surroundings, PROGRAM, clock)?)
}

impl Supply for HttpSupply<'_> {
    fn configuration(&mut self, identity: &Identity) -> Result<Selected, SupplyError> {
        let asked = self
            .core
            .configuration(self.node, &self.credential, identity.generation);
        let selection = self
            .runtime
            .block_on(asked)
            .map_err(|error| SupplyError::Core(error.into()))?;
        if selection.installation_id != identity.installation_id {
            return Err(SupplyError::Core(Refused::Installation.into()));
        }
        Ok(Selected {
            core_url: selection.core.api_url(),
            specification: selection.specification,
        })
    }

    fn release(&mut self, specification: &Specification) -> Result<Release, SupplyError> {
        let metadata = runtime_release(&mut self.releases, specification).map_err(read)?;
        let manifest = metadata.manifest();
        let provider = specification.provider;
        let files = manifest
            .runtime_files(provider)
            .ok_or(Mismatch::Incomplete(provider));
        let files = files.map_err(|error| read(error.into()))?;
        let placed = files.into_iter().filter_map(|file| {
            Some(Artifact {
                key: file.key.clone(),
                mode: file.role.mode()?,
                size_bytes: file.size_bytes,
                sha256: file.sha256,
                is_image: file.role == Role::Image,
            })
        });
        let release = Release {
            source_commit: metadata.source_commit(),
            artifacts: placed.collect(),
            manifest: metadata.manifest_bytes().to_vec(),
        };
        self.metadata = Some(metadata);
        Ok(release)
    }

    fn fetch(&mut self, artifact: &Artifact, from: u64, sink: &mut Sink<'_>) -> Result<(), SupplyError> {
        let unknown = || SupplyError::Transfer(Refused::Unknown(artifact.key.clone()).into());
        let metadata = self.metadata.as_ref().ok_or_else(unknown)?;
        let mut files = metadata.manifest().artifacts().iter();
        let file = files.find(|file| file.key == artifact.key).ok_or_else(unknown)?;
        let mut sink = AppendOnly::new(from, sink);
        self.releases
            .artifact(metadata.source_commit(), file, from, &mut sink)
            .map_err(read)
    }
}

/// A full disk is no failure of the transfer (P-181).
fn read(error: ReadError) -> SupplyError {
    match error {
        ReadError::Sink(cause) => SupplyError::Sink(cause),
        error => SupplyError::Transfer(error.into()),
    }
}
