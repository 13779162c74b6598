//! What `info` answers, from the receipt and the inventory (providers.md section 4).

use oac_model::BootId;
use oac_wire::shapes::Info;

use super::{
    Defect,
    machine::{Power, State, Vm},
};
use crate::{NativeWork, Phase, PhaseEvent, Receipt};

/// What there is of a reference.
#[derive(Debug, Clone, Default)]
pub(super) struct Inventory {
    pub(super) vms: Vec<(String, Vm)>,
    pub(super) disks: Vec<String>,
    pub(super) foreign: bool,
}

impl Inventory {
    pub(super) fn is_empty(&self) -> bool {
        self.vms.is_empty() && self.disks.is_empty()
    }

    pub(super) fn live(&self) -> Option<&(String, Vm)> {
        self.vms.iter().find(|(_, vm)| vm.power != Power::Ended)
    }
}

/// The answer, and the receipt that must be durable before it.
pub(super) enum Verdict {
    Known(Info),
    NotFound,
    Unconfirmed(&'static str),
}

pub(super) struct Facts<'a> {
    pub(super) reference: oac_model::Reference,
    pub(super) work: NativeWork,
    pub(super) defect: Option<Defect>,
    pub(super) receipt: Option<&'a Receipt>,
    pub(super) inventory: &'a Inventory,
    pub(super) same_host: bool,
    pub(super) boot: Option<BootId>,
    pub(super) steady: bool,
    /// Whether the marked store holds a checkpoint that the receipt names; `None` where it cannot be told.
    pub(super) restorable: Option<bool>,
}

impl Facts<'_> {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    fn absent(&self, compute_lost: bool) -> Verdict {
        Verdict::Known(Info {
            reference: self.reference,
            provider_id: String::new(),
            state: Info::ABSENT.into(),
            bootstrap_complete: false,
            create_settled: true,
            compute_lost: compute_lost && !self.has(Defect::NeverLost),
        })
    }

    fn state(&self, vm: &Vm, state: &str, bootstrap_complete: bool, create_settled: bool) -> Verdict {
        Verdict::Known(Info {
            reference: self.reference,
            provider_id: vm.id.clone(),
            state: state.into(),
            bootstrap_complete,
            create_settled,
            compute_lost: false,
        })
    }

    pub(super) fn decide(&self) -> (Option<Receipt>, Verdict) {
        let phase = self.receipt.map(Receipt::phase);
        if phase == Some(Phase::Tombstone) {
            let verdict = match self.inventory.vms.first() {
                _ if self.has(Defect::SettlesUnderTombstone) => self.absent(false),
                None if self.inventory.is_empty() => self.absent(false),
                Some((_, vm)) if self.work == NativeWork::Service => self.state(vm, "left", false, false),
                _ => Verdict::Unconfirmed("something is left under a tombstone"),
            };
            return (None, verdict);
        }
        if let Some((_, vm)) = self.inventory.live() {
            return self.live(vm);
        }
        (None, self.not_live(phase))
    }

    fn live(&self, vm: &Vm) -> (Option<Receipt>, Verdict) {
        let complete = match self.has(Defect::BootstrapIsExistence) {
            true => true,
            false => vm.power == Power::Running && vm.bootstrapped,
        };
        let mut store = None;
        if let (Some(receipt), true) = (self.receipt, self.same_host) {
            let mut next = receipt.clone();
            if complete && next.phase() == Phase::Creating && !self.has(Defect::NeverAdopts) {
                next = next
                    .apply(PhaseEvent::CreateVerified)
                    .unwrap_or_else(|_| receipt.clone());
            }
            next.bootstrap_complete |= complete && next.phase() == Phase::Settled;
            if self.work != NativeWork::Service && !self.has(Defect::KeepsFirstBoot) {
                next.boot_id = self.boot.into();
            }
            store = (next != *receipt).then_some(next);
        }
        let settled = self.receipt.map(Receipt::phase) == Some(Phase::Settled);
        let state = match vm.power {
            Power::Created => "created",
            Power::Paused => "paused",
            _ => Info::RUNNING,
        };
        (store, self.state(vm, state, complete, settled || complete))
    }

    fn not_live(&self, phase: Option<Phase>) -> Verdict {
        let ended = self.inventory.vms.first().map(|(_, vm)| vm);
        match phase {
            Some(Phase::Settled) if self.receipt.is_some_and(|r| r.bootstrap_complete) => {
                self.after_bootstrap(ended)
            }
            Some(Phase::Settled) => self.leftover(ended, true),
            Some(Phase::Suspended) => self.absent(self.has(Defect::SuspendedIsLost)),
            Some(Phase::Suspending | Phase::Restoring) => {
                let failed = self
                    .receipt
                    .and_then(|r| r.outcome.0.as_ref())
                    .is_some_and(|o| o.error_code.is_some());
                let gone = self.restorable == Some(false) || failed;
                self.absent(self.same_host && (gone || self.has(Defect::IgnoresCheckpointOnLoss)))
            }
            _ => self.leftover(ended, false),
        }
    }

    fn after_bootstrap(&self, ended: Option<&Vm>) -> Verdict {
        if !self.same_host {
            return Verdict::Unconfirmed("another host than the receipt's");
        }
        if self.work != NativeWork::Engine {
            return self.absent(true);
        }
        let same_boot = self.receipt.is_some_and(|r| r.boot_id.0 == self.boot);
        let over = !same_boot && (self.steady || self.has(Defect::LostAtOnceAfterReboot));
        match ended {
            Some(_) if over || self.has(Defect::EndedIsLost) => self.absent(true),
            Some(vm) => self.state(vm, "ended", false, true),
            None if same_boot || over => self.absent(true),
            None => Verdict::Unconfirmed("the engine's restarts may be under way"),
        }
    }

    fn leftover(&self, ended: Option<&Vm>, create_settled: bool) -> Verdict {
        match (ended, self.inventory.disks.first()) {
            (Some(vm), _) => self.state(vm, "leftover", false, create_settled),
            (None, Some(disk)) => Verdict::Known(Info {
                reference: self.reference,
                provider_id: disk.clone(),
                state: "leftover".into(),
                bootstrap_complete: false,
                create_settled,
                compute_lost: false,
            }),
            (None, None) if create_settled || self.has(Defect::NotFoundIsAbsent) => self.absent(false),
            (None, None) => Verdict::NotFound,
        }
    }
}

/// By derived name and by labels.
pub(super) fn inventory(state: &State, names: &str, owner: super::machine::Owner) -> Inventory {
    let mut found = Inventory::default();
    let mut of = |name: &str, holder: Option<super::machine::Owner>| {
        let (named, owned) = (name.starts_with(names), holder == Some(owner));
        found.foreign |= named && !owned;
        named || owned
    };
    let vms: Vec<_> = state.vms.iter().filter(|(name, vm)| of(name, vm.owner)).collect();
    let disks: Vec<_> = state
        .disks
        .iter()
        .filter(|(name, holder)| of(name, **holder))
        .collect();
    found.vms = vms
        .into_iter()
        .map(|(name, vm)| (name.clone(), vm.clone()))
        .collect();
    found.disks = disks.into_iter().map(|(name, _)| name.clone()).collect();
    found
}
