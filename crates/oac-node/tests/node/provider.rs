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
use oac_wire::{
    frames::ResponseResult,
    shapes::{
        Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Operation, Resume,
        Retained, Sample, Suspend,
    },
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

/// What the node asks of the provider, in its order.
pub(crate) type Calls = mpsc::Receiver<Called>;

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
    Sample(Sample),
    Compute(Box<Compute>),
    State(Box<ComputeState>),
    Nothing,
    Failed(Failure, Option<Info>),
}

impl Reply {
    /// The success whose answer carries this result.
    pub(crate) fn of(result: Option<ResponseResult>) -> Self {
        match result {
            None => Self::Nothing,
            Some(ResponseResult::Info(info)) => Self::Info(info),
            Some(ResponseResult::Command(result)) => Self::Command(result),
            Some(ResponseResult::Sample(sample)) => Self::Sample(sample),
            Some(ResponseResult::Compute(compute)) => Self::Compute(compute),
            Some(ResponseResult::State(state)) => Self::State(state),
            Some(ResponseResult::Unsupported(_)) => panic!("no provider says it this way"),
        }
    }
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

/// The provider, and its calls; it makes no checkpoints.
pub(crate) fn scripted() -> (Arc<Scripted>, Calls) {
    scripted_with(&[
        Operation::Create,
        Operation::Info,
        Operation::Renew,
        Operation::Kill,
        Operation::Command,
        Operation::Observe,
    ])
}

/// One that declares these operations.
pub(crate) fn scripted_with(supported: &[Operation]) -> (Arc<Scripted>, Calls) {
    let all: Vec<_> = Operation::ALL
        .iter()
        .map(|operation| match supported.contains(operation) {
            true => (*operation, Support::Supported),
            false => (*operation, Support::Unsupported("scripted_reason")),
        })
        .collect();
    let (calls, called) = mpsc::channel(64);
    let provider = Scripted {
        declarations: Declarations::new(&all, &[NetworkAccess::Public], oac_provider::NativeWork::Engine)
            .unwrap(),
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
}

pub(crate) fn unconfirmed() -> Failure {
    Failure::Unconfirmed(Cause::new(PRIVATE_TEXT))
}

macro_rules! answer {
    ($self:ident, $operation:ident, $reference:expr, $reply:pat => $value:expr) => {
        match $self.call(Operation::$operation, $reference, 0).await {
            $reply => Ok($value),
            Reply::Failed(failure, _) => Err(failure),
            other => panic!("{other:?} is no answer to {:?}", Operation::$operation),
        }
    };
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
        answer!(self, Info, r, Reply::Info(info) => info)
    }

    async fn renew(&self, r: &Reference, _by: Instant) -> Result<Info, Failure> {
        answer!(self, Renew, r, Reply::Info(info) => info)
    }

    async fn kill(&self, r: &Reference, _by: Instant) -> Result<(), Failure> {
        answer!(self, Kill, r, Reply::Nothing => ())
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
        answer!(self, Observe, r, Reply::Sample(sample) => sample)
    }

    async fn initial(&self, r: &Reference, _by: Instant) -> Result<Compute, Failure> {
        answer!(self, Initial, r, Reply::Compute(compute) => *compute)
    }

    async fn new_compute(
        &self,
        r: &Reference,
        _generation: i64,
        _from: Option<&Retained>,
        _by: Instant,
    ) -> Result<Compute, Failure> {
        answer!(self, NewCompute, r, Reply::Compute(compute) => *compute)
    }

    async fn compute(&self, r: &Reference, _c: &Compute, _by: Instant) -> Result<ComputeState, Failure> {
        answer!(self, Compute, r, Reply::State(state) => *state)
    }

    async fn kill_compute(&self, r: &Reference, _c: &Compute, _by: Instant) -> Result<(), Failure> {
        answer!(self, KillCompute, r, Reply::Nothing => ())
    }

    async fn resume_compute(
        &self,
        r: &Reference,
        _c: &Compute,
        _by: Instant,
    ) -> Result<ComputeState, Failure> {
        answer!(self, ResumeCompute, r, Reply::State(state) => *state)
    }

    async fn command_compute(
        &self,
        r: &Reference,
        _c: &Compute,
        _cmd: &Command,
        _by: Instant,
    ) -> Result<CommandResult, Failure> {
        answer!(self, CommandCompute, r, Reply::Command(result) => result)
    }

    async fn suspend(&self, s: &Suspend, _by: Instant) -> Result<ComputeState, Failure> {
        answer!(self, Suspend, &s.reference, Reply::State(state) => *state)
    }

    async fn resume(&self, s: &Resume, _by: Instant) -> Result<ComputeState, Failure> {
        answer!(self, Resume, &s.reference, Reply::State(state) => *state)
    }

    async fn delete_retained(&self, r: &Reference, _k: &Retained, _by: Instant) -> Result<(), Failure> {
        answer!(self, DeleteRetained, r, Reply::Nothing => ())
    }

    async fn idle(&self, _r: &Reference) {
        let _ = self.busy.subscribe().wait_for(|busy| !busy).await;
    }
}
