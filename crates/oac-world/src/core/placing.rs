//! Sessions that wait for a sandbox: all that are due are placed by one transaction (`oac-core`'s `sessions/admission.rs`
//! and `allocations/demand.rs`), and where one fits nowhere an idle sandbox is suspended early for it
//! (`allocations/worker/relieve.rs`).

use std::collections::BTreeSet;

use oac_lifecycle::{
    placement::{self, Answer, Node, Request},
    suspension::{may_suspend, pressure},
};
use oac_model::{AllocationId, ComputePhase, OwnerEpoch, SessionId};

use super::transaction::{Choice, Placing, Purpose, Reply, Write};
use crate::{
    agenda::Millis,
    database::{AllocationRow, required},
    defect::Defect,
    ids,
    world::World,
};

const DEMAND: Millis = 2_000;
const HELD_PAUSE: Millis = 10;
/// So long one sandbox is tried to be suspended early.
const RELIEF_WAIT: Millis = 60_000;

impl World {
    /// Sessions that wait are placed, each on the node that memory thinks best beside those before it.
    pub(super) fn place_waiting(&mut self, core: usize) -> Millis {
        let now = self.now;
        let Some(worker) = self.worker(core).filter(|worker| worker.placing.is_empty()) else {
            return Millis::MAX;
        };
        let epoch = worker.epoch;
        let due = worker.waiting.iter().filter(|(_, at)| **at <= now);
        let due: Vec<SessionId> = due.map(|(id, _)| *id).collect();
        let mut views = self.db.views(now);
        if self.has(Defect::CordonIgnored) {
            for view in &mut views {
                (view.cordoned, view.draining) = (false, false);
            }
        }
        let mut choices = Vec::new();
        for session in due {
            let twice = self.has(Defect::PlaceTwice) && self.random.one_in(4);
            if !self.db.wants(session) && !twice {
                if let Some(worker) = self.worker(core) {
                    worker.waiting.remove(&session);
                }
                continue;
            }
            let asked = match self.has(Defect::LabelsIgnored) {
                true => Request::default(),
                false => required(session),
            };
            let answer = placement::place(&asked, &self.db.deployment(), &views);
            if let Answer::Node { id: node, pin } = answer {
                // For both mistakes memory is behind, so that it is the lock's to notice.
                let behind = self.has(Defect::SharedUncounted) || self.has(Defect::PlaceWithoutRecheck);
                for view in views.iter_mut().filter(|view| !behind && view.id == node) {
                    (view.active, view.retained) = (view.active + 1, view.retained + 1);
                }
                choices.push(Choice { session, node, pin });
                continue;
            }
            if answer == Answer::Unavailable {
                self.relieve(core, session, &asked, &views);
            }
            if let Some(worker) = self.worker(core) {
                worker.waiting.insert(session, now + DEMAND);
            }
        }
        if !choices.is_empty() {
            if let Some(worker) = self.worker(core) {
                worker.placing = choices.iter().map(|choice| choice.session).collect();
            }
            self.submit(core, Some(epoch), Write::Place(choices), Purpose::Place(epoch));
            return Millis::MAX;
        }
        let waiting = self.worker(core).map(|worker| &worker.waiting);
        let later = waiting.and_then(|waiting| waiting.values().filter(|at| **at > now).min());
        later.copied().unwrap_or(Millis::MAX)
    }

    pub(super) fn place_stored(&mut self, core: usize, epoch: OwnerEpoch, reply: &Reply) {
        let now = self.now;
        let Some(worker) = self.worker(core).filter(|worker| worker.epoch == epoch) else {
            return;
        };
        let sessions = std::mem::take(&mut worker.placing);
        let mut relieved = false;
        for (n, session) in sessions.into_iter().enumerate() {
            let placed = match reply {
                Reply::Placed(all) => all.get(n),
                _ => None,
            };
            let again = match placed {
                Some(Placing::Done) => {
                    relieved |= worker.relieved.remove(&session);
                    worker.waiting.remove(&session);
                    continue;
                }
                // Its memory of the node was corrected.
                Some(Placing::Unfit) => 1,
                Some(Placing::Held) => HELD_PAUSE,
                None => DEMAND,
            };
            worker.waiting.insert(session, now + again);
        }
        if relieved {
            self.reach("a demand found the room that was made for it");
        }
        self.poke(core);
    }

    /// Begins to suspend the sandbox that was idle longest on the node that would be chosen with a slot more: one at a time
    /// for each demand.
    fn relieve(&mut self, core: usize, session: SessionId, asked: &Request, views: &[Node]) {
        let now = self.now;
        let Some(worker) = self.worker(core) else { return };
        worker.early.retain(|_, (until, _)| now < *until);
        if !self.db.suspends || self.is_relieved(core, session) {
            return;
        }
        let mut without = BTreeSet::new();
        while let Some(node) = pressure::place_with_room(asked, &self.db.deployment(), views, &without) {
            let idle = self.db.unreleased().filter(|row| row.node == node);
            let idle = idle.filter(|row| self.may_come_early(core, row));
            let longest = idle.min_by_key(|row| (self.db.sessions[&row.session].active_at, row.id));
            let Some(id) = longest.map(|row| row.id) else {
                without.insert(node);
                continue;
            };
            if let Some(worker) = self.worker(core) {
                worker.early.insert(id, (now + RELIEF_WAIT, session));
            }
            self.say(|| {
                let (id, session) = (ids::number(id.as_uuid()), ids::number(session.as_uuid()));
                format!("core {core}: allocation {id} is suspended early for session {session}")
            });
            return self.poke(core);
        }
    }

    fn is_relieved(&mut self, core: usize, session: SessionId) -> bool {
        let early = self.worker(core).map(|worker| &worker.early);
        early.is_some_and(|early| early.values().any(|(_, of)| *of == session))
    }

    fn may_come_early(&self, core: usize, row: &AllocationRow) -> bool {
        let Some(held) = self.held_of(row) else {
            return false;
        };
        held.phase() == Some(ComputePhase::Running)
            && !self.comes_early(core, row.id)
            && self.is_linked(core, row, &held)
            && may_suspend(&self.stillness(row.session, row, true)).is_ok()
    }

    /// It is suspended without waiting for the idle time.
    pub(crate) fn comes_early(&self, core: usize, id: AllocationId) -> bool {
        let life = self.cores[core].life.as_ref();
        let early = life.and_then(|life| life.worker.as_ref()?.early.get(&id));
        early.is_some_and(|(until, _)| self.now < *until)
    }
}
