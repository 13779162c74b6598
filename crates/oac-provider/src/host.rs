//! Which host and which boot this process runs in (node.md section 4, providers.md section 4).
//!
//! A disk that is cloned or restored elsewhere carries receipts of another host's sandboxes. host_id tells the two
//! apart; boot_id tells whether a process could have survived.

use std::path::PathBuf;

use oac_model::{BootId, Digest};

/// What the node knows of its host. Read before every answer that depends on it, so nothing here may be cached by a
/// caller; a value that cannot be read is `None`.
pub trait HostIdentity: Send + Sync + 'static {
    /// The present host_id, for a backend anchored at `anchor`: the engine's id for Docker, `device:inode` of the
    /// store for microsandbox.
    fn current(&self, anchor: &str) -> Option<Digest>;

    /// The host_id that `identity.json` records.
    fn recorded(&self) -> Option<Digest>;

    /// The kernel's present boot.
    fn boot_id(&self) -> Option<BootId>;

    /// Whether this is the recorded host. Unreadable counts as different.
    fn is_recorded_host(&self, anchor: &str) -> bool {
        self.current(anchor)
            .is_some_and(|current| self.recorded() == Some(current))
    }
}

/// SHA-256 of the machine-id, one NUL byte and the anchor; `None` unless the machine-id is 32 lowercase hex digits.
pub fn host_id_of(machine_id: &str, anchor: &str) -> Option<Digest> {
    let machine_id = machine_id.strip_suffix('\n').unwrap_or(machine_id);
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if machine_id.len() != 32 || !machine_id.bytes().all(hex) || anchor.is_empty() {
        return None;
    }
    Some(Digest::of(format!("{machine_id}\0{anchor}")))
}

/// The running machine, read from its files each time.
pub struct MachineIdentity {
    pub machine_id_file: PathBuf,
    pub boot_id_file: PathBuf,
    pub recorded: Digest,
}

impl MachineIdentity {
    /// The standard files of a Linux host.
    pub fn new(recorded: Digest) -> Self {
        Self {
            machine_id_file: "/etc/machine-id".into(),
            boot_id_file: "/proc/sys/kernel/random/boot_id".into(),
            recorded,
        }
    }
}

impl HostIdentity for MachineIdentity {
    fn current(&self, anchor: &str) -> Option<Digest> {
        host_id_of(&std::fs::read_to_string(&self.machine_id_file).ok()?, anchor)
    }

    fn recorded(&self) -> Option<Digest> {
        Some(self.recorded)
    }

    fn boot_id(&self) -> Option<BootId> {
        std::fs::read_to_string(&self.boot_id_file)
            .ok()?
            .trim_end()
            .parse()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_id_depends_on_machine_and_anchor_and_refuses_an_unset_machine_id() {
        let a = "0123456789abcdef0123456789abcdef";
        let id = host_id_of(a, "ENGINE").unwrap();
        assert_eq!(id, Digest::of(b"0123456789abcdef0123456789abcdef\0ENGINE"));
        assert_eq!(host_id_of(&format!("{a}\n"), "ENGINE"), Some(id));
        assert_ne!(host_id_of(a, "OTHER"), Some(id));
        for bad in ["", "uninitialized\n", "0123", &a.to_uppercase()] {
            assert_eq!(host_id_of(bad, "ENGINE"), None, "{bad:?}");
        }
        assert_eq!(host_id_of(a, ""), None);
    }

    #[test]
    fn an_unreadable_host_counts_as_another_one() {
        let identity = MachineIdentity {
            machine_id_file: "/nonexistent".into(),
            boot_id_file: "/nonexistent".into(),
            recorded: Digest::of("x"),
        };
        assert!(!identity.is_recorded_host("ENGINE"));
        assert_eq!(identity.boot_id(), None);
    }
}
