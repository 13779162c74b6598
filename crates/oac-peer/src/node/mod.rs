//! The node's end: dials, greets, beats, runs requests in the order of protocol.md section 7, and never runs one that
//! the protocol forbids.
//!
//! The connection comes and goes; the schedule of started operations stays, because native work outlives the
//! connection that asked for it. A fixed node serves its enrolled generation and closes on a deployment; a managing one
//! reports its generations, adopts deployments, and asks which generations Core still keeps. Whatever it then permits
//! to be collected is permitted on that connection alone.

mod answers;
mod backoff;
mod generations;
mod live;
mod machine;
mod schedule;
#[cfg(test)]
mod tests;

use oac_model::{ConnectionId, OwnerEpoch, RequestId};
use oac_wire::{
    frames::{Deployment, FrameError, Health, Identity, RequestBody, RetentionReference},
    shapes::Operation,
};

pub use generations::{Local, Standing};
pub use machine::{Node, StateName};
pub use schedule::Ticket;

use crate::{Moment, Outcome};

/// What happens to a node. `Message` is one whole text message.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time passed; see [`Node::next_wakeup`].
    Tick,
    /// The upgrade was answered 101.
    Upgraded,
    /// The upgrade was answered 401, by Core or by something between.
    Refused,
    /// Any other answer, or a network failure.
    DialFailed,
    /// A byte of a protocol frame arrived then, perhaps some time ago (see [`crate::stream`]).
    Bytes(Moment),
    Message(&'a [u8]),
    /// A binary message, or one over the read limit.
    Unreadable,
    /// The socket ended, or a write failed or made no progress for 10 s.
    Lost,
    /// Answer to [`Action::Measure`]; `active_operations` is filled in here, and what a managing node says of its
    /// generations in place of `provider_ready` and `diagnostic`.
    Measured(Attempt, Box<Health>),
    /// Answer to [`Action::StoreEpoch`].
    EpochStored(bool),
    /// Answer to [`Action::Refresh`].
    Refreshed(Refresh),
    /// A started operation's call returned.
    Answered(Ticket, Outcome),
    /// A started operation's native work ended.
    Ended(Ticket),
    /// What a managing node's host holds changed; the whole table.
    Generations(Vec<Local>),
    /// SIGTERM or SIGINT.
    Stop,
}

/// One dial and what came of it; a measurement belongs to the attempt it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub(crate) u64);

/// What reading `identity.json` and GET identity again gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Refresh {
    Confirmed {
        identity: Box<Identity>,
        /// As stored; 0 before the first welcome.
        stored_epoch: i64,
    },
    /// 401 with `invalid_node_credential` from Core.
    Refused,
    Failed,
}

/// What a shell must do, in this order.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Dial and upgrade within [`crate::limits::DIAL_MILLIS`].
    Dial,
    /// Measure the host and probe the provider, at most 5 s; answer with `Measured`.
    Measure(Attempt),
    Send(String),
    /// Make the epoch durable before any further message is read; answer with `EpochStored`.
    StoreEpoch(OwnerEpoch),
    /// The connection accepts requests from now on; the read limit is 72 MiB.
    Accepted(ConnectionId, OwnerEpoch),
    /// Drop the dial or the connection and log why. Every grant of this connection ends with it.
    Close(Reason),
    /// The deployment that this connection delivered first, or a changed one: preparation may start.
    Deployment(Deployment),
    /// Core keeps these no longer: necessary, never sufficient, for collecting them, and only while this connection is
    /// current.
    Granted(ConnectionId, Vec<RetentionReference>),
    /// Read the identity file and GET identity again; answer with `Refreshed`.
    Refresh,
    /// Start an operation; answer with `Answered`, then `Ended`.
    Run(Job),
    /// End the program.
    Exit(Exit),
}

/// An operation whose turn has come.
#[derive(Debug, PartialEq)]
pub struct Job {
    pub ticket: Ticket,
    /// The request's own id, which Core knows too.
    pub id: RequestId,
    /// The caller's wait ends here, queueing included.
    pub deadline: Moment,
    pub request: Box<RequestBody>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Status 0.
    Stopped,
    /// Status 78: Core refuses the credential.
    Unauthorized,
}

/// Why a connection or an attempt ended. For the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("the node is stopping")]
    Stopping,
    #[error("Core did not answer the upgrade in time")]
    DialLate,
    #[error("Core could not be reached or refused the upgrade")]
    DialFailed,
    #[error("Core answered 401; the identity is confirmed before the node believes it")]
    Refused,
    #[error("no health report could be made in time")]
    ReportLate,
    #[error("Core sent no welcome in time")]
    WelcomeLate,
    #[error("Core sent an invalid frame")]
    InvalidFrame(#[source] FrameError),
    #[error("Core sent a binary or oversized message")]
    Unreadable,
    #[error("Core sent a frame that has no place here")]
    UnexpectedFrame,
    #[error("Core sent a deployment to a fixed node")]
    SuperfluousDeployment,
    #[error("Core sent no deployment to a managing node")]
    MissingDeployment,
    #[error("Core answered no retention request within 35 s")]
    RetentionUnanswered,
    #[error("Core was silent for 35 s")]
    Silence,
    #[error("the connection was lost")]
    Lost,
    #[error("the owner epoch could not be stored")]
    EpochNotStored,
    #[error("a frame of the node's own could not be made")]
    OwnFrame(#[source] FrameError),
    #[error("the request queue is full")]
    QueueFull,
    #[error("ownership violation: {0}")]
    Violation(Violation),
}

/// A claim of ownership that contradicts what the node knows; the identity is read again before the next dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("another connection_id")]
    Connection,
    #[error("another owner_epoch")]
    Epoch,
    #[error("an owner_epoch below the stored one")]
    EpochLower,
    #[error("a sequence that is not the next")]
    Sequence,
    #[error("a deployment_generation other than the enrolled one")]
    Generation,
    #[error("a retention_ack that is not the answer to the pending request")]
    Retention,
    #[error("a serving generation above the target")]
    ServingAboveTarget,
    #[error("another digest for a generation that is known")]
    DeploymentDigest,
    #[error("a target or serving generation that is being removed here or was")]
    DeploymentRemoved,
}

/// What an answer needs to find its request again.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: RequestId,
    operation: Operation,
    reference: oac_model::Reference,
}
