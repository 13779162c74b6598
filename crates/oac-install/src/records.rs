//! Root's records below `/etc/oac-node` (installer.md section 6): what the installer created or changed. Strict JSON;
//! reruns and uninstall go by them.

use oac_dial::Origin;
use oac_model::{InstallationId, ProviderKind};
use oac_wire::{Nullable, strict};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::arguments::is_clean_absolute;

/// Larger ones are damaged.
pub const RECORD_BYTES: usize = 16 * 1024;
pub const ACCOUNT: &str = "account.json";

/// What of a change of the account is under way, written before it and cleared after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pending {
    Account,
    Group,
}

/// `account.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    pub format: u32,
    /// By the installer; otherwise it was here and was adopted.
    pub created: bool,
    pub uid: u32,
    /// 0 while the account does not exist yet.
    pub gid: u32,
    /// By the installer, in order.
    pub groups_added: Vec<String>,
    /// The mode bits of an adopted account's home before the installer changed them.
    pub home_mode: Nullable<u32>,
    pub pending: Nullable<Pending>,
}

/// How a removal was permitted; stored before the first deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// Core has said that the node is removed, or it never registered.
    Confirmed,
    /// Core was not asked.
    Forced,
}

/// `<installation id>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub format: u32,
    pub installation_id: InstallationId,
    pub provider: ProviderKind,
    /// An origin.
    pub core_url: String,
    pub node_root: String,
    /// The unit's path.
    pub unit: String,
    /// Null for Docker.
    pub checkpoint_root: Nullable<String>,
    pub registered: bool,
    pub removal: Nullable<Removal>,
}

/// A record as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    Absent,
    Damaged,
    Is(T),
}

impl<T> Read<T> {
    pub fn is(&self) -> Option<&T> {
        match self {
            Self::Is(record) => Some(record),
            _ => None,
        }
    }
}

trait Checked: DeserializeOwned {
    fn holds(&self) -> bool;
}

impl Checked for Account {
    fn holds(&self) -> bool {
        self.format == 1 && self.created == self.home_mode.0.is_none()
    }
}

impl Checked for Node {
    fn holds(&self) -> bool {
        let checkpoints = match (self.provider, &self.checkpoint_root.0) {
            (ProviderKind::Docker, None) => true,
            (ProviderKind::Microsandbox, Some(path)) => is_clean_absolute(path),
            _ => false,
        };
        self.format == 1
            && checkpoints
            && Origin::parse(&self.core_url).is_ok()
            && is_clean_absolute(&self.node_root)
            && is_clean_absolute(&self.unit)
    }
}

fn decode<T: Checked>(bytes: &[u8]) -> Option<T> {
    strict::from_slice(bytes).ok().filter(T::holds)
}

fn encode(record: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(record)
        .unwrap_or_else(|error| unreachable!("a record is plain data: {error}"));
    bytes.push(b'\n');
    bytes
}

impl Account {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

impl Node {
    /// That of `installation`, whose name the file has.
    pub fn decode(bytes: &[u8], installation: InstallationId) -> Option<Self> {
        decode(bytes).filter(|record: &Self| record.installation_id == installation)
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn installation(digit: char) -> InstallationId {
        let group = |n: usize| digit.to_string().repeat(n);
        format!(
            "{}-{}-4{}-8{}-{}",
            group(8),
            group(4),
            group(3),
            group(3),
            group(12)
        )
        .parse()
        .unwrap()
    }

    pub(crate) fn node(installation: InstallationId) -> Node {
        Node {
            format: 1,
            installation_id: installation,
            provider: ProviderKind::Docker,
            core_url: "https://core.example.org".into(),
            node_root: format!("/var/lib/oac-node/.oac/nodes/{installation}"),
            unit: format!("/etc/systemd/system/oac-node-{installation}.service"),
            checkpoint_root: None.into(),
            registered: false,
            removal: None.into(),
        }
    }

    #[test]
    fn records_come_back_and_what_differs_in_form_is_damaged() {
        let id = installation('1');
        let good = node(id);
        let text = String::from_utf8(good.encode()).unwrap();
        assert_eq!(Node::decode(text.as_bytes(), id), Some(good));
        assert_eq!(Node::decode(text.as_bytes(), installation('2')), None);
        for (from, to) in [
            (r#""format": 1"#, r#""format": 2"#),
            (r#""registered": false"#, r#""registered": false, "more": 1"#),
            (r#""registered": false,"#, ""),
            (r#""removal": null"#, r#""removal": "perhaps""#),
            (r#""checkpoint_root": null"#, r#""checkpoint_root": "/srv""#),
            ("https://core", "ftp://core"),
            (r#""unit": "/etc"#, r#""unit": "/etc/.."#),
        ] {
            assert!(text.contains(from), "{from}");
            assert_eq!(
                Node::decode(text.replacen(from, to, 1).as_bytes(), id),
                None,
                "{to}"
            );
        }
        let account = Account {
            format: 1,
            created: true,
            uid: 65532,
            gid: 998,
            groups_added: vec!["docker".into()],
            home_mode: None.into(),
            pending: Some(Pending::Group).into(),
        };
        let text = String::from_utf8(account.encode()).unwrap();
        assert!(text.contains(r#""pending": "group""#));
        assert_eq!(Account::decode(text.as_bytes()), Some(account));
        let adopted = text.replacen(r#""created": true"#, r#""created": false"#, 1);
        assert_eq!(Account::decode(adopted.as_bytes()), None);
        assert_eq!(Account::decode(b"{"), None);
    }
}
