//! Which idle sandbox is suspended early, because a demand fits nowhere (core.md section 8).

use std::collections::{BTreeSet, HashMap, VecDeque};

use oac_lifecycle::suspension::target::Needs;
use oac_model::{AllocationId, AllocationState, ComputePhase, NodeId};
use oac_store::{AllocationRow, StoreError};

use super::{
    keeps_checkpoints,
    restore::{is_drained, needs},
    rows::Rows,
};
use crate::{Core, allocations::limits, placement::pressure::Wanted};

/// What one pass over the demands has read: of the nodes, each once for all demands, and of the checkpoints that are wanted.
/// It looks at so many at most: the worker has more to do.
#[derive(Default)]
pub(in crate::allocations) struct Looked {
    count: usize,
    /// What may be suspended there and was not chosen yet, the one idle longest first.
    idle: HashMap<NodeId, VecDeque<AllocationId>>,
}

/// What is done for one demand.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::allocations) enum Relief {
    Suspend(AllocationId),
    Nothing,
    /// It needs more than this pass looks at.
    Unlooked,
}

/// Whether any sandbox can be suspended at all.
pub(in crate::allocations) async fn makes_room(core: &Core) -> Result<bool, StoreError> {
    let provider = core.store.single().deployment().await?.provider;
    Ok(provider.is_some_and(keeps_checkpoints))
}

/// The sandbox to suspend for the demand: on the node that would be chosen if it had room, the one idle longest. A node
/// with nothing idle is passed over, and so are sandboxes that would not be suspended now.
pub(in crate::allocations) async fn relief(
    core: &Core,
    wanted: &Wanted,
    looked: &mut Looked,
    passed_over: impl Fn(AllocationId) -> bool,
) -> Result<Relief, StoreError> {
    let restore = match wanted {
        Wanted::Place(_) => None,
        Wanted::Restore(_) if !looked.may_look() => return Ok(Relief::Unlooked),
        Wanted::Restore(id) => match Restore::of(core, *id).await? {
            Some(restore) => Some(restore),
            None => return Ok(Relief::Nothing),
        },
    };
    let mut without = BTreeSet::new();
    while without.len() < limits::RELIEF_NODES {
        let memory = core.hub.memory();
        let node = match (wanted, &restore) {
            (Wanted::Place(request), _) => memory.place_with_room(request, &without),
            (Wanted::Restore(_), restore) => {
                restore.as_ref().and_then(|restore| restore.node(core, &without))
            }
        };
        let Some(node) = node else { break };
        let Some(idle) = looked.at(core, node).await? else {
            return Ok(Relief::Unlooked);
        };
        while let Some(id) = idle.pop_front() {
            if core.links.ready(id).is_some() && !passed_over(id) {
                return Ok(Relief::Suspend(id));
            }
        }
        without.insert(node);
    }
    Ok(Relief::Nothing)
}

impl Looked {
    /// Once more.
    fn may_look(&mut self) -> bool {
        self.count += 1;
        self.count <= limits::RELIEF_LOOKS
    }

    /// `None` of one node too many.
    async fn at(
        &mut self,
        core: &Core,
        node: NodeId,
    ) -> Result<Option<&mut VecDeque<AllocationId>>, StoreError> {
        if !self.idle.contains_key(&node) {
            if !self.may_look() {
                return Ok(None);
            }
            let read = core.store.single();
            let rows = read.still_allocations(node, limits::RELIEF_CANDIDATES).await?;
            self.idle.insert(node, rows.iter().map(|row| row.id).collect());
        }
        Ok(self.idle.get_mut(&node))
    }
}

/// A suspended sandbox that finds no node.
struct Restore {
    needs: Needs,
    generation: oac_model::Generation,
    home: NodeId,
    home_drained: bool,
}

impl Restore {
    async fn of(core: &Core, id: AllocationId) -> Result<Option<Self>, StoreError> {
        let read = core.store.single();
        // It may have been restored or given up meanwhile.
        let is_suspended = |row: &AllocationRow| {
            row.state == AllocationState::Running && row.compute_phase == ComputePhase::Suspended
        };
        let Some(row) = read.allocation(id).await?.filter(is_suspended) else {
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
        Ok(Some(Self {
            needs,
            generation,
            home: held.node,
            home_drained: home.is_some_and(|row| is_drained(&row)),
        }))
    }

    /// The full node that would be chosen.
    fn node(&self, core: &Core, without: &BTreeSet<NodeId>) -> Option<NodeId> {
        core.hub.memory().restore_with_room(
            &self.needs,
            |node| core.hub.is_ready(node, self.generation),
            |node| node == self.home && self.home_drained,
            without,
        )
    }
}
