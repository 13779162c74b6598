//! Helpers: each is a process of its own that does one operation, one native effect at a time, holds the allocation's lock
//! meanwhile, and goes on when its node is gone. Then nobody writes its receipt.

use oac_model::{AllocationId, Generation, OperationId};
use oac_peer::{FailureCode, Outcome};
use oac_provider::{Phase, PhaseEvent, Receipt, ReceiptOutcome};
use oac_wire::{
    B64,
    frames::ResponseResult,
    shapes::{CommandResult, Info, Opaque, Retained},
};

use super::{
    native::WorkId,
    vms::{Kept, Memory, Power, Vm, answer, failed, name, success},
};
use crate::{
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Create(Generation),
    Kill,
    KillCompute(i64),
    Thaw(i64),
    Wake(i64),
    Suspend(i64, OperationId),
    Finish(i64, OperationId),
    Resume(i64, OperationId),
    Delete(OperationId),
}

/// A process of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Helper {
    pub(crate) allocation: AllocationId,
    pub(crate) ask: Ask,
    step: u8,
    run: u64,
    work: WorkId,
}

fn opaque() -> Opaque {
    serde_json::from_str("{}").unwrap_or_else(|error| unreachable!("{error}"))
}

fn outcome(status: &str, released: bool) -> ReceiptOutcome {
    ReceiptOutcome {
        status: Some(status.to_owned()),
        resources_released: Some(released),
        suspend_settled: Some(true),
        error_code: None,
    }
}

impl World {
    pub(super) fn next_receipt(&self, host: usize, work: WorkId, event: PhaseEvent) -> Option<Receipt> {
        match self.receipt(host, work).1 {
            Some(receipt) => receipt.apply(event).ok(),
            None => self.begin_receipt(host, work, event),
        }
    }

    /// The receipt is durable before the first native effect.
    pub(super) fn announced(&mut self, host: usize, work: WorkId, receipt: Option<Receipt>, ask: Ask) {
        let stored = receipt.is_some_and(|receipt| self.store_receipt(host, receipt));
        if stored {
            self.helper_starts(host, work, ask);
        } else {
            self.finish_work(host, work, failed(FailureCode::Unconfirmed));
        }
    }

    pub(super) fn helper_starts(&mut self, host: usize, work: WorkId, ask: Ask) {
        let allocation = self.receipt(host, work).0.allocation_id;
        let serial = self.number();
        let run = self.hosts[host].run;
        let helper = Helper {
            allocation,
            ask,
            step: 0,
            run,
            work,
        };
        self.hosts[host].machine_state.helpers.insert(serial, helper);
        self.helper_waits(host, serial);
        let makes = matches!(ask, Ask::Create(_) | Ask::Suspend(..) | Ask::Resume(..));
        if makes && let Some(down) = self.hosts[host].crash_in_call.take() {
            self.say(|| format!("host {host}: node CRASHES"));
            self.node_ends(host, false);
            self.node_restarts(host, down);
        }
    }

    fn helper_waits(&mut self, host: usize, serial: u64) {
        let slow = self.now < self.hosts[host].engine.slow_until;
        let boot = self.hosts[host].boot;
        let most = if slow { 20_000 } else { 400 };
        self.after(1, most, Happening::HelperActs(host, boot, serial));
    }

    /// One native effect of a helper, whoever waits for it.
    pub(crate) fn helper_acts(&mut self, host: usize, boot: u64, serial: u64) {
        let here = &mut self.hosts[host];
        if here.boot != boot {
            return;
        }
        let Some(helper) = here.machine_state.helpers.get(&serial).copied() else {
            return;
        };
        if self.now < here.engine.down_until {
            return self.helper_waits(host, serial);
        }
        let attached = here.run == helper.run && here.process.is_some();
        let unlucky = here.engine.refuses > 0 && fails_at(helper.ask, helper.step);
        here.engine.refuses -= u32::from(unlucky);
        let had = self.has_state(helper.allocation);
        let outcome = self.effect(host, &helper, attached, unlucky);
        self.say(|| {
            let number = ids::number(helper.allocation.as_uuid());
            let whose = if attached { "" } else { " (nobody waits)" };
            format!(
                "host {host}: helper {:?} step {} of allocation {number}{whose}",
                helper.ask, helper.step
            )
        });
        if had && !self.has_state(helper.allocation) {
            self.check_destroyed(helper.allocation);
        }
        let Some(outcome) = outcome else {
            if let Some(helper) = self.hosts[host].machine_state.helpers.get_mut(&serial) {
                helper.step += 1;
            }
            return self.helper_waits(host, serial);
        };
        self.hosts[host].machine_state.helpers.remove(&serial);
        if attached {
            self.finish_work(host, helper.work, outcome);
        } else {
            self.reach("a helper outlived its node");
        }
    }

    /// Changes the receipt of what a helper did; the answer, unless that cannot be written.
    fn concludes(
        &mut self,
        host: usize,
        work: WorkId,
        attached: bool,
        event: PhaseEvent,
        outcome: Outcome,
        change: impl FnOnce(&mut Receipt),
    ) -> Option<Outcome> {
        if !attached {
            return Some(outcome);
        }
        let lost = self.hosts[host].engine.loses > 0;
        self.hosts[host].engine.loses -= u32::from(lost);
        let next = self.next_receipt(host, work, event).filter(|_| !lost);
        let stored = next.is_some_and(|mut next| {
            change(&mut next);
            self.store_receipt(host, next)
        });
        Some(if stored {
            outcome
        } else {
            failed(FailureCode::Unconfirmed)
        })
    }

    /// `None` while there is more to do. An orphan writes no receipt and answers nobody.
    fn effect(&mut self, host: usize, helper: &Helper, attached: bool, unlucky: bool) -> Option<Outcome> {
        let (id, work, step) = (helper.allocation, helper.work, helper.step);
        let none = || Outcome::Success(None);
        let boot = self.hosts[host].boot;
        match (helper.ask, step) {
            (Ask::Create(_), 0) if unlucky => {
                let receipt = attached
                    .then(|| self.receipt(host, work).0)
                    .map(|r| super::provider::absent(r, false));
                let outcome = Outcome::Failed {
                    code: FailureCode::Unconfirmed,
                    receipt,
                };
                self.concludes(
                    host,
                    work,
                    attached,
                    PhaseEvent::CreateMadeNothing,
                    outcome,
                    |_| {},
                )
            }
            (Ask::Create(link), 0) => {
                let generation = self
                    .db
                    .allocations
                    .get(&id)
                    .map_or(Generation::FIRST, |row| row.generation);
                self.vm_made(host, id, 0, Memory::default(), (generation, link), false);
                *self.hosts[host].engine.made.entry(id).or_default() += 1;
                None
            }
            (Ask::Create(_), 1) => {
                if let Some(vm) = self.vm_mut(host, id, 0) {
                    vm.parked = false;
                }
                self.vm_dials_soon(host, id, 0);
                None
            }
            (Ask::Create(_), _) => {
                let Some(vm) = self.vm(host, id, 0).filter(|vm| vm.power == Power::Running) else {
                    return Some(failed(FailureCode::Unconfirmed));
                };
                let info = Info {
                    reference: ids::reference(self.db.allocations.get(&id)?.session, id),
                    provider_id: vm.native.clone(),
                    state: Info::RUNNING.to_owned(),
                    bootstrap_complete: true,
                    create_settled: true,
                    compute_lost: false,
                };
                let outcome = success(ResponseResult::Info(info));
                self.concludes(
                    host,
                    work,
                    attached,
                    PhaseEvent::CreateVerified,
                    outcome,
                    |next| {
                        next.bootstrap_complete = true;
                        next.boot_id = Some(ids::boot(boot)).into();
                    },
                )
            }
            (Ask::Kill, _) => {
                let there = self.hosts[host].machine_state.of(id).next().map(|(g, _)| g);
                match there {
                    Some(generation) => {
                        self.hosts[host].machine_state.vms.remove(&(id, generation));
                        None
                    }
                    None => {
                        self.concludes(host, work, attached, PhaseEvent::AbsenceConfirmed, none(), |_| {})
                    }
                }
            }
            (Ask::KillCompute(g), _) => {
                if self.hosts[host].machine_state.vms.remove(&(id, g)).is_some() {
                    return None;
                }
                let receipt = attached.then(|| self.receipt(host, work).1).flatten();
                let ends = match &receipt {
                    None => true,
                    Some(r) => {
                        let target = matches!(r.phase(), Phase::Restoring | Phase::Settled) && g > 0;
                        target && (r.compute_generation == g || self.has(Defect::KillSuspendsAny))
                    }
                };
                if !ends || !attached {
                    return Some(none());
                }
                self.concludes(host, work, attached, PhaseEvent::TargetEnded, none(), |next| {
                    next.compute_generation = g;
                    next.outcome = None.into();
                    next.bootstrap_complete = true;
                })
            }
            (Ask::Thaw(g), _) => {
                if let Some(vm) = self.vm_mut(host, id, g).filter(|vm| vm.power == Power::Paused) {
                    vm.power = Power::Running;
                }
                Some(self.vm_stands(host, work, attached, g))
            }
            (Ask::Wake(g), _) => {
                let vm = self.vm_mut(host, id, g).filter(|vm| vm.power == Power::Running);
                let Some(vm) = vm else {
                    return Some(failed(FailureCode::CommandUnconfirmed));
                };
                vm.parked = false;
                self.vm_dials_soon(host, id, g);
                Some(success(ResponseResult::Command(CommandResult {
                    stdout: B64(Vec::new()),
                    stderr: B64(Vec::new()),
                    stdout_truncated: false,
                    stderr_truncated: false,
                    exit_code: if unlucky { 75 } else { 0 },
                })))
            }
            (Ask::Suspend(g, _), 0) => {
                if let Some(vm) = self.vm_mut(host, id, g).filter(|vm| vm.power == Power::Running) {
                    vm.power = Power::Paused;
                }
                None
            }
            (Ask::Suspend(g, operation), 1) => {
                let live = self.vm(host, id, g).filter(|vm| vm.is_live()).cloned();
                match live {
                    Some(vm) if !unlucky => {
                        self.publishes(host, id, g, operation, &vm);
                        None
                    }
                    // The capture failed, and what was published is removed.
                    Some(_) => {
                        let stands = self.vm_stands(host, work, attached, g);
                        self.concludes(
                            host,
                            work,
                            attached,
                            PhaseEvent::SuspendAbandoned,
                            stands,
                            |next| {
                                next.outcome = Some(outcome("paused", false)).into();
                            },
                        )
                    }
                    None => Some(failed(FailureCode::Unconfirmed)),
                }
            }
            (Ask::Suspend(g, _), 2) | (Ask::Finish(g, _), 0) => {
                let runs_on = self.has(Defect::SourceRunsOn);
                if let Some(vm) = self.vm_mut(host, id, g).filter(|_| !runs_on) {
                    vm.power = Power::Ended;
                }
                None
            }
            (Ask::Suspend(g, operation) | Ask::Finish(g, operation), _) => {
                let kept = self.kept.get(&operation).map(|kept| kept.retained.clone());
                let source = self.compute_asked(host, work, attached, g);
                let said = answer(&source, None, "suspended", kept.clone());
                self.concludes(host, work, attached, PhaseEvent::SuspendReleased, said, |next| {
                    next.retained = kept.into();
                    next.outcome = Some(outcome("suspended", true)).into();
                })
            }
            (Ask::Resume(g, operation), 0) => {
                let good = self
                    .kept
                    .get(&operation)
                    .filter(|kept| kept.good && kept.allocation == id)
                    .cloned();
                let refused = unlucky && self.random.one_in(2);
                let Some(kept) = good.filter(|_| !refused) else {
                    let invalid = failed(FailureCode::Invalid);
                    return self.records(host, work, attached, invalid, |receipt| {
                        receipt.outcome = Some(ReceiptOutcome {
                            status: None,
                            resources_released: None,
                            suspend_settled: None,
                            error_code: Some("checkpoint_invalid".to_owned()),
                        })
                        .into();
                    });
                };
                self.demand(kept.valid, Invariant::C21, || {
                    "a checkpoint is restored after its use".to_owned()
                });
                self.reach("a checkpoint was restored");
                self.vm_made(host, id, g, kept.memory, (kept.generation, kept.link), unlucky);
                None
            }
            (Ask::Resume(g, _), _) => {
                let target = self.compute_asked(host, work, attached, g);
                match self.vm(host, id, g).cloned() {
                    Some(vm) if vm.unfit => {
                        let said = answer(&target, Some(&vm), "failed", None);
                        self.records(host, work, attached, said, |receipt| {
                            receipt.outcome = Some(outcome("failed", false)).into();
                        })
                    }
                    Some(vm) if vm.power == Power::Running => {
                        let said = answer(&target, Some(&vm), "running", None);
                        self.concludes(host, work, attached, PhaseEvent::ResumeVerified, said, |next| {
                            next.outcome = Some(outcome("running", false)).into();
                        })
                    }
                    _ => Some(failed(FailureCode::Unconfirmed)),
                }
            }
            (Ask::Delete(operation), 0) => {
                self.kept.remove(&operation);
                None
            }
            (Ask::Delete(_), _) => Some(none()),
        }
    }

    /// A receipt that says more in the same phase.
    fn records(
        &mut self,
        host: usize,
        work: WorkId,
        attached: bool,
        outcome: Outcome,
        change: impl FnOnce(&mut Receipt),
    ) -> Option<Outcome> {
        if !attached {
            return Some(outcome);
        }
        let stored = self.receipt(host, work).1.is_some_and(|mut receipt| {
            change(&mut receipt);
            self.store_receipt(host, receipt)
        });
        Some(if stored {
            outcome
        } else {
            failed(FailureCode::Unconfirmed)
        })
    }

    fn publishes(&mut self, host: usize, id: AllocationId, g: i64, operation: OperationId, vm: &Vm) {
        let session = self.db.allocations.get(&id).map(|row| row.session);
        let running = session.and_then(|id| self.db.sessions.get(&id)?.running);
        let busy = vm.memory.acked < vm.memory.total || self.now < vm.memory.until;
        self.demand(running.is_none() && !busy, Invariant::S15, || {
            format!("a sandbox with Turn {running:?} is suspended, unread: {busy}")
        });
        let retained = Retained {
            operation_id: operation,
            source_generation: g,
            source_name: name(id, g),
            source_id: vm.native.clone(),
            store_id: ids::store(0),
            execution_class: oac_model::Digest::of("class"),
            digest: oac_model::Digest::of(format!("checkpoint {operation}")),
            size_bytes: 1 << 20,
            data: opaque(),
        };
        let kept = Kept {
            allocation: id,
            retained,
            good: true,
            valid: true,
            memory: vm.memory,
            generation: vm.generation,
            link: vm.link,
        };
        self.kept.insert(operation, kept);
        self.say(|| format!("host {host}: a checkpoint is published"));
        self.reach("a checkpoint was published");
    }

    pub(super) fn vm_mut(&mut self, host: usize, id: AllocationId, generation: i64) -> Option<&mut Vm> {
        self.hosts[host].machine_state.vms.get_mut(&(id, generation))
    }

    fn vm_made(
        &mut self,
        host: usize,
        id: AllocationId,
        g: i64,
        memory: Memory,
        (generation, link): (Generation, Generation),
        unfit: bool,
    ) {
        let native = format!("vm-{}", self.number());
        let vm = Vm {
            power: Power::Running,
            unfit,
            native,
            generation,
            link,
            parked: true,
            dials: false,
            memory,
        };
        self.hosts[host].machine_state.vms.insert((id, g), vm);
    }
}

/// Where a helper can be refused what it wants.
fn fails_at(ask: Ask, step: u8) -> bool {
    matches!(
        (ask, step),
        (Ask::Create(_) | Ask::Resume(..) | Ask::Wake(_), 0) | (Ask::Suspend(..), 1)
    )
}
