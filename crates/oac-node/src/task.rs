//! The node's tasks, by kind. An *errand* serves the connection and may be dropped at any await; an *operation* is
//! waited for, 10 s at shutdown, and its native work outlives even that (node.md section 1).

use std::{collections::HashMap, future::Future};

use oac_model::Reference;
use oac_peer::{
    Outcome,
    node::{Attempt, Refresh, Ticket},
};
use oac_wire::frames::Health;
use tokio::task::{AbortHandle, Id, JoinSet};

use crate::core::{Connection, DialError};

/// What a task ended with.
#[derive(Debug)]
pub(crate) enum Done {
    Dialed(Result<Box<Connection>, DialError>),
    Measured(Attempt, Box<Health>),
    Refreshed(Refresh),
    /// The provider's call returned.
    Answered(Ticket, Reference, Outcome),
    /// The native work ended, or its task did.
    Ended(Ticket),
    /// Maintenance, or a task that was dropped or broke.
    Nothing,
}

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    errands: JoinSet<Done>,
    operations: JoinSet<Done>,
    tickets: HashMap<Id, Ticket>,
}

impl Tasks {
    pub(crate) fn errand(&mut self, work: impl Future<Output = Done> + Send + 'static) -> AbortHandle {
        self.errands.spawn(work)
    }

    pub(crate) fn operation(&mut self, ticket: Ticket, work: impl Future<Output = Done> + Send + 'static) {
        let id = self.operations.spawn(work).id();
        self.tickets.insert(id, ticket);
    }

    /// The next task that ends; pending while there is none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Done {
        tokio::select! {
            Some(errand) = self.errands.join_next() => match errand {
                Ok(done) => done,
                Err(error) => {
                    if error.is_panic() {
                        tracing::error!("a task of the connection broke");
                    }
                    Done::Nothing
                }
            },
            Some(operation) = self.operations.join_next_with_id() => match operation {
                Ok((id, done)) => {
                    self.tickets.remove(&id);
                    done
                }
                Err(error) => {
                    tracing::error!(event = "operation_broke", "an operation's task broke; its outcome is unknown");
                    self.tickets.remove(&error.id()).map_or(Done::Nothing, Done::Ended)
                }
            },
            else => std::future::pending().await,
        }
    }

    /// Drops the errands and waits for the operations, as long as `patience` lasts; false when some went on.
    pub(crate) async fn finish(&mut self, patience: std::time::Duration) -> bool {
        self.errands.shutdown().await;
        let operations = &mut self.operations;
        let drained = async { while operations.join_next().await.is_some() {} };
        tokio::time::timeout(patience, drained).await.is_ok()
    }
}
