//! What may happen to an allocation that can be suspended.

use std::collections::BTreeSet;

use oac_model::{NodeId, OperationId};

use super::{Answer, Held, Observation, Request};
use crate::allocation::{self, Cause};

/// What may happen to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Generation 0 is recorded.
    Named,
    /// Admitted under the Session's lock; the suspend is stored as intent.
    QuiescingBegun(OperationId),
    QuiesceRefused,
    /// The runtime is parked, and nothing was wanted of it meanwhile.
    Quiesced,
    /// The target is recorded at this node and the slots are moved there.
    RestoreIntended(NodeId),
    /// A mutation of an existing compute or checkpoint.
    Intended(Request),
    MarkedSent,
    /// The open mutation's frame never left.
    NotSent,
    /// It was sent, and no answer will count any more.
    AnswerLost,
    Answered(Answer),
    Observed {
        node: NodeId,
        of: Observation,
        answer: Answer,
    },
    /// The first ready link of the current compute.
    Linked,
    LossConfirmed,
    GivenUp(Cause),
    /// An operator accepts that the former computes at these nodes are never confirmed ended.
    Forgotten(BTreeSet<NodeId>),
    /// Cleanup's `kill`, and `info` at the allocation's node.
    Base(allocation::Event),
}

/// An event that this state does not allow; nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an allocation in {held:?} does not allow {event:?}")]
pub struct Refused {
    pub held: Box<Held>,
    pub event: Event,
}

impl From<allocation::Event> for Event {
    fn from(event: allocation::Event) -> Self {
        match event {
            allocation::Event::MarkedSent => Self::MarkedSent,
            allocation::Event::NotSent => Self::NotSent,
            allocation::Event::AnswerLost => Self::AnswerLost,
            allocation::Event::LossConfirmed => Self::LossConfirmed,
            allocation::Event::GivenUp(cause) => Self::GivenUp(cause),
            other => Self::Base(other),
        }
    }
}
