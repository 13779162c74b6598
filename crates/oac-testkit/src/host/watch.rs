//! What runs on a host while something happens there, seen from outside again and again: a process that lives longer than
//! a few milliseconds is seen, with its arguments, its environment and its rights. The host does not know.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::Host;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// One process as it was at a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub pid: u32,
    pub name: String,
    pub arguments: Vec<String>,
    /// What its program was started with, `NAME=value`; not what it changed since.
    pub environment: Vec<String>,
    pub uid: u32,
    pub gid: u32,
    /// With the primary one only where it is listed.
    pub groups: Vec<u32>,
    /// Any that is permitted, effective, inheritable or ambient.
    pub has_capabilities: bool,
    pub has_terminal: bool,
    /// The pid of the session's first process.
    pub session: u32,
}

/// Looks until it is ended or dropped.
pub struct Watch {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeSet<Seen>>>,
}

impl Host {
    /// Looks at the host's processes from now on.
    pub fn watch(&self) -> Watch {
        let group = format!("/oac-hosts/{}", self.number);
        let ended = Arc::new(AtomicBool::new(false));
        let asked = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !asked.load(Ordering::SeqCst) {
                look(&group, &mut seen);
                std::thread::park_timeout(PAUSE);
            }
            seen
        });
        Watch {
            ended,
            thread: Some(thread),
        }
    }
}

impl Watch {
    /// All that was seen.
    pub fn end(mut self) -> Vec<Seen> {
        self.ended.store(true, Ordering::SeqCst);
        let seen = self.thread.take().and_then(|thread| thread.join().ok());
        seen.unwrap_or_default().into_iter().collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

fn look(group: &str, seen: &mut BTreeSet<Seen>) {
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // One that ends meanwhile is not seen this time.
        if let Some(process) = pid.and_then(|pid| read(pid, &entry.path(), group)) {
            seen.insert(process);
        }
    }
}

fn read(pid: u32, folder: &Path, group: &str) -> Option<Seen> {
    let text = |name: &str| std::fs::read(folder.join(name)).ok();
    let groups = String::from_utf8(text("cgroup")?).ok()?;
    let is_here = |line: &str| {
        line.split_once(group)
            .is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('/'))
    };
    if !groups.lines().any(is_here) {
        return None;
    }
    let list = |bytes: Vec<u8>| -> Vec<String> {
        let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        parts
            .map(|part| String::from_utf8_lossy(part).into_owned())
            .collect()
    };
    let status = String::from_utf8_lossy(&text("status")?).into_owned();
    let of = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
    };
    let first = |name: &str| of(name)?.split_whitespace().next()?.parse().ok();
    let stat = String::from_utf8_lossy(&text("stat")?).into_owned();
    // The name may hold anything, so what follows it is counted from its end: state, parent, group, session, terminal.
    let mut numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(3);
    let session = numbers.next()?.parse().ok()?;
    let has_terminal = numbers.next()? != "0";
    let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"];
    Some(Seen {
        pid,
        name: of("Name")?.to_owned(),
        arguments: list(text("cmdline")?),
        environment: list(text("environ")?),
        uid: first("Uid")?,
        gid: first("Gid")?,
        groups: of("Groups")?
            .split_whitespace()
            .filter_map(|gid| gid.parse().ok())
            .collect(),
        has_capabilities: sets
            .into_iter()
            .any(|set| of(set).is_none_or(|bits| bits.bytes().any(|bit| bit != b'0'))),
        has_terminal,
        session,
    })
}
