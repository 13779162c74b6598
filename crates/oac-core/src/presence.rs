//! Which nodes are online, and what they last said of themselves (core.md section 10, protocol.md sections 4 and 6).
//!
//! Everything here is fenced twice: to the owner's epoch by the transaction, to the connection by its id in the node's
//! row. A node's credential is compared again at every heartbeat, so that a removed node ends with its next one.
//!
//! Ten thousand nodes make a thousand heartbeats a second, and a database makes each transaction durable on its own. So
//! reports share transactions: [`Reports`] gathers what arrives while one runs, [`record`] judges each of them under
//! its node's lock, and whatever is wrong with one is answered to that one alone.

mod generations;
mod record;
mod reports;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oac_model::{ConnectionId, Digest, NodeId};
use oac_peer::core::{Facts, Presence, RecordFailure, Recorded};
use oac_store::{Ownership, StoreError};
use oac_wire::frames::Health;

use crate::{Core, task::Kind};

pub(crate) use generations::answer_retention;
pub(crate) use reports::Reports;

/// How often the rows of generations that nothing keeps are removed.
const COLLECT_TIMER: Duration = Duration::from_secs(600);
/// Tries of one transaction that met a busy database.
const TRIES: u32 = 3;

/// One connection of one node, as its hello or upgrade proved it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) node_id: NodeId,
    pub(crate) connection_id: ConnectionId,
    pub(crate) ownership: Ownership,
    /// SHA-256 of the credential it connected with.
    pub(crate) credential: Digest,
}

/// What is to be recorded of one connection.
#[derive(Debug)]
pub(crate) struct Report {
    subject: Subject,
    said: Said,
    /// Since when it was found that another transaction holds its node's row.
    held: Option<Instant>,
}

#[derive(Debug)]
enum Said {
    Hello(Box<Presence>),
    Heartbeat(Box<Health>),
    /// Said by its end: presence is removed.
    Goodbye,
}

/// What became of a report: the facts for a managing node of the transaction that stored it.
type Answer = Result<Option<Facts>, RecordFailure>;

/// Why presence was not removed.
pub(crate) enum RemoveError {
    EpochLost,
    Storage,
}

/// Why a step was not stored.
enum Failure {
    Refused(RecordFailure),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotOwner { .. } => Self::Refused(RecordFailure::Epoch),
            other => Self::Store(other),
        }
    }
}

impl From<RecordFailure> for Failure {
    fn from(failure: RecordFailure) -> Self {
        Self::Refused(failure)
    }
}

/// Records presence and the first health report.
pub(crate) async fn record(core: &Arc<Core>, subject: &Subject, presence: Box<Presence>) -> Recorded {
    recorded(reports::stored(core, subject, Said::Hello(presence)).await)
}

/// Records a health report.
pub(crate) async fn heartbeat(core: &Arc<Core>, subject: &Subject, health: Box<Health>) -> Recorded {
    recorded(reports::stored(core, subject, Said::Heartbeat(health)).await)
}

fn recorded(answer: Answer) -> Recorded {
    match answer {
        Ok(facts) => Recorded::Done(facts),
        Err(failure) => Recorded::Failed(failure),
    }
}

/// Removes the presence of exactly this connection; of another one nothing (INV-P5).
pub(crate) async fn remove(core: &Arc<Core>, subject: &Subject) -> Result<(), RemoveError> {
    match reports::stored(core, subject, Said::Goodbye).await {
        Ok(_) => Ok(()),
        Err(RecordFailure::Epoch) => Err(RemoveError::EpochLost),
        Err(_) => Err(RemoveError::Storage),
    }
}

/// Starts this part's worker; reports start what stores them.
pub fn start(core: &Arc<Core>) {
    core.tasks.spawn(
        Kind::Worker,
        "generation rows",
        generations::collect(core.clone()),
    );
}
