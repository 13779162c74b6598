use std::sync::Arc;

use http::HeaderValue;
use oac_dial::Surroundings;
use oac_dial::{Origin, ParseOriginError};
use oac_generations::{
    Identity,
    outside::{Release, Selected, Supply, SupplyError},
    records,
};
use oac_model::{NodeId, Secret, Specification};
use oac_release::{
    fetch::{Clock, Remote, RemoteError},
    manifest::Mismatch,
    source::{ReadError, Source, runtime_release},
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
}

impl<'a> HttpSupply<'a> {
    pub(super) fn new(runtime: &'a Runtime, core: CoreClient, stored: &Stored, releases: Remote) -> Self {
        Self {
            runtime,
            core,
            node: stored.identity.node_id,
            credential: stored.credential.clone(),
            releases,
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
        let metadata = runtime_release(&mut self.releases, specification).map_err(transfer)?;
        let provider = specification.provider;
        let files = metadata.manifest().runtime_files(provider);
        let files = files.ok_or_else(|| transfer(Mismatch::Incomplete(provider).into()))?;
        Ok(Release {
            source_commit: metadata.source_commit(),
            artifacts: files.into_iter().cloned().collect(),
            manifest: metadata.manifest_bytes().to_vec(),
        })
    }

    fn source(&mut self) -> &mut dyn Source {
        &mut self.releases
    }
}

fn transfer(error: ReadError) -> SupplyError {
    SupplyError::Transfer(error.into())
}
