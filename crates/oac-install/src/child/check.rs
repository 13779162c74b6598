//! Steps 11 to 14, as far as they ask the backend.

use std::{os::unix::fs::MetadataExt, path::Path, time::Duration};

use oac_model::{InstallationId, ProviderKind};
use oac_provider_docker::{describe, find_image, network_labels};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{ask::Chosen, runtime};
use crate::{
    hint::Hint,
    host::{Host, nearest},
    plan::{engine, place},
};

/// For each question to the engine.
pub(crate) const ENGINE: Duration = Duration::from_secs(15);

pub(crate) struct Checks<'a> {
    pub(crate) host: &'a Host,
    pub(crate) installation: InstallationId,
    pub(crate) chosen: Chosen,
    /// Root has a record of this installation.
    pub(crate) recorded: bool,
    pub(crate) registered: bool,
}

/// Every hint of steps 11 to 14, in order; doctor shows all, an installation stops at the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) backend: Result<(), Hint>,
    pub(crate) room: Result<(), Hint>,
    pub(crate) network: Result<(), Hint>,
    pub(crate) disk: Result<(), Hint>,
}

impl Checks<'_> {
    pub(crate) fn run(&self) -> Result<Checked, Hint> {
        let runtime = runtime()?;
        match self.chosen.provider {
            ProviderKind::Docker => Ok(runtime.block_on(self.docker())),
            _ => Ok(Checked {
                backend: Ok(()),
                room: engine::room(self.chosen.size, machine()),
                network: Ok(()),
                disk: self.disk(None, false),
            }),
        }
    }

    async fn docker(&self) -> Checked {
        let host = self.host.docker();
        let described = timeout(ENGINE, describe(&host)).await;
        let Ok(Ok(found)) = described else {
            let down = Err(Hint::DockerDown);
            return Checked {
                backend: down,
                room: Ok(()),
                network: Ok(()),
                disk: self.disk(None, false),
            };
        };
        let facts = engine::Engine {
            api: found.api,
            is_rootless: found.is_rootless,
            is_linux_amd64: found.is_linux_amd64,
            limits_memory: found.limits_memory,
            limits_cpu: found.limits_cpu,
            cpus: found.cpus,
            memory_mib: found.memory_bytes / (1024 * 1024),
        };
        let backend = engine::docker(Some(&facts));
        let has = engine::Size {
            cpus: facts.cpus,
            memory_mib: facts.memory_mib,
        };
        let name = Host::network(self.installation);
        let network = match timeout(ENGINE, network_labels(&host, &name)).await {
            Ok(Ok(labels)) => {
                let id = self.installation.to_string();
                place::network(&name, &id, labels.as_ref(), self.recorded)
            }
            _ => Err(Hint::DockerDown),
        };
        let image = timeout(ENGINE, find_image(&host, &self.chosen.images)).await;
        let has_image = matches!(image, Ok(Ok(Some(_))));
        Checked {
            room: engine::room(self.chosen.size, has),
            // What the engine cannot do hides what it did not answer.
            network: if backend.is_ok() { network } else { Ok(()) },
            backend,
            disk: self.disk(Some(&found.data_root), has_image),
        }
    }

    fn disk(&self, data_root: Option<&Path>, has_image: bool) -> Result<(), Hint> {
        if self.registered {
            return Ok(());
        }
        let home = disk_of(&self.host.home()).ok_or_else(|| Hint::Failed {
            what: "The disk's free space cannot be read".to_owned(),
        })?;
        place::disk(&place::Disks {
            home,
            engine: data_root.and_then(disk_of),
            has_image,
            stored_bytes: size_of(&self.host.node_root(self.installation)),
        })
    }
}

/// The file system that holds `path`, or would.
fn disk_of(path: &Path) -> Option<place::Disk> {
    let path = nearest(path);
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(place::Disk {
        path: path.display().to_string(),
        device: std::fs::metadata(path).ok()?.dev(),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
    })
}

/// Of the files below `path` that this account may see.
fn size_of(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => size_of(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// This machine's CPUs and memory.
fn machine() -> engine::Size {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    engine::Size {
        cpus: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_mib: kib.unwrap_or(0) / 1024,
    }
}
