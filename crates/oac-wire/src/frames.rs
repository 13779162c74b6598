//! The frames (protocol.md section 3) as types. Their text form is in `codec`.

use oac_model::{
    BootId, ConnectionId, DiagnosticCode, Digest, Generation, InstallationId, NodeId, OwnerEpoch,
    ProviderKind, Reference, RequestId, StoreId, Time,
};
use serde::{Deserialize, Serialize};

use crate::{
    Nullable, forms, limits,
    shape::{Bound, Shape, Wire, wire},
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Resume, Retained,
        Sample, Suspend, Unsupported,
    },
    strict::{Mistake, StrictError},
};

wire! {
    /// A node as it enrolled. `deployment_generation` and `specification_digest` never change afterwards.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Identity = "identity" {
        pub node_id: NodeId,
        pub installation_id: InstallationId,
        /// Docker or microsandbox.
        pub provider: ProviderKind,
        pub backend_fingerprint: Digest,
        pub deployment_generation: Generation,
        pub specification_digest: Digest,
        /// 1..1,000,000
        pub max_active: i64 where Bound::Range(1, limits::CAPACITY),
        /// max_active..1,000,000
        pub max_retained: i64 where Bound::Range(1, limits::CAPACITY),
    }
    rules {
        "max_retained is at least max_active" => |i| i.max_retained >= i.max_active,
    }
}

wire! {
    /// What a node measured and whether its provider answered. Unknown is null, never 0 (INV-N34).
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Health = "health" {
        /// False, without diagnostic, from a managing node.
        pub provider_ready: bool,
        /// The node's clock; informative.
        pub observed_at: Time,
        /// 0..32
        pub active_operations: i64 where Bound::Range(0, limits::OPERATIONS as i64),
        /// 0..1
        pub cpu_utilization: Nullable<f64> where Bound::Between(0.0, 1.0),
        /// At least 1.
        pub total_memory_bytes: Nullable<i64> where Bound::size(1),
        /// Above 0.
        pub effective_cpu_cores: Nullable<f64> where Bound::Above(0.0),
        #[serde(default)]
        pub cpu_count: Nullable<i64> [absent] where Bound::size(0),
        /// Not above the total when both are known.
        #[serde(default)]
        pub available_memory_bytes: Nullable<i64> [absent] where Bound::size(0),
        #[serde(default)]
        pub available_disk_bytes: Nullable<i64> [absent] where Bound::size(0),
        #[serde(default)]
        pub execution_class: Nullable<Digest> [absent],
        #[serde(default)]
        pub checkpoint_store: Nullable<StoreId> [absent],
        #[serde(default)]
        pub boot_id: Nullable<BootId> [absent],
        /// Empty equals absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub diagnostic: Option<Token> where forms::TOKEN,
        /// At most eight, distinct; only from a managing node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub generations: Option<Vec<GenerationStatus>> where Bound::Items(0, limits::STATUSES),
    }
    rules {
        "available_memory_bytes is at most total_memory_bytes" => |h| !matches!((h.total_memory_bytes.0, h.available_memory_bytes.0), (Some(t), Some(a)) if a > t),
        "generations are distinct" => |h| distinct(h.generations.iter().flatten().map(|s| s.generation)),
        "with generations, provider_ready is false and diagnostic absent or empty" => |h| h.generations.is_none() || h.fits_managing_node(),
    }
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

impl Wire for Token {
    const SHAPE: &'static Shape = &Shape::Text("token");

    fn within(&self, bound: &Bound) -> bool {
        self.0.within(bound)
    }
}

/// Empty equals absent.
fn is_told(diagnostic: &Option<Token>) -> bool {
    diagnostic.as_ref().is_some_and(|token| !token.0.is_empty())
}

impl Health {
    /// A managing node speaks of readiness per generation alone.
    fn fits_managing_node(&self) -> bool {
        !self.provider_ready && !is_told(&self.diagnostic)
    }
}

/// At most eight of them, so comparing all pairs is the least work.
fn distinct(generations: impl Iterator<Item = Generation> + Clone) -> bool {
    generations
        .clone()
        .enumerate()
        .all(|(i, g)| !generations.clone().take(i).any(|other| other == g))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GenerationState {
    Ready,
    Preparing,
    Failed,
}

impl Wire for GenerationState {
    const SHAPE: &'static Shape = &Shape::Words(&["ready", "preparing", "failed"]);
}

wire! {
    /// A managing node's word on one of its generations.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct GenerationStatus = "status" {
        pub generation: Generation,
        pub specification_digest: Digest,
        pub state: GenerationState,
        /// Never with `ready`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub diagnostic: Option<Token> where forms::TOKEN,
    }
    rules {
        "diagnostic is absent or empty with ready" => |s| s.state != GenerationState::Ready || !is_told(&s.diagnostic),
    }
}

wire! {
    /// What Core wants prepared, and what the node serves; for managing nodes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Deployment = "deployment" {
        pub generation: Generation,
        pub specification_digest: Digest,
        pub serving_generation: Nullable<Generation>,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Hello = "hello" {
        pub identity: Identity,
        pub health: Health,
        /// `false` equals absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub generation_management: Option<bool>,
    }
    rules {
        "health.generations come with generation_management alone" => |h| h.health.generations.is_none() || h.generation_management == Some(true),
        "with generation_management, health.provider_ready is false and health.diagnostic absent or empty" => |h| h.generation_management != Some(true) || h.health.fits_managing_node(),
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Welcome = "welcome" {
        pub connection_id: ConnectionId,
        pub owner_epoch: OwnerEpoch,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deployment: Option<Deployment>,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Heartbeat = "heartbeat" {
        pub connection_id: ConnectionId,
        pub owner_epoch: OwnerEpoch,
        pub health: Health,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HeartbeatAck = "heartbeat_ack" {
        pub connection_id: ConnectionId,
        pub owner_epoch: OwnerEpoch,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deployment: Option<Deployment>,
    }
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

wire! {
    /// A generation a node asks about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RetentionReference = "retention_reference" {
        pub generation: Generation,
        pub specification_digest: Digest,
    }
}

wire! {
    /// Core's answer about it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RetentionAnswer = "retention_answer" {
        pub generation: Generation,
        pub specification_digest: Digest,
        pub keep: bool,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Retention = "retention" {
        pub control: RetentionControl,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RetentionControl = "retention_control" {
        pub id: RequestId,
        pub sequence: i64 where Bound::POS,
        pub connection_id: ConnectionId,
        pub owner_epoch: OwnerEpoch,
        /// 1..8, distinct generations.
        pub references: Vec<RetentionReference> where Bound::Items(1, limits::STATUSES),
    }
    rules {
        "references name distinct generations" => |c| distinct(c.references.iter().map(|r| r.generation)),
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RetentionAck = "retention_ack" {
        pub control: RetentionAckControl,
        pub deployment: Deployment,
    }
}

wire! {
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RetentionAckControl = "retention_ack_control" {
        pub id: RequestId,
        pub sequence: i64 where Bound::POS,
        pub connection_id: ConnectionId,
        pub owner_epoch: OwnerEpoch,
        pub retentions: Vec<RetentionAnswer> where Bound::Items(1, limits::STATUSES),
    }
    rules {
        "retentions name distinct generations" => |c| distinct(c.retentions.iter().map(|r| r.generation)),
    }
}

/// Why a frame closes the connection. Holds no value of the frame but a known frame type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {bytes} bytes is over the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("version is not {}", crate::PROTOCOL_VERSION)]
    Version,
    #[error("type is unknown")]
    Type,
    #[error("type {kind} goes the other way: the sender of this frame only receives it")]
    Direction { kind: String },
    #[error("invalid frame: {0}")]
    Malformed(StrictError),
}

impl From<StrictError> for FrameError {
    fn from(error: StrictError) -> Self {
        if error.mistake == Mistake::Value && error.member == "version" {
            Self::Version
        } else {
            Self::Malformed(error)
        }
    }
}
