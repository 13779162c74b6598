//! Calling a node.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_model::{ConnectionId, Generation, NodeId, ProviderKind, Reference, RequestId};
use oac_peer::{
    FailureCode, Outcome,
    core::{Call, CallOutcome as Answered},
};
use oac_provider::Support;
use oac_wire::{
    frames::{Arguments, ResponseResult},
    shapes::Info,
};

use super::{Hub, connection::Peer};
use crate::owner::OwnerHandle;

/// One operation for one allocation.
#[derive(Debug, Clone)]
pub struct Request {
    pub node_id: NodeId,
    /// The allocation's; it names the provider the node runs it on.
    pub generation: Generation,
    pub provider: ProviderKind,
    pub reference: Reference,
    pub arguments: Arguments,
    /// Only on this connection; on another one nothing is sent.
    pub on: Option<ConnectionId>,
    /// The caller waits no longer; at most 120 s of it travel.
    pub wait: Duration,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallOutcome {
    /// Success with the result the operation table names; `None` for the three without one.
    Ok(Option<ResponseResult>),
    /// A typed refusal. `receipt` is a settled receipt of exactly the request's reference.
    Refused { code: Refusal, receipt: Option<Info> },
    /// The provider declares the operation absent; no native work happened. Settles nothing.
    Unsupported,
    /// Answered, and the outcome is unknown.
    Unconfirmed,
    /// Sent, without a usable answer: a timeout or a disconnect. Never evidence of absence (INV-P10).
    Uncertain,
    /// Nothing was sent.
    Unavailable,
}

impl CallOutcome {
    /// Its name in metrics and traces.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::Refused { .. } => "refused",
            Self::Unsupported => "unsupported",
            Self::Unconfirmed => "unconfirmed",
            Self::Uncertain => "uncertain",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The codes of the protocol's table, `unsupported` and `unconfirmed` aside.
pub type Refusal = FailureCode;

impl Hub {
    /// Sends one operation and waits for its answer.
    ///
    /// A mutation is refused unsent with less than 5 s of lease left (INV-C27). The caller has stored it as `sent` before,
    /// so `Unavailable` here is the one proof that it may store that nothing left.
    pub async fn call(&self, owner: &OwnerHandle, request: Request) -> CallOutcome {
        let operation = request.arguments.operation();
        let id = RequestId::random();
        let began = Instant::now();
        let mut span = self.traces.calls(
            ["call", operation.as_str()],
            id.as_uuid(),
            request.reference.allocation_id.as_uuid(),
        );
        span.set("oac.operation", operation.as_str());
        span.set("oac.request_id", id.as_uuid());
        span.set("oac.allocation_id", request.reference.allocation_id.as_uuid());
        span.set("oac.node_id", request.node_id.as_uuid());
        let outcome = self.called(owner, id, request).await;
        self.metrics.operated(operation, &outcome, began.elapsed());
        span.set("oac.outcome", outcome.as_str());
        if !matches!(outcome, CallOutcome::Ok(_)) {
            span.failed();
        }
        outcome
    }

    async fn called(&self, owner: &OwnerHandle, id: RequestId, request: Request) -> CallOutcome {
        let operation = request.arguments.operation();
        // Rejected before a node is looked up (P-072). A backend without declarations does nothing at all.
        if !oac_provider::declarations_of(request.provider)
            .is_some_and(|declared| declared.support(operation) == Support::Supported)
        {
            return CallOutcome::Unsupported;
        }
        let Some(peer) = self.peer(request.node_id) else {
            return CallOutcome::Unavailable;
        };
        if request.on.is_some_and(|on| on != peer.connection_id) {
            return CallOutcome::Unavailable;
        }
        let call = Call {
            id,
            generation: request.generation,
            reference: request.reference,
            arguments: request.arguments,
            deadline: peer.deadline(request.wait),
            // What is declared unsupported was never sent.
            unsupported_reason: None,
        };
        // Asked while sending is locked: nothing comes between the look at the lease and the frame's place in the queue.
        let fenced =
            || owner.ownership() == Some(peer.ownership) && (!operation.is_mutation() || owner.may_mutate());
        let answer = match peer.send(call, fenced) {
            Ok(answer) => answer,
            Err(unsent) => {
                tracing::debug!(node_id = %request.node_id, operation = operation.as_str(), %unsent, "not sent");
                return CallOutcome::Unavailable;
            }
        };
        let waiting = Waiting { peer, id };
        let answer = answer.await;
        drop(waiting);
        match answer {
            Ok(Answered::Answered(outcome)) => outcome.into(),
            Ok(Answered::Uncertain(_)) | Err(_) => CallOutcome::Uncertain,
        }
    }
}

/// Tells the connection when the caller is dropped before its answer.
struct Waiting {
    peer: Arc<Peer>,
    id: RequestId,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.peer.give_up(self.id);
    }
}

impl From<Outcome> for CallOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success(result) => Self::Ok(result),
            Outcome::Failed {
                code: FailureCode::Unconfirmed,
                receipt: None,
            } => Self::Unconfirmed,
            Outcome::Failed { code, receipt } => Self::Refused { code, receipt },
            Outcome::Unsupported(_) => Self::Unsupported,
        }
    }
}
