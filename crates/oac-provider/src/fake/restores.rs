//! Resuming: what is verified before the first native effect and after the last.

use std::sync::Arc;

use oac_wire::shapes::{ComputeState, Resume};

use super::{
    Defect,
    checkpoints::{Verified, outcome, state, status, verdict},
    lifecycle::policy_of,
    machine::{Native, Power, State, Vm},
    provider::{Entered, Node, unconfirmed},
};
use crate::{Cause, Failure, Phase, PhaseEvent, Receipt, ReceiptOutcome, suite::Step};

fn failed_verification(receipt: &Receipt) -> bool {
    receipt.outcome.0.as_ref().is_some_and(|o| o.error_code.is_some())
}

impl Node {
    pub(super) async fn resume(self: Arc<Self>, r: Resume) -> Result<ComputeState, Failure> {
        if self
            .receipt(&r.reference)?
            .is_some_and(|r| r.phase() == Phase::Tombstone)
        {
            return Err(Failure::Exists(Cause::new("there is a tombstone")));
        }
        let mut entered = self.enter_here(r.reference)?;
        self.require_store()?;
        if r.reconcile_only {
            return self.reconcile_resume(&mut entered, r).await;
        }
        let accepted = entered.receipt.as_ref().is_none_or(|receipt| {
            let same = receipt.compute_generation == r.target.generation;
            let failed = failed_verification(receipt) && !self.has(Defect::RefusesAfterFailure);
            match receipt.phase() {
                Phase::Suspended => true,
                Phase::Restoring => same || failed || self.has(Defect::AcceptsAnyTarget),
                _ => false,
            }
        });
        if !accepted {
            return Err(Failure::Exists(Cause::new("another restore's outcome is open")));
        }
        let begun = |receipt: &mut Receipt| {
            receipt.operation_id = Some(r.operation_id).into();
            receipt.compute_generation = r.target.generation;
            receipt.retained = Some(r.retained.clone()).into();
            receipt.outcome = None.into();
        };
        self.change(&mut entered, Some(PhaseEvent::ResumeStarted), begun)?;
        let boot = entered.boot;
        self.change(&mut entered, None, |receipt| receipt.boot_id = boot.into())?;
        if !self.has(Defect::VerifiesAfterRestore) {
            self.verify_for(&mut entered, &r).await?;
        }
        let there = match self.exact(&r.reference, &r.target).await? {
            Some(_) if self.has(Defect::RestoresTwice) => None,
            other => other,
        };
        let blind = self.has(Defect::ResumesBlindly) && there.is_some();
        let vm = match there {
            Some(vm) if !blind => vm,
            _ => self.restore(&r, blind).await?,
        };
        if self.has(Defect::VerifiesAfterRestore) {
            self.verify_for(&mut entered, &r).await?;
        }
        self.restored(&mut entered, &r, vm).await
    }

    /// Everything must be read and match before the first native effect (INV-V15).
    async fn verify_for(&self, entered: &mut Entered, r: &Resume) -> Result<(), Failure> {
        let (kept, reference) = (r.retained.clone(), r.reference);
        let job = async move |native: Native| {
            let look = move |state: &mut State, _: bool| verdict(state, reference, &kept);
            native.call(Step::Verify, look).await
        };
        match self.native(&reference, job).await?? {
            Verified::Good => Ok(()),
            Verified::Unreadable => Err(unconfirmed("the checkpoint cannot be read")),
            Verified::Differs | Verified::Missing => {
                let after = |receipt: &mut Receipt| {
                    receipt.outcome = Some(ReceiptOutcome {
                        status: None,
                        resources_released: None,
                        suspend_settled: None,
                        error_code: Some("invalid".into()),
                    })
                    .into();
                };
                self.change(entered, None, after)?;
                Err(Failure::Invalid(Cause::new(
                    "the checkpoint is not what it should be",
                )))
            }
        }
    }

    async fn restore(&self, r: &Resume, twice: bool) -> Result<Vm, Failure> {
        let owner = self.owner(r.reference);
        let target = r.target.clone();
        let forgets = self.has(Defect::ForgetsPolicy);
        let (reference, operation) = (r.reference, r.retained.operation_id);
        let make = move |state: &mut State, spoiled: bool| {
            let checkpoint = state
                .checkpoints
                .iter()
                .find(|c| c.reference == reference && c.retained.operation_id == operation);
            let policy = match checkpoint {
                Some(checkpoint) if !forgets => checkpoint.policy.clone(),
                _ => policy_of(oac_model::NetworkAccess::None, &[]),
            };
            let vm = Vm {
                id: state.new_id(),
                owner: Some(owner),
                generation: target.generation,
                parent: target.restored_from.0.clone(),
                power: Power::Running,
                bootstrapped: true,
                right_size: !spoiled,
                policy,
                environment: Vec::new(),
            };
            let name = match twice {
                true => format!("{}-again", target.name),
                false => target.name.clone(),
            };
            state.vms.insert(name, vm.clone());
            vm
        };
        let job = async move |native: Native| native.call(Step::Restore, make).await;
        Ok(self.native(&r.reference, job).await??)
    }

    /// Checks the target and stores what came of it.
    async fn restored(&self, entered: &mut Entered, r: &Resume, vm: Vm) -> Result<ComputeState, Failure> {
        if !vm.right_size && !self.has(Defect::SkipsTargetCheck) {
            self.change(entered, None, |receipt| {
                receipt.outcome = outcome("failed", false).into()
            })?;
            return Ok(state(&r.target, Some(&vm), "failed"));
        }
        let after = |receipt: &mut Receipt| {
            receipt.bootstrap_complete = true;
            receipt.outcome = outcome("running", false).into();
        };
        self.change(entered, Some(PhaseEvent::ResumeVerified), after)?;
        Ok(state(&r.target, Some(&vm), status(&vm)))
    }

    async fn reconcile_resume(&self, entered: &mut Entered, r: Resume) -> Result<ComputeState, Failure> {
        let vm = self
            .exact(&r.reference, &r.target)
            .await?
            .ok_or(Failure::NotFound)?;
        let restoring = entered.receipt.as_ref().is_some_and(|receipt| {
            receipt.phase() == Phase::Restoring && receipt.compute_generation == r.target.generation
        });
        match restoring && vm.power == Power::Running {
            true => self.restored(entered, &r, vm).await,
            false => Ok(state(&r.target, Some(&vm), status(&vm))),
        }
    }
}
