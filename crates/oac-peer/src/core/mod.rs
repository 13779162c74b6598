//! Core's end: greets a node that authenticated, records before it answers, sends requests within their budgets and
//! reads answers as the protocol does. Nothing that was sent and not answered is ever called absent.
//!
//! One [`Connection`] exists per accepted dial, from the reservation of its identity (after checks 1 to 6 of
//! protocol.md section 4, which belong to the HTTP edge) until the reservation is freed. Fixed nodes only: a hello with
//! `generation_management` is refused.

mod answer;
mod calls;
mod connection;
mod reservations;
#[cfg(test)]
mod tests;

use oac_model::{
    ConnectionId, Digest, Generation, InstallationId, NodeId, OwnerEpoch, ProviderKind, Reference, RequestId,
};
use oac_wire::frames::{Arguments, Deployment, FrameError, Health, Identity};

pub use answer::read_answer;
pub use connection::{Connection, StateName};
pub use reservations::{Reservations, Reserved};

use crate::{Moment, Outcome};

/// The authenticated node as Core's row has it; six members equal the hello's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub node_id: NodeId,
    pub installation_id: InstallationId,
    pub provider: ProviderKind,
    pub backend_fingerprint: Digest,
    /// As enrolled.
    pub deployment_generation: Generation,
    /// As enrolled.
    pub specification_digest: Digest,
    /// Known to manage generations; a hello that no longer says so closes.
    pub managing: bool,
}

/// What happens to a connection. `Message` is one whole text message.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time passed; see [`Connection::next_wakeup`].
    Tick,
    /// A byte of a protocol frame arrived then, perhaps some time ago (see [`crate::stream`]). A shell that sees
    /// whole messages only need not send it: `Message` counts by itself.
    Bytes(Moment),
    Message(&'a [u8]),
    /// A binary message, or one over the read limit.
    Unreadable,
    /// The socket ended, or a write failed or made no progress for 10 s.
    Lost,
    /// Answer to [`Action::RecordPresence`].
    PresenceRecorded(Recorded),
    /// Answer to [`Action::RecordHealth`].
    HealthRecorded(Recorded),
    /// Answer to [`Action::RemovePresence`], after as many attempts as it took.
    PresenceRemoved,
    /// Core no longer owns the epoch: nothing may be written for this connection any more.
    EpochLost,
    /// Core is stopping and still owns the epoch.
    Stop,
    /// The caller of this request waits no longer.
    GaveUp(RequestId),
}

/// What recording gave; a failure closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// Committed; with the deployment facts of that transaction for a managing node, `None` for a fixed one.
    Done(Option<Deployment>),
    Failed(RecordFailure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordFailure {
    #[error("storage failed")]
    Storage,
    #[error("the credential is no longer accepted")]
    Credential,
    #[error("the owner epoch is lost")]
    Epoch,
    #[error("a reported generation has another digest than Core keeps")]
    Digest,
}

/// What the hub must do, in this order.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// In one transaction: presence under this connection_id, then health; answer with `PresenceRecorded`.
    RecordPresence(Box<Presence>),
    Send(String),
    /// The connection takes calls from now on; the read limit is 72 MiB.
    Live,
    /// Authenticate the credential again, confirm the epoch, record; answer with `HealthRecorded`.
    RecordHealth(Box<Health>),
    /// Tell the caller, who still waits.
    Resolve(RequestId, CallOutcome),
    /// Drop the socket and log why.
    Close(CloseReason),
    /// Fenced to the connection_id; retried until done or the epoch is lost; answer with `PresenceRemoved`.
    RemovePresence(ConnectionId),
    /// The identity is free for another dial.
    Free,
}

/// What a valid hello says.
#[derive(Debug, Clone, PartialEq)]
pub struct Presence {
    pub connection_id: ConnectionId,
    pub owner_epoch: OwnerEpoch,
    pub identity: Identity,
    pub health: Health,
    pub managing: bool,
}

/// One operation to send. Whether the backend declares it is decided before a node is looked up.
#[derive(Debug, Clone)]
pub struct Call {
    /// Fresh.
    pub id: RequestId,
    pub generation: Generation,
    pub reference: Reference,
    pub arguments: Arguments,
    /// The caller waits no longer than this; the budget sent is what is left of it, at most 120 s.
    pub deadline: Moment,
    /// The reason Core's own declaration gives, when it declares the operation unsupported; evidence must repeat it.
    pub unsupported_reason: Option<&'static str>,
}

/// Nothing was sent: the operation has certainly not reached the node, and blocks nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    #[error("the node is not connected")]
    NotConnected,
    #[error("32 requests are pending at the node")]
    Full,
    #[error("a lifecycle mutation of the allocation is outstanding")]
    MutationOutstanding,
    #[error("the node does not serve the generation")]
    Generation,
    #[error("the node's provider is not ready")]
    NotReady,
    #[error("less than 1 ms is left of the deadline")]
    NoTime,
    #[error("the arguments are out of bounds")]
    Invalid(#[source] FrameError),
}

/// What became of a sent request.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    Answered(Outcome),
    /// It may or may not have taken effect; never evidence of absence.
    Uncertain(Uncertain),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Uncertain {
    #[error("no answer before the deadline")]
    Timeout,
    #[error("the connection ended before the answer")]
    Disconnected,
}

/// Why a connection ended (protocol.md section 12). For the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("no hello in time")]
    HelloLate,
    #[error("the first frame was no hello")]
    NotHello,
    #[error("the hello's identity is not the authenticated node's")]
    Identity,
    #[error("generation management is not offered by this Core")]
    Management,
    #[error("generations reported by a fixed node")]
    Generations,
    #[error("presence could not be recorded")]
    Presence(#[source] RecordFailure),
    #[error("health could not be recorded")]
    Health(#[source] RecordFailure),
    #[error("invalid frame")]
    InvalidFrame(#[source] FrameError),
    #[error("binary or oversized message")]
    Unreadable,
    #[error("a frame that has no place here")]
    UnexpectedFrame,
    #[error("another connection_id")]
    ConnectionId,
    #[error("another owner_epoch")]
    OwnerEpoch,
    #[error("a retention frame from a fixed node")]
    Retention,
    #[error("35 s of silence")]
    Silence,
    #[error("the connection was lost")]
    Lost,
    #[error("a frame of Core's own could not be written")]
    OwnFrame(#[source] FrameError),
    #[error("the owner epoch is lost")]
    EpochLost,
    #[error("Core is stopping")]
    Stopping,
}
