use std::path::Path;

use oac_generations::{
    Configuration,
    native::{DockerNative, Native},
    outside::{Cause, Engine},
};
use oac_model::ImageDigest;
use oac_provider_docker::{find_image, load_image};
use tokio::{runtime::Runtime, time::timeout};

use crate::limits::{CORE_CALL, IMPORT};

/// The host's engine. Docker's is asked for images and given them; nothing is taken from it (INV-N19).
pub(super) struct HostEngine<'a> {
    runtime: &'a Runtime,
}

#[derive(Debug, thiserror::Error)]
enum EngineError {
    #[error("this build of oac-node works with the Docker Engine alone")]
    NotBuilt,
    #[error("the specification names no image for Docker")]
    NoImage,
    #[error("Docker's images and containers are the host's: a collection neither lists nor removes them")]
    Hosts,
    #[error("the engine did not answer within {} s", CORE_CALL.as_secs())]
    Late,
    #[error("the import took more than {} s", IMPORT.as_secs())]
    LateImport,
}

impl<'a> HostEngine<'a> {
    pub(super) fn new(runtime: &'a Runtime) -> Self {
        Self { runtime }
    }
}

fn docker(configuration: &Configuration) -> Result<&DockerNative, Cause> {
    match &configuration.native {
        Native::Docker(docker) => Ok(docker),
        Native::Microsandbox(_) => Err(EngineError::NotBuilt.into()),
    }
}

impl Engine for HostEngine<'_> {
    fn image(&mut self, configuration: &Configuration) -> Result<Option<ImageDigest>, Cause> {
        let docker = docker(configuration)?;
        let artifacts = configuration.specification.runtime.as_ref().map(|r| &r.artifacts);
        let digests: Vec<ImageDigest> = artifacts
            .into_iter()
            .flat_map(|a| [a.image_id, a.image_manifest_digest])
            .flatten()
            .collect();
        if digests.is_empty() {
            return Err(EngineError::NoImage.into());
        }
        let found = async { timeout(CORE_CALL, find_image(&docker.host, &digests)).await };
        match self.runtime.block_on(found) {
            Ok(found) => Ok(found?),
            Err(_) => Err(EngineError::Late.into()),
        }
    }

    fn import(&mut self, configuration: &Configuration, archive: &Path) -> Result<(), Cause> {
        let docker = docker(configuration)?;
        let loaded = async { timeout(IMPORT, load_image(&docker.host, archive)).await };
        match self.runtime.block_on(loaded) {
            Ok(loaded) => Ok(loaded?),
            Err(_) => Err(EngineError::LateImport.into()),
        }
    }

    fn images(&mut self, _: &Configuration) -> Result<String, Cause> {
        Err(EngineError::Hosts.into())
    }

    fn sandboxes(&mut self, _: &Configuration) -> Result<String, Cause> {
        Err(EngineError::Hosts.into())
    }

    fn remove_image(&mut self, _: &Configuration, _: &str) -> Result<(), Cause> {
        Err(EngineError::Hosts.into())
    }
}
