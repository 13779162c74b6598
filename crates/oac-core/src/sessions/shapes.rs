//! What the Session routes answer (sessions.md sections 2 and 3).

use std::collections::BTreeMap;

use oac_model::{
    AllocationId, ComputePhase, EnvironmentId, InputId, NodeId, ProviderKind, SessionId, SessionState, Time,
    TurnId, TurnState,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::allocations::SandboxState;

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Network)]
pub(crate) struct NetworkShape {
    #[schema(value_type = NetworkAccessShape)]
    pub access: oac_model::NetworkAccess,
    /// With access `restricted`: host names, each covering its subdomains.
    pub allowed_domains: Vec<String>,
}

#[derive(ToSchema)]
#[schema(as = NetworkAccess, rename_all = "snake_case")]
#[allow(dead_code)] // Describes `oac_model::NetworkAccess` in the OpenAPI document.
pub(crate) enum NetworkAccessShape {
    None,
    Restricted,
    Public,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionShape {
    #[schema(value_type = uuid::Uuid)]
    pub id: SessionId,
    #[schema(required)]
    pub name: Option<String>,
    #[schema(value_type = SessionStateShape)]
    pub state: SessionState,
    /// Why the Session failed.
    #[schema(required)]
    pub reason: Option<String>,
    #[schema(value_type = uuid::Uuid)]
    pub environment_id: EnvironmentId,
    pub network: NetworkShape,
    pub metadata: BTreeMap<String, String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub archived_at: Option<Time>,
    #[schema(value_type = String, format = DateTime)]
    pub last_activity_at: Time,
    /// Where the Environment's compute is; null while it has none.
    #[schema(required)]
    pub placement: Option<PlacementShape>,
    pub sandbox: SandboxShape,
    pub turns: TurnCounts,
}

#[derive(ToSchema)]
#[schema(as = SessionState, rename_all = "snake_case")]
#[allow(dead_code)]
pub(crate) enum SessionStateShape {
    Idle,
    Busy,
    Failed,
    Archived,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Placement)]
pub(crate) struct PlacementShape {
    #[schema(value_type = String)]
    pub backend: ProviderKind,
    /// Null with E2B.
    #[schema(required, value_type = Option<uuid::Uuid>)]
    pub node_id: Option<NodeId>,
    /// The deployment generation the sandbox runs.
    pub generation: i64,
    /// Whether the node is online; always true with E2B.
    pub online: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Sandbox)]
pub(crate) struct SandboxShape {
    pub state: SandboxState,
    #[schema(required, value_type = Option<String>)]
    pub compute_phase: Option<ComputePhase>,
    /// Empty, or why the sandbox cannot be reached or proven.
    pub diagnostic: String,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub changed_at: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TurnCounts {
    /// Queued or waiting.
    pub queued: u64,
    pub running: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Input)]
pub(crate) struct InputShape {
    #[schema(value_type = uuid::Uuid)]
    pub id: InputId,
    #[schema(value_type = uuid::Uuid)]
    pub session_id: SessionId,
    pub args: Vec<String>,
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    pub timeout_seconds: u32,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Turn)]
pub(crate) struct TurnShape {
    #[schema(value_type = uuid::Uuid)]
    pub id: TurnId,
    #[schema(value_type = uuid::Uuid)]
    pub session_id: SessionId,
    /// From 1; the order of execution.
    pub sequence: i64,
    #[schema(value_type = TurnStateShape)]
    pub state: TurnState,
    pub input: InputShape,
    /// Where it was sent.
    #[schema(required, value_type = Option<uuid::Uuid>)]
    pub allocation_id: Option<AllocationId>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Time>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Time>,
    #[schema(required)]
    pub exit_code: Option<i64>,
    #[schema(required)]
    pub signal: Option<i64>,
    #[schema(required)]
    pub reason: Option<String>,
    /// Bytes the process wrote, as far as Core knows; the first 16 MiB can be read.
    pub output_bytes: u64,
    pub output_truncated: bool,
}

#[derive(ToSchema)]
#[schema(as = TurnState, rename_all = "snake_case")]
#[allow(dead_code)]
pub(crate) enum TurnStateShape {
    Queued,
    Waiting,
    Running,
    Completed,
    Failed,
    TimedOut,
    Canceled,
    Interrupted,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubmittedInput {
    pub input: InputShape,
    pub turn: TurnShape,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    pub data: Vec<SessionShape>,
    /// Pass as `cursor` for the next page; null on the last.
    #[schema(required)]
    pub next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TurnPage {
    pub data: Vec<TurnShape>,
    /// Pass as `cursor` for the next page; null on the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// The final event of an output stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OutputEnd {
    #[schema(value_type = TurnStateShape)]
    pub state: TurnState,
    #[schema(required)]
    pub exit_code: Option<i64>,
    #[schema(required)]
    pub signal: Option<i64>,
    #[schema(required)]
    pub reason: Option<String>,
    pub output_bytes: u64,
    pub output_truncated: bool,
}
