//! What the kernel says of a process: its resident memory and the processor time it took.
//!
//! Processor time says what a process cost whoever else uses the machine; durations do not.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A process by its id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(pub u32);

impl Process {
    fn read(self, file: &str) -> Result<String> {
        let path = Path::new("/proc").join(self.0.to_string()).join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident(self) -> Result<u64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("no resident memory")? * 1024)
    }

    /// Processor time since it began, its own and the kernel's for it.
    pub(crate) fn processor_time(self) -> Result<Duration> {
        let stat = self.read("stat")?;
        // The name, in parentheses, may hold spaces.
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let (own, kernel) = ticks(11).zip(ticks(12)).context("no times")?;
        // The kernel tells programs hundredths of a second, whatever it counts in itself.
        let second = 100;
        Ok(Duration::from_secs_f64((own + kernel) as f64 / f64::from(second)))
    }

    /// The part of one processor it takes over `time`.
    pub(crate) async fn load_over(self, time: Duration) -> Result<f64> {
        let (before, began) = (self.processor_time()?, std::time::Instant::now());
        tokio::time::sleep(time).await;
        let used = self.processor_time()?.saturating_sub(before);
        Ok(used.as_secs_f64() / began.elapsed().as_secs_f64())
    }
}

/// Lets this process open as many files as it may.
pub(crate) fn open_many_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).context("the limit of open files cannot be raised")
}

/// How many programs want to run on this machine now: with many, durations say little.
pub(crate) fn load_average() -> String {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
