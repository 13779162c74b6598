//! Telemetry of a running sandbox: one reading of the engine's statistics.

use oac_model::{Reference, Time};
use oac_provider::{Cause, Failure};
use oac_wire::shapes::Sample;
use serde::Deserialize;

use crate::{
    engine::EngineError,
    inventory::Container,
    provider::{Inner, cause},
};

#[derive(Deserialize)]
struct Stats {
    read: String,
    cpu_stats: CpuStats,
    #[serde(default)]
    memory_stats: MemoryStats,
}

#[derive(Deserialize)]
struct CpuStats {
    cpu_usage: CpuUsage,
}

#[derive(Deserialize)]
struct CpuUsage {
    total_usage: u64,
}

#[derive(Deserialize, Default)]
struct MemoryStats {
    usage: Option<u64>,
}

const NANOS_PER_SECOND: f64 = 1e9;

impl Inner {
    pub(crate) async fn observe(&self, reference: Reference) -> Result<Sample, Failure> {
        self.receipt(reference).await?;
        let names = self.names(&reference);
        let mut session = self.engine.session().await.map_err(unavailable)?;
        let path = format!("/containers/{}/json", names.container);
        let container = session.get::<Container>(&path).await.map_err(unavailable)?;
        let container = container.ok_or(Failure::RuntimeNotRunning)?;
        if !names.own(&container.labels()) {
            let text = "the container's labels are another's";
            return Err(Failure::Ownership(Cause::new(text)));
        }
        if !container.is_running() {
            return Err(Failure::RuntimeNotRunning);
        }
        // one-shot spares the second reading, and its second of waiting, that only a ratio would need.
        let path = format!("/containers/{}/stats?stream=false&one-shot=true", container.id);
        let stats = session.get::<Stats>(&path).await.map_err(unavailable)?;
        let stats = stats.ok_or(Failure::RuntimeNotRunning)?;
        // A container that just stopped has statistics of the zero time, which is no `Time`.
        let observed_at = time(&stats.read)
            .ok_or_else(|| Failure::ObservationUnavailable(Cause::new("the statistics have no time")))?;
        let started_at = time(&container.state.started_at);
        let memory = stats
            .memory_stats
            .usage
            .and_then(|bytes| i64::try_from(bytes).ok());
        Ok(Sample {
            observed_at,
            started_at: started_at.filter(|s| *s <= observed_at).into(),
            cpu_usage_seconds_total: Some(stats.cpu_stats.cpu_usage.total_usage as f64 / NANOS_PER_SECOND)
                .into(),
            cpu_capacity_cores: Some(container.host_config.nano_cpus as f64 / NANOS_PER_SECOND)
                .filter(|c| *c > 0.0)
                .into(),
            cpu_utilization_ratio: None,
            memory_usage_bytes: memory.into(),
            memory_limit_bytes: Some(container.host_config.memory).filter(|m| *m >= 1).into(),
            disk_usage_bytes: None,
            disk_limit_bytes: None,
        })
    }
}

/// The engine may write its own zone.
fn time(text: &str) -> Option<Time> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    Time::from_nanos(timestamp.as_nanosecond())
}

fn unavailable(error: EngineError) -> Failure {
    Failure::ObservationUnavailable(cause(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_times_are_read_in_any_zone_and_its_zero_time_is_none() {
        let utc = time("2026-01-02T03:04:05.000000006Z").unwrap();
        assert_eq!(time("2026-01-02T05:04:05.000000006+02:00"), Some(utc));
        assert_eq!(time("0001-01-01T00:00:00Z"), None);
        assert_eq!(time(""), None);
    }
}
