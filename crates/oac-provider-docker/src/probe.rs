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

/// Whether a failed check ends the round.
enum Round {
    StopAtFirst,
    Collect(Vec<ProbeError>),
}

impl Round {
    fn failed(&mut self, error: ProbeError) -> Result<(), ProbeError> {
        match self {
            Self::StopAtFirst => Err(error),
            Self::Collect(all) => {
                all.push(error);
                Ok(())
            }
        }
    }
}

impl Inner {
    /// The first failed check.
    pub(crate) async fn probe(&self, by: Instant) -> Result<(), ProbeError> {
        self.round(&mut Round::StopAtFirst, by).await
    }

    /// Every failed check, as far as the engine can be asked at all.
    pub(crate) async fn diagnose(&self, by: Instant) -> Vec<ProbeError> {
        let mut round = Round::Collect(Vec::new());
        let fatal = self.round(&mut round, by).await.err();
        let collected = match round {
            Round::Collect(all) => all,
            Round::StopAtFirst => Vec::new(),
        };
        collected.into_iter().chain(fatal).collect()
    }

    async fn round(&self, round: &mut Round, by: Instant) -> Result<(), ProbeError> {
        match tokio::time::timeout_at(by.into(), self.check(round)).await {
            Ok(result) => result,
            Err(_) => Err(failed(
                DiagnosticCode::ProviderUnavailable,
                "the Docker Engine did not answer in time",
            )),
        }
    }

    async fn check(&self, round: &mut Round) -> Result<(), ProbeError> {
        use DiagnosticCode::*;
        let mut session = self.engine.session().await.map_err(unavailable)?;
        let system = session.system().await.map_err(unavailable)?;
        if !self.host.is_recorded_host(&system.id) {
            round.failed(failed(
                ProviderUnavailable,
                "this is another host than the recorded one; see oac-node rebind-host",
            ))?;
        }
        if self.options.seccomp.is_none() {
            round.failed(failed(
                ArtifactsUnavailable,
                "the generation's seccomp profile is missing or cannot be read",
            ))?;
        }
        let (major, minor) = session.api();
        if !system.memory_limit || !system.cpu_cfs_quota {
            round.failed(failed(
                HostUnsupported,
                "the Docker Engine enforces no memory limit or CPU quota",
            ))?;
        }
        if (major, minor) < API_FLOOR {
            let text = format!("the Docker Engine's API is {major}.{minor}; 1.41 or later is needed");
            round.failed(failed(HostUnsupported, text))?;
        }
        if system.mem_total <= 0 {
            round.failed(failed(ProviderUnavailable, "the Docker Engine reports no memory"))?;
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
            round.failed(failed(CapacityInsufficient, text))?;
        }
        let path = format!("/images/{}/json", self.options.image);
        match session.get::<Image>(&path).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let text = format!("the Docker Engine has no image {}", self.options.image);
                round.failed(failed(RuntimeImageUnavailable, text))?;
            }
            Err(error) => round.failed(unavailable(error))?,
        }
        let path = format!("/networks/{}", self.options.network);
        if session
            .get::<serde_json::Value>(&path)
            .await
            .map_err(unavailable)?
            .is_none()
        {
            let text = format!("the Docker Engine has no network {}", self.options.network);
            round.failed(failed(ProviderUnavailable, text))?;
        }
        Ok(())
    }
}
