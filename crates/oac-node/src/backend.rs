//! The sandbox backend that a configuration names, and the host it is anchored to.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use oac_model::{Digest, ProviderKind};
use oac_provider::{MachineIdentity, Provider, Registered, RegistrationError, host_id_of};
use oac_provider_docker::{DockerProvider, DockerSetup, EngineIdError, SetupError, engine_id};
use oac_records::{Directory, RecordError};

use crate::{
    config::{Configuration, Native},
    limits::PROBE,
};

/// A kind of backend and its registration.
type Registration = (ProviderKind, fn() -> Result<Registered, RegistrationError>);

/// The backends that this program serves. What is not registered with complete declarations and a run of the whole
/// conformance suite is not loaded (P-071).
pub const REGISTRY: &[Registration] = &[(ProviderKind::Docker, oac_provider_docker::registered)];

/// Below the state directory.
pub const RECEIPTS: &str = "receipts";
const MACHINE_ID: &str = "/etc/machine-id";

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("this build of oac-node has no backend {}", .0.as_str())]
    Unknown(ProviderKind),
    #[error("the backend is not registered as the contract asks")]
    Registration(#[source] RegistrationError),
    #[error("the folder of the receipts cannot be used")]
    Receipts(#[source] RecordError),
    #[error("the Docker backend cannot be set up")]
    Docker(#[source] SetupError),
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("the Docker Engine does not say which one it is")]
    Engine(#[source] EngineIdError),
    #[error("{MACHINE_ID} holds no machine id; run systemd-machine-id-setup")]
    MachineId,
}

/// The provider of `config`, for a node whose state was recorded on `host_id`. Asks the backend nothing yet.
pub fn provider(
    config: &Configuration,
    state_dir: &Path,
    host_id: Digest,
) -> Result<Arc<dyn Provider>, BackendError> {
    let registered = registered(config)?;
    let provider = DockerProvider::new(setup(config, state_dir, host_id)?).map_err(BackendError::Docker)?;
    registered.admit(provider).map_err(BackendError::Registration)
}

/// Makes the providers of a node that has several generations. They share what is the host's.
pub(crate) struct Loader {
    state_dir: PathBuf,
    host_id: Digest,
    first: Option<Arc<DockerProvider>>,
}

impl Loader {
    pub(crate) fn new(state_dir: &Path, host_id: Digest) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            host_id,
            first: None,
        }
    }

    /// The provider of a published generation, or a placeholder where a file of it is missing.
    pub(crate) fn load(&mut self, config: &Configuration) -> Result<Arc<dyn Provider>, BackendError> {
        let registered = registered(config)?;
        let setup = setup(config, &self.state_dir, self.host_id)?;
        let provider =
            DockerProvider::of_generation(setup, self.first.as_deref()).map_err(BackendError::Docker)?;
        self.first.get_or_insert_with(|| provider.clone());
        registered.admit(provider).map_err(BackendError::Registration)
    }
}

fn registered(config: &Configuration) -> Result<Registered, BackendError> {
    let kind = config.specification.provider;
    let registration = REGISTRY.iter().find(|(registered, _)| *registered == kind);
    let (_, registered) = registration.ok_or(BackendError::Unknown(kind))?;
    registered().map_err(BackendError::Registration)
}

fn setup(config: &Configuration, state_dir: &Path, host_id: Digest) -> Result<DockerSetup, BackendError> {
    let Native::Docker(docker) = &config.native;
    let receipts = Directory::create(&state_dir.join(RECEIPTS)).map_err(BackendError::Receipts)?;
    Ok(DockerSetup {
        config: docker.clone(),
        specification: config.specification.clone(),
        installation_id: config.installation_id,
        deployment_generation: config.generation,
        receipts_dir: receipts.path().to_owned(),
        host: Arc::new(MachineIdentity::new(host_id)),
        clock: DockerSetup::system_clock(),
    })
}

/// The present host's id for this configuration (node.md section 4).
pub async fn host_id(config: &Configuration) -> Result<Digest, HostError> {
    let Native::Docker(docker) = &config.native;
    let engine = engine_id(&docker.host, Instant::now() + PROBE)
        .await
        .map_err(HostError::Engine)?;
    let machine_id = std::fs::read_to_string(MACHINE_ID).map_err(|_| HostError::MachineId)?;
    host_id_of(&machine_id, &engine).ok_or(HostError::MachineId)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: P-071
    // inv: INV-V2
    #[test]
    fn every_backend_of_this_program_is_registered_with_a_run_of_the_whole_suite() {
        assert!(!REGISTRY.is_empty());
        for (kind, registered) in REGISTRY {
            let registered = registered().unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert_eq!(registered.kind(), *kind);
        }
    }
}
