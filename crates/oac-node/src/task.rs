//! The node's tasks, by kind. An *errand* serves the connection and may be dropped at any await; an *operation* is
//! waited for, 10 s at shutdown, and its native work outlives even that (node.md section 1). The *child* of a managing
//! node is killed and then waited for.

use std::{collections::HashMap, future::Future, sync::Arc};

use oac_generations::Use;
use oac_model::{Generation, Reference};
use oac_peer::{
    Outcome,
    node::{Attempt, Refresh, Ticket},
};
use oac_provider::{ProbeError, Provider};
use oac_telemetry::traces::Span;
use oac_wire::frames::Health;
use tokio::task::{AbortHandle, Id, JoinSet};

use crate::{
    core::{Connection, DialError},
    managing::ChildEnd,
};

/// What a task ended with.
#[derive(Debug)]
pub(crate) enum Done {
    Dialed(Result<Box<Connection>, DialError>),
    Measured(Attempt, Box<Health>),
    /// A managing node's probe of one generation; `None` where its task broke.
    Probed(Generation, Option<Result<(), ProbeError>>),
    /// A child was waited for.
    Child(Box<ChildEnd>),
    Refreshed(Refresh),
    /// The provider's call returned; the span is open until the native work has ended.
    Answered(Ticket, Reference, Outcome, Box<Engaged>, Span),
    /// The native work ended, or its task did.
    Ended(Ticket),
    /// Maintenance, or a task that was dropped or broke.
    Nothing,
}

/// What an operation runs on, until its native work ended.
#[derive(Clone)]
pub(crate) struct Engaged {
    pub(crate) provider: Arc<dyn Provider>,
    /// Keeps the generation of a managing node.
    pub(crate) _kept: Option<Use>,
}

impl std::fmt::Debug for Engaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engaged")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    errands: JoinSet<Done>,
    /// Which errands are probes, and of what.
    probes: HashMap<Id, Generation>,
    /// Of a managing node; at most one.
    child: JoinSet<Done>,
    operations: JoinSet<Done>,
    tickets: HashMap<Id, Ticket>,
}

impl Tasks {
    pub(crate) fn errand(&mut self, work: impl Future<Output = Done> + Send + 'static) -> AbortHandle {
        self.errands.spawn(work)
    }

    /// Whatever becomes of it, its end is told.
    pub(crate) fn probe(
        &mut self,
        generation: Generation,
        work: impl Future<Output = Result<(), ProbeError>> + Send + 'static,
    ) {
        let probe = async move { Done::Probed(generation, Some(work.await)) };
        let id = self.errands.spawn(probe).id();
        self.probes.insert(id, generation);
    }

    pub(crate) fn operation(&mut self, ticket: Ticket, work: impl Future<Output = Done> + Send + 'static) {
        let id = self.operations.spawn(work).id();
        self.tickets.insert(id, ticket);
    }

    /// Waits for the child of a managing node.
    pub(crate) fn child(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.child.spawn(work);
    }

    /// The next task that ends; pending while there is none. Cancel safe.
    pub(crate) async fn next(&mut self) -> Done {
        tokio::select! {
            Some(errand) = self.errands.join_next_with_id() => match errand {
                Ok((id, done)) => {
                    self.probes.remove(&id);
                    done
                }
                Err(error) => {
                    if error.is_panic() {
                        tracing::error!("a task of the connection broke");
                    }
                    let probe = self.probes.remove(&error.id());
                    probe.map_or(Done::Nothing, |generation| Done::Probed(generation, None))
                }
            },
            Some(child) = self.child.join_next() => child.unwrap_or_else(|error| {
                std::panic::resume_unwind(error.into_panic())
            }),
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

    /// Drops the errands and waits for the child, which was killed, and the operations, as long as `patience` lasts; false when some went on.
    pub(crate) async fn finish(&mut self, patience: std::time::Duration) -> bool {
        self.errands.shutdown().await;
        let (operations, child) = (&mut self.operations, &mut self.child);
        let drained = async {
            while child.join_next().await.is_some() {}
            while operations.join_next().await.is_some() {}
        };
        tokio::time::timeout(patience, drained).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_probe_whose_task_broke_has_ended() {
        let generation = Generation::try_from(1).unwrap();
        let mut tasks = Tasks::default();
        tasks.probe(generation, async { panic!("broke") });
        assert!(matches!(tasks.next().await, Done::Probed(of, None) if of == generation));
        tasks.probe(generation, async { Ok(()) });
        assert!(matches!(tasks.next().await, Done::Probed(of, Some(Ok(()))) if of == generation));
        assert!(tasks.probes.is_empty());
    }
}
