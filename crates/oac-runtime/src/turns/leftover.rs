//! Processes that an earlier runtime left in the same boot.
//!
//! In Docker the runtime is the first process, and none outlives it. Elsewhere a Turn's session is found again by its
//! leader's id, guarded by the leader's start time and the boot: ids are reused, these three together are not.

use std::fs;

use oac_model::BootId;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// The leader of a Turn's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessMark {
    pub pid: i32,
    /// Clock ticks from boot to the process's start.
    pub started: u64,
    pub boot_id: BootId,
}

impl ProcessMark {
    /// The mark of a living process; `None` once it is gone.
    pub(crate) fn of(pid: Pid, boot_id: BootId) -> Option<Self> {
        let stat = Stat::read(pid.as_raw_nonzero().get())?;
        Some(Self {
            pid: stat.pid,
            started: stat.started,
            boot_id,
        })
    }
}

struct Stat {
    pid: i32,
    session: i32,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; the numbered fields follow the last one.
        let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
        Some(Self {
            pid,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Kills every process of the session that `mark` began, until none is found.
pub(crate) fn kill(mark: &ProcessMark, boot_id: BootId) {
    if mark.boot_id != boot_id {
        return;
    }
    // A leader that is gone leaves its session's number to its session alone while that has members; a leader with
    // another start time is another process, and so is its session.
    if Stat::read(mark.pid).is_some_and(|leader| leader.started != mark.started) {
        return;
    }
    let own = std::process::id() as i32;
    loop {
        let mut killed = false;
        for stat in processes() {
            if stat.session == mark.pid
                && stat.started >= mark.started
                && stat.pid != own
                && let Some(pid) = Pid::from_raw(stat.pid)
            {
                killed |= kill_process(pid, Signal::KILL).is_ok() && !is_zombie(stat.pid);
            }
        }
        if !killed {
            return;
        }
        std::thread::yield_now();
    }
}

fn processes() -> impl Iterator<Item = Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Stat::read)
}

fn is_zombie(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|text| Some(text[text.rfind(')')? + 1..].trim_start().starts_with('Z')))
        .unwrap_or(true)
}
