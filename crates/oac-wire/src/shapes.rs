//! Arguments and results of the operations (protocol.md section 7, "Shapes"). Text forms of ids, digests and times are
//! checked by their types; the remaining bounds by each shape's `validate`.

use std::fmt;

use oac_model::{
    AllocationId, ComputePhase, Digest, EnvironmentId, Generation, InstallationId, NetworkAccess,
    OperationId, ProjectId, Reference, Secret, SessionId, StoreId, Time,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::{B64, Nullable};

/// What a sandbox's runtime needs to link to Core (protocol.md `link`).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Always 1.
    pub version: u32,
    /// `wss` or `ws`, path `/api/v1/sandbox-link`.
    pub link_url: String,
    #[serde(serialize_with = "expose")]
    pub credential: Secret,
    pub resource: LinkResource,
}

/// The only place where a secret is written out: the frame and the bootstrap file that deliver it.
fn expose<S: Serializer>(secret: &Secret, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(secret.expose())
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("link_url", &self.link_url)
            .field("credential", &self.credential)
            .field("resource", &self.resource)
            .finish()
    }
}

/// What a link credential opens: one allocation under one link generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkResource {
    pub tenant_id: ProjectId,
    pub environment_id: EnvironmentId,
    pub kind: LinkResourceKind,
    pub id: AllocationId,
    /// The link generation; revoking increases it.
    pub generation: Generation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkResourceKind {
    Allocation,
}

/// A workspace object bound into a sandbox; microsandbox only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceBinding {
    pub store_id: StoreId,
    pub object_id: EnvironmentId,
    pub mount: String,
}

macro_rules! operations {
    ($($variant:ident = $wire:literal),* $(,)?) => {
        /// The operations of the inventory (protocol.md section 7).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation { $($variant),* }

        impl Operation {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in `request.operation`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $wire),* }
            }

            /// The method name in `unsupported` evidence.
            pub fn method(self) -> &'static str {
                match self {
                    Self::Info => "GetInfo",
                    Self::Command => "RunCommand",
                    Self::Compute => "GetCompute",
                    Self::CommandCompute => "RunCommandCompute",
                    $(#[allow(unreachable_patterns)] Self::$variant => stringify!($variant)),*
                }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($wire => Some(Self::$variant),)* _ => None }
            }

            /// The lifecycle mutations of protocol.md section 1.
            pub fn is_mutation(self) -> bool {
                matches!(
                    self,
                    Self::Create | Self::Kill | Self::KillCompute | Self::ResumeCompute | Self::Suspend | Self::Resume
                        | Self::DeleteRetained
                )
            }
        }
    };
}

operations! {
    Create = "create",
    Info = "info",
    Renew = "renew",
    Kill = "kill",
    Command = "command",
    Observe = "observe",
    Initial = "initial",
    NewCompute = "new_compute",
    Compute = "compute",
    KillCompute = "kill_compute",
    ResumeCompute = "resume_compute",
    CommandCompute = "command_compute",
    Suspend = "suspend",
    Resume = "resume",
    DeleteRetained = "delete_retained",
}

/// Argument of `create`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    /// Equals the request's reference.
    pub reference: Reference,
    pub session_id: SessionId,
    pub network_access: NetworkAccess,
    /// 0..64 host names, empty unless restricted.
    pub allowed_domains: Vec<String>,
    pub link: Link,
    pub workspace: Nullable<WorkspaceBinding>,
}

/// What a provider knows of a reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    pub reference: Reference,
    /// 0..256 bytes.
    pub provider_id: String,
    /// `[a-z_]{1,32}`; only `running` and `absent` carry protocol meaning.
    pub state: String,
    /// The runtime process was started; requires `create_settled`.
    pub bootstrap_complete: bool,
    pub create_settled: bool,
    /// Requires state `absent` and `create_settled`.
    pub compute_lost: bool,
}

impl Info {
    pub const RUNNING: &str = "running";
    pub const ABSENT: &str = "absent";

    /// Proof that the create of `reference` can have no further effect (providers.md section 1).
    pub fn is_settled_receipt_of(&self, reference: &Reference) -> bool {
        let absent = self.state == Self::ABSENT && self.provider_id.is_empty() && !self.bootstrap_complete;
        self.reference == *reference && self.create_settled && (absent || !self.provider_id.is_empty())
    }
}

/// Argument of `command` and `command_compute`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// 1..1024 strings without NUL, 1 MiB together, the first nonempty.
    pub args: Vec<String>,
    /// Absolute, or empty for the image's own.
    pub directory: String,
    /// At most 50 MiB + 32 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<B64>,
}

/// Result of `command`; each stream at most 1 MiB, the excess drained and flagged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandResult {
    pub stdout: B64,
    pub stderr: B64,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// 0..255; a signal gives 128 + its number.
    pub exit_code: i64,
}

/// One incarnation of a reference's sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// 0 has no parent; a higher one has a parent of lower source generation.
    pub generation: i64,
    pub name: String,
    pub id: Nullable<String>,
    pub restored_from: Nullable<Retained>,
}

/// A suspended sandbox's saved state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retained {
    pub operation_id: OperationId,
    pub source_generation: i64,
    pub source_name: String,
    pub source_id: String,
    pub store_id: StoreId,
    pub execution_class: Digest,
    pub digest: Digest,
    pub size_bytes: i64,
    /// Opaque object of at most 64 KiB, kept byte for byte (INV-P30).
    pub data: Opaque,
}

/// A JSON object kept as the exact bytes it arrived in (INV-P30). Duplicate members inside are refused; nulls are not.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Opaque(pub Box<serde_json::value::RawValue>);

impl<'de> Deserialize<'de> for Opaque {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(d)?;
        crate::strict::from_str::<serde_json::Map<String, serde_json::Value>>(raw.get())
            .map_err(|_| serde::de::Error::custom("data is an object without duplicate members"))?;
        Ok(Self(raw))
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
impl Eq for Opaque {}

/// Result of the compute operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeState {
    pub compute: Compute,
    pub status: String,
    pub bootstrap_complete: bool,
    pub retained: Nullable<Retained>,
    pub resources_released: bool,
    pub suspend_settled: bool,
}

/// Argument of `suspend`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    pub reference: Reference,
    pub operation_id: OperationId,
    pub source: Compute,
    pub retained: Nullable<Retained>,
    pub reconcile_only: bool,
}

/// Argument of `resume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub reference: Reference,
    pub operation_id: OperationId,
    pub retained: Retained,
    pub target: Compute,
    pub reconcile_only: bool,
    pub workspace: Nullable<WorkspaceBinding>,
}

/// Argument of `observe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    pub mode: ObservationMode,
    pub session_id: SessionId,
    pub instance: ObservedInstance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationMode {
    Managed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedInstance {
    /// The installation id; another one answers `ownership`.
    pub provider_key: InstallationId,
    pub compute_phase: ComputePhase,
    pub compute: Nullable<Compute>,
}

/// Result of `observe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub observed_at: Time,
    pub started_at: Nullable<Time>,
    pub cpu_usage_seconds_total: Nullable<f64>,
    pub cpu_capacity_cores: Nullable<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_utilization_ratio: Option<f64>,
    pub memory_usage_bytes: Nullable<i64>,
    pub memory_limit_bytes: Nullable<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_usage_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_limit_bytes: Option<i64>,
}

/// Evidence beside error code `unsupported`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsupported {
    /// The method name, as `Method::as_str` gives it.
    pub operation: String,
    /// `[a-z0-9_]{1,64}`.
    pub reason: String,
}
