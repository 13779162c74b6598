//! What a health report says about the host (node.md section 12).
//!
//! Proc and cgroup text goes in, numbers come out; whatever cannot be established is `None`, never 0 (INV-N34).

mod cgroup;
mod cpu;
mod memory;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use oac_model::BootId;

use crate::limits::MEASUREMENT_BYTES;
pub use cpu::CpuTimes;

/// One reading of the host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measurements {
    /// Busy share, 0..1, since the previous reading of the same meter.
    pub cpu_utilization: Option<f64>,
    pub total_memory_bytes: Option<i64>,
    pub available_memory_bytes: Option<i64>,
    pub effective_cpu_cores: Option<f64>,
    pub cpu_count: Option<i64>,
    pub available_disk_bytes: Option<i64>,
    pub boot_id: Option<BootId>,
}

/// Reads the host for one connection; utilization is between two readings of one meter, so each connection has its own.
#[derive(Debug)]
pub struct Meter {
    proc_root: PathBuf,
    state_dir: PathBuf,
    previous: Option<CpuTimes>,
}

impl Meter {
    pub fn new(state_dir: &Path) -> Self {
        Self::with_proc_root(state_dir, Path::new("/proc"))
    }

    fn with_proc_root(state_dir: &Path, proc_root: &Path) -> Self {
        Self {
            proc_root: proc_root.to_owned(),
            state_dir: state_dir.to_owned(),
            previous: None,
        }
    }

    /// Reads everything. Blocking, for well under a second on a healthy host.
    pub fn read(&mut self) -> Measurements {
        let stat = self.text("stat");
        let times = stat.as_deref().and_then(CpuTimes::parse);
        let cpu_utilization = match (&self.previous, &times) {
            (Some(before), Some(now)) => now.utilization_since(before),
            _ => None,
        };
        self.previous = times;
        let (total, available) = self
            .text("meminfo")
            .as_deref()
            .map_or((None, None), memory::parse);
        Measurements {
            cpu_utilization,
            total_memory_bytes: total,
            available_memory_bytes: available,
            effective_cpu_cores: affinity().and_then(|count| cgroup::effective_cores(&self.proc_root, count)),
            cpu_count: stat.as_deref().and_then(cpu::visible),
            available_disk_bytes: available_disk(&self.state_dir),
            boot_id: self
                .text("sys/kernel/random/boot_id")
                .and_then(|text| text.trim_end().parse().ok()),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        read_bounded(&self.proc_root.join(name)).ok()
    }
}

/// Why a measurement file gave no text.
#[derive(Debug, PartialEq, Eq)]
enum Unread {
    Missing,
    Failed,
}

/// A whole proc or cgroup file, unless it is larger than the bound or not UTF-8.
fn read_bounded(path: &Path) -> Result<String, Unread> {
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Unread::Missing,
        _ => Unread::Failed,
    })?;
    let mut bytes = Vec::new();
    file.take(MEASUREMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|_| Unread::Failed)?;
    if bytes.len() as u64 > MEASUREMENT_BYTES {
        return Err(Unread::Failed);
    }
    String::from_utf8(bytes).map_err(|_| Unread::Failed)
}

fn affinity() -> Option<u32> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    Some(set.count()).filter(|count| *count > 0)
}

fn available_disk(path: &Path) -> Option<i64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = stat.f_bavail.checked_mul(stat.f_frsize)?;
    size(bytes)
}

/// A `size` of the protocol, 0..2^53−1.
fn size(bytes: u64) -> Option<i64> {
    (bytes < 1 << 53).then_some(bytes as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_measured_in_plausible_units() {
        let mut meter = Meter::new(Path::new("/tmp"));
        let first = meter.read();
        assert_eq!(
            first.cpu_utilization, None,
            "a first report has no interval to measure"
        );
        assert!(first.total_memory_bytes.unwrap() > 1 << 20);
        assert!(first.cpu_count.unwrap() >= 1);
        assert!(first.available_disk_bytes.unwrap() > 0);
        assert!(first.boot_id.is_some());
        let second = meter.read();
        assert!(
            second.cpu_utilization.is_none_or(|u| (0.0..=1.0).contains(&u)),
            "{second:?}"
        );
    }

    // inv: INV-N34
    #[test]
    fn what_cannot_be_read_is_unknown() {
        let temp = tempfile::tempdir().unwrap();
        let mut meter = Meter::with_proc_root(&temp.path().join("gone"), temp.path());
        assert_eq!(meter.read(), Measurements::default());
        std::fs::write(
            temp.path().join("stat"),
            vec![b'x'; MEASUREMENT_BYTES as usize + 1],
        )
        .unwrap();
        std::fs::write(temp.path().join("meminfo"), [0xff, 0xfe]).unwrap();
        assert_eq!(meter.read(), Measurements::default());
    }
}
