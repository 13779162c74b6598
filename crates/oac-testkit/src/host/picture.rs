//! What a host is, in lines that can be compared: files, accounts, units, packet filter, settings, the engine's objects,
//! listening ports. Two pictures tell what was changed and not given back.

use std::{collections::BTreeMap, fmt};

/// Prints one fact per record, each ended by a NUL: kind, name, state and, for files, the time, separated by tabs.
pub(super) const SCRIPT: &str = include_str!("picture.sh");

/// A host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    facts: BTreeMap<String, Fact>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fact {
    state: String,
    /// Of a file's last change; empty for what has none.
    time: String,
}

/// A difference between two pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Kind and name, such as `file /etc/hosts`.
    pub what: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |state: &Option<String>| state.clone().unwrap_or_else(|| "nothing".to_owned());
        write!(
            f,
            "{}: {} -> {}",
            self.what,
            side(&self.before),
            side(&self.after)
        )
    }
}

/// What changes by itself on a host, or by looking at it.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// How `what` of such a change begins.
    pub begins: &'static str,
    pub why: &'static str,
}

const fn noise(begins: &'static str, why: &'static str) -> Noise {
    Noise { begins, why }
}

/// The noise of every test. What a test knows to be kept by design it names itself.
pub const NOISE: &[Noise] = &[
    noise("file /var/log/journal/", "the journal goes on"),
    noise("file /var/log/lastlog", "logging in is recorded"),
    noise("file /var/log/wtmp", "logging in is recorded"),
    noise("file /var/lib/systemd/", "timers and the clock are remembered"),
    noise("file /var/lib/sudo/", "sudo remembers whom it lectured"),
    noise("file /etc/passwd-", "the account tools keep the version before"),
    noise("file /etc/shadow-", "the account tools keep the version before"),
    noise("file /etc/group-", "the account tools keep the version before"),
    noise("file /etc/gshadow-", "the account tools keep the version before"),
    noise("file /etc/subuid-", "the account tools keep the version before"),
    noise("file /etc/subgid-", "the account tools keep the version before"),
    noise("file /etc/.pwd.lock", "the account tools lock through it"),
    noise("unit run-docker-", "mounts of containers come and go"),
    noise("unit run-user-", "sessions come and go"),
    noise("unit user-", "sessions come and go"),
    noise("unit user@", "sessions come and go"),
    noise("unit systemd-oomd.service", "a session looks for it"),
    noise("unit session-", "sessions come and go"),
    noise("unit systemd-tmpfiles-", "timers run"),
    noise("unit apt-daily", "timers run"),
    noise("unit e2scrub", "timers run"),
    noise("unit fstrim", "timers run"),
    noise("unit dpkg-db-backup", "timers run"),
    noise("sysctl fs.dentry-state", "the kernel counts"),
    noise("sysctl fs.file-nr", "the kernel counts"),
    noise("sysctl fs.inode-", "the kernel counts"),
    noise("sysctl fs.quota", "the kernel counts"),
    noise("sysctl fs.aio-nr", "the kernel counts"),
    noise("sysctl fs.epoll", "the kernel counts"),
    noise("sysctl kernel.ns_last_pid", "the kernel counts"),
    noise("sysctl kernel.pty.nr", "the kernel counts"),
    noise("sysctl kernel.random.", "the kernel counts"),
    noise("sysctl net.netfilter.nf_conntrack_count", "the kernel counts"),
];

impl Picture {
    pub(super) fn parse(text: &str) -> Self {
        let facts = text.split('\0').filter_map(|record| {
            let mut parts = record.trim_start_matches('\n').splitn(4, '\t');
            let (kind, name) = (parts.next()?, parts.next()?);
            let state = parts.next().unwrap_or_default().to_owned();
            let time = parts.next().unwrap_or_default().to_owned();
            Some((format!("{kind} {name}"), Fact { state, time }))
        });
        Self {
            facts: facts.collect(),
        }
    }

    /// The state of one thing, such as `file /etc/hosts`.
    pub fn of(&self, what: &str) -> Option<&str> {
        self.facts.get(what).map(|fact| fact.state.as_str())
    }

    /// What is there of one kind, by name.
    pub fn all(&self, kind: &str) -> Vec<&str> {
        let names = self
            .facts
            .keys()
            .filter_map(|what| what.strip_prefix(kind)?.strip_prefix(' '));
        names.collect()
    }

    /// What differs in `after`, but for noise. Times of files are no difference.
    pub fn changes(&self, after: &Self, more_noise: &[Noise]) -> Vec<Change> {
        self.differences(after, more_noise, |a, b| a.state == b.state)
    }

    /// What differs in `after`, times of files included.
    pub fn changes_and_times(&self, after: &Self, more_noise: &[Noise]) -> Vec<Change> {
        self.differences(after, more_noise, |a, b| a == b)
    }

    fn differences(
        &self,
        after: &Self,
        more_noise: &[Noise],
        same: impl Fn(&Fact, &Fact) -> bool,
    ) -> Vec<Change> {
        let mut names: Vec<&String> = self.facts.keys().chain(after.facts.keys()).collect();
        names.sort();
        names.dedup();
        let is_noise = |what: &str| {
            NOISE
                .iter()
                .chain(more_noise)
                .any(|noise| what.starts_with(noise.begins))
        };
        let shown = |fact: Option<&Fact>| {
            fact.map(|fact| format!("{} {}", fact.state, fact.time).trim_end().to_owned())
        };
        names
            .into_iter()
            .filter(|what| !is_noise(what))
            .filter_map(|what| {
                let (before, after) = (self.facts.get(what), after.facts.get(what));
                let unchanged = match (before, after) {
                    (Some(before), Some(after)) => same(before, after),
                    _ => false,
                };
                (!unchanged).then(|| Change {
                    what: what.clone(),
                    before: shown(before),
                    after: shown(after),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_what_appears_what_goes_and_what_differs_but_for_noise() {
        let before = Picture::parse("file\t/a\tf 644 0:0 1\t5\0file\t/b\tf 644 0:0 2\t5\0user\troot\tx\0");
        let after = Picture::parse(
            "file\t/a\tf 644 0:0 1\t6\0file\t/c\tf 600 0:0 3\t5\0user\troot\ty\0file\t/var/log/journal/x\tf\0",
        );
        let told = |changes: Vec<Change>| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            told(before.changes(&after, &[])),
            [
                "file /b: f 644 0:0 2 5 -> nothing",
                "file /c: nothing -> f 600 0:0 3 5",
                "user root: x -> y",
            ]
        );
        assert_eq!(told(before.changes_and_times(&after, &[])).len(), 4);
        let known = [Noise {
            begins: "user ",
            why: "a test's own",
        }];
        assert_eq!(told(before.changes(&after, &known)).len(), 2);
        assert_eq!(before.of("file /b"), Some("f 644 0:0 2"));
        assert_eq!(before.all("file"), ["/a", "/b"]);
    }
}
