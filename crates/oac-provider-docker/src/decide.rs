//! What `info` answers, from the receipt and the inventory alone (providers.md section 4).

use oac_model::{BootId, Reference};
use oac_provider::{Phase, PhaseEvent, Receipt};
use oac_wire::shapes::Info;

use crate::{
    inventory::{Container, Inventory},
    names::Names,
};

/// State of a sandbox whose process is over but whose files wait (providers.md section 4).
const ENDED: &str = "ended";
/// State shown where only volumes are left.
const LEFTOVER: &str = "leftover";

/// What is known at one moment.
pub(crate) struct Facts<'a> {
    pub(crate) reference: Reference,
    pub(crate) names: &'a Names,
    pub(crate) receipt: Option<&'a Receipt>,
    pub(crate) inventory: &'a Inventory,
    /// host_id equals both the recorded one and the receipt's.
    pub(crate) same_host: bool,
    pub(crate) boot: Option<BootId>,
    /// The engine has answered for 60 s without interruption.
    pub(crate) steady: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Known(Info),
    NotFound,
    Unconfirmed(&'static str),
}

/// The answer, and the receipt that must be durable before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) store: Option<Receipt>,
    pub(crate) verdict: Verdict,
}

impl Decision {
    fn only(verdict: Verdict) -> Self {
        Self { store: None, verdict }
    }
}

pub(crate) fn settled_absent(reference: Reference, compute_lost: bool) -> Info {
    Info {
        reference,
        provider_id: String::new(),
        state: Info::ABSENT.into(),
        bootstrap_complete: false,
        create_settled: true,
        compute_lost,
    }
}

impl Facts<'_> {
    pub(crate) fn decide(&self) -> Decision {
        let containers = &self.inventory.containers;
        if containers.len() > 1 {
            return Decision::only(Verdict::Unconfirmed(
                "several containers carry this reference's labels",
            ));
        }
        match self.receipt.map(Receipt::phase) {
            Some(Phase::Tombstone) if self.inventory.is_empty() => {
                return self.answer(settled_absent(self.reference, false));
            }
            Some(Phase::Tombstone) => {
                return Decision::only(Verdict::Unconfirmed("something is left under a tombstone"));
            }
            Some(Phase::Suspending | Phase::Suspended | Phase::Restoring) => {
                return Decision::only(Verdict::Unconfirmed(
                    "the receipt's phase does not belong to Docker",
                ));
            }
            _ => {}
        }
        match containers.first() {
            Some(container) if container.is_live() => self.live(container),
            ended => self.not_live(ended),
        }
    }

    fn answer(&self, info: Info) -> Decision {
        Decision::only(Verdict::Known(info))
    }

    fn live(&self, container: &Container) -> Decision {
        // Exactly the resource that create makes, with its process started.
        let complete = container.is_running() && container.has_name(&self.names.container);
        let mut store = None;
        if let (Some(receipt), true) = (self.receipt, self.same_host) {
            let Some(boot) = self.boot else {
                return Decision::only(Verdict::Unconfirmed("the kernel's boot_id cannot be read"));
            };
            let mut next = receipt.clone();
            if complete && next.phase() == Phase::Creating {
                match next.clone().apply(PhaseEvent::CreateVerified) {
                    Ok(settled) => next = settled,
                    Err(_) => unreachable!("creating is settled by a verified create"),
                }
            }
            next.bootstrap_complete |= complete && next.phase() == Phase::Settled;
            next.boot_id = Some(boot).into();
            store = (next != *receipt).then_some(next);
        }
        let settled = self.receipt.map(Receipt::phase) == Some(Phase::Settled);
        Decision {
            store,
            verdict: Verdict::Known(Info {
                reference: self.reference,
                provider_id: container.id.clone(),
                state: container.state.status.clone(),
                bootstrap_complete: complete,
                create_settled: settled || complete,
                compute_lost: false,
            }),
        }
    }

    fn not_live(&self, ended: Option<&Container>) -> Decision {
        let Some(receipt) = self.receipt else {
            return self.leftover(ended, false);
        };
        match receipt.phase() {
            Phase::Settled if receipt.bootstrap_complete => self.after_bootstrap(receipt, ended),
            Phase::Settled => self.leftover(ended, true),
            _ => self.leftover(ended, false),
        }
    }

    fn leftover(&self, ended: Option<&Container>, create_settled: bool) -> Decision {
        let present = match (ended, self.inventory.volumes.first()) {
            (Some(container), _) => Some((container.id.clone(), container.state.status.clone())),
            (None, Some(volume)) => Some((volume.clone(), LEFTOVER.to_owned())),
            (None, None) => None,
        };
        match present {
            Some((provider_id, state)) => self.answer(Info {
                reference: self.reference,
                provider_id,
                state,
                bootstrap_complete: false,
                create_settled,
                compute_lost: false,
            }),
            None if create_settled => self.answer(settled_absent(self.reference, false)),
            None => Decision::only(Verdict::NotFound),
        }
    }

    /// The one place where loss is concluded (INV-V4).
    fn after_bootstrap(&self, receipt: &Receipt, ended: Option<&Container>) -> Decision {
        let same_boot = self.boot.is_some() && self.boot == receipt.boot_id.0;
        // No process outlives a reboot; but the engine's restarts may still be under way.
        let reboot_is_over = self.boot.is_some() && !same_boot && self.steady;
        match ended {
            None if !self.same_host => Decision::only(Verdict::Unconfirmed(
                "this is not the host that the receipt was made on",
            )),
            None if same_boot || reboot_is_over => self.answer(settled_absent(self.reference, true)),
            None => Decision::only(Verdict::Unconfirmed(
                "the engine has not answered for 60 s since the boot",
            )),
            Some(_) if self.same_host && reboot_is_over => self.answer(settled_absent(self.reference, true)),
            Some(container) => self.answer(Info {
                reference: self.reference,
                provider_id: container.id.clone(),
                state: ENDED.into(),
                bootstrap_complete: false,
                create_settled: true,
                compute_lost: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
