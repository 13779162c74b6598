//! Kill, and the removal that kill, a refused create and the sweep share.
//!
//! | killed after | the engine has | receipt | `info` | `kill` again |
//! |---|---|---|---|---|
//! | 1 receipt `killing` durable | everything | killing | live: its id and state, settled while running; else the leftover | continues |
//! | 2 inventory, ownership checked | everything | killing | the same | continues |
//! | 3 container removed | two volumes | killing | the leftover, unsettled | continues |
//! | 4 first volume removed | one volume | killing | the leftover, unsettled | continues |
//! | 5 second volume removed | – | killing | `not_found`, unsettled | success, tombstone |
//! | 6 absence confirmed | – | killing | `not_found`, unsettled | success, tombstone |
//! | 7 tombstone durable | – | tombstone | settled absent | success |
//!
//! `create` answers `exists` at every row.

use http::Method;
use oac_model::Reference;
use oac_provider::{Cause, Failure, PhaseEvent, Receipt};

use crate::{
    engine::EngineError,
    inventory::Inventory,
    provider::{Entered, Inner, inventory_failure, unconfirmed},
};

impl Inner {
    pub(crate) async fn kill(&self, reference: Reference) -> Result<(), Failure> {
        let mut entered = self.enter(reference).await?;
        entered.require_same_host()?;
        let killing = match entered.receipt.clone() {
            Some(receipt) => receipt.apply(PhaseEvent::KillStarted),
            None => Receipt::begin(
                PhaseEvent::KillStarted,
                reference,
                self.generation,
                entered.host_id,
                Some(entered.boot.ok_or_else(|| {
                    Failure::Unconfirmed(Cause::new("the kernel's boot_id cannot be read"))
                })?),
            ),
        }
        .map_err(unconfirmed)?;
        if entered.receipt.as_ref() != Some(&killing) {
            self.store(killing.clone()).await?;
            entered.receipt = Some(killing.clone());
        }
        self.remove_all(&mut entered).await?;
        let tombstone = killing
            .clone()
            .apply(PhaseEvent::AbsenceConfirmed)
            .map_err(unconfirmed)?;
        if tombstone != killing {
            self.store(tombstone).await?;
        }
        Ok(())
    }

    /// Checks ownership of everything, removes it, and confirms that nothing remains (INV-V8, INV-V9). Returns
    /// whether there was anything.
    pub(crate) async fn remove_all(&self, entered: &mut Entered) -> Result<bool, Failure> {
        let Entered { session, names, .. } = entered;
        let found = Inventory::take(session, names).await.map_err(inventory_failure)?;
        for container in &found.containers {
            let path = format!("/containers/{}?force=true", container.id);
            gone_is_fine(session.act(Method::DELETE, &path, None).await)?;
        }
        for volume in &found.volumes {
            let path = format!("/volumes/{volume}");
            gone_is_fine(session.act(Method::DELETE, &path, None).await)?;
        }
        if found.is_empty() {
            return Ok(false);
        }
        let rest = Inventory::take(session, names).await.map_err(inventory_failure)?;
        if rest.is_empty() {
            Ok(true)
        } else {
            Err(Failure::Unconfirmed(Cause::new(
                "the engine still lists something of this reference",
            )))
        }
    }
}

fn gone_is_fine(result: Result<(), EngineError>) -> Result<(), Failure> {
    match result {
        Err(error) if error.status() == Some(404) => Ok(()),
        other => other.map_err(unconfirmed),
    }
}
