//! What one transition may do, and what holds between any two steps.

use oac_lifecycle::{
    allocation::State,
    suspension::{Answer, Event, Held, Observation},
};
use oac_model::ComputePhase as P;

use super::{Defect, Scene, node};
use crate::host::Ask;

impl Scene {
    pub(super) fn transition(&mut self, was: &Held, event: &Event) {
        let (from, to) = (was.phase(), self.held.phase());
        if from != to {
            self.phase_at = self.now;
            self.shown = None;
            if to == Some(P::Suspended) && from == Some(P::Suspending) {
                self.reached.insert("suspended");
                self.retention_at = Some(self.now + 24 * 3_600_000);
            }
            if from == Some(P::Restoring) && to == Some(P::Waking) {
                self.reached.insert("restored");
                let by_resume = matches!(
                    event,
                    Event::Answered(Answer::Running)
                        | Event::Observed {
                            of: Observation::Resume,
                            answer: Answer::Running,
                            ..
                        }
                );
                if !by_resume {
                    self.violated("INV-C34 a restore was verified by something else than resume");
                }
                if self.has(Defect::ConsumesBeforeTheLink)
                    && let Some(kept) = self.held.checkpoint.as_mut()
                {
                    kept.consumed = true;
                }
            }
            if matches!(from, Some(P::Restoring | P::Waking)) && to == Some(P::Suspended) {
                self.reached.insert("returned");
                if self.has(Defect::CountsEveryReturn) && self.held.restore_failures == was.restore_failures {
                    self.held.restore_failures += 1;
                }
                let target = was.current().unwrap();
                let counts = matches!(event, Event::LossConfirmed)
                    || self.held.current().unwrap().seen
                    || matches!(
                        event,
                        Event::Answered(Answer::Invalid)
                            | Event::Observed {
                                answer: Answer::Invalid,
                                ..
                            }
                    );
                if self.held.restore_failures > was.restore_failures && (!counts || was.leave) {
                    self.violated("INV-C41 a return counted that must not");
                }
                if *event == Event::LossConfirmed {
                    self.reached.insert("lost target");
                } else if !self.held.compute(target.generation).unwrap().ended {
                    self.violated("INV-C39 a return left a target that is not known to have ended");
                }
            }
        }
        if self.held.state == State::Released {
            self.reached.insert("released");
        }
        for compute in &self.held.computes {
            let newly = compute.ended && was.compute(compute.generation).is_some_and(|c| !c.ended);
            let by = matches!(
                event,
                Event::Answered(Answer::Done | Answer::Invalid)
                    | Event::NotSent
                    | Event::Forgotten(_)
                    | Event::Observed {
                        of: Observation::Resume,
                        answer: Answer::Invalid,
                        ..
                    }
            );
            if newly && !by {
                self.violations.insert("INV-C39 a compute ended without proof");
            }
        }
        let consumed = |held: &Held| held.checkpoint.is_some_and(|c| c.consumed);
        if consumed(&self.held) && !consumed(was) && *event != Event::Linked {
            self.violated("INV-C35 a checkpoint was consumed by something else than a link");
        }
        if was.cleaning() != self.held.cleaning() && self.held.cleaning() && to.is_none() {
            let phase = from.unwrap_or(P::Disabled);
            if self.held.holds_active(phase) != was.holds_active(phase) {
                self.violated("INV-C40 entering cleanup changed the slots");
            }
        }
    }

    /// What must hold between any two steps.
    pub fn check(&mut self) {
        let live: usize = self
            .hosts
            .iter()
            .map(|host| host.vms.values().filter(|vm| vm.is_live()).count())
            .sum();
        if live > 1 {
            self.violated("INV-C21 two live computes");
        }
        let resuming = self.hosts.iter().any(|host| {
            [host.helper, host.orphan]
                .into_iter()
                .flatten()
                .any(|(ask, _)| matches!(ask, Ask::Resume(..)))
        });
        if self.held.phase() == Some(P::Suspended) && (live > 0 || resuming) {
            self.violated("INV-C20 the active slot is free and something runs");
        }
        if self.held.state == State::Released {
            for n in 0..2 {
                // What an operator gave up is killed all the same once its node is back.
                let owed = self.held.owed().any(|c| c.node == node(n));
                if self.hosts[n].has_anything() && !owed {
                    self.violated("INV-C28 released with something left at a node");
                }
            }
            if self.held.checkpoint.is_some() || !self.shelf.kept.is_empty() {
                self.violated("INV-C28 released with a checkpoint in the store");
            }
            if self.held.computes.iter().any(|c| !c.ended) {
                self.violated("INV-C28 released with a compute that is not known to have ended");
            }
        }
        if self.held.open.is_some() && self.held.state.open().is_some() {
            self.violated("INV-C16 two open mutations");
        }
        let undeleted_deleted = self.held.unconsumed().is_some()
            && !self.held.cleaning()
            && self.held.phase().is_some()
            && self.deleted_before_use();
        if undeleted_deleted {
            self.violated("INV-C35 delete_retained before the checkpoint was consumed");
        }
        if self.held.restore_failures > 0 && self.held.phase() == Some(P::Running) {
            self.violated("restore_failures outlived a link");
        }
    }

    fn deleted_before_use(&self) -> bool {
        let at = self.index(self.held.node);
        matches!(self.hosts[at].helper, Some((Ask::Delete(_), _)))
    }
}
