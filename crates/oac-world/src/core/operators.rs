//! What operators change while everything runs: cordons, limits, drains, resets, removals (`oac-core`'s `routes/nodes`
//! and `routes/deployment`). Each is one transaction, refused where the product refuses it.

use oac_lifecycle::{
    allocation::{Cause, Diagnostic},
    capacity::{Held, Limits},
    discard,
    drain::Then,
    reset,
};
use oac_model::{AllocationId, AllocationState, NodeId, ProviderKind};

use crate::{
    agenda::Millis,
    database::{AllocationRow, DrainRow, NodeRow},
    defect::Defect,
    ids,
    invariant::Invariant,
    world::{Happening, World},
};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Cordon(NodeId, bool),
    /// Changing a label moves nothing.
    Label(NodeId, bool),
    Limit(NodeId, i64),
    Drain {
        node: NodeId,
        lasts: Millis,
        then: Then,
        release: bool,
    },
    CancelDrain(NodeId),
    /// By a deadline so far away, or at once.
    Reset(Option<Millis>),
    CancelReset,
    NewTarget,
    Retire(NodeId),
    /// One of those that may be, by number.
    Discard(u64),
    /// After a reset: a backend is selected again.
    Select,
    /// A host that was given back is added as a new node.
    Enroll(usize),
}

impl World {
    pub(crate) fn operator_asks(&mut self, ask: Ask) {
        let managed = self.db.selected && self.db.reset == reset::State::None;
        let done = match ask {
            Ask::Reset(lasts) => self.ask_reset(lasts),
            Ask::CancelReset => self.cancel_reset(),
            // A drain can be canceled during a reset; it is over with it anyway.
            Ask::CancelDrain(node) => self.cancel_drain(node),
            Ask::Select => self.select(),
            // Also while a reset waits for it.
            Ask::Discard(which) => self.discard(which),
            _ if !managed => false,
            Ask::Cordon(node, cordoned) => self.set_cordoned(node, cordoned),
            Ask::Label(node, labelled) => self.set_labelled(node, labelled),
            Ask::Limit(node, active) => self.set_limit(node, active),
            Ask::Drain {
                node,
                lasts,
                then,
                release,
            } => self.start_drain(node, lasts, then, release),
            Ask::NewTarget => self.new_target(),
            Ask::Retire(node) => self.retire(node),
            Ask::Enroll(host) => self.enroll(host),
        };
        if done {
            self.say(|| format!("an operator changes: {ask:?}"));
        }
    }

    fn set_cordoned(&mut self, id: NodeId, cordoned: bool) -> bool {
        let Some(row) = self.db.nodes.get_mut(&id).filter(|row| !row.retired) else {
            return false;
        };
        let refused = !cordoned && row.drain.is_some();
        if !refused {
            row.cordoned = cordoned;
        }
        !refused
    }

    fn set_labelled(&mut self, id: NodeId, labelled: bool) -> bool {
        let row = self.db.nodes.get_mut(&id).filter(|row| !row.retired);
        if let Some(row) = row {
            row.labelled = labelled;
            return true;
        }
        false
    }

    fn set_limit(&mut self, id: NodeId, active: i64) -> bool {
        let (provider, retained) = match self.db.suspends {
            true => (ProviderKind::Microsandbox, active + 2),
            false => (ProviderKind::Docker, active),
        };
        let limits = Limits::custom(Some(provider), active, retained);
        let row = self.db.nodes.get_mut(&id).filter(|row| !row.retired);
        let (Some(limits), Some(row)) = (limits, row) else {
            return false;
        };
        row.max_active = limits.active;
        row.max_retained = limits.retained;
        row.highest = row.highest.max(limits.active);
        true
    }

    fn start_drain(&mut self, id: NodeId, lasts: Millis, then: Then, release: bool) -> bool {
        let deadline = self.db.time(self.now) + lasts;
        let row = self.db.nodes.get_mut(&id);
        let Some(row) = row.filter(|row| !row.retired && row.drain.is_none()) else {
            return false;
        };
        row.cordoned = true;
        row.drain = Some(DrainRow {
            deadline,
            passed: false,
            then,
            release,
            suspends: lasts.is_multiple_of(2),
        });
        self.history.drain_asked(id, deadline);
        true
    }

    fn cancel_drain(&mut self, id: NodeId) -> bool {
        let forgets = self.has(Defect::CancelForgotten);
        let row = self.db.nodes.get_mut(&id);
        let Some(row) = row.filter(|row| !row.retired && row.drain.is_some()) else {
            return false;
        };
        if !forgets {
            row.drain = None;
        }
        self.history.drain_over(id);
        self.reach("a drain was canceled");
        true
    }

    fn ask_reset(&mut self, lasts: Option<Millis>) -> bool {
        if !self.db.selected {
            return false;
        }
        let event = match lasts {
            None => reset::Event::AskedForce,
            Some(lasts) => reset::Event::AskedAuto {
                deadline: (self.db.time(self.now) + lasts) as oac_lifecycle::Millis,
            },
        };
        let Ok((state, Some(_))) = self.db.reset.apply(event) else {
            return false;
        };
        self.db.reset = state;
        self.history.reset = state;
        true
    }

    fn cancel_reset(&mut self) -> bool {
        let Ok((state, Some(_))) = self.db.reset.apply(reset::Event::Canceled) else {
            return false;
        };
        if !self.has(Defect::CancelForgotten) {
            self.db.reset = state;
        }
        self.history.reset = state;
        self.reach("a reset was canceled");
        true
    }

    /// Accepts the loss of a sandbox.
    fn discard(&mut self, which: u64) -> bool {
        let all = self.discardable();
        let Some(id) = all.get(which as usize % all.len().max(1)).copied() else {
            return false;
        };
        self.accept_loss(id);
        true
    }

    /// What linked before its create was answered and ended since has no other end: its node proves neither its loss nor
    /// that the create is over.
    pub(crate) fn accept_losses_of_creates(&mut self) {
        let is_creating = |id: &AllocationId| self.db.allocations[id].state == AllocationState::Creating;
        let all: Vec<AllocationId> = self.discardable().into_iter().filter(is_creating).collect();
        for id in all {
            self.accept_loss(id);
            self.reach("a linked sandbox ended before its create was answered, and was discarded");
        }
    }

    fn discardable(&self) -> Vec<AllocationId> {
        let anything = self.has(Defect::DiscardsAnything);
        let may = |row: &&AllocationRow| {
            let sandbox = discard::Sandbox {
                state: row.state,
                given_up: row.cause.is_some(),
                diagnostic: row.shown(),
                node_online: self
                    .db
                    .nodes
                    .get(&row.node)
                    .is_some_and(|node| self.db.is_online(node, self.now)),
                linked: self.has_link(row),
            };
            discard::is_discardable(sandbox) || anything && row.state == AllocationState::Running
        };
        self.db.unreleased().filter(may).map(|row| row.id).collect()
    }

    fn accept_loss(&mut self, id: AllocationId) {
        let row = self.db.allocations.get(&id);
        let shown = row.and_then(AllocationRow::shown);
        let linked = row.is_some_and(|row| self.has_link(row));
        let lost = match shown {
            Some(Diagnostic::ResourceMissing) => !linked,
            shown => shown == Some(Diagnostic::ComputeUnconfirmed),
        };
        self.demand(lost, Invariant::Discard, || {
            let number = ids::number(id.as_uuid());
            format!("allocation {number} is shown as {shown:?}, linked: {linked}, and discarded")
        });
        self.give_up(id, Cause::Discard);
        self.reach("a sandbox was discarded");
    }

    /// Whether the sandbox is linked to the owner.
    fn has_link(&self, row: &AllocationRow) -> bool {
        let owner = (0..self.cores.len()).find(|core| self.ownership(*core).is_some());
        owner.is_some_and(|core| match &row.held {
            Some(held) => self.is_linked(core, row, &held.held),
            None => self.snapshot(core, row, false).linked,
        })
    }

    fn new_target(&mut self) -> bool {
        let next = self.db.target.next().filter(|_| self.db.target.get() <= 24);
        if let Some(next) = next {
            self.db.set_target(next);
        }
        next.is_some()
    }

    fn select(&mut self) -> bool {
        let next = self.db.target.next().filter(|_| !self.db.selected);
        if let Some(next) = next {
            self.db.selected = true;
            self.db.set_target(next);
            self.reach("a backend was selected after a reset");
        }
        next.is_some()
    }

    fn enroll(&mut self, host: usize) -> bool {
        // Until then its uninstaller waits.
        let quiet = self.network.dials.values().all(|dial| dial.host != host)
            && self.hosts[host].engine.calls.is_empty();
        if !self.hosts[host].over || !quiet {
            return false;
        }
        let id = match self.has(Defect::RemovalUndone) {
            true => self.hosts[host].id,
            false => ids::node(self.db.nodes.len() as u64),
        };
        let max_active = 1 + self.random.below(3) as u32;
        let mut row = NodeRow::enrolled(id, self.db.target, max_active);
        row.max_retained += if self.db.suspends { 2 } else { 0 };
        self.db.nodes.insert(id, row);
        self.hosts[host].enroll(id, self.db.target);
        self.history.unauthorized.remove(&host);
        self.after(0, 5_000, Happening::NodeStarts(host));
        self.reach("a host that was given back was enrolled again");
        true
    }

    /// Computes that are not known to have ended there, whichever node their allocation is at now.
    fn open_computes(&self, id: NodeId) -> u64 {
        let held = self.db.unreleased().filter_map(|row| row.held.as_ref());
        let computes = held.flat_map(|row| &row.held.computes);
        computes.filter(|c| !c.ended && c.node == id).count() as u64
    }

    fn retire(&mut self, id: NodeId) -> bool {
        let here = || self.db.unreleased().filter(|row| row.node == id);
        let cleaned =
            |row: &&crate::database::AllocationRow| row.state == oac_model::AllocationState::CleanupPending;
        let held = Held {
            retained: here().count() as u64,
            cleanup_pending: here().filter(cleaned).count() as u64,
            open_computes: self.open_computes(id),
        };
        let others = self.db.nodes.values().filter(|node| !node.retired).count() > 1;
        if !others || !held.is_nothing() && !self.has(Defect::RetireInUse) {
            return false;
        }
        let Some(node) = self.db.nodes.get_mut(&id).filter(|node| !node.retired) else {
            return false;
        };
        node.retired = true;
        self.history.removed.insert(id);
        self.say(|| format!("node {} is REMOVED", ids::number(id.as_uuid())));
        let of = |host: &&crate::host::Host| host.id == id;
        let mut there = self
            .hosts
            .iter()
            .filter(of)
            .flat_map(|host| host.receipts.values());
        let left = there.find(|receipt| {
            let row = self.db.allocations.get(&receipt.reference.allocation_id);
            receipt.phase() != oac_provider::Phase::Tombstone && row.is_some_and(|row| row.ever_sent)
        });
        let left = match self.db.suspends {
            // A receipt stays at a node that was left; computes do not.
            true => self
                .hosts
                .iter()
                .filter(of)
                .find_map(|host| host.machine_state.vms.keys().next())
                .map(|(allocation, _)| *allocation),
            false => left.map(|receipt| receipt.reference.allocation_id),
        };
        self.demand(left.is_none(), Invariant::C29, || {
            format!("a node is removed whose host holds {left:?}")
        });
        true
    }
}
