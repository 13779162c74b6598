//! Core's end: greets a node that authenticated, records before it answers, sends requests within their budgets and
//! reads answers as the protocol does. Nothing that was sent and not answered is ever called absent.
//!
//! One [`Connection`] exists per accepted dial, from the reservation of its identity (after checks 1 to 6 of
//! protocol.md section 4, which belong to the HTTP edge) until the reservation is freed. What only the database knows
//! (which generations are kept, whether the credential still opens anything) is asked for with an action and judged
//! when its answer comes back as an event.

mod answer;
mod calls;
mod connection;
mod live;
mod reservations;
#[cfg(test)]
mod tests;

use oac_model::{
    ConnectionId, Digest, Generation, InstallationId, NodeId, OwnerEpoch, ProviderKind, Reference, RequestId,
    Time,
};
use oac_wire::frames::{Arguments, Deployment, FrameError, Health, Identity, RetentionReference};

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
    /// With Core's wall clock, which no telemetry is ahead of.
    Message(&'a [u8], Time),
    /// A binary message, or one over the read limit.
    Unreadable,
    /// The socket ended, or a write failed or made no progress for 10 s.
    Lost,
    /// Answer to [`Action::RecordPresence`].
    PresenceRecorded(Recorded),
    /// Answer to [`Action::RecordHealth`].
    HealthRecorded(Recorded),
    /// Answer to [`Action::AnswerRetention`].
    RetentionAnswered(RetentionAnswer),
    /// Answer to [`Action::RemovePresence`], after as many attempts as it took.
    PresenceRemoved,
    /// Core no longer owns the epoch: nothing may be written for this connection any more.
    EpochLost,
    /// Core is stopping and still owns the epoch.
    Stop,
}

/// What recording gave; a failure closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// Committed; with the facts of that transaction for a managing node, `None` for a fixed one.
    Done(Option<Facts>),
    Failed(RecordFailure),
}

/// What a managing node is told, and what became of what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub deployment: Deployment,
    /// Reported generations that Core does not keep; what was said of them counts for nothing.
    pub ignored: Vec<Generation>,
}

/// What Core's rows say about the generations of one retention request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetentionAnswer {
    /// One answer for each entry, in its order.
    Done {
        keep: Vec<bool>,
        deployment: Deployment,
    },
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
    #[error("a named generation has another digest than Core keeps")]
    Digest,
    #[error("nothing is deployed")]
    NotDeployed,
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
    /// Decide in one statement which of these are kept, and forget what the node said of the others; answer with
    /// `RetentionAnswered`.
    AnswerRetention(Vec<RetentionReference>),
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
    #[error("this Core no longer owns the epoch of the connection, or too little of its lease is left")]
    NotOwner,
    #[error("32 requests of the connection are pending")]
    Full,
    #[error("a lifecycle mutation of the allocation is outstanding")]
    MutationOutstanding,
    #[error("the node does not serve the generation")]
    Generation,
    #[error("the generation is not ready at the node")]
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
    #[error("a node known to manage generations no longer says so")]
    Management,
    #[error("generations reported by a fixed node")]
    Generations,
    #[error("readiness of its own reported by a managing node")]
    ManagedReadiness,
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
    #[error("a retention sequence that is not the next")]
    RetentionSequence,
    #[error("a retention request while another has no answer yet")]
    RetentionPending,
    #[error("a retention request could not be answered")]
    RetentionAnswer(#[source] RecordFailure),
    #[error("35 s of silence")]
    Silence,
    #[error("the connection was lost")]
    Lost,
    #[error("a frame of Core's own could not be made")]
    OwnFrame(#[source] FrameError),
    #[error("the owner epoch is lost")]
    EpochLost,
    #[error("Core is stopping")]
    Stopping,
}
