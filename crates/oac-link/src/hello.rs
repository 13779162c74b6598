//! The three text messages before the byte stream begins.

use std::fmt;

use oac_model::{InstanceId, LinkId, OwnerEpoch, Secret};
use oac_wire::shapes::LinkResource;
use serde::{Deserialize, Serialize, Serializer};

/// The only link version there is.
pub(crate) const VERSION: u32 = 1;

/// The runtime's first message. `Debug` shows the credential as `***` (INV-S12).
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// 64 hex characters; Core stores their digest alone.
    pub credential: Secret,
    pub resource: LinkResource,
    /// 1..64 bytes, for people.
    pub runtime_version: String,
    /// Random per runtime start.
    pub instance_id: InstanceId,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("credential", &self.credential)
            .field("resource", &self.resource)
            .field("runtime_version", &self.runtime_version)
            .field("instance_id", &self.instance_id)
            .finish()
    }
}

/// Core's acceptance: which connection this is and under which ownership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    pub connection_id: LinkId,
    pub owner_epoch: OwnerEpoch,
}

/// Why Core refuses a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    #[serde(rename = "link_credential_rejected")]
    CredentialRejected,
    #[serde(rename = "link_revoked")]
    Revoked,
    #[serde(rename = "link_version_unsupported")]
    VersionUnsupported,
    #[serde(rename = "link_busy")]
    Busy,
    #[serde(rename = "link_epoch_changed")]
    EpochChanged,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CredentialRejected => "link_credential_rejected",
            Self::Revoked => "link_revoked",
            Self::VersionUnsupported => "link_version_unsupported",
            Self::Busy => "link_busy",
            Self::EpochChanged => "link_epoch_changed",
        })
    }
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Hello,
    Welcome,
    Refused,
}

/// `type` and `version` alone, of a message whose other members are not known yet.
#[derive(Deserialize)]
pub(crate) struct Envelope {
    pub version: u32,
    #[serde(rename = "type")]
    pub kind: Kind,
}

/// `version` alone.
#[derive(Deserialize)]
pub(crate) struct Version {
    pub version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HelloMessage {
    pub version: u32,
    #[serde(rename = "type")]
    pub kind: Kind,
    #[serde(serialize_with = "expose")]
    pub credential: Secret,
    pub resource: LinkResource,
    pub runtime_version: String,
    pub instance_id: InstanceId,
}

/// The one place where the runtime's credential leaves its memory.
fn expose<S: Serializer>(secret: &Secret, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(secret.expose())
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WelcomeMessage {
    pub version: u32,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub connection_id: LinkId,
    pub owner_epoch: OwnerEpoch,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefusedMessage {
    pub version: u32,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub code: Refusal,
}
