//! How many sandboxes a host should hold (core.md section 8).

use crate::{ProviderKind, Resources};

/// A node's latest measurements, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HostMeasurements {
    pub effective_cpu_cores: Option<f64>,
    pub total_memory_bytes: Option<u64>,
    pub available_disk_bytes: Option<u64>,
}

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// Recommended (active, retained) limits; `None` when a measurement is missing or the host cannot hold one sandbox.
pub fn recommend(
    provider: ProviderKind,
    resources: &Resources,
    host: &HostMeasurements,
) -> Option<(u32, u32)> {
    let (cores, memory) = (host.effective_cpu_cores?, host.total_memory_bytes? as f64);
    let (cpus, sandbox) = (f64::from(resources.cpus), resources.memory_mib as f64 * MIB);
    if cores < cpus || memory < sandbox {
        return None;
    }
    let by_cpu = (cores - 1.0) / cpus;
    let by_memory = (memory - (2.0 * GIB).max(memory / 10.0)) / sandbox;
    let active = by_cpu.min(by_memory).floor().clamp(1.0, 1_000_000.0) as u32;
    let retained = match provider {
        ProviderKind::Docker => active,
        ProviderKind::Microsandbox | ProviderKind::E2b => {
            let disk = (resources.root_disk_mib.unwrap_or(0) + resources.environment_disk_mib.unwrap_or(0))
                as f64
                * MIB;
            let by_disk = (0.8 * host.available_disk_bytes? as f64 / disk).floor();
            active.max((4.0 * f64::from(active)).min(by_disk).min(1_000_000.0) as u32)
        }
    };
    Some((active, retained))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_design_example() {
        let resources = Resources {
            cpus: 2,
            memory_mib: 4096,
            root_disk_mib: Some(8192),
            environment_disk_mib: Some(8192),
        };
        let host = HostMeasurements {
            effective_cpu_cores: Some(16.0),
            total_memory_bytes: Some(64 << 30),
            available_disk_bytes: Some(500 << 30),
        };
        assert_eq!(
            recommend(ProviderKind::Microsandbox, &resources, &host),
            Some((7, 25))
        );
        assert_eq!(recommend(ProviderKind::Docker, &resources, &host), Some((7, 7)));
        let small = HostMeasurements {
            effective_cpu_cores: Some(2.0),
            total_memory_bytes: Some(5 << 30),
            ..host
        };
        assert_eq!(recommend(ProviderKind::Docker, &resources, &small), Some((1, 1)));
        let tiny = HostMeasurements {
            effective_cpu_cores: Some(1.0),
            ..host
        };
        assert_eq!(recommend(ProviderKind::Docker, &resources, &tiny), None);
        let unknown = HostMeasurements {
            total_memory_bytes: None,
            ..host
        };
        assert_eq!(recommend(ProviderKind::Docker, &resources, &unknown), None);
    }
}
