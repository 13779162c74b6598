//! Suspending, deleting what was kept, and the operations on one exact compute.

use std::{sync::Arc, time::Instant};

use oac_model::{Digest, Reference};
use oac_wire::shapes::{Compute, ComputeState, Opaque, Retained, Suspend};

use super::{
    Defect,
    machine::{Checkpoint, Native, NativeError, Power, State, Vm},
    provider::{Entered, Node, unconfirmed},
};
use crate::{
    Cause, Failure, Phase, PhaseEvent, Receipt, ReceiptOutcome,
    suite::{Damage, Step},
};

/// What verifying a published checkpoint came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    Good,
    /// Read, and it differs.
    Differs,
    Unreadable,
    Missing,
}

/// How the native part of a suspend ended.
enum Captured {
    Released(Box<Retained>),
    /// The source stays, nothing is kept.
    GivenUp,
}

fn ownership(why: &str) -> Failure {
    Failure::Ownership(Cause::new(why))
}

pub(super) fn state(c: &Compute, vm: Option<&Vm>, status: &str) -> ComputeState {
    let mut compute = c.clone();
    if let Some(vm) = vm {
        compute.id = Some(vm.id.clone()).into();
    }
    ComputeState {
        compute,
        status: status.into(),
        bootstrap_complete: vm.is_some_and(|vm| vm.bootstrapped),
        retained: None.into(),
        resources_released: false,
        suspend_settled: true,
    }
}

pub(super) fn status(vm: &Vm) -> &'static str {
    match vm.power {
        Power::Created => "starting",
        Power::Running => "running",
        Power::Paused => "paused",
        Power::Ended => "ended",
    }
}

pub(super) fn outcome(status: &str, released: bool) -> Option<ReceiptOutcome> {
    Some(ReceiptOutcome {
        status: Some(status.into()),
        resources_released: Some(released),
        suspend_settled: Some(true),
        error_code: None,
    })
}

/// The machine's checkpoint of this operation.
fn find<'a>(state: &'a mut State, s: &Suspend) -> Option<&'a mut Checkpoint> {
    state
        .checkpoints
        .iter_mut()
        .find(|c| c.reference == s.reference && c.retained.operation_id == s.operation_id)
}

impl Node {
    /// The exact compute, by name, and by id and parent where they are known.
    pub(super) async fn exact(&self, r: &Reference, c: &Compute) -> Result<Option<Vm>, Failure> {
        let found = self.take(r).await?;
        if found.foreign {
            return Err(ownership("the name is held by another"));
        }
        let Some((_, vm)) = found.vms.into_iter().find(|(name, _)| *name == c.name) else {
            return Ok(None);
        };
        let other_id = c.id.0.as_ref().is_some_and(|id| *id != vm.id);
        if (other_id || vm.parent != c.restored_from.0) && !self.has(Defect::AdoptsAnyTarget) {
            return Err(ownership("a compute of another id or parent has this name"));
        }
        Ok(Some(vm))
    }

    pub(super) fn require_store(&self) -> Result<(), Failure> {
        if self.has(Defect::MakesMarker) {
            let mut state = self.machine.state.lock();
            let recorded = self.durable.recorded_store;
            state.marker.get_or_insert(recorded);
        }
        match self.has_store() {
            true => Ok(()),
            false => Err(unconfirmed("the checkpoint store is not the recorded one")),
        }
    }

    pub(super) async fn compute(self: Arc<Self>, r: Reference, c: Compute) -> Result<ComputeState, Failure> {
        let mut entered = self.enter(r)?;
        if let Some(state) = self.recorded(&entered, &c) {
            if self.has(Defect::HashesAgain) {
                let job = async move |native: Native| native.call(Step::Verify, |_, _| ()).await;
                self.native(&r, job).await??;
            }
            return Ok(state);
        }
        let vm = self.exact(&r, &c).await?.ok_or(Failure::NotFound)?;
        if self.has(Defect::ComputeSettlesRestore)
            && entered
                .receipt
                .as_ref()
                .is_some_and(|r| r.phase() == Phase::Restoring)
        {
            self.advance(&mut entered, PhaseEvent::ResumeVerified)?;
        }
        Ok(state(&c, Some(&vm), status(&vm)))
    }

    /// A suspension that the receipt recorded.
    fn recorded(&self, entered: &Entered, source: &Compute) -> Option<ComputeState> {
        let receipt = entered.receipt.as_ref()?;
        let released = receipt.outcome.0.as_ref()?.resources_released == Some(true);
        if receipt.phase() != Phase::Suspended || receipt.compute_generation != source.generation || !released
        {
            return None;
        }
        Some(ComputeState {
            retained: receipt.retained.clone(),
            resources_released: true,
            ..state(source, None, "suspended")
        })
    }

    pub(super) async fn resume_compute(
        self: Arc<Self>,
        r: Reference,
        c: Compute,
    ) -> Result<ComputeState, Failure> {
        let _entered = self.enter_here(r)?;
        let mut vm = self.exact(&r, &c).await?.ok_or(Failure::NotFound)?;
        if vm.power == Power::Paused {
            let name = c.name.clone();
            self.set_power(&r, Step::Thaw, name, Power::Running).await?;
            vm.power = Power::Running;
        }
        Ok(state(&c, Some(&vm), status(&vm)))
    }

    async fn set_power(&self, r: &Reference, step: Step, name: String, power: Power) -> Result<(), Failure> {
        let job = async move |native: Native| {
            let change = move |state: &mut State, _: bool| {
                if let Some(vm) = state.vms.get_mut(&name) {
                    vm.power = power;
                }
            };
            native.call(step, change).await
        };
        Ok(self.native(r, job).await??)
    }

    pub(super) async fn kill_compute(self: Arc<Self>, r: Reference, c: Compute) -> Result<(), Failure> {
        let mut entered = self.enter_here(r)?;
        let is_target = c.generation > 0;
        let phase = entered.receipt.as_ref().map(Receipt::phase);
        let named = entered
            .receipt
            .as_ref()
            .is_none_or(|r| r.compute_generation == c.generation);
        let ends_all = match phase {
            Some(Phase::Creating | Phase::Suspending) => named,
            Some(Phase::Settled) => named && !is_target,
            _ => false,
        };
        if ends_all && !self.has(Defect::KillComputeSuspends) {
            self.advance(&mut entered, PhaseEvent::KillComputeStarted)?;
        }
        let vm = match self.exact(&r, &c).await {
            // What has its name and another id is not the one that is to end.
            Err(Failure::Ownership(_)) if !self.has(Defect::KillsEveryGeneration) => None,
            other => other?,
        };
        let every = self.has(Defect::KillsEveryGeneration);
        if vm.is_some() || every {
            let owner = self.owner(r);
            let name = c.name.clone();
            let job = async move |native: Native| {
                let remove = move |state: &mut State, _: bool| {
                    state
                        .vms
                        .retain(|n, vm| vm.owner != Some(owner) || (*n != name && !every));
                };
                native.call(Step::Remove, remove).await
            };
            self.native(&r, job).await??;
            if self.take(&r).await?.vms.iter().any(|(name, _)| *name == c.name) {
                return Err(unconfirmed("the compute is still there"));
            }
        }
        let suspends = match phase {
            None => is_target && !self.has(Defect::NoReceiptForTarget),
            Some(Phase::Settled) => named && is_target,
            Some(Phase::Restoring) => named,
            _ => false,
        };
        let wrongly = self.has(Defect::KillComputeSuspends) && phase == Some(Phase::Settled);
        if suspends || wrongly {
            let generation = c.generation;
            let after = |receipt: &mut Receipt| {
                receipt.compute_generation = generation;
                receipt.outcome = None.into();
            };
            self.change(&mut entered, Some(PhaseEvent::TargetEnded), after)?;
        }
        Ok(())
    }

    pub(super) async fn suspend(self: Arc<Self>, s: Suspend, by: Instant) -> Result<ComputeState, Failure> {
        let mut entered = self.enter_here(s.reference)?;
        self.require_store()?;
        let receipt = entered.receipt.clone().ok_or(Failure::NotFound)?;
        if receipt.operation_id.0 == Some(s.operation_id)
            && let Some(state) = self.recorded(&entered, &s.source)
        {
            return Ok(state);
        }
        if s.reconcile_only && !self.has(Defect::ReconcileSuspends) {
            return self.reconcile_suspend(&mut entered, s).await;
        }
        match receipt.phase() {
            Phase::Settled => {}
            Phase::Suspending if receipt.operation_id.0 == Some(s.operation_id) => {}
            _ => return Err(Failure::Exists(Cause::new("something else is under way"))),
        }
        let vm = self
            .exact(&s.reference, &s.source)
            .await?
            .ok_or(Failure::NotFound)?;
        let begun = |receipt: &mut Receipt| {
            receipt.operation_id = Some(s.operation_id).into();
            receipt.compute_generation = s.source.generation;
            receipt.retained = None.into();
            receipt.outcome = None.into();
        };
        let event = (receipt.phase() == Phase::Settled).then_some(PhaseEvent::SuspendStarted);
        self.change(&mut entered, event, begun)?;
        let (node, own) = (self.clone(), s.clone());
        let captured = self.native(&s.reference, |native| async move {
            node.capture(native, own, vm).await
        });
        let captured = captured.await??;
        if self.has(Defect::ForgetsLateSuspend) && Instant::now() >= by {
            return Err(unconfirmed("too late"));
        }
        self.conclude(&mut entered, s, captured).await
    }

    /// Stores what the native work came to before any answer rests on it (INV-V28).
    async fn conclude(
        &self,
        entered: &mut Entered,
        s: Suspend,
        captured: Captured,
    ) -> Result<ComputeState, Failure> {
        match captured {
            Captured::Released(kept) => {
                let after = |receipt: &mut Receipt| {
                    receipt.retained = Some((*kept).clone()).into();
                    receipt.outcome = outcome("suspended", true).into();
                };
                self.change(entered, Some(PhaseEvent::SuspendReleased), after)?;
                Ok(ComputeState {
                    retained: Some(*kept).into(),
                    resources_released: true,
                    ..state(&s.source, None, "suspended")
                })
            }
            Captured::GivenUp => {
                let vm = self
                    .exact(&s.reference, &s.source)
                    .await?
                    .ok_or(Failure::NotFound)?;
                if matches!(vm.power, Power::Running | Power::Paused)
                    && entered
                        .receipt
                        .as_ref()
                        .is_some_and(|r| r.phase() == Phase::Suspending)
                {
                    let after = |receipt: &mut Receipt| receipt.outcome = outcome(status(&vm), false).into();
                    self.change(entered, Some(PhaseEvent::SuspendAbandoned), after)?;
                }
                Ok(state(&s.source, Some(&vm), status(&vm)))
            }
        }
    }

    /// Never pauses, captures or restores (INV-V14).
    async fn reconcile_suspend(&self, entered: &mut Entered, s: Suspend) -> Result<ComputeState, Failure> {
        let published = find(&mut self.machine.state.lock(), &s).map(|c| c.retained.clone());
        let Some(kept) = published else {
            return self.conclude(entered, s, Captured::GivenUp).await;
        };
        let vm = self.exact(&s.reference, &s.source).await?;
        if self.has(Defect::CapturesAgain) {
            let job = async move |native: Native| native.call(Step::Capture, |_, _| ()).await;
            self.native(&s.reference, job).await??;
        }
        let captured = self.release(entered, &s, kept, vm).await?;
        self.conclude(entered, s, captured).await
    }

    async fn release(
        &self,
        entered: &Entered,
        s: &Suspend,
        kept: Retained,
        vm: Option<Vm>,
    ) -> Result<Captured, Failure> {
        let (own, reference) = (s.clone(), entered.reference);
        let keeps = self.has(Defect::KeepsBadCheckpoint);
        let removes_unreadable = self.has(Defect::RemovesUnreadable);
        let job = async move |native: Native| {
            verified_then_stopped(&native, own, kept, vm, (keeps, removes_unreadable)).await
        };
        self.native(&reference, job).await?
    }

    /// Pause, capture, publish, verify, stop.
    async fn capture(self: Arc<Self>, native: Native, s: Suspend, vm: Vm) -> Result<Captured, Failure> {
        let name = s.source.name.clone();
        let published = find(&mut self.machine.state.lock(), &s).map(|c| c.retained.clone());
        let kept = match published {
            Some(kept) => kept,
            None => {
                let pause = {
                    let name = name.clone();
                    move |state: &mut State, _: bool| set(state, &name, Power::Paused)
                };
                match native.call(Step::Pause, pause).await {
                    Err(NativeError::Rejected) => return Ok(Captured::GivenUp),
                    other => other?,
                }
                if !self.has(Defect::SuspendsWithoutCapture) {
                    match native.call(Step::Capture, |_, _| ()).await {
                        Err(NativeError::Rejected) if !self.has(Defect::FailedCaptureIsUnknown) => {
                            return Ok(Captured::GivenUp);
                        }
                        other => other?,
                    }
                }
                let kept = retained_of(&s, &vm, self.durable.recorded_store);
                let checkpoint = Checkpoint {
                    reference: s.reference,
                    retained: kept.clone(),
                    policy: vm.policy.clone(),
                    damage: None,
                    unreadable: false,
                };
                if self.has(Defect::StopsFirst) {
                    let end = {
                        let name = name.clone();
                        move |state: &mut State, _: bool| drop(state.vms.remove(&name))
                    };
                    native.call(Step::Stop, end).await?;
                }
                let withhold = self.has(Defect::SuspendsWithoutCapture);
                let publish = move |state: &mut State, spoiled: bool| {
                    let damage = spoiled.then_some(Damage::Digest);
                    if !withhold {
                        state.checkpoints.push(Checkpoint { damage, ..checkpoint });
                    }
                };
                match native.call(Step::Publish, publish).await {
                    Err(NativeError::Rejected) => return Ok(Captured::GivenUp),
                    other => other?,
                }
                kept
            }
        };
        if self.has(Defect::ReleasesEarly) || self.has(Defect::SuspendsWithoutCapture) {
            return Ok(Captured::Released(Box::new(kept)));
        }
        let flags = (
            self.has(Defect::KeepsBadCheckpoint),
            self.has(Defect::RemovesUnreadable),
        );
        verified_then_stopped(&native, s, kept, Some(vm), flags).await
    }

    pub(super) async fn delete_retained(self: Arc<Self>, r: Reference, k: Retained) -> Result<(), Failure> {
        let _entered = self.enter_here(r)?;
        self.require_store()?;
        let found = {
            let state = self.machine.state.lock();
            let mut of = state.checkpoints.iter().filter(|c| c.reference == r);
            of.find(|c| c.retained.operation_id == k.operation_id)
                .map(|c| c.retained.clone())
        };
        match found {
            None if self.has(Defect::DeleteIsNotIdempotent) => return Err(Failure::NotFound),
            None => return Ok(()),
            Some(kept) if kept != k && !self.has(Defect::DeletesByOperation) => {
                return Err(ownership("the checkpoint of this operation is another one"));
            }
            Some(_) => {}
        }
        let operation = k.operation_id;
        let job = async move |native: Native| {
            let remove = move |state: &mut State, _: bool| {
                state
                    .checkpoints
                    .retain(|c| c.reference != r || c.retained.operation_id != operation);
            };
            native.call(Step::DeleteCheckpoint, remove).await
        };
        Ok(self.native(&r, job).await??)
    }
}

fn set(state: &mut State, name: &str, power: Power) {
    if let Some(vm) = state.vms.get_mut(name) {
        vm.power = power;
    }
}

/// The published checkpoint against what it should be.
pub(super) fn verdict(state: &mut State, reference: Reference, kept: &Retained) -> Verified {
    let mut of = state.checkpoints.iter().filter(|c| c.reference == reference);
    match of.find(|c| c.retained.operation_id == kept.operation_id) {
        None => Verified::Missing,
        Some(c) if c.unreadable => Verified::Unreadable,
        Some(c) if c.damage.is_some() || c.retained != *kept => Verified::Differs,
        Some(_) => Verified::Good,
    }
}

/// Verifies what was published and ends the source; what is proven bad, or bad while the source lives, is removed.
async fn verified_then_stopped(
    native: &Native,
    s: Suspend,
    kept: Retained,
    vm: Option<Vm>,
    (keeps_bad, removes_unreadable): (bool, bool),
) -> Result<Captured, Failure> {
    let live = vm.is_some_and(|vm| vm.power != Power::Ended);
    let (reference, own) = (s.reference, kept.clone());
    let look = move |state: &mut State, _: bool| verdict(state, reference, &own);
    let verified = match native.call(Step::Verify, look).await {
        Err(NativeError::Rejected) if live => Verified::Unreadable,
        other => other?,
    };
    let name = s.source.name.clone();
    match verified {
        Verified::Good => {
            let end = move |state: &mut State, _: bool| drop(state.vms.remove(&name));
            native.call(Step::Stop, end).await?;
            Ok(Captured::Released(Box::new(kept)))
        }
        Verified::Unreadable if !live && !removes_unreadable => {
            Err(unconfirmed("the checkpoint cannot be read"))
        }
        _ => {
            let operation = s.operation_id;
            let remove = move |state: &mut State, _: bool| {
                if !keeps_bad {
                    state
                        .checkpoints
                        .retain(|c| c.reference != reference || c.retained.operation_id != operation);
                }
            };
            native.call(Step::DeleteCheckpoint, remove).await?;
            Ok(Captured::GivenUp)
        }
    }
}

fn retained_of(s: &Suspend, vm: &Vm, store_id: oac_model::StoreId) -> Retained {
    let data = serde_json::value::RawValue::from_string("{}".into());
    Retained {
        operation_id: s.operation_id,
        source_generation: s.source.generation,
        source_name: s.source.name.clone(),
        source_id: vm.id.clone(),
        store_id,
        execution_class: Digest::of("class"),
        digest: Digest::of(s.operation_id.to_string()),
        size_bytes: 4096,
        data: Opaque(data.unwrap_or_else(|_| unreachable!("an empty object is JSON"))),
    }
}
