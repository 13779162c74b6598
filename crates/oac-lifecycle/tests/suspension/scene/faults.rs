//! What may go wrong, and what an operator does.

use std::collections::BTreeSet;

use oac_lifecycle::{
    allocation::{Cause, State},
    suspension::{Answer, Event, Watch},
};
use oac_model::{ComputePhase as P, ConnectionId, NodeId};

use super::{Flight, Scene, What, node};
use crate::host::{Connection, Stored, Vm};

impl Scene {
    /// Something goes wrong, or an operator acts.
    pub fn fault(&mut self) {
        if self.faults == 0 {
            return;
        }
        self.faults -= 1;
        let at = self.random.below(2);
        let which = self.random.below(11);
        tell!(self, "FAULT {which} at node {at}");
        match which {
            0 => self.crash(),
            1 => {
                // The answer is lost or the caller's time is over.
                if let Some(Flight::Waits(_, at, what)) = self.flight.take() {
                    self.hosts[at].forget_callers();
                    self.lost(at, what);
                }
            }
            2 => self.disconnect(at),
            3 => self.kill_node(at),
            4 => self.reboot(at),
            5 | 6 => self.end_sandbox(at, which == 5),
            7 => {
                // One that rests, bound or only published: whoever works with it read it before.
                let rests = self
                    .hosts
                    .iter()
                    .all(|host| host.helper.is_none() && host.orphan.is_none());
                let k = self.k();
                if matches!(self.held.phase(), Some(P::Suspended | P::Suspending))
                    && rests
                    && self.shelf.kept.contains_key(&k)
                {
                    self.shelf.kept.insert(k, Stored::Bad);
                    self.shelf.valid.insert(k, false);
                }
            }
            8 => {
                if self.held.state != State::Released {
                    self.give_up(Cause::Archive);
                }
            }
            9 => self.held.leave = !self.held.leave && self.held.phase().is_some(),
            _ => self.lose_node(at),
        }
    }

    /// For good.
    pub fn lose_node(&mut self, at: usize) {
        self.disconnect(at);
        self.hosts[at].down = true;
    }

    /// What lives there ends by itself, or is removed by somebody.
    pub fn end_sandbox(&mut self, at: usize, stays: bool) {
        let host = &mut self.hosts[at];
        let live = host.vms.iter().find(|(_, vm)| vm.is_live()).map(|(g, _)| *g);
        let Some(generation) = live.filter(|_| host.helper.is_none()) else {
            return;
        };
        if stays {
            host.vms.insert(generation, Vm::Ended);
        } else {
            host.vms.remove(&generation);
        }
        self.linked = false;
    }

    pub(super) fn lost(&mut self, at: usize, what: What) {
        match what {
            What::Request(_) => {
                self.store(Event::AnswerLost);
                self.watch.answer_lost(node(at), self.now);
            }
            What::Kill => {
                self.store(Event::AnswerLost);
                self.watch.base.answer_lost(self.now);
            }
            What::Look(of) => self
                .watch
                .observed(&self.held, node(at), of, Answer::Unknown, self.now),
            What::BaseLook => {}
        }
    }

    /// Another Core takes over: what this one remembered is gone, and what it had under way is closed.
    fn crash(&mut self) {
        self.flight = None;
        self.watch = Watch::default();
        for host in &mut self.hosts {
            host.forget_callers();
            if host.connection == Connection::Current {
                host.connection = Connection::Stale;
            }
        }
    }

    fn disconnect(&mut self, at: usize) {
        self.hosts[at].disconnect();
        if let Some(Flight::Waits(_, on, what)) = self.flight
            && on == at
        {
            self.flight = None;
            self.lost(at, what);
        }
    }

    fn kill_node(&mut self, at: usize) {
        self.disconnect(at);
        let host = &mut self.hosts[at];
        if host.orphan.is_some() && host.helper.is_some() {
            return;
        }
        host.lane = None;
        if let Some(work) = host.helper.take() {
            host.orphan = Some(work);
        }
    }

    fn reboot(&mut self, at: usize) {
        self.disconnect(at);
        let host = &mut self.hosts[at];
        (host.lane, host.helper, host.orphan) = (None, None, None);
        for vm in host.vms.values_mut() {
            *vm = Vm::Ended;
        }
        if at == self.index(self.held.node) {
            self.linked = false;
        }
    }

    /// The node dials again.
    pub fn reconnect(&mut self, at: usize) -> bool {
        if self.hosts[at].connection == Connection::Current || self.hosts[at].down {
            return false;
        }
        self.disconnect(at);
        self.hosts[at].connection = Connection::Current;
        self.connections[at] = Some(ConnectionId::random());
        true
    }

    /// An operator discards the former computes at nodes that will never return.
    pub fn discard_former(&mut self) -> bool {
        let gone: BTreeSet<NodeId> = (0..2).filter(|n| self.hosts[*n].down).map(node).collect();
        let owed = self.held.elsewhere().any(|c| gone.contains(&c.node));
        if !owed || !self.store(Event::Forgotten(gone.clone())) {
            return false;
        }
        self.discarded.extend(gone);
        true
    }

    /// A node that would never return does, after its computes were discarded.
    pub fn return_discarded(&mut self) -> bool {
        let mut returned = false;
        for id in std::mem::take(&mut self.discarded) {
            let at = self.index(id);
            returned |= std::mem::take(&mut self.hosts[at].down);
        }
        if returned {
            self.reached.insert("returned after a discard");
        }
        returned
    }
}
