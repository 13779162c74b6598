//! Readiness: checks in a fixed order, the first failure reported with one code (INV-V22).

use std::time::Instant;

use oac_model::DiagnosticCode;
use oac_provider::ProbeError;

use crate::{
    engine::{API_FLOOR, EngineError},
    options::Image,
    provider::{Inner, cause},
};

fn failed(code: DiagnosticCode, text: impl Into<String>) -> ProbeError {
    ProbeError {
        code,
        text: text.into(),
    }
}

fn unavailable(error: EngineError) -> ProbeError {
    failed(DiagnosticCode::ProviderUnavailable, cause(error).0)
}

impl Inner {
    pub(crate) async fn probe(&self, by: Instant) -> Result<(), ProbeError> {
        match tokio::time::timeout_at(by.into(), self.check()).await {
            Ok(result) => result,
            Err(_) => Err(failed(
                DiagnosticCode::ProviderUnavailable,
                "the Docker Engine did not answer in time",
            )),
        }
    }

    async fn check(&self) -> Result<(), ProbeError> {
        use DiagnosticCode::*;
        let mut session = self.engine.session().await.map_err(unavailable)?;
        let system = session.system().await.map_err(unavailable)?;
        if !self.host.is_recorded_host(&system.id) {
            return Err(failed(
                ProviderUnavailable,
                "this is another host than the recorded one; see oac-node rebind-host",
            ));
        }
        let (major, minor) = session.api();
        if !system.memory_limit || !system.cpu_cfs_quota {
            return Err(failed(
                HostUnsupported,
                "the Docker Engine enforces no memory limit or CPU quota",
            ));
        }
        if (major, minor) < API_FLOOR {
            let text = format!("the Docker Engine's API is {major}.{minor}; 1.41 or later is needed");
            return Err(failed(HostUnsupported, text));
        }
        if system.mem_total <= 0 {
            return Err(failed(ProviderUnavailable, "the Docker Engine reports no memory"));
        }
        if system.cpus < i64::from(self.options.resources.cpus)
            || system.mem_total < self.options.memory_bytes()
        {
            let text = format!(
                "one sandbox needs {} CPUs and {} MiB; the host has {} and {}",
                self.options.resources.cpus,
                self.options.resources.memory_mib,
                system.cpus,
                system.mem_total >> 20,
            );
            return Err(failed(CapacityInsufficient, text));
        }
        let path = format!("/images/{}/json", self.options.image);
        if session.get::<Image>(&path).await.map_err(unavailable)?.is_none() {
            let text = format!("the Docker Engine has no image {}", self.options.image);
            return Err(failed(RuntimeImageUnavailable, text));
        }
        let path = format!("/networks/{}", self.options.network);
        if session
            .get::<serde_json::Value>(&path)
            .await
            .map_err(unavailable)?
            .is_none()
        {
            let text = format!("the Docker Engine has no network {}", self.options.network);
            return Err(failed(ProviderUnavailable, text));
        }
        Ok(())
    }
}
