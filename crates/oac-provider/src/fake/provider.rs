//! The fake provider: what it is made of, and how an operation enters.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use oac_model::{
    BootId, DiagnosticCode, Digest, Generation, InstallationId, NetworkAccess, ProviderKind, Reference,
    StoreId,
};
use oac_wire::shapes::{
    Bootstrap, Command, CommandResult, Compute, ComputeState, Info, Observation, Operation, Resume, Retained,
    Sample, Suspend,
};
use parking_lot::Mutex;

use super::{
    Defect,
    machine::{Machine, Native, NativeError, Owner},
};
use crate::{
    Cause, CreateFailure, Declarations, Failure, Lanes, NativeWork, NoAnswer, Phase, PhaseEvent, ProbeError,
    Provider, Receipt, ReceiptStore, Support, SweepReport, declarations_of,
};

/// A whole backend over a machine in memory.
#[derive(Clone)]
pub struct FakeProvider(pub(super) Arc<Node>);

/// What a service's record said: the phase, and the id of the sandbox once one was seen.
pub(super) type Written = (Phase, Option<String>);

/// What survives a node: its disk, or for a service the control plane's database.
pub(super) struct Durable {
    pub(super) receipts: ReceiptStore,
    pub(super) recorded_host: Digest,
    pub(super) recorded_store: StoreId,
    /// The ids of sandboxes once seen, and what was written when; a service's records alone.
    pub(super) seen: Mutex<BTreeMap<Reference, String>>,
    pub(super) written: Mutex<BTreeMap<Reference, Vec<Written>>>,
}

/// One life of the node program.
pub(super) struct Node {
    pub(super) declarations: Declarations,
    pub(super) work: NativeWork,
    pub(super) defect: Option<Defect>,
    pub(super) installation: InstallationId,
    pub(super) machine: Arc<Machine>,
    pub(super) durable: Arc<Durable>,
    pub(super) lanes: Lanes,
    pub(super) alive: Arc<AtomicBool>,
    /// The node's own copies of the locks that its operations hold.
    pub(super) locks: Mutex<BTreeMap<Reference, Arc<()>>>,
}

/// What a backend of this kind declares.
pub(super) fn declared(work: NativeWork) -> Declarations {
    let kind = match work {
        NativeWork::Engine => ProviderKind::Docker,
        NativeWork::Helper => ProviderKind::Microsandbox,
        NativeWork::Service => ProviderKind::E2b,
    };
    declarations_of(kind)
        .cloned()
        .unwrap_or_else(|| unreachable!("the table of declarations is complete"))
}

pub(super) fn host_of(machine: u8) -> Digest {
    Digest::of([machine])
}

pub(super) fn unconfirmed(why: impl std::fmt::Display) -> Failure {
    Failure::Unconfirmed(Cause::new(why))
}

impl From<NativeError> for Failure {
    fn from(error: NativeError) -> Self {
        unconfirmed(error)
    }
}

fn late(error: NoAnswer) -> Failure {
    unconfirmed(error)
}

/// An operation that has entered its reference.
pub(super) struct Entered {
    pub(super) reference: Reference,
    pub(super) receipt: Option<Receipt>,
    pub(super) same_host: bool,
    pub(super) boot: Option<BootId>,
    /// Dropped last: the operation's own copy of the lock.
    _lock: Option<Lock>,
}

struct Lock {
    node: Arc<Node>,
    reference: Reference,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.node.locks.lock().remove(&self.reference);
    }
}

impl Node {
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn owner(&self, reference: Reference) -> Owner {
        Owner {
            installation: self.installation,
            reference,
        }
    }

    /// What all native names of `reference` begin with.
    pub(super) fn names(&self, reference: &Reference) -> String {
        format!("fake-{}-", reference.native_hash(self.installation))
    }

    pub(super) fn vm_name(&self, reference: &Reference, generation: i64) -> String {
        format!("{}g{generation}", self.names(reference))
    }

    pub(super) fn receipt(&self, reference: &Reference) -> Result<Option<Receipt>, Failure> {
        self.durable.receipts.read(reference).map_err(unconfirmed)
    }

    pub(super) fn store(&self, receipt: &Receipt) -> Result<(), Failure> {
        self.durable.receipts.replace(receipt).map_err(unconfirmed)?;
        self.note(receipt);
        Ok(())
    }

    pub(super) fn note(&self, receipt: &Receipt) {
        let seen = self.durable.seen.lock().get(&receipt.reference).cloned();
        let mut written = self.durable.written.lock();
        written
            .entry(receipt.reference)
            .or_default()
            .push((receipt.phase(), seen));
    }

    /// Stores the receipt after `event`.
    pub(super) fn advance(&self, entered: &mut Entered, event: PhaseEvent) -> Result<(), Failure> {
        self.change(entered, Some(event), |_| {})
    }

    /// Stores the receipt after `event` and `change`, where that makes another one of it.
    pub(super) fn change(
        &self,
        entered: &mut Entered,
        event: Option<PhaseEvent>,
        change: impl FnOnce(&mut Receipt),
    ) -> Result<(), Failure> {
        let next = match (entered.receipt.clone(), event) {
            (Some(receipt), Some(event)) => receipt.apply(event),
            (Some(receipt), None) => Ok(receipt),
            (None, Some(event)) => self.begin(entered, event),
            (None, None) => return Err(unconfirmed("there is no receipt")),
        };
        let mut next = next.map_err(unconfirmed)?;
        change(&mut next);
        if entered.receipt.as_ref() != Some(&next) {
            self.store(&next)?;
            entered.receipt = Some(next);
        }
        Ok(())
    }

    fn begin(&self, entered: &Entered, event: PhaseEvent) -> Result<Receipt, crate::RefusedTransition> {
        let host = (self.work != NativeWork::Service).then_some(self.durable.recorded_host);
        let boot = host.and(entered.boot);
        Receipt::begin(event, entered.reference, Generation::FIRST, host, boot)
    }

    pub(super) fn first(&self, entered: &mut Entered, event: PhaseEvent) -> Result<(), Failure> {
        let receipt = self.begin(entered, event).map_err(unconfirmed)?;
        self.durable
            .receipts
            .create(&receipt)
            .map_err(|error| match error {
                crate::ReceiptError::Exists(_) => Failure::Exists(Cause::new(error)),
                other => unconfirmed(other),
            })?;
        self.note(&receipt);
        entered.receipt = Some(receipt);
        Ok(())
    }

    pub(super) fn enter(self: &Arc<Self>, reference: Reference) -> Result<Entered, Failure> {
        let lock = match self.work {
            NativeWork::Helper if !self.has(Defect::IgnoresLock) => {
                let lock = self
                    .machine
                    .lock(reference)
                    .ok_or_else(|| unconfirmed("a helper still works"))?;
                self.locks.lock().insert(reference, lock);
                Some(Lock {
                    node: self.clone(),
                    reference,
                })
            }
            _ => None,
        };
        let receipt = self.receipt(&reference)?;
        let state = self.machine.state.lock();
        let present = host_of(state.machine);
        let same_host = self.work == NativeWork::Service
            || self.has(Defect::IgnoresHost)
            || (present == self.durable.recorded_host
                && receipt.as_ref().is_none_or(|r| r.host_id.0 == Some(present)));
        Ok(Entered {
            reference,
            receipt,
            same_host,
            boot: state.boot,
            _lock: lock,
        })
    }

    /// Enters what changes something: on another host nothing is done (INV-V25).
    pub(super) fn enter_here(self: &Arc<Self>, reference: Reference) -> Result<Entered, Failure> {
        let entered = self.enter(reference)?;
        match entered.same_host {
            true => Ok(entered),
            false => Err(unconfirmed("this is another host than the recorded one")),
        }
    }

    /// Native work of one operation. A helper does it to its end, whatever becomes of the node, and keeps the lock.
    pub(super) async fn native<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        reference: &Reference,
        job: impl FnOnce(Native) -> F,
    ) -> Result<T, Failure> {
        let own = Native {
            machine: self.machine.clone(),
            node: Some(self.alive.clone()),
        };
        if self.work != NativeWork::Helper {
            return Ok(job(own).await);
        }
        let lock = self.locks.lock().get(reference).cloned();
        let work = job(Native {
            node: None,
            ..own.clone()
        });
        #[allow(clippy::disallowed_methods, reason = "it stands for a process of its own")]
        let helper = tokio::spawn(async move {
            let result = work.await;
            drop(lock);
            result
        });
        let result = helper.await.map_err(unconfirmed);
        own.alive().await;
        result
    }

    /// The marked store is the recorded one.
    pub(super) fn has_store(&self) -> bool {
        let marker = self.machine.state.lock().marker;
        marker == Some(self.durable.recorded_store) || self.has(Defect::IgnoresMarker)
    }
}

impl FakeProvider {
    async fn run<T: Send + 'static, F: Future<Output = Result<T, Failure>> + Send + 'static>(
        &self,
        reference: Reference,
        by: Instant,
        work: impl FnOnce(Arc<Node>) -> F,
    ) -> Result<T, Failure> {
        let work = work(self.0.clone());
        if self.0.has(Defect::NoLanes) {
            // Each in a lane of its own.
            let lanes = Lanes::default();
            return lanes.run(reference, by, work).await.map_err(late)?;
        }
        self.0.lanes.run(reference, by, work).await.map_err(late)?
    }

    fn require(&self, operation: Operation) -> Result<(), Failure> {
        if self.0.has(Defect::LooksBeforeRefusing) {
            self.0.machine.state.lock().calls += 1;
        }
        self.0.declarations.require(operation)
    }
}

#[async_trait::async_trait]
impl Provider for FakeProvider {
    fn declarations(&self) -> &Declarations {
        &self.0.declarations
    }

    async fn probe(&self, _by: Instant) -> Result<(), ProbeError> {
        let checks = self.0.checks();
        let failing = self.0.machine.state.lock().failing_checks;
        let failed = match failing {
            _ if checks.contains(&DiagnosticCode::ArtifactsUnavailable) && !self.0.has_store() => {
                Some(DiagnosticCode::ArtifactsUnavailable)
            }
            Some(_) if self.0.has(Defect::ReportsLastCheck) => checks.last().copied(),
            Some(first) => checks.get(first).copied(),
            None => None,
        };
        match failed {
            Some(code) => Err(ProbeError {
                code,
                text: "a check of the fake failed".into(),
            }),
            None => Ok(()),
        }
    }

    async fn create(&self, b: &Bootstrap, by: Instant) -> Result<Info, CreateFailure> {
        let b = b.clone();
        let created = self
            .run(b.reference, by, |node| async move { Ok(node.create(b).await) })
            .await;
        match created {
            Ok(result) => result,
            Err(failure) => Err(failure.into()),
        }
    }

    async fn info(&self, r: &Reference, by: Instant) -> Result<Info, Failure> {
        let r = *r;
        self.run(r, by, |node| async move { node.info(r).await }).await
    }

    async fn renew(&self, r: &Reference, by: Instant) -> Result<Info, Failure> {
        self.info(r, by).await
    }

    async fn kill(&self, r: &Reference, by: Instant) -> Result<(), Failure> {
        let r = *r;
        self.run(r, by, |node| async move { node.kill(r).await }).await
    }

    async fn command(&self, r: &Reference, c: &Command, by: Instant) -> Result<CommandResult, Failure> {
        let (r, c) = (*r, c.clone());
        let work = |node: Arc<Node>| async move { node.command(r, 0, c, by).await };
        self.run(r, by, work).await.map_err(command_failure)
    }

    async fn observe(&self, r: &Reference, o: &Observation, by: Instant) -> Result<Sample, Failure> {
        if o.instance.provider_key != self.0.installation && !self.0.has(Defect::ObservesForAnyone) {
            return Err(Failure::Ownership(Cause::new(
                "another installation's provider_key",
            )));
        }
        let r = *r;
        let observed = self.run(r, by, |node| async move { node.observe(r).await }).await;
        observed.map_err(|failure| match failure {
            Failure::Unconfirmed(cause) => Failure::ObservationUnavailable(cause),
            other => other,
        })
    }

    async fn initial(&self, r: &Reference, _by: Instant) -> Result<Compute, Failure> {
        self.require(Operation::Initial)?;
        Ok(self.0.derive(r, 0, None))
    }

    async fn new_compute(
        &self,
        r: &Reference,
        generation: i64,
        from: Option<&Retained>,
        _by: Instant,
    ) -> Result<Compute, Failure> {
        self.require(Operation::NewCompute)?;
        match from {
            Some(parent) if parent.source_generation < generation => {
                Ok(self.0.derive(r, generation, Some(parent)))
            }
            _ => Err(Failure::Invalid(Cause::new(
                "a generation needs an earlier parent",
            ))),
        }
    }

    async fn compute(&self, r: &Reference, c: &Compute, by: Instant) -> Result<ComputeState, Failure> {
        self.require(Operation::Compute)?;
        let (r, c) = (*r, c.clone());
        self.run(r, by, |node| async move { node.compute(r, c).await })
            .await
    }

    async fn kill_compute(&self, r: &Reference, c: &Compute, by: Instant) -> Result<(), Failure> {
        self.require(Operation::KillCompute)?;
        let (r, c) = (*r, c.clone());
        self.run(r, by, |node| async move { node.kill_compute(r, c).await })
            .await
    }

    async fn resume_compute(&self, r: &Reference, c: &Compute, by: Instant) -> Result<ComputeState, Failure> {
        self.require(Operation::ResumeCompute)?;
        let (r, c) = (*r, c.clone());
        self.run(r, by, |node| async move { node.resume_compute(r, c).await })
            .await
    }

    async fn command_compute(
        &self,
        r: &Reference,
        c: &Compute,
        cmd: &Command,
        by: Instant,
    ) -> Result<CommandResult, Failure> {
        self.require(Operation::CommandCompute)?;
        let (r, generation, cmd) = (*r, c.generation, cmd.clone());
        let work = |node: Arc<Node>| async move { node.command(r, generation, cmd, by).await };
        self.run(r, by, work).await.map_err(command_failure)
    }

    async fn suspend(&self, s: &Suspend, by: Instant) -> Result<ComputeState, Failure> {
        self.require(Operation::Suspend)?;
        let s = s.clone();
        self.run(s.reference, by, |node| async move { node.suspend(s, by).await })
            .await
    }

    async fn resume(&self, s: &Resume, by: Instant) -> Result<ComputeState, Failure> {
        self.require(Operation::Resume)?;
        let s = s.clone();
        self.run(s.reference, by, |node| async move { node.resume(s).await })
            .await
    }

    async fn delete_retained(&self, r: &Reference, k: &Retained, by: Instant) -> Result<(), Failure> {
        self.require(Operation::DeleteRetained)?;
        let (r, k) = (*r, k.clone());
        self.run(r, by, |node| async move { node.delete_retained(r, k).await })
            .await
    }

    async fn idle(&self, r: &Reference) {
        self.0.lanes.idle(*r).await;
    }

    async fn sweep(&self) -> Result<SweepReport, Failure> {
        self.0.sweep(&self.0.lanes).await
    }
}

/// A command that was begun and not seen to its end may have run.
fn command_failure(failure: Failure) -> Failure {
    match failure {
        Failure::Unconfirmed(cause) => Failure::CommandUnconfirmed(cause),
        other => other,
    }
}

impl Node {
    /// The checks of the probe in their order.
    pub(super) fn checks(&self) -> Vec<DiagnosticCode> {
        use DiagnosticCode::*;
        match self.work {
            NativeWork::Engine => vec![
                ProviderUnavailable,
                HostUnsupported,
                CapacityInsufficient,
                RuntimeImageUnavailable,
            ],
            NativeWork::Helper => vec![
                HostUnsupported,
                ProviderUnavailable,
                CapacityInsufficient,
                ArtifactsUnavailable,
                RuntimeImageUnavailable,
            ],
            NativeWork::Service => Vec::new(),
        }
    }

    pub(super) fn enforces(&self, access: NetworkAccess) -> bool {
        self.declarations.enforces(access) || self.has(Defect::IgnoresAccess)
    }

    pub(super) fn derive(&self, r: &Reference, generation: i64, parent: Option<&Retained>) -> Compute {
        Compute {
            generation,
            name: self.vm_name(r, generation),
            id: None.into(),
            restored_from: parent.cloned().into(),
        }
    }

    /// The declarations with one reason changed.
    pub(super) fn otherwise(declared: &Declarations) -> Declarations {
        let changed: Vec<_> = Operation::ALL
            .iter()
            .map(|operation| match declared.support(*operation) {
                Support::Unsupported(_) => (*operation, Support::Unsupported("another_reason")),
                supported => (*operation, supported),
            })
            .collect();
        Declarations::new(&changed, &[NetworkAccess::Public], declared.native_work())
            .unwrap_or_else(|_| declared.clone())
    }
}
