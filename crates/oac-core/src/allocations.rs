//! The workers that move allocations: from reserved over creating to running, and through cleanup to released
//! (core.md sections 11 and 13).
//!
//! It must guarantee that no `create` is sent twice, that nothing is sent before it is stored, and that nothing is released
//! without proof (INV-C16 to C19, C22). `oac_lifecycle::allocation` decides each step; [`record`] stores it; [`steps`]
//! performs it; the [`worker`] finds what is due. A killed Core leaves nothing half done that the next one would not
//! find in the rows: an intent that was not sent is dropped, a sent operation is only observed.

mod demand;
mod effects;
mod limits;
mod places;
mod record;
mod samples;
mod sandbox;
mod steps;
mod suspension;
mod worker;

use std::{collections::BTreeSet, sync::Arc};

use oac_model::{AllocationId, NodeId, TurnId};
use oac_store::{AllocationRow, ComputeRow, Read, StoreError, Tx};

use crate::{Core, task::Kind};

pub(crate) use effects::{announce_reset, shown};
pub use oac_lifecycle::allocation::Cause;
pub use samples::Samples;
pub(crate) use sandbox::SandboxState;

/// Gives an allocation up inside the caller's transaction, which already holds the lock of its Session: archive, reset,
/// discard. Its link credential is revoked; the worker does the rest, once it is told with [`GivenUp::tell`] after the
/// commit. An allocation that is already being given up keeps its first cause.
///
/// # Errors
/// [`StoreError`]; a row that does not exist is [`StoreError::Stored`].
pub async fn begin_cleanup(tx: &Tx, id: AllocationId, cause: Cause) -> Result<GivenUp, StoreError> {
    record::give_up(tx, id, cause).await.map_err(unstored)
}

fn unstored(error: record::ApplyError) -> StoreError {
    match error {
        record::ApplyError::Store(error) => error,
        _ => StoreError::Stored {
            column: "allocations.state".to_owned(),
        },
    }
}

/// An operator's word that these nodes, which are offline and locked, never return: the allocation's former computes there
/// count as ended, and nothing waits for them any more (core.md section 4). Should such a node connect again, they are
/// killed all the same. The caller's transaction holds the lock of its Session; after the commit the worker is told with
/// `core.pokes.want`. Names the nodes that had any.
pub(crate) async fn discard_former_computes(
    tx: &Tx,
    row: &AllocationRow,
    offline: &BTreeSet<NodeId>,
) -> Result<BTreeSet<NodeId>, StoreError> {
    if !suspension::owns(row) {
        return Ok(BTreeSet::new());
    }
    suspension::forget(tx, row.clone(), offline)
        .await
        .map_err(unstored)
}

/// What an operator's discard of former computes depends on besides where they are.
pub(crate) struct Former {
    /// A cleanup has nothing else to do.
    pub(crate) awaited_alone: bool,
    /// Some were discarded, and their nodes did not confirm their end since.
    pub(crate) owed: bool,
}

pub(crate) async fn former(read: &Read, row: &AllocationRow) -> Result<Former, StoreError> {
    if !suspension::owns(row) {
        return Ok(Former {
            awaited_alone: false,
            owed: false,
        });
    }
    let rows = suspension::Rows::of(read, row.clone()).await?;
    // Read between two transactions, the rows may not fit: then nothing is shown.
    let held = rows.held().ok();
    Ok(Former {
        awaited_alone: held.as_ref().is_some_and(|held| held.waits_only_elsewhere()),
        owed: held.is_some_and(|held| held.owed().next().is_some()),
    })
}

/// An allocation that was given up.
pub struct GivenUp {
    /// As it is now: `cleanup_pending`, `released`, or `reserved` with a cause when nothing was ever sent, which is shown as
    /// being cleaned up too.
    pub row: AllocationRow,
    /// Turns that ended with it.
    turns: Vec<TurnId>,
}

impl GivenUp {
    /// Others learn of it, once the transaction is committed.
    pub(crate) fn tell(&self, core: &Core) {
        core.links.revoke(self.row.id);
        core.turns.notify(self.row.session_id, &self.turns);
        core.pokes.reset_may_go_on(self.row.session_id);
        core.pokes.changed(self.row.id);
    }
}

/// A new allocation is shown to its Session.
pub(crate) async fn appeared(tx: &Tx, row: &AllocationRow) -> Result<(), StoreError> {
    effects::changed(tx, row).await
}

/// Tells the Session if it is shown its allocation differently now.
pub(crate) async fn changed(tx: &Tx, was: &AllocationRow, row: &AllocationRow) -> Result<(), StoreError> {
    effects::show(tx, was, row).await
}

/// The compute that an allocation's link reaches, and whether it is given up and never admitted.
pub(crate) async fn newest_compute(
    read: &Read,
    id: AllocationId,
) -> Result<Option<(ComputeRow, bool)>, StoreError> {
    record::newest_compute(read, id).await
}

/// Starts this part's workers.
pub fn start(core: &Arc<Core>) {
    core.tasks
        .spawn(Kind::Worker, "allocations", worker::run(core.clone()));
}
