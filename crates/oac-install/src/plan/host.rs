//! Steps 4 and 7: whether this host can carry a node at all, and whether it carries another installation's.

use std::collections::{BTreeMap, BTreeSet};

use oac_model::InstallationId;

use crate::{
    hint::Hint,
    records::{Node, Read},
};

/// What a run needs of the host's own programs.
pub const TOOLS: [&str; 7] = [
    "getent",
    "systemctl",
    "useradd",
    "usermod",
    "userdel",
    "groupdel",
    "gpasswd",
];
/// What an uninstall needs.
pub const UNINSTALL_TOOLS: [&str; 5] = ["systemctl", "userdel", "groupdel", "gpasswd", "getent"];

/// Step 4's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// `uname` says Linux and x86_64.
    pub is_linux_amd64: bool,
    /// `/run/systemd/system` is a directory.
    pub has_systemd: bool,
    /// Of [`TOOLS`], in their order.
    pub missing_tools: Vec<String>,
    pub selinux_enforces: bool,
}

/// Step 4.
pub fn platform(facts: &Platform) -> Result<(), Hint> {
    platform_faults(facts).into_iter().next().map_or(Ok(()), Err)
}

/// Every fault, for doctor.
pub fn platform_faults(facts: &Platform) -> Vec<Hint> {
    let mut faults = Vec::new();
    if !facts.is_linux_amd64 {
        faults.push(Hint::NotLinux);
    }
    if !facts.has_systemd {
        faults.push(Hint::NotSystemd);
    }
    let missing = facts.missing_tools.iter().cloned();
    faults.extend(missing.map(|tool| Hint::ToolMissing { tool }));
    if facts.selinux_enforces {
        faults.push(Hint::Selinux);
    }
    faults
}

/// Step 7's facts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Installations {
    /// By the files of `/etc/oac-node`.
    pub records: BTreeMap<InstallationId, Read<Node>>,
    /// By the units in systemd's folder.
    pub units: BTreeSet<InstallationId>,
    /// By the node roots in the account's home; known once the account was looked at.
    pub roots: BTreeSet<InstallationId>,
    /// `account.json` does not decode.
    pub account_damaged: bool,
    /// Where the records are; for what is told.
    pub folder: String,
}

impl Installations {
    pub fn record(&self, installation: InstallationId) -> &Read<Node> {
        self.records.get(&installation).unwrap_or(&Read::Absent)
    }
}

/// Step 7, and of step 9 the node roots of others.
pub fn installations(facts: &Installations, own: InstallationId) -> Result<(), Hint> {
    let damaged = |name: String| Hint::RecordDamaged {
        file: format!("{}/{name}", facts.folder),
    };
    if facts.account_damaged {
        return Err(damaged(crate::records::ACCOUNT.to_owned()));
    }
    if *facts.record(own) == Read::Damaged {
        return Err(damaged(format!("{own}.json")));
    }
    let all = facts.records.keys().chain(&facts.units).chain(&facts.roots);
    if let Some(other) = all.copied().find(|id| *id != own) {
        return Err(Hint::OtherInstallation { installation: other });
    }
    match facts.record(own) {
        Read::Is(record) if record.removal.0.is_some() => Err(Hint::UninstallUnfinished),
        _ => Ok(()),
    }
}

/// Step 5: one line of 1 to 4,096 bytes without whitespace.
pub fn token(bytes: &[u8]) -> Result<&str, Hint> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let holds = (1..=TOKEN_BYTES).contains(&line.len()) && line.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(line).ok().filter(|_| holds);
    text.ok_or(Hint::TokenMalformed)
}

pub const TOKEN_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{
        Removal,
        tests::{installation, node},
    };

    fn good() -> Platform {
        Platform {
            is_linux_amd64: true,
            has_systemd: true,
            missing_tools: Vec::new(),
            selinux_enforces: false,
        }
    }

    #[test]
    fn a_host_of_another_kind_is_told_its_first_fault_and_doctor_all() {
        assert_eq!(platform(&good()), Ok(()));
        let mut facts = good();
        let mut expected = Vec::new();
        facts.selinux_enforces = true;
        expected.push(Hint::Selinux);
        assert_eq!(platform(&facts), Err(Hint::Selinux));
        for tool in TOOLS.iter().rev() {
            facts.missing_tools.insert(0, (*tool).to_owned());
            expected.insert(
                0,
                Hint::ToolMissing {
                    tool: (*tool).to_owned(),
                },
            );
            assert_eq!(platform(&facts), Err(expected[0].clone()));
        }
        facts.has_systemd = false;
        expected.insert(0, Hint::NotSystemd);
        assert_eq!(platform(&facts), Err(Hint::NotSystemd));
        facts.is_linux_amd64 = false;
        expected.insert(0, Hint::NotLinux);
        assert_eq!(platform(&facts), Err(Hint::NotLinux));
        assert_eq!(platform_faults(&facts), expected);
    }

    #[test]
    fn another_installation_s_record_unit_or_node_root_refuses_this_one() {
        let (own, other) = (installation('1'), installation('2'));
        let mut facts = Installations {
            folder: "/etc/oac-node".into(),
            ..Installations::default()
        };
        assert_eq!(installations(&facts, own), Ok(()));
        facts.records.insert(own, Read::Is(node(own)));
        facts.units.insert(own);
        facts.roots.insert(own);
        assert_eq!(installations(&facts, own), Ok(()));
        let refused = Err(Hint::OtherInstallation { installation: other });
        for place in 0..3 {
            let mut facts = facts.clone();
            match place {
                0 => drop(facts.records.insert(other, Read::Damaged)),
                1 => drop(facts.units.insert(other)),
                _ => drop(facts.roots.insert(other)),
            }
            assert_eq!(installations(&facts, own), refused, "{place}");
        }
    }

    #[test]
    fn damaged_records_and_an_unfinished_uninstall_stop_an_installation() {
        let own = installation('1');
        let mut facts = Installations {
            folder: "/etc/oac-node".into(),
            account_damaged: true,
            ..Installations::default()
        };
        let damaged = |file: &str| Err(Hint::RecordDamaged { file: file.into() });
        assert_eq!(installations(&facts, own), damaged("/etc/oac-node/account.json"));
        facts.account_damaged = false;
        facts.records.insert(own, Read::Damaged);
        let file = format!("/etc/oac-node/{own}.json");
        assert_eq!(installations(&facts, own), damaged(&file));
        for removal in [Removal::Confirmed, Removal::Forced] {
            let mut record = node(own);
            record.removal = Some(removal).into();
            facts.records.insert(own, Read::Is(record));
            assert_eq!(installations(&facts, own), Err(Hint::UninstallUnfinished));
        }
    }

    #[test]
    fn a_token_is_one_line_without_whitespace() {
        for (good, text) in [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc")] {
            assert_eq!(token(good.as_bytes()), Ok(text));
        }
        assert!(token("a".repeat(TOKEN_BYTES).as_bytes()).is_ok());
        let long = "a".repeat(TOKEN_BYTES + 1);
        for bad in ["", "\n", "a b", "a\nb", "a\n\n", " a", "a\tb", "ä", &long] {
            assert_eq!(token(bad.as_bytes()), Err(Hint::TokenMalformed), "{bad:?}");
        }
    }
}
