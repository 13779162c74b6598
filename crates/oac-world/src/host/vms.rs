//! A backend that keeps checkpoints, as a node serves it (providers.md sections 4 and 7): a helper for each operation that
//! outlives the node and holds the allocation's lock, one native effect at a time, and the product's receipts.

use std::collections::BTreeMap;

use oac_model::{AllocationId, Generation};
use oac_peer::{FailureCode, Outcome};
use oac_provider::{Phase, PhaseEvent, Receipt};
use oac_wire::{
    frames::{Arguments, ResponseResult},
    shapes::{Compute, ComputeState, Info, Retained},
};

use super::{
    effects::{Ask, Helper},
    native::WorkId,
};
use crate::{
    agenda::Millis,
    defect::Defect,
    ids,
    world::{Happening, World},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    Running,
    Paused,
    Ended,
}

/// What a checkpoint saves: the newest Turn that the runtime started, until when it runs, and its output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) turn: u64,
    pub(crate) until: Millis,
    pub(crate) total: u64,
    pub(crate) acked: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Vm {
    pub(crate) power: Power,
    /// A restored one that never passes its checks.
    pub(super) unfit: bool,
    pub(super) native: String,
    pub(super) generation: Generation,
    pub(super) link: Generation,
    /// Its runtime waits for the wake command.
    pub(crate) parked: bool,
    pub(super) dials: bool,
    pub(crate) memory: Memory,
}

impl Vm {
    pub(crate) fn is_live(&self) -> bool {
        self.power != Power::Ended
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.power == Power::Running && !self.parked && !self.unfit
    }
}

/// A checkpoint in the store that all nodes share.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) allocation: AllocationId,
    pub(crate) retained: Retained,
    pub(crate) good: bool,
    /// No sandbox moved on from it: it is the newest state there is.
    pub(crate) valid: bool,
    pub(super) memory: Memory,
    pub(super) generation: Generation,
    pub(super) link: Generation,
}

#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) vms: BTreeMap<(AllocationId, i64), Vm>,
    pub(crate) helpers: BTreeMap<u64, Helper>,
}

impl Machine {
    pub(crate) fn of(&self, id: AllocationId) -> impl Iterator<Item = (i64, &Vm)> {
        let all = self.vms.range((id, i64::MIN)..=(id, i64::MAX));
        all.map(|((_, generation), vm)| (*generation, vm))
    }

    pub(crate) fn is_locked(&self, id: AllocationId) -> bool {
        self.helpers.values().any(|helper| helper.allocation == id)
    }

    /// The kernel ended, and everything in it.
    pub(crate) fn reboot(&mut self) {
        self.helpers.clear();
        for vm in self.vms.values_mut() {
            vm.power = Power::Ended;
        }
    }
}

pub(super) fn failed(code: FailureCode) -> Outcome {
    Outcome::failed(code)
}

pub(super) fn success(result: ResponseResult) -> Outcome {
    Outcome::Success(Some(result))
}

pub(super) fn status(vm: &Vm) -> &'static str {
    match vm.power {
        Power::Running => "running",
        Power::Paused => "paused",
        Power::Ended => "ended",
    }
}

pub(super) fn name(id: AllocationId, generation: i64) -> String {
    format!("sandbox-{}-{generation}", ids::number(id.as_uuid()))
}

pub(super) fn answer(compute: &Compute, vm: Option<&Vm>, status: &str, kept: Option<Retained>) -> Outcome {
    let mut compute = compute.clone();
    if let Some(vm) = vm {
        compute.id = Some(vm.native.clone()).into();
    }
    success(ResponseResult::State(Box::new(ComputeState {
        compute,
        status: status.to_owned(),
        bootstrap_complete: true,
        resources_released: kept.is_some(),
        retained: kept.into(),
        suspend_settled: true,
    })))
}

impl World {
    pub(super) fn vm(&self, host: usize, id: AllocationId, generation: i64) -> Option<&Vm> {
        self.hosts[host].machine_state.vms.get(&(id, generation))
    }

    /// A new compute, or a known one, as its node derives it.
    fn derive(id: AllocationId, generation: i64, kept: Option<Retained>) -> Outcome {
        success(ResponseResult::Compute(Box::new(Compute {
            generation,
            name: name(id, generation),
            id: None.into(),
            restored_from: kept.into(),
        })))
    }

    /// An operation's turn has come.
    pub(crate) fn vm_begins(&mut self, host: usize, work: WorkId) {
        let (reference, receipt, _) = self.receipt(host, work);
        let id = reference.allocation_id;
        let Some(asked) = self.asked_of(host, work) else {
            return;
        };
        match &asked {
            Arguments::Initial => return self.finish_work(host, work, Self::derive(id, 0, None)),
            Arguments::NewCompute { generation, retained } => {
                let kept = retained.as_deref().cloned();
                let derived = Self::derive(id, generation.get(), kept);
                return self.finish_work(host, work, derived);
            }
            _ => {}
        }
        if self.hosts[host].machine_state.is_locked(id) && !self.has(Defect::LockIgnored) {
            self.reach("a node found a helper of its former self");
            return self.finish_work(host, work, failed(FailureCode::Unconfirmed));
        }
        let phase = receipt.as_ref().map(Receipt::phase);
        match asked {
            Arguments::Info => self.vm_info(host, work),
            Arguments::Create(bootstrap) => {
                if receipt.is_some() {
                    return self.finish_work(host, work, failed(FailureCode::Exists));
                }
                let first = self.begin_receipt(host, work, PhaseEvent::CreateStarted);
                let link = bootstrap.link.resource.generation;
                self.announced(host, work, first, Ask::Create(link));
            }
            Arguments::Kill => {
                let next = self.next_receipt(host, work, PhaseEvent::KillStarted);
                self.announced(host, work, next, Ask::Kill);
            }
            Arguments::KillCompute(c) => {
                let named = receipt.as_ref().filter(|r| r.compute_generation == c.generation);
                let whole = match named.map(Receipt::phase) {
                    Some(Phase::Creating | Phase::Suspending) => true,
                    Some(Phase::Settled) => c.generation == 0,
                    _ => false,
                };
                let ask = Ask::KillCompute(c.generation);
                if whole {
                    let next = self.next_receipt(host, work, PhaseEvent::KillComputeStarted);
                    self.announced(host, work, next, ask);
                } else {
                    self.helper_starts(host, work, ask);
                }
            }
            Arguments::Compute(c) => {
                let released = receipt
                    .as_ref()
                    .filter(|r| phase == Some(Phase::Suspended) && r.compute_generation == c.generation)
                    .filter(|r| {
                        let outcome = r.outcome.0.as_ref();
                        outcome.is_some_and(|outcome| outcome.resources_released == Some(true))
                    });
                let outcome = match (released, self.vm(host, id, c.generation)) {
                    (Some(r), _) => answer(&c, None, "suspended", r.retained.0.clone()),
                    (None, Some(vm)) if vm.unfit && phase == Some(Phase::Restoring) => {
                        answer(&c, Some(vm), "failed", None)
                    }
                    (None, Some(vm)) => answer(&c, Some(vm), status(vm), None),
                    (None, None) => failed(FailureCode::NotFound),
                };
                self.finish_work(host, work, outcome);
            }
            Arguments::ResumeCompute(c) => match self.vm(host, id, c.generation) {
                Some(vm) if vm.is_live() => self.helper_starts(host, work, Ask::Thaw(c.generation)),
                _ => self.finish_work(host, work, failed(FailureCode::NotFound)),
            },
            Arguments::CommandCompute(c, _) => match self.vm(host, id, c.generation) {
                Some(vm) if vm.power == Power::Running => {
                    self.helper_starts(host, work, Ask::Wake(c.generation));
                }
                _ => self.finish_work(host, work, failed(FailureCode::NotFound)),
            },
            Arguments::Suspend(s) if s.reconcile_only => self.reconcile_suspend(host, work, &s),
            Arguments::Suspend(s) => {
                let g = s.source.generation;
                let live = self.vm(host, id, g).is_some_and(Vm::is_live);
                let fits = receipt.filter(|r| r.compute_generation == g && phase == Some(Phase::Settled));
                let Some(receipt) = fits.filter(|_| live) else {
                    return self.finish_work(host, work, failed(FailureCode::Invalid));
                };
                let next = receipt.apply(PhaseEvent::SuspendStarted).ok().map(|mut next| {
                    next.operation_id = Some(s.operation_id).into();
                    next.retained = None.into();
                    next.outcome = None.into();
                    next
                });
                self.announced(host, work, next, Ask::Suspend(g, s.operation_id));
            }
            Arguments::Resume(r) if r.reconcile_only => self.reconcile_resume(host, work, &r.target),
            Arguments::Resume(r) => {
                let g = r.target.generation;
                let again = receipt.as_ref().is_some_and(|receipt| {
                    let failed = receipt.outcome.0.as_ref().is_some_and(|o| o.error_code.is_some());
                    receipt.compute_generation == g || failed
                });
                let free = match phase {
                    None | Some(Phase::Suspended) => true,
                    Some(Phase::Restoring) => again,
                    _ => false,
                };
                if !free {
                    return self.finish_work(host, work, failed(FailureCode::Exists));
                }
                let next = self
                    .next_receipt(host, work, PhaseEvent::ResumeStarted)
                    .map(|mut next| {
                        next.compute_generation = g;
                        next.operation_id = Some(r.retained.operation_id).into();
                        next.retained = Some(r.retained.clone()).into();
                        next.outcome = None.into();
                        next.bootstrap_complete = true;
                        next.boot_id = Some(ids::boot(self.hosts[host].boot)).into();
                        next
                    });
                self.announced(host, work, next, Ask::Resume(g, r.retained.operation_id));
            }
            Arguments::DeleteRetained(kept) => {
                self.helper_starts(host, work, Ask::Delete(kept.operation_id));
            }
            _ => self.finish_work(host, work, failed(FailureCode::Invalid)),
        }
    }

    /// What the request named; an orphan answers nobody.
    pub(super) fn compute_asked(&self, host: usize, work: WorkId, attached: bool, g: i64) -> Compute {
        let asked = attached.then(|| self.asked_of(host, work)).flatten();
        match asked {
            Some(Arguments::Suspend(s)) => s.source,
            Some(Arguments::Resume(r)) => r.target,
            Some(Arguments::ResumeCompute(c) | Arguments::Compute(c) | Arguments::CommandCompute(c, _)) => *c,
            _ => Compute {
                generation: g,
                name: String::new(),
                id: None.into(),
                restored_from: None.into(),
            },
        }
    }

    pub(super) fn vm_stands(&self, host: usize, work: WorkId, attached: bool, g: i64) -> Outcome {
        let asked = self.compute_asked(host, work, attached, g);
        let id = attached.then(|| self.receipt(host, work).0.allocation_id);
        match id.and_then(|id| self.vm(host, id, g)) {
            Some(vm) => answer(&asked, Some(vm), status(vm), None),
            None => failed(FailureCode::NotFound),
        }
    }

    fn reconcile_suspend(&mut self, host: usize, work: WorkId, s: &oac_wire::shapes::Suspend) {
        let (reference, receipt, _) = self.receipt(host, work);
        let (id, g) = (reference.allocation_id, s.source.generation);
        let mine = receipt.filter(|r| r.operation_id.0 == Some(s.operation_id));
        let phase = mine.as_ref().map(Receipt::phase);
        if let (Some(Phase::Suspended), Some(receipt)) = (phase, &mine) {
            let said = answer(&s.source, None, "suspended", receipt.retained.0.clone());
            return self.finish_work(host, work, said);
        }
        if phase == Some(Phase::Suspending) {
            match self.kept.get(&s.operation_id).map(|kept| kept.good) {
                Some(true) => return self.helper_starts(host, work, Ask::Finish(g, s.operation_id)),
                Some(false) => drop(self.kept.remove(&s.operation_id)),
                None => {}
            }
            let live = self.vm(host, id, g).is_some_and(Vm::is_live);
            let goes_on = live
                .then(|| self.next_receipt(host, work, PhaseEvent::SuspendAbandoned))
                .flatten();
            if let Some(next) = goes_on
                && !self.store_receipt(host, next)
            {
                return self.finish_work(host, work, failed(FailureCode::Unconfirmed));
            }
        }
        let said = match self.vm(host, id, g) {
            Some(vm) => answer(&s.source, Some(vm), status(vm), None),
            None => failed(FailureCode::NotFound),
        };
        self.finish_work(host, work, said);
    }

    fn reconcile_resume(&mut self, host: usize, work: WorkId, target: &Compute) {
        let (reference, receipt, _) = self.receipt(host, work);
        let (id, g) = (reference.allocation_id, target.generation);
        let restoring = receipt.filter(|r| r.phase() == Phase::Restoring && r.compute_generation == g);
        let refused = restoring.as_ref().and_then(|r| r.outcome.0.as_ref());
        if refused.is_some_and(|outcome| outcome.error_code.is_some()) {
            return self.finish_work(host, work, failed(FailureCode::Invalid));
        }
        let said = match self.vm(host, id, g) {
            Some(vm) if vm.unfit && vm.is_live() => answer(target, Some(vm), "failed", None),
            Some(vm) => answer(target, Some(vm), status(vm), None),
            None => failed(FailureCode::NotFound),
        };
        let runs = self
            .vm(host, id, g)
            .is_some_and(|vm| vm.power == Power::Running && !vm.unfit);
        if restoring.is_some() && runs {
            let next = self.next_receipt(host, work, PhaseEvent::ResumeVerified);
            if !next.is_some_and(|next| self.store_receipt(host, next)) {
                return self.finish_work(host, work, failed(FailureCode::Unconfirmed));
            }
        }
        self.finish_work(host, work, said);
    }

    /// providers.md section 4, `info`, for a backend whose sandboxes end with their processes.
    fn vm_info(&mut self, host: usize, work: WorkId) {
        let (reference, receipt, _) = self.receipt(host, work);
        let id = reference.allocation_id;
        let phase = receipt.as_ref().map(Receipt::phase);
        let machine = &self.hosts[host].machine_state;
        let live = machine
            .of(id)
            .find(|(_, vm)| vm.is_live())
            .map(|(_, vm)| vm.clone());
        let left = machine.of(id).next().map(|(_, vm)| vm.native.clone());
        let present = |native: String, state: &str, complete: bool, settled: bool| Info {
            reference,
            provider_id: native,
            state: state.to_owned(),
            bootstrap_complete: complete,
            create_settled: settled,
            compute_lost: false,
        };
        let absent = |lost| Some(super::provider::absent(reference, lost));
        let info = match (phase, live) {
            (Some(Phase::Tombstone), _) if left.is_none() => absent(false),
            (Some(Phase::Tombstone), _) => {
                return self.finish_work(host, work, failed(FailureCode::Unconfirmed));
            }
            (_, Some(vm)) => {
                let complete = vm.power == Power::Running && !(vm.parked && phase == Some(Phase::Creating));
                if let Some(receipt) = receipt {
                    let mut next = receipt.clone();
                    if complete
                        && phase == Some(Phase::Creating)
                        && let Ok(settled) = next.clone().apply(PhaseEvent::CreateVerified)
                    {
                        next = settled;
                        next.bootstrap_complete = true;
                    }
                    next.boot_id = Some(ids::boot(self.hosts[host].boot)).into();
                    if next != receipt && !self.store_receipt(host, next) {
                        return self.finish_work(host, work, failed(FailureCode::Unconfirmed));
                    }
                }
                let state = if vm.power == Power::Paused {
                    "paused"
                } else {
                    Info::RUNNING
                };
                Some(present(
                    vm.native,
                    state,
                    complete,
                    complete || phase == Some(Phase::Settled),
                ))
            }
            (Some(Phase::Settled), None) => {
                let complete = receipt.as_ref().is_some_and(|r| r.bootstrap_complete);
                match (complete, left) {
                    (true, _) => absent(true),
                    (false, Some(native)) => Some(present(native, "leftover", false, true)),
                    (false, None) => absent(false),
                }
            }
            (Some(Phase::Suspended), None) => absent(false),
            (Some(Phase::Suspending | Phase::Restoring), None) => {
                let names = receipt.as_ref().and_then(|r| r.operation_id.0);
                let refused = receipt.as_ref().and_then(|r| r.outcome.0.as_ref());
                let refused = refused.is_some_and(|outcome| outcome.error_code.is_some());
                absent(refused || names.is_none_or(|operation| !self.kept.contains_key(&operation)))
            }
            (_, None) => left.map(|native| present(native, "leftover", false, false)),
        };
        let said = match info {
            Some(info) => success(ResponseResult::Info(info)),
            None => failed(FailureCode::NotFound),
        };
        self.finish_work(host, work, said);
    }

    // The runtime inside.

    pub(super) fn vm_dials_soon(&mut self, host: usize, id: AllocationId, g: i64) {
        let boot = self.hosts[host].boot;
        if let Some(vm) = self.vm_mut(host, id, g)
            && !std::mem::replace(&mut vm.dials, true)
        {
            self.after(100, 3_000, Happening::VmDials(host, boot, id, g));
        }
    }

    pub(crate) fn vm_dials(&mut self, host: usize, boot: u64, id: AllocationId, g: i64) {
        if self.hosts[host].boot != boot {
            return;
        }
        let cut = self.now < self.hosts[host].runtimes_cut_until;
        let Some(vm) = self.vm_mut(host, id, g) else {
            return;
        };
        if !vm.is_awake() {
            vm.dials = false;
            return;
        }
        let link = vm.link;
        if !cut {
            self.vm_links(host, id, g, link);
        }
        let most = if self.calm { 6_000 } else { 4_000 };
        self.after(2_000, most, Happening::VmDials(host, boot, id, g));
    }
}
