//! What must hold, whatever happened: the checks of every event, of an allocation's events, and of rest.

use std::collections::{BTreeMap, BTreeSet};

use oac_lifecycle::{
    allocation::{Cause, Event, Mutation, OperationState, Sighting, State},
    placement::{Answer, place},
    reset,
};
use oac_model::{
    AllocationId, AllocationState, ConnectionId, Generation, NodeId, OwnerEpoch, RequestId, SessionId,
};
use oac_peer::{core, node};
use oac_provider::Phase;
use oac_wire::shapes::Operation;

use crate::{
    agenda::Millis,
    database::{AllocationRow, Detail, required},
    host::{Host, engine::Status},
    ids,
    invariant::Invariant,
    network::LinkId,
    world::World,
};

/// INV-C22's five seconds, whatever the product takes for them.
const LOSS_APART: Millis = 5_000;

/// What the checks remember, and no part of the product knows.
pub(crate) struct History {
    /// Hosts that Core's GET identity answered 401.
    pub(crate) unauthorized: BTreeSet<usize>,
    /// Commands that ran.
    pub(crate) commands: BTreeSet<u64>,
    /// Mutations sent on a connection and not answered.
    pub(crate) mutations: BTreeMap<LinkId, Vec<(RequestId, AllocationId)>>,
    /// Generations that were answered keep false.
    pub(crate) given_up: BTreeSet<Generation>,
    /// Answers in a row that said "compute lost", as one owner got them.
    lost: BTreeMap<(OwnerEpoch, AllocationId), Vec<(ConnectionId, Millis)>>,
    /// The latest answer about an allocation, as it was given to one owner.
    pub(crate) said: BTreeMap<(OwnerEpoch, AllocationId), Sighting>,
    /// Whether the node was connected when its allocation was given up, as whoever decided saw it.
    given_up_online: BTreeMap<AllocationId, bool>,
    /// Until when each process that owns may send, on a clock that only moves forward.
    pub(crate) leases: BTreeMap<u64, Millis>,
    /// What operators asked of the deployment, as it was committed.
    pub(crate) reset: reset::State,
    /// And of nodes that are drained: the deadline, and whether it was declared passed.
    drains: BTreeMap<NodeId, (Millis, bool)>,
    /// Nodes that were removed, ever.
    pub(crate) removed: BTreeSet<NodeId>,
    /// Kills that a node confirmed.
    killed: BTreeSet<AllocationId>,
    /// Turns that a runtime started, ever, and the bytes that each wrote.
    pub(crate) turns: BTreeSet<(SessionId, u64)>,
    pub(crate) wrote: BTreeMap<(SessionId, u64), u64>,
    /// Allocations whose latest restore was answered `running` by the resume itself.
    pub(crate) verified: BTreeSet<AllocationId>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            unauthorized: BTreeSet::new(),
            commands: BTreeSet::new(),
            mutations: BTreeMap::new(),
            given_up: BTreeSet::new(),
            lost: BTreeMap::new(),
            said: BTreeMap::new(),
            given_up_online: BTreeMap::new(),
            leases: BTreeMap::new(),
            reset: reset::State::None,
            drains: BTreeMap::new(),
            removed: BTreeSet::new(),
            killed: BTreeSet::new(),
            turns: BTreeSet::new(),
            wrote: BTreeMap::new(),
            verified: BTreeSet::new(),
        }
    }
}

impl History {
    /// An `info` of an owner was answered, or was not.
    pub(crate) fn looked(
        &mut self,
        of: (OwnerEpoch, AllocationId),
        on: ConnectionId,
        sighting: Sighting,
        now: Millis,
    ) {
        self.said(of, sighting);
        let answers = self.lost.entry(of).or_default();
        match sighting {
            Sighting::Absent { lost: true } => answers.push((on, now)),
            _ => answers.clear(),
        }
    }

    pub(crate) fn gives_up(&mut self, id: AllocationId, online: bool) {
        self.given_up_online.insert(id, online);
    }

    pub(crate) fn drain_asked(&mut self, node: NodeId, deadline: Millis) {
        self.drains.insert(node, (deadline, false));
    }

    /// Its deadline is declared passed; which one was asked for.
    pub(crate) fn drain_passes(&mut self, node: NodeId) -> Option<Millis> {
        let (deadline, passed) = self.drains.get_mut(&node)?;
        *passed = true;
        Some(*deadline)
    }

    pub(crate) fn drain_passed(&self, node: NodeId) -> bool {
        self.drains.get(&node).is_some_and(|(_, passed)| *passed)
    }

    pub(crate) fn drain_over(&mut self, node: NodeId) {
        self.drains.remove(&node);
    }

    /// A kill was answered; a planted defect calls with what was not.
    pub(crate) fn killed(&mut self, id: AllocationId, confirmed: bool) {
        if confirmed {
            self.killed.insert(id);
        }
    }

    /// In a row.
    pub(crate) fn lost_answers(&self, of: (OwnerEpoch, AllocationId)) -> usize {
        self.lost.get(&of).map_or(0, Vec::len)
    }

    pub(crate) fn said(&mut self, of: (OwnerEpoch, AllocationId), sighting: Sighting) {
        self.said.insert(of, sighting);
    }
}

impl World {
    /// After every event.
    pub(crate) fn check(&mut self) {
        self.check_reservations();
        self.check_rows();
        self.check_sandboxes();
        self.check_work();
        if self.db.suspends {
            self.check_vms();
        }
    }

    fn check_rows(&mut self) {
        let db = &self.db;
        let mut broken = None;
        let mut sessions = BTreeSet::new();
        for row in db.unreleased() {
            if !sessions.insert(row.session) {
                broken = Some((Invariant::C12, format!("two allocations of {}", row.session)));
            }
            let is_open = |op: &&crate::database::OperationRow| {
                matches!(op.state, OperationState::Intent | OperationState::Sent)
            };
            if row.operations.iter().filter(is_open).count() > 1 {
                broken = Some((Invariant::C16, format!("two operations of {} are open", row.id)));
            }
        }
        let kept_again = self.history.given_up.iter().find(|g| db.is_kept(**g));
        if let Some(generation) = kept_again {
            broken = Some((
                Invariant::C8,
                format!("generation {generation} was given up and is kept"),
            ));
        }
        if let Some((invariant, what)) = broken {
            self.violated(invariant, || what);
        }
    }

    /// The truth on the hosts, which no Core ever sees.
    fn check_sandboxes(&mut self) {
        let mut seen = BTreeSet::new();
        let mut broken = None;
        for host in &self.hosts {
            for (id, count) in &host.engine.made {
                if *count > 1 {
                    broken = Some(format!(
                        "allocation {} was made {count} times",
                        ids::number(id.as_uuid())
                    ));
                }
            }
            for (id, container) in &host.engine.containers {
                if !seen.insert(*id) {
                    broken = Some(format!(
                        "allocation {} has two sandboxes",
                        ids::number(id.as_uuid())
                    ));
                }
                let row = self.db.allocations.get(id);
                if row.is_some_and(|row| row.generation != container.generation) {
                    broken = Some(format!("a sandbox of another generation than {row:?}"));
                }
            }
        }
        if let Some(what) = broken {
            self.violated(Invariant::OneSandbox, || what);
        }
        let holds = |host: &Host| (host.engine.containers.len(), self.db.nodes[&host.id].highest);
        let mut hosts = self.hosts.iter().map(holds);
        if let Some((held, room)) = hosts.find(|(held, room)| *held > *room as usize) {
            self.violated(Invariant::C10, || {
                format!("{held} sandboxes on a host for {room}")
            });
        }
    }

    /// The machine knows of exactly the work that there is.
    fn check_work(&mut self) {
        for host in 0..self.hosts.len() {
            let Some(process) = self.hosts[host].process.as_ref() else {
                continue;
            };
            let (said, real) = (process.machine.active_operations(), process.unfinished.len());
            let idle = self.could_start(host);
            self.demand(said == real && real <= 32, Invariant::N26, || {
                format!("host {host}: {said} operations are counted, {real} run")
            });
            if let Some(asked) = idle {
                self.violated(Invariant::N24, || {
                    format!("host {host}: {asked:?} waits beside a free slot")
                });
            }
        }
    }

    /// A request that waits although a slot and its allocation's lane are free.
    fn could_start(&self, host: usize) -> Option<crate::network::Asked> {
        let here = &self.hosts[host];
        let process = here.process.as_ref()?;
        let link = self.network.links.get(&process.link?)?;
        let of_requests = || process.work.values().filter(|work| work.ticket.is_some());
        let slots = of_requests().filter(|work| !work.answered).count() < here.operations
            && process.unfinished.len() < 32
            && process.unfinished.len() == of_requests().count();
        let lane_is_free = |id: AllocationId| !process.lanes.contains_key(&id);
        let waits = link
            .delivered
            .iter()
            .find(|d| !d.started && lane_is_free(d.asked.allocation));
        waits.filter(|_| slots).map(|d| d.asked)
    }

    /// One event of an allocation, as it is committed. `before` is its row until then.
    pub(crate) fn check_event(&mut self, before: &AllocationRow, event: Event, detail: &Detail) {
        let id = before.id;
        let Some(row) = self.db.allocations.get(&id).cloned() else {
            return;
        };
        self.check_settled(before, &row, detail);
        if let Event::Observed(sighting) | Event::CreateAnswered(sighting) = event {
            // Silence, `not_found` and refusals stay what they are.
            let said = self
                .of_owner(id)
                .and_then(|of| self.history.said.get(&of).copied());
            self.demand(
                !sighting.settles_create() || said == Some(sighting),
                Invariant::P10,
                || format!("{sighting:?} is recorded and {said:?} was answered"),
            );
        }
        let entered = |state| row.state == state && before.state != state;
        let by_core = matches!(event, Event::GivenUp(cause) if cause != Cause::Archive);
        if by_core && entered(AllocationState::CleanupPending) && row.ever_sent {
            let online = self.history.given_up_online.get(&id) == Some(&true);
            self.demand(online, Invariant::C19, || {
                format!(
                    "allocation {} is given up by {event:?}, its node is away",
                    ids::number(id.as_uuid())
                )
            });
        }
        let waited = matches!(
            event,
            Event::GivenUp(Cause::CreateUnresolved | Cause::NeverLinked)
        );
        self.demand(!(waited && before.initialized), Invariant::C37, || {
            format!("allocation {} is given up, and linked", ids::number(id.as_uuid()))
        });
        if event == Event::LossConfirmed {
            self.check_loss(&row);
        }
        if entered(AllocationState::Released) {
            self.check_release(&row, event);
        }
    }

    /// An operation of unknown outcome is settled by its node's answer alone (INV-P32).
    pub(crate) fn check_settled(&mut self, before: &AllocationRow, after: &AllocationRow, detail: &Detail) {
        for op in &after.operations {
            let was = before
                .operations
                .iter()
                .find(|was| was.id == op.id)
                .map(|was| was.state);
            let settles = op.state == OperationState::Settled && was != Some(OperationState::Settled);
            if settles && detail.answered_by != Some(op.node) {
                self.violated(Invariant::P32, || {
                    format!("{} is settled by {:?}", op.kind.as_str(), detail.answered_by)
                });
            }
        }
    }

    /// What the owner of now was told about an allocation.
    pub(crate) fn of_owner(&self, id: AllocationId) -> Option<(OwnerEpoch, AllocationId)> {
        self.db.owner.map(|owner| (owner.epoch, id))
    }

    pub(crate) fn check_loss(&mut self, row: &AllocationRow) {
        let heard = self.of_owner(row.id).and_then(|of| self.history.lost.get(&of));
        let answers = heard.cloned().unwrap_or_default();
        let last = answers.last().copied();
        let first = last.and_then(|(on, _)| answers.iter().find(|(at, _)| *at == on).copied());
        let apart = last.zip(first).map(|((_, last), (_, first))| last - first);
        let fits = apart.is_some_and(|apart| apart >= LOSS_APART);
        // Both rules say so: the protocol's of its answers, Core's of its confirmation.
        let rule = if answers.len() < 2 {
            Invariant::C22
        } else {
            Invariant::P23
        };
        self.demand(fits, rule, || format!("a loss after answers {apart:?} ms apart"));
        let runs = self
            .sandbox(row.id)
            .is_some_and(|(_, status)| status == Status::Running);
        self.demand(!runs, Invariant::P10, || {
            "a running sandbox is declared lost".to_owned()
        });
        self.reach("a loss was confirmed");
    }

    fn sandbox(&self, id: AllocationId) -> Option<(usize, Status)> {
        let mut hosts = self.hosts.iter().enumerate();
        hosts.find_map(|(n, host)| Some((n, host.engine.containers.get(&id)?.status)))
    }

    pub(crate) fn check_release(&mut self, row: &AllocationRow, event: Event) {
        if !row.ever_sent {
            return;
        }
        let number = ids::number(row.id.as_uuid());
        let host = self.hosts.iter().find(|host| host.id == row.node);
        let receipt = host
            .and_then(|host| host.receipts.get(&row.id))
            .map(|receipt| receipt.phase());
        let killed = self.history.killed.contains(&row.id);
        self.demand(killed && row.create_settled, Invariant::C18, || {
            format!("allocation {number} is released without a confirmed kill")
        });
        let proven =
            matches!(event, Event::Observed(Sighting::Absent { .. })) && receipt == Some(Phase::Tombstone);
        self.demand(proven, Invariant::P10, || {
            format!("allocation {number} is released by {event:?}, its receipt is {receipt:?}")
        });
        self.reach("what was sent was released");
    }

    /// Why the world is not at rest yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        self.restless_owner()
            .or_else(|| self.restless_chores())
            .or_else(|| self.restless_nodes())
            .or_else(|| self.restless_allocations())
            .or_else(|| self.leftovers())
    }

    fn owner(&self) -> Option<usize> {
        (0..self.cores.len()).find(|core| self.ownership(*core).is_some())
    }

    fn restless_owner(&self) -> Option<String> {
        let Some(owner) = self.owner() else {
            return Some("nobody owns".to_owned());
        };
        let life = self.cores[owner].life.as_ref()?;
        let waiting = life.connections.values().find(|conn| !conn.callers.is_empty());
        waiting.map(|conn| format!("{} callers wait for node {}", conn.callers.len(), conn.node))
    }

    fn restless_chores(&self) -> Option<String> {
        if self.db.reset != reset::State::None {
            return Some(format!("a reset stands: {:?}", self.db.reset));
        }
        let mut nodes = self.db.nodes.values().filter(|node| !node.retired);
        let drained = nodes.find(|node| node.drain.is_some())?;
        Some(format!("node {} is drained", ids::number(drained.id.as_uuid())))
    }

    fn restless_nodes(&self) -> Option<String> {
        let owner = self.cores[self.owner()?].life.as_ref()?;
        for host in &self.hosts {
            let (number, row) = (host.number, &self.db.nodes[&host.id]);
            if row.retired {
                if !host.over {
                    return Some(format!("host {number} is removed and goes on"));
                }
                continue;
            }
            let Some(process) = &host.process else {
                return Some(format!("host {number} has no process"));
            };
            if process.machine.state() != node::StateName::Live {
                return Some(format!("host {number} is {:?}", process.machine.state()));
            }
            let conn = owner.live.get(&host.id).and_then(|id| owner.connections.get(id));
            if conn.is_none_or(|conn| conn.machine.state() != core::StateName::Live) {
                return Some(format!("host {number} has no live connection at the owner"));
            }
            if row.connection.map(|(id, _)| Some(id)) != Some(owner.live.get(&host.id).copied()) {
                return Some(format!("host {number} is not recorded as present"));
            }
            if host.managing {
                if row.pin != Some(self.db.target) {
                    return Some(format!("host {number} serves {:?}, not the target", row.pin));
                }
                let idle = |(g, kept): (&Generation, &crate::host::Kept)| {
                    *kept != crate::host::Kept::Dropped && !self.db.is_kept(*g)
                };
                if let Some((generation, _)) = host.generations.iter().find(|(g, k)| idle((g, k))) {
                    return Some(format!("host {number} holds generation {generation} for nobody"));
                }
            }
        }
        None
    }

    fn restless_allocations(&self) -> Option<String> {
        for row in self.db.unreleased() {
            let number = ids::number(row.id.as_uuid());
            if row.held.is_some() {
                match self.restless_held(row) {
                    Some(restless) => return Some(restless),
                    None => continue,
                }
            }
            let session = &self.db.sessions[&row.session];
            let runs = matches!(row.lifecycle(), State::Running { .. })
                && row.initialized
                && self
                    .sandbox(row.id)
                    .is_some_and(|(_, status)| status == Status::Running);
            if !runs || session.archived {
                return Some(format!(
                    "allocation {number} is {:?}, {:?}",
                    row.lifecycle(),
                    self.sandbox(row.id)
                ));
            }
        }
        for id in self.db.sessions.keys().filter(|id| self.db.wants(**id)) {
            let views = self.db.views(self.now);
            if matches!(
                place(&required(*id), &self.db.deployment(), &views),
                Answer::Node { .. } | Answer::Preparing
            ) {
                return Some(format!("session {} waits", ids::number(id.as_uuid())));
            }
        }
        None
    }

    /// What released allocations left on hosts: nothing but tombstones.
    fn leftovers(&self) -> Option<String> {
        // What a late engine call leaves on a host that is given back is its uninstaller's.
        for host in self.hosts.iter().filter(|host| !host.over) {
            let known = host
                .engine
                .containers
                .keys()
                .chain(host.engine.volumes.keys())
                .chain(host.receipts.keys());
            for id in known {
                let Some(row) = self.db.allocations.get(id) else {
                    return Some(format!("host {} knows {id}, Core does not", host.number));
                };
                let found = host.engine.found(*id);
                let phase = host.receipts.get(id).map(|receipt| receipt.phase());
                // At a node that it left, a receipt stays: nothing is made under it unasked.
                let left = self.db.suspends && row.node != host.id;
                let clean = found.is_empty() && (left || matches!(phase, None | Some(Phase::Tombstone)));
                if row.is_released() && !clean {
                    let number = ids::number(id.as_uuid());
                    return Some(format!(
                        "host {}: allocation {number} left {found:?}, {phase:?}",
                        host.number
                    ));
                }
            }
            for (id, generation) in host.machine_state.vms.keys() {
                let row = self.db.allocations.get(id);
                if row.is_none_or(|row| row.is_released()) {
                    let number = ids::number(id.as_uuid());
                    return Some(format!(
                        "host {}: allocation {number} left compute {generation}",
                        host.number
                    ));
                }
            }
            if !host.machine_state.helpers.is_empty() {
                return Some(format!("host {}: helpers are at work", host.number));
            }
            if !host.engine.calls.is_empty() {
                return Some(format!("host {}: engine calls are under way", host.number));
            }
        }
        None
    }

    /// Which states the world came through; for the test of its reach.
    pub(crate) fn note_reach(&mut self) {
        for row in self.db.allocations.values() {
            if let Some(cause) = row.cause {
                *self.reached.entry(cause.as_str()).or_default() += 1;
            }
            let unknown = |kind| {
                row.operations
                    .iter()
                    .any(|op| op.kind == kind && op.state == OperationState::Unconfirmed)
            };
            if unknown(Operation::Kill) {
                *self.reached.entry("a kill of unknown outcome").or_default() += 1;
            }
            if matches!(row.lifecycle(), State::Creating(Mutation::Unconfirmed)) {
                *self
                    .reached
                    .entry("a create of unknown outcome at the end")
                    .or_default() += 1;
            }
        }
    }
}
