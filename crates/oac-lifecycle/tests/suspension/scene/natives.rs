//! What happens by itself: a node takes its next step, a runtime links.

use oac_lifecycle::{
    allocation::{Cause, State},
    suspension::Event,
};
use oac_model::ComputePhase as P;

use super::{Defect, Demand, Scene};
use crate::host::{Ask, Host, Vm};

impl Scene {
    /// The runtime of the current compute links, if it can.
    pub fn link(&mut self) -> bool {
        let Some(current) = self.held.current().cloned() else {
            return false;
        };
        let at = self.index(self.held.node);
        let host = &self.hosts[at];
        let awake = host.vms.get(&current.generation) == Some(&Vm::Running)
            && host.woken.get(&current.generation) == Some(&true);
        if !awake || self.held.phase() != Some(P::Waking) {
            return false;
        }
        let restored = self.held.replaceable();
        let k = self.k();
        let mut linked = self.store(Event::Linked);
        if !linked && self.has(Defect::AdmitsWhatIsBeingKilled) {
            linked = true;
            self.held.state = State::Running { phase: P::Running };
            if let Some(kept) = self.held.checkpoint.as_mut() {
                kept.consumed = true;
            }
        }
        if !linked {
            return false;
        }
        self.reached.insert("linked");
        if self.killed_sent.contains(&current.generation) {
            self.violated("INV-C36 a target was admitted after its kill was sent");
        }
        if restored {
            // From here on the checkpoint is no state any more: the sandbox has moved on.
            self.shelf.valid.insert(k, false);
            self.retention_at = None;
        }
        self.linked = true;
        self.demand = Demand::None;
        true
    }

    /// One step of a node. True when there was one.
    pub fn host_step(&mut self, at: usize) -> bool {
        let had = self.has_state();
        let defect = self.defect;
        let host = &mut self.hosts[at];
        let idle = host.lane.is_none() && host.answer.is_none();
        let mut choices = Vec::new();
        if idle && !host.queue.is_empty() {
            choices.push(0);
        }
        if host.helper.is_some() {
            choices.push(1);
        }
        if host.orphan.is_some() {
            choices.push(2);
        }
        let Some(choice) = choices.get(self.random.below(choices.len().max(1))).copied() else {
            return false;
        };
        let unlucky = self.faults > 0 && self.random.once_in(6);
        let host = &mut self.hosts[at];
        let restores = |host: &Host| {
            let work = if choice == 2 { host.orphan } else { host.helper };
            match work {
                Some((Ask::Resume(_, k), 0)) => Some(k),
                _ => None,
            }
        };
        let restores = restores(host);
        let before = host.vms.len();
        match choice {
            0 => host.start(&mut self.shelf, defect),
            _ => host.work(choice == 2, unlucky, &mut self.shelf, defect),
        }
        if unlucky && choice != 0 {
            self.faults = self.faults.saturating_sub(1);
        }
        tell!(
            self,
            "node {at}: step {choice}{} -> {:?} {:?} {:?} {:?}",
            if unlucky { " (unlucky)" } else { "" },
            self.hosts[at].receipt,
            self.hosts[at].vms,
            self.hosts[at].lane,
            self.hosts[at].helper
        );
        if let Some(k) = restores
            && self.hosts[at].vms.len() > before
            && self.shelf.valid.get(&k) != Some(&true)
        {
            self.violated("INV-C21 a checkpoint was restored after its use");
        }
        if had && !self.has_state() {
            let sanctioned = self.given_up.is_some() && !matches!(self.held.state, State::Running { .. })
                || matches!(
                    self.held.state,
                    State::CleanupPending { cause, .. } if cause != Cause::ComputeLost
                );
            if !sanctioned {
                self.violated("INV-C37 the last state was destroyed without a cause");
            }
        }
        true
    }
}
