//! Arguments and results of the operations (protocol.md section 7, "Shapes"). Text forms of ids, digests and times are
//! checked by their types; the remaining bounds stand beside the members and are checked by both ends.

use std::fmt;

use oac_model::{
    AllocationId, ComputePhase, Digest, EnvironmentId, Generation, InstallationId, Network, NetworkAccess,
    NetworkError, OperationId, ProjectId, Reference, Secret, SessionId, StoreId, Time,
};
use serde::{Deserialize, Serialize, Serializer};

pub use crate::opaque::Opaque;
use crate::{
    B64, Nullable,
    bounded::at_most,
    forms, limits,
    shape::{Bound, Shape, Wire, wire},
};

wire! {
    /// What a sandbox's runtime needs to link to Core (protocol.md `link`).
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Link = "link" {
        /// Always 1.
        pub version: u32 where Bound::Range(1, 1),
        /// `wss` or `ws`, path `/api/v1/sandbox-link`.
        pub link_url: String where forms::LINK_URL,
        #[serde(serialize_with = "expose")]
        pub credential: Secret where forms::CREDENTIAL,
        pub resource: LinkResource,
    }
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

wire! {
    /// What a link credential opens: one allocation under one link generation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct LinkResource = "link_resource" {
        pub tenant_id: ProjectId,
        pub environment_id: EnvironmentId,
        pub kind: LinkResourceKind,
        pub id: AllocationId,
        /// The link generation; revoking increases it.
        pub generation: Generation,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkResourceKind {
    Allocation,
}

impl Wire for LinkResourceKind {
    const SHAPE: &'static Shape = &Shape::Words(&["allocation"]);
}

impl LinkResource {
    fn names(&self, reference: &Reference) -> bool {
        self.tenant_id == reference.tenant_id
            && self.environment_id == reference.environment_id
            && self.id == reference.allocation_id
    }
}

wire! {
    /// A workspace object bound into a sandbox; microsandbox only.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WorkspaceBinding = "workspace" {
        pub store_id: StoreId,
        pub object_id: EnvironmentId,
        pub mount: String where forms::CLEAN_PATH,
    }
}

/// An argument member of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    pub required: bool,
}

macro_rules! operations {
    ($(
        $variant:ident = $wire:literal, $method:literal, [$($argument:ident $($required:literal)?),*] $(-> $result:literal)?;
    )*) => {
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
                match self { $(Self::$variant => $method),* }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                match text { $($wire => Some(Self::$variant),)* _ => None }
            }

            /// The members that a request for it holds besides its envelope.
            pub fn arguments(self) -> &'static [Argument] {
                match self {
                    $(Self::$variant => {
                        const ARGUMENTS: &[Argument] = &[$(
                            Argument { name: stringify!($argument), required: true $(&& $required)? }
                        ),*];
                        ARGUMENTS
                    }),*
                }
            }

            /// The member of a successful response; `None` for the operations without a result.
            pub fn result_member(self) -> Option<&'static str> {
                match self { $(Self::$variant => [$($result)?].first().copied()),* }
            }
        }
    };
}

operations! {
    Create = "create", "Create", [bootstrap] -> "info";
    Info = "info", "GetInfo", [] -> "info";
    Renew = "renew", "Renew", [] -> "info";
    Kill = "kill", "Kill", [];
    Command = "command", "RunCommand", [command] -> "command";
    Observe = "observe", "Observe", [observation] -> "sample";
    Initial = "initial", "Initial", [] -> "compute";
    NewCompute = "new_compute", "NewCompute", [generation, retained false] -> "compute";
    Compute = "compute", "GetCompute", [compute] -> "state";
    KillCompute = "kill_compute", "KillCompute", [compute];
    ResumeCompute = "resume_compute", "ResumeCompute", [compute] -> "state";
    CommandCompute = "command_compute", "RunCommandCompute", [compute, command] -> "command";
    Suspend = "suspend", "Suspend", [suspend] -> "state";
    Resume = "resume", "Resume", [resume] -> "state";
    DeleteRetained = "delete_retained", "DeleteRetained", [retained];
}

impl Operation {
    /// The lifecycle mutations of protocol.md section 1.
    pub fn is_mutation(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Kill
                | Self::KillCompute
                | Self::ResumeCompute
                | Self::Suspend
                | Self::Resume
                | Self::DeleteRetained
        )
    }
}

const METHOD: Bound = Bound::Form("the method name of an operation", |t| {
    Operation::ALL.iter().any(|o| o.method() == t)
});

wire! {
    /// Argument of `create`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Bootstrap = "bootstrap" {
        /// Equals the request's reference.
        pub reference: Reference,
        pub session_id: SessionId,
        pub network_access: NetworkAccess,
        /// 0..64 host names, empty unless restricted.
        #[serde(deserialize_with = "at_most::<{ Network::MAX_DOMAINS }, _, _>")]
        pub allowed_domains: Vec<String> where Bound::Items(0, Network::MAX_DOMAINS),
        pub link: Link,
        pub workspace: Nullable<WorkspaceBinding>,
    }
    rules {
        "allowed_domains holds host names of at most 253 bytes" => |b| !matches!(b.network().validate(), Err(NetworkError::NotAHostName(_))),
        "allowed_domains is empty unless network_access is restricted" => |b| b.network_access == NetworkAccess::Restricted || b.allowed_domains.is_empty(),
        "link.resource names the reference" => |b| b.link.resource.names(&b.reference),
    }
}

impl Bootstrap {
    fn network(&self) -> Network {
        Network {
            access: self.network_access,
            allowed_domains: self.allowed_domains.clone(),
        }
    }
}

wire! {
    /// What a provider knows of a reference.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Info = "info" {
        pub reference: Reference,
        /// 0..256 bytes.
        pub provider_id: String where Bound::Bytes(0, 256),
        /// `[a-z_]{1,32}`; only `running` and `absent` carry protocol meaning.
        pub state: String where forms::STATE,
        /// The runtime process was started; requires `create_settled`.
        pub bootstrap_complete: bool,
        pub create_settled: bool,
        /// Requires state `absent` and `create_settled`.
        pub compute_lost: bool,
    }
    rules {
        "bootstrap_complete requires create_settled" => |i| !i.bootstrap_complete || i.create_settled,
        "compute_lost requires state absent and create_settled" => |i| !i.compute_lost || (i.state == Info::ABSENT && i.create_settled),
    }
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

wire! {
    /// Argument of `command` and `command_compute`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Command = "command" {
        /// 1..1024 strings without NUL, 1 MiB together, the first nonempty.
        #[serde(deserialize_with = "at_most::<{ limits::ARGS }, _, _>")]
        pub args: Vec<String> where Bound::Items(1, limits::ARGS),
        /// Absolute, or empty for the image's own.
        pub directory: String where forms::DIRECTORY,
        /// At most 50 MiB + 32 bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stdin: Option<B64> where Bound::Bytes(0, limits::STDIN_BYTES),
    }
    rules {
        "args[0] is not empty" => |c| c.args.first().is_none_or(|a| !a.is_empty()),
        "args holds no NUL" => |c| !c.args.iter().any(|a| a.contains('\0')),
        "args is at most 1048576 bytes together" => |c| c.args.iter().map(String::len).sum::<usize>() <= limits::ARGS_BYTES,
    }
}

wire! {
    /// Result of `command`; each stream at most 1 MiB, the excess drained and flagged.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CommandResult = "command_result" {
        pub stdout: B64 where Bound::Bytes(0, limits::OUTPUT_BYTES),
        pub stderr: B64 where Bound::Bytes(0, limits::OUTPUT_BYTES),
        pub stdout_truncated: bool,
        pub stderr_truncated: bool,
        /// 0..255; a signal gives 128 + its number.
        pub exit_code: i64 where Bound::Range(0, 255),
    }
}

wire! {
    /// One incarnation of a reference's sandbox.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Compute = "compute" {
        /// 0 has no parent; a higher one has a parent of lower source generation.
        pub generation: i64 where Bound::NAT,
        pub name: String where forms::TEXT_128,
        pub id: Nullable<String> where forms::TEXT_256,
        pub restored_from: Nullable<Retained>,
    }
    rules {
        "restored_from is null for generation 0 and is not for a higher one" => |c| c.restored_from.0.is_some() == (c.generation > 0),
        "restored_from.source_generation is lower than generation" => |c| c.restored_from.0.as_ref().is_none_or(|r| r.source_generation < c.generation),
    }
}

wire! {
    /// A suspended sandbox's saved state.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Retained = "retained" {
        pub operation_id: OperationId,
        pub source_generation: i64 where Bound::NAT,
        pub source_name: String where forms::TEXT_128,
        pub source_id: String where forms::TEXT_256,
        pub store_id: StoreId,
        pub execution_class: Digest,
        pub digest: Digest,
        pub size_bytes: i64 where Bound::size(0),
        /// Opaque object of at most 64 KiB, kept byte for byte (INV-P30).
        pub data: Opaque,
    }
}

wire! {
    /// Result of the compute operations.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ComputeState = "state" {
        pub compute: Compute,
        pub status: String where forms::STATE,
        pub bootstrap_complete: bool,
        pub retained: Nullable<Retained>,
        pub resources_released: bool,
        pub suspend_settled: bool,
    }
}

wire! {
    /// Argument of `suspend`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Suspend = "suspend" {
        pub reference: Reference,
        pub operation_id: OperationId,
        pub source: Compute,
        pub retained: Nullable<Retained>,
        pub reconcile_only: bool,
    }
    rules {
        "source.id is not null" => |s| s.source.id.0.is_some(),
    }
}

wire! {
    /// Argument of `resume`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Resume = "resume" {
        pub reference: Reference,
        pub operation_id: OperationId,
        pub retained: Retained,
        pub target: Compute,
        pub reconcile_only: bool,
        pub workspace: Nullable<WorkspaceBinding>,
    }
    rules {
        "target.restored_from equals retained" => |r| r.target.restored_from.0.as_ref() == Some(&r.retained),
    }
}

wire! {
    /// Argument of `observe`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Observation = "observation" {
        pub mode: ObservationMode,
        pub session_id: SessionId,
        pub instance: ObservedInstance,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationMode {
    Managed,
}

impl Wire for ObservationMode {
    const SHAPE: &'static Shape = &Shape::Words(&["managed"]);
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ObservedInstance = "observed_instance" {
        /// The installation id; another one answers `ownership`.
        pub provider_key: InstallationId,
        pub compute_phase: ComputePhase,
        pub compute: Nullable<Compute>,
    }
}

wire! {
    /// Result of `observe`.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Sample = "sample" {
        pub observed_at: Time,
        pub started_at: Nullable<Time>,
        pub cpu_usage_seconds_total: Nullable<f64> where Bound::AtLeast(0.0),
        pub cpu_capacity_cores: Nullable<f64> where Bound::Above(0.0),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cpu_utilization_ratio: Option<f64> where Bound::AtLeast(0.0),
        pub memory_usage_bytes: Nullable<i64> where Bound::size(0),
        pub memory_limit_bytes: Nullable<i64> where Bound::size(1),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub disk_usage_bytes: Option<i64> where Bound::size(0),
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub disk_limit_bytes: Option<i64> where Bound::size(1),
    }
    rules {
        "started_at is not after observed_at" => |s| s.started_at.0.is_none_or(|t| t <= s.observed_at),
    }
}

wire! {
    /// Evidence beside error code `unsupported`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Unsupported = "unsupported" {
        /// The method name, as `Method::as_str` gives it.
        pub operation: String where METHOD,
        /// `[a-z0-9_]{1,64}`.
        pub reason: String where forms::REASON,
    }
}
