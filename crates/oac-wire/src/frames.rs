//! The frames (protocol.md section 3) as types. Their text form is in `codec`.

use oac_model::{
    BootId, ConnectionId, DiagnosticCode, Digest, Generation, InstallationId, NodeId, OwnerEpoch,
    ProviderKind, Reference, RequestId, StoreId, Time,
};
use serde::{Deserialize, Serialize};

use crate::{
    Nullable,
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Resume, Retained,
        Sample, Suspend, Unsupported,
    },
    strict::StrictError,
};

/// A node as it enrolled. `deployment_generation` and `specification_digest` never change afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub node_id: NodeId,
    pub installation_id: InstallationId,
    /// Docker or microsandbox.
    pub provider: ProviderKind,
    pub backend_fingerprint: Digest,
    pub deployment_generation: Generation,
    pub specification_digest: Digest,
    /// 1..1,000,000
    pub max_active: i64,
    /// max_active..1,000,000
    pub max_retained: i64,
}

/// What a node measured and whether its provider answered. Unknown is null, never 0 (INV-N34).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// False, without diagnostic, from a managing node.
    pub provider_ready: bool,
    /// The node's clock; informative.
    pub observed_at: Time,
    /// 0..32
    pub active_operations: i64,
    /// 0..1
    pub cpu_utilization: Nullable<f64>,
    /// At least 1.
    pub total_memory_bytes: Nullable<i64>,
    /// Above 0.
    pub effective_cpu_cores: Nullable<f64>,
    #[serde(default)]
    pub cpu_count: Nullable<i64>,
    /// Not above the total when both are known.
    #[serde(default)]
    pub available_memory_bytes: Nullable<i64>,
    #[serde(default)]
    pub available_disk_bytes: Nullable<i64>,
    #[serde(default)]
    pub execution_class: Nullable<Digest>,
    #[serde(default)]
    pub checkpoint_store: Nullable<StoreId>,
    #[serde(default)]
    pub boot_id: Nullable<BootId>,
    /// Empty equals absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Token>,
    /// At most eight, distinct; only from a managing node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generations: Option<Vec<GenerationStatus>>,
}

/// 0..64 bytes of `[a-z0-9_]`: a readiness code, known or not (INV-P27).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl Token {
    pub fn code(&self) -> Option<DiagnosticCode> {
        (!self.0.is_empty()).then(|| DiagnosticCode::from_token(&self.0))
    }
}

impl From<DiagnosticCode> for Token {
    fn from(code: DiagnosticCode) -> Self {
        Self(code.as_str().to_owned())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerationState {
    Ready,
    Preparing,
    Failed,
}

/// A managing node's word on one of its generations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerationStatus {
    pub generation: Generation,
    pub specification_digest: Digest,
    pub state: GenerationState,
    /// Never with `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Token>,
}

/// What Core wants prepared, and what the node serves; for managing nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    pub generation: Generation,
    pub specification_digest: Digest,
    pub serving_generation: Nullable<Generation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    pub identity: Identity,
    pub health: Health,
    /// `false` equals absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_management: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    pub health: Health,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatAck {
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

/// One operation for one allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: RequestId,
    /// 1, 2, 3… per connection.
    pub sequence: i64,
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    /// As sent; a value that is no generation is also an [`InvalidRequest`].
    pub deployment_generation: i64,
    /// `Err` when a value is out of bounds: answered `invalid`, the connection stays.
    pub body: Result<RequestBody, InvalidRequest>,
}

/// A request whose every value is in bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestBody {
    pub deployment_generation: Generation,
    /// 1..120,000; includes the time in the node's queue.
    pub timeout_ms: u32,
    pub reference: Reference,
    pub arguments: Arguments,
}

/// The operation with exactly its own arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    Create(Box<Bootstrap>),
    Info,
    Renew,
    Kill,
    Command(Command),
    Observe(Box<Observation>),
    Initial,
    NewCompute {
        generation: Generation,
        retained: Option<Box<Retained>>,
    },
    Compute(Box<Compute>),
    KillCompute(Box<Compute>),
    ResumeCompute(Box<Compute>),
    CommandCompute(Box<Compute>, Command),
    Suspend(Box<Suspend>),
    Resume(Box<Resume>),
    DeleteRetained(Box<Retained>),
}

/// A request of right structure with a value out of bounds; the text is the author's, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(pub String);

/// The answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub id: RequestId,
    pub connection_id: ConnectionId,
    /// `[a-z_]{1,64}`
    pub error_code: Option<String>,
    /// `Err` when a result's value is out of bounds: read as unconfirmed.
    pub result: Result<Option<ResponseResult>, InvalidResult>,
}

/// The at most one result member of a response, or the evidence beside `unsupported`.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponseResult {
    Info(Info),
    Command(CommandResult),
    Sample(Sample),
    Compute(Box<Compute>),
    State(Box<ComputeState>),
    Unsupported(Unsupported),
}

/// A response of right structure with a result out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidResult(pub String);

/// Node to Core.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeFrame {
    Hello(Box<Hello>),
    Heartbeat(Box<Heartbeat>),
    Retention(Retention),
    Response(Box<Response>),
}

/// Core to node.
#[derive(Debug, Clone, PartialEq)]
pub enum CoreFrame {
    Welcome(Welcome),
    HeartbeatAck(HeartbeatAck),
    RetentionAck(RetentionAck),
    Request(Box<Request>),
}

/// A generation a node asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionReference {
    pub generation: Generation,
    pub specification_digest: Digest,
}

/// Core's answer about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionAnswer {
    pub generation: Generation,
    pub specification_digest: Digest,
    pub keep: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    pub control: RetentionControl,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionControl {
    pub id: RequestId,
    pub sequence: i64,
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    /// 1..8, distinct generations.
    pub references: Vec<RetentionReference>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionAck {
    pub control: RetentionAckControl,
    pub deployment: Deployment,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionAckControl {
    pub id: RequestId,
    pub sequence: i64,
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    pub retentions: Vec<RetentionAnswer>,
}

/// Why a frame closes the connection. Holds no value of the frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {bytes} bytes is over the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("frame of a version other than {}", crate::PROTOCOL_VERSION)]
    Version,
    #[error("frame of a type this peer does not take")]
    Type,
    #[error("invalid frame: {0}")]
    Malformed(StrictError),
    #[error("invalid frame: {0}")]
    Bounds(&'static str),
}
