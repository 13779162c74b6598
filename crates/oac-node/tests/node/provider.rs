//! A provider whose every call is handed to the test, which answers it when it likes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use async_trait::async_trait;
use oac_model::{DiagnosticCode, NetworkAccess, Reference};
use oac_provider::{Cause, CreateFailure, Declarations, Failure, ProbeError, Provider, Support};
use oac_wire::shapes::{Bootstrap, Command, CommandResult, Info, Observation, Operation, Sample};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

/// One call under way.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) operation: Operation,
    pub(crate) reference: Reference,
    pub(crate) stdin: usize,
    answer: oneshot::Sender<Reply>,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Info(Info),
    Command(CommandResult),
    Nothing,
    Failed(Failure, Option<Info>),
}

impl Called {
    pub(crate) fn reply(self, reply: Reply) {
        // The node may have stopped waiting.
        let _ = self.answer.send(reply);
    }
}

pub(crate) struct Scripted {
    declarations: Declarations,
    calls: mpsc::Sender<Called>,
    pub(crate) probe: Mutex<Result<(), DiagnosticCode>>,
    pub(crate) probes: AtomicUsize,
    /// Native work of every reference is under way while this is true.
    pub(crate) busy: watch::Sender<bool>,
}

pub(crate) const PRIVATE_TEXT: &str = "secret text of the engine at /var/lib/private";

/// The provider, and its calls.
pub(crate) fn scripted() -> (Arc<Scripted>, mpsc::Receiver<Called>) {
    let supported = [
        Operation::Create,
        Operation::Info,
        Operation::Renew,
        Operation::Kill,
        Operation::Command,
        Operation::Observe,
    ];
    let all: Vec<_> = Operation::ALL
        .iter()
        .map(|operation| match supported.contains(operation) {
            true => (*operation, Support::Supported),
            false => (*operation, Support::Unsupported("scripted_reason")),
        })
        .collect();
    let (calls, called) = mpsc::channel(64);
    let provider = Scripted {
        declarations: Declarations::new(&all, &[NetworkAccess::Public]).unwrap(),
        calls,
        probe: Mutex::new(Ok(())),
        probes: AtomicUsize::new(0),
        busy: watch::Sender::new(false),
    };
    (Arc::new(provider), called)
}

impl Scripted {
    async fn call(&self, operation: Operation, reference: &Reference, stdin: usize) -> Reply {
        let (answer, answered) = oneshot::channel();
        let called = Called {
            operation,
            reference: *reference,
            stdin,
            answer,
        };
        self.calls.send(called).await.unwrap();
        answered
            .await
            .unwrap_or_else(|_| Reply::Failed(unconfirmed(), None))
    }

    async fn info_of(&self, operation: Operation, r: &Reference) -> Result<Info, Failure> {
        match self.call(operation, r, 0).await {
            Reply::Info(info) => Ok(info),
            Reply::Failed(failure, _) => Err(failure),
            other => panic!("{other:?} is no answer to {operation:?}"),
        }
    }
}

pub(crate) fn unconfirmed() -> Failure {
    Failure::Unconfirmed(Cause::new(PRIVATE_TEXT))
}

#[async_trait]
impl Provider for Scripted {
    fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    async fn probe(&self, _by: Instant) -> Result<(), ProbeError> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        self.probe.lock().map_err(|code| ProbeError {
            code,
            text: PRIVATE_TEXT.into(),
        })
    }

    async fn create(&self, b: &Bootstrap, _by: Instant) -> Result<Info, CreateFailure> {
        match self.call(Operation::Create, &b.reference, 0).await {
            Reply::Info(info) => Ok(info),
            Reply::Failed(failure, receipt) => Err(CreateFailure { failure, receipt }),
            other => panic!("{other:?} is no answer to create"),
        }
    }

    async fn info(&self, r: &Reference, _by: Instant) -> Result<Info, Failure> {
        self.info_of(Operation::Info, r).await
    }

    async fn renew(&self, r: &Reference, _by: Instant) -> Result<Info, Failure> {
        self.info_of(Operation::Renew, r).await
    }

    async fn kill(&self, r: &Reference, _by: Instant) -> Result<(), Failure> {
        match self.call(Operation::Kill, r, 0).await {
            Reply::Nothing => Ok(()),
            Reply::Failed(failure, _) => Err(failure),
            other => panic!("{other:?} is no answer to kill"),
        }
    }

    async fn command(&self, r: &Reference, c: &Command, _by: Instant) -> Result<CommandResult, Failure> {
        let stdin = c.stdin.as_ref().map_or(0, |b| b.0.len());
        match self.call(Operation::Command, r, stdin).await {
            Reply::Command(result) => Ok(result),
            Reply::Failed(failure, _) => Err(failure),
            other => panic!("{other:?} is no answer to command"),
        }
    }

    async fn observe(&self, r: &Reference, _o: &Observation, _by: Instant) -> Result<Sample, Failure> {
        match self.call(Operation::Observe, r, 0).await {
            Reply::Failed(failure, _) => Err(failure),
            other => panic!("{other:?} is no answer to observe"),
        }
    }

    async fn idle(&self, _r: &Reference) {
        let _ = self.busy.subscribe().wait_for(|busy| !busy).await;
    }
}
