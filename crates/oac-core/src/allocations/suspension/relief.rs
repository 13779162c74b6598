//! Which idle sandbox is suspended early, because a demand fits nowhere (core.md section 8).

use std::collections::BTreeSet;

use oac_lifecycle::suspension::{
    may_suspend,
    pressure::{Idle, longest_idle},
};
use oac_model::{AllocationId, NodeId};
use oac_store::StoreError;

use super::{
    keeps_checkpoints,
    restore::{is_drained, needs},
    rows::Rows,
    suspend::stillness,
};
use crate::{Core, allocations::limits, placement::pressure::Wanted};

/// The sandbox to suspend for the demand: on the node that would be chosen if it had room, the one idle longest. A node
/// with nothing idle is passed over.
pub(in crate::allocations) async fn relief(
    core: &Core,
    wanted: &Wanted,
) -> Result<Option<AllocationId>, StoreError> {
    let provider = core.store.single().deployment().await?.provider;
    if !provider.is_some_and(keeps_checkpoints) {
        return Ok(None);
    }
    let mut without = BTreeSet::new();
    while without.len() < limits::RELIEF_NODES {
        let Some(node) = crowded(core, wanted, &without).await? else {
            break;
        };
        if let Some(id) = idle_on(core, node).await? {
            return Ok(Some(id));
        }
        without.insert(node);
    }
    Ok(None)
}

/// The full node that would be chosen.
async fn crowded(
    core: &Core,
    wanted: &Wanted,
    without: &BTreeSet<NodeId>,
) -> Result<Option<NodeId>, StoreError> {
    let (read, memory) = (core.store.single(), core.hub.memory());
    let id = match wanted {
        Wanted::Place(request) => return Ok(memory.place_with_room(request, without)),
        Wanted::Restore(id) => *id,
    };
    let Some(row) = read.allocation(id).await?.filter(super::owns) else {
        return Ok(None);
    };
    let Some(session) = read.session(row.session_id).await? else {
        return Ok(None);
    };
    let generation = row.deployment_generation;
    let rows = Rows::of(&read, row).await?;
    let Some((held, needs)) = rows.held().ok().and_then(|held| {
        let needs = needs(&rows, &held, &session)?;
        Some((held, needs))
    }) else {
        return Ok(None);
    };
    let home = read.node(held.node).await?;
    let home_drained = home.is_some_and(|row| is_drained(&row));
    Ok(memory.restore_with_room(
        &needs,
        |node| core.hub.is_ready(node, generation),
        |node| node == held.node && home_drained,
        without,
    ))
}

/// Of the node's sandboxes that nothing but the time keeps from being suspended, the one idle longest.
async fn idle_on(core: &Core, node: NodeId) -> Result<Option<AllocationId>, StoreError> {
    let read = core.store.single();
    let now = read.database_time().await?;
    let mut idle = Vec::new();
    for row in read.still_allocations(node, limits::RELIEF_CANDIDATES).await? {
        let Some(session) = read.session(row.session_id).await? else {
            continue;
        };
        let kept = read.undeleted_checkpoint(row.id).await?.is_some();
        let still = stillness(&read, &row, &session, kept, now, true).await?;
        if may_suspend(&still).is_ok() && core.links.ready(row.id).is_some() {
            idle.push(Idle {
                allocation: row.id,
                idle_for: still.idle_for,
            });
        }
    }
    Ok(longest_idle(&idle))
}
